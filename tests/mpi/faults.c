/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CUDA calls fail inside Grail (simulated driver only). Arguments: FAULTS RANKS, as CUDASIM_FAIL's
 * value and "0", "1" or "both". The faults are armed when buffers exist and contexts are current,
 * so that they hit Grail and not this program. Each message must then be right, or end in an MPI
 * error on the side or sides that cannot go on; nothing may hang. Later messages without faults are
 * judged the same, and counted.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/common/mpitest.h"

static const size_t sizes[] = {8, 4096, 65537, (size_t)3 << 20};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST ((size_t)3 << 20)

static const char *spec = "", *ranks = "both";
static int (*set_faults)(const char *);
static gpu_buf_t buffer;

static void arm(bool on)
{
    bool mine = strcmp(ranks, "both") == 0 || atoi(ranks) == mt_rank % 2;

    if (mine)
        CHECK(set_faults(on ? spec : "") == 0, "bad faults '%s'", spec);
}

enum { TAG = 1, TAG_VERDICT = 2 };

/* A send that failed at once may leave nothing to receive: then the receive is cancelled. */
static int receive(int count, MPI_Datatype type)
{
    MPI_Request request, verdict;
    MPI_Status status;
    int result, sent = 1, done = 0, told = 0, cancelled = 0;
    double until = 0;

    MPI_Irecv(&sent, 1, MPI_INT, mt_peer, TAG_VERDICT, mt_side, &verdict);
    result = MPI_Irecv(buffer.ptr, count, type, mt_peer, TAG, mt_world, &request);
    while (result == MPI_SUCCESS && !done) {
        result = MPI_Test(&request, &done, &status);
        if (!told) {
            MPI_Test(&verdict, &told, MPI_STATUS_IGNORE);
            until = mt_now() + 1;
        }
        if (told && !sent && !done && mt_now() > until) {
            MPI_Cancel(&request);
            result = MPI_Wait(&request, &status);
            MPI_Test_cancelled(&status, &cancelled);
            done = 1;
        }
    }
    MPI_Wait(&verdict, MPI_STATUS_IGNORE);
    return result == MPI_SUCCESS && !cancelled;
}

/* Returns 1 delivered, 0 refused on this side. */
static int message(size_t n, bool sending, MPI_Datatype type, int count, uint64_t seed, bool armed)
{
    int ok;

    if (sending)
        mt_fill(&buffer, seed, 0, LARGEST);
    else
        mt_clear(&buffer);
    mt_sync_peer();
    if (armed)
        arm(true);
    if (sending) {
        ok = MPI_Send(buffer.ptr, count, type, mt_peer, TAG, mt_world) == MPI_SUCCESS;
        MPI_Send(&ok, 1, MPI_INT, mt_peer, TAG_VERDICT, mt_side);
    } else {
        ok = receive(count, type);
    }
    if (armed)
        arm(false);
    if (!sending && ok && n > 0)
        mt_expect(&buffer, seed, 0, n);
    return ok;
}

static void all(bool armed, int *delivered, int *refused)
{
    MPI_Datatype blocks;

    for (size_t i = 0; i < 2 * SIZES; i++) {
        int ok = message(sizes[i / 2], mt_sending == (i % 2 == 0), MPI_BYTE, (int)sizes[i / 2], i,
                         armed);

        *(ok ? delivered : refused) += 1;
    }
    MPI_Type_vector(1000, 1, 3, MPI_INT, &blocks); /* kernels */
    MPI_Type_commit(&blocks);
    *(message(4, mt_sending, blocks, 10, 99, armed) ? delivered : refused) += 1;
    MPI_Type_free(&blocks);
}

static void pair(void)
{
    int counts[4] = {0}, sums[4];

    mt_case("%s on %s: right or refused", spec, ranks);
    if (!gpu_driver())
        mt_skip("%s", gpu_why());
    else
        set_faults = (int (*)(const char *))dlsym(gpu_driver()->library, "cudasim_set_faults");
    if (gpu_driver() && !set_faults)
        mt_skip("faults need the simulated driver");
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, LARGEST);
    if (mt_ready() && mt_peer >= 0) {
        all(true, &counts[0], &counts[1]);
        all(false, &counts[2], &counts[3]);
    }
    MPI_Allreduce(counts, sums, 4, MPI_INT, MPI_SUM, mt_side);
    if (mt_rank == 0)
        printf("# %s on %s: %d delivered, %d refused; afterwards %d delivered, %d refused\n", spec,
               ranks, sums[0], sums[1], sums[2], sums[3]);
    mt_free(&buffer);
    mt_end();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "faults", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    if (argc > 1)
        spec = argv[1];
    if (argc > 2)
        ranks = argv[2];
    mt_each_pair(pair);
    return mt_finish();
}
