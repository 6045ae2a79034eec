/* SPDX-License-Identifier: BSD-3-Clause */
/* Every send mode, blocking and nonblocking, with every way of receiving and completing. */
#include <stdlib.h>
#include <string.h>

#include "tests/common/mpitest.h"

enum { STANDARD, SYNCHRONOUS, READY, BUFFERED, MODES };
static const char *const mode_names[] = {"standard", "synchronous", "ready", "buffered"};

static const size_t sizes[] = {1, 64, 2048, 8192, 65537, (size_t)1 << 20, (size_t)3 << 20};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST ((size_t)3 << 20)

enum { TAG = 7 };
static gpu_buf_t buffer;
static uint64_t seed = 1000;

static int blocking(int mode, size_t n)
{
    switch (mode) {
    case SYNCHRONOUS:
        return MPI_Ssend(buffer.ptr, (int)n, MPI_BYTE, mt_peer, TAG, mt_world);
    case READY:
        return MPI_Rsend(buffer.ptr, (int)n, MPI_BYTE, mt_peer, TAG, mt_world);
    case BUFFERED:
        return MPI_Bsend(buffer.ptr, (int)n, MPI_BYTE, mt_peer, TAG, mt_world);
    default:
        return MPI_Send(buffer.ptr, (int)n, MPI_BYTE, mt_peer, TAG, mt_world);
    }
}

static int nonblocking(int mode, size_t n, MPI_Request *request)
{
    switch (mode) {
    case SYNCHRONOUS:
        return MPI_Issend(buffer.ptr, (int)n, MPI_BYTE, mt_peer, TAG, mt_world, request);
    case READY:
        return MPI_Irsend(buffer.ptr, (int)n, MPI_BYTE, mt_peer, TAG, mt_world, request);
    case BUFFERED:
        return MPI_Ibsend(buffer.ptr, (int)n, MPI_BYTE, mt_peer, TAG, mt_world, request);
    default:
        return MPI_Isend(buffer.ptr, (int)n, MPI_BYTE, mt_peer, TAG, mt_world, request);
    }
}

static void finish(MPI_Request *request, int how, MPI_Status *status)
{
    int flag = 0, index, count;

    switch (how % 4) {
    case 0:
        MPI_OK(MPI_Wait(request, status));
        break;
    case 1:
        while (!flag && MPI_OK(MPI_Test(request, &flag, status)))
            ;
        break;
    case 2:
        MPI_OK(MPI_Waitany(1, request, &index, status));
        CHECK(index == 0, "MPI_Waitany says index %d", index);
        break;
    default:
        MPI_OK(MPI_Waitsome(1, request, &count, &index, status));
        CHECK(count == 1 && index == 0, "MPI_Waitsome says %d, index %d", count, index);
    }
    CHECK(*request == MPI_REQUEST_NULL, "the request was not freed");
}

/* One message; the receive is posted first (early) or the message waits for it. */
static void transfer(int mode, size_t n, bool block_send, bool block_recv, bool early, int how)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;

    seed++;
    if (mt_sending) {
        mt_fill(&buffer, seed, 0, n);
        if (early)
            mt_sync_peer();
        if (block_send)
            MPI_OK(blocking(mode, n));
        else if (MPI_OK(nonblocking(mode, n, &request)))
            finish(&request, how, &status);
        /* the buffer is the program's again at once */
        gpu_set(&buffer, 0, 0x5c, n);
        return;
    }
    mt_clear(&buffer);
    if (block_recv && !early) {
        mt_sleep_ms(1);
        MPI_OK(MPI_Recv(buffer.ptr, (int)LARGEST, MPI_BYTE, mt_peer, TAG, mt_world, &status));
    } else {
        MPI_OK(MPI_Irecv(buffer.ptr, (int)LARGEST, MPI_BYTE, mt_peer, TAG, mt_world, &request));
        if (early)
            mt_sync_peer();
        finish(&request, how, &status);
    }
    mt_expect_status(&status, mt_peer, TAG, n);
    mt_expect_message(&buffer, seed, n);
}

static void all_modes(void)
{
    int attached_size = (int)(LARGEST + MPI_BSEND_OVERHEAD);
    void *attached = malloc((size_t)attached_size), *detached;

    for (int mode = 0; mode < MODES; mode++) {
        for (int block = 0; block < 2; block++) {
            mt_case("%s send, %s", mode_names[mode], block ? "blocking" : "nonblocking");
            mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, LARGEST);
            if (mt_ready() && mt_peer >= 0) {
                for (size_t i = 0; i < SIZES; i++) {
                    if (mode == BUFFERED && mt_sending)
                        MPI_OK(MPI_Buffer_attach(attached, attached_size));
                    transfer(mode, sizes[i], block, block, true, (int)i);
                    if (mode == BUFFERED && mt_sending)
                        MPI_OK(MPI_Buffer_detach(&detached, &attached_size));
                    if (mode == READY)
                        continue; /* needs a posted receive */
                    if (mode == BUFFERED && mt_sending)
                        MPI_OK(MPI_Buffer_attach(attached, attached_size));
                    transfer(mode, sizes[i], block, block, false, (int)i + 1);
                    if (mode == BUFFERED && mt_sending)
                        MPI_OK(MPI_Buffer_detach(&detached, &attached_size));
                }
            }
            mt_free(&buffer);
            mt_end();
        }
    }
    free(attached);
}

