/* SPDX-License-Identifier: BSD-3-Clause */
/* The option table: values, units, ranges, the environment, and what errors say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/init.h"
#include "runtime/log.h"
#include "runtime/options.h"
#include "tests/unit/capture.h"

extern char **environ;

static int reset(void **state)
{
    (void)state;
    for (char **entry = environ; *entry != NULL;) {
        if (strncmp(*entry, "GRAIL_", 6) == 0) {
            char name[128];

            snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
            unsetenv(name);
            entry = environ;
        } else {
            ++entry;
        }
    }
    return grail_options_load_environment() == GRAIL_OK ? 0 : -1;
}

static void accepts(const char *name, const char *value, const char *printed)
{
    char text[128];

    capture_start();
    grail_status_t status = grail_option_set(name, value, "the test");
    const char *messages = capture_stop();
    if (status != GRAIL_OK || *messages != '\0')
        fail_msg("%s=%s: %s", name, value, messages);
    assert_true(grail_option_print(grail_option_find(name), text, sizeof(text)) > 0);
    if (strcmp(text, printed) != 0)
        fail_msg("%s=%s gives %s, not %s", name, value, text, printed);
}

static void rejects(const char *name, const char *value)
{
    char before[128], after[128];
    const grail_option_t *option = grail_option_find(name);

    grail_option_print(option, before, sizeof(before));
    capture_start();
    grail_status_t status = grail_option_set(name, value, "the test's source");
    const char *text = capture_stop();
    grail_option_print(option, after, sizeof(after));
    if (status != GRAIL_ERR_INVALID)
        fail_msg("%s=%s is accepted", name, value);
    assert_string_equal(before, after);
    assert_int_equal(capture_lines(text), 1);
    assert_non_null(strstr(text, "error: "));
    assert_non_null(strstr(text, name));
    assert_non_null(strstr(text, value));
    assert_non_null(strstr(text, "the test's source"));
}

static void table_is_sound(void **state)
{
    size_t count;
    const grail_option_t *table = grail_options_table(&count);
    char text[256];

    (void)state;
    assert_true(count > 10);
    for (size_t i = 0; i < count; ++i) {
        const grail_option_t *o = &table[i];

        assert_ptr_equal(grail_option_find(o->name), o);
        assert_true(strlen(o->name) < 64);
        assert_true((char *)o->value >= (char *)&grail_options &&
                    (char *)o->value < (char *)(&grail_options + 1));
        assert_true(strlen(o->help) > 10);
        assert_int_not_equal(o->help[strlen(o->help) - 1], '.');
        assert_true(strlen(o->def) > 0);
        /* the default is in force, can be written as it is printed, and is within the range */
        grail_option_print(o, text, sizeof(text));
        assert_string_equal(text, o->def);
        accepts(o->name, o->def, o->def);
        assert_true(o->min <= o->max);
        assert_true((o->names != NULL) == (o->type == GRAIL_OPTION_ENUM));
        for (size_t j = 0; j < i; ++j)
            assert_string_not_equal(table[j].name, o->name);
    }
    assert_null(grail_option_find("no_such_option"));
}

static void sizes(void **state)
{
    (void)state;
    accepts("chunk", "4096", "4K");
    accepts("chunk", "64K", "64K");
    accepts("chunk", "64k", "64K");
    accepts("chunk", "64KiB", "64K");
    accepts("chunk", "64KB", "64K");
    accepts("chunk", " 1 M ", "1M");
    accepts("chunk", "65536B", "64K");
    accepts("chunk", "5000", "5000");
    accepts("chunk", "64M", "64M");
    assert_int_equal(grail_options.chunk, 64 << 20);
    accepts("staging_max", "16G", "16G");
    accepts("ipc_cache_bytes", "64T", "64T");
    accepts("eager_device", "0", "0");
    rejects("chunk", "4095");
    rejects("chunk", "65M");
    rejects("chunk", "-4096");
    rejects("chunk", "64Q");
    rejects("chunk", "64 K M");
    rejects("chunk", "K");
    rejects("chunk", "1e6");
    rejects("chunk", "99999999999999999999");
    rejects("chunk", "18014398509481984K");     /* would wrap to 0 */
    rejects("ipc_cache_bytes", "17179869184G");
    capture_start();
    assert_int_equal(grail_option_set("chunk", "", "the test"), GRAIL_ERR_INVALID);
    assert_non_null(strstr(capture_stop(), "4K to 64M bytes"));
}

