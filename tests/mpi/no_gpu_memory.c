/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that passes no device buffer owns no context and no memory on any GPU, whatever its peers
 * pass. In each pair of kinds the sides with host memory (H) are judged; use kinds once a run.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/common/mpitest.h"

static const size_t sizes[] = {0, 8, 4096, 65537, (size_t)1 << 20, (size_t)8 << 20};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void traffic(const gpu_buf_t *b)
{
    for (size_t i = 0; i < 2 * SIZES; i++) {
        size_t n = sizes[i / 2];

        if (mt_sending == (i % 2 == 0)) {
            mt_fill(b, i, 0, n);
            MPI_OK(MPI_Send(b->ptr, (int)n, MPI_BYTE, mt_peer, 1, mt_world));
        } else {
            mt_clear(b);
            MPI_OK(MPI_Recv(b->ptr, (int)n, MPI_BYTE, mt_peer, 1, mt_world, MPI_STATUS_IGNORE));
            mt_expect_message(b, i, n);
        }
    }
}

/* After this process's traffic is over: what has been created in its name? */
static void judge(void)
{
    const gpu_driver_t *cu = gpu_driver();
    long long (*get)(const char *) = NULL;

    if (!cu) {
        mt_skip("%s", gpu_why());
        return;
    }
    for (int d = 0; d < cu->devices && cu->cuDevicePrimaryCtxGetState; d++) {
        unsigned int flags;
        int active = 0;
        CUdevice device;

        GPU_TRY(cu->cuDeviceGet(&device, d));
        GPU_TRY(cu->cuDevicePrimaryCtxGetState(device, &flags, &active));
        CHECK(!active, "device %d has an active primary context", d);
    }
    get = (long long (*)(const char *))dlsym(cu->library, "cudasim_get");
    if (get) {
        static const char *const counters[] = {"contexts_created", "streams_created", "allocs",
                                               "host_registered", "ipc_opens", "modules_loaded"};

        for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
            CHECK(get(counters[i]) == 0, "%s is %lld", counters[i], get(counters[i]));
    }
}

static void pair(void)
{
    char kind = mt_sending ? mt_send_kind : mt_recv_kind;
    gpu_buf_t b;

    mt_case("a rank without device buffers owns nothing on a GPU");
    mt_alloc(&b, kind, sizes[SIZES - 1]);
    if (mt_ready() && mt_peer >= 0)
        traffic(&b);
    if (mt_ready())
        MPI_Barrier(mt_world);
    if (mt_ready() && (kind == 'H' || mt_peer < 0))
        judge();
    mt_free(&b);
    mt_end();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "no_gpu_memory", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
