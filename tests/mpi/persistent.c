/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent requests: started many times, in every mode, with other data each time. */
#include <stdlib.h>

#include "tests/common/mpitest.h"

#define SLOTS 4
#define ROUNDS 12
static const size_t sizes[SLOTS] = {8, 4096, 65537, (size_t)1 << 20};

static gpu_buf_t buffers[SLOTS];

static bool alloc_all(void)
{
    for (int i = 0; i < SLOTS; i++)
        if (!mt_alloc(&buffers[i], mt_sending ? mt_send_kind : mt_recv_kind, sizes[i]))
            break;
    return mt_ready() && mt_peer >= 0;
}

static void free_all(void)
{
    for (int i = 0; i < SLOTS; i++)
        mt_free(&buffers[i]);
}

typedef int init_fn(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static void rounds(init_fn *init, bool one_by_one)
{
    MPI_Request requests[SLOTS];
    MPI_Status statuses[SLOTS];

    for (int i = 0; i < SLOTS; i++) {
        if (mt_sending)
            MPI_OK(init(buffers[i].ptr, (int)sizes[i], MPI_BYTE, mt_peer, i, mt_world,
                        &requests[i]));
        else
            MPI_OK(MPI_Recv_init(buffers[i].ptr, (int)sizes[i], MPI_BYTE,
                                 i % 2 ? MPI_ANY_SOURCE : mt_peer, i, mt_world, &requests[i]));
    }
    for (int round = 0; round < ROUNDS * mt_factor; round++) {
        for (int i = 0; i < SLOTS; i++) {
            if (mt_sending)
                mt_fill(&buffers[i], (uint64_t)(round * SLOTS + i), 0, sizes[i]);
            else
                mt_clear(&buffers[i]);
        }
        if (mt_sending) /* a ready send needs the receive first */
            mt_sync_peer();
        if (one_by_one)
            for (int i = 0; i < SLOTS; i++)
                MPI_OK(MPI_Start(&requests[i]));
        else
            MPI_OK(MPI_Startall(SLOTS, requests));
        if (!mt_sending)
            mt_sync_peer();
        MPI_OK(MPI_Waitall(SLOTS, requests, statuses));
        for (int i = 0; i < SLOTS; i++) {
            CHECK(requests[i] != MPI_REQUEST_NULL, "a persistent request was freed by completion");
            if (mt_sending)
                continue;
            mt_expect_status(&statuses[i], mt_peer, i, sizes[i]);
            mt_expect_message(&buffers[i], (uint64_t)(round * SLOTS + i), sizes[i]);
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        MPI_OK(MPI_Request_free(&requests[i]));
        CHECK(requests[i] == MPI_REQUEST_NULL, "a freed request is not null");
    }
}

static void modes(void)
{
    static const struct {
        const char *name;
        init_fn *init;
    } modes[] = {{"standard", MPI_Send_init},
                 {"synchronous", MPI_Ssend_init},
                 {"ready", MPI_Rsend_init},
                 {"buffered", MPI_Bsend_init}};
    int size = 0;
    void *attached, *detached;

    for (int i = 0; i < SLOTS; i++)
        size += (int)sizes[i] + MPI_BSEND_OVERHEAD;
    size *= 3; /* a message may still be in it when the next round begins */
    attached = malloc((size_t)size);
    for (int m = 0; m < 4; m++) {
        mt_case("%s sends", modes[m].name);
        if (alloc_all()) {
            if (m == 3 && mt_sending)
                MPI_OK(MPI_Buffer_attach(attached, size));
            rounds(modes[m].init, m % 2);
            if (m == 3 && mt_sending)
                MPI_OK(MPI_Buffer_detach(&detached, &size));
        }
        free_all();
        mt_end();
    }
    free(attached);
}

/* Inactive requests: waiting returns the empty status at once; freeing them is right. */
static void inactive(void)
{
    MPI_Request request;
    MPI_Status status;
    int flag = 0;

    mt_case("inactive requests complete with the empty status");
    if (alloc_all()) {
        if (mt_sending)
            MPI_OK(MPI_Send_init(buffers[0].ptr, 8, MPI_BYTE, mt_peer, 1, mt_world, &request));
        else
            MPI_OK(MPI_Recv_init(buffers[0].ptr, 8, MPI_BYTE, mt_peer, 1, mt_world, &request));
        MPI_OK(MPI_Wait(&request, &status));
        mt_expect_status(&status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
        MPI_OK(MPI_Test(&request, &flag, &status));
        CHECK(flag, "an inactive request is not complete");
        mt_expect_status(&status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
        MPI_OK(MPI_Request_free(&request));
    }
    free_all();
    mt_end();
}

static void proc_null(void)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];

    mt_case("MPI_PROC_NULL");
    if (alloc_all()) {
        MPI_OK(MPI_Send_init(buffers[0].ptr, 8, MPI_BYTE, MPI_PROC_NULL, 1, mt_world,
                             &requests[0]));
        MPI_OK(MPI_Recv_init(buffers[0].ptr, 8, MPI_BYTE, MPI_PROC_NULL, 1, mt_world,
                             &requests[1]));
        for (int i = 0; i < 3; i++) {
            MPI_OK(MPI_Startall(2, requests));
            MPI_OK(MPI_Waitall(2, requests, statuses));
            mt_expect_status(&statuses[1], MPI_PROC_NULL, MPI_ANY_TAG, 0);
        }
        MPI_OK(MPI_Request_free(&requests[0]));
        MPI_OK(MPI_Request_free(&requests[1]));
    }
    free_all();
    mt_end();
}

/* A persistent receive that is cancelled can be started again. */
static void cancelled(void)
{
    MPI_Request request;
    MPI_Status status;
    int flag = 0;

    mt_case("a persistent receive is cancelled and started again");
    if (alloc_all() && !mt_sending) {
        MPI_OK(MPI_Recv_init(buffers[0].ptr, 8, MPI_BYTE, mt_peer, 1, mt_world, &request));
        MPI_OK(MPI_Start(&request));
        MPI_OK(MPI_Cancel(&request));
        MPI_OK(MPI_Wait(&request, &status));
        MPI_OK(MPI_Test_cancelled(&status, &flag));
        CHECK(flag, "the receive was not cancelled");
        MPI_OK(MPI_Start(&request));
        mt_sync_peer();
        MPI_OK(MPI_Wait(&request, &status));
        MPI_OK(MPI_Test_cancelled(&status, &flag));
        CHECK(!flag, "the second round is called cancelled");
        mt_expect_message(&buffers[0], 5, 8);
        MPI_OK(MPI_Request_free(&request));
    } else if (mt_ready() && mt_peer >= 0) {
        mt_fill(&buffers[0], 5, 0, 8);
        mt_sync_peer();
        MPI_OK(MPI_Send(buffers[0].ptr, 8, MPI_BYTE, mt_peer, 1, mt_world));
    }
    free_all();
    mt_end();
}

static void pair(void)
{
    modes();
    inactive();
    proc_null();
    cancelled();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "persistent", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
