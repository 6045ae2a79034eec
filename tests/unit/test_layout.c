/* SPDX-License-Identifier: BSD-3-Clause */
/* Layouts: folding, walking and encoding, against a plain list of blocks. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda-aware/layout_internal.h"
#include "tests/unit/random_layout.h"

/* ---- single shapes ---- */

static grail_layout_t *finish(grail_layout_builder_t *b, ptrdiff_t extent)
{
    grail_layout_t *layout = NULL;

    assert_int_equal(grail_layout_end(b, extent, &layout), GRAIL_OK);
    return layout;
}

static void check_locate(const grail_layout_t *layout, uint64_t offset, int64_t at, uint64_t left)
{
    grail_place_t place;

    grail_layout_locate(layout, offset, &place);
    assert_int_equal(place.at, at);
    assert_int_equal(place.left, left);
}

static void test_empty(void **state)
{
    grail_layout_builder_t *b = grail_layout_begin();
    grail_layout_t *layout;
    ptrdiff_t low = 1, high = 1, first = 5;

    (void)state;
    grail_layout_add(b, 40, 0);
    grail_layout_add_strided(b, 0, 0, 10, 4);
    grail_layout_add_strided(b, 0, 8, 0, 4);
    layout = finish(b, 16);
    assert_int_equal(grail_layout_size(layout), 0);
    assert_int_equal(grail_layout_runs(layout), 0);
    grail_layout_span(layout, 3, &low, &high);
    assert_int_equal(low, 0);
    assert_int_equal(high, 0);
    assert_true(grail_layout_contiguous(layout, 1, &first));
    grail_layout_pack_host(layout, 3, NULL, 0, 0, NULL);
    grail_layout_release(layout);
}

static void test_adjacent_blocks_merge(void **state)
{
    grail_layout_builder_t *b = grail_layout_begin();
    grail_layout_t *layout;
    ptrdiff_t first = 0;

    (void)state;
    for (int i = 0; i < 100; i++)
        grail_layout_add(b, -12 + 3 * i, 3);
    layout = finish(b, 300);
    assert_int_equal(grail_layout_size(layout), 300);
    assert_int_equal(grail_layout_runs(layout), 1);
    assert_true(grail_layout_contiguous(layout, 7, &first));
    assert_int_equal(first, -12);
    grail_layout_release(layout);
}

static void test_gap_after_block_is_not_contiguous(void **state)
{
    grail_layout_builder_t *b = grail_layout_begin();
    grail_layout_t *layout;
    ptrdiff_t first = 0;

    (void)state;
    grail_layout_add(b, 0, 12);
    layout = finish(b, 16);
    assert_true(grail_layout_contiguous(layout, 1, &first));
    assert_false(grail_layout_contiguous(layout, 2, &first));
    grail_layout_release(layout);
}

/* A 4-D box given block by block becomes one run of three strides. */
static void test_box_is_one_run(void **state)
{
    grail_layout_builder_t *b = grail_layout_begin();
    grail_layout_t *layout;

    (void)state;
    for (int w = 0; w < 3; w++) {
        for (int z = 0; z < 5; z++) {
            for (int y = 0; y < 7; y++)
                grail_layout_add(b, w * 100000 + z * 5000 + y * 100, 24);
        }
    }
    layout = finish(b, 400000);
    assert_int_equal(grail_layout_runs(layout), 1);
    assert_int_equal(grail_layout_blocks(layout), 105);
    assert_int_equal(layout->words, 1 + 3 * GRAIL_NODE_WORDS);
    check_locate(layout, (2 * 35 + 4 * 7 + 6) * 24 + 5, 220605, 19);
    grail_layout_release(layout);
}

/* Rows whose end touches nothing, but whose pieces touch each other. */
static void test_pieces_of_rows_are_not_rows(void **state)
{
    grail_layout_builder_t *b = grail_layout_begin();
    grail_layout_t *layout;

    (void)state;
    for (int i = 0; i < 50; i++) {
        grail_layout_add(b, i * 16, 4);
        grail_layout_add(b, i * 16 + 4, 4);
    }
    layout = finish(b, 800);
    assert_int_equal(grail_layout_runs(layout), 1);
    assert_int_equal(layout->words, 1 + GRAIL_NODE_WORDS);
    grail_layout_release(layout);
}

