/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every pair of buffer kinds at sizes around each protocol boundary: the receive posted first and
 * the message first, aligned and not, both ways at once.
 * Arguments: largest size in bytes (8 MiB); "brief" for fewer sizes; "window" for several messages of
 * the largest size at once both ways instead.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/common/mpitest.h"

static const size_t all_sizes[] = {0,     1,     7,     8,      9,      255,     256,    257,
                                   1023,  1024,  2047,  2048,   2049,   4095,    4096,   4097,
                                   8191,  8192,  8193,  16383,  16384,  16385,   32767,  32768,
                                   32769, 65535, 65536, 65537,  131072, 131073,  262144, 524287,
                                   (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (2 << 20) + 3,
                                   (4 << 20) - 4, 8 << 20};
static const size_t brief_sizes[] = {0,     1,     8,    257,           4097,    8192,
                                     8193,  65535, 65537, (1 << 20) - 1, (1 << 20) + 1, 8 << 20};

static size_t largest = (size_t)8 << 20;
static const size_t *sizes = all_sizes;
static size_t size_count = sizeof(all_sizes) / sizeof(all_sizes[0]);

enum { TAG = 30, MOST_OFFSET = 16 };
static gpu_buf_t buffer;
static uint64_t seed;

static void expect_at(size_t offset, size_t n, int tag, const MPI_Status *status)
{
    mt_expect_status(status, mt_peer, tag, n);
    mt_expect_untouched(&buffer, -(ptrdiff_t)MT_GUARD, MT_GUARD + offset);
    mt_expect(&buffer, seed, offset, n);
    mt_expect_untouched(&buffer, (ptrdiff_t)(offset + n), MT_GUARD);
}

static void one(size_t n, bool posted, size_t offset)
{
    MPI_Request request;
    MPI_Status status;

    seed++;
    if (mt_sending) {
        mt_fill(&buffer, seed, offset, n);
        if (posted)
            mt_sync_peer();
        MPI_OK(MPI_Send(buffer.ptr + offset, (int)n, MPI_BYTE, mt_peer, TAG, mt_world));
        if (!posted)
            mt_sync_peer();
        return;
    }
    gpu_set(&buffer, -(ptrdiff_t)MT_GUARD, 0xA5, MT_GUARD + offset + n + MT_GUARD);
    if (posted) {
        MPI_OK(MPI_Irecv(buffer.ptr + offset, (int)n, MPI_BYTE, mt_peer, TAG, mt_world, &request));
        mt_sync_peer();
        MPI_OK(MPI_Wait(&request, &status));
    } else {
        MPI_OK(MPI_Probe(mt_peer, TAG, mt_world, &status));
        MPI_OK(MPI_Recv(buffer.ptr + offset, (int)n, MPI_BYTE, mt_peer, TAG, mt_world, &status));
        mt_sync_peer();
    }
    expect_at(offset, n, TAG, &status);
}

static void sizes_in_turn(void)
{
    mt_case("every size");
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, largest + MOST_OFFSET);
    for (size_t i = 0; mt_ready() && mt_peer >= 0 && i < size_count; i++) {
        if (sizes[i] > largest)
            continue;
        one(sizes[i], true, 0);
        one(sizes[i], false, 0);
        one(sizes[i], i % 2, mt_sending ? i % 5 : (i + 2) % 7); /* other alignment on each side */
    }
    mt_free(&buffer);
    mt_end();
}

/* Each side sends to the other out of one half of its buffer into the other half. */
static void both_ways(void)
{
    size_t most = (size_t)1 << 20, half = most + MT_GUARD;

    mt_case("both ways at once");
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, 2 * half);
    for (size_t i = 0; mt_ready() && mt_peer >= 0 && i < size_count; i++) {
        size_t n = sizes[i];
        MPI_Status status;

        if (n > most)
            continue;
        seed += 2;
        gpu_set(&buffer, (ptrdiff_t)half, 0xA5, half);
        mt_fill(&buffer, seed + (mt_sending ? 0 : 1), 0, n);
        MPI_OK(MPI_Sendrecv(buffer.ptr, (int)n, MPI_BYTE, mt_peer, TAG + 1, buffer.ptr + half,
                            (int)n, MPI_BYTE, mt_peer, TAG + 1, mt_world, &status));
        mt_expect_status(&status, mt_peer, TAG + 1, n);
        mt_expect(&buffer, seed + (mt_sending ? 1 : 0), half, n);
        mt_expect(&buffer, seed + (mt_sending ? 0 : 1), 0, n);
        mt_expect_untouched(&buffer, (ptrdiff_t)(half + n), MT_GUARD);
    }
    mt_free(&buffer);
    mt_end();
}

/* All of both sides' staging memory is in use for sends when the first piece is to be received. */
static void window_both_ways(void)
{
    enum { WINDOW = 4, ROUNDS = 3 };
    MPI_Request requests[2 * WINDOW];

    mt_case("%d messages at once both ways", WINDOW);
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, 2 * WINDOW * largest);
    for (int i = 0; mt_ready() && mt_peer >= 0 && i < ROUNDS; i++) {
        for (int j = 0; j < WINDOW; j++) {
            mt_fill(&buffer, seed + (uint64_t)(2 * j + mt_sending), (size_t)j * largest, largest);
            MPI_OK(MPI_Irecv(buffer.ptr + (size_t)(WINDOW + j) * largest, (int)largest, MPI_BYTE,
                             mt_peer, TAG, mt_world, &requests[j]));
        }
        for (int j = 0; j < WINDOW; j++)
            MPI_OK(MPI_Isend(buffer.ptr + (size_t)j * largest, (int)largest, MPI_BYTE, mt_peer, TAG,
                             mt_world, &requests[WINDOW + j]));
        MPI_OK(MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE));
        for (int j = 0; j < WINDOW; j++)
            mt_expect(&buffer, seed + (uint64_t)(2 * j + !mt_sending),
                      (size_t)(WINDOW + j) * largest, largest);
        seed += 2 * WINDOW;
    }
    mt_free(&buffer);
    mt_end();
}

static bool window;

static void pair(void)
{
    if (window) {
        window_both_ways();
        return;
    }
    sizes_in_turn();
    both_ways();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "kinds", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "window") == 0) {
            window = true;
        } else if (strcmp(argv[i], "brief") == 0) {
            sizes = brief_sizes;
            size_count = sizeof(brief_sizes) / sizeof(brief_sizes[0]);
        } else {
            largest = strtoull(argv[i], NULL, 10);
        }
    }
    mt_each_pair(pair);
    return mt_finish();
}
