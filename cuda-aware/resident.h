/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to cuda-aware/: copies inside a GPU or between peers by a kernel that is already there. */
#ifndef GRAIL_CUDA_AWARE_RESIDENT_H
#define GRAIL_CUDA_AWARE_RESIDENT_H

#include "cuda-aware/copy.h"

/*
 * A kernel launch costs 5 us before the GPU does anything. The helper is a kernel of one block that
 * has done a small copy and polls pinned host memory for the next one for `resident_linger`
 * microseconds, then ends; a command that finds none launches one. So an idle program has nothing
 * running, and cudaDeviceSynchronize() waits for at most the linger time after the last message.
 * (Several blocks for longer copies were tried: their polling costs more than a launch.)
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
