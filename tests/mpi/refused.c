/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided and file operations on device memory: each either works, or ends in a clear error; what
 * it may not do is lose data silently. Argument: the operation. One operation a run, because a
 * refusal may abort the job: refused.test judges that.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/common/mpitest.h"

#define BYTES 20000
static gpu_buf_t origin, target;
static char path[256];

/* True if the call worked; an error is noted as a refusal. */
static bool accepted(int result, const char *call)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;

    if (result == MPI_SUCCESS)
        return true;
    MPI_Error_string(result, text, &length);
    printf("# refused: %s: %s\n", call, text);
    fflush(stdout);
    return false;
}

typedef int rma_fn(MPI_Win win);

static int put(MPI_Win win)
{
    return MPI_Put(origin.ptr, BYTES, MPI_BYTE, mt_peer, 0, BYTES, MPI_BYTE, win);
}

static int get(MPI_Win win)
{
    return MPI_Get(origin.ptr, BYTES, MPI_BYTE, mt_peer, 0, BYTES, MPI_BYTE, win);
}

static int accumulate(MPI_Win win)
{
    return MPI_Accumulate(origin.ptr, BYTES, MPI_BYTE, mt_peer, 0, BYTES, MPI_BYTE, MPI_REPLACE,
                          win);
}

static int fetch_and_op(MPI_Win win)
{
    return MPI_Fetch_and_op(origin.ptr, origin.ptr + 64, MPI_INT, mt_peer, 0, MPI_REPLACE, win);
}

/* Both sides open the window; the even rank acts. */
static void one_sided(const char *name, rma_fn *act, bool reads, size_t n)
{
    MPI_Win win = MPI_WIN_NULL;
    bool ok;

    mt_case("%s", name);
    if (mt_alloc(&origin, mt_send_kind, BYTES))
        mt_alloc(&target, mt_recv_kind, BYTES);
    if (mt_ready() && mt_peer >= 0) {
        mt_fill(reads ? &target : &origin, reads ? 2 : 1, 0, BYTES);
        ok = accepted(MPI_Win_create(target.ptr, BYTES, 1, MPI_INFO_NULL, mt_world, &win),
                      "MPI_Win_create");
        if (mt_agree(ok)) {
            MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
            ok = accepted(MPI_Win_fence(0, win), "MPI_Win_fence");
            if (ok && mt_sending)
                ok = accepted(act(win), name);
            ok = accepted(MPI_Win_fence(0, win), "MPI_Win_fence") && ok;
            ok = mt_agree(ok);
            if (ok && reads && mt_sending)
                mt_expect(&origin, 2, 0, n);
            if (ok && !reads && !mt_sending)
                mt_expect(&target, 1, 0, n);
            MPI_Win_free(&win);
        } else if (ok) {
            MPI_Win_free(&win);
        }
    }
    mt_free(&origin);
    mt_free(&target);
    mt_end();
}

static void file_write(const char *name, int way)
{
    MPI_File file;
    MPI_Status status;
    MPI_Request request;
    bool ok;
    int count = -1;

    mt_case("%s", name);
    mt_alloc(&origin, mt_send_kind, BYTES);
    if (mt_ready()) {
        mt_fill(&origin, 3, 0, BYTES);
        ok = accepted(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_WRONLY,
                                    MPI_INFO_NULL, &file), "MPI_File_open");
        if (ok) {
            if (way == 0)
                ok = accepted(MPI_File_write(file, origin.ptr, BYTES, MPI_BYTE, &status), name);
            else if (way == 1)
                ok = accepted(MPI_File_write_at_all(file, 0, origin.ptr, BYTES, MPI_BYTE, &status),
                              name);
            else
                ok = accepted(MPI_File_iwrite_at(file, 0, origin.ptr, BYTES, MPI_BYTE, &request),
                              name) &&
                     accepted(MPI_Wait(&request, &status), "MPI_Wait");
            if (ok)
                MPI_Get_count(&status, MPI_BYTE, &count);
            MPI_File_close(&file);
        }
        if (ok) { /* it says that it wrote: has it? */
            gpu_buf_t back;
            int fd = open(path, O_RDONLY);

            CHECK(count == BYTES, "the status says %d bytes", count);
            if (mt_alloc(&back, 'H', BYTES)) {
                ssize_t n = read(fd, back.ptr, BYTES);

                if (CHECK(n == BYTES, "the file has %zd bytes", n))
                    mt_expect(&back, 3, 0, BYTES);
                mt_free(&back);
            }
            close(fd);
        }
        unlink(path);
    }
    mt_free(&origin);
    mt_end();
}

static void file_read(const char *name)
{
    MPI_File file;
    MPI_Status status;
    gpu_buf_t data;
    bool ok;
    int count = -1, fd;

    mt_case("%s", name);
    mt_alloc(&origin, mt_send_kind, BYTES);
    if (mt_ready() && mt_alloc(&data, 'H', BYTES)) {
        mt_fill(&data, 4, 0, BYTES);
        fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
        CHECK(write(fd, data.ptr, BYTES) == BYTES, "cannot write %s", path);
        close(fd);
        mt_free(&data);
        ok = accepted(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file),
                      "MPI_File_open");
        if (ok) {
            ok = accepted(MPI_File_read(file, origin.ptr, BYTES, MPI_BYTE, &status), name);
            if (ok)
                MPI_Get_count(&status, MPI_BYTE, &count);
            MPI_File_close(&file);
        }
        if (ok && CHECK(count == BYTES, "the status says %d bytes", count))
            mt_expect(&origin, 4, 0, BYTES);
        unlink(path);
    }
    mt_free(&origin);
    mt_end();
}

static const char *operation = "put";

static void pair(void)
{
    if (strcmp(operation, "put") == 0)
        one_sided("MPI_Put", put, false, BYTES);
    else if (strcmp(operation, "get") == 0)
        one_sided("MPI_Get", get, true, BYTES);
    else if (strcmp(operation, "accumulate") == 0)
        one_sided("MPI_Accumulate", accumulate, false, BYTES);
    else if (strcmp(operation, "fetch") == 0)
        one_sided("MPI_Fetch_and_op", fetch_and_op, false, 4);
    else if (strcmp(operation, "write") == 0)
        file_write("MPI_File_write", 0);
    else if (strcmp(operation, "write_at_all") == 0)
        file_write("MPI_File_write_at_all", 1);
    else if (strcmp(operation, "iwrite") == 0)
        file_write("MPI_File_iwrite_at", 2);
    else if (strcmp(operation, "read") == 0)
        file_read("MPI_File_read");
    else
        mt_note("no operation %s", operation);
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "refused", .min_ranks = 2};
    const char *folder = getenv("TMPDIR");

    mt_start(&argc, &argv, &program);
    if (argc > 1)
        operation = argv[1];
    snprintf(path, sizeof(path), "%s/grail-refused-%d-%d", folder ? folder : "/tmp", (int)getpid(),
             mt_rank);
    mt_each_pair(pair);
    return mt_finish();
}
