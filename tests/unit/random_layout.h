/* SPDX-License-Identifier: BSD-3-Clause */
/* Random datatypes as plain lists of blocks, and the layouts made of them. */
#ifndef GRAIL_TESTS_UNIT_RANDOM_LAYOUT_H
#define GRAIL_TESTS_UNIT_RANDOM_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda-aware/layout.h"

typedef struct test_random {
    uint64_t state;
} test_random_t;

/* splitmix64 (Steele, Lea, Flood 2014) */
static inline uint64_t test_random(test_random_t *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

typedef struct test_block {
    int64_t at;
    size_t length;
} test_block_t;

enum { TEST_LOOPS = 4 };

/* `body` blocks, repeated by nested loops (innermost first); `blocks` is the whole list. */
typedef struct test_shape {
    size_t count;
    test_block_t *blocks;
    size_t body;
    unsigned loops;
    struct {
        size_t count;
        int64_t stride;
    } loop[TEST_LOOPS];
    size_t size;
    int64_t extent;
    bool overlaps;      /* up to three elements touch a byte twice */
} test_shape_t;

static inline int test_compare_blocks(const void *a, const void *b)
{
    const test_block_t *x = a, *y = b;

    return (x->at > y->at) - (x->at < y->at);
}

/* Do `elements` elements touch a byte twice? */
static inline bool test_overlap(const test_shape_t *s, size_t elements)
{
    test_block_t *all = malloc((s->count * elements + 1) * sizeof(*all));
    size_t n = 0;
    bool found = false;

    for (size_t e = 0; e < elements; e++) {
        for (size_t i = 0; i < s->count; i++) {
            if (s->blocks[i].length > 0) {
                all[n].at = s->blocks[i].at + (int64_t)e * s->extent;
                all[n++].length = s->blocks[i].length;
            }
        }
    }
    qsort(all, n, sizeof(*all), test_compare_blocks);
    for (size_t i = 1; i < n; i++)
        found = found || all[i - 1].at + (int64_t)all[i - 1].length > all[i].at;
    free(all);
    return found;
}

/* The body: up to 60 blocks of lengths and at places that are multiples of `unit`. */
static inline void test_shape_body(test_shape_t *s, test_random_t *r, int64_t unit)
{
    unsigned style = (unsigned)(test_random(r) % 4);
    size_t length = (size_t)unit * (1 + test_random(r) % 6);
    int64_t at = unit * ((int64_t)(test_random(r) % 40) - 20), step = (int64_t)length;

    s->body = style == 0 ? 1 : 1 + test_random(r) % 60;
    s->blocks = malloc(s->body * sizeof(*s->blocks));
    step += unit * (int64_t)(test_random(r) % 5);
    if (test_random(r) % 4 == 0)
        step = -step;
    for (size_t i = 0; i < s->body; i++) {
        s->blocks[i].at = at;
        s->blocks[i].length = length;
        if (style == 3) {           /* nothing regular, sometimes empty or adjacent */
            s->blocks[i].length = (size_t)unit * (test_random(r) % 5);
            at += (int64_t)s->blocks[i].length + unit * (int64_t)(test_random(r) % 3);
            if (test_random(r) % 16 == 0)
                at -= unit * (int64_t)(test_random(r) % 100);
        } else if (style == 2) {    /* equal blocks, irregular places */
            at += step + unit * (int64_t)(test_random(r) % 4);
        } else {                    /* rows of seven */
            at += step + (i % 7 == 6 ? 3 * step : 0);
        }
    }
}

static inline void test_shape_make(test_shape_t *s, test_random_t *r, int number)
{
    static const int64_t units[] = {1, 2, 4, 8, 16};
    int64_t unit = units[number % 5], reach;
    test_block_t *all;

    memset(s, 0, sizeof(*s));
    test_shape_body(s, r, unit);
    s->count = s->body;
    reach = unit * (int64_t)(s->body * 12 + 1);
    s->loops = (unsigned)(test_random(r) % TEST_LOOPS);
    for (unsigned l = 0; l < s->loops; l++) {
        size_t count = 1 + test_random(r) % 4, n = s->count;
        int64_t stride = reach + unit * (int64_t)(test_random(r) % 3);

        if (test_random(r) % 4 == 0)
            stride = -stride;
        if (test_random(r) % 16 == 0)
            stride = unit * (int64_t)(test_random(r) % 3);     /* often overlapping */
        s->loop[l].count = count;
        s->loop[l].stride = stride;
        all = realloc(s->blocks, n * count * sizeof(*all));
        for (size_t i = n; i < n * count; i++) {
            all[i].at = all[i % n].at + (int64_t)(i / n) * stride;
            all[i].length = all[i % n].length;
        }
        s->blocks = all;
        s->count = n * count;
        reach = (reach + unit * 3) * (int64_t)count;
    }
    for (size_t i = 0; i < s->count; i++)
        s->size += s->blocks[i].length;
    s->extent = reach * 2 + unit * (int64_t)(test_random(r) % 3);
    if (test_random(r) % 4 == 0)
        s->extent = -s->extent;
    if (test_random(r) % 16 == 0)
        s->extent = (int64_t)s->size;
    s->overlaps = test_overlap(s, 3);
}

static inline void test_shape_free(test_shape_t *s)
{
    free(s->blocks);
}

/* Through loops, or block by block. */
static inline grail_layout_t *test_shape_layout(const test_shape_t *s, bool loops)
{
    grail_layout_builder_t *b = grail_layout_begin();
    size_t added = loops ? s->body : s->count;
    grail_layout_t *layout = NULL;

    for (unsigned l = s->loops; loops && l-- > 0;)
        grail_layout_loop(b, s->loop[l].count, s->loop[l].stride);
    for (size_t i = 0; i < added; i++)
        grail_layout_add(b, s->blocks[i].at, s->blocks[i].length);
    for (unsigned l = 0; loops && l < s->loops; l++)
        grail_layout_loop_end(b);
    return grail_layout_end(b, s->extent, &layout) == GRAIL_OK ? layout : NULL;
}

static inline void test_shape_range(const test_shape_t *s, size_t count, int64_t *low,
                                    int64_t *high)
{
    *low = *high = 0;
    for (size_t e = 0; e < count; e += count > 1 ? count - 1 : 1) {
        for (size_t i = 0; i < s->count; i++) {
            int64_t at = s->blocks[i].at + (int64_t)e * s->extent;
            int64_t end = at + (int64_t)s->blocks[i].length;

            *low = at < *low ? at : *low;
            *high = end > *high ? end : *high;
        }
    }
}

/* Bytes from the lowest touched to the highest, with room to align. */
static inline size_t test_shape_memory_size(const test_shape_t *s, size_t count)
{
    int64_t low, high;

    test_shape_range(s, count, &low, &high);
    return (size_t)(high - low) + 64;
}

/* Offset of the elements' address in such memory: a multiple of 32. */
static inline size_t test_shape_origin(const test_shape_t *s, size_t count)
{
    int64_t low, high;

    test_shape_range(s, count, &low, &high);
    return (size_t)((-low + 31) / 32 * 32);
}

/* Random contents; *memory is to be freed, the elements' address is returned. */
static inline unsigned char *test_shape_memory(const test_shape_t *s, size_t count,
                                               test_random_t *r, unsigned char **memory)
{
    size_t size = test_shape_memory_size(s, count);

    *memory = malloc(size);
    for (size_t i = 0; i < size; i++)
        (*memory)[i] = (unsigned char)test_random(r);
    return *memory + test_shape_origin(s, count);
}

static inline void test_shape_pack(const test_shape_t *s, size_t count, const unsigned char *base,
                                   unsigned char *packed)
{
    for (size_t e = 0; e < count; e++) {
        for (size_t i = 0; i < s->count; i++) {
            memcpy(packed, base + s->blocks[i].at + (int64_t)e * s->extent, s->blocks[i].length);
            packed += s->blocks[i].length;
        }
    }
}

static inline void test_shape_unpack(const test_shape_t *s, size_t count, unsigned char *base,
                                     const unsigned char *packed)
{
    for (size_t e = 0; e < count; e++) {
        for (size_t i = 0; i < s->count; i++) {
            memcpy(base + s->blocks[i].at + (int64_t)e * s->extent, packed, s->blocks[i].length);
            packed += s->blocks[i].length;
        }
    }
}

#endif
