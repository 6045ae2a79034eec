/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that rely on small standard sends being buffered: both ranks send before they receive.
 * MPI does not promise that it works, every library does. The even rank's buffers are of the
 * sender's kind, the odd one's of the receiver's. Argument "threads": several threads at once.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/common/mpitest.h"

enum { TAG = 40, MANY = 24, LARGE = 3 << 20, SMALL = 1500, THREADS = 4, ROUNDS = 20 };

static const size_t sizes[] = {1, 100, 1024, 1025, 4096, 8192};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* Two buffers of this rank, the first filled with the pattern of its rank. */
static gpu_buf_t out, in;

static uint64_t seed_of(int rank, int message)
{
    return (uint64_t)rank * 1000 + (uint64_t)message + 1;
}

static bool begin(size_t bytes)
{
    char kind = mt_sending ? mt_send_kind : mt_recv_kind;

    memset(&out, 0, sizeof(out));
    memset(&in, 0, sizeof(in));
    mt_alloc(&out, kind, bytes);
    mt_alloc(&in, kind, bytes);
    return mt_ready() && mt_peer >= 0;
}

static void end(void)
{
    mt_free(&out);
    mt_free(&in);
    mt_end();
}

static void fill_and_send(int message, size_t bytes)
{
    mt_fill(&out, seed_of(mt_rank, message), 0, bytes);
    MPI_OK(MPI_Send(out.ptr, (int)bytes, MPI_BYTE, mt_peer, TAG + message, mt_world));
}

static void receive(int message, int source, int tag, size_t bytes)
{
    MPI_Status status;

    mt_clear(&in);
    MPI_OK(MPI_Recv(in.ptr, (int)in.size, MPI_BYTE, source, tag, mt_world, &status));
    mt_expect_status(&status, mt_peer, TAG + message, bytes);
    mt_expect_message(&in, seed_of(mt_peer, message), bytes);
}

static void both_send(void)
{
    for (int i = 0; i < SIZES; ++i) {
        mt_case("both send %zu bytes, then receive", sizes[i]);
        if (begin(sizes[i])) {
            fill_and_send(0, sizes[i]);
            receive(0, mt_peer, TAG, sizes[i]);
        }
        end();
    }
}

static size_t mixed(int message)
{
    return sizes[message % SIZES] - (size_t)(message % 2 && message % SIZES);
}

static void many(const char *how, bool backwards, bool wild)
{
    mt_case("%d sends of mixed sizes, %s", MANY, how);
    if (begin(sizes[SIZES - 1])) {
        for (int i = 0; i < MANY; ++i)
            fill_and_send(i, mixed(i));
        for (int i = 0; i < MANY; ++i) {
            int message = backwards ? MANY - 1 - i : i;

            receive(message, wild ? MPI_ANY_SOURCE : mt_peer, wild ? MPI_ANY_TAG : TAG + message,
                    mixed(message));
        }
    }
    mt_sync_peer();
    end();
}

static void probes(void)
{
    MPI_Message message;
    MPI_Status status;
    int found = 0;

    mt_case("probes see what was sent");
    if (begin(SMALL)) {
        for (int i = 0; i < 3; ++i)
            fill_and_send(i, SMALL - (size_t)i);
        MPI_OK(MPI_Probe(mt_peer, TAG + 2, mt_world, &status));
        mt_expect_status(&status, mt_peer, TAG + 2, SMALL - 2);
        receive(2, mt_peer, TAG + 2, SMALL - 2);
        MPI_OK(MPI_Iprobe(mt_peer, MPI_ANY_TAG, mt_world, &found, &status));
        CHECK(found, "the first message is not there");
        mt_expect_status(&status, mt_peer, TAG, SMALL);
        MPI_OK(MPI_Improbe(mt_peer, TAG, mt_world, &found, &message, &status));
        if (CHECK(found, "the first message is not there any more")) {
            mt_clear(&in);
            MPI_OK(MPI_Mrecv(in.ptr, SMALL, MPI_BYTE, &message, &status));
            mt_expect_status(&status, mt_peer, TAG, SMALL);
            mt_expect_message(&in, seed_of(mt_peer, 0), SMALL);
        }
        receive(1, mt_peer, TAG + 1, SMALL - 1);
    }
    end();
}