static void numbers(void **state)
{
    (void)state;
    accepts("chunks", "2", "2");
    accepts("chunks", "256", "256");
    rejects("chunks", "1");
    rejects("chunks", "257");
    rejects("chunks", "2.5");
    rejects("chunks", "eight");
    rejects("chunks", "8x");
    rejects("chunks", "99999999999999");
    accepts("watchdog", "90s", "90");
    accepts("watchdog", "2min", "120");
    accepts("watchdog", "1h", "3600");
    rejects("watchdog", "1ms");
    accepts("cost_copy_us", "8.25", "8.25");
    accepts("cost_copy_us", "500ns", "0.5");
    accepts("cost_copy_us", "2 ms", "2000");
    accepts("peer_timeout", "100ms", "0.1");
    accepts("bw_host", "512MB/s", "0.512");
    accepts("bw_host", "1.5 TB/s", "1500");
    rejects("bw_host", "0");
    rejects("bw_host", "inf");
    rejects("bw_host", "nan");
    rejects("bw_host", "50 us");
    rejects("bw_host", "-1");
    assert_true(fabs(grail_options.bw_host - 1500) < 1e-9);
}

static void switches_and_names(void **state)
{
    static const char *const on[] = {"yes", "on", "true", "1", "YES", "On"};
    static const char *const off[] = {"no", "off", "false", "0", "NO", "Off"};

    (void)state;
    for (size_t i = 0; i < 6; ++i) {
        accepts("ipc", off[i], "no");
        assert_false(grail_options.ipc);
        accepts("ipc", on[i], "yes");
        assert_true(grail_options.ipc);
    }
    rejects("ipc", "2");
    rejects("ipc", "maybe");
    accepts("path", "ring", "ring");
    accepts("path", "HOST", "host");
    assert_int_equal(grail_options.path, 3);
    rejects("path", "rin");
    rejects("path", "ring|host");
    rejects("path", "4");
    capture_start();
    grail_option_set("path", "tcp", "the test");
    assert_non_null(strstr(capture_stop(), "one of auto, ipc, ring, host"));
}

static void verbose_sets_the_threshold(void **state)
{
    (void)state;
    accepts("verbose", "trace", "trace");
    assert_int_equal(grail_log_threshold, GRAIL_LOG_TRACE);
    accepts("verbose", "warn", "warn");
    assert_int_equal(grail_log_threshold, GRAIL_LOG_WARN);
}

static void environment(void **state)
{
    (void)state;
    setenv("GRAIL_CHUNK", "128K", 1);
    setenv("GRAIL_PATH", "host", 1);
    setenv("GRAIL_BW_PEER", "100", 1);
    assert_int_equal(grail_options_load_environment(), GRAIL_OK);
    assert_int_equal(grail_options.chunk, 128 << 10);
    assert_int_equal(grail_options.path, 3);
    assert_true(fabs(grail_options.bw_peer - 100) < 1e-9);

    /* the next load forgets what is no longer set */
    unsetenv("GRAIL_CHUNK");
    assert_int_equal(grail_options_load_environment(), GRAIL_OK);
    assert_int_equal(grail_options.chunk, 1 << 20);
}

static void empty_environment(void **state)
{
    size_t count;
    const grail_option_t *table = grail_options_table(&count);

    (void)state;
    for (size_t i = 0; i < count; ++i) {
        char variable[96], text[96];

        snprintf(variable, sizeof(variable), "GRAIL_%s", table[i].name);
        for (char *p = variable; *p != '\0'; ++p)
            *p = (char)toupper((unsigned char)*p);
        setenv(variable, "", 1);
        capture_start();
        grail_status_t status = grail_options_load_environment();
        assert_string_equal(capture_stop(), "");
        assert_int_equal(status, GRAIL_OK);
        grail_option_print(&table[i], text, sizeof(text));
        assert_string_equal(text, table[i].def);
    }
}

static const char *load_fails(void)
{
    capture_start();
    grail_status_t status = grail_options_load_environment();
    const char *text = capture_stop();
    assert_int_equal(status, GRAIL_ERR_INVALID);
    return text;
}