static void test_negative_stride(void **state)
{
    grail_layout_builder_t *b = grail_layout_begin();
    grail_layout_t *layout;
    ptrdiff_t low, high;

    (void)state;
    for (int i = 0; i < 1000; i++)
        grail_layout_add(b, -64 * i, 4);
    layout = finish(b, 8);
    assert_int_equal(grail_layout_runs(layout), 1);
    check_locate(layout, 4 * 999 + 1, -63936 + 1, 3);
    grail_layout_span(layout, 3, &low, &high);
    assert_int_equal(low, -63936);
    assert_int_equal(high, 4 + 16);
    grail_layout_release(layout);
}

static void test_equal_irregular_blocks_are_a_list(void **state)
{
    grail_layout_builder_t *b = grail_layout_begin();
    grail_layout_t *layout;
    int64_t at[5000], x = 0;

    (void)state;
    for (int i = 0; i < 5000; i++) {
        x += 8 * (1 + (i * 7919) % 13) + 8;
        at[i] = i % 2 ? x : 1000000 - x;
        grail_layout_add(b, at[i], 8);
    }
    layout = finish(b, 1 << 21);
    assert_int_equal(grail_layout_runs(layout), 5000);
    assert_true(layout->words <= 5000 + 16);
    for (int i = 0; i < 5000; i++)
        check_locate(layout, (uint64_t)i * 8 + 3, at[i] + 3, 5);
    grail_layout_release(layout);
}

/* Struct in a vector in a vector: loops around a body of several runs stay loops. */
static void test_nested_loops_stay_small(void **state)
{
    grail_layout_builder_t *b = grail_layout_begin();
    grail_layout_t *layout;

    (void)state;
    grail_layout_loop(b, 1000, 1 << 20);
    grail_layout_loop(b, 1000, 64);
    grail_layout_add(b, 0, 4);
    grail_layout_add(b, 8, 8);
    grail_layout_add_strided(b, 24, 1, 10, 3);
    grail_layout_loop_end(b);
    grail_layout_loop_end(b);
    layout = finish(b, 1 << 30);
    assert_int_equal(grail_layout_size(layout), 22 * 1000000);
    assert_int_equal(grail_layout_blocks(layout), 12 * 1000000);
    assert_true(layout->words < 64);
    check_locate(layout, 22 * (999 * 1000 + 998) + 12 + 4, (INT64_C(999) << 20) + 998 * 64 + 36, 1);
    grail_layout_release(layout);
}

static void test_loops_deeper_than_strides(void **state)
{
    grail_layout_builder_t *b = grail_layout_begin();
    grail_layout_t *layout;

    (void)state;
    for (int i = 0; i < 12; i++)
        grail_layout_loop(b, 3, (ptrdiff_t)4 << (2 * (12 - i)));
    grail_layout_add(b, 0, 4);
    for (int i = 0; i < 12; i++)
        grail_layout_loop_end(b);
    layout = finish(b, 0);
    assert_int_equal(grail_layout_blocks(layout), 531441);
    assert_int_equal(grail_layout_runs(layout), 1);
    check_locate(layout, 4 * 531440, 2 * ((INT64_C(4) << 26) - 16) / 3, 4);
    grail_layout_release(layout);
}

static void test_contiguous_loops_vanish(void **state)
{
    grail_layout_builder_t *b = grail_layout_begin();
    grail_layout_t *layout;
    ptrdiff_t first = 0;

    (void)state;
    grail_layout_add(b, 0, 8);
    grail_layout_loop(b, 10, 800);
    grail_layout_add_strided(b, 8, 8, 100, 8);
    grail_layout_loop_end(b);
    layout = finish(b, 8008);
    assert_true(grail_layout_contiguous(layout, 3, &first));
    assert_int_equal(first, 0);
    grail_layout_release(layout);
}

/* More than 4 GiB in one element: the wide divisions. */
static void test_wide_elements(void **state)
{
    static const uint64_t lengths[] = {3, 7, 4096, 4100, 1000003, (1ull << 33) + 5};

    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        grail_layout_builder_t *b = grail_layout_begin();
        uint64_t length = lengths[i], count = (1ull << 42) / length;
        grail_layout_t *layout;

        grail_layout_add_strided(b, 16, length, count, (ptrdiff_t)(length + 9));
        layout = finish(b, 1);
        assert_true((layout->code[layout->root] & GRAIL_NODE_WIDE) != 0);
        for (uint64_t n = 0; n < count; n += count / 1000 + 1) {
            check_locate(layout, n * length, (int64_t)(16 + n * (length + 9)), length);
            check_locate(layout, n * length + length - 1,
                         (int64_t)(16 + n * (length + 9) + length - 1), 1);
        }
        grail_layout_release(layout);
    }
}

