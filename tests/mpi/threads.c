/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_THREAD_MULTIPLE: many threads send, receive, wait and probe at once. */
#include <pthread.h>
#include <stdlib.h>

#include "tests/common/mpitest.h"

#define THREADS 4
#define WINDOW 6
#define ROUNDS 30
#define LARGEST ((size_t)256 << 10)

typedef struct worker {
    int number;
    MPI_Comm comm;
    gpu_buf_t buffers[2 * WINDOW];
    int received; /* by the shared probe test */
} worker_t;

static worker_t workers[THREADS];
static const size_t sizes[WINDOW] = {8, 1000, 16384, 65537, 100, LARGEST};

static uint64_t seed_of(int rank, int thread, int round, int slot)
{
    return (((uint64_t)rank * THREADS + (uint64_t)thread) * 4096 + (uint64_t)round) * 16 +
           (uint64_t)slot;
}

/* Both ways with the peer's thread of the same number, completed by MPI_Waitany. */
static void *exchange(void *arg)
{
    worker_t *w = arg;
    MPI_Request requests[2 * WINDOW];
    MPI_Status status;

    for (int round = 0; round < ROUNDS * mt_factor; round++) {
        for (int i = 0; i < WINDOW; i++) {
            mt_clear(&w->buffers[i]);
            MPI_OK(MPI_Irecv(w->buffers[i].ptr, (int)LARGEST, MPI_BYTE, mt_peer, i, w->comm,
                             &requests[i]));
        }
        for (int i = 0; i < WINDOW; i++) {
            gpu_buf_t *b = &w->buffers[WINDOW + i];

            mt_fill(b, seed_of(mt_rank, w->number, round, i), 0, sizes[i]);
            MPI_OK(MPI_Isend(b->ptr, (int)sizes[i], MPI_BYTE, mt_peer, i, w->comm,
                             &requests[WINDOW + i]));
        }
        for (int done = 0; done < 2 * WINDOW; done++) {
            int i;

            MPI_OK(MPI_Waitany(2 * WINDOW, requests, &i, &status));
            if (i >= 0 && i < WINDOW) {
                mt_expect_status(&status, mt_peer, i, sizes[i]);
                mt_expect_message(&w->buffers[i], seed_of(mt_peer, w->number, round, i), sizes[i]);
            }
        }
    }
    return NULL;
}

/* One communicator, one tag per thread, blocking calls: threads block in MPI_Recv together. */
static void *ping_pong(void *arg)
{
    worker_t *w = arg;
    gpu_buf_t *b = &w->buffers[0];

    for (int round = 0; round < ROUNDS * mt_factor; round++) {
        size_t n = sizes[(round + w->number) % WINDOW];

        for (int way = 0; way < 2; way++) {
            if (mt_sending == (way == 0)) {
                mt_fill(b, seed_of(mt_rank, w->number, round, way), 0, n);
                MPI_OK(MPI_Send(b->ptr, (int)n, MPI_BYTE, mt_peer, w->number, mt_world));
            } else {
                mt_clear(b);
                MPI_OK(MPI_Recv(b->ptr, (int)LARGEST, MPI_BYTE, mt_peer, w->number, mt_world,
                                MPI_STATUS_IGNORE));
                mt_expect_message(b, seed_of(mt_peer, w->number, round, way), n);
            }
        }
    }
    return NULL;
}

/* All threads of the receiver take from one queue by matched probes: each message exactly once. */
#define SHARED_TAG 77
#define SHARED_STOP 78
static char seen[THREADS * ROUNDS * 64];

