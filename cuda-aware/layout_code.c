/* SPDX-License-Identifier: BSD-3-Clause */
/* Layouts as objects: what follows from their tree, their life, and their form on the wire. */
#include "cuda-aware/layout_internal.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"

/* Deepest nesting: a peer's damaged bytes must not exhaust the stack. */
enum { DEPTH_MAX = 1024 };

/* What a part of a tree touches and is made of. */
typedef struct facts {
    int64_t low, high;
    uint64_t alignment;
    uint64_t runs, blocks;
} facts_t;

typedef struct analysis {
    const uint64_t *code;
    uint32_t words;
    uint32_t nodes_left;    /* of a tree; a damaged one could visit nodes again and again */
} analysis_t;

static bool analyse_node(analysis_t *a, uint32_t index, uint64_t size, unsigned depth,
                         facts_t *facts);

static bool analyse_child(analysis_t *a, uint32_t parent, uint32_t child, uint64_t size,
                          unsigned depth, facts_t *facts)
{
    if (size == 0 || size > INT64_MAX)
        return false;
    if (child == 0) {
        *facts = (facts_t){.high = (int64_t)size, .alignment = size, .runs = 1, .blocks = 1};
        return true;
    }
    return child < parent && analyse_node(a, child, size, depth + 1, facts);
}

/* Is [first, first + count * each) a table inside the code? */
static bool table_fits(const analysis_t *a, uint64_t first, uint64_t count, uint64_t each)
{
    return first > 0 && first <= a->words && count <= (a->words - first) / each;
}

/* Add what `one`, displaced by `at`, touches. */
static bool include(facts_t *all, const facts_t *one, int64_t at, bool is_first)
{
    int64_t low, high;

    if (__builtin_add_overflow(one->low, at, &low) || __builtin_add_overflow(one->high, at, &high))
        return false;
    if (is_first || low < all->low)
        all->low = low;
    if (is_first || high > all->high)
        all->high = high;
    return true;
}

static bool analyse_loop(analysis_t *a, uint32_t index, uint64_t size, unsigned depth,
                         facts_t *facts)
{
    const uint64_t *node = a->code + index;
    uint64_t unit = node[GRAIL_NODE_UNIT], count = node[GRAIL_NODE_COUNT], bytes;
    int64_t stride = (int64_t)node[GRAIL_NODE_STRIDE], last;
    facts_t one;

    if (count == 0 || count > INT64_MAX || __builtin_mul_overflow(unit, count, &bytes) ||
        bytes != size || __builtin_mul_overflow(stride, (int64_t)count - 1, &last) ||
        !analyse_child(a, index, GRAIL_NODE_CHILD(node[GRAIL_NODE_HEAD]), unit, depth, &one))
        return false;
    facts->runs = one.runs;
    facts->blocks = one.blocks * count;
    facts->alignment = one.alignment | (uint64_t)stride;
    return include(facts, &one, 0, true) && include(facts, &one, last, false);
}

static bool analyse_list(analysis_t *a, uint32_t index, uint64_t size, unsigned depth,
                         facts_t *facts)
{
    const uint64_t *node = a->code + index;
    uint64_t unit = node[GRAIL_NODE_UNIT], count = node[GRAIL_NODE_COUNT], bytes;
    uint64_t table = node[GRAIL_NODE_STRIDE];
    facts_t one;

    if (count == 0 || __builtin_mul_overflow(unit, count, &bytes) || bytes != size ||
        !table_fits(a, table, count, 1) ||
        !analyse_child(a, index, GRAIL_NODE_CHILD(node[GRAIL_NODE_HEAD]), unit, depth, &one))
        return false;
    facts->runs = one.runs * count;
    facts->blocks = one.blocks * count;
    facts->alignment = one.alignment;
    for (uint64_t i = 0; i < count; i++) {
        int64_t at = (int64_t)a->code[table + i];

        facts->alignment |= (uint64_t)at;
        if (!include(facts, &one, at, i == 0))
            return false;
    }
    return true;
}

void grail_index_fill(const uint64_t *table, unsigned each, uint64_t count, unsigned shift,
                      uint64_t *index)
{
    uint64_t granules = grail_index_words(table[count * each], shift) - 1, entry = 0;

    for (uint64_t g = 0; g < granules; g++) {
        while (entry + 1 < count && table[(entry + 1) * each] <= g << shift)
            entry++;
        index[g] = entry;
    }
    index[granules] = count - 1;
}

/* The index decides where walkers read: a peer's must be what we would have made. The table has
 * been checked. */
