/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives that only move data copy a rank's own part inside Open MPI, on any memory. */
#include <stdlib.h>
#include <string.h>

#include "tests/common/mpitest.h"

static const size_t sizes[] = {1, 13, 4096, 100003};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static gpu_buf_t source, target;

static unsigned char value(int rank, size_t i)
{
    return (unsigned char)(rank * 31 + (int)(i * 7 % 251));
}

static void fill(size_t n)
{
    unsigned char *bytes = malloc(n);

    for (size_t i = 0; i < n; i++)
        bytes[i] = value(mt_rank, i);
    gpu_write(&source, 0, bytes, n);
    free(bytes);
    mt_clear(&target);
}

/* Part `i` of the target, n bytes, is what rank `rank` has at `from`. */
static void check(int i, size_t n, int rank, size_t from)
{
    unsigned char *bytes = malloc(n);
    size_t wrong = 0;

    gpu_read(&target, (ptrdiff_t)((size_t)i * n), bytes, n);
    for (size_t k = 0; k < n; k++)
        wrong += bytes[k] != value(rank, from + k);
    CHECK(wrong == 0, "%zu of %zu bytes from rank %d are wrong", wrong, n, rank);
    free(bytes);
}

static bool begin(size_t n)
{
    if (mt_alloc(&source, mt_send_kind, n * (size_t)mt_size))
        mt_alloc(&target, mt_recv_kind, n * (size_t)mt_size);
    if (mt_ready())
        fill(n * (size_t)mt_size);
    return mt_ready();
}

static void end(void)
{
    mt_free(&source);
    mt_free(&target);
}

static void allgather(size_t n)
{
    MPI_OK(MPI_Allgather(source.ptr, (int)n, MPI_BYTE, target.ptr, (int)n, MPI_BYTE, mt_world));
    for (int i = 0; i < mt_size; i++)
        check(i, n, i, 0);
}

static void alltoall(size_t n)
{
    MPI_OK(MPI_Alltoall(source.ptr, (int)n, MPI_BYTE, target.ptr, (int)n, MPI_BYTE, mt_world));
    for (int i = 0; i < mt_size; i++)
        check(i, n, i, (size_t)mt_rank * n);
}

static void gather(size_t n)
{
    MPI_OK(MPI_Gather(source.ptr, (int)n, MPI_BYTE, target.ptr, (int)n, MPI_BYTE, 0, mt_world));
    for (int i = 0; mt_rank == 0 && i < mt_size; i++)
        check(i, n, i, 0);
}

static void scatter(size_t n)
{
    MPI_OK(MPI_Scatter(source.ptr, (int)n, MPI_BYTE, target.ptr, (int)n, MPI_BYTE, 0, mt_world));
    check(0, n, 0, (size_t)mt_rank * n);
}

/* To itself, from one strided type to another and to the same. */
static void strided_to_itself(size_t n)
{
    int items = (int)(n / 3);
    MPI_Datatype type, other;

    if (items < 2)
        return;
    MPI_Type_vector(items / 2, 1, 2, MPI_BYTE, &type);
    MPI_Type_vector(items / 2, 1, 3, MPI_BYTE, &other);
    MPI_Type_commit(&type);
    MPI_Type_commit(&other);
    for (int way = 0; way < 2; way++) {
        int stride = way == 0 ? 2 : 3, reach = (items / 2 - 1) * stride + 1;
        unsigned char *bytes = malloc(n);
        size_t wrong = 0;

        mt_clear(&target);
        MPI_OK(MPI_Gather(source.ptr, 1, type, target.ptr, 1, way == 0 ? type : other, 0,
                          MPI_COMM_SELF));
        gpu_read(&target, 0, bytes, (size_t)reach);
        for (int i = 0; i < items / 2; i++)
            wrong += bytes[i * stride] != value(mt_rank, (size_t)i * 2);
        CHECK(wrong == 0, "%zu of %d items are wrong", wrong, items / 2);
        mt_expect_untouched(&target, 1, (size_t)stride - 1);
        mt_expect_untouched(&target, reach, n - (size_t)reach);
        free(bytes);
    }
    MPI_Type_free(&type);
    MPI_Type_free(&other);
}

static void each_size(const char *name, void (*act)(size_t n))
{
    mt_case("%s", name);
    for (size_t i = 0; i < SIZES; i++) {
        if (begin(sizes[i]))
            act(sizes[i]);
        end();
    }
    mt_end();
}

static void pair(void)
{
    each_size("MPI_Allgather", allgather);
    each_size("MPI_Alltoall", alltoall);
    each_size("MPI_Gather", gather);
    each_size("MPI_Scatter", scatter);
    each_size("MPI_Gather of strided types to itself", strided_to_itself);
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "copies", .min_ranks = 1};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
