/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels by which the simulator is tested. */
#include "cuda-aware/kernels/device.h"
#include "tests/cudasim/test_kernels.h"

/* count words at dst become value + index */
GRAIL_KERNEL(cudasim_test_fill, cudasim_test_args_t, args)
{
    for (uint64_t i = GRAIL_THREAD_ID; i < args.count; i += GRAIL_THREAD_COUNT) {
        GRAIL_ST(uint32_t, args.dst + 4 * i, args.value + (uint32_t)i);
    }
}

/* count 16-byte lines are copied from src to dst */
GRAIL_KERNEL(cudasim_test_copy16, cudasim_test_args_t, args)
{
    for (uint64_t i = GRAIL_THREAD_ID; i < args.count; i += GRAIL_THREAD_COUNT) {
        GRAIL_ST(grail_v16_t, args.dst + 16 * i, GRAIL_LD(grail_v16_t, args.src + 16 * i));
    }
}

/* every thread waits until the word at src is value, then adds 1 to the word at dst */
GRAIL_KERNEL(cudasim_test_wait, cudasim_test_args_t, args)
{
    while (grail_ld32_acquire(args.src) != args.value) {
        GRAIL_SPIN();
    }
    grail_add32(args.dst, 1);
}

/* Blocks meet: each adds 1 to the word at dst and waits until it is the number of blocks. */
GRAIL_KERNEL(cudasim_test_meet, cudasim_test_args_t, args)
{
    if (threadIdx.x == 0) {
        grail_add32(args.dst, 1);
        while (GRAIL_LD_VOLATILE(uint32_t, args.dst) < gridDim.x) {
            GRAIL_SPIN();
        }
    }
}

/* Reverses blockDim.x words at src into dst by way of the words at dst, with a barrier between. */
GRAIL_KERNEL_BARRIER(cudasim_test_reverse, cudasim_test_args_t, args)
{
    uint64_t n = blockDim.x, base = 4 * n * blockIdx.x, i = threadIdx.x;
    GRAIL_ST_VOLATILE(uint32_t, args.dst + base + 4 * i,
                      GRAIL_LD(uint32_t, args.src + base + 4 * i));
    GRAIL_SYNC_BLOCK();
    uint32_t mirrored = GRAIL_LD_VOLATILE(uint32_t, args.dst + base + 4 * (n - 1 - i));
    GRAIL_SYNC_BLOCK();
    GRAIL_ST_VOLATILE(uint32_t, args.dst + base + 4 * i, mirrored);
}
