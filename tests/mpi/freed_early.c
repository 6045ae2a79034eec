/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program's mistake: a device buffer is freed while MPI still uses it. Arguments: "send" or
 * "receive", whose buffer it is; "before" (the peer has not begun) or "amid" (the transfer runs);
 * bytes. What must not happen: a hang, a crash, wrong data taken for right, or data in what the
 * program has allocated since. The outcome is printed as "# outcome: ...".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/common/mpitest.h"

enum { TAG = 1, TESTS_AMID = 30 };

static size_t bytes = (size_t)4 << 20;
static bool of_sender, amid;

static const char *outcome(int result)
{
    return result == MPI_SUCCESS ? "success" : "an error";
}

/* The side whose buffer goes. Memory of the same size is allocated afterwards, where it likes. */
static int lose(gpu_buf_t *buffer, gpu_buf_t *again, int round)
{
    MPI_Request request;
    int done = 0, result = MPI_SUCCESS;

    if (amid)
        mt_sync_peer();
    if (mt_sending)
        MPI_OK(MPI_Isend(buffer->ptr, (int)bytes, MPI_BYTE, mt_peer, TAG, mt_world, &request));
    else
        MPI_OK(MPI_Irecv(buffer->ptr, (int)bytes, MPI_BYTE, mt_peer, TAG, mt_world, &request));
    for (int i = 0; amid && i < TESTS_AMID * round && !done && result == MPI_SUCCESS; ++i)
        result = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    mt_free(buffer);
    if (mt_alloc(again, mt_sending ? mt_send_kind : mt_recv_kind, bytes))
        mt_clear(again);
    if (!amid)
        mt_sync_peer();
    if (!done && result == MPI_SUCCESS)
        result = MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (!mt_sending)
        mt_expect_untouched(again, 0, bytes);
    return result;
}

static int keep(gpu_buf_t *buffer)
{
    int result;

    mt_sync_peer();
    if (mt_sending)
        return MPI_Send(buffer->ptr, (int)bytes, MPI_BYTE, mt_peer, TAG, mt_world);
    mt_clear(buffer);
    result = MPI_Recv(buffer->ptr, (int)bytes, MPI_BYTE, mt_peer, TAG, mt_world,
                      MPI_STATUS_IGNORE);
    if (result == MPI_SUCCESS)
        mt_expect_message(buffer, 1, bytes);
    return result;
}

static void once(int round)
{
    gpu_buf_t buffer = {0}, again = {0};
    int mine, theirs;
    char kind = of_sender ? mt_send_kind : mt_recv_kind;

    mt_case("the %s's buffer of %zu bytes is freed %s, round %d", of_sender ? "sender" : "receiver",
            bytes, amid ? "amid the transfer" : "before the peer begins", round);
    if (kind == 'H')
        mt_skip("CUDA does not tell of host buffers");
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, bytes);
    if (mt_ready() && mt_peer >= 0) {
        if (mt_sending)
            mt_fill(&buffer, 1, 0, bytes);
        mine = mt_sending == of_sender ? lose(&buffer, &again, round) : keep(&buffer);
        theirs = mt_exchange_peer(mine);
        if (mt_sending)
            printf("# outcome: send %s, receive %s\n", outcome(mine), outcome(theirs));
        fflush(stdout);
        /* small messages are copied aside at once, and a transfer may win the race */
        if (!amid && (!of_sender || bytes >= (size_t)1 << 20))
            CHECK((mt_sending == of_sender ? mine : theirs) != MPI_SUCCESS,
                  "it is called a success");
    }
    mt_free(&again);
    mt_free(&buffer);
    mt_end();
}

/* What came before works afterwards. */
static void after(void)
{
    gpu_buf_t buffer = {0};

    mt_case("a message after that");
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, bytes);
    if (mt_ready() && mt_peer >= 0) {
        if (mt_sending)
            mt_fill(&buffer, 1, 0, bytes);
        CHECK(keep(&buffer) == MPI_SUCCESS, "it fails");
    }
    mt_free(&buffer);
    mt_end();
}

static void pair(void)
{
    once(1);
    for (int round = 2; amid && round <= 4; ++round)
        once(round);
    after();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "freed_early", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    of_sender = argc < 2 || strcmp(argv[1], "send") == 0;
    amid = argc > 2 && strcmp(argv[2], "amid") == 0;
    if (argc > 3)
        bytes = strtoull(argv[3], NULL, 10);
    mt_each_pair(pair);
    return mt_finish();
}
