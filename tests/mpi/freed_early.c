/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program's mistake: a buffer is freed while MPI still uses it. Arguments: "send" or "receive",
 * whose buffer it is. What must not happen: a hang, a crash, or data that are taken for right. The
 * outcome is printed as "# outcome: ..."; memory.test judges the log.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/common/mpitest.h"

#define BYTES ((size_t)4 << 20)
static bool of_sender = true;

static const char *outcome(int result)
{
    return result == MPI_SUCCESS ? "success" : "an error";
}

static void pair(void)
{
    gpu_buf_t b;
    MPI_Request request;
    int mine = 0, theirs;

    mt_case("the %s's buffer is freed too early", of_sender ? "sender" : "receiver");
    mt_alloc(&b, mt_sending ? mt_send_kind : mt_recv_kind, BYTES);
    if (mt_ready() && mt_peer >= 0) {
        mt_fill(&b, 1, 0, BYTES);
        if (mt_sending == of_sender) {
            if (mt_sending)
                MPI_OK(MPI_Isend(b.ptr, (int)BYTES, MPI_BYTE, mt_peer, 1, mt_world, &request));
            else
                MPI_OK(MPI_Irecv(b.ptr, (int)BYTES, MPI_BYTE, mt_peer, 1, mt_world, &request));
            mt_free(&b);
            mt_sync_peer();
            mine = MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            mt_sync_peer();
            if (mt_sending) {
                mine = MPI_Send(b.ptr, (int)BYTES, MPI_BYTE, mt_peer, 1, mt_world);
            } else {
                mt_clear(&b);
                mine = MPI_Recv(b.ptr, (int)BYTES, MPI_BYTE, mt_peer, 1, mt_world,
                                MPI_STATUS_IGNORE);
            }
        }
        theirs = mt_exchange_peer(mine);
        if (mt_sending)
            printf("# outcome: send %s, receive %s\n", outcome(mine), outcome(theirs));
        fflush(stdout);
        CHECK(mine != MPI_SUCCESS || theirs != MPI_SUCCESS, "both sides call it a success");
    }
    mt_free(&b);
    mt_end();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "freed_early", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    of_sender = argc < 2 || strcmp(argv[1], "send") == 0;
    mt_each_pair(pair);
    return mt_finish();
}
