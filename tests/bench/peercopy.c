/* SPDX-License-Identifier: BSD-3-Clause */
/* What the wires give: bare copies from the sender's device to the receiver's, in the same run. */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <string.h>

static struct {
    bool usable;
    CUdeviceptr target;
    CUcontext target_context;
    CUstream stream;
} copy;

bool bench_peer_copy_wanted(const bench_t *b)
{
    const bench_options_t *o = &b->options;

    return o->peer_copy == 1 || (o->peer_copy < 0 && gpu_kind_on_device(o->kind[0]) &&
                                 gpu_kind_on_device(o->kind[1]) && o->type == BENCH_CONTIG);
}

/* The receiver's device as the sender sees it: device masks may number them differently. */
static int find_device(const gpu_driver_t *cu, const CUuuid *uuid)
{
    for (int i = 0; i < cu->devices; i++) {
        CUdevice device;
        CUuuid own;

        if (cu->cuDeviceGet(&device, i) == CUDA_SUCCESS &&
            cu->cuDeviceGetUuid_v2(&own, device) == CUDA_SUCCESS &&
            memcmp(&own, uuid, sizeof(own)) == 0)
            return i;
    }
    return -1;
}

static const char *open_target(bench_t *b, const CUuuid *uuid)
{
    const gpu_driver_t *cu = gpu_driver();
    int ordinal = find_device(cu, uuid);
    CUdevice device;
    CUcontext popped;
    CUresult result;

    if (ordinal < 0)
        return "the receiver's device is not visible to the sender";
    if (cu->cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
        cu->cuDevicePrimaryCtxRetain(&copy.target_context, device) != CUDA_SUCCESS)
        return "no context on the receiver's device";
    if (ordinal != gpu_selected() && cu->cuCtxEnablePeerAccess) /* without it: through the host */
        cu->cuCtxEnablePeerAccess(copy.target_context, 0);
    GPU_TRY(cu->cuCtxPushCurrent_v2(copy.target_context));
    result = cu->cuMemAlloc_v2(&copy.target, b->send.size);
    GPU_TRY(cu->cuCtxPopCurrent_v2(&popped));
    if (result != CUDA_SUCCESS)
        return "no memory on the receiver's device";
    GPU_TRY(cu->cuCtxPushCurrent_v2(b->send.context));
    result = cu->cuStreamCreate(&copy.stream, 1 /* non-blocking */);
    GPU_TRY(cu->cuCtxPopCurrent_v2(&popped));
    return result == CUDA_SUCCESS ? NULL : "no stream";
}

void bench_peer_copy_open(bench_t *b)
{
    const gpu_driver_t *cu = gpu_driver();
    const char *why = NULL;
    CUuuid uuid;
    CUdevice device;

    memset(&uuid, 0, sizeof(uuid));
    if (!b->sender && cu && cu->cuDeviceGetUuid_v2 && gpu_selected() >= 0 &&
        cu->cuDeviceGet(&device, gpu_selected()) == CUDA_SUCCESS)
        cu->cuDeviceGetUuid_v2(&uuid, device);
    if (!b->sender) {
        MPI_Send(&uuid, sizeof(uuid), MPI_BYTE, b->peer, 1, b->comm);
        return;
    }
    MPI_Recv(&uuid, sizeof(uuid), MPI_BYTE, b->peer, 1, b->comm, MPI_STATUS_IGNORE);
    if (!b->one_node)
        why = "the ranks are on two nodes";
    else if (!cu || !cu->cuDeviceGetUuid_v2 || !cu->cuMemcpyPeerAsync || !cu->cuStreamCreate)
        why = "the driver lacks cuDeviceGetUuid, cuMemcpyPeerAsync or cuStreamCreate";
    else
        why = open_target(b, &uuid);
    copy.usable = !why;
    if (why && b->options.peer_copy == 1)
        bench_fail("--peercopy: %s", why);
    if (why && b->rank == 0 && !b->options.csv)
        printf("# No bare copies: %s\n", why);
}

static double copies(bench_t *b, size_t bytes, int window, int rounds)
{
    const gpu_driver_t *cu = gpu_driver();
    CUdeviceptr source = (CUdeviceptr)(uintptr_t)b->send.ptr;
    double start = bench_now();

    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < window; i++)
            GPU_TRY(cu->cuMemcpyPeerAsync(copy.target, copy.target_context, source, b->send.context,
                                          bytes, copy.stream));
        GPU_TRY(cu->cuStreamSynchronize(copy.stream));
    }
    return bench_now() - start;
}

double bench_peer_copy_rate(bench_t *b, size_t bytes, int window, int iterations)
{
    const gpu_driver_t *cu = gpu_driver();
    CUcontext popped;
    double seconds;

    if (!copy.usable || bytes == 0)
        return BENCH_NONE;
    GPU_TRY(cu->cuCtxPushCurrent_v2(b->send.context));
    copies(b, bytes, window, 2);
    seconds = copies(b, bytes, window, iterations);
    GPU_TRY(cu->cuCtxPopCurrent_v2(&popped));
    return 1e-6 * (double)bytes * window * iterations / seconds;
}

void bench_peer_copy_close(bench_t *b)
{
    const gpu_driver_t *cu = gpu_driver_if_open();
    CUcontext popped;

    if (!b->sender || !cu)
        return;
    if (copy.stream) {
        GPU_TRY(cu->cuCtxPushCurrent_v2(b->send.context));
        GPU_TRY(cu->cuStreamDestroy_v2(copy.stream));
        GPU_TRY(cu->cuCtxPopCurrent_v2(&popped));
    }
    if (copy.target) {
        GPU_TRY(cu->cuCtxPushCurrent_v2(copy.target_context));
        GPU_TRY(cu->cuMemFree_v2(copy.target));
        GPU_TRY(cu->cuCtxPopCurrent_v2(&popped));
    }
    memset(&copy, 0, sizeof(copy));
}
