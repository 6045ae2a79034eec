/* SPDX-License-Identifier: BSD-3-Clause */
/* A message longer than the receive: MPI_ERR_TRUNCATE, not one byte too many, and on it goes. */
#include <stdlib.h>

#include "tests/common/mpitest.h"

static const struct {
    size_t sent, room;
} cases[] = {{2, 1}, {1, 0}, {64, 63}, {8192, 100}, {65537, 65536}, {(size_t)1 << 20, 10},
             {(size_t)2 << 20, ((size_t)2 << 20) - 1}, {(size_t)2 << 20, 0}};
#define CASES (sizeof(cases) / sizeof(cases[0]))
#define LARGEST ((size_t)2 << 20)
enum { TAG = 6 };

static gpu_buf_t buffer;

/* After a truncated message: only the room may be written, the guards and the rest may not. */
static void expect_room_kept(size_t room)
{
    mt_expect_untouched(&buffer, -(ptrdiff_t)MT_GUARD, MT_GUARD);
    mt_expect_untouched(&buffer, (ptrdiff_t)room, LARGEST - room + MT_GUARD);
}

static void next_message_is_good(uint64_t seed)
{
    if (mt_sending) {
        mt_fill(&buffer, seed, 0, 5000);
        MPI_OK(MPI_Send(buffer.ptr, 5000, MPI_BYTE, mt_peer, TAG, mt_world));
    } else {
        mt_clear(&buffer);
        MPI_OK(MPI_Recv(buffer.ptr, 5000, MPI_BYTE, mt_peer, TAG, mt_world, MPI_STATUS_IGNORE));
        mt_expect_message(&buffer, seed, 5000);
    }
}

enum { RECV, IRECV_EARLY, WAITALL, MRECV, TYPED, WAYS };

static void receive(int way, size_t room)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Message message;
    MPI_Datatype every_other;
    int result, class;
    char token;

    switch (way) {
    case RECV:
        mt_sync_peer();
        mt_sleep_ms(1);
        MPI_FAILS(MPI_Recv(buffer.ptr, (int)room, MPI_BYTE, mt_peer, TAG, mt_world, &statuses[0]),
                  MPI_ERR_TRUNCATE);
        return;
    case IRECV_EARLY:
        MPI_OK(MPI_Irecv(buffer.ptr, (int)room, MPI_BYTE, MPI_ANY_SOURCE, TAG, mt_world,
                         &requests[0]));
        mt_sync_peer();
        MPI_FAILS(MPI_Wait(&requests[0], &statuses[0]), MPI_ERR_TRUNCATE);
        return;
    case WAITALL:
        MPI_OK(MPI_Irecv(buffer.ptr, (int)room, MPI_BYTE, mt_peer, TAG, mt_world, &requests[0]));
        MPI_OK(MPI_Irecv(&token, 1, MPI_BYTE, mt_peer, TAG + 1, mt_world, &requests[1]));
        mt_sync_peer();
        result = MPI_Waitall(2, requests, statuses);
        MPI_Error_class(result, &class);
        CHECK(class == MPI_ERR_IN_STATUS, "MPI_Waitall returned class %d", class);
        MPI_Error_class(statuses[0].MPI_ERROR, &class);
        CHECK(class == MPI_ERR_TRUNCATE, "the truncated message's status has class %d", class);
        if (statuses[1].MPI_ERROR == MPI_ERR_PENDING)
            MPI_OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
        else
            CHECK(statuses[1].MPI_ERROR == MPI_SUCCESS, "the good message's status has %d",
                  statuses[1].MPI_ERROR);
        return;
    case MRECV:
        mt_sync_peer();
        MPI_OK(MPI_Mprobe(mt_peer, TAG, mt_world, &message, &statuses[0]));
        MPI_FAILS(MPI_Mrecv(buffer.ptr, (int)room, MPI_BYTE, &message, &statuses[0]),
                  MPI_ERR_TRUNCATE);
        return;
    default: /* half of the room, as every other byte */
        MPI_OK(MPI_Type_vector((int)(room / 2), 1, 2, MPI_BYTE, &every_other));
        MPI_OK(MPI_Type_commit(&every_other));
        mt_sync_peer();
        MPI_FAILS(MPI_Recv(buffer.ptr, 1, every_other, mt_peer, TAG, mt_world, &statuses[0]),
                  MPI_ERR_TRUNCATE);
        MPI_OK(MPI_Type_free(&every_other));
    }
}

static void pair(void)
{
    static const char *const names[] = {"MPI_Recv", "posted MPI_Irecv", "MPI_Waitall", "MPI_Mrecv",
                                        "into a strided type"};

    for (int way = 0; way < WAYS; way++) {
        mt_case("%s", names[way]);
        mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, LARGEST);
        for (size_t i = 0; mt_ready() && mt_peer >= 0 && i < CASES; i++) {
            if (mt_sending) {
                char token = 0;

                mt_fill(&buffer, i, 0, cases[i].sent);
                mt_sync_peer();
                /* the sender does not learn of it */
                MPI_OK(MPI_Send(buffer.ptr, (int)cases[i].sent, MPI_BYTE, mt_peer, TAG, mt_world));
                if (way == WAITALL)
                    MPI_OK(MPI_Send(&token, 1, MPI_BYTE, mt_peer, TAG + 1, mt_world));
            } else {
                mt_clear(&buffer);
                receive(way, cases[i].room);
                expect_room_kept(cases[i].room);
            }
            next_message_is_good(1000 + i);
        }
        mt_free(&buffer);
        mt_end();
    }
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "truncation", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
