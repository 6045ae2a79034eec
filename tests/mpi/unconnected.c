/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * No connection can be made between two ranks (unconnected.test sees to that): every operation ends
 * in an error, whichever kind of buffer comes first, receives that were posted before included.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/common/gpu.h"

#define BYTES 100000

static int failures;

/* An operation that never ends is ended by the script. */
static void expect_error(int result, const char *operation)
{
    if (result == MPI_SUCCESS)
        failures++;
    printf("%s: %s\n", operation, result == MPI_SUCCESS ? "no error" : "an error");
}

static void *buffer(char kind)
{
    gpu_buf_t b;

    if (gpu_buf_alloc(&b, kind, BYTES, 0) != GPU_OK) {
        fprintf(stderr, "%s\n", gpu_why());
        exit(77);
    }
    return b.ptr;
}

int main(int argc, char **argv)
{
    char first = argc > 1 ? argv[1][0] : 'D';
    MPI_Request posted;
    void *in, *out;
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    gpu_set_local_rank(rank);
    if (rank == 0) {
        in = buffer('H');
        out = buffer(first);
        MPI_Irecv(in, BYTES, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &posted);
        expect_error(MPI_Send(out, BYTES, MPI_BYTE, 1, 1, MPI_COMM_WORLD), "send");
        expect_error(MPI_Wait(&posted, MPI_STATUS_IGNORE), "posted receive");
        expect_error(MPI_Send(out, 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD), "another send");
        expect_error(MPI_Recv(in, BYTES, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                     "another receive");
    }
    fflush(stdout);
    MPI_Finalize();
    return failures != 0;
}
