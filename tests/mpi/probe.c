/* SPDX-License-Identifier: BSD-3-Clause */
/* Probe, matched probe, and receiving what was matched. */
#include <stdlib.h>

#include "tests/common/mpitest.h"

static const size_t sizes[] = {0, 1, 4096, 65537, (size_t)2 << 20};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST ((size_t)2 << 20)
enum { TAG = 11 };

static gpu_buf_t buffer;

typedef enum { PROBE, IPROBE, MPROBE, IMPROBE, HOWS } how_t;
static const char *const how_names[] = {"MPI_Probe", "MPI_Iprobe", "MPI_Mprobe", "MPI_Improbe"};

static void look(how_t how, int source, int tag, MPI_Message *message, MPI_Status *status)
{
    int flag = 0;

    switch (how) {
    case PROBE:
        MPI_OK(MPI_Probe(source, tag, mt_world, status));
        break;
    case IPROBE:
        while (!flag && MPI_OK(MPI_Iprobe(source, tag, mt_world, &flag, status)))
            ;
        break;
    case MPROBE:
        MPI_OK(MPI_Mprobe(source, tag, mt_world, message, status));
        break;
    default:
        while (!flag && MPI_OK(MPI_Improbe(source, tag, mt_world, &flag, message, status)))
            ;
    }
}

static void take(how_t how, bool nonblocking, size_t n, MPI_Message *message, MPI_Status *status)
{
    MPI_Request request;

    if (how == PROBE || how == IPROBE) {
        MPI_OK(MPI_Recv(buffer.ptr, (int)n, MPI_BYTE, mt_peer, TAG, mt_world, status));
        return;
    }
    CHECK(*message != MPI_MESSAGE_NULL && *message != MPI_MESSAGE_NO_PROC, "no message handle");
    if (nonblocking) {
        MPI_OK(MPI_Imrecv(buffer.ptr, (int)n, MPI_BYTE, message, &request));
        CHECK(*message == MPI_MESSAGE_NULL, "the handle is not null after MPI_Imrecv");
        MPI_OK(MPI_Wait(&request, status));
    } else {
        MPI_OK(MPI_Mrecv(buffer.ptr, (int)n, MPI_BYTE, message, status));
        CHECK(*message == MPI_MESSAGE_NULL, "the handle is not null after MPI_Mrecv");
    }
}

static void each_way(how_t how)
{
    mt_case("%s, wildcards, exact counts", how_names[how]);
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, LARGEST);
    for (size_t i = 0; mt_ready() && mt_peer >= 0 && i < 4 * SIZES; i++) {
        size_t n = sizes[i / 4];
        int source = i & 1 ? MPI_ANY_SOURCE : mt_peer, tag = i & 2 ? MPI_ANY_TAG : TAG;
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Status seen, got;

        if (mt_sending) {
            mt_fill(&buffer, i, 0, n);
            MPI_OK(MPI_Send(buffer.ptr, (int)n, MPI_BYTE, mt_peer, TAG, mt_world));
        } else {
            mt_clear(&buffer);
            look(how, source, tag, &message, &seen);
            mt_expect_status(&seen, mt_peer, TAG, n);
            take(how, i & 1, n, &message, &got);
            mt_expect_status(&got, mt_peer, TAG, n);
            mt_expect_message(&buffer, i, n);
        }
    }
    mt_free(&buffer);
    mt_end();
}

static void finds_nothing(void)
{
    int flag = 1;
    MPI_Message message;
    MPI_Request request;

    mt_case("probes of what was not sent find nothing");
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, 16);
    if (mt_ready() && mt_peer >= 0 && mt_sending) {
        mt_fill(&buffer, 1, 0, 16);
        /* a standard send may wait for its receive, which comes after the synchronisation */
        MPI_OK(MPI_Isend(buffer.ptr, 16, MPI_BYTE, mt_peer, TAG, mt_world, &request));
        mt_sync_peer();
        MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else if (mt_ready() && mt_peer >= 0) {
        mt_sync_peer(); /* the message is there, or soon will be */
        for (int i = 0; i < 100; i++) {
            MPI_OK(MPI_Iprobe(mt_peer, TAG + 1, mt_world, &flag, MPI_STATUS_IGNORE));
            CHECK(!flag, "a message with another tag was found");
            MPI_OK(MPI_Iprobe(mt_rank, TAG, mt_world, &flag, MPI_STATUS_IGNORE));
            CHECK(!flag, "a message of another source was found");
            MPI_OK(MPI_Iprobe(0, TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE));
            CHECK(!flag, "a message of another communicator was found");
            MPI_OK(MPI_Improbe(mt_peer, TAG + 1, mt_world, &flag, &message, MPI_STATUS_IGNORE));
            CHECK(!flag, "a message with another tag was matched");
        }
        MPI_OK(MPI_Recv(buffer.ptr, 16, MPI_BYTE, mt_peer, TAG, mt_world, MPI_STATUS_IGNORE));
        mt_expect_message(&buffer, 1, 16);
        MPI_OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mt_world, &flag, MPI_STATUS_IGNORE));
        CHECK(!flag, "a received message is still found");
    }
    mt_free(&buffer);
    mt_end();
}

