/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator's own tests run each case in a forked child, with the environment that the case
 * wants: the simulator reads it once per process, and a crash is a result like any other. The
 * parent never calls CUDA, since a forked child could not after that.
 */
#ifndef GRAIL_TESTS_CUDASIM_CHILD_H
#define GRAIL_TESTS_CUDASIM_CHILD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda-aware/cuda_abi.h"
#include "tests/cudasim/cudasim.h"

/* For use in children, where cmocka's assertions would go on with the parent's next test. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

#define CHECK_CU(wanted, call)                                                                     \
    do {                                                                                           \
        CUresult got_ = (call);                                                                    \
        if (got_ != (wanted)) {                                                                    \
            fprintf(stderr, "%s:%d: %s gave %d, not %d\n", __FILE__, __LINE__, #call, (int)got_,   \
                    (int)(wanted));                                                                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK_CU(CUDA_SUCCESS, call)

typedef void (*child_fn_t)(void *arg);

/** Starts a child with settings "NAME=VALUE", separated by blanks (NULL: none). */
static inline pid_t child_start(const char *settings, child_fn_t fn, void *arg)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        char *copy = strdup(settings != NULL ? settings : ""), *rest = copy;
        for (char *word; (word = strsep(&rest, " ")) != NULL;) {
            if (*word != '\0') {
                putenv(strdup(word));
            }
        }
        free(copy);
        alarm(60);
        fn(arg);
        fflush(NULL);
        _exit(0);
    }
    return pid;
}

/** 0: passed; the exit status; or 128 + the signal that ended it. */
static inline int child_wait(pid_t pid)
{
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        return -1;
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static inline int child_run(const char *settings, child_fn_t fn)
{
    return child_wait(child_start(settings, fn, NULL));
}

/** In a child: cuInit and the primary context of device 0 current. */
static inline CUcontext child_cuda(void)
{
    CUcontext ctx;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    return ctx;
}

/** A channel for a pair of children to meet: what one sends the other receives. */
typedef struct channel {
    int fd[2];
} channel_t;

static inline void channel_send(const channel_t *channel, const void *bytes, size_t count)
{
    CHECK(write(channel->fd[1], bytes, count) == (ssize_t)count);
}

static inline void channel_receive(const channel_t *channel, void *bytes, size_t count)
{
    CHECK(read(channel->fd[0], bytes, count) == (ssize_t)count);
}

#endif /* GRAIL_TESTS_CUDASIM_CHILD_H */
