/* SPDX-License-Identifier: BSD-3-Clause */
/* 10,000 requests at once: posted ahead, or all of them unexpected; tags forwards and backwards. */
#include <stdlib.h>

#include "tests/common/mpitest.h"

#define MESSAGES 10000
#define SLOT ((size_t)256)
#define LARGE ((size_t)65536) /* every 500th */

static gpu_buf_t small, large;

static size_t size_of(int i)
{
    return i % 500 == 499 ? LARGE : (size_t)(i * 7 % 256);
}

static void *place_of(int i)
{
    return i % 500 == 499 ? large.ptr + (size_t)(i / 500) * LARGE : small.ptr + (size_t)i * SLOT;
}

static void verify(int i)
{
    if (i % 500 == 499)
        mt_expect(&large, (uint64_t)i, (size_t)(i / 500) * LARGE, LARGE);
    else
        mt_expect(&small, (uint64_t)i, (size_t)i * SLOT, size_of(i));
}

static void fill(int i)
{
    if (i % 500 == 499)
        mt_fill(&large, (uint64_t)i, (size_t)(i / 500) * LARGE, LARGE);
    else
        mt_fill(&small, (uint64_t)i, (size_t)i * SLOT, size_of(i));
}

static void run(const char *name, bool posted_first, bool backwards)
{
    MPI_Request *requests = malloc(MESSAGES * sizeof(*requests));
    char kind = mt_sending ? mt_send_kind : mt_recv_kind;
    double start;

    mt_case("%d requests, %s, tags %s", MESSAGES, name, backwards ? "backwards" : "in order");
    if (mt_alloc(&small, kind, MESSAGES * SLOT))
        mt_alloc(&large, kind, (MESSAGES / 500 + 1) * LARGE);
    if (mt_ready() && mt_peer >= 0) {
        if (mt_sending)
            for (int i = 0; i < MESSAGES; i++)
                fill(i);
        start = mt_now();
        if (mt_sending && posted_first)
            mt_sync_peer();
        for (int k = 0; mt_sending && k < MESSAGES; k++)
            MPI_OK(MPI_Isend(place_of(k), (int)size_of(k), MPI_BYTE, mt_peer, k, mt_world,
                             &requests[k]));
        if (!posted_first)
            mt_sync_peer();
        for (int k = 0; !mt_sending && k < MESSAGES; k++) {
            int i = backwards ? MESSAGES - 1 - k : k;

            MPI_OK(MPI_Irecv(place_of(i), (int)size_of(i), MPI_BYTE, mt_peer, i, mt_world,
                             &requests[i]));
        }
        if (!mt_sending && posted_first)
            mt_sync_peer();
        MPI_OK(MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE));
        if (mt_rank == 1)
            mt_note("%s, %s: %.2f us a message", name, backwards ? "backwards" : "in order",
                    1e6 * (mt_now() - start) / MESSAGES);
        for (int i = 0; !mt_sending && i < MESSAGES; i++)
            verify(i);
    }
    mt_free(&small);
    mt_free(&large);
    mt_end();
    free(requests);
}

static void pair(void)
{
    run("receives posted first", true, false);
    run("receives posted first", true, true);
    run("all unexpected", false, false);
    run("all unexpected", false, true);
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "outstanding", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