/* A matched message is out of the queue: the next receive gets the next one. */
static void takes_out(void)
{
    const size_t first = 65537, second = 100;
    MPI_Message messages[2];
    MPI_Status status;
    gpu_buf_t other;

    mt_case("a matched message leaves the queue");
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, first);
    mt_alloc(&other, mt_sending ? mt_send_kind : mt_recv_kind, first);
    if (mt_ready() && mt_peer >= 0 && mt_sending) {
        MPI_Request requests[3];

        mt_fill(&buffer, 1, 0, first);
        mt_fill(&other, 2, 0, second);
        MPI_OK(MPI_Isend(buffer.ptr, (int)first, MPI_BYTE, mt_peer, TAG, mt_world, &requests[0]));
        MPI_OK(MPI_Isend(other.ptr, (int)second, MPI_BYTE, mt_peer, TAG, mt_world, &requests[1]));
        MPI_OK(MPI_Isend(buffer.ptr, (int)first, MPI_BYTE, mt_peer, TAG, mt_world, &requests[2]));
        MPI_OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    } else if (mt_ready() && mt_peer >= 0) {
        MPI_OK(MPI_Mprobe(mt_peer, TAG, mt_world, &messages[0], &status));
        mt_expect_status(&status, mt_peer, TAG, first);
        MPI_OK(MPI_Recv(other.ptr, (int)first, MPI_BYTE, mt_peer, TAG, mt_world, &status));
        mt_expect_status(&status, mt_peer, TAG, second);
        mt_expect_message(&other, 2, second);
        MPI_OK(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mt_world, &messages[1], &status));
        MPI_OK(MPI_Mrecv(buffer.ptr, (int)first, MPI_BYTE, &messages[1], &status));
        mt_expect_message(&buffer, 1, first);
        mt_clear(&buffer);
        MPI_OK(MPI_Mrecv(buffer.ptr, (int)first, MPI_BYTE, &messages[0], &status));
        mt_expect_status(&status, mt_peer, TAG, first);
        mt_expect_message(&buffer, 1, first);
    }
    mt_free(&buffer);
    mt_free(&other);
    mt_end();
}

static void proc_null(void)
{
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Request request;
    MPI_Status status;
    int flag = 0;

    mt_case("probes of MPI_PROC_NULL");
    MPI_OK(MPI_Probe(MPI_PROC_NULL, TAG, mt_world, &status));
    mt_expect_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    MPI_OK(MPI_Iprobe(MPI_PROC_NULL, TAG, mt_world, &flag, &status));
    CHECK(flag, "MPI_Iprobe found nothing");
    MPI_OK(MPI_Mprobe(MPI_PROC_NULL, TAG, mt_world, &message, &status));
    CHECK(message == MPI_MESSAGE_NO_PROC, "the handle is not MPI_MESSAGE_NO_PROC");
    MPI_OK(MPI_Mrecv(NULL, 0, MPI_BYTE, &message, &status));
    mt_expect_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    MPI_OK(MPI_Improbe(MPI_PROC_NULL, TAG, mt_world, &flag, &message, &status));
    CHECK(flag && message == MPI_MESSAGE_NO_PROC, "MPI_Improbe found nothing");
    MPI_OK(MPI_Imrecv(NULL, 0, MPI_BYTE, &message, &request));
    MPI_OK(MPI_Wait(&request, &status));
    mt_expect_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    mt_end();
}

static void pair(void)
{
    for (how_t how = PROBE; how < HOWS; how++)
        each_way(how);
    finds_nothing();
    takes_out();
    proc_null();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "probe", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
