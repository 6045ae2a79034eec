/* SPDX-License-Identifier: BSD-3-Clause */
/* Facts: which calls wait for work that is queued on the device. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/cudasim/facts.h"

static volatile uint32_t *gate;
static CUdeviceptr gate_dev;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *open_gate(void *arg)
{
    (void)arg;
    usleep(250000);
    *gate = 1;
    return NULL;
}

static pthread_t opener;

/** Work on stream that takes 0.25 s from now. */
static double block(CUstream stream)
{
    *gate = 0;
    cuStreamWaitValue32_v2(stream, gate_dev, 1, CU_STREAM_WAIT_VALUE_EQ);
    cuMemsetD8Async(gate_dev + 64, 1, 8, stream);
    double begin = seconds();
    pthread_create(&opener, NULL, open_gate, NULL);
    return begin;
}

static int waited(double begin)
{
    int result = seconds() - begin > 0.24;
    pthread_join(opener, NULL);
    cuCtxSynchronize();
    return result;
}

#define WAITS(name, stream, call)                                                                  \
    do {                                                                                           \
        double begin_ = block(stream);                                                             \
        CUresult result_ = (call);                                                                 \
        int waited_ = waited(begin_);                                                              \
        FACT("waits." name, result_ != CUDA_SUCCESS ? -1000 - (int)result_ : waited_);             \
    } while (0)

void facts_waits(void)
{
    CUdeviceptr a, b, c, pool, va;
    CUstream apart, blocking, extra;
    CUevent event;
    CUmodule module;
    void *pinned, *pinned2;
    char *pageable = calloc(1, 4 * MIB), *raw;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    facts_use_primary();
    if (posix_memalign((void **)&raw, 4096, 8192) != 0) {
        return;
    }
    NEED(cuMemHostAlloc((void **)&gate, 4096, 0));
    NEED(cuMemHostGetDevicePointer_v2(&gate_dev, (void *)gate, 0));
    NEED(cuMemHostAlloc(&pinned, 4 * MIB, 0));
    NEED(cuMemHostAlloc(&pinned2, 4 * MIB, 0));
    NEED(cuMemHostRegister_v2(raw, 8192, 0));
    NEED(cuMemAlloc_v2(&a, 4 * MIB));
    NEED(cuMemAlloc_v2(&b, 4 * MIB));
    NEED(cuMemAlloc_v2(&c, 4 * MIB));
    NEED(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    NEED(cuStreamCreate(&extra, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    NEED(cuMemAllocAsync(&pool, MIB, apart));
    NEED(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0));
    NEED(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    NEED(cuMemMap(va, 2 * MIB, 0, handle, 0));
    NEED(facts_fill(a, NULL));
    NEED(cuCtxSynchronize());
    WAITS("dtod_plain", NULL, cuMemcpyDtoD_v2(a, b, 4096));
    WAITS("unified_dtod_plain", NULL, cuMemcpy(a, b, 4096));
    WAITS("dtod_plain_of_blocking_stream", blocking, cuMemcpyDtoD_v2(a, b, 4096));
    WAITS("dtoh_plain", NULL, cuMemcpyDtoH_v2(pageable, b, 4096));
    WAITS("dtoh_plain_pinned", NULL, cuMemcpyDtoH_v2(pinned, b, 4096));
    WAITS("dtoh_plain_of_other_stream", apart, cuMemcpyDtoH_v2(pageable, b, 4096));
    WAITS("dtoh_plain_of_blocking_stream", blocking, cuMemcpyDtoH_v2(pageable, b, 4096));
    WAITS("htod_plain_small", NULL, cuMemcpyHtoD_v2(b, pageable, 64));
    WAITS("htod_plain_large", NULL, cuMemcpyHtoD_v2(b, pageable, 4 * MIB));
    WAITS("htod_plain_pinned", NULL, cuMemcpyHtoD_v2(b, pinned, 4096));
    WAITS("htod_async_pageable_small", apart, cuMemcpyHtoDAsync_v2(b, pageable, 64, apart));
    WAITS("htod_async_pageable_large", apart, cuMemcpyHtoDAsync_v2(b, pageable, 4 * MIB, apart));
    WAITS("htod_async_pinned", apart, cuMemcpyHtoDAsync_v2(b, pinned, 4 * MIB, apart));
    WAITS("dtoh_async_pageable_small", apart, cuMemcpyDtoHAsync_v2(pageable, b, 64, apart));
    WAITS("dtoh_async_pinned", apart, cuMemcpyDtoHAsync_v2(pinned, b, 4 * MIB, apart));
    WAITS("memset_plain", NULL, cuMemsetD8_v2(b, 1, 4096));
    WAITS("memset_plain_pinned", NULL, cuMemsetD8_v2((CUdeviceptr)(uintptr_t)pinned, 1, 4096));
    WAITS("stream_sync_default_of_blocking", blocking, cuStreamSynchronize(NULL));
    WAITS("stream_sync_default_of_other", apart, cuStreamSynchronize(NULL));
    WAITS("alloc", apart, cuMemAlloc_v2(&pool, 64 * MIB));
    WAITS("free", apart, cuMemFree_v2(c));
    WAITS("host_alloc", apart, cuMemHostAlloc(&pinned2, 4 * MIB, 0));
    WAITS("free_host", apart, cuMemFreeHost(pinned2));
    WAITS("host_register", apart, cuMemHostRegister_v2(pageable + 8192, 65536, 0));
    WAITS("host_unregister", apart, cuMemHostUnregister(raw));
    WAITS("stream_create", apart, cuStreamCreate(&extra, CU_STREAM_NON_BLOCKING));
    WAITS("event_record", apart, cuEventRecord(event, apart));
    NEED(cuEventRecord(event, apart));
    WAITS("event_destroy", apart, cuEventDestroy_v2(event));
    WAITS("module_load", apart, cuModuleLoadData(&module, facts_ptx));
    WAITS("unmap", apart, cuMemUnmap(va, 2 * MIB));
    WAITS("set_sync_memops", apart,
          cuPointerSetAttribute(&(unsigned int){1}, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    WAITS("dtod_async_with_sync_memops", apart, cuMemcpyDtoDAsync_v2(a, b, 4096, apart));
    WAITS("stream_destroy", apart, cuStreamDestroy_v2(apart));
}