static void test_division(void **state)
{
    test_random_t r = {.state = 42};

    (void)state;
    for (int i = 0; i < 200000; i++) {
        uint64_t d = test_random(&r) >> (34 + test_random(&r) % 30);
        uint64_t n = test_random(&r) >> (33 + test_random(&r) % 31);
        grail_divisor_t v = grail_divisor(d + 1, false);

        assert_int_equal(grail_divide(n, v.magic, v.shift, false), n / (d + 1));
        n = (n / (d + 1) + 1) * (d + 1) - 1;    /* just below a multiple */
        if (n < (1u << 31))
            assert_int_equal(grail_divide(n, v.magic, v.shift, false), n / (d + 1));
        d = test_random(&r) >> (2 + test_random(&r) % 62);
        n = test_random(&r) >> (1 + test_random(&r) % 63);
        v = grail_divisor(d + 1, true);
        assert_int_equal(grail_divide(n, v.magic, v.shift, true), n / (d + 1));
        n = n / (d + 1) * (d + 1);
        assert_int_equal(grail_divide(n, v.magic, v.shift, true), n / (d + 1));
        if (n > 0)
            assert_int_equal(grail_divide(n - 1, v.magic, v.shift, true), (n - 1) / (d + 1));
    }
}

static void test_unbalanced_loops(void **state)
{
    grail_layout_builder_t *b = grail_layout_begin();
    grail_layout_t *layout = (grail_layout_t *)&layout;

    (void)state;
    grail_layout_loop(b, 3, 4);
    assert_int_equal(grail_layout_end(b, 0, &layout), GRAIL_ERR_INVALID);
    assert_ptr_equal(layout, &layout);
    b = grail_layout_begin();
    assert_int_equal(grail_layout_loop_end(b), GRAIL_ERR_INVALID);
    assert_int_equal(grail_layout_add(b, 0, 4), GRAIL_ERR_INVALID);
    assert_int_equal(grail_layout_end(b, 0, &layout), GRAIL_ERR_INVALID);
}

/* ---- many random shapes against the list of blocks they were made of ---- */

static void check_span(const test_shape_t *shape, const grail_layout_t *layout)
{
    int64_t low = INT64_MAX, high = INT64_MIN;
    ptrdiff_t got_low, got_high;

    for (size_t i = 0; i < shape->count; i++) {
        int64_t at = shape->blocks[i].at;

        if (shape->blocks[i].length == 0)
            continue;
        low = at < low ? at : low;
        high = at + (int64_t)shape->blocks[i].length > high
                   ? at + (int64_t)shape->blocks[i].length : high;
    }
    if (shape->size == 0)
        low = high = 0;
    grail_layout_span(layout, 1, &got_low, &got_high);
    assert_int_equal(got_low, low);
    assert_int_equal(got_high, high);
}

static void check_all_bytes(const test_shape_t *shape, const grail_layout_t *layout,
                            test_random_t *r)
{
    size_t count = 1 + test_random(r) % 3, total = shape->size * count;
    unsigned char *memory, *packed = malloc(total + 1), *again = malloc(total + 1);
    unsigned char *base = test_shape_memory(shape, count, r, &memory);

    test_shape_pack(shape, count, base, packed);
    memset(again, 0xee, total + 1);
    for (size_t done = 0; done < total;) {
        size_t n = 1 + test_random(r) % (total - done);

        grail_layout_pack_host(layout, count, base, done, n, again + done);
        done += n;
    }
    assert_memory_equal(again, packed, total);
    assert_int_equal(again[total], 0xee);
    if (shape->overlaps == false) {
        size_t bytes = test_shape_memory_size(shape, count);
        unsigned char *copy = malloc(bytes + 1);

        memcpy(copy, memory, bytes);
        for (size_t i = 0; i < total; i++)
            packed[i] = (unsigned char)test_random(r);
        for (size_t done = 0; done < total;) {
            size_t n = 1 + test_random(r) % (total - done);

            grail_layout_unpack_host(layout, count, base, done, n, packed + done);
            done += n;
        }
        test_shape_unpack(shape, count, copy + (base - memory), packed);
        assert_memory_equal(memory, copy, bytes);
        free(copy);
    }
    free(packed);
    free(again);
    free(memory);
}

