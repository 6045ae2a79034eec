/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages over 2 and 4 GiB, counted in a larger type. Arguments: gibibytes (4); "one" for one of
 * the three types only. Skipped where the memory is short.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/common/mpitest.h"

enum { TAG = 15 };
static bool only_one;
static size_t total = ((size_t)4 << 30) + 24;

static void one(const char *name, MPI_Datatype element, size_t element_size)
{
    int count = (int)(total / element_size);
    size_t bytes = (size_t)count * element_size;
    size_t need = (bytes + ((size_t)1 << 30)) * (size_t)mt_size;
    gpu_buf_t buffer = {0};
    MPI_Status status;
    MPI_Count got;

    mt_case("%zu MiB as %s", bytes >> 20, name);
    if (mt_memory_available() < need)
        mt_skip("%zu MiB of memory are needed, %zu are available", need >> 20,
                mt_memory_available() >> 20);
    else if (mt_peer >= 0)
        mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, bytes);
    if (mt_ready() && mt_peer >= 0 && mt_sending) {
        mt_fill(&buffer, 3, 0, bytes);
        MPI_OK(MPI_Send(buffer.ptr, count, element, mt_peer, TAG, mt_world));
    } else if (mt_ready() && mt_peer >= 0) {
        MPI_OK(MPI_Probe(mt_peer, TAG, mt_world, &status));
        MPI_OK(MPI_Get_elements_x(&status, element, &got));
        MPI_OK(MPI_Recv(buffer.ptr, count, element, mt_peer, TAG, mt_world, &status));
        mt_expect_message(&buffer, 3, bytes);
        mt_expect_status(&status, mt_peer, TAG, bytes);
    }
    mt_free(&buffer);
    mt_end();
}

static void pair(void)
{
    MPI_Datatype block, half;

    MPI_Type_contiguous(1 << 20, MPI_BYTE, &block);
    MPI_Type_commit(&block);
    if (!only_one) {
        one("doubles", MPI_DOUBLE, 8);
        one("blocks of 1 MiB", block, (size_t)1 << 20);
    }
    /* one element over 2 GiB */
    MPI_Type_contiguous((int)(total >> 21), block, &half);
    MPI_Type_commit(&half);
    one("halves", half, total >> 21 << 20);
    MPI_Type_free(&half);
    MPI_Type_free(&block);
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "big", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    if (argc > 1)
        total = ((size_t)atoi(argv[1]) << 30) + 24;
    only_one = argc > 2 && strcmp(argv[2], "one") == 0;
    mt_each_pair(pair);
    return mt_finish();
}
