/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles: found while live, refused when stale, forged or of another table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/handle.h"
#include "tests/unit/capture.h"

enum { MANY = 10000 };

static int objects[MANY];

static void empty_table(void **state)
{
    grail_handle_table_t table = {0};

    (void)state;
    assert_null(grail_handle_get(&table, 0));
    assert_null(grail_handle_get(&table, 1));
    assert_null(grail_handle_get(&table, ~UINT64_C(0)));
    grail_handle_free(&table, 0);
    grail_handle_free(&table, 12345);
    grail_handle_table_clear(&table);
}

static void found_until_freed(void **state)
{
    static grail_handle_t handles[MANY];
    grail_handle_table_t table = {0};

    (void)state;
    for (int i = 0; i < MANY; ++i) {
        assert_int_equal(grail_handle_new(&table, &objects[i], &handles[i]), GRAIL_OK);
        assert_true(handles[i] != 0);
        assert_true((handles[i] >> 32) != 0);
    }
    assert_int_equal(table.live, MANY);
    for (int i = 0; i < MANY; ++i)
        assert_ptr_equal(grail_handle_get(&table, handles[i]), &objects[i]);
    for (int i = 0; i < MANY; i += 2)
        grail_handle_free(&table, handles[i]);
    assert_int_equal(table.live, MANY / 2);
    for (int i = 0; i < MANY; ++i)
        assert_ptr_equal(grail_handle_get(&table, handles[i]), i % 2 ? &objects[i] : NULL);
    grail_handle_table_clear(&table);
    assert_int_equal(table.live, 0);
}

static void stale_after_reuse(void **state)
{
    grail_handle_table_t table = {0};
    grail_handle_t first, next;

    (void)state;
    assert_int_equal(grail_handle_new(&table, &objects[0], &first), GRAIL_OK);
    for (int i = 0; i < 1000; ++i) {
        grail_handle_t previous = first;

        grail_handle_free(&table, first);
        grail_handle_free(&table, first);   /* twice does nothing */
        assert_int_equal(grail_handle_new(&table, &objects[1], &next), GRAIL_OK);
        assert_int_equal((uint32_t)next, (uint32_t)previous);   /* the same slot */
        assert_null(grail_handle_get(&table, previous));
        assert_ptr_equal(grail_handle_get(&table, next), &objects[1]);
        grail_handle_free(&table, previous);                    /* not the new owner's */
        assert_ptr_equal(grail_handle_get(&table, next), &objects[1]);
        first = next;
    }
    assert_int_equal(table.live, 1);
    assert_true(table.capacity <= 64);      /* reuse, no growth */
    grail_handle_table_clear(&table);
}

static void generation_never_zero(void **state)
{
    grail_handle_table_t table = {0};
    grail_handle_t handle;

    (void)state;
    assert_int_equal(grail_handle_new(&table, &objects[0], &handle), GRAIL_OK);
    grail_handle_free(&table, handle);
    /* the first word after the pointer is the generation: set it to its last value */
    *(uint32_t *)((char *)table.slots + sizeof(void *)) = UINT32_MAX;
    assert_int_equal(grail_handle_new(&table, &objects[0], &handle), GRAIL_OK);
    assert_int_equal(handle >> 32, UINT32_MAX);
    grail_handle_free(&table, handle);
    assert_int_equal(grail_handle_new(&table, &objects[0], &handle), GRAIL_OK);
    assert_int_equal(handle >> 32, 1);
    grail_handle_table_clear(&table);
}

static void of_another_table(void **state)
{
    grail_handle_table_t a = {0}, b = {0};
    grail_handle_t in_a, in_b;

    (void)state;
    assert_int_equal(grail_handle_new(&a, &objects[0], &in_a), GRAIL_OK);
    assert_int_equal(grail_handle_new(&b, &objects[1], &in_b), GRAIL_OK);
    assert_null(grail_handle_get(&a, in_b));
    assert_null(grail_handle_get(&b, in_a));
    grail_handle_table_clear(&a);
    /* nor after the table has been emptied and used anew */
    assert_int_equal(grail_handle_new(&a, &objects[0], &in_b), GRAIL_OK);
    assert_null(grail_handle_get(&a, in_a));
    grail_handle_table_clear(&a);
    grail_handle_table_clear(&b);
}

static void random_numbers_are_refused(void **state)
{
    grail_handle_table_t table = {0};
    grail_handle_t handle;

    (void)state;
    for (int i = 0; i < 100; ++i)
        assert_int_equal(grail_handle_new(&table, &objects[i], &handle), GRAIL_OK);
    srandom(1);
    for (int i = 0; i < 100000; ++i) {
        grail_handle_t forged = ((uint64_t)random() << 33) | (uint64_t)(random() % 200);

        assert_null(grail_handle_get(&table, forged));
    }
    grail_handle_table_clear(&table);
}

static void nothing_is_no_object(void **state)
{
    grail_handle_table_t table = {0};
    grail_handle_t handle = 77;

    (void)state;
    capture_start();
    assert_int_equal(grail_handle_new(&table, NULL, &handle), GRAIL_ERR_INVALID);
    capture_stop();
    assert_int_equal(handle, 77);
    grail_handle_table_clear(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_table),
        cmocka_unit_test(found_until_freed),
        cmocka_unit_test(stale_after_reuse),
        cmocka_unit_test(generation_never_zero),
        cmocka_unit_test(of_another_table),
        cmocka_unit_test(random_numbers_are_refused),
        cmocka_unit_test(nothing_is_no_object),
    };

    return cmocka_run_group_tests_name("handle", tests, NULL, NULL);
}
