/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to cuda-aware/: what a layout is made of, shared by its builder, walkers and kernels. */
#ifndef GRAIL_CUDA_AWARE_LAYOUT_INTERNAL_H
#define GRAIL_CUDA_AWARE_LAYOUT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda-aware/gpu.h"
#include "cuda-aware/kernels/layout_code.h"
#include "cuda-aware/layout.h"

/* The tree in the memory of one GPU context. */
struct grail_layout_copy;

struct grail_layout {
    int references;
    uint64_t size;          /* packed bytes of one element */
    int64_t extent;
    int64_t first;          /* added to all displacements */
    int64_t low, high;      /* touched by one element, relative to its address; high is exclusive */
    uint64_t alignment;     /* bits of all displacements, strides and lengths, or'ed */
    uint64_t runs;          /* leaves of the tree */
    uint64_t blocks;        /* contiguous blocks of one element */
    uint32_t root;          /* 0: one block */
    uint32_t words;
    uint64_t *code;
    struct grail_layout_copy *copies;
};

typedef struct grail_divisor {
    uint64_t magic;
    uint32_t shift;
} grail_divisor_t;

grail_divisor_t grail_divisor(uint64_t divisor, bool wide);

static inline uint64_t grail_divide(uint64_t n, uint64_t magic, uint32_t shift, bool wide)
{
    if (magic == 0)
        return n >> shift;
    if (!wide)
        return (n * magic >> 32) >> shift;
    return (uint64_t)(((unsigned __int128)n * magic) >> 64) >> shift;
}

/* Tables from this many entries on have an index, of about GRAIL_INDEX_STEP entries a word. */
enum { GRAIL_INDEX_MIN = 16, GRAIL_INDEX_STEP = 8 };

static inline unsigned grail_index_shift(uint64_t size, uint64_t count)
{
    uint64_t granule = size / count * GRAIL_INDEX_STEP;

    return granule == 0 ? 0 : 63 - (unsigned)__builtin_clzll(granule);
}

/* One for each granule and the closing one. */
static inline uint64_t grail_index_words(uint64_t size, unsigned shift)
{
    return ((size - 1) >> shift) + 2;
}

void grail_index_fill(const uint64_t *table, unsigned each, uint64_t count, unsigned shift,
                      uint64_t *index);

/*
 * Check the tree below `root`, whose packed size must be `layout->size`, and fill in everything
 * that follows from it. false: the code is damaged.
 */
bool grail_layout_analyse(grail_layout_t *layout);

/* Fills magic, shift and width of all nodes; the tree is known to be sound. */
void grail_layout_prepare(grail_layout_t *layout);

/* Part of the packed order of one element that has a constant stride. */
typedef struct grail_place {
    int64_t at;         /* displacement of the byte asked for */
    uint64_t left;      /* bytes from there to the end of its block */
    uint64_t block;     /* whole length of that block */
    uint64_t more;      /* further blocks of the same length after it, `stride` apart */
    int64_t stride;
} grail_place_t;

/* `offset` < size */
void grail_layout_locate(const grail_layout_t *layout, uint64_t offset, grail_place_t *place);

/* In pack.c: give up the copies in device memory of a layout that is going away. */
void grail_layout_drop_copies(struct grail_layout_copy *copies);

/* In pack.c: free all device memory kept for kernels. Called by grail_gpu_fini(), before the
 * contexts' own clean-up; layouts may live on. */
void grail_pack_fini(void);

#endif
