/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One of two ranks dies by SIGKILL in the middle of things; the other must come to an end.
 * Arguments: MOMENT VICTIM BYTES
 *    MOMENT  waiting   the survivor's message or receive has no counterpart when the victim dies
 *            stream    messages of BYTES flow from rank 0 to rank 1 without end
 *            both      ... both ways
 *            matched   the victim has posted its receive (or sent), and dies at once
 *    VICTIM  0 or 1
 * The survivor prints "survivor: error class N after S s", then what it still holds of the victim's
 * memory, and ends with status 3; or it is ended by the launcher, which is as good:
 * peer_killed.test judges.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/common/mpitest.h"

#define WINDOW 4

static const char *moment = "stream";
static int victim = 1;
static size_t bytes = 65537;
static double death; /* when the survivor was told that the victim dies now */

static void die(void)
{
    kill(getpid(), SIGKILL);
}

static void *die_soon(void *arg)
{
    mt_sleep_ms(*(int *)arg);
    die();
    return NULL;
}

/* Shared segments of Grail's and, on the simulated driver, mappings of device memory. */
static int held(void)
{
    const gpu_driver_t *cu = gpu_driver_if_open();
    long long (*get)(const char *) = NULL;
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;

    while (maps && fgets(line, sizeof(line), maps))
        count += strstr(line, "memfd:grail") != NULL;
    if (maps)
        fclose(maps);
    if (cu)
        get = (long long (*)(const char *))dlsym(cu->library, "cudasim_get");
    return count + (get ? (int)get("ipc_live") : 0);
}

static void survive(int result)
{
    int class = 0, flag;

    if (result == MPI_SUCCESS)
        return;
    MPI_Error_class(result, &class);
    printf("survivor: error class %d after %.1f s\n", class, mt_now() - death);
    /* copies out of it may have to end first */
    for (double end = mt_now() + 2; held() != 0 && mt_now() < end;)
        MPI_Iprobe(0, 1, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    printf("survivor: %d segments and mappings held\n", held());
    fflush(stdout);
    _exit(3);
}

static void waiting(const gpu_buf_t *b)
{
    MPI_Request requests[2];

    mt_sync_peer();
    if (mt_rank == victim)
        die();
    death = mt_now();
    if (mt_sending)
        survive(MPI_Issend(b->ptr, (int)bytes, MPI_BYTE, mt_peer, 1, mt_world, &requests[0]));
    else
        survive(MPI_Irecv(b->ptr, (int)bytes, MPI_BYTE, mt_peer, 1, mt_world, &requests[0]));
    survive(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    printf("survivor: the operation succeeded\n");
}

static void matched(const gpu_buf_t *b)
{
    MPI_Request request;
    int flag;

    mt_sync_peer();
    death = mt_now();
    if (mt_sending)
        survive(MPI_Isend(b->ptr, (int)bytes, MPI_BYTE, mt_peer, 1, mt_world, &request));
    else
        survive(MPI_Irecv(b->ptr, (int)bytes, MPI_BYTE, mt_peer, 1, mt_world, &request));
    if (mt_rank == victim) {
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        die();
    }
    survive(MPI_Wait(&request, MPI_STATUS_IGNORE));
    /* it may have gone through; the next one cannot */
    if (mt_sending)
        survive(MPI_Ssend(b->ptr, (int)bytes, MPI_BYTE, mt_peer, 2, mt_world));
    else
        survive(MPI_Recv(b->ptr, (int)bytes, MPI_BYTE, mt_peer, 2, mt_world, MPI_STATUS_IGNORE));
    printf("survivor: a message with a dead process succeeded\n");
}

static void stream(const gpu_buf_t *b, bool both)
{
    static int when;
    pthread_t thread;
    MPI_Request requests[2 * WINDOW];
    struct timespec t;

    mt_sync_peer();
    clock_gettime(CLOCK_REALTIME, &t);
    when = 20 + (int)(t.tv_nsec / 1000 % 60); /* at another point of the protocol each time */
    death = mt_now() + 1e-3 * when;
    if (mt_rank == victim)
        pthread_create(&thread, NULL, die_soon, &when);
    for (double end = mt_now() + 120; mt_now() < end;) {
        int n = 0;

        for (int i = 0; i < WINDOW && (both || !mt_sending); i++)
            survive(MPI_Irecv(b->ptr + ((size_t)i + WINDOW) * bytes, (int)bytes, MPI_BYTE, mt_peer,
                              1, mt_world, &requests[n++]));
        for (int i = 0; i < WINDOW && (both || mt_sending); i++)
            survive(MPI_Isend(b->ptr + (size_t)i * bytes, (int)bytes, MPI_BYTE, mt_peer, 1,
                              mt_world, &requests[n++]));
        for (int i = 0; i < n; i++)
            survive(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
    }
    printf("survivor: messages with a dead process succeeded\n");
}

static void pair(void)
{
    gpu_buf_t b;

    mt_case("%s, %zu bytes, rank %d dies", moment, bytes, victim);
    mt_alloc(&b, mt_sending ? mt_send_kind : mt_recv_kind, 2 * WINDOW * bytes);
    if (mt_ready() && mt_rank < 2) {
        /* connections and mappings are there: death in the middle, not before the start */
        if (mt_sending)
            MPI_OK(MPI_Send(b.ptr, (int)bytes, MPI_BYTE, mt_peer, 0, mt_world));
        else
            MPI_OK(MPI_Recv(b.ptr, (int)bytes, MPI_BYTE, mt_peer, 0, mt_world, MPI_STATUS_IGNORE));
        if (strcmp(moment, "waiting") == 0)
            waiting(&b);
        else if (strcmp(moment, "matched") == 0)
            matched(&b);
        else
            stream(&b, strcmp(moment, "both") == 0);
        fflush(stdout);
        _exit(4);
    }
    mt_free(&b);
    mt_end();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "peer_killed", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    if (argc > 3) {
        moment = argv[1];
        victim = atoi(argv[2]);
        bytes = strtoull(argv[3], NULL, 10);
    }
    mt_each_pair(pair);
    return mt_finish();
}