static void check_encoding(const grail_layout_t *layout)
{
    size_t needed = 0, used = 0;
    grail_layout_t *copy = NULL;
    unsigned char *bytes;

    assert_int_equal(grail_layout_encode(layout, NULL, 0, &needed), GRAIL_OK);
    bytes = malloc(needed);
    assert_int_equal(grail_layout_encode(layout, bytes, needed - 1, &used), GRAIL_ERR_UNSUPPORTED);
    assert_int_equal(used, 0);
    assert_int_equal(grail_layout_encode(layout, bytes, needed, &used), GRAIL_OK);
    assert_int_equal(used, needed);
    assert_int_equal(grail_layout_decode(bytes, needed, &copy), GRAIL_OK);
    assert_int_equal(copy->size, layout->size);
    assert_int_equal(copy->low, layout->low);
    assert_int_equal(copy->high, layout->high);
    assert_int_equal(copy->alignment, layout->alignment);
    assert_int_equal(copy->blocks, layout->blocks);
    assert_memory_equal(copy->code, layout->code, layout->words * sizeof(*copy->code));
    grail_layout_release(copy);
    free(bytes);
}

static void test_random_shapes(void **state)
{
    test_random_t r = {.state = 20261130};

    (void)state;
    for (int i = 0; i < 4000; i++) {
        grail_layout_t *layout;
        test_shape_t shape;

        test_shape_make(&shape, &r, i);
        layout = test_shape_layout(&shape, i % 2 == 0);
        assert_non_null(layout);
        assert_int_equal(grail_layout_size(layout), shape.size);
        check_span(&shape, layout);
        check_all_bytes(&shape, layout, &r);
        check_encoding(layout);
        grail_layout_release(layout);
        test_shape_free(&shape);
    }
}

/* Damaged descriptions are refused or at least harmless (run under a sanitizer too). */
static void test_damaged_bytes(void **state)
{
    test_random_t r = {.state = 7};
    int refused = 0, saved = dup(2), null = open("/dev/null", O_WRONLY);

    (void)state;
    dup2(null, 2);      /* thousands of identical errors */
    for (int i = 0; i < 3000; i++) {
        grail_layout_t *layout, *copy = NULL;
        size_t used = 0;
        test_shape_t shape;
        unsigned char bytes[65536];

        test_shape_make(&shape, &r, i);
        layout = test_shape_layout(&shape, false);
        if (grail_layout_encode(layout, bytes, sizeof(bytes), &used) == GRAIL_OK) {
            for (int n = 1 + (int)(test_random(&r) % 3); n > 0; n--)
                bytes[test_random(&r) % used] ^= (unsigned char)(1u << test_random(&r) % 8);
            if (test_random(&r) % 8 == 0)
                used = test_random(&r) % used;
            if (grail_layout_decode(bytes, used, &copy) == GRAIL_OK) {
                grail_place_t place;

                for (int n = 0; n < 100 && copy->size > 0; n++)
                    grail_layout_locate(copy, test_random(&r) % copy->size, &place);
                grail_layout_release(copy);
            } else {
                refused++;
                assert_null(copy);
            }
        }
        grail_layout_release(layout);
        test_shape_free(&shape);
    }
    dup2(saved, 2);
    close(saved);
    close(null);
    assert_true(refused > 500);
}

/* Millions of irregular blocks: time and memory stay in proportion. */
static void test_many_irregular_blocks(void **state)
{
    enum { BLOCKS = 2000000 };
    grail_layout_builder_t *b = grail_layout_begin();
    test_random_t r = {.state = 99};
    grail_layout_t *layout;
    int64_t at = 0;

    (void)state;
    for (int i = 0; i < BLOCKS; i++) {
        size_t length = 1 + test_random(&r) % 64;

        at += 1 + (int64_t)(test_random(&r) % 100);
        assert_int_equal(grail_layout_add(b, at, length), GRAIL_OK);
        at += (int64_t)length;
    }
    layout = finish(b, at);
    assert_int_equal(grail_layout_blocks(layout), BLOCKS);
    assert_true(layout->words <= 2 * BLOCKS + BLOCKS / 4 + 64);
    grail_layout_release(layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_adjacent_blocks_merge),
        cmocka_unit_test(test_gap_after_block_is_not_contiguous),
        cmocka_unit_test(test_box_is_one_run),
        cmocka_unit_test(test_pieces_of_rows_are_not_rows),
        cmocka_unit_test(test_negative_stride),
        cmocka_unit_test(test_equal_irregular_blocks_are_a_list),
        cmocka_unit_test(test_nested_loops_stay_small),
        cmocka_unit_test(test_loops_deeper_than_strides),
        cmocka_unit_test(test_contiguous_loops_vanish),
        cmocka_unit_test(test_wide_elements),
        cmocka_unit_test(test_division),
        cmocka_unit_test(test_random_shapes),
        cmocka_unit_test(test_many_irregular_blocks),
        cmocka_unit_test(test_unbalanced_loops),
        cmocka_unit_test(test_damaged_bytes),
    };

    puts("# expects messages");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
