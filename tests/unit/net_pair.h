/* SPDX-License-Identifier: BSD-3-Clause */
/* For unit tests: two processes with a net each, connected; and checked messages. */
#ifndef GRAIL_TESTS_UNIT_NET_PAIR_H
#define GRAIL_TESTS_UNIT_NET_PAIR_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/net/net.h"

static struct {
    int side;                   /* 0: the test's own process, 1: its child */
    int socket;
    pid_t child;
    grail_net_t *net;
    grail_net_endpoint_t *endpoint;
    /* what has happened */
    unsigned errors;            /* calls of on_error */
    char reason[128];
    unsigned done;              /* calls of pair_done() */
    grail_status_t done_status; /* the last ones */
    size_t done_length;
} pair;

/* Usable on both sides: the child has no test framework to report to. To standard output, because
 * a test may be capturing the other. */
#define CHECK(condition) pair_check(condition, #condition, __FILE__, __LINE__)

static inline void pair_check(bool good, const char *text, const char *file, int line)
{
    if (good)
        return;
    printf("# %s:%d: side %d: %s\n", file, line, pair.side, text);
    exit(1);
}

static inline double pair_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline unsigned char pair_byte(uint32_t seed, size_t i)
{
    return (unsigned char)(seed * 31 + i * 7 + (i >> 8) * 13 + (i >> 16));
}

static inline void pair_fill(void *buffer, size_t length, uint32_t seed)
{
    for (size_t i = 0; i < length; ++i)
        ((unsigned char *)buffer)[i] = pair_byte(seed, i);
}

static inline bool pair_matches(const void *buffer, size_t length, uint32_t seed)
{
    for (size_t i = 0; i < length; ++i) {
        if (((const unsigned char *)buffer)[i] != pair_byte(seed, i))
            return false;
    }
    return true;
}

static inline void pair_done(void *arg, grail_status_t status, size_t length)
{
    (void)arg;
    pair.done++;
    pair.done_status = status;
    pair.done_length = length;
}

static inline void pair_error(void *arg, void *peer, grail_status_t status, const char *reason)
{
    (void)arg;
    CHECK(peer == &pair);
    CHECK(status == GRAIL_ERR_PEER);
    pair.errors++;
    snprintf(pair.reason, sizeof(pair.reason), "%s", reason);
}

/* Waits by progress until *condition is at least `value`; false after `seconds`. */
static inline bool pair_wait_for(const volatile unsigned *condition, unsigned value,
                                 double seconds)
{
    double end = pair_seconds() + seconds;

    while (*condition < value) {
        grail_net_progress(pair.net);
        if (pair_seconds() > end)
            return false;
    }
    return true;
}

#define pair_wait(condition, value) CHECK(pair_wait_for(&(condition), value, 60))

/* The other side must make progress meanwhile, or must not need to. */
static inline void pair_barrier(void)
{
    char c = 0;
    bool arrived = false;

    CHECK(send(pair.socket, &c, 1, MSG_NOSIGNAL) == 1);
    while (!arrived) {
        grail_net_progress(pair.net);
        ssize_t n = recv(pair.socket, &c, 1, MSG_DONTWAIT);
        CHECK(n != 0 && (n == 1 || errno == EAGAIN || errno == EINTR));
        arrived = n == 1;
    }
}

static inline void pair_read_all(void *to, size_t length)
{
    for (size_t got = 0; got < length;) {
        ssize_t n = read(pair.socket, (char *)to + got, length - got);

        CHECK(n > 0);
        got += (size_t)n;
    }
}

static inline void pair_connect(void)
{
    const void *address;
    size_t length, peer_length;

    CHECK(grail_net_address(pair.net, &address, &length) == GRAIL_OK);
    CHECK(write(pair.socket, &length, sizeof(length)) == (ssize_t)sizeof(length));
    CHECK(write(pair.socket, address, length) == (ssize_t)length);
    pair_read_all(&peer_length, sizeof(peer_length));
    void *peer_address = malloc(peer_length);
    CHECK(peer_address != NULL);
    pair_read_all(peer_address, peer_length);
    CHECK(grail_net_connect(pair.net, peer_address, peer_length, &pair, &pair.endpoint) ==
          GRAIL_OK);
    free(peer_address);
}

/* Set before pair_open() by tests of short messages. */
static grail_net_handler_fn pair_short_handler;

/* Forks; both sides return with an open net, connected to the other. */
static inline void pair_open(grail_net_handler_fn handler)
{
    grail_net_params_t params = {
        .handlers = {handler, handler}, .short_handler = pair_short_handler, .handler_arg = &pair,
        .on_error = pair_error,
    };
    int sockets[2];

    memset(&pair, 0, sizeof(pair));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    fflush(NULL);
    pair.child = fork();
    CHECK(pair.child >= 0);
    pair.side = pair.child == 0;
    pair.socket = sockets[pair.side];
    close(sockets[!pair.side]);
    alarm(100);
    CHECK(grail_net_open(&params, &pair.net) == GRAIL_OK);
    pair_connect();
}

/* The orderly end on both sides; the child does not return. */
static inline void pair_close(void)
{
    bool closed = false;
    int status = -1;

    pair_barrier();
    CHECK(grail_net_disconnect(pair.net, pair.endpoint, false, &closed) == GRAIL_OK);
    for (double end = pair_seconds() + 60; !closed; CHECK(pair_seconds() < end))
        grail_net_progress(pair.net);
    pair_barrier();
    CHECK(pair.errors == 0);
    grail_net_close(pair.net);
    close(pair.socket);
    alarm(0);
    if (pair.side == 1)
        exit(0);
    CHECK(waitpid(pair.child, &status, 0) == pair.child);
    CHECK(status == 0);
}

#endif
