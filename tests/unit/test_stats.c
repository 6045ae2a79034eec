/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters, the reasons for slower paths, and the printed table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/stats.h"
#include "tests/unit/capture.h"

static char printed[16384];

static const char *print(int rank, int always)
{
    FILE *file = tmpfile();

    assert_non_null(file);
    grail_stats_print(file, rank, always);
    rewind(file);
    printed[fread(printed, 1, sizeof(printed) - 1, file)] = '\0';
    fclose(file);
    return printed;
}

static int reset(void **state)
{
    (void)state;
    grail_stats_reset();
    return 0;
}

static void nothing_counted(void **state)
{
    (void)state;
    assert_string_equal(print(0, 0), "");
    assert_non_null(strstr(print(3, 1), "rank 3"));
    assert_non_null(strstr(printed, "none"));
}

static void counts(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; ++i)
        grail_stats_count(GRAIL_SENT, GRAIL_PATH_IPC, GRAIL_PEER_NODE, 1 << 20);
    grail_stats_count(GRAIL_RECEIVED, GRAIL_PATH_HOST_NET, GRAIL_PEER_REMOTE, 17);
    grail_stats_count(GRAIL_RECEIVED, GRAIL_PATH_NET_EAGER, GRAIL_PEER_SELF, 0);
    assert_int_equal(grail_stats_cells[GRAIL_SENT][GRAIL_PATH_IPC][GRAIL_PEER_NODE].messages, 1000);

    const char *text = print(2, 0);
    assert_non_null(strstr(text, "rank 2"));
    /* only the rows that are not zero, with columns in one place */
    assert_int_equal(capture_lines(text), 5);
    const char *sent = strstr(text, "sent      ipc             node  ");
    const char *received = strstr(text, "received  host-net        remote");
    assert_non_null(sent);
    assert_non_null(received);
    assert_non_null(strstr(text, "received  net-eager       self"));
    assert_non_null(strstr(sent, "1000    0.98 GiB    1.00 MiB\n"));
    assert_non_null(strstr(received, "1        17 B        17 B\n"));
    assert_int_equal(strcspn(sent, "\n"), strcspn(received, "\n"));
}

static void human_units(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, " 0 B"},
        {1, " 1 B"},
        {999, " 999 B"},
        {1000, " 0.98 KiB"},
        {1024, " 1.00 KiB"},
        {10230, " 9.99 KiB"},
        {10240, " 10.0 KiB"},
        {102400, " 100 KiB"},
        {1048575, " 1.00 MiB"},
        {UINT64_C(3) << 30, " 3.00 GiB"},
        {UINT64_C(1) << 50, " 1.00 PiB"},
        {UINT64_MAX, " 16.0 EiB"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        grail_stats_reset();
        grail_stats_count(GRAIL_SENT, GRAIL_PATH_RING, GRAIL_PEER_NODE, cases[i].bytes);
        if (strstr(print(0, 0), cases[i].text) == NULL)
            fail_msg("%llu bytes: %s", (unsigned long long)cases[i].bytes, printed);
    }
}

static void reasons(void **state)
{
    char same[] = "the peer's GPU is not visible";

    (void)state;
    capture_start();
    for (int i = 0; i < 3; ++i)
        grail_stats_fallback(GRAIL_PATH_IPC, "the peer's GPU is not visible", 1);
    grail_stats_fallback(GRAIL_PATH_IPC, same, 1);
    grail_stats_fallback(GRAIL_PATH_RING, "off by an option", 0);
    const char *text = capture_stop();
    assert_int_equal(capture_lines(text), 1);
    assert_non_null(strstr(text, "warning: the ipc path is not used: the peer's GPU"));

    print(0, 0);
    assert_non_null(strstr(printed, "ipc not used 4 times: the peer's GPU is not visible\n"));
    assert_non_null(strstr(printed, "ring not used 1 time: off by an option\n"));

    /* counted silently first, it still warns when asked to */
    capture_start();
    grail_stats_fallback(GRAIL_PATH_RING, "off by an option", 1);
    assert_int_equal(capture_lines(capture_stop()), 1);
}

static void more_reasons_than_kept(void **state)
{
    static char texts[100][16];

    (void)state;
    for (int i = 0; i < 100; ++i) {
        snprintf(texts[i], sizeof(texts[i]), "reason %d", i);
        grail_stats_fallback(GRAIL_PATH_IPC, texts[i], 0);
    }
    assert_non_null(strstr(print(0, 0), "36 more for other reasons"));
}

static void names(void **state)
{
    (void)state;
    for (int i = 0; i < GRAIL_PATH_COUNT; ++i) {
        assert_string_not_equal(grail_path_name((grail_path_t)i), "unknown");
        for (int j = 0; j < i; ++j)
            assert_string_not_equal(grail_path_name((grail_path_t)i),
                                    grail_path_name((grail_path_t)j));
    }
    assert_string_equal(grail_path_name(GRAIL_PATH_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nothing_counted, reset),
        cmocka_unit_test_setup(counts, reset),
        cmocka_unit_test_setup(human_units, reset),
        cmocka_unit_test_setup(reasons, reset),
        cmocka_unit_test_setup(more_reasons_than_kept, reset),
        cmocka_unit_test(names),
    };

    return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
