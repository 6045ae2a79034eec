/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds layouts: folds a stream of blocks into nested strided runs while it comes in. */
#include "cuda-aware/layout_internal.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"

enum {
    LEVELS = 4,         /* nested strides that are recognised in a stream of blocks */
    WINDOW = 8,         /* items that may still be folded; deeper ones are out of reach of LEVELS */
    EXPAND_FEW = 8,     /* a run of fewer blocks than this is cheaper as a part of a table */
    EXPAND_MANY = 32,   /* the same amid many items: fewer pieces are found faster */
    LIST_MIN = 32,      /* equal blocks in a row that make a LIST of their own */
    INLINE_MAX = 8      /* blocks that go into a SEQUENCE's own table */
};

/* Nested strided repetitions of a block, or of a tree that has been emitted already. */
typedef struct item {
    int64_t at;
    uint64_t size;          /* packed bytes in all */
    uint64_t unit;          /* of the block or tree */
    uint32_t node;          /* the tree; 0: a block */
    uint32_t levels;
    struct {
        uint64_t count;
        int64_t stride;
    } level[LEVELS];        /* innermost first */
} item_t;

typedef struct block {
    int64_t at;
    uint64_t length;
} block_t;

typedef struct settled_item {
    size_t before;          /* number of settled blocks that come first */
    item_t item;
} settled_item_t;

/* The body of one loop (or of the element itself) under construction. */
typedef struct frame {
    uint64_t loop_count;
    int64_t loop_stride;
    bool open;              /* `last` may still grow by an adjacent block */
    block_t last;
    unsigned used;
    item_t window[WINDOW];  /* the latest items, not yet settled */
    block_t *blocks;        /* settled, packed order: blocks and, between them, items */
    size_t block_count, block_room;
    settled_item_t *items;
    size_t item_count, item_room;
} frame_t;

struct grail_layout_builder {
    grail_status_t status;
    uint64_t *code;
    size_t words, room;
    frame_t *frames;
    size_t depth, frame_room;
};

static bool grow(grail_layout_builder_t *b, void **array, size_t *room, size_t needed, size_t each)
{
    size_t wanted;
    void *bigger;

    if (needed <= *room)
        return true;
    wanted = *room + *room / 2;
    if (wanted < needed)
        wanted = needed;
    if (wanted < 4)
        wanted = 4;
    bigger = wanted > SIZE_MAX / each ? NULL : realloc(*array, wanted * each);
    if (bigger == NULL) {
        grail_error("no memory to flatten a datatype of %zu irregular blocks: use a more regular "
                    "datatype or raise the memory limit", needed);
        b->status = GRAIL_ERR_NO_MEMORY;
        return false;
    }
    *array = bigger;
    *room = wanted;
    return true;
}

/* Room for `words` more; the index of the first, or 0. */
static uint32_t reserve(grail_layout_builder_t *b, size_t words)
{
    size_t first = b->words;

    if (words > UINT32_MAX - first) {
        grail_error("a datatype with more than %u irregular pieces cannot be flattened: use a more "
                    "regular datatype", UINT32_MAX / 3);
        b->status = GRAIL_ERR_UNSUPPORTED;
        return 0;
    }
    if (!grow(b, (void **)&b->code, &b->room, first + words, sizeof(*b->code)))
        return 0;
    b->words = first + words;
    return (uint32_t)first;
}

static uint32_t emit_node(grail_layout_builder_t *b, unsigned kind, uint64_t unit, int64_t stride,
                          uint64_t count, uint32_t child)
{
    uint32_t index = reserve(b, GRAIL_NODE_WORDS);
    uint64_t *node;

    if (index == 0)
        return 0;
    node = b->code + index;
    node[GRAIL_NODE_HEAD] = kind | (uint64_t)child << 32;
    node[GRAIL_NODE_UNIT] = unit;
    node[GRAIL_NODE_MAGIC] = 0;
    node[GRAIL_NODE_STRIDE] = (uint64_t)stride;
    node[GRAIL_NODE_COUNT] = count;
    return index;
}

/* The tree of an item without its displacement; 0 for a block, and on errors. */
static uint32_t emit_item(grail_layout_builder_t *b, const item_t *item)
{
    uint32_t node = item->node;
    uint64_t unit = item->unit;

    for (uint32_t l = 0; l < item->levels; l++) {
        node = emit_node(b, GRAIL_NODE_LOOP, unit, item->level[l].stride, item->level[l].count,
                         node);
        if (node == 0)
            return 0;
        unit *= item->level[l].count;
    }
    return node;
}

