/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks that stay for a moment after a copy and take the next one without a launch. */
#include "cuda-aware/kernels/bytes.h"
#include "cuda-aware/kernels/resident.h"

#define GRAIL_RESIDENT_MASK 0xffffffffffffull

/* What the threads of a block do next. */
typedef struct grail_resident_work {
    grail_dptr_t dst, src;
    uint32_t length;
    uint32_t parts, part_bytes;     /* part_bytes is not set when it is all one part */
    uint32_t over;
} grail_resident_work_t;

GRAIL_DEVICE_FN void grail_resident_copy_part(const grail_resident_work_t *work)
{
    uint32_t from = 0, length = work->length;

    if (work->parts > 1) {
        from = blockIdx.x * work->part_bytes;   /* may be past the end: rounded up */
        length = from >= length ? 0 : length - from;
        length = length < work->part_bytes ? length : work->part_bytes;
    }
    grail_copy_bytes(work->dst + from, work->src + from, length, threadIdx.x, blockDim.x);
}

/* ---- the leader, block 0: commands of the host ---- */

/* The command of this number, if all of it has arrived. */
GRAIL_DEVICE_FN int grail_resident_poll(grail_dptr_t commands, uint32_t number,
                                        grail_resident_work_t *work)
{
    grail_dptr_t at = commands + (number % GRAIL_RESIDENT_SLOTS) * sizeof(grail_resident_command_t);
    uint64_t tag = number & 0xffff;
    grail_v16_t ends = grail_ld16_volatile(at);
    uint64_t length = GRAIL_LD_VOLATILE(uint64_t, at + 16);

    if (ends.lo >> 48 != tag || ends.hi >> 48 != tag || length >> 48 != tag)
        return 0;
    work->dst = ends.lo & GRAIL_RESIDENT_MASK;
    work->src = ends.hi & GRAIL_RESIDENT_MASK;
    work->length = (uint32_t)length;
    return 1;
}

/* The leader and those workers behind it that run: a full GPU may not have let them all in yet. */
GRAIL_DEVICE_FN uint32_t grail_resident_count(const grail_resident_args_t *args)
{
    grail_dptr_t at = args->control + offsetof(grail_resident_control_t, present);
    uint32_t there = 0, count = 1;

#ifdef __CUDACC__
#pragma unroll
#endif
    for (uint32_t i = 1; i < GRAIL_RESIDENT_BLOCKS; i++)    /* all loads under way at once */
        there |= (uint32_t)(GRAIL_LD_VOLATILE(uint32_t, at + 4 * i) == args->launch) << i;
    while (there >> count & 1)
        count++;
    return count;
}

/* The caller's last fence makes these stores a release. */
GRAIL_DEVICE_FN void grail_resident_publish(const grail_resident_args_t *args, uint64_t number,
                                            const grail_resident_work_t *work, uint32_t parts)
{
    uint64_t tag = number << 48;
    grail_v16_t ends, rest;

    ends.lo = tag | work->dst;
    ends.hi = tag | work->src;
    rest.lo = tag | (uint64_t)work->part_bytes << 24 | work->length;
    rest.hi = tag | (uint64_t)parts << 32 | args->launch;
    grail_st16_volatile(args->control, ends);
    grail_st16_volatile(args->control + 16, rest);
}

/*
 * Only the leader tells the host, so that `done` never goes back, and takes no command before all
 * parts of the last are copied: so a worker that has a part never sees the next one half-written,
 * and no part is left when the launch ends.
 */
