/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Halo exchange with device buffers: plain MPI and the CUDA driver API, nothing of Grail's.
 *
 * A field of ROWS x (ranks * COLUMNS) numbers lies on the GPUs, a block of columns on each rank,
 * with one more column on either side for a copy of the neighbour's edge (the halo). The ranks form
 * a ring. A column of a row-major array is not contiguous, so it is sent as an MPI_Type_vector, out
 * of device memory and into device memory: no staging buffer, no copy in this program.
 *
 *   mpicc -I/usr/local/cuda/include examples/halo.c -o halo -lcuda
 *   mpirun --mca pml grail -np 2 ./halo
 *
 * It ends with one line, and with status 1 if a number in a halo is not its neighbour's. With the
 * CUDA runtime, cudaSetDevice() and cudaMalloc() stand for start_gpu() and cuMemAlloc().
 */
#include <cuda.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 512, COLUMNS = 256, WIDTH = COLUMNS + 2, STEPS = 10 };

/* An error of CUDA's ends the job; MPI's do so by themselves. */
static void check(CUresult result, const char *what)
{
    const char *name = "an unknown error";

    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    fprintf(stderr, "halo: %s: %s\n", what, name);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The ranks of a node take its GPUs in turn. */
static CUdevice start_gpu(void)
{
    MPI_Comm node;
    CUcontext context;
    CUdevice device;
    int local, count;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local);
    MPI_Comm_free(&node);

    check(cuInit(0), "cuInit");
    check(cuDeviceGetCount(&count), "cuDeviceGetCount");
    if (count == 0)
        check(CUDA_ERROR_NO_DEVICE, "cuDeviceGetCount");
    check(cuDeviceGet(&device, local % count), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    return device;
}

/* Of the whole field, different in every place and every step. */
static double value(int step, int row, int column)
{
    return step + 1e-3 * row + 1e3 * column;
}

/* Stands for the kernel that computes a step: new numbers in the block, none in the halos. */
static void compute(CUdeviceptr field, double *host, int step, int first_column)
{
    for (int row = 0; row < ROWS; row++) {
        host[row * WIDTH] = host[row * WIDTH + WIDTH - 1] = -1;
        for (int column = 0; column < COLUMNS; column++)
            host[row * WIDTH + 1 + column] = value(step, row, first_column + column);
    }
    check(cuMemcpyHtoD(field, host, sizeof(double) * ROWS * WIDTH), "cuMemcpyHtoD");
    /* MPI must find the numbers there: what was queued on the GPU has to end first */
    check(cuCtxSynchronize(), "cuCtxSynchronize");
}

/* MPI takes the device pointer as it takes any other. */
static void exchange(CUdeviceptr field, MPI_Datatype edge, int left, int right)
{
    double *at = (double *)(uintptr_t)field;

    MPI_Sendrecv(at + COLUMNS, 1, edge, right, 0, at, 1, edge, left, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(at + 1, 1, edge, left, 1, at + COLUMNS + 1, 1, edge, right, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

static long count_wrong(CUdeviceptr field, double *host, int step, int left, int right)
{
    long wrong = 0;

    check(cuMemcpyDtoH(host, field, sizeof(double) * ROWS * WIDTH), "cuMemcpyDtoH");
    for (int row = 0; row < ROWS; row++) {
        wrong += host[row * WIDTH] != value(step, row, left * COLUMNS + COLUMNS - 1);
        wrong += host[row * WIDTH + WIDTH - 1] != value(step, row, right * COLUMNS);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    long wrong = 0, all_wrong;
    int rank, ranks, left, right;
    MPI_Datatype edge;
    CUdeviceptr field;
    CUdevice device;
    double *host;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    left = (rank + ranks - 1) % ranks;
    right = (rank + 1) % ranks;

    device = start_gpu();
    check(cuMemAlloc(&field, sizeof(double) * ROWS * WIDTH), "cuMemAlloc");
    host = malloc(sizeof(double) * ROWS * WIDTH);
    if (host == NULL)
        check(CUDA_ERROR_OUT_OF_MEMORY, "malloc");
    MPI_Type_vector(ROWS, 1, WIDTH, MPI_DOUBLE, &edge);
    MPI_Type_commit(&edge);

    for (int step = 0; step < STEPS; step++) {
        compute(field, host, step, rank * COLUMNS);
        exchange(field, edge, left, right);
        wrong += count_wrong(field, host, step, left, right);
    }

    /* a sum on host memory: collectives that compute take no device buffers */
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all_wrong == 0)
        printf("halo: %d ranks, %d steps: every halo is right\n", ranks, STEPS);
    else if (rank == 0)
        printf("halo: %d ranks, %d steps: %ld numbers are WRONG\n", ranks, STEPS, all_wrong);

    MPI_Type_free(&edge);
    free(host);
    cuMemFree(field);
    MPI_Finalize();
    cuDevicePrimaryCtxRelease(device);
    return all_wrong != 0;
}