static void *probers(void *arg)
{
    worker_t *w = arg;
    gpu_buf_t *b = &w->buffers[0];
    int rounds = ROUNDS * mt_factor;

    if (mt_sending) {
        for (int round = 0; round < rounds; round++) {
            int number = round * THREADS + w->number;
            size_t n = sizes[round % WINDOW];
            unsigned char head[8] = {0};

            /* the number travels as the length of the pattern's seed: in front of the data */
            mt_fill(b, (uint64_t)number, 8, n);
            for (int k = 0; k < 4; k++)
                head[k] = (unsigned char)(number >> (8 * k));
            gpu_write(b, 0, head, 8);
            MPI_OK(MPI_Send(b->ptr, (int)n + 8, MPI_BYTE, mt_peer, SHARED_TAG, mt_world));
        }
        return NULL;
    }
    for (;;) {
        MPI_Message message;
        MPI_Status status;
        unsigned char head[8];
        int number, count;

        MPI_OK(MPI_Mprobe(mt_peer, MPI_ANY_TAG, w->comm, &message, &status));
        MPI_Get_count(&status, MPI_BYTE, &count);
        mt_clear(b);
        MPI_OK(MPI_Mrecv(b->ptr, count, MPI_BYTE, &message, &status));
        if (status.MPI_TAG == SHARED_STOP)
            return NULL;
        gpu_read(b, 0, head, 8);
        number = head[0] | head[1] << 8 | head[2] << 16;
        if (!CHECK(number >= 0 && number < rounds * THREADS, "message number %d", number))
            continue;
        CHECK(__atomic_exchange_n(&seen[number], 1, __ATOMIC_RELAXED) == 0,
              "message %d came twice", number);
        mt_expect(b, (uint64_t)number, 8, (size_t)count - 8);
        w->received++;
    }
}

static void run(const char *name, void *(*body)(void *), bool stop)
{
    pthread_t threads[THREADS];
    bool ok = true;
    int total = 0;

    mt_case("%d threads: %s", THREADS, name);
    for (int t = 0; t < THREADS; t++) {
        workers[t].number = t;
        workers[t].received = 0;
        for (int i = 0; ok && i < 2 * WINDOW; i++)
            ok = mt_alloc(&workers[t].buffers[i], mt_sending ? mt_send_kind : mt_recv_kind,
                          LARGEST + 8);
        if (stop)
            workers[t].comm = mt_world;
        else
            MPI_Comm_dup(mt_world, &workers[t].comm);
    }
    for (size_t i = 0; i < sizeof(seen); i++)
        seen[i] = 0;
    if (mt_ready() && mt_peer >= 0) {
        for (int t = 0; t < THREADS; t++)
            pthread_create(&threads[t], NULL, body, &workers[t]);
        if (stop && mt_sending) {
            for (int t = 0; t < THREADS; t++)
                pthread_join(threads[t], NULL);
            for (int t = 0; t < THREADS; t++)
                MPI_OK(MPI_Send(NULL, 0, MPI_BYTE, mt_peer, SHARED_STOP, mt_world));
        } else {
            for (int t = 0; t < THREADS; t++)
                pthread_join(threads[t], NULL);
        }
        for (int t = 0; t < THREADS; t++)
            total += workers[t].received;
        if (stop && !mt_sending)
            CHECK(total == ROUNDS * mt_factor * THREADS, "%d messages arrived", total);
    }
    for (int t = 0; t < THREADS; t++) {
        for (int i = 0; i < 2 * WINDOW; i++)
            mt_free(&workers[t].buffers[i]);
        if (!stop)
            MPI_Comm_free(&workers[t].comm);
    }
    mt_end();
}

static void pair(void)
{
    run("nonblocking both ways, MPI_Waitany", exchange, false);
    run("blocking, one communicator", ping_pong, false);
    run("matched probes from one queue", probers, true);
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "threads", .min_ranks = 2,
                                         .thread_level = MPI_THREAD_MULTIPLE};

    mt_start(&argc, &argv, &program);
    if (ROUNDS * mt_factor * THREADS > (int)sizeof(seen))
        mt_factor = (int)sizeof(seen) / (ROUNDS * THREADS);
    mt_each_pair(pair);
    return mt_finish();
}