/* A synchronous send must not complete before its message is matched, whatever its size. */
static void really_synchronous(void)
{
    mt_case("a synchronous send waits for its match");
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, LARGEST);
    for (size_t i = 0; mt_ready() && mt_peer >= 0 && i < SIZES; i++) {
        MPI_Request request;
        MPI_Status status;
        int flag = 0;

        if (mt_sending) {
            double until = mt_now() + 0.02;

            mt_fill(&buffer, seed + i, 0, sizes[i]);
            MPI_OK(nonblocking(SYNCHRONOUS, sizes[i], &request));
            while (!flag && mt_now() < until)
                MPI_OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
            CHECK(!flag, "%zu bytes: complete before any receive was posted", sizes[i]);
            mt_sync_peer();
            MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        } else {
            mt_clear(&buffer);
            mt_sync_peer();
            MPI_OK(MPI_Recv(buffer.ptr, (int)LARGEST, MPI_BYTE, mt_peer, TAG, mt_world, &status));
            mt_expect_status(&status, mt_peer, TAG, sizes[i]);
            mt_expect_message(&buffer, seed + i, sizes[i]);
        }
    }
    seed += SIZES;
    mt_free(&buffer);
    mt_end();
}

/* MPI_Buffer_detach returns when the messages have left: the buffer may be destroyed then. */
static void detach_waits(void)
{
    const int n = 1 << 20, messages = 3;
    int size = messages * (n + MPI_BSEND_OVERHEAD);
    void *attached = malloc((size_t)size), *detached;

    mt_case("detaching the buffer waits for its messages");
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, (size_t)n);
    if (mt_ready() && mt_peer >= 0 && mt_sending) {
        MPI_OK(MPI_Buffer_attach(attached, size));
        for (int i = 0; i < messages; i++) {
            mt_fill(&buffer, seed + (uint64_t)i, 0, (size_t)n);
            MPI_OK(MPI_Bsend(buffer.ptr, n, MPI_BYTE, mt_peer, TAG, mt_world));
        }
        MPI_OK(MPI_Buffer_detach(&detached, &size));
        CHECK(detached == attached, "another buffer was detached");
        memset(attached, 0xee, (size_t)size);
        mt_sync_peer();
    } else if (mt_ready() && mt_peer >= 0) {
        mt_sleep_ms(30);
        for (int i = 0; i < messages; i++) {
            mt_clear(&buffer);
            MPI_OK(MPI_Recv(buffer.ptr, n, MPI_BYTE, mt_peer, TAG, mt_world, MPI_STATUS_IGNORE));
            mt_expect_message(&buffer, seed + (uint64_t)i, (size_t)n);
        }
        mt_sync_peer();
    }
    seed += (uint64_t)messages;
    mt_free(&buffer);
    mt_end();
    free(attached);
}

/* A request may be freed while its message is on the way; the message still arrives. */
static void freed_request(void)
{
    mt_case("a freed send request still delivers");
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, LARGEST);
    for (size_t i = 0; mt_ready() && mt_peer >= 0 && i < SIZES; i++) {
        MPI_Request request;

        if (mt_sending) {
            mt_fill(&buffer, seed + i, 0, sizes[i]);
            MPI_OK(nonblocking(STANDARD, sizes[i], &request));
            MPI_OK(MPI_Request_free(&request));
            CHECK(request == MPI_REQUEST_NULL, "the request is not null");
            mt_sync_peer(); /* only then is the buffer free again */
        } else {
            mt_clear(&buffer);
            MPI_OK(MPI_Recv(buffer.ptr, (int)LARGEST, MPI_BYTE, mt_peer, TAG, mt_world,
                            MPI_STATUS_IGNORE));
            mt_expect_message(&buffer, seed + i, sizes[i]);
            mt_sync_peer();
        }
    }
    seed += SIZES;
    mt_free(&buffer);
    mt_end();
}

/* MPI_Request_get_status tells without freeing. */
static void get_status(void)
{
    MPI_Request request;
    MPI_Status status;
    int flag = 1;

    mt_case("MPI_Request_get_status");
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, 4096);
    if (mt_ready() && mt_peer >= 0 && mt_sending) {
        mt_fill(&buffer, seed, 0, 4096);
        mt_sync_peer();
        MPI_OK(MPI_Send(buffer.ptr, 4096, MPI_BYTE, mt_peer, TAG, mt_world));
    } else if (mt_ready() && mt_peer >= 0) {
        MPI_OK(MPI_Irecv(buffer.ptr, 4096, MPI_BYTE, mt_peer, TAG, mt_world, &request));
        MPI_OK(MPI_Request_get_status(request, &flag, &status));
        CHECK(!flag, "complete before anything was sent");
        mt_sync_peer();
        do
            MPI_OK(MPI_Request_get_status(request, &flag, &status));
        while (!flag);
        mt_expect_status(&status, mt_peer, TAG, 4096);
        CHECK(request != MPI_REQUEST_NULL, "the request was freed");
        MPI_OK(MPI_Wait(&request, &status));
        mt_expect_message(&buffer, seed, 4096);
    }
    seed++;
    mt_free(&buffer);
    mt_end();
}

static void pair(void)
{
    all_modes();
    really_synchronous();
    detach_waits();
    freed_request();
    get_status();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "p2p_modes", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
