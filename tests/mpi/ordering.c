/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages from one rank with one tag match receives in the order they were sent, however they
 * travel: small and large, host and device, blocking and not. Each carries its number.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/common/mpitest.h"

#define SLOTS 16
#define LARGEST ((size_t)1 << 20)
enum { TAG = 9, ANY = -1 };

static gpu_buf_t slots[2][SLOTS]; /* host and kind under test */

/* Mostly small, now and then across each protocol boundary. */
static size_t size_of(int number)
{
    uint64_t state = (uint64_t)number * 977;
    uint64_t r = mt_random(&state);

    switch (r % 16) {
    case 0:
        return (size_t)(r >> 8) % LARGEST + 1;
    case 1:
    case 2:
        return (size_t)(r >> 8) % 65536 + 1;
    case 3:
    case 4:
        return (size_t)(r >> 8) % 16384 + 1;
    case 5:
        return 0;
    default:
        return (size_t)(r >> 8) % 512 + 1;
    }
}

static gpu_buf_t *slot_of(int number, bool mixed)
{
    uint64_t state = (uint64_t)number * 31 + (uint64_t)mt_rank;

    return &slots[mixed ? mt_random(&state) & 1 : 1][number % SLOTS];
}

static bool alloc_slots(void)
{
    char kind = mt_sending ? mt_send_kind : mt_recv_kind;
    bool ok = true;

    for (int i = 0; ok && i < SLOTS; i++)
        ok = mt_alloc(&slots[0][i], 'H', LARGEST) && mt_alloc(&slots[1][i], kind, LARGEST);
    return mt_ready();
}

static void free_slots(void)
{
    for (int i = 0; i < SLOTS; i++) {
        mt_free(&slots[0][i]);
        mt_free(&slots[1][i]);
    }
}

/* The sender keeps SLOTS messages in flight; the receiver posts blocks of them ahead, or comes
 * late, by turns. */
static void sequence(int messages, bool mixed, int source, int tag)
{
    MPI_Request requests[SLOTS];
    MPI_Status status;
    int numbers[SLOTS];

    for (int i = 0; i < SLOTS; i++)
        requests[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < messages + SLOTS; i++) {
        int s = i % SLOTS;
        bool was_active = requests[s] != MPI_REQUEST_NULL;
        gpu_buf_t *buf;

        MPI_OK(MPI_Wait(&requests[s], &status));
        if (!mt_sending && was_active) {
            buf = slot_of(numbers[s], mixed);
            if (!mt_expect_status(&status, mt_peer, TAG, size_of(numbers[s])) ||
                !mt_expect_message(buf, (uint64_t)numbers[s], size_of(numbers[s])))
                break;
        }
        if (i >= messages)
            continue;
        buf = slot_of(i, mixed);
        numbers[s] = i;
        if (mt_sending) {
            mt_fill(buf, (uint64_t)i, 0, size_of(i));
            if (i % 7 == 3)
                MPI_OK(MPI_Send(buf->ptr, (int)size_of(i), MPI_BYTE, mt_peer, TAG, mt_world));
            else if (i % 11 == 5)
                MPI_OK(MPI_Issend(buf->ptr, (int)size_of(i), MPI_BYTE, mt_peer, TAG, mt_world,
                                  &requests[s]));
            else
                MPI_OK(MPI_Isend(buf->ptr, (int)size_of(i), MPI_BYTE, mt_peer, TAG, mt_world,
                                 &requests[s]));
        } else {
            mt_clear(buf);
            if (i / 64 % 3 == 1 && i % 64 == 0)
                mt_sleep_ms(2); /* let some arrive before they are asked for */
            MPI_OK(MPI_Irecv(buf->ptr, (int)LARGEST, MPI_BYTE, source, tag, mt_world,
                             &requests[s]));
        }
    }
}

static void one_sender(void)
{
    static const struct {
        const char *name;
        bool mixed;
        bool any_source, any_tag;
    } ways[] = {{"one kind, exact", false, false, false},
                {"host and other mixed, exact", true, false, false},
                {"host and other mixed, any source and tag", true, true, true}};

    for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
        mt_case("order of messages: %s", ways[w].name);
        if (alloc_slots() && mt_peer >= 0)
            sequence(600 * mt_factor, ways[w].mixed, ways[w].any_source ? MPI_ANY_SOURCE : mt_peer,
                     ways[w].any_tag ? MPI_ANY_TAG : TAG);
        free_slots();
        mt_end();
    }
}

