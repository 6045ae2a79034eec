/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rank 1 of three dies by SIGKILL while messages flow between it and rank 0. All operations of
 * rank 0 must end, nothing may write to the buffer of a receive that has failed, and ranks 0 and 2
 * go on: what was in use for the dead must be free again, and MPI_Finalize must not crash (that it
 * waits for the dead is the runtime's way).
 * Arguments: BYTES [blocking]
 *    blocking   rank 1 only sends, by MPI_Send, and dies at any instruction. It may be writing into
 *               rank 0's queue of UCX's shared memory then, from which nobody can read on: ranks 0
 *               and 2 do not exchange messages afterwards. Else messages flow both ways, and rank 1
 *               dies between two calls
 * Each survivor prints "survivor N: done"; survivors.test judges.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/common/mpitest.h"

enum { WINDOW = 4, EXCHANGES = 40, TAG = 1, TAG_AFTER = 2 };

static size_t bytes = 300000;
static bool blocking;
static gpu_buf_t buffer; /* WINDOW places to send from, as many to receive into */

static size_t place(int index)
{
    return (size_t)index * bytes;
}

/* At another point of the protocol each time. */
static int random_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return 20 + (int)(t.tv_nsec / 1000 % 60);
}

static void *die_soon(void *arg)
{
    (void)arg;
    mt_sleep_ms(random_ms());
    kill(getpid(), SIGKILL);
    return NULL;
}

/* Starts a window of messages; returns how many. An error at once is one that ends at once. */
static int start(MPI_Request *requests, int peer)
{
    int n = 0;

    for (int i = 0; i < WINDOW; i++, n++) {
        if (MPI_Irecv(buffer.ptr + place(WINDOW + i), (int)bytes, MPI_BYTE, peer, TAG, mt_world,
                      &requests[n]) != MPI_SUCCESS)
            requests[n] = MPI_REQUEST_NULL;
    }
    for (int i = 0; i < WINDOW && !blocking; i++, n++) {
        if (MPI_Isend(buffer.ptr + place(i), (int)bytes, MPI_BYTE, peer, TAG, mt_world,
                      &requests[n]) != MPI_SUCCESS)
            requests[n] = MPI_REQUEST_NULL;
    }
    return n;
}

static void be_victim(void)
{
    MPI_Request requests[2 * WINDOW];
    pthread_t thread;
    double end = mt_now() + 1e-3 * random_ms();

    if (blocking)
        pthread_create(&thread, NULL, die_soon, NULL);
    while (blocking)
        MPI_Send(buffer.ptr, (int)bytes, MPI_BYTE, 0, TAG, mt_world);
    for (;;) {
        int n = start(requests, 0), done = 0;

        while (!done) {
            if (mt_now() > end)
                kill(getpid(), SIGKILL);
            MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE);
        }
    }
}

static void lose_peer(void)
{
    MPI_Request requests[2 * WINDOW];
    bool failed[WINDOW] = {false}, lost = false;
    double end = mt_now() + 30;
    int flag;

    while (!lost && mt_now() < end) {
        int n = start(requests, 1);

        for (int i = 0; i < n; i++) {
            if (MPI_Wait(&requests[i], MPI_STATUS_IGNORE) == MPI_SUCCESS)
                continue;
            lost = true;
            if (i < WINDOW) {
                gpu_set(&buffer, (ptrdiff_t)place(WINDOW + i), 0xA5, bytes);
                failed[i] = true;
            }
        }
    }
    CHECK(lost, "messages with a dead process succeeded");
    end = mt_now() + 0.3;
    while (mt_now() < end)
        MPI_Iprobe(2, TAG_AFTER, mt_world, &flag, MPI_STATUS_IGNORE);
    for (int i = 0; i < WINDOW; i++) {
        if (failed[i])
            mt_expect_untouched(&buffer, (ptrdiff_t)place(WINDOW + i), bytes);
    }
}

static void go_on(int peer)
{
    for (int i = 0; i < EXCHANGES; i++) {
        MPI_Request requests[2 * WINDOW];
        uint64_t seed = (uint64_t)i * 100;

        for (int j = 0; j < WINDOW; j++) {
            mt_fill(&buffer, seed + (uint64_t)(j + 10 * mt_rank), place(j), bytes);
            MPI_OK(MPI_Irecv(buffer.ptr + place(WINDOW + j), (int)bytes, MPI_BYTE, peer, TAG_AFTER,
                             mt_world, &requests[j]));
        }
        for (int j = 0; j < WINDOW; j++)
            MPI_OK(MPI_Isend(buffer.ptr + place(j), (int)bytes, MPI_BYTE, peer, TAG_AFTER, mt_world,
                             &requests[WINDOW + j]));
        for (int j = 0; j < 2 * WINDOW; j++)
            MPI_OK(MPI_Wait(&requests[j], MPI_STATUS_IGNORE));
        for (int j = 0; j < WINDOW; j++)
            mt_expect(&buffer, seed + (uint64_t)(j + 10 * peer), place(WINDOW + j), bytes);
    }
}

static void leave(int signal_number)
{
    (void)signal_number;
    _exit(0);
}

static void pair(void)
{
    mt_case("%zu bytes, rank 1 dies", bytes);
    mt_alloc(&buffer, mt_rank == 1 ? mt_recv_kind : mt_send_kind, place(2 * WINDOW));
    if (mt_ready()) {
        if (mt_rank == 1)
            be_victim();
        if (mt_rank == 0)
            lose_peer();
        if (!blocking)
            go_on(2 - mt_rank);
        mt_free(&buffer);
        printf("survivor %d: done\n", mt_rank);
        fflush(stdout);
        signal(SIGALRM, leave);
        alarm(3);
        MPI_Finalize();
        _exit(0);
    }
    mt_end();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "survivors", .min_ranks = 3};

    mt_start(&argc, &argv, &program);
    if (argc > 1)
        bytes = strtoull(argv[1], NULL, 10);
    blocking = argc > 2 && strcmp(argv[2], "blocking") == 0;
    mt_each_pair(pair);
    return mt_finish();
}
