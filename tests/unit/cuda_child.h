/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of cuda-aware/ run in child processes: the driver reads its environment once, cannot be
 * forked once it is in use, and leaves contexts behind. The parent never touches CUDA.
 */
#ifndef GRAIL_TESTS_UNIT_CUDA_CHILD_H
#define GRAIL_TESTS_UNIT_CUDA_CHILD_H

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/init.h"
#include "runtime/status.h"

/* In the child: the test fails here. */
#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "# failed: %s:%d: %s\n", __FILE__, __LINE__, #x);                      \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define CHECK_OK(x) CHECK((x) == GRAIL_OK)

/* In the child: no more than a skip, with its reason. */
#define CHILD_SKIP(reason)                                                                         \
    do {                                                                                           \
        fprintf(stderr, "# SKIP %s\n", reason);                                                    \
        _exit(77);                                                                                 \
    } while (0)

typedef void (*child_fn)(void);

static char child_log[65536];   /* what the last child wrote to stderr */

/* `environment`: "NAME=VALUE NAME=VALUE", for this child only. */
static inline void set_environment(const char *environment)
{
    char *copy = strdup(environment), *save = NULL;

    for (char *word = strtok_r(copy, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(word, '=');

        *equals = '\0';
        setenv(word, equals + 1, 1);
    }
    free(copy);
}

/* Runs fn in a child with Grail's runtime initialised. Its stderr goes to child_log, and is shown if
 * it fails. */
static inline void in_child(const char *environment, child_fn fn)
{
    int log = memfd_create("log", 0), status = 0;
    ssize_t n;
    pid_t pid;

    assert_true(log >= 0);
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(log, STDERR_FILENO);
        dup2(log, STDOUT_FILENO);
        set_environment(environment);
        CHECK_OK(grail_runtime_init());
        fn();
        grail_runtime_fini();
        exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    n = pread(log, child_log, sizeof(child_log) - 1, 0);
    child_log[n > 0 ? n : 0] = '\0';
    close(log);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("%s", child_log);
        skip();
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        print_error("child ended with status %#x:\n%s", (unsigned)status, child_log);
    assert_int_equal(status, 0);
}

/* The child logged nothing at the levels that a user sees. */
static inline void assert_quiet(void)
{
    if (strstr(child_log, "] warning: ") != NULL || strstr(child_log, "] error: ") != NULL)
        fail_msg("unexpected messages:\n%s", child_log);
}

static inline int count_in_log(const char *text)
{
    int count = 0;

    for (const char *at = child_log; (at = strstr(at, text)) != NULL; at += strlen(text))
        count++;
    return count;
}

static inline void assert_logged(const char *text, int times)
{
    if (count_in_log(text) != times)
        fail_msg("\"%s\" was logged %d times instead of %d, in:\n%s", text, count_in_log(text),
                 times, child_log);
}

/* ---- what the simulated driver tells; -1 with a real one ---- */

static inline void *sim_symbol(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

    return library != NULL ? dlsym(library, name) : NULL;
}

static inline long long sim_count_of(const char *name)
{
    long long (*get)(const char *) = NULL;
    void *symbol = sim_symbol("cudasim_get");

    memcpy(&get, &symbol, sizeof(symbol));
    return get != NULL ? get(name) : -1;
}

static inline bool simulated(void)
{
    return sim_symbol("cudasim_get") != NULL;
}

static inline void sim_faults(const char *spec)
{
    int (*set)(const char *) = NULL;
    void *symbol = sim_symbol("cudasim_set_faults");

    memcpy(&set, &symbol, sizeof(symbol));
    if (set == NULL)
        CHILD_SKIP("faults can be injected into the simulated driver only");
    CHECK(set(spec) == 0);
}

static inline void sim_delay(unsigned us)
{
    void (*set)(unsigned) = NULL;
    void *symbol = sim_symbol("cudasim_set_delay");

    memcpy(&set, &symbol, sizeof(symbol));
    if (set != NULL)
        set(us);
}

/* ---- two processes ---- */

typedef struct pipes {
    int to_peer[2], from_peer[2];
    pid_t peer;
} pipes_t;

static inline void send_bytes(int fd, const void *data, size_t size)
{
    CHECK(write(fd, data, size) == (ssize_t)size);
}

static inline void get_bytes(int fd, void *data, size_t size)
{
    size_t have = 0;

    while (have < size) {
        ssize_t n = read(fd, (char *)data + have, size - have);

        CHECK(n > 0);
        have += (size_t)n;
    }
}

/* In a child, before CUDA is used: forks the other side, which runs fn(in, out) and exits. */
static inline void start_peer(pipes_t *p, void (*fn)(int in, int out))
{
    CHECK(pipe(p->to_peer) == 0 && pipe(p->from_peer) == 0);
    p->peer = fork();
    CHECK(p->peer >= 0);
    if (p->peer == 0) {
        close(p->to_peer[1]);
        close(p->from_peer[0]);
        fn(p->to_peer[0], p->from_peer[1]);
        exit(0);
    }
    close(p->to_peer[0]);
    close(p->from_peer[1]);
}

static inline void end_peer(pipes_t *p)
{
    int status;

    close(p->to_peer[1]);
    CHECK(waitpid(p->peer, &status, 0) == p->peer);
    close(p->from_peer[0]);
    CHECK(status == 0);
}

#endif
