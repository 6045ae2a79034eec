/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collective operations that only one rank calls with device memory: that rank gets an error, the
 * others come back too (with success, or with an error where the call cannot succeed without it).
 * Argument "blocking": no nonblocking collectives (Open MPI 4.1's romio321 has none, and crashes).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/common/mpitest.h"

enum { BYTES = 5000 };

static gpu_buf_t buffer;
static char path[256];

static bool fails(int result)
{
    int class = MPI_SUCCESS;

    MPI_Error_class(result, &class);
    return class != MPI_SUCCESS;
}

/* The even ranks have device memory, the odd ones host memory. */
static bool begin(const char *name)
{
    mt_case("%s with device memory on some ranks", name);
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, BYTES);
    if (mt_ready())
        mt_fill(&buffer, (uint64_t)mt_rank, 0, BYTES);
    return mt_ready();
}

static void end(void)
{
    mt_free(&buffer);
    mt_end();
}

static void window_create(void)
{
    MPI_Win win = MPI_WIN_NULL;

    if (begin("MPI_Win_create"))
        CHECK(fails(MPI_Win_create(buffer.ptr, BYTES, 1, MPI_INFO_NULL, mt_world, &win)),
              "it succeeds");
    end();
}

static void window_attach(void)
{
    MPI_Win win;

    if (begin("MPI_Win_attach") &&
        MPI_OK(MPI_Win_create_dynamic(MPI_INFO_NULL, mt_world, &win))) {
        int result;

        MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
        result = MPI_Win_attach(win, buffer.ptr, BYTES);
        CHECK(fails(result) == mt_sending, "it returns %d", result);
        if (result == MPI_SUCCESS)
            MPI_OK(MPI_Win_detach(win, buffer.ptr));
        MPI_OK(MPI_Win_free(&win));
    }
    end();
}

/* What the odd ranks wrote must be in the file. */
static void check_file(MPI_File file)
{
    gpu_buf_t host;

    if (!mt_sending && mt_alloc(&host, 'H', BYTES)) {
        MPI_Status status;
        int count = 0;

        MPI_OK(MPI_File_read_at(file, (MPI_Offset)mt_rank * BYTES, host.ptr, BYTES, MPI_BYTE,
                                &status));
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK(count == BYTES, "%d bytes are in the file", count);
        mt_expect(&host, (uint64_t)mt_rank, 0, BYTES);
        mt_free(&host);
    }
}

static int write_at_all(MPI_File file)
{
    return MPI_File_write_at_all(file, (MPI_Offset)mt_rank * BYTES, buffer.ptr, BYTES, MPI_BYTE,
                                 MPI_STATUS_IGNORE);
}

static int write_all(MPI_File file)
{
    MPI_File_seek(file, (MPI_Offset)mt_rank * BYTES, MPI_SEEK_SET);
    return MPI_File_write_all(file, buffer.ptr, BYTES, MPI_BYTE, MPI_STATUS_IGNORE);
}

static int write_all_split(MPI_File file)
{
    int result = MPI_File_write_at_all_begin(file, (MPI_Offset)mt_rank * BYTES, buffer.ptr, BYTES,
                                             MPI_BYTE);

    if (result == MPI_SUCCESS)
        result = MPI_File_write_at_all_end(file, buffer.ptr, MPI_STATUS_IGNORE);
    return result;
}

static int iwrite_at_all(MPI_File file)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int result = MPI_File_iwrite_at_all(file, (MPI_Offset)mt_rank * BYTES, buffer.ptr, BYTES,
                                        MPI_BYTE, &request);

    if (result == MPI_SUCCESS)
        result = MPI_Wait(&request, MPI_STATUS_IGNORE);
    return result;
}

static void file_together(const char *name, int (*act)(MPI_File))
{
    MPI_File file;

    if (begin(name) &&
        MPI_OK(MPI_File_open(mt_world, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL,
                             &file))) {
        int result = act(file);

        CHECK(fails(result) == mt_sending, "it returns %d", result);
        MPI_OK(MPI_File_sync(file));
        check_file(file);
        MPI_OK(MPI_File_close(&file));
        MPI_Barrier(mt_side);
        if (mt_rank == 0)
            unlink(path);
    }
    end();
}

static bool nonblocking = true;

static void pair(void)
{
    window_create();
    window_attach();
    file_together("MPI_File_write_at_all", write_at_all);
    file_together("MPI_File_write_all", write_all);
    file_together("MPI_File_write_at_all_begin", write_all_split);
    if (nonblocking)
        file_together("MPI_File_iwrite_at_all", iwrite_at_all);
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "refused_together", .min_ranks = 2};
    const char *folder = getenv("TMPDIR");
    int id = (int)getpid();

    mt_start(&argc, &argv, &program);
    nonblocking = argc < 2 || strcmp(argv[1], "blocking") != 0;
    MPI_Bcast(&id, 1, MPI_INT, 0, mt_side);
    snprintf(path, sizeof(path), "%s/grail-together-%d", folder ? folder : "/tmp", id);
    mt_each_pair(pair);
    return mt_finish();
}