/* ---- folding ---- */

/* Levels below `levels` and what they repeat are the same. */
static bool same_inside(const item_t *a, const item_t *b, uint32_t levels)
{
    if (a->unit != b->unit || a->node != b->node)
        return false;
    for (uint32_t l = 0; l < levels; l++) {
        if (a->level[l].count != b->level[l].count || a->level[l].stride != b->level[l].stride)
            return false;
    }
    return true;
}

/* Repeat `item`; LEVELS must not be used up. */
static void repeat(item_t *item, uint64_t count, int64_t stride)
{
    uint32_t top = item->levels;

    item->size *= count;
    if (count == 1)
        return;
    if (top == 0 && item->node == 0 && stride == (int64_t)item->unit) {
        item->unit *= count;
    } else if (top > 0 &&
               stride == (int64_t)item->level[top - 1].count * item->level[top - 1].stride) {
        item->level[top - 1].count *= count;
    } else {
        item->level[top].count = count;
        item->level[top].stride = stride;
        item->levels++;
    }
}

/* Put `next` behind `last` if they make one item. */
static bool fold(item_t *last, const item_t *next)
{
    uint32_t top = last->levels;

    if (top > 0) {
        int64_t stride = last->level[top - 1].stride;
        int64_t end = last->at + (int64_t)last->level[top - 1].count * stride;

        if (next->at == end) {
            if (next->levels == top - 1 && same_inside(last, next, top - 1)) {
                last->level[top - 1].count++;
                last->size += next->size;
                return true;
            }
            if (next->levels == top && next->level[top - 1].stride == stride &&
                same_inside(last, next, top - 1)) {
                last->level[top - 1].count += next->level[top - 1].count;
                last->size += next->size;
                return true;
            }
        }
    }
    if (top < LEVELS && next->levels == top && same_inside(last, next, top)) {
        repeat(last, 2, next->at - last->at);
        return true;
    }
    return false;
}

static bool settle_block(grail_layout_builder_t *b, frame_t *f, int64_t at, uint64_t length)
{
    if (!grow(b, (void **)&f->blocks, &f->block_room, f->block_count + 1, sizeof(*f->blocks)))
        return false;
    f->blocks[f->block_count].at = at;
    f->blocks[f->block_count].length = length;
    f->block_count++;
    return true;
}

/* The blocks of an item, one by one. */
static void settle_expanded(grail_layout_builder_t *b, frame_t *f, const item_t *item,
                            uint64_t blocks)
{
    for (uint64_t i = 0; i < blocks; i++) {
        int64_t at = item->at;
        uint64_t rest = i;

        for (uint32_t l = 0; l < item->levels; l++) {
            at += (int64_t)(rest % item->level[l].count) * item->level[l].stride;
            rest /= item->level[l].count;
        }
        if (!settle_block(b, f, at, item->unit))
            return;
    }
}

static void settle(grail_layout_builder_t *b, frame_t *f, const item_t *item, uint64_t expand)
{
    uint64_t blocks = item->size / item->unit;

    if (item->node == 0 && blocks < expand) {
        settle_expanded(b, f, item, blocks);
        return;
    }
    if (!grow(b, (void **)&f->items, &f->item_room, f->item_count + 1, sizeof(*f->items)))
        return;
    f->items[f->item_count].before = f->block_count;
    f->items[f->item_count].item = *item;
    f->item_count++;
}

static void push(grail_layout_builder_t *b, frame_t *f, const item_t *item)
{
    item_t next = *item;

    while (f->used > 0 && fold(&f->window[f->used - 1], &next))
        next = f->window[--f->used];
    if (f->used == WINDOW) {
        settle(b, f, &f->window[0], EXPAND_MANY);
        memmove(&f->window[0], &f->window[1], (WINDOW - 1) * sizeof(f->window[0]));
        f->used--;
    }
    f->window[f->used++] = next;
}

/* A block is folded only when its successor is known not to be adjacent: the pieces of a row must
 * not be taken for rows. */
static void push_open(grail_layout_builder_t *b, frame_t *f)
{
    if (f->open) {
        item_t item = {.at = f->last.at, .size = f->last.length, .unit = f->last.length};

        f->open = false;
        push(b, f, &item);
    }
}

