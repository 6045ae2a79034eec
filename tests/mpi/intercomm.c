/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between the two groups of an intercommunicator. */
#include <stdlib.h>

#include "tests/common/mpitest.h"

static const size_t sizes[] = {0, 8, 4096, 65537, (size_t)1 << 20};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST ((size_t)1 << 20)
enum { TAG = 8 };

static gpu_buf_t buffer;

/* Group 0: the even ranks; group 1: the odd ones. Rank i of one talks to rank i of the other. */
static void through(MPI_Comm inter, const char *name)
{
    int me, remote, group = mt_rank % 2;
    MPI_Status status;
    MPI_Request request;

    MPI_Comm_rank(inter, &me);
    MPI_Comm_remote_size(inter, &remote);
    for (int way = 0; way < 4; way++) {
        static const char *const ways[] = {"exact", "wildcards", "matched probe", "synchronous"};

        mt_case("%s, %s", name, ways[way]);
        mt_alloc(&buffer, group == 0 ? mt_send_kind : mt_recv_kind, LARGEST);
        for (size_t i = 0; mt_ready() && me < remote && i < 2 * SIZES; i++) {
            int n = (int)sizes[i / 2];

            if ((group == 0) == (i % 2 == 0)) {
                mt_fill(&buffer, i, 0, (size_t)n);
                if (way == 3)
                    MPI_OK(MPI_Ssend(buffer.ptr, n, MPI_BYTE, me, TAG, inter));
                else
                    MPI_OK(MPI_Send(buffer.ptr, n, MPI_BYTE, me, TAG, inter));
                continue;
            }
            mt_clear(&buffer);
            if (way == 2) {
                MPI_Message message;

                MPI_OK(MPI_Mprobe(MPI_ANY_SOURCE, TAG, inter, &message, &status));
                mt_expect_status(&status, me, TAG, (size_t)n);
                MPI_OK(MPI_Imrecv(buffer.ptr, n, MPI_BYTE, &message, &request));
                MPI_OK(MPI_Wait(&request, &status));
            } else {
                MPI_OK(MPI_Recv(buffer.ptr, (int)LARGEST, MPI_BYTE,
                                way == 1 ? MPI_ANY_SOURCE : me, way == 1 ? MPI_ANY_TAG : TAG, inter,
                                &status));
            }
            mt_expect_status(&status, me, TAG, (size_t)n);
            mt_expect_message(&buffer, i, (size_t)n);
        }
        mt_free(&buffer);
        mt_end();
    }
}

static void pair(void)
{
    MPI_Comm local, inter, copy, merged;
    int me;

    MPI_Comm_split(mt_side, mt_rank % 2, mt_rank, &local);
    MPI_Intercomm_create(local, 0, mt_side, 1 - mt_rank % 2, 12, &inter);
    MPI_Comm_dup(inter, &copy);
    through(inter, "intercommunicator");
    through(copy, "duplicate");
    MPI_Comm_free(&inter);

    mt_case("merged into one");
    MPI_Intercomm_merge(copy, mt_rank % 2, &merged);
    MPI_Comm_free(&copy);
    MPI_Comm_rank(merged, &me);
    mt_alloc(&buffer, mt_send_kind, 65537);
    if (mt_ready()) { /* a ring */
        MPI_Request request;
        int next = (me + 1) % mt_size, before = (me + mt_size - 1) % mt_size;
        gpu_buf_t target;

        if (mt_alloc(&target, mt_recv_kind, 65537)) {
            mt_fill(&buffer, (uint64_t)me, 0, 65537);
            MPI_OK(MPI_Irecv(target.ptr, 65537, MPI_BYTE, before, TAG, merged, &request));
            MPI_OK(MPI_Send(buffer.ptr, 65537, MPI_BYTE, next, TAG, merged));
            MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            mt_expect_message(&target, (uint64_t)before, 65537);
            mt_free(&target);
        }
    }
    mt_free(&buffer);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&local);
    mt_end();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "intercomm", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