/* The odd rank has taken the message by a probe, and receives it after a send of its own. */
static void taken(void)
{
    MPI_Message message;
    MPI_Status status;

    mt_case("a message that a matched probe has taken");
    if (begin(SMALL)) {
        if (mt_sending) {
            fill_and_send(0, SMALL);
            receive(0, mt_peer, TAG, SMALL);
        } else {
            MPI_OK(MPI_Mprobe(mt_peer, TAG, mt_world, &message, &status));
            mt_expect_status(&status, mt_peer, TAG, SMALL);
            fill_and_send(0, SMALL);
            mt_clear(&in);
            MPI_OK(MPI_Mrecv(in.ptr, SMALL, MPI_BYTE, &message, &status));
            mt_expect_status(&status, mt_peer, TAG, SMALL);
            mt_expect_message(&in, seed_of(mt_peer, 0), SMALL);
        }
    }
    end();
}

static void truncated(void)
{
    MPI_Status status;

    mt_case("truncated, and a cancelled receive in between");
    if (begin(SMALL)) {
        MPI_Request request;
        int cancelled = 0;

        fill_and_send(0, SMALL);
        fill_and_send(1, SMALL);
        MPI_OK(MPI_Irecv(in.ptr, SMALL, MPI_BYTE, mt_peer, TAG + 2, mt_world, &request));
        MPI_OK(MPI_Cancel(&request));
        MPI_OK(MPI_Wait(&request, &status));
        MPI_OK(MPI_Test_cancelled(&status, &cancelled));
        CHECK(cancelled, "the receive of another tag was not cancelled");
        mt_clear(&in);
        MPI_FAILS(MPI_Recv(in.ptr, SMALL - 100, MPI_BYTE, mt_peer, TAG, mt_world, &status),
                  MPI_ERR_TRUNCATE);
        mt_expect_untouched(&in, SMALL - 100, 100);
        receive(1, mt_peer, TAG + 1, SMALL);
    }
    end();
}

