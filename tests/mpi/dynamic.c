/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that join later: MPI_Comm_spawn, and MPI_Comm_connect between two halves of a job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/common/mpitest.h"

static const size_t sizes[] = {0, 8, 65537, (size_t)1 << 20};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST ((size_t)1 << 20)
enum { TAG = 13 };

/* There and back with one remote rank, each size. */
static void echo(MPI_Comm comm, int remote, bool first, gpu_buf_t *buffer)
{
    for (size_t i = 0; i < 2 * SIZES; i++) {
        int n = (int)sizes[i / 2];
        MPI_Status status;

        if (first == (i % 2 == 0)) {
            mt_fill(buffer, i, 0, (size_t)n);
            MPI_OK(MPI_Send(buffer->ptr, n, MPI_BYTE, remote, TAG, comm));
        } else {
            mt_clear(buffer);
            MPI_OK(MPI_Recv(buffer->ptr, (int)LARGEST, MPI_BYTE,
                            i < SIZES ? MPI_ANY_SOURCE : remote, TAG, comm, &status));
            mt_expect_status(&status, remote, TAG, (size_t)n);
            mt_expect_message(buffer, i, (size_t)n);
        }
    }
}

static char program_path[4096];

/* argv[1] is "child" and argv[2] the kind. Failures travel to the parent as one number. */
static int child(const char *kind)
{
    static const mt_program_t program = {.name = "dynamic (child)", .min_ranks = 1};
    static char name[] = "dynamic";
    char *argv_none[] = {name, NULL}, **argv = argv_none;
    MPI_Comm parent, merged;
    gpu_buf_t buffer;
    int argc = 1, me, bad = 1;

    mt_start(&argc, &argv, &program);
    MPI_Comm_get_parent(&parent);
    MPI_Comm_rank(parent, &me);
    if (gpu_buf_alloc(&buffer, kind[0], LARGEST, MT_GUARD) == GPU_OK) {
        bad = 0;
        MPI_Send(&bad, 1, MPI_INT, 0, TAG + 1, parent);
        if (me == 0)
            echo(parent, 0, false, &buffer);
        gpu_buf_free(&buffer);
    } else {
        MPI_Send(&bad, 1, MPI_INT, 0, TAG + 1, parent);
    }
    MPI_Intercomm_merge(parent, 1, &merged);
    MPI_Barrier(merged);
    MPI_Comm_free(&merged);
    MPI_Comm_disconnect(&parent);
    MPI_Comm_free(&mt_side);
    MPI_Finalize();
    return 0;
}

static void spawn(void)
{
    static char word[] = "child";
    char kind[2] = {mt_recv_kind, 0};
    char *child_argv[] = {word, kind, NULL};
    int codes[2], result, usable = 1, bad;
    MPI_Comm inter, merged;
    gpu_buf_t buffer;
    int merged_size;

    mt_case("MPI_Comm_spawn of 2");
    mt_alloc(&buffer, mt_send_kind, LARGEST);
    if (mt_ready()) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        result = MPI_Comm_spawn(program_path, child_argv, 2, MPI_INFO_NULL, 0, mt_world, &inter,
                                codes);
        if (result != MPI_SUCCESS) {
            mt_skip("this mpirun starts no further processes (error %d)", result);
            usable = 0;
        }
        for (int i = 0; usable && mt_rank == 0 && i < 2; i++) {
            MPI_OK(MPI_Recv(&bad, 1, MPI_INT, i, TAG + 1, inter, MPI_STATUS_IGNORE));
            CHECK(!bad, "child %d has no buffer", i);
        }
        if (usable && mt_rank == 0)
            echo(inter, 0, true, &buffer);
        if (usable) {
            MPI_OK(MPI_Intercomm_merge(inter, 0, &merged));
            MPI_Comm_size(merged, &merged_size);
            CHECK(merged_size == mt_size + 2, "%d ranks after the merge", merged_size);
            MPI_OK(MPI_Barrier(merged));
            MPI_OK(MPI_Comm_free(&merged));
            MPI_OK(MPI_Comm_disconnect(&inter));
        }
    }
    mt_free(&buffer);
    mt_end();
}

/* The even ranks accept, the odd ones connect, twice. */
static void connect_accept(void)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm half, inter;
    gpu_buf_t buffer;
    int me, ok = 1, remote;

    mt_case("MPI_Comm_connect, MPI_Comm_accept");
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, LARGEST);
    if (mt_ready()) {
        if (mt_rank == 0)
            ok = MPI_Open_port(MPI_INFO_NULL, port) == MPI_SUCCESS;
        MPI_Bcast(&ok, 1, MPI_INT, 0, mt_side);
        if (!ok)
            mt_skip("this mpirun opens no port");
        MPI_Bcast(port, sizeof(port), MPI_CHAR, 0, mt_side);
        MPI_Comm_split(mt_side, mt_rank % 2, mt_rank, &half);
        MPI_Comm_rank(half, &me);
        for (int round = 0; ok && round < 2; round++) {
            if (mt_sending)
                MPI_OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter));
            else
                MPI_OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter));
            MPI_Comm_remote_size(inter, &remote);
            if (me < remote)
                echo(inter, me, mt_sending, &buffer);
            MPI_OK(MPI_Comm_disconnect(&inter));
        }
        MPI_Comm_free(&half);
        if (mt_rank == 0 && ok)
            MPI_OK(MPI_Close_port(port));
    }
    mt_free(&buffer);
    mt_end();
}

static void pair(void)
{
    spawn();
    connect_accept();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "dynamic", .min_ranks = 2};

    if (argc == 3 && strcmp(argv[1], "child") == 0)
        return child(argv[2]);
    if (!realpath(argv[0], program_path))
        snprintf(program_path, sizeof(program_path), "%s", argv[0]);
    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