static void wrong_environment(void **state)
{
    (void)state;
    setenv("GRAIL_CHUNK", "12Q", 1);
    const char *text = load_fails();
    assert_int_equal(capture_lines(text), 1);
    assert_non_null(strstr(text, "option chunk"));
    assert_non_null(strstr(text, "\"12Q\""));
    assert_non_null(strstr(text, "environment variable GRAIL_CHUNK"));
    assert_non_null(strstr(text, "4K to 64M bytes (default 1M)"));
    assert_int_equal(grail_options.chunk, 1 << 20);

    /* every error is reported, not only the first */
    setenv("GRAIL_CHUNKS", "1", 1);
    assert_int_equal(capture_lines(load_fails()), 2);
}

static void hint_for(const char *variable, const char *hint)
{
    char expected[128];

    reset(NULL);
    setenv(variable, "1", 1);
    const char *text = load_fails();
    snprintf(expected, sizeof(expected), "%s names no option; did you mean %s?", variable, hint);
    if (strstr(text, expected) == NULL)
        fail_msg("%s: %s", variable, text);
}

static void slips(void **state)
{
    (void)state;
    hint_for("GRAIL_CHUNKSS", "GRAIL_CHUNKS");
    hint_for("GRAIL_PEER_TIMOUT", "GRAIL_PEER_TIMEOUT");
    hint_for("GRAIL_STAGING_MAXIMUM", "GRAIL_STAGING_MAX");
    hint_for("GRAIL_chunk", "GRAIL_CHUNK");
    hint_for("GRAIL_IPCS", "GRAIL_IPC");
    hint_for("GRAIL_WATCHDOGS", "GRAIL_WATCHDOG");
}

static void names_of_others(void **state)
{
    static const char *const names[] = {
        "GRAIL_ROOT", "GRAIL_HOME", "GRAIL_DIR", "GRAIL_LIB", "GRAIL_INC", "GRAIL_VERSION",
        "GRAIL_BIN", "GRAIL_TEST_TIMEOUT", "GRAIL_SOMETHING_QUITE_DIFFERENT", "GRAIL_", "GRAILS",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
        setenv(names[i], "/opt/grail", 1);
    capture_start();
    grail_status_t status = grail_options_load_environment();
    assert_string_equal(capture_stop(), "");
    assert_int_equal(status, GRAIL_OK);
}

static void unknown_option(void **state)
{
    (void)state;
    capture_start();
    grail_status_t status = grail_option_set("chunck", "1M", "MCA parameter pml_grail_chunck");
    const char *text = capture_stop();
    assert_int_equal(status, GRAIL_ERR_INVALID);
    assert_non_null(strstr(text, "\"chunck\""));
    assert_non_null(strstr(text, "MCA parameter pml_grail_chunck"));
    assert_non_null(strstr(text, "did you mean \"chunk\"?"));
}

static void init_is_counted(void **state)
{
    (void)state;
    setenv("GRAIL_CHUNK", "rubbish", 1);
    capture_start();
    grail_status_t status = grail_runtime_init();
    capture_stop();
    assert_int_equal(status, GRAIL_ERR_INVALID);

    setenv("GRAIL_CHUNK", "256K", 1);
    assert_int_equal(grail_runtime_init(), GRAIL_OK);
    assert_int_equal(grail_options.chunk, 256 << 10);
    /* a value that was set meanwhile stays */
    accepts("chunk", "512K", "512K");
    assert_int_equal(grail_runtime_init(), GRAIL_OK);
    assert_int_equal(grail_options.chunk, 512 << 10);
    grail_runtime_fini();
    grail_runtime_fini();
    grail_runtime_fini();
    assert_int_equal(grail_runtime_init(), GRAIL_OK);
    assert_int_equal(grail_options.chunk, 512 << 10);
    grail_runtime_fini();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(table_is_sound, reset),
        cmocka_unit_test_setup(sizes, reset),
        cmocka_unit_test_setup(numbers, reset),
        cmocka_unit_test_setup(switches_and_names, reset),
        cmocka_unit_test_setup(verbose_sets_the_threshold, reset),
        cmocka_unit_test_setup(environment, reset),
        cmocka_unit_test_setup(empty_environment, reset),
        cmocka_unit_test_setup(wrong_environment, reset),
        cmocka_unit_test_setup(slips, reset),
        cmocka_unit_test_setup(names_of_others, reset),
        cmocka_unit_test_setup(unknown_option, reset),
        cmocka_unit_test_setup(init_is_counted, reset),
    };

    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
