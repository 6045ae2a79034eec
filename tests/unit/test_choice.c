/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of a path is a pure function: a table of situations and what must come out. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pml/choice.h"
#include "pml/wire.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Both on one node, everything works. */
static const grail_choice_t all_works = {
    .length = 1 << 20,
    .same_node = true,
    .receiver_device = true,
    .sender_device = true,
    .can_map = true,
    .can_map_ring = true,
    .direct_layout = true,
};

static grail_options_t defaults(void)
{
    assert_int_equal(grail_options_load_environment(), GRAIL_OK);
    return grail_options;
}

static void test_best_path(void **state)
{
    grail_options_t opt = defaults();
    grail_choice_t in = all_works;

    (void)state;
    assert_int_equal(grail_choice_path(&in, GRAIL_PATH_IPC, &opt), GRAIL_PATH_IPC);
    in.can_map = false;
    assert_int_equal(grail_choice_path(&in, GRAIL_PATH_IPC, &opt), GRAIL_PATH_RING);
    in.can_map_ring = false;
    assert_int_equal(grail_choice_path(&in, GRAIL_PATH_IPC, &opt), GRAIL_PATH_HOST_SHM);
    in.same_node = false;
    assert_int_equal(grail_choice_path(&in, GRAIL_PATH_IPC, &opt), GRAIL_PATH_HOST_NET);
}

/* Whatever is possible, a path that cannot be taken never comes out: all combinations. */
static void test_never_impossible(void **state)
{
    static const size_t lengths[] = {1, 4096, 1 << 20, (size_t)1 << 32};
    grail_options_t opt = defaults();

    (void)state;
    for (unsigned bits = 0; bits < 1u << 11; bits++) {
        grail_choice_t in = {
            .length = lengths[bits & 3],
            .same_node = bits & 4,
            .same_gpu = bits & 8,
            .receiver_device = bits & 16,
            .sender_device = bits & 32,
            .can_map = bits & 64,
            .can_map_ring = bits & 128,
            .direct_layout = bits & 256,
        };
        opt.path = (int)(bits >> 9);
        for (int from = GRAIL_PATH_IPC; from <= GRAIL_PATH_HOST_NET; from++) {
            grail_path_t path = grail_choice_path(&in, (grail_path_t)from, &opt);

            assert_true((int)path >= from && path <= GRAIL_PATH_HOST_NET);
            assert_true(grail_choice_cost(&in, path, &opt) < HUGE_VAL);
            if (path == GRAIL_PATH_IPC)
                assert_true(in.same_node && in.can_map && in.direct_layout && in.receiver_device &&
                            in.sender_device);
            if (path == GRAIL_PATH_RING)
                assert_true(in.same_node && in.can_map_ring && in.receiver_device &&
                            in.sender_device);
            if (path == GRAIL_PATH_HOST_SHM)
                assert_true(in.same_node);
        }
    }
}

static void test_forced_path(void **state)
{
    static const struct {
        int option;
        grail_path_t path;
    } rows[] = {{0, GRAIL_PATH_IPC}, {1, GRAIL_PATH_IPC}, {2, GRAIL_PATH_RING},
                {3, GRAIL_PATH_HOST_SHM}};
    grail_options_t opt = defaults();

    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        opt.path = rows[i].option;
        assert_int_equal(grail_choice_path(&all_works, GRAIL_PATH_IPC, &opt), rows[i].path);
    }
}

static void test_switched_off(void **state)
{
    grail_options_t opt = defaults();

    (void)state;
    opt.ipc = false;        /* the ring is mapped too */
    assert_int_equal(grail_choice_path(&all_works, GRAIL_PATH_IPC, &opt), GRAIL_PATH_HOST_SHM);
    opt.shm = false;
    assert_int_equal(grail_choice_path(&all_works, GRAIL_PATH_IPC, &opt), GRAIL_PATH_HOST_NET);
    opt = defaults();
    opt.ring = false;
    grail_choice_t in = all_works;
    in.can_map = false;
    assert_int_equal(grail_choice_path(&in, GRAIL_PATH_IPC, &opt), GRAIL_PATH_HOST_SHM);
}

/* Where the GPUs are far from each other, the way through the host may be the faster one. */
static void test_cost_decides(void **state)
{
    grail_options_t opt = defaults();
    grail_choice_t in = all_works;

    (void)state;
    in.length = (size_t)1 << 30;
    in.can_map = false;
    assert_int_equal(grail_choice_path(&in, GRAIL_PATH_IPC, &opt), GRAIL_PATH_RING);
    opt.bw_peer = opt.bw_host / 4;
    assert_int_equal(grail_choice_path(&in, GRAIL_PATH_IPC, &opt), GRAIL_PATH_HOST_SHM);
    in.can_map = true;
    opt.bw_peer = opt.bw_host;
    assert_int_equal(grail_choice_path(&in, GRAIL_PATH_IPC, &opt), GRAIL_PATH_IPC);
}