static void push_item(grail_layout_builder_t *b, frame_t *f, const item_t *item)
{
    if (item->node == 0 && item->levels == 0) {
        if (f->open && item->at == f->last.at + (int64_t)f->last.length) {
            f->last.length += item->unit;
            return;
        }
        push_open(b, f);
        f->open = true;
        f->last.at = item->at;
        f->last.length = item->unit;
        return;
    }
    push_open(b, f);
    push(b, f, item);
}

/* ---- tables ---- */

/* The node of a table that has been written, with its index. */
static uint32_t emit_table(grail_layout_builder_t *b, unsigned kind, uint32_t table, unsigned each,
                           size_t count)
{
    uint64_t size = b->code[table + count * each];
    uint32_t index = 0, node;
    unsigned shift = grail_index_shift(size, count);

    if (count >= GRAIL_INDEX_MIN) {
        index = reserve(b, grail_index_words(size, shift));
        if (index == 0)
            return 0;
        grail_index_fill(b->code + table, each, count, shift, b->code + index);
    }
    node = emit_node(b, kind, size, table, count, 0);
    if (node != 0 && index != 0) {
        b->code[node + GRAIL_NODE_HEAD] |= (uint64_t)shift << 8;
        b->code[node + GRAIL_NODE_INDEX] = index;
    }
    return node;
}

static uint32_t emit_blocks(grail_layout_builder_t *b, const block_t *blocks, size_t count)
{
    uint32_t table = reserve(b, (count + 1) * GRAIL_BLOCKS_ENTRY);
    uint64_t start = 0;

    if (table == 0)
        return 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t *entry = b->code + table + i * GRAIL_BLOCKS_ENTRY;

        entry[0] = start;
        entry[1] = (uint64_t)blocks[i].at;
        start += blocks[i].length;
    }
    b->code[table + count * GRAIL_BLOCKS_ENTRY] = start;
    b->code[table + count * GRAIL_BLOCKS_ENTRY + 1] = 0;
    return emit_table(b, GRAIL_NODE_BLOCKS, table, GRAIL_BLOCKS_ENTRY, count);
}

static uint32_t emit_list(grail_layout_builder_t *b, const block_t *blocks, size_t count)
{
    uint32_t table = reserve(b, count);

    if (table == 0)
        return 0;
    for (size_t i = 0; i < count; i++)
        b->code[table + i] = (uint64_t)blocks[i].at;
    return emit_node(b, GRAIL_NODE_LIST, blocks[0].length, table, count, 0);
}

/* A stretch of what was settled: equal blocks, any blocks, or (count 0) one item. */
typedef struct segment {
    bool equal;
    size_t first, count;
} segment_t;

typedef struct segments {
    segment_t *list;
    size_t count, room;
} segments_t;

static bool add_segment(grail_layout_builder_t *b, segments_t *s, bool equal, size_t first,
                        size_t count)
{
    if (!grow(b, (void **)&s->list, &s->room, s->count + 1, sizeof(*s->list)))
        return false;
    s->list[s->count++] = (segment_t){.equal = equal, .first = first, .count = count};
    return true;
}

/* Divide blocks [first, end) into long stretches of equal ones and the rest. */
static bool segment_blocks(grail_layout_builder_t *b, const block_t *blocks, segments_t *s,
                           size_t first, size_t end)
{
    size_t rest = first;

    for (size_t i = first; i < end;) {
        size_t j = i + 1;

        while (j < end && blocks[j].length == blocks[i].length)
            j++;
        if (j - i >= LIST_MIN) {
            if (rest < i && !add_segment(b, s, false, rest, i - rest))
                return false;
            if (!add_segment(b, s, true, i, j - i))
                return false;
            rest = j;
        }
        i = j;
    }
    return rest == end || add_segment(b, s, false, rest, end - rest);
}

static bool find_segments(grail_layout_builder_t *b, const frame_t *f, segments_t *s)
{
    size_t done = 0;

    for (size_t i = 0; i < f->item_count; i++) {
        if (!segment_blocks(b, f->blocks, s, done, f->items[i].before) ||
            !add_segment(b, s, false, i, 0))
            return false;
        done = f->items[i].before;
    }
    return segment_blocks(b, f->blocks, s, done, f->block_count);
}

typedef struct sequence {
    uint64_t *entries;
    size_t words, room;
    uint64_t start;
} sequence_t;