/* Receives with exact and wild tags posted in turn: a message goes to the first that fits. */
static void posted_order(void)
{
    enum { N = 12 };
    MPI_Request requests[N];
    MPI_Status statuses[N];

    mt_case("the first posted receive that fits gets the message");
    if (alloc_slots() && mt_peer >= 0 && mt_sending) {
        mt_sync_peer();
        for (int i = 0; i < N; i++) { /* tags 0 1 2 0 1 2 ... */
            mt_fill(&slots[1][i], (uint64_t)i, 0, i % 2 ? 100000 : 100);
            MPI_OK(MPI_Isend(slots[1][i].ptr, i % 2 ? 100000 : 100, MPI_BYTE, mt_peer, i % 3,
                             mt_world, &requests[i]));
        }
        MPI_OK(MPI_Waitall(N, requests, statuses));
    } else if (mt_ready() && mt_peer >= 0) {
        /* every receive of this order gets a message; which one follows from the order */
        static const int tags[N] = {0, ANY, ANY, 1, ANY, ANY, 2, ANY, ANY, 1, 2, 0};
        int gets[N];
        bool taken[N] = {false};

        for (int m = 0; m < N; m++)
            for (int r = 0; r < N; r++)
                if (!taken[r] && (tags[r] == ANY || tags[r] == m % 3)) {
                    taken[r] = true;
                    gets[r] = m;
                    break;
                }
        for (int r = 0; r < N; r++) {
            mt_clear(&slots[1][r]);
            MPI_OK(MPI_Irecv(slots[1][r].ptr, (int)LARGEST, MPI_BYTE,
                             r % 2 ? MPI_ANY_SOURCE : mt_peer,
                             tags[r] == ANY ? MPI_ANY_TAG : tags[r], mt_world, &requests[r]));
        }
        mt_sync_peer();
        MPI_OK(MPI_Waitall(N, requests, statuses));
        for (int r = 0; r < N; r++) {
            mt_expect_status(&statuses[r], mt_peer, gets[r] % 3, gets[r] % 2 ? 100000 : 100);
            mt_expect_message(&slots[1][r], (uint64_t)gets[r], gets[r] % 2 ? 100000 : 100);
        }
    }
    free_slots();
    mt_end();
}

/* Everybody to rank 0 with MPI_ANY_SOURCE: nothing is lost, each sender's order is kept. */
static void many_senders(void)
{
    int each = 200 * mt_factor, *next = calloc((size_t)mt_size, sizeof(int));
    char kind = mt_rank == 0 ? mt_recv_kind : mt_send_kind;
    gpu_buf_t buf;

    mt_case("any source with %d senders", mt_size - 1);
    mt_alloc(&buf, kind, LARGEST);
    if (mt_ready() && mt_rank > 0) {
        for (int i = 0; i < each; i++) {
            mt_fill(&buf, (uint64_t)(i + 10000 * mt_rank), 0, size_of(i));
            MPI_OK(MPI_Send(buf.ptr, (int)size_of(i), MPI_BYTE, 0, TAG, mt_world));
        }
    } else if (mt_ready()) {
        for (int i = 0; i < each * (mt_size - 1); i++) {
            MPI_Status status;
            int from;

            mt_clear(&buf);
            MPI_OK(MPI_Recv(buf.ptr, (int)LARGEST, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, mt_world,
                            &status));
            from = status.MPI_SOURCE;
            if (!CHECK(from > 0 && from < mt_size, "a message from rank %d", from))
                break;
            mt_expect_status(&status, from, TAG, size_of(next[from]));
            mt_expect_message(&buf, (uint64_t)(next[from] + 10000 * from), size_of(next[from]));
            next[from]++;
        }
        for (int r = 1; r < mt_size; r++)
            CHECK(next[r] == each, "%d of %d messages of rank %d", next[r], each, r);
    }
    mt_free(&buf);
    mt_end();
    free(next);
}

/* The same tag and ranks in another communicator are another queue. */
static void communicators(void)
{
    MPI_Comm other;
    MPI_Request requests[8];
    MPI_Status status;

    mt_case("communicators do not mix");
    MPI_Comm_dup(mt_world, &other);
    if (alloc_slots() && mt_peer >= 0 && mt_sending) {
        for (int i = 0; i < 8; i++)
            mt_fill(&slots[1][i], (uint64_t)i, 0, i % 4 > 1 ? 70000 : 64);
        for (int i = 0; i < 8; i++)
            MPI_OK(MPI_Isend(slots[1][i].ptr, 64, MPI_BYTE, mt_peer, TAG, i % 2 ? other : mt_world,
                             &requests[i]));
        MPI_OK(MPI_Waitall(8, requests, MPI_STATUSES_IGNORE));
    } else if (mt_ready() && mt_peer >= 0) {
        for (int i = 0; i < 8; i++) { /* all of one, then all of the other */
            int number = i < 4 ? 2 * i + 1 : 2 * (i - 4);

            mt_clear(&slots[1][0]);
            MPI_OK(MPI_Recv(slots[1][0].ptr, 64, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
                            i < 4 ? other : mt_world, &status));
            mt_expect_message(&slots[1][0], (uint64_t)number, 64);
        }
    }
    MPI_Comm_free(&other);
    free_slots();
    mt_end();
}

static void pair(void)
{
    one_sender();
    posted_order();
    many_senders();
    communicators();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "ordering", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