static bool check_index(const analysis_t *a, const uint64_t *node, unsigned each, uint64_t size)
{
    uint64_t count = node[GRAIL_NODE_COUNT], index = node[GRAIL_NODE_INDEX], words, entry = 0;
    const uint64_t *table = a->code + node[GRAIL_NODE_STRIDE];
    unsigned shift = GRAIL_NODE_SHIFT(node[GRAIL_NODE_HEAD]);

    if (index == 0)
        return true;
    if (shift != grail_index_shift(size, count))
        return false;
    words = grail_index_words(size, shift);
    if (!table_fits(a, index, words, 1) || a->code[index + words - 1] != count - 1)
        return false;
    for (uint64_t g = 0; g + 1 < words; g++) {
        while (entry + 1 < count && table[(entry + 1) * each] <= g << shift)
            entry++;
        if (a->code[index + g] != entry)
            return false;
    }
    return true;
}

/* BLOCKS and SEQUENCE */
static bool analyse_table(analysis_t *a, uint32_t index, uint64_t size, unsigned depth,
                          facts_t *facts)
{
    const uint64_t *node = a->code + index;
    uint64_t count = node[GRAIL_NODE_COUNT], table = node[GRAIL_NODE_STRIDE];
    bool sequence = GRAIL_NODE_KIND(node[GRAIL_NODE_HEAD]) == GRAIL_NODE_SEQUENCE;
    unsigned each = sequence ? GRAIL_SEQUENCE_ENTRY : GRAIL_BLOCKS_ENTRY;
    const uint64_t *entry;

    if (count == 0 || count == UINT64_MAX || !table_fits(a, table, count + 1, each))
        return false;
    entry = a->code + table;
    if (entry[0] != 0 || entry[count * each] != size || node[GRAIL_NODE_UNIT] != size)
        return false;
    memset(facts, 0, sizeof(*facts));
    for (uint64_t i = 0; i < count; i++, entry += each) {
        uint64_t child = sequence ? entry[2] : 0;
        facts_t one;

        if (entry[each] <= entry[0] || child > UINT32_MAX ||
            !analyse_child(a, index, (uint32_t)child, entry[each] - entry[0], depth, &one) ||
            !include(facts, &one, (int64_t)entry[1], i == 0))
            return false;
        facts->runs += one.runs;
        facts->blocks += one.blocks;
        facts->alignment |= one.alignment | entry[1];
    }
    return check_index(a, node, each, size);
}

static bool analyse_node(analysis_t *a, uint32_t index, uint64_t size, unsigned depth,
                         facts_t *facts)
{
    if (depth > DEPTH_MAX || a->nodes_left == 0 || index > a->words ||
        a->words - index < GRAIL_NODE_WORDS)
        return false;
    a->nodes_left--;
    switch (GRAIL_NODE_KIND(a->code[index])) {
    case GRAIL_NODE_LOOP:
        return analyse_loop(a, index, size, depth, facts);
    case GRAIL_NODE_LIST:
        return analyse_list(a, index, size, depth, facts);
    case GRAIL_NODE_BLOCKS:
    case GRAIL_NODE_SEQUENCE:
        return analyse_table(a, index, size, depth, facts);
    default:
        return false;
    }
}

bool grail_layout_analyse(grail_layout_t *layout)
{
    analysis_t a = {.code = layout->code, .words = layout->words,
                    .nodes_left = layout->words / GRAIL_NODE_WORDS + 1};
    facts_t facts = {0};

    if (layout->size == 0) {
        if (layout->root != 0)
            return false;
    } else if (!analyse_child(&a, UINT32_MAX, layout->root, layout->size, 0, &facts) ||
               __builtin_add_overflow(facts.low, layout->first, &layout->low) ||
               __builtin_add_overflow(facts.high, layout->first, &layout->high)) {
        return false;
    }
    layout->alignment = facts.alignment | (uint64_t)layout->first;
    layout->runs = facts.runs;
    layout->blocks = facts.blocks;
    return true;
}

grail_divisor_t grail_divisor(uint64_t divisor, bool wide)
{
    grail_divisor_t d = {.magic = 0, .shift = 0};
    unsigned log = divisor <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(divisor - 1);

    if ((divisor & (divisor - 1)) == 0) {
        d.shift = log;
    } else if (wide) {
        unsigned __int128 power = (unsigned __int128)1 << (63 + log);

        d.magic = (uint64_t)((power + divisor - 1) / divisor);
        d.shift = log - 1;
    } else {
        d.magic = (((uint64_t)1 << (31 + log)) + divisor - 1) / divisor;
        d.shift = log - 1;
    }
    return d;
}

