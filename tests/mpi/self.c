/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of a rank to itself. */
#include <stdlib.h>

#include "tests/common/mpitest.h"

static const size_t sizes[] = {0, 1, 1024, 65537, (size_t)2 << 20};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST ((size_t)2 << 20)
enum { TAG = 4 };

static gpu_buf_t source, target;

static bool begin(void)
{
    if (mt_alloc(&source, mt_send_kind, LARGEST))
        mt_alloc(&target, mt_recv_kind, LARGEST);
    return mt_ready();
}

static void end(void)
{
    mt_free(&source);
    mt_free(&target);
    mt_end();
}

static void each_way(MPI_Comm comm, const char *name)
{
    int me;
    MPI_Status status;
    MPI_Request requests[2];

    MPI_Comm_rank(comm, &me);
    for (int way = 0; way < 5; way++) {
        static const char *const ways[] = {"receive posted first", "message first", "MPI_Sendrecv",
                                           "synchronous", "matched probe"};

        mt_case("to itself in %s: %s", name, ways[way]);
        begin();
        for (size_t i = 0; mt_ready() && i < SIZES; i++) {
            int n = (int)sizes[i];
            MPI_Message message;

            mt_fill(&source, i, 0, sizes[i]);
            mt_clear(&target);
            switch (way) {
            case 0:
                MPI_OK(MPI_Irecv(target.ptr, (int)LARGEST, MPI_BYTE, me, TAG, comm, &requests[0]));
                MPI_OK(MPI_Send(source.ptr, n, MPI_BYTE, me, TAG, comm));
                MPI_OK(MPI_Wait(&requests[0], &status));
                break;
            case 1:
                MPI_OK(MPI_Isend(source.ptr, n, MPI_BYTE, me, TAG, comm, &requests[0]));
                MPI_OK(MPI_Recv(target.ptr, (int)LARGEST, MPI_BYTE, MPI_ANY_SOURCE, TAG, comm,
                                &status));
                MPI_OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
                break;
            case 2:
                MPI_OK(MPI_Sendrecv(source.ptr, n, MPI_BYTE, me, TAG, target.ptr, (int)LARGEST,
                                    MPI_BYTE, me, MPI_ANY_TAG, comm, &status));
                break;
            case 3: {
                int flag = 0;

                MPI_OK(MPI_Issend(source.ptr, n, MPI_BYTE, me, TAG, comm, &requests[0]));
                for (int k = 0; k < 100; k++)
                    MPI_OK(MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE));
                CHECK(!flag, "%d bytes: complete without a receive", n);
                MPI_OK(MPI_Recv(target.ptr, (int)LARGEST, MPI_BYTE, me, TAG, comm, &status));
                MPI_OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
                break;
            }
            default:
                MPI_OK(MPI_Isend(source.ptr, n, MPI_BYTE, me, TAG, comm, &requests[0]));
                MPI_OK(MPI_Mprobe(me, TAG, comm, &message, &status));
                mt_expect_status(&status, me, TAG, sizes[i]);
                MPI_OK(MPI_Mrecv(target.ptr, n, MPI_BYTE, &message, &status));
                MPI_OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
            }
            mt_expect_status(&status, me, TAG, sizes[i]);
            mt_expect_message(&target, i, sizes[i]);
        }
        end();
    }
}

static void pair(void)
{
    each_way(mt_world, "MPI_COMM_WORLD");
    each_way(MPI_COMM_SELF, "MPI_COMM_SELF");
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "self", .min_ranks = 1};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
