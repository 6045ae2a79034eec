/* SPDX-License-Identifier: BSD-3-Clause */
/* What the kernels that move bytes are given: shared by device and host code. */
#ifndef GRAIL_CUDA_AWARE_KERNELS_MOVE_H
#define GRAIL_CUDA_AWARE_KERNELS_MOVE_H

#include <stdint.h>

#include "cuda-aware/kernels/device.h"
#include "cuda-aware/kernels/layout_code.h"

enum {
    /* Trees up to this size travel in the arguments (about 16 irregular runs): no upload, no device
     * memory, and the constant cache serves them. */
    GRAIL_MOVE_CODE_WORDS = 56,
    /* Per block, so that a kernel fills the SMs that it takes and takes few. */
    GRAIL_MOVE_THREADS = 1024,
    /* Words of 4 or 8, and of 16 bytes that a thread loads before it stores them: what hides the
     * memory's latency, as far as registers for so many threads go. */
    GRAIL_MOVE_BATCH = 8,
    GRAIL_MOVE_BATCH16 = 4,
    GRAIL_REPACK_BATCH = 3,
    /* Most packed bytes between a tile's first word and what its threads look at. */
    GRAIL_MOVE_TILE_MAX = GRAIL_MOVE_THREADS * GRAIL_MOVE_BATCH * 8
};

/*
 * Elements of a layout, or contiguous memory. The packed byte x of a contiguous side is at base + x
 * (base may be the address of no memory at all: a piece's address minus its offset).
 */
typedef struct grail_side {
    grail_dptr_t base;      /* address of element 0 with the layout's first displacement */
    uint64_t size;          /* packed bytes of one element; 0: contiguous */
    int64_t extent;
    grail_dptr_t code;      /* the tree in device memory; 0: in the arguments, from `first` on */
    uint64_t magic;         /* narrow division by size; unused when size is wide */
    uint64_t wide_magic;    /* wide division by size, of offsets in the whole message */
    uint32_t shift, wide_shift;
    uint32_t root;          /* node of an element; 0: one block */
    uint32_t first;
} grail_side_t;

/* How a kernel reports: see cuda-aware/stream.h. */
typedef struct grail_done {
    grail_dptr_t word;
    grail_dptr_t counter;   /* device memory, 0 before and after; used by several blocks */
    uint32_t ticket;
    uint32_t reserved;
} grail_done_t;

/*
 * Moves packed bytes [offset, offset + length) from src to dst. `unit` is the width of the words
 * that everything is a multiple of (4, 8 or 16); grail_move_any takes any alignment.
 */
typedef struct grail_move_args {
    grail_side_t dst, src;
    uint64_t offset, length;
    grail_done_t done;
    uint32_t unit;
    uint32_t reserved;
    uint64_t code[GRAIL_MOVE_CODE_WORDS];
} grail_move_args_t;

typedef struct grail_copy_args {
    grail_dptr_t dst, src;
    uint64_t length;
    grail_done_t done;
} grail_copy_args_t;

/*
 * Kernels (unit 4, 8 or 16; all elements narrow):
 *   grail_pack, grail_pack_table      layout -> contiguous; tree in the arguments / anywhere
 *   grail_unpack, grail_unpack_table  contiguous -> layout
 *   grail_repack                      layout -> layout
 *   grail_move_any                    any sides, any alignment, wide elements
 *   grail_copy                        (grail_copy_args_t) contiguous, any alignment
 */

#endif