static void synchronous(void)
{
    mt_case("synchronous sends wait for their receives");
    if (begin(SMALL)) {
        MPI_Request request;
        double until = mt_now() + 0.03;
        int done = 0;

        mt_fill(&out, seed_of(mt_rank, 0), 0, SMALL);
        MPI_OK(MPI_Issend(out.ptr, SMALL, MPI_BYTE, mt_peer, TAG, mt_world, &request));
        while (!done && mt_now() < until)
            MPI_OK(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        CHECK(!done, "it has ended before the peer has begun to receive");
        mt_sync_peer();
        receive(0, mt_peer, TAG, SMALL);
        if (!done)
            MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    end();
}

/* A large message before, whose send ends with its receive only. */
static void behind_large(void)
{
    mt_case("small sends behind a large one");
    if (begin(LARGE)) {
        MPI_Request request;

        mt_fill(&out, seed_of(mt_rank, 0), 0, LARGE);
        MPI_OK(MPI_Isend(out.ptr, LARGE, MPI_BYTE, mt_peer, TAG, mt_world, &request));
        for (int i = 1; i < 5; ++i) {
            char *piece = (char *)out.ptr + (size_t)i * 10000;

            MPI_OK(MPI_Send(piece, 1000 * i, MPI_BYTE, mt_peer, TAG + i, mt_world));
        }
        receive(0, MPI_ANY_SOURCE, MPI_ANY_TAG, LARGE);
        for (int i = 1; i < 5; ++i) {
            gpu_buf_t whole = in;
            MPI_Status status;

            MPI_OK(MPI_Recv((char *)whole.ptr + (size_t)i * 10000, 1000 * i, MPI_BYTE,
                            MPI_ANY_SOURCE, MPI_ANY_TAG, mt_world, &status));
            mt_expect_status(&status, mt_peer, TAG + i, (size_t)(1000 * i));
        }
        mt_expect_message(&in, seed_of(mt_peer, 0), LARGE);
        MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    end();
}

static void strided(void)
{
    enum { BLOCKS = 50, BLOCK = 24, STRIDE = 80 };

    mt_case("strided");
    if (begin(BLOCKS * STRIDE)) {
        MPI_Datatype vector;
        MPI_Status status;

        MPI_Type_vector(BLOCKS, BLOCK, STRIDE, MPI_BYTE, &vector);
        MPI_Type_commit(&vector);
        for (int i = 0; i < BLOCKS; ++i)
            mt_fill(&out, seed_of(mt_rank, i), (size_t)i * STRIDE, BLOCK);
        mt_clear(&in);
        MPI_OK(MPI_Send(out.ptr, 1, vector, mt_peer, TAG, mt_world));
        MPI_OK(MPI_Recv(in.ptr, 1, vector, mt_peer, TAG, mt_world, &status));
        for (int i = 0; i < BLOCKS; ++i) {
            size_t at = (size_t)i * STRIDE;

            mt_expect(&in, seed_of(mt_peer, i), at, BLOCK);
            mt_expect_untouched(&in, (ptrdiff_t)at + BLOCK, STRIDE - BLOCK);
        }
        MPI_Type_free(&vector);
    }
    end();
}

static void to_self(void)
{
    MPI_Status status;

    mt_case("to itself");
    if (begin(SMALL)) {
        mt_fill(&out, seed_of(mt_rank, 0), 0, SMALL);
        mt_clear(&in);
        MPI_OK(MPI_Send(out.ptr, SMALL, MPI_BYTE, mt_rank, TAG, mt_world));
        MPI_OK(MPI_Recv(in.ptr, SMALL, MPI_BYTE, mt_rank, TAG, mt_world, &status));
        mt_expect_status(&status, mt_rank, TAG, SMALL);
        mt_expect_message(&in, seed_of(mt_rank, 0), SMALL);
    }
    end();
}

static void *thread(void *arg)
{
    int number = (int)(intptr_t)arg;
    char *mine = (char *)out.ptr + (size_t)number * SMALL;
    char *theirs = (char *)in.ptr + (size_t)number * SMALL;
    intptr_t failures = 0;

    for (int i = 0; i < ROUNDS * mt_factor; ++i) {
        failures += MPI_Send(mine, SMALL, MPI_BYTE, mt_peer, TAG + number, mt_world) != MPI_SUCCESS;
        failures += MPI_Recv(theirs, SMALL, MPI_BYTE, mt_peer, TAG + number, mt_world,
                             MPI_STATUS_IGNORE) != MPI_SUCCESS;
    }
    return (void *)failures;
}

static void threads(void)
{
    mt_case("%d threads that send first", THREADS);
    if (begin(THREADS * SMALL)) {
        pthread_t ids[THREADS];
        void *failures;

        mt_fill(&out, seed_of(mt_rank, 0), 0, THREADS * SMALL);
        mt_clear(&in);
        for (intptr_t i = 0; i < THREADS; ++i)
            pthread_create(&ids[i], NULL, thread, (void *)i);
        for (int i = 0; i < THREADS; ++i) {
            pthread_join(ids[i], &failures);
            CHECK(failures == NULL, "thread %d: %d calls failed", i, (int)(intptr_t)failures);
        }
        mt_expect_message(&in, seed_of(mt_peer, 0), THREADS * SMALL);
    }
    end();
}

static void pair(void)
{
    both_send();
    many("in order", false, false);
    many("received from the last on", true, false);
    many("received by wildcards", false, true);
    probes();
    taken();
    truncated();
    synchronous();
    behind_large();
    strided();
    to_self();
}

int main(int argc, char **argv)
{
    mt_program_t program = {.name = "buffered_sends", .min_ranks = 2};
    bool with_threads = argc > 1 && strcmp(argv[argc - 1], "threads") == 0;

    if (with_threads)
        program.thread_level = MPI_THREAD_MULTIPLE;
    mt_start(&argc, &argv, &program);
    mt_each_pair(with_threads ? threads : pair);
    return mt_finish();
}
