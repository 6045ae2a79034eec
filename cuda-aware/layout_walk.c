/* SPDX-License-Identifier: BSD-3-Clause */
/* Walks layouts on the CPU. */
#include <string.h>

#include "cuda-aware/layout_internal.h"

/* The last entry of a table that does not start behind `offset`. */
static const uint64_t *search(const uint64_t *code, const uint64_t *node, unsigned each,
                              uint64_t offset)
{
    const uint64_t *table = code + node[GRAIL_NODE_STRIDE];
    uint64_t low = 0, high = node[GRAIL_NODE_COUNT];

    if (node[GRAIL_NODE_INDEX] != 0) {
        const uint64_t *index = code + node[GRAIL_NODE_INDEX] +
                                (offset >> GRAIL_NODE_SHIFT(node[GRAIL_NODE_HEAD]));

        low = index[0];
        high = index[1] + 1;
    }
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;

        if (table[middle * each] <= offset)
            low = middle;
        else
            high = middle;
    }
    return table + low * each;
}

void grail_layout_locate(const grail_layout_t *layout, uint64_t offset, grail_place_t *place)
{
    const uint64_t *code = layout->code;
    uint32_t index = layout->root;
    int64_t at = layout->first;

    place->block = layout->size;
    place->more = 0;
    place->stride = 0;
    while (index != 0) {
        const uint64_t *node = code + index;
        uint64_t head = node[GRAIL_NODE_HEAD];
        uint32_t kind = GRAIL_NODE_KIND(head);

        if (kind == GRAIL_NODE_LOOP || kind == GRAIL_NODE_LIST) {
            uint64_t i = grail_divide(offset, node[GRAIL_NODE_MAGIC], GRAIL_NODE_SHIFT(head),
                                      (head & GRAIL_NODE_WIDE) != 0);

            offset -= i * node[GRAIL_NODE_UNIT];
            place->block = node[GRAIL_NODE_UNIT];
            if (kind == GRAIL_NODE_LOOP) {
                place->more = node[GRAIL_NODE_COUNT] - 1 - i;
                place->stride = (int64_t)node[GRAIL_NODE_STRIDE];
                at += (int64_t)i * place->stride;
            } else {
                place->more = 0;
                at += (int64_t)code[node[GRAIL_NODE_STRIDE] + i];
            }
            index = GRAIL_NODE_CHILD(head);
        } else {
            unsigned each = kind == GRAIL_NODE_BLOCKS ? GRAIL_BLOCKS_ENTRY : GRAIL_SEQUENCE_ENTRY;
            const uint64_t *entry = search(code, node, each, offset);

            offset -= entry[0];
            at += (int64_t)entry[1];
            place->block = entry[each] - entry[0];
            place->more = 0;
            index = kind == GRAIL_NODE_BLOCKS ? 0 : (uint32_t)entry[2];
        }
    }
    place->at = at + (int64_t)offset;
    place->left = place->block - offset;
}

typedef enum direction { PACK, UNPACK } direction_t;

static inline void move(direction_t direction, char *element, char *packed, size_t length)
{
    if (direction == PACK)
        memcpy(packed, element, length);
    else
        memcpy(element, packed, length);
}

/* `blocks` whole blocks; constant lengths become single moves. */
static inline void move_blocks(direction_t direction, char *element, char *packed, size_t length,
                               uint64_t blocks, int64_t stride)
{
#define MOVE_EACH(constant)                                                                        \
    for (uint64_t i = 0; i < blocks; i++)                                                          \
    move(direction, element + (int64_t)i * stride, packed + i * (constant), constant)
    switch (length) {
    case 4:
        MOVE_EACH(4);
        break;
    case 8:
        MOVE_EACH(8);
        break;
    case 16:
        MOVE_EACH(16);
        break;
    default:
        MOVE_EACH(length);
        break;
    }
#undef MOVE_EACH
}

static inline void walk(direction_t direction, const grail_layout_t *layout, size_t count,
                        char *elements, size_t offset, size_t length, char *packed)
{
    uint64_t q;
    ptrdiff_t first;

    if (length == 0)
        return;
    if (grail_layout_contiguous(layout, count, &first)) {
        move(direction, elements + first + offset, packed, length);
        return;
    }
    elements += (int64_t)(offset / layout->size) * layout->extent;
    q = offset % layout->size;
    while (length > 0) {
        grail_place_t place;
        uint64_t blocks;
        size_t n;

        grail_layout_locate(layout, q, &place);
        n = place.left < length ? place.left : length;
        move(direction, elements + place.at, packed, n);
        packed += n;
        length -= n;
        q += n;
        blocks = length / place.block < place.more ? length / place.block : place.more;
        if (blocks > 0) {
            int64_t next = place.at + (int64_t)place.left - (int64_t)place.block + place.stride;

            move_blocks(direction, elements + next, packed, place.block, blocks, place.stride);
            n = blocks * place.block;
            packed += n;
            length -= n;
            q += n;
        }
        if (q == layout->size) {
            q = 0;
            elements += layout->extent;
        }
    }
}

void grail_layout_pack_host(const grail_layout_t *layout, size_t count, const void *elements,
                            size_t offset, size_t length, void *packed)
{
    walk(PACK, layout, count, (char *)elements, offset, length, packed);
}

void grail_layout_unpack_host(const grail_layout_t *layout, size_t count, void *elements,
                              size_t offset, size_t length, const void *packed)
{
    walk(UNPACK, layout, count, elements, offset, length, (char *)packed);
}