static bool add_entry(grail_layout_builder_t *b, sequence_t *s, int64_t at, uint64_t size,
                      uint32_t child)
{
    uint64_t *entry;

    if (b->status != GRAIL_OK || !grow(b, (void **)&s->entries, &s->room,
                                       s->words + GRAIL_SEQUENCE_ENTRY, sizeof(*s->entries)))
        return false;
    entry = s->entries + s->words;
    entry[0] = s->start;
    entry[1] = (uint64_t)at;
    entry[2] = child;
    s->words += GRAIL_SEQUENCE_ENTRY;
    s->start += size;
    return true;
}

static bool add_segment_entries(grail_layout_builder_t *b, const frame_t *f, const segment_t *g,
                                sequence_t *s)
{
    uint64_t size = 0;

    if (g->count == 0) {
        const item_t *item = &f->items[g->first].item;

        return add_entry(b, s, item->at, item->size, emit_item(b, item));
    }
    if (!g->equal && g->count <= INLINE_MAX) {
        for (size_t i = g->first; i < g->first + g->count; i++) {
            if (!add_entry(b, s, f->blocks[i].at, f->blocks[i].length, 0))
                return false;
        }
        return true;
    }
    for (size_t i = g->first; i < g->first + g->count; i++)
        size += f->blocks[i].length;
    return add_entry(b, s, 0, size,
                     g->equal ? emit_list(b, f->blocks + g->first, g->count)
                              : emit_blocks(b, f->blocks + g->first, g->count));
}

static uint32_t emit_sequence(grail_layout_builder_t *b, const frame_t *f,
                              const segments_t *segments, uint64_t *size)
{
    sequence_t s = {0};
    uint32_t table, node = 0;

    for (size_t i = 0; i < segments->count; i++) {
        if (!add_segment_entries(b, f, &segments->list[i], &s))
            goto free_entries;
    }
    *size = s.start;
    if (!add_entry(b, &s, 0, 0, 0))
        goto free_entries;
    table = reserve(b, s.words);
    if (table == 0)
        goto free_entries;
    memcpy(b->code + table, s.entries, s.words * sizeof(*s.entries));
    node = emit_table(b, GRAIL_NODE_SEQUENCE, table, GRAIL_SEQUENCE_ENTRY,
                      s.words / GRAIL_SEQUENCE_ENTRY - 1);
free_entries:
    free(s.entries);
    return node;
}

/* Everything that was settled, as one tree at displacement 0. */
static void emit_settled(grail_layout_builder_t *b, const frame_t *f, item_t *whole)
{
    segments_t segments = {0};

    memset(whole, 0, sizeof(*whole));
    if (!find_segments(b, f, &segments))
        goto free_segments;
    if (segments.count == 1) {
        whole->node = segments.list[0].equal ? emit_list(b, f->blocks, f->block_count)
                                             : emit_blocks(b, f->blocks, f->block_count);
        for (size_t i = 0; i < f->block_count; i++)
            whole->unit += f->blocks[i].length;
    } else {
        whole->node = emit_sequence(b, f, &segments, &whole->unit);
    }
    whole->size = whole->unit;
free_segments:
    free(segments.list);
}

/* ---- frames ---- */

static bool push_frame(grail_layout_builder_t *b, uint64_t count, int64_t stride)
{
    frame_t *f;

    if (!grow(b, (void **)&b->frames, &b->frame_room, b->depth + 1, sizeof(*b->frames)))
        return false;
    f = &b->frames[b->depth++];
    memset(f, 0, sizeof(*f));
    f->loop_count = count;
    f->loop_stride = stride;
    return true;
}

static void free_frame(frame_t *f)
{
    free(f->blocks);
    free(f->items);
}

/* The frame's contents as one item; size 0 when there are none. */
static void pop_frame(grail_layout_builder_t *b, item_t *whole)
{
    frame_t *f = &b->frames[b->depth - 1];

    push_open(b, f);
    if (f->block_count == 0 && f->item_count == 0 && f->used <= 1) {
        if (f->used == 1)
            *whole = f->window[0];
        else
            memset(whole, 0, sizeof(*whole));
    } else {
        bool many = f->block_count + f->item_count > 0;

        for (unsigned i = 0; i < f->used; i++)
            settle(b, f, &f->window[i], many ? EXPAND_MANY : EXPAND_FEW);
        if (b->status == GRAIL_OK)
            emit_settled(b, f, whole);
    }
    free_frame(f);
    b->depth--;
}

/* ---- interface ---- */

