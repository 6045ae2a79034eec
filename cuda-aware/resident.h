/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to cuda-aware/: copies inside a GPU or between peers by a kernel that is already there. */
#ifndef GRAIL_CUDA_AWARE_RESIDENT_H
#define GRAIL_CUDA_AWARE_RESIDENT_H

#include "cuda-aware/copy.h"

/*
 * A kernel launch costs 5 us before the GPU does anything. The helper is a kernel that has done a
 * copy and polls pinned host memory for the next one for `resident_linger` microseconds, then ends; a
 * command that finds none launches one. So an idle program has nothing running, and
 * cudaDeviceSynchronize() waits for at most the linger time after the last message. One that is
 * never idle ends after five linger times, for the sake of other threads that synchronize.
 *
 * Its first block, the leader, is the only one that polls the host (sixteen that did took longer than
 * a launch). It does copies up to GRAIL_RESIDENT_ALONE by itself. Longer ones it shares with workers,
 * up to `resident_blocks` - 1 more blocks, which poll device memory. A worker takes part as soon as it
 * has shown that it runs: the leader waits for none that a full GPU has not let in, and does all of
 * it if there is none. Workers come only where a long copy came since the last launch; if a leader
 * runs without them then, a command ends it and the next launch brings them.
 *
 * With `resident` = auto it is launched only after a run of copies each of which began within the
 * linger time of the one before, as in a ping-pong or a short exchange in a loop. A helper that
 * served few copies before it ended makes the next run that is asked for twice as long, so that a
 * program which synchronises its device after every message pays for it hardly ever.
 */
typedef struct grail_resident grail_resident_t;

/* The helper that should do this copy, which begins now; NULL: none. Counts the copy. */
grail_resident_t *grail_resident_pick(grail_gpu_t *gpu, grail_lane_t lane, size_t length);

/*
 * Both addresses must be ones that kernels of the helper's context can touch; `length` is the one it
 * was picked for. UNSUPPORTED: not by this way (too many in flight, no kernels, an address of more
 * than 48 bits); nothing was queued.
 */
grail_status_t grail_resident_start(grail_resident_t *helper, void *dst, const void *src,
                                    size_t length, grail_copy_t *op);

/* The slow test of an operation started here: revives a helper that has ended too early. */
grail_status_t grail_resident_test(grail_copy_t *op);

/* Waits for the helper to end (bounded by the linger time) and frees its memory. Called before the
 * streams of `gpu` are destroyed; not `usable`: its context is gone, nothing of CUDA is called. */
void grail_resident_fini(grail_gpu_t *gpu, bool usable);

#endif
