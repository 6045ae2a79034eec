/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators made and freed 10,000 times without growth, with messages in them; and messages to
 * a communicator whose receiver is late to make it.
 */
#include <stdlib.h>

#include "tests/common/mpitest.h"

#define TIMES 10000
#define SETTLED 2000 /* allocators and free lists have their size by then */
#define BYTES ((size_t)65537)
/* Less than one byte a communicator would be leaked by accident. */
#define GROWTH_ALLOWED ((size_t)4 << 20)
enum { TAG = 14 };

static gpu_buf_t buffer;

static void ring(MPI_Comm comm, size_t n, uint64_t seed)
{
    int me, size;

    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &size);
    if (size < 2 || (me ^ 1) >= size)
        return;
    if (me % 2 == 0) {
        mt_fill(&buffer, seed, 0, n);
        MPI_OK(MPI_Send(buffer.ptr, (int)n, MPI_BYTE, me + 1, TAG, comm));
    } else {
        MPI_OK(MPI_Recv(buffer.ptr, (int)BYTES, MPI_BYTE, MPI_ANY_SOURCE, TAG, comm,
                        MPI_STATUS_IGNORE));
        mt_expect(&buffer, seed, 0, n);
    }
}

static void churn(const char *name, bool split)
{
    size_t before = 0, after, device_before = 0;

    mt_case("%s and free %d times without growth", name, TIMES);
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, BYTES);
    for (int i = 0; mt_ready() && i < TIMES; i++) {
        MPI_Comm comm;

        if (i == SETTLED) {
            before = mt_resident();
            device_before = gpu_free_memory();
        }
        if (split)
            MPI_OK(MPI_Comm_split(mt_world, mt_rank / 2, -mt_rank, &comm));
        else
            MPI_OK(MPI_Comm_dup(mt_world, &comm));
        if (i % 10 == 0)
            ring(comm, i % 100 ? 64 : BYTES, (uint64_t)i);
        MPI_OK(MPI_Comm_free(&comm));
    }
    if (mt_ready()) {
        after = mt_resident();
        CHECK(after < before + GROWTH_ALLOWED, "grew by %zu KiB", (after - before) / 1024);
        CHECK(gpu_free_memory() + GROWTH_ALLOWED >= device_before,
              "device memory shrank by %zu KiB", (device_before - gpu_free_memory()) / 1024);
    }
    mt_free(&buffer);
    mt_end();
}

/* Rank 0 leaves MPI_Comm_create_group as soon as its part is done and sends at once; the others
 * make the communicator while its messages come in. */
static void early_messages(void)
{
    mt_case("messages before the receiver has the communicator");
    mt_alloc(&buffer, mt_rank == 0 ? mt_send_kind : mt_recv_kind, BYTES);
    for (int i = 0; mt_ready() && i < 300 * mt_factor; i++) {
        size_t n = i % 3 ? 100 : BYTES;
        MPI_Comm comm;
        MPI_Request request;
        int flag = 0;

        if (mt_rank == 0)
            mt_fill(&buffer, (uint64_t)i, 0, n);
        MPI_OK(MPI_Comm_idup(mt_world, &comm, &request));
        while (!flag) {
            MPI_OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
            if (mt_rank > 0 && i % 5 == 0)
                mt_sleep_ms(1);
        }
        if (mt_rank == 0) {
            MPI_Request *requests = malloc((size_t)mt_size * sizeof(MPI_Request));

            for (int r = 1; r < mt_size; r++)
                MPI_OK(MPI_Isend(buffer.ptr, (int)n, MPI_BYTE, r, TAG, comm, &requests[r - 1]));
            MPI_OK(MPI_Waitall(mt_size - 1, requests, MPI_STATUSES_IGNORE));
            free(requests);
        } else {
            mt_clear(&buffer);
            MPI_OK(MPI_Recv(buffer.ptr, (int)BYTES, MPI_BYTE, 0, TAG, comm, MPI_STATUS_IGNORE));
            mt_expect_message(&buffer, (uint64_t)i, n);
        }
        MPI_OK(MPI_Comm_free(&comm));
    }
    mt_free(&buffer);
    mt_end();
}

static void pair(void)
{
    churn("duplicate", false);
    churn("split", true);
    early_messages();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "communicators", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
