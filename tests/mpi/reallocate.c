/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers are freed and allocated again between messages, often at the same address: whatever was
 * remembered of the old one (mappings, registrations, kinds) must not be used for the new.
 */
#include <stdlib.h>

#include "tests/common/mpitest.h"

#define ROUNDS 60
enum { TAG = 40 };

static void *addresses[1024];
static int address_count, reused;

static void remember(const void *address)
{
    for (int i = 0; i < address_count; i++)
        if (addresses[i] == address) {
            reused++;
            return;
        }
    if (address_count < 1024)
        addresses[address_count++] = (void *)address;
}

static size_t size_of(int round)
{
    static const size_t sizes[] = {65537, (size_t)1 << 20, 4096, (size_t)3 << 20, 300000};

    return sizes[round / 3 % 5];
}

static void message(gpu_buf_t *b, int round, size_t n)
{
    if (mt_sending) {
        mt_fill(b, (uint64_t)round, 0, n);
        MPI_OK(MPI_Send(b->ptr, (int)n, MPI_BYTE, mt_peer, TAG, mt_world));
    } else {
        mt_clear(b);
        MPI_OK(MPI_Recv(b->ptr, (int)n, MPI_BYTE, mt_peer, TAG, mt_world, MPI_STATUS_IGNORE));
        mt_expect_message(b, (uint64_t)round, n);
    }
}

/* fresh: which side has a new buffer each round, 1 sender, 2 receiver, 3 both. */
static void rounds(int fresh, const char *name)
{
    char kind = mt_sending ? mt_send_kind : mt_recv_kind;
    bool mine = fresh & (mt_sending ? 1 : 2), ok;
    gpu_buf_t b;

    mt_case("new buffers each round: %s", name);
    address_count = reused = 0;
    ok = mt_alloc(&b, kind, (size_t)3 << 20);
    for (int round = 0; mt_ready() && mt_peer >= 0 && ok && round < ROUNDS * mt_factor; round++) {
        if (mine) {
            mt_free(&b);
            ok = mt_alloc(&b, kind, size_of(round));
            remember(b.base);
        }
        if (!ok)
            break;
        message(&b, round, size_of(round));
    }
    if (mt_ready() && mine)
        mt_note("rank %d: %d of %d buffers were at an address used before", mt_rank, reused,
                ROUNDS * mt_factor);
    mt_free(&b);
    mt_end();
}

/* The same address is now of this kind, now of another. */
static void changing_kind(void)
{
    char kind = mt_sending ? mt_send_kind : mt_recv_kind;
    gpu_buf_t b;
    bool ok = true;

    mt_case("host and other buffers in turn");
    if (mt_alloc(&b, kind, 4096))
        mt_free(&b);
    for (int round = 0; mt_ready() && mt_peer >= 0 && ok && round < ROUNDS * mt_factor; round++) {
        ok = mt_alloc(&b, round % 2 ? 'H' : kind, size_of(round));
        if (ok)
            message(&b, round, size_of(round));
        mt_free(&b);
    }
    mt_end();
}

/* The receiver keeps the mapping of a buffer that the sender has freed; memory must come back. */
static void memory_comes_back(void)
{
    const size_t n = (size_t)48 << 20;
    char kind = mt_sending ? mt_send_kind : mt_recv_kind;
    gpu_buf_t b;
    bool ok = true;

    mt_case("freed buffers of 48 MiB give their memory back");
    if (mt_alloc(&b, kind, 4096))
        mt_free(&b);
    for (int round = 0; mt_ready() && mt_peer >= 0 && ok && round < 20; round++) {
        ok = mt_alloc(&b, kind, n);
        if (ok)
            message(&b, round, (size_t)1 << 20);
        mt_free(&b);
    }
    mt_end();
}

static void pair(void)
{
    rounds(1, "of the sender");
    rounds(2, "of the receiver");
    rounds(3, "of both");
    changing_kind();
    memory_comes_back();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "reallocate", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
