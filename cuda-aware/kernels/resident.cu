/* SPDX-License-Identifier: BSD-3-Clause */
/* One block that stays for a moment after a small copy and takes the next one without a launch. */
#include "cuda-aware/kernels/bytes.h"
#include "cuda-aware/kernels/resident.h"

#define GRAIL_RESIDENT_MASK 0xffffffffffffull

/* The command of this number, if all of it has arrived. */
GRAIL_DEVICE_FN int grail_resident_poll(grail_dptr_t commands, uint32_t number,
                                        grail_resident_command_t *command)
{
    grail_dptr_t at = commands + (number % GRAIL_RESIDENT_SLOTS) * sizeof(*command);
    uint64_t tag = number & 0xffff;
    grail_v16_t ends = grail_ld16_volatile(at);
    uint64_t length = GRAIL_LD_VOLATILE(uint64_t, at + 16);

    if (ends.lo >> 48 != tag || ends.hi >> 48 != tag || length >> 48 != tag)
        return 0;
    command->dst = ends.lo & GRAIL_RESIDENT_MASK;
    command->src = ends.hi & GRAIL_RESIDENT_MASK;
    command->length = length & GRAIL_RESIDENT_MASK;
    return 1;
}

GRAIL_KERNEL_BARRIER(grail_resident, grail_resident_args_t, args)
{
    GRAIL_SHARED(grail_resident_command_t, command, 0);
    GRAIL_SHARED(int, over, 1);
    uint32_t number = args.first;
    uint64_t last = grail_timer_ns();

    for (;;) {
        if (threadIdx.x == 0) {
            *over = 0;
            while (!grail_resident_poll(args.commands, number, command)) {
                if (grail_timer_ns() - last > args.linger_ns) {
                    *over = 1;
                    break;
                }
                GRAIL_SPIN();
            }
            /* The sources may have been copied by this very block before, and changed since. */
            grail_fence_acquire();
        }
        GRAIL_SYNC_BLOCK();
        if (*over)
            break;
        grail_copy_bytes(command->dst, command->src, command->length, threadIdx.x, blockDim.x);
        GRAIL_SYNC_BLOCK();
        if (threadIdx.x == 0) {     /* one release for the block's stores: see grail_finish() */
            grail_st32_release(args.done, number);
            last = grail_timer_ns();
        }
        number++;
    }
    if (threadIdx.x == 0)
        grail_st32_release(args.ended, args.launch);
}
