/* SPDX-License-Identifier: BSD-3-Clause */
/* Wrong calls return their error class, and messages still flow afterwards. */
#include <stdlib.h>

#include "tests/common/mpitest.h"

#define BYTES ((size_t)65536)
enum { TAG = 5 };

static gpu_buf_t buffer;
static uint64_t seed = 1;

static bool begin(void)
{
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, BYTES);
    return mt_ready() && mt_peer >= 0;
}

/* Small and large messages, both ways. */
static void traffic(void)
{
    for (size_t n = 8; n <= BYTES; n *= 16) {
        for (int way = 0; way < 2; way++) {
            seed++;
            if (mt_sending == (way == 0)) {
                mt_fill(&buffer, seed, 0, n);
                MPI_OK(MPI_Send(buffer.ptr, (int)n, MPI_BYTE, mt_peer, TAG, mt_world));
            } else {
                mt_clear(&buffer);
                MPI_OK(MPI_Recv(buffer.ptr, (int)n, MPI_BYTE, mt_peer, TAG, mt_world,
                                MPI_STATUS_IGNORE));
                mt_expect_message(&buffer, seed, n);
            }
        }
    }
}

static void end(bool ran)
{
    if (ran)
        traffic();
    mt_free(&buffer);
    mt_end();
}

static void arguments(void)
{
    bool run;
    MPI_Request request;
    int flag, *tag_bound;

    mt_case("wrong arguments");
    run = begin();
    if (run) {
        void *p = buffer.ptr;

        MPI_FAILS(MPI_Send(p, -1, MPI_BYTE, mt_peer, TAG, mt_world), MPI_ERR_COUNT);
        MPI_FAILS(MPI_Send(p, 1, MPI_BYTE, mt_size, TAG, mt_world), MPI_ERR_RANK);
        MPI_FAILS(MPI_Send(p, 1, MPI_BYTE, MPI_ANY_SOURCE, TAG, mt_world), MPI_ERR_RANK);
        MPI_FAILS(MPI_Send(p, 1, MPI_BYTE, mt_peer, -5, mt_world), MPI_ERR_TAG);
        MPI_FAILS(MPI_Send(p, 1, MPI_DATATYPE_NULL, mt_peer, TAG, mt_world), MPI_ERR_TYPE);
        MPI_FAILS(MPI_Isend(p, 1, MPI_BYTE, -7, TAG, mt_world, &request), MPI_ERR_RANK);
        MPI_FAILS(MPI_Irecv(p, -1, MPI_BYTE, mt_peer, TAG, mt_world, &request), MPI_ERR_COUNT);
        MPI_FAILS(MPI_Recv(p, 1, MPI_BYTE, mt_size + 3, TAG, mt_world, MPI_STATUS_IGNORE),
                  MPI_ERR_RANK);
        MPI_FAILS(MPI_Iprobe(mt_size, TAG, mt_world, &flag, MPI_STATUS_IGNORE), MPI_ERR_RANK);
        MPI_OK(MPI_Comm_get_attr(mt_world, MPI_TAG_UB, &tag_bound, &flag));
        CHECK(flag && *tag_bound >= 32767, "MPI_TAG_UB is below what MPI promises");
    }
    end(run);
}

/* The largest tag travels whole. */
static void largest_tag(void)
{
    int flag, *bound;
    bool run;
    MPI_Status status;

    mt_case("the largest tag");
    run = begin();
    if (run) {
        MPI_OK(MPI_Comm_get_attr(mt_world, MPI_TAG_UB, &bound, &flag));
        for (int i = 0; i < 2; i++) {
            size_t n = i ? BYTES : 8;

            if (mt_sending) {
                mt_fill(&buffer, seed, 0, n);
                MPI_OK(MPI_Send(buffer.ptr, (int)n, MPI_BYTE, mt_peer, *bound, mt_world));
            } else {
                mt_clear(&buffer);
                MPI_OK(MPI_Recv(buffer.ptr, (int)n, MPI_BYTE, mt_peer, MPI_ANY_TAG, mt_world,
                                &status));
                mt_expect_status(&status, mt_peer, *bound, n);
                mt_expect_message(&buffer, seed, n);
            }
        }
    }
    end(run);
}

static void buffered(void)
{
    int size = 1024 + MPI_BSEND_OVERHEAD;
    void *attached = malloc((size_t)size), *detached;
    MPI_Request request;
    bool run;

    mt_case("buffered sends without a buffer, and without room in it");
    run = begin();
    if (run && mt_sending) {
        MPI_FAILS(MPI_Bsend(buffer.ptr, (int)BYTES, MPI_BYTE, mt_peer, TAG, mt_world),
                  MPI_ERR_BUFFER);
        MPI_OK(MPI_Buffer_attach(attached, size));
        MPI_FAILS(MPI_Bsend(buffer.ptr, (int)BYTES, MPI_BYTE, mt_peer, TAG, mt_world),
                  MPI_ERR_BUFFER);
        MPI_FAILS(MPI_Ibsend(buffer.ptr, (int)BYTES, MPI_BYTE, mt_peer, TAG, mt_world, &request),
                  MPI_ERR_BUFFER);
        MPI_OK(MPI_Buffer_detach(&detached, &size));
    }
    end(run);
    free(attached);
}

static void pair(void)
{
    arguments();
    largest_tag();
    buffered();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "errors", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
