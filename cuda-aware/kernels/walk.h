/* SPDX-License-Identifier: BSD-3-Clause */
/* Device functions that walk layouts: from a place in the packed order to an address. */
#ifndef GRAIL_CUDA_AWARE_KERNELS_WALK_H
#define GRAIL_CUDA_AWARE_KERNELS_WALK_H

#include "cuda-aware/kernels/move.h"

#ifdef __CUDACC__
GRAIL_DEVICE_FN uint32_t grail_mulhi32(uint32_t a, uint32_t b)
{
    return __umulhi(a, b);
}

GRAIL_DEVICE_FN uint64_t grail_mulhi64(uint64_t a, uint64_t b)
{
    return __umul64hi(a, b);
}
#else
GRAIL_DEVICE_FN uint32_t grail_mulhi32(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}

GRAIL_DEVICE_FN uint64_t grail_mulhi64(uint64_t a, uint64_t b)
{
    return (uint64_t)((unsigned __int128)a * b >> 64);
}
#endif

/* How a side is walked: literal arguments, so that each kernel holds only what it needs. */
enum {
    GRAIL_CONTIGUOUS,       /* no layout */
    GRAIL_CODE_INLINE,      /* layout, tree in the arguments */
    GRAIL_CODE_ANYWHERE     /* layout, tree in the arguments or in device memory */
};

GRAIL_DEVICE_FN uint64_t grail_code(const grail_move_args_t *args, const grail_side_t *side,
                                    int how, uint32_t index)
{
    if (how == GRAIL_CODE_ANYWHERE && side->code != 0)
        return GRAIL_LD(uint64_t, side->code + 8 * (uint64_t)index);
    return args->code[side->first + index];
}

GRAIL_DEVICE_FN uint32_t grail_entry_words(uint32_t kind)
{
    return kind == GRAIL_NODE_BLOCKS ? GRAIL_BLOCKS_ENTRY : GRAIL_SEQUENCE_ENTRY;
}

/* First word of the last entry of a node's table that does not start behind q. */
GRAIL_DEVICE_FN uint32_t grail_search(const grail_move_args_t *args, const grail_side_t *side,
                                      int how, uint32_t node, uint64_t head, uint64_t q)
{
    uint32_t each = grail_entry_words(GRAIL_NODE_KIND(head));
    uint32_t table = (uint32_t)grail_code(args, side, how, node + GRAIL_NODE_STRIDE);
    uint32_t index = (uint32_t)grail_code(args, side, how, node + GRAIL_NODE_INDEX);
    uint32_t low = 0, high;

    if (index != 0) {
        index += (uint32_t)(q >> GRAIL_NODE_SHIFT(head));
        low = (uint32_t)grail_code(args, side, how, index);
        high = (uint32_t)grail_code(args, side, how, index + 1) + 1;
    } else {
        high = (uint32_t)grail_code(args, side, how, node + GRAIL_NODE_COUNT);
    }
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (grail_code(args, side, how, table + middle * each) <= q)
            low = middle;
        else
            high = middle;
    }
    return table + low * each;
}

/* Where a tile begins on one side: found once per tile, so that its words need 32 bits only. */
typedef struct grail_tile {
    grail_dptr_t base;      /* of the element in which the tile begins */
    uint32_t start;         /* offset in it */
} grail_tile_t;

GRAIL_DEVICE_FN uint64_t grail_element(const grail_side_t *side, uint64_t x)
{
    if (side->wide_magic == 0)
        return x >> side->wide_shift;
    return grail_mulhi64(x, side->wide_magic) >> side->wide_shift;
}

GRAIL_DEVICE_FN grail_tile_t grail_tile(const grail_side_t *side, int how, uint64_t x)
{
    grail_tile_t tile;
    uint64_t element;

    if (how == GRAIL_CONTIGUOUS) {
        tile.base = side->base + x;
        tile.start = 0;
        return tile;
    }
    element = grail_element(side, x);
    tile.base = side->base + element * (uint64_t)side->extent;
    tile.start = (uint32_t)(x - element * side->size);
    return tile;
}