static void prepare_node(grail_layout_t *layout, uint32_t index)
{
    while (index != 0) {
        uint64_t *node = layout->code + index;
        uint32_t kind = GRAIL_NODE_KIND(node[GRAIL_NODE_HEAD]);
        grail_divisor_t d;
        bool wide;

        if (kind == GRAIL_NODE_SEQUENCE) {
            const uint64_t *entry = layout->code + node[GRAIL_NODE_STRIDE];

            for (uint64_t i = 0; i < node[GRAIL_NODE_COUNT]; i++)
                prepare_node(layout, (uint32_t)entry[i * GRAIL_SEQUENCE_ENTRY + 2]);
        }
        if (kind == GRAIL_NODE_SEQUENCE || kind == GRAIL_NODE_BLOCKS)
            return;
        wide = node[GRAIL_NODE_UNIT] * node[GRAIL_NODE_COUNT] > GRAIL_LAYOUT_NARROW;
        d = grail_divisor(node[GRAIL_NODE_UNIT], wide);
        node[GRAIL_NODE_MAGIC] = d.magic;
        node[GRAIL_NODE_HEAD] &= ~(uint64_t)(0xff00 | GRAIL_NODE_WIDE);
        node[GRAIL_NODE_HEAD] |= (uint64_t)d.shift << 8 | (wide ? GRAIL_NODE_WIDE : 0);
        index = GRAIL_NODE_CHILD(node[GRAIL_NODE_HEAD]);
    }
}

void grail_layout_prepare(grail_layout_t *layout)
{
    prepare_node(layout, layout->root);
}

/* ---- life ---- */

void grail_layout_retain(grail_layout_t *layout)
{
    __atomic_add_fetch(&layout->references, 1, __ATOMIC_RELAXED);
}

void grail_layout_release(grail_layout_t *layout)
{
    if (layout == NULL || __atomic_sub_fetch(&layout->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    if (layout->copies != NULL)
        grail_layout_drop_copies(layout->copies);
    free(layout->code);
    free(layout);
}

size_t grail_layout_size(const grail_layout_t *layout)
{
    return layout->size;
}

size_t grail_layout_runs(const grail_layout_t *layout)
{
    return layout->runs;
}

size_t grail_layout_blocks(const grail_layout_t *layout)
{
    return layout->blocks;
}

bool grail_layout_contiguous(const grail_layout_t *layout, size_t count, ptrdiff_t *first)
{
    if (layout->root != 0 || (count > 1 && layout->extent != (int64_t)layout->size))
        return false;
    *first = layout->first;
    return true;
}

void grail_layout_span(const grail_layout_t *layout, size_t count, ptrdiff_t *low, ptrdiff_t *high)
{
    int64_t last;

    *low = *high = 0;
    if (count == 0 || layout->size == 0)
        return;
    last = (int64_t)(count - 1) * layout->extent;
    *low = layout->low + (last < 0 ? last : 0);
    *high = layout->high + (last > 0 ? last : 0);
}

/* ---- the form on the wire: a header and the code, in the byte order of the machine ---- */

#define WIRE_MAGIC UINT64_C(0x314c7961726c6147)

typedef struct wire_header {
    uint64_t magic;
    uint32_t words, root;
    uint64_t size;
    int64_t extent, first;
} wire_header_t;

grail_status_t grail_layout_encode(const grail_layout_t *layout, void *bytes, size_t size,
                                   size_t *used)
{
    wire_header_t header = {.magic = WIRE_MAGIC, .words = layout->words, .root = layout->root,
                            .size = layout->size, .extent = layout->extent,
                            .first = layout->first};
    size_t needed = sizeof(header) + layout->words * sizeof(*layout->code);

    if (bytes != NULL) {
        if (needed > size)
            return GRAIL_ERR_UNSUPPORTED;
        memcpy(bytes, &header, sizeof(header));
        memcpy((char *)bytes + sizeof(header), layout->code, needed - sizeof(header));
    }
    *used = needed;
    return GRAIL_OK;
}

grail_status_t grail_layout_decode(const void *bytes, size_t size, grail_layout_t **layout)
{
    wire_header_t header;
    grail_layout_t *made;

    if (size < sizeof(header))
        goto damaged;
    memcpy(&header, bytes, sizeof(header));
    if (header.magic != WIRE_MAGIC || header.words == 0 || header.size > INT64_MAX ||
        size - sizeof(header) < header.words * sizeof(*made->code))
        goto damaged;
    made = calloc(1, sizeof(*made));
    if (made == NULL || (made->code = malloc(header.words * sizeof(*made->code))) == NULL) {
        free(made);
        grail_error("no memory for the layout of a peer's datatype (%u words)", header.words);
        return GRAIL_ERR_NO_MEMORY;
    }
    memcpy(made->code, (const char *)bytes + sizeof(header), header.words * sizeof(*made->code));
    made->references = 1;
    made->words = header.words;
    made->root = header.root;
    made->size = header.size;
    made->extent = header.extent;
    made->first = header.first;
    if (!grail_layout_analyse(made)) {
        grail_layout_release(made);
        goto damaged;
    }
    grail_layout_prepare(made);
    *layout = made;
    return GRAIL_OK;
damaged:
    grail_error("a peer sent a damaged description of its datatype (%zu bytes): are all processes "
                "of the job running the same build of Grail?", size);
    return GRAIL_ERR_CORRUPT;
}
