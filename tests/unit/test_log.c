/* SPDX-License-Identifier: BSD-3-Clause */
/* Log lines: prefix, threshold, one line each, what is said once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "runtime/log.h"
#include "tests/unit/capture.h"

static void prefix_names_host_and_rank(void **state)
{
    char host[256], expected[512];

    (void)state;
    assert_int_equal(gethostname(host, sizeof(host)), 0);
    host[strcspn(host, ".")] = '\0';

    grail_log_identify(7);
    capture_start();
    grail_error("disk %d", 3);
    snprintf(expected, sizeof(expected), "[grail %s:7] error: disk 3\n", host);
    assert_string_equal(capture_stop(), expected);

    grail_log_identify(-1);
    capture_start();
    grail_warn("no rank");
    snprintf(expected, sizeof(expected), "[grail %s] warning: no rank\n", host);
    assert_string_equal(capture_stop(), expected);
}

/* In a process of its own: the rank is looked up once. */
static void rank_of(const char *variable, const char *value, const char *expected)
{
    capture_start();
    pid_t child = fork();
    if (child == 0) {
        unsetenv("OMPI_COMM_WORLD_RANK");
        unsetenv("PMIX_RANK");
        setenv(variable, value, 1);
        execl("/proc/self/exe", "test_log", "say", NULL);
        _exit(1);
    }
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    assert_non_null(strstr(capture_stop(), expected));
}

static void rank_from_launcher(void **state)
{
    (void)state;
    rank_of("OMPI_COMM_WORLD_RANK", "12", ":12] warning: hello\n");
    rank_of("PMIX_RANK", "3", ":3] warning: hello\n");
    rank_of("PMIX_RANK", "rubbish", "] warning: hello\n");
}

static void threshold_is_obeyed(void **state)
{
    (void)state;
    grail_log_threshold = GRAIL_LOG_WARN;
    capture_start();
    grail_info("silent");
    grail_debug("silent");
    grail_trace("silent");
    assert_string_equal(capture_stop(), "");

    grail_log_threshold = GRAIL_LOG_DEBUG;
    capture_start();
    grail_info("one");
    grail_debug("two");
    grail_trace("silent");
    const char *text = capture_stop();
    assert_non_null(strstr(text, "info: one\n"));
    assert_non_null(strstr(text, "debug: two\n"));
    assert_null(strstr(text, "silent"));

    grail_log_threshold = GRAIL_LOG_ERROR;
    capture_start();
    grail_warn("silent");
    grail_error("always");
    text = capture_stop();
    assert_int_equal(capture_lines(text), 1);
    assert_non_null(strstr(text, "error: always\n"));
    grail_log_threshold = GRAIL_LOG_WARN;
}

static void one_line_whatever_is_in_it(void **state)
{
    static char longest[10000];

    (void)state;
    capture_start();
    grail_error("first\nsecond\r\n");
    const char *text = capture_stop();
    assert_int_equal(capture_lines(text), 1);
    assert_non_null(strstr(text, "first second\n"));

    memset(longest, 'x', sizeof(longest) - 1);
    capture_start();
    grail_error("%s", longest);
    text = capture_stop();
    assert_int_equal(capture_lines(text), 1);
    assert_true(strlen(text) <= 2048);
    assert_non_null(strstr(text, "x...\n"));
}

static void errno_is_kept(void **state)
{
    (void)state;
    capture_start();
    errno = ENOENT;
    grail_error("%m");
    int after = errno;
    assert_non_null(strstr(capture_stop(), "No such file"));
    assert_int_equal(after, ENOENT);
}

static void said_once(void **state)
{
    char key[] = "a key";

    (void)state;
    assert_true(grail_log_first_time("a key"));
    assert_false(grail_log_first_time("a key"));
    assert_false(grail_log_first_time(key));    /* by its text, not its address */
    assert_true(grail_log_first_time("another"));

    capture_start();
    for (int i = 0; i < 5; ++i)
        grail_warn_once("loop", "only once");
    assert_int_equal(capture_lines(capture_stop()), 1);
}

static void many_keys(void **state)
{
    static char keys[200][16];

    (void)state;
    for (int i = 0; i < 200; ++i) {
        snprintf(keys[i], sizeof(keys[i]), "key %d", i);
        assert_true(grail_log_first_time(keys[i]));
    }
    for (int i = 0; i < 200; ++i)
        assert_false(grail_log_first_time(keys[i]));
}

static void *shout(void *arg)
{
    for (int i = 0; i < 500; ++i)
        grail_error("thread %d says %0100d end", *(int *)arg, i);
    return NULL;
}

static void threads_do_not_mix(void **state)
{
    static const char end[] = " end\n";
    pthread_t threads[4];
    int numbers[4];
    FILE *file = tmpfile();
    char line[512];
    unsigned lines = 0;

    (void)state;
    /* a file opened for appending, as a batch system's log is */
    int saved = dup(STDERR_FILENO);
    assert_non_null(file);
    assert_int_equal(fcntl(fileno(file), F_SETFL, O_APPEND), 0);
    dup2(fileno(file), STDERR_FILENO);
    for (int i = 0; i < 4; ++i) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, shout, &numbers[i]);
    }
    for (int i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        size_t length = strlen(line);

        assert_int_equal(strncmp(line, "[grail ", 7), 0);
        assert_true(length > sizeof(end));
        assert_string_equal(line + length - (sizeof(end) - 1), end);
        ++lines;
    }
    assert_int_equal(lines, 2000);
    fclose(file);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_from_launcher),
        cmocka_unit_test(prefix_names_host_and_rank),
        cmocka_unit_test(threshold_is_obeyed),
        cmocka_unit_test(one_line_whatever_is_in_it),
        cmocka_unit_test(errno_is_kept),
        cmocka_unit_test(said_once),
        cmocka_unit_test(many_keys),
        cmocka_unit_test(threads_do_not_mix),
    };

    if (argc > 1 && strcmp(argv[1], "say") == 0) {
        grail_warn("hello");
        return 0;
    }
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