/* Address of the byte d behind the tile's begin; d < GRAIL_MOVE_TILE_MAX, elements narrow. */
GRAIL_DEVICE_FN grail_dptr_t grail_address(const grail_move_args_t *args, const grail_side_t *side,
                                           int how, const grail_tile_t *tile, uint32_t d)
{
    uint32_t q, i, node;
    grail_dptr_t at;

    if (how == GRAIL_CONTIGUOUS)
        return tile->base + d;
    q = tile->start + d;
    i = side->magic == 0 ? q >> side->shift
                         : grail_mulhi32(q, (uint32_t)side->magic) >> side->shift;
    q -= i * (uint32_t)side->size;
    at = tile->base + (uint64_t)i * (uint64_t)side->extent;
    node = side->root;
    while (node != 0) {
        uint64_t head = grail_code(args, side, how, node);
        uint32_t kind = GRAIL_NODE_KIND(head);

        if (kind <= GRAIL_NODE_LIST) {
            uint32_t unit = (uint32_t)grail_code(args, side, how, node + GRAIL_NODE_UNIT);
            uint32_t magic = (uint32_t)grail_code(args, side, how, node + GRAIL_NODE_MAGIC);
            uint64_t stride = grail_code(args, side, how, node + GRAIL_NODE_STRIDE);
            uint32_t j = (magic == 0 ? q : grail_mulhi32(q, magic)) >> GRAIL_NODE_SHIFT(head);

            q -= j * unit;
            at += kind == GRAIL_NODE_LOOP ? (uint64_t)j * stride
                                          : grail_code(args, side, how, (uint32_t)stride + j);
            node = GRAIL_NODE_CHILD(head);
        } else {
            uint32_t entry = grail_search(args, side, how, node, head, q);

            q -= (uint32_t)grail_code(args, side, how, entry);
            at += grail_code(args, side, how, entry + 1);
            node = kind == GRAIL_NODE_BLOCKS ? 0
                                             : (uint32_t)grail_code(args, side, how, entry + 2);
        }
    }
    return at + q;
}

/* A place with the extent of the contiguous block around it. */
typedef struct grail_spot {
    grail_dptr_t at;
    uint64_t into, left;    /* bytes of the block before and from `at` on */
} grail_spot_t;

/* The same walk for any size of element and with the block's limits, for the packed byte x. */
GRAIL_DEVICE_FN grail_spot_t grail_locate(const grail_move_args_t *args, const grail_side_t *side,
                                          uint64_t x)
{
    const int how = GRAIL_CODE_ANYWHERE;
    grail_spot_t spot;
    uint64_t q, i, length;
    uint32_t node;

    if (side->size == 0) {
        spot.at = side->base + x;
        spot.into = x - args->offset;
        spot.left = args->length - spot.into;
        return spot;
    }
    i = grail_element(side, x);
    q = x - i * side->size;
    spot.at = side->base + i * (uint64_t)side->extent;
    length = side->size;
    node = side->root;
    while (node != 0) {
        uint64_t head = grail_code(args, side, how, node);
        uint32_t kind = GRAIL_NODE_KIND(head);

        if (kind <= GRAIL_NODE_LIST) {
            uint64_t magic = grail_code(args, side, how, node + GRAIL_NODE_MAGIC);
            uint64_t stride = grail_code(args, side, how, node + GRAIL_NODE_STRIDE);

            length = grail_code(args, side, how, node + GRAIL_NODE_UNIT);
            i = q;
            if (magic != 0)
                i = (head & GRAIL_NODE_WIDE) ? grail_mulhi64(q, magic)
                                             : grail_mulhi32((uint32_t)q, (uint32_t)magic);
            i >>= GRAIL_NODE_SHIFT(head);
            q -= i * length;
            spot.at += kind == GRAIL_NODE_LOOP
                           ? i * stride : grail_code(args, side, how, (uint32_t)(stride + i));
            node = GRAIL_NODE_CHILD(head);
        } else {
            uint32_t entry = grail_search(args, side, how, node, head, q);
            uint64_t start;

            start = grail_code(args, side, how, entry);
            length = grail_code(args, side, how, entry + grail_entry_words(kind)) - start;
            q -= start;
            spot.at += grail_code(args, side, how, entry + 1);
            node = kind == GRAIL_NODE_BLOCKS ? 0
                                             : (uint32_t)grail_code(args, side, how, entry + 2);
        }
    }
    spot.at += q;
    spot.into = q;
    spot.left = length - q;
    /* no further than the piece: neighbours may be written by others meanwhile */
    if (spot.into > x - args->offset)
        spot.into = x - args->offset;
    if (spot.left > args->offset + args->length - x)
        spot.left = args->offset + args->length - x;
    return spot;
}

#endif
