/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous copies whose completion is a word in host memory. */
#ifndef GRAIL_CUDA_AWARE_COPY_H
#define GRAIL_CUDA_AWARE_COPY_H

#include <stddef.h>
#include <stdint.h>

#include "cuda-aware/gpu.h"
#include "cuda-aware/layout.h"

/*
 * A started operation. The stream writes `ticket` into `*word` after the work (cuStreamWriteValue32,
 * or the copy kernel itself): polling one host word is 2 us faster than a stream query, and costs
 * the driver nothing. Words count up per stream, so an operation is done when *word has reached its
 * ticket. A failed GPU never writes: every few thousand polls the stream is queried for its error.
 * Where the driver lacks stream memory operations an event is used instead.
 */
typedef struct grail_copy {
    volatile uint32_t *word;
    uint32_t ticket;
    uint32_t polls;
    struct grail_stream *stream;
} grail_copy_t;

/*
 * Queue a copy of `length` bytes between any two addresses valid in the context of `gpu` (device,
 * peer-mapped, pinned host, managed). Pageable host memory is not allowed: it would block; use the
 * staging pool. length 0 completes at once. Small copies on GRAIL_LANE_PEER use one kernel that also
 * writes the word (option kernel_copy_max). GRAIL_OK: queued, test with grail_copy_test().
 */
GRAIL_API grail_status_t grail_copy_start(grail_gpu_t *gpu, grail_lane_t lane, void *dst,
                                          const void *src, size_t length, grail_copy_t *op);

/* The same on GRAIL_LANE_PEER for two addresses that are known to be memory of the GPU's own context
 * or mapped by grail_ipc_map(): saves asking CUDA for both (0.2 us). */
GRAIL_API grail_status_t grail_copy_peer_start(grail_gpu_t *gpu, void *dst, const void *src,
                                               size_t length, grail_copy_t *op);

/*
 * Pack `length` bytes, from `offset` in the packed order, of `count` elements of `layout` at
 * `elements` (device memory) into `packed` (device, peer-mapped or pinned host); or unpack from
 * there. One kernel for the piece. Needs kernels; GRAIL_ERR_UNSUPPORTED without (told once at info
 * level), and when `packed` is pageable. The caller holds a reference to the layout until the
 * operation is done. Unpacking into blocks that overlap has no defined result, as in MPI.
 */
GRAIL_API grail_status_t grail_pack_start(grail_gpu_t *gpu, grail_lane_t lane,
                                          grail_layout_t *layout, size_t count,
                                          const void *elements, size_t offset, size_t length,
                                          void *packed, grail_copy_t *op);
GRAIL_API grail_status_t grail_unpack_start(grail_gpu_t *gpu, grail_lane_t lane,
                                            grail_layout_t *layout, size_t count, void *elements,
                                            size_t offset, size_t length, const void *packed,
                                            grail_copy_t *op);

/*
 * Both sides strided, element by element in packed order (sizes agree): one kernel, no bounce.
 */
GRAIL_API grail_status_t grail_repack_start(grail_gpu_t *gpu, grail_lane_t lane,
                                            grail_layout_t *from, size_t from_count,
                                            const void *src, grail_layout_t *to, size_t to_count,
                                            void *dst, size_t length, grail_copy_t *op);

/*
 * The same at once, between any two kinds of memory on either side: for MPI_Pack and the like. With
 * nothing on a device it is the CPU's walk. Also works without kernels, and where the staging pool is
 * in use, block by block.
 */
GRAIL_API grail_status_t grail_pack_sync(grail_layout_t *layout, size_t count,
                                         const void *elements, size_t offset, size_t length,
                                         void *packed);
GRAIL_API grail_status_t grail_unpack_sync(grail_layout_t *layout, size_t count, void *elements,
                                           size_t offset, size_t length, const void *packed);

/* GRAIL_OK: done and visible. GRAIL_IN_PROGRESS. GRAIL_ERR_CUDA: failed (logged once). */
GRAIL_API grail_status_t grail_copy_test_slow(grail_copy_t *op);

static inline grail_status_t grail_copy_test(grail_copy_t *op)
{
    if (op->word != NULL && (int32_t)(*op->word - op->ticket) >= 0) {
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        return GRAIL_OK;
    }
    return grail_copy_test_slow(op);
}

/* Start and wait, without progress of anything else: for initialisation and MPI_Pack. Pageable host
 * memory is allowed here. */
GRAIL_API grail_status_t grail_copy_sync(void *dst, const void *src, size_t length,
                                         const grail_mem_t *device_side);

#endif