grail_layout_builder_t *grail_layout_begin(void)
{
    grail_layout_builder_t *b = calloc(1, sizeof(*b));

    if (b == NULL) {
        grail_error("no memory to flatten a datatype");
        return NULL;
    }
    if (!push_frame(b, 1, 0) || !grow(b, (void **)&b->code, &b->room, 1, sizeof(*b->code))) {
        free(b->frames);
        free(b);
        return NULL;
    }
    b->code[0] = 0;
    b->words = 1;
    return b;
}

grail_status_t grail_layout_add(grail_layout_builder_t *b, ptrdiff_t displacement, size_t length)
{
    item_t block = {.at = displacement, .size = length, .unit = length};

    if (b->status == GRAIL_OK && length != 0)
        push_item(b, &b->frames[b->depth - 1], &block);
    return b->status;
}

grail_status_t grail_layout_add_strided(grail_layout_builder_t *b, ptrdiff_t displacement,
                                        size_t length, size_t count, ptrdiff_t stride)
{
    item_t run = {.at = displacement, .size = length, .unit = length};

    if (b->status != GRAIL_OK || length == 0 || count == 0)
        return b->status;
    repeat(&run, count, stride);
    push_item(b, &b->frames[b->depth - 1], &run);
    return b->status;
}

grail_status_t grail_layout_loop(grail_layout_builder_t *b, size_t count, ptrdiff_t stride)
{
    if (b->status == GRAIL_OK)
        push_frame(b, count, stride);
    return b->status;
}

grail_status_t grail_layout_loop_end(grail_layout_builder_t *b)
{
    uint64_t count;
    int64_t stride;
    item_t body;

    if (b->status != GRAIL_OK)
        return b->status;
    if (b->depth < 2) {
        grail_error("datatype layout: a loop ends that was not begun");
        return b->status = GRAIL_ERR_INVALID;
    }
    count = b->frames[b->depth - 1].loop_count;
    stride = b->frames[b->depth - 1].loop_stride;
    pop_frame(b, &body);
    if (b->status != GRAIL_OK || count == 0 || body.size == 0)
        return b->status;
    if (body.levels == LEVELS) {
        uint32_t node = emit_item(b, &body);

        if (b->status != GRAIL_OK)
            return b->status;
        body = (item_t){.at = body.at, .size = body.size, .unit = body.size, .node = node};
    }
    repeat(&body, count, stride);
    push_item(b, &b->frames[b->depth - 1], &body);
    return b->status;
}

static void free_builder(grail_layout_builder_t *b)
{
    for (size_t i = 0; i < b->depth; i++)
        free_frame(&b->frames[i]);
    free(b->frames);
    free(b->code);
    free(b);
}

static grail_status_t make_layout(grail_layout_builder_t *b, ptrdiff_t extent,
                                  grail_layout_t **layout)
{
    grail_layout_t *made;
    item_t whole;
    uint32_t root;

    if (b->status != GRAIL_OK)
        return b->status;
    if (b->depth != 1) {
        grail_error("datatype layout: %zu loops were left open", b->depth - 1);
        return GRAIL_ERR_INVALID;
    }
    pop_frame(b, &whole);
    if (b->status != GRAIL_OK)
        return b->status;
    root = emit_item(b, &whole);
    if (b->status != GRAIL_OK)
        return b->status;
    made = calloc(1, sizeof(*made));
    if (made == NULL) {
        grail_error("no memory to flatten a datatype");
        return GRAIL_ERR_NO_MEMORY;
    }
    made->references = 1;
    made->size = whole.size;
    made->extent = extent;
    made->first = whole.size == 0 ? 0 : whole.at;
    made->root = root;
    made->words = (uint32_t)b->words;
    made->code = realloc(b->code, b->words * sizeof(*b->code));
    if (made->code == NULL)     /* shrinking failed: keep the larger block */
        made->code = b->code;
    b->code = NULL;
    if (!grail_layout_analyse(made)) {
        grail_error("a datatype reaches over more than the address space or nests too deeply: it "
                    "cannot be flattened");
        grail_layout_release(made);
        return GRAIL_ERR_UNSUPPORTED;
    }
    grail_layout_prepare(made);
    *layout = made;
    return GRAIL_OK;
}

grail_status_t grail_layout_end(grail_layout_builder_t *b, ptrdiff_t extent,
                                grail_layout_t **layout)
{
    grail_status_t status = make_layout(b, extent, layout);

    free_builder(b);
    return status;
}
