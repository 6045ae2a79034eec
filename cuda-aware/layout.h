/* SPDX-License-Identifier: BSD-3-Clause */
/* A datatype flattened for kernels: a small tree of strided runs, whatever MPI made it of. */
#ifndef GRAIL_CUDA_AWARE_LAYOUT_H
#define GRAIL_CUDA_AWARE_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/api.h"
#include "runtime/status.h"

typedef struct grail_layout grail_layout_t;

/*
 * Built by adding the contiguous blocks of ONE element in packed order; equal blocks at equal
 * distances are folded as they come (four nested levels), so a face of a 3-D array is one run and
 * memory stays proportional to the irregularity, not to the number of blocks. Adjacent blocks are
 * merged, empty ones are dropped; any order, overlaps and negative displacements are allowed.
 * An error (GRAIL_ERR_NO_MEMORY, logged) is kept: later calls and grail_layout_end() return it.
 */
typedef struct grail_layout_builder grail_layout_builder_t;

GRAIL_API grail_layout_builder_t *grail_layout_begin(void);     /* NULL: no memory, logged */
GRAIL_API grail_status_t grail_layout_add(grail_layout_builder_t *builder, ptrdiff_t displacement,
                                          size_t length);
/* `count` blocks of `length`, `stride` bytes from one to the next: as that many adds, in O(1). */
GRAIL_API grail_status_t grail_layout_add_strided(grail_layout_builder_t *builder,
                                                  ptrdiff_t displacement, size_t length,
                                                  size_t count, ptrdiff_t stride);
/* All that is added until the matching end is repeated `count` times, `stride` bytes apart, in
 * O(1); loops nest. */
GRAIL_API grail_status_t grail_layout_loop(grail_layout_builder_t *builder, size_t count,
                                           ptrdiff_t stride);
GRAIL_API grail_status_t grail_layout_loop_end(grail_layout_builder_t *builder);
/* `extent` is the distance between elements. Frees the builder, errors too. References: 1.
 * GRAIL_ERR_INVALID: a loop was left open (logged). */
GRAIL_API grail_status_t grail_layout_end(grail_layout_builder_t *builder, ptrdiff_t extent,
                                          grail_layout_t **layout);

GRAIL_API void grail_layout_retain(grail_layout_t *layout);
/* The last release frees host and device parts (device parts later, when CUDA can; never blocks).
 * Any thread. */
GRAIL_API void grail_layout_release(grail_layout_t *layout);

GRAIL_API size_t grail_layout_size(const grail_layout_t *layout);       /* packed bytes/element */
GRAIL_API size_t grail_layout_runs(const grail_layout_t *layout);       /* after folding */
GRAIL_API size_t grail_layout_blocks(const grail_layout_t *layout);     /* of one element */
GRAIL_API bool grail_layout_contiguous(const grail_layout_t *layout, size_t count,
                                       ptrdiff_t *first); /* one block, at `first` */

/*
 * A self-contained description that another process can rebuild the layout from (NULL to ask for
 * the size). GRAIL_ERR_UNSUPPORTED when it needs more than `size` bytes.
 */
GRAIL_API grail_status_t grail_layout_encode(const grail_layout_t *layout, void *bytes,
                                             size_t size, size_t *used);
GRAIL_API grail_status_t grail_layout_decode(const void *bytes, size_t size,
                                             grail_layout_t **layout);

/* The same walk on the CPU (reference for tests, and used where there are no kernels on memory that
 * the CPU can touch). */
GRAIL_API void grail_layout_pack_host(const grail_layout_t *layout, size_t count,
                                      const void *elements, size_t offset, size_t length,
                                      void *packed);
GRAIL_API void grail_layout_unpack_host(const grail_layout_t *layout, size_t count, void *elements,
                                        size_t offset, size_t length, const void *packed);

/* Smallest range of memory [low, high) relative to the buffer that `count` elements touch. */
GRAIL_API void grail_layout_span(const grail_layout_t *layout, size_t count, ptrdiff_t *low,
                                 ptrdiff_t *high);

#endif
