/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to cuda-aware/: small copies by a kernel that is already there. */
#ifndef GRAIL_CUDA_AWARE_RESIDENT_H
#define GRAIL_CUDA_AWARE_RESIDENT_H

#include "cuda-aware/copy.h"

/*
 * A kernel launch costs 5 us before the GPU does anything. With option `resident` a block that has
 * done a small copy polls pinned host memory for the next one for `resident_linger` microseconds,
 * then ends; a command that finds no block launches one. So an idle program has nothing running, and
 * cudaDeviceSynchronize() or cudaFree() wait for at most the linger time after the last message.
 * Measured on an H200: 3.0 us for a copy up to 8 KiB instead of 8.5 us.
 *
 * Both addresses must be ones that kernels of `gpu` can touch. UNSUPPORTED: not by this way (too
 * many in flight, no kernels, an address of more than 48 bits); nothing was queued.
 */
grail_status_t grail_resident_start(grail_gpu_t *gpu, void *dst, const void *src, size_t length,
                                    grail_copy_t *op);

/* The slow test of an operation started here: revives the block when it has ended too early. */
grail_status_t grail_resident_test(grail_copy_t *op);

/* Waits for the block to end (bounded by the linger time) and frees its memory. Called before the
 * streams of `gpu` are destroyed. */
void grail_resident_fini(grail_gpu_t *gpu);

#endif