static void test_cost_grows_with_length(void **state)
{
    grail_options_t opt = defaults();

    (void)state;
    for (int path = GRAIL_PATH_IPC; path <= GRAIL_PATH_HOST_NET; path++) {
        double last = 0;
        for (size_t length = 1 << 20; length <= (size_t)1 << 34; length *= 2) {
            grail_choice_t in = all_works;
            in.length = length;
            double cost = grail_choice_cost(&in, (grail_path_t)path, &opt);
            assert_true(cost > last);
            last = cost;
        }
    }
}

static void test_eager(void **state)
{
    grail_options_t opt = defaults();

    (void)state;
    assert_true(grail_choice_eager(8, false, false, &opt));
    assert_false(grail_choice_eager(8, true, false, &opt));
    assert_true(grail_choice_eager(opt.gdrcopy_read_max, true, true, &opt));
    assert_false(grail_choice_eager(opt.gdrcopy_read_max + 1, true, true, &opt));
    assert_true(grail_choice_eager(opt.eager_device, false, false, &opt));
    assert_false(grail_choice_eager(opt.eager_device + 1, false, false, &opt));
    opt.path = 2;
    assert_false(grail_choice_eager(8, false, false, &opt));
}

static void test_late(void **state)
{
    grail_options_t opt = defaults();

    (void)state;
    assert_true(grail_choice_late(8, &opt));
    assert_true(grail_choice_late(opt.eager_device, &opt));
    assert_false(grail_choice_late(opt.eager_device + 1, &opt));
    opt.eager_device = 2 * opt.chunk;
    assert_true(grail_choice_late(opt.chunk, &opt));
    assert_false(grail_choice_late(opt.chunk + 1, &opt));
    opt.eager_wait = 0;
    assert_false(grail_choice_late(8, &opt));
    opt = defaults();
    opt.path = 1;
    assert_false(grail_choice_late(8, &opt));
}

static void test_piece(void **state)
{
    static const grail_path_t paths[] = {GRAIL_PATH_RING, GRAIL_PATH_HOST_SHM, GRAIL_PATH_HOST_NET};
    grail_options_t opt = defaults();

    (void)state;
    for (size_t p = 0; p < COUNT_OF(paths); p++) {
        for (size_t slot = 4096; slot <= 64 << 20; slot *= 4) {
            for (size_t length = 1; length <= (size_t)1 << 34; length = length * 3 + 1) {
                size_t piece = grail_choice_piece(length, paths[p], slot, &opt);
                assert_true(piece >= 1 && piece <= slot && piece <= length);
            }
        }
    }
    /* the pieces of a long message fill the slot; a short message is one piece */
    assert_int_equal(grail_choice_piece((size_t)1 << 32, GRAIL_PATH_RING, 8 << 20, &opt), 8 << 20);
    assert_int_equal(grail_choice_piece(1 << 18, GRAIL_PATH_RING, 8 << 20, &opt), 1 << 18);
}

/* Which communicators and ranks fit into the header of a brief message. */
static void test_brief(void **state)
{
    (void)state;
    assert_int_equal(grail_wire_brief_from(0, 0), 0);
    assert_int_equal(grail_wire_brief_from(3, 5), 3u << 16 | 5);
    assert_int_equal(grail_wire_brief_from(65534, 65534), 65534u << 16 | 65534);
    assert_int_equal(grail_wire_brief_from(65535, 0), GRAIL_WIRE_NOT_BRIEF);
    assert_int_equal(grail_wire_brief_from(0, 65535), GRAIL_WIRE_NOT_BRIEF);
    assert_int_equal(grail_wire_brief_from(1u << 24, 70000), GRAIL_WIRE_NOT_BRIEF);
    assert_int_equal(grail_wire_brief_from(1, -1), GRAIL_WIRE_NOT_BRIEF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_path),       cmocka_unit_test(test_never_impossible),
        cmocka_unit_test(test_forced_path),     cmocka_unit_test(test_switched_off),
        cmocka_unit_test(test_cost_decides),    cmocka_unit_test(test_cost_grows_with_length),
        cmocka_unit_test(test_eager),           cmocka_unit_test(test_late),
        cmocka_unit_test(test_piece),           cmocka_unit_test(test_brief),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