GRAIL_DEVICE_FN void grail_resident_lead(const grail_resident_args_t *args,
                                         grail_resident_work_t *work)
{
    const grail_dptr_t finished_at = args->control + offsetof(grail_resident_control_t, finished);
    uint32_t number = args->first, running = 1, finished = 0;
    const uint64_t born = grail_timer_ns();
    uint64_t last = born, shared = 0;

    if (threadIdx.x == 0 && gridDim.x > 1) {
        work->dst = work->src = 0;
        work->length = work->part_bytes = 0;
        shared = GRAIL_LD_VOLATILE(uint64_t, args->control) >> 48;
        finished = GRAIL_LD_VOLATILE(uint32_t, finished_at);
    }
    for (;;) {
        if (threadIdx.x == 0) {
            work->over = last - born > args->life_ns;
            work->parts = 1;
            while (!work->over && !grail_resident_poll(args->commands, number, work)) {
                if (grail_timer_ns() - last > args->linger_ns) {
                    work->over = 1;
                    break;
                }
                GRAIL_SPIN();
            }
            /* The sources may have been copied by this very block before, and changed since. */
            grail_fence_acquire();
            if (!work->over && work->length == 0 && work->dst == args->launch) {
                grail_st32_release(args->done, number);
                work->over = 1;
            }
            if (!work->over && work->length > GRAIL_RESIDENT_ALONE && gridDim.x > 1) {
                if (running < gridDim.x)
                    running = grail_resident_count(args);
                if (running > 1) {
                    work->parts = running;
                    work->part_bytes = ((work->length - 1) / running + 128) & ~127u;
                    grail_resident_publish(args, ++shared, work, running);
                }
            }
        }
        GRAIL_SYNC_BLOCK();
        if (work->over)
            break;
        grail_resident_copy_part(work);
        GRAIL_SYNC_BLOCK();
        if (threadIdx.x == 0) {
            if (work->parts > 1) {
                finished += work->parts - 1;
                while (GRAIL_LD_VOLATILE(uint32_t, finished_at) != finished)
                    GRAIL_SPIN();
                /* One fence acquires the workers' stores and releases them with this block's. */
                grail_fence_acquire();
                GRAIL_ST_VOLATILE(uint32_t, args->done, number);
            } else {    /* one release for the block's stores: see grail_finish() */
                grail_st32_release(args->done, number);
            }
            last = grail_timer_ns();
        }
        number++;
    }
    if (threadIdx.x == 0) {
        if (gridDim.x > 1)
            grail_resident_publish(args, ++shared, work, 0);
        grail_st32_release(args->ended, args->launch);
    }
}

/* ---- the workers ---- */

/* Something new for this block? A worker that came late still finds the end of its launch. */
GRAIL_DEVICE_FN int grail_resident_take(const grail_resident_args_t *args, uint64_t *seen,
                                        grail_resident_work_t *work)
{
    grail_v16_t ends = grail_ld16_volatile(args->control);
    grail_v16_t rest = grail_ld16_volatile(args->control + 16);
    uint64_t tag = rest.hi >> 48;
    uint32_t parts = (uint32_t)(rest.hi >> 32) & 0xffff;

    if ((uint32_t)rest.hi != args->launch || tag == *seen || rest.lo >> 48 != tag ||
        ends.lo >> 48 != tag || ends.hi >> 48 != tag || (parts != 0 && blockIdx.x >= parts))
        return 0;
    *seen = tag;
    work->dst = ends.lo & GRAIL_RESIDENT_MASK;
    work->src = ends.hi & GRAIL_RESIDENT_MASK;
    work->length = (uint32_t)rest.lo & 0xffffff;
    work->part_bytes = (uint32_t)(rest.lo >> 24) & 0xffffff;
    work->parts = parts;
    work->over = parts == 0;
    return 1;
}

GRAIL_DEVICE_FN void grail_resident_help(const grail_resident_args_t *args,
                                         grail_resident_work_t *work)
{
    uint64_t seen = ~(uint64_t)0;

    if (threadIdx.x == 0)
        GRAIL_ST_VOLATILE(uint32_t,
                          args->control + offsetof(grail_resident_control_t, present) +
                              4 * blockIdx.x,
                          args->launch);
    for (;;) {
        if (threadIdx.x == 0) {
            while (!grail_resident_take(args, &seen, work))
                GRAIL_SPIN();
            grail_fence_acquire_gpu();
        }
        GRAIL_SYNC_BLOCK();
        if (work->over)
            break;
        grail_resident_copy_part(work);
        GRAIL_SYNC_BLOCK();
        if (threadIdx.x == 0)
            grail_add32_release_gpu(args->control + offsetof(grail_resident_control_t, finished),
                                    1);
    }
}

GRAIL_KERNEL_BARRIER(grail_resident, grail_resident_args_t, args)
{
    GRAIL_SHARED(grail_resident_work_t, work, 0);

    if (blockIdx.x == 0)
        grail_resident_lead(&args, work);
    else
        grail_resident_help(&args, work);
}
