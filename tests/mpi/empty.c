/* SPDX-License-Identifier: BSD-3-Clause */
/* Nothing to send, nobody to send to: zero bytes, NULL buffers, empty types, MPI_PROC_NULL. */
#include <stdlib.h>

#include "tests/common/mpitest.h"

enum { TAG = 2 };
static gpu_buf_t buffer;

static void zero_bytes(void)
{
    MPI_Datatype empty, types[3];
    MPI_Request request;
    MPI_Status status;
    int flag = 0;

    mt_case("zero bytes: NULL buffers, empty types, every mode");
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, 4096);
    MPI_Type_contiguous(0, MPI_DOUBLE, &empty);
    MPI_Type_commit(&empty);
    types[0] = MPI_BYTE;
    types[1] = MPI_DOUBLE_INT;
    types[2] = empty;
    for (int i = 0; mt_ready() && mt_peer >= 0 && i < 3 * 8; i++) {
        int count = types[i % 3] == empty ? 5 : 0;
        void *p = i % 2 ? NULL : buffer.ptr;

        if (mt_sending) {
            switch (i / 3) {
            case 0:
                MPI_OK(MPI_Send(p, count, types[i % 3], mt_peer, TAG, mt_world));
                break;
            case 1:
                MPI_OK(MPI_Ssend(p, count, types[i % 3], mt_peer, TAG, mt_world));
                break;
            case 2:
                mt_sync_peer();
                MPI_OK(MPI_Rsend(p, count, types[i % 3], mt_peer, TAG, mt_world));
                break;
            case 3:
                MPI_OK(MPI_Issend(p, count, types[i % 3], mt_peer, TAG, mt_world, &request));
                for (int k = 0; k < 50; k++)
                    MPI_OK(MPI_Test(&request, &flag, &status));
                CHECK(!flag, "an empty synchronous send completed without its match");
                mt_sync_peer();
                MPI_OK(MPI_Wait(&request, &status));
                break;
            default:
                MPI_OK(MPI_Isend(p, count, types[i % 3], mt_peer, TAG, mt_world, &request));
                MPI_OK(MPI_Wait(&request, &status));
            }
            continue;
        }
        if (i / 3 == 3)
            mt_sync_peer();
        switch (i / 3) {
        case 4: /* room, but nothing comes */
            MPI_OK(MPI_Recv(buffer.ptr, 4096, MPI_BYTE, mt_peer, TAG, mt_world, &status));
            break;
        case 5:
            MPI_OK(MPI_Probe(mt_peer, TAG, mt_world, &status));
            mt_expect_status(&status, mt_peer, TAG, 0);
            MPI_OK(MPI_Recv(p, count, types[i % 3], MPI_ANY_SOURCE, MPI_ANY_TAG, mt_world,
                            &status));
            break;
        default:
            MPI_OK(MPI_Irecv(p, count, types[i % 3], mt_peer, TAG, mt_world, &request));
            if (i / 3 == 2)
                mt_sync_peer();
            MPI_OK(MPI_Wait(&request, &status));
        }
        mt_expect_status(&status, mt_peer, TAG, 0);
        mt_expect_untouched(&buffer, 0, 4096);
    }
    MPI_Type_free(&empty);
    mt_free(&buffer);
    mt_end();
}

static void proc_null(void)
{
    MPI_Request requests[4];
    MPI_Status status, statuses[4];

    mt_case("MPI_PROC_NULL");
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, 4096);
    if (mt_ready()) {
        MPI_OK(MPI_Send(buffer.ptr, 4096, MPI_BYTE, MPI_PROC_NULL, TAG, mt_world));
        MPI_OK(MPI_Ssend(buffer.ptr, 4096, MPI_BYTE, MPI_PROC_NULL, TAG, mt_world));
        MPI_OK(MPI_Rsend(buffer.ptr, 4096, MPI_BYTE, MPI_PROC_NULL, TAG, mt_world));
        MPI_OK(MPI_Recv(buffer.ptr, 4096, MPI_BYTE, MPI_PROC_NULL, TAG, mt_world, &status));
        mt_expect_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
        MPI_OK(MPI_Isend(buffer.ptr, 4096, MPI_BYTE, MPI_PROC_NULL, TAG, mt_world, &requests[0]));
        MPI_OK(MPI_Issend(buffer.ptr, 4096, MPI_BYTE, MPI_PROC_NULL, TAG, mt_world, &requests[1]));
        MPI_OK(MPI_Irecv(buffer.ptr, 4096, MPI_BYTE, MPI_PROC_NULL, TAG, mt_world, &requests[2]));
        MPI_OK(MPI_Irecv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, MPI_ANY_TAG, mt_world, &requests[3]));
        MPI_OK(MPI_Waitall(4, requests, statuses));
        mt_expect_status(&statuses[2], MPI_PROC_NULL, MPI_ANY_TAG, 0);
        mt_expect_status(&statuses[3], MPI_PROC_NULL, MPI_ANY_TAG, 0);
        MPI_OK(MPI_Sendrecv(buffer.ptr, 8, MPI_BYTE, MPI_PROC_NULL, TAG, buffer.ptr + 64, 8,
                            MPI_BYTE, MPI_PROC_NULL, TAG, mt_world, &status));
        mt_expect_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
        MPI_OK(MPI_Sendrecv_replace(buffer.ptr, 64, MPI_BYTE, MPI_PROC_NULL, TAG, MPI_PROC_NULL,
                                    TAG, mt_world, &status));
        mt_expect_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
        mt_expect_untouched(&buffer, -(ptrdiff_t)MT_GUARD, 4096 + 2 * MT_GUARD);
    }
    mt_free(&buffer);
    mt_end();
}

static void no_requests(void)
{
    MPI_Request requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status statuses[3];
    int flag = 0, index = 0, count = 0, indices[3];

    mt_case("completion of null requests");
    MPI_OK(MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE));
    MPI_OK(MPI_Waitall(3, requests, statuses));
    mt_expect_status(&statuses[2], MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
    MPI_OK(MPI_Waitany(3, requests, &index, statuses));
    CHECK(index == MPI_UNDEFINED, "MPI_Waitany says index %d", index);
    MPI_OK(MPI_Testall(3, requests, &flag, statuses));
    CHECK(flag, "MPI_Testall of null requests says no");
    MPI_OK(MPI_Waitsome(3, requests, &count, indices, statuses));
    CHECK(count == MPI_UNDEFINED, "MPI_Waitsome says %d", count);
    mt_end();
}

static void pair(void)
{
    zero_bytes();
    proc_null();
    no_requests();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "empty", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
