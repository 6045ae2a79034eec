/* SPDX-License-Identifier: BSD-3-Clause */
/* Cancelling: of a receive it works; of a send it may fail, but every request completes. */
#include "tests/common/mpitest.h"

static const size_t sizes[] = {8, 4096, 65537, (size_t)1 << 20};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST ((size_t)1 << 20)
enum { TAG = 3 };

static gpu_buf_t buffer;

static gpu_buf_t other; /* of the receiver: what must stay untouched */
static bool running;

static void begin(void)
{
    char kind = mt_sending ? mt_send_kind : mt_recv_kind;

    if (mt_alloc(&buffer, kind, LARGEST))
        mt_alloc(&other, kind, LARGEST);
    running = mt_ready() && mt_peer >= 0;
}

static void end(void)
{
    mt_free(&buffer);
    mt_free(&other);
    mt_end();
}

static void receives(void)
{
    mt_case("a cancelled receive takes no message");
    begin();
    for (size_t i = 0; running && i < SIZES; i++) {
        MPI_Request doomed, kept;
        MPI_Status status;
        int flag = 0;

        if (mt_sending) {
            mt_fill(&buffer, i, 0, sizes[i]);
            mt_sync_peer();
            MPI_OK(MPI_Send(buffer.ptr, (int)sizes[i], MPI_BYTE, mt_peer, TAG, mt_world));
        } else {
            mt_clear(&buffer);
            MPI_OK(MPI_Irecv(other.ptr, (int)LARGEST, MPI_BYTE, mt_peer, TAG, mt_world, &doomed));
            MPI_OK(MPI_Irecv(buffer.ptr, (int)LARGEST, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
                             mt_world, &kept));
            MPI_OK(MPI_Cancel(&doomed));
            MPI_OK(MPI_Wait(&doomed, &status));
            MPI_OK(MPI_Test_cancelled(&status, &flag));
            CHECK(flag, "the receive was not cancelled");
            mt_sync_peer();
            MPI_OK(MPI_Wait(&kept, &status));
            MPI_OK(MPI_Test_cancelled(&status, &flag));
            CHECK(!flag, "the other receive was cancelled");
            mt_expect_status(&status, mt_peer, TAG, sizes[i]);
            mt_expect_message(&buffer, i, sizes[i]);
            mt_expect_untouched(&other, 0, LARGEST);
        }
    }
    end();
}

static void too_late(void)
{
    mt_case("a receive that has its message is not cancelled");
    begin();
    for (size_t i = 0; running && i < SIZES; i++) {
        MPI_Request request;
        MPI_Status status;
        int flag = 0;

        if (mt_sending) {
            mt_fill(&buffer, i, 0, sizes[i]);
            MPI_OK(MPI_Ssend(buffer.ptr, (int)sizes[i], MPI_BYTE, mt_peer, TAG, mt_world));
            mt_sync_peer();
        } else {
            mt_clear(&buffer);
            MPI_OK(MPI_Irecv(buffer.ptr, (int)LARGEST, MPI_BYTE, mt_peer, TAG, mt_world, &request));
            mt_sync_peer(); /* the synchronous send is over: it was matched */
            MPI_OK(MPI_Cancel(&request));
            MPI_OK(MPI_Wait(&request, &status));
            MPI_OK(MPI_Test_cancelled(&status, &flag));
            CHECK(!flag, "a matched receive was cancelled");
            mt_expect_status(&status, mt_peer, TAG, sizes[i]);
            mt_expect_message(&buffer, i, sizes[i]);
        }
    }
    end();
}

/* The receiver takes the message if the sender says that it was not cancelled; if it was, the
 * receiver must never see it. */
static void sends(void)
{
    mt_case("cancelling a send either works or leaves the message");
    begin();
    for (size_t i = 0; running && i < SIZES; i++) {
        MPI_Request request;
        MPI_Status status;
        int flag = 0, cancelled = 0;

        if (mt_sending) {
            double until = mt_now() + 0.05;

            mt_fill(&buffer, i, 0, sizes[i]);
            MPI_OK(MPI_Issend(buffer.ptr, (int)sizes[i], MPI_BYTE, mt_peer, TAG, mt_world,
                              &request));
            MPI_OK(MPI_Cancel(&request));
            while (!flag && mt_now() < until)
                MPI_OK(MPI_Test(&request, &flag, &status));
            if (flag)
                MPI_OK(MPI_Test_cancelled(&status, &cancelled));
            CHECK(!flag || cancelled, "an unmatched synchronous send completed");
            mt_exchange_peer(cancelled);
            if (!flag)
                MPI_OK(MPI_Wait(&request, &status));
            if (!flag)
                MPI_OK(MPI_Test_cancelled(&status, &flag));
            CHECK(cancelled || !flag, "cancelled after the message was received");
        } else {
            cancelled = mt_exchange_peer(0);
            if (!cancelled) {
                mt_clear(&buffer);
                MPI_OK(MPI_Recv(buffer.ptr, (int)LARGEST, MPI_BYTE, mt_peer, TAG, mt_world,
                                &status));
                mt_expect_message(&buffer, i, sizes[i]);
            } else {
                MPI_OK(MPI_Iprobe(mt_peer, TAG, mt_world, &flag, MPI_STATUS_IGNORE));
                CHECK(!flag, "the cancelled message is there");
            }
        }
    }
    end();
}

static void pair(void)
{
    receives();
    too_late();
    sends();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "cancel", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
