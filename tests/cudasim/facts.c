/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asks a CUDA driver how it behaves where Grail depends on it, and prints one fact a line: a name
 * and a number (a CUresult, an attribute, 1 for yes). facts.txt holds what a real driver answered;
 * facts.test compares the simulated driver with it. It uses the driver API only.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/cudasim/facts.h"

/* One word at the first address of the arguments becomes 1; what the simulator has under this name
 * does the same for count 1 and value 1. */
const char facts_ptx[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry cudasim_test_fill(.param .align 8 .b8 args[32])\n{\n"
                          "  .reg .u64 %a;\n  .reg .u32 %v;\n"
                          "  ld.param.u64 %a, [args];\n  mov.u32 %v, 1;\n"
                          "  st.global.u32 [%a], %v;\n  ret;\n}\n";

CUcontext facts_use_primary(void)
{
    CUcontext ctx = NULL;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&ctx, 0);
    cuCtxSetCurrent(ctx);
    return ctx;
}

CUresult facts_fill(CUdeviceptr dst, CUstream stream)
{
    CUmodule module;
    CUfunction function;
    args_t args = {dst, 0, 1, 1, 0};
    void *params[] = {&args};
    CUresult result = cuModuleLoadData(&module, facts_ptx);
    if (result == CUDA_SUCCESS) {
        result = cuModuleGetFunction(&function, module, "cudasim_test_fill");
    }
    if (result == CUDA_SUCCESS) {
        result = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
    }
    return result;
}

/* ---- Allocation and addresses ---------------------------------------------------------------- */

static void addresses(void)
{
    CUdeviceptr a, b, c, base, large, again;
    size_t bytes = 0;
    char *host = malloc(4096);
    facts_use_primary();
    FACT("alloc.zero_bytes", cuMemAlloc_v2(&a, 0));
    FACT("alloc.too_large", cuMemAlloc_v2(&a, (size_t)1 << 46));
    NEED(cuMemAlloc_v2(&a, 1000));
    NEED(cuMemAlloc_v2(&b, 10));
    NEED(cuMemAlloc_v2(&c, 1000));
    FACT("alloc.small.aligned_512", (a | b | c) % 512 == 0);
    FACT("alloc.small.share_2mib", a >> 21 == b >> 21);
    NEED(cuMemGetAddressRange_v2(&base, &bytes, b + 5));
    FACT("range.small.bytes", bytes);
    FACT("range.small.base_is_pointer", base == b);
    FACT("range.past_the_end", cuMemGetAddressRange_v2(&base, &bytes, b + 10));
    FACT("range.host", cuMemGetAddressRange_v2(&base, &bytes, (CUdeviceptr)(uintptr_t)host));
    FACT("range.null", cuMemGetAddressRange_v2(&base, &bytes, 0));
    FACT("free.null", cuMemFree_v2(0));
    FACT("free.interior", cuMemFree_v2(c + 512));
    FACT("free.host", cuMemFree_v2((CUdeviceptr)(uintptr_t)host));
    NEED(cuMemFree_v2(b));
    FACT("free.twice", cuMemFree_v2(b));
    NEED(cuMemAlloc_v2(&again, 10));
    FACT("alloc.reuses_freed_small", again == b);
    NEED(cuMemAlloc_v2(&large, 64 * MIB));
    FACT("alloc.large.aligned_2mib", large % (2 * MIB) == 0);
    NEED(cuMemFree_v2(large));
    NEED(cuMemAlloc_v2(&again, 64 * MIB));
    FACT("alloc.reuses_freed_large", again == large);
    FACT("copy.past_the_end", cuMemcpyDtoH_v2(host, a, 1025));
    FACT("copy.dtoh_from_pageable", cuMemcpyDtoH_v2(host, (CUdeviceptr)(uintptr_t)host + 2048, 8));
    FACT("copy.dtod_from_pageable", cuMemcpyDtoD_v2(a, (CUdeviceptr)(uintptr_t)host, 8));
    FACT("copy.unified_from_pageable", cuMemcpy(a, (CUdeviceptr)(uintptr_t)host, 8));
    FACT("copy.unified_host_to_host",
         cuMemcpy((CUdeviceptr)(uintptr_t)host + 64, (CUdeviceptr)(uintptr_t)host, 8));
    FACT("memset.past_the_end", cuMemsetD8_v2(a, 0, 1 << 20));
    FACT("memset.d32_unaligned", cuMemsetD32_v2(a + 2, 0, 1));
    FACT("memset.pageable", cuMemsetD8_v2((CUdeviceptr)(uintptr_t)host, 0, 8));
    FACT("copy.after_all_that", cuCtxSynchronize());
}

/* Each in a process of its own: a driver may crash. */
static void odd_dtoh(void)
{
    CUdeviceptr a;
    facts_use_primary();
    NEED(cuMemAlloc_v2(&a, 4096));
    FACT("copy.dtoh_to_device", cuMemcpyDtoH_v2((void *)(uintptr_t)a, a + 1024, 8));
}

static void odd_htod(void)
{
    CUdeviceptr a;
    facts_use_primary();
    NEED(cuMemAlloc_v2(&a, 4096));
    FACT("copy.htod_from_device", cuMemcpyHtoD_v2(a, (void *)(uintptr_t)(a + 1024), 8));
}

static void odd_nothing(void)
{
    facts_use_primary();
    FACT("copy.nothing_from_nowhere", cuMemcpyDtoH_v2(NULL, 0, 0));
}

static void odd_context(void)
{
    CUcontext own;
    CUdeviceptr in_own;
    unsigned int type;
    facts_use_primary();
    NEED(cuCtxCreate_v2(&own, 0, 0));
    NEED(cuMemAlloc_v2(&in_own, 4096));
    NEED(cuCtxDestroy_v2(own));
    FACT("destroyed.attribute",
         cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, in_own));
    FACT("destroyed.set_current", cuCtxSetCurrent(own));
}

/* ---- What is told about pointers ------------------------------------------------------------- */

static void attributes_of(const char *kind, CUdeviceptr ptr, CUdeviceptr base, CUcontext ctx)
{
    struct {
        const char *name;
        CUpointer_attribute attribute;
        bool is_int;
    } const plain[] = {
        {"memory_type", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, true},
        {"is_managed", CU_POINTER_ATTRIBUTE_IS_MANAGED, true},
        {"ordinal", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, true},
        {"legacy_ipc", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, true},
        {"mapped", CU_POINTER_ATTRIBUTE_MAPPED, true},
        {"handle_types", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, false},
        {"rdma_capable", CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, true},
        {"sync_memops", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, true},
        {"range_size", CU_POINTER_ATTRIBUTE_RANGE_SIZE, false},
        {"mapping_size", CU_POINTER_ATTRIBUTE_MAPPING_SIZE, false},
    };
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        unsigned long long value = 0;
        CUresult result = cuPointerGetAttribute(&value, plain[i].attribute, ptr);
        long long shown = plain[i].is_int ? (int)value : (long long)value;
        printf("attr.%s.%s %lld\n", kind, plain[i].name,
               result == CUDA_SUCCESS ? shown : -1000 - (long long)result);
    }
    unsigned long long id = 0, id_next = 0;
    CUdeviceptr start = 0, device = 0, mapping = 0;
    void *host = NULL, *pool = NULL;
    CUcontext got = NULL;
    CUresult r;
    printf("attr.%s.has_id %d\n", kind,
           cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr) == 0 && id != 0);
    cuPointerGetAttribute(&id_next, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr + 1);
    printf("attr.%s.same_id_inside %d\n", kind, id == id_next);
    r = cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_CONTEXT, ptr);
    int which = got == NULL ? 0 : got == ctx ? 1 : 2;
    printf("attr.%s.context %d\n", kind, r != 0 ? -1000 - (int)r : which);
    r = cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr);
    printf("attr.%s.range_starts_at_base %d\n", kind, r != 0 ? -1000 - (int)r : start == base);
    r = cuPointerGetAttribute(&mapping, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, ptr);
    printf("attr.%s.mapping_starts_at_base %d\n", kind, r != 0 ? -1000 - (int)r : mapping == base);
    r = cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ptr);
    printf("attr.%s.device_pointer_is_it %d\n", kind, r != 0 ? -1000 - (int)r : device == ptr);
    r = cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, ptr);
    printf("attr.%s.host_pointer %d\n", kind,
           r != 0 ? -1000 - (int)r : host == NULL ? 0 : host == (void *)(uintptr_t)ptr ? 1 : 2);
    r = cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr);
    printf("attr.%s.pool %d\n", kind, r != 0 ? -1000 - (int)r : pool != NULL);
    unsigned int on = 1;
    printf("attr.%s.set_sync_memops %d\n", kind,
           (int)cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
    CUipcMemHandle handle;
    printf("ipc.get.%s %d\n", kind, (int)cuIpcGetMemHandle(&handle, ptr));
    CUdeviceptr range_base = 0;
    size_t range_bytes = 0;
    r = cuMemGetAddressRange_v2(&range_base, &range_bytes, ptr);
    printf("range.%s %lld\n", kind, r != 0 ? -1000 - (long long)r : (long long)range_bytes);
    printf("range.%s.base %d\n", kind, range_base == base);
    CUmemGenericAllocationHandle vmm;
    r = cuMemRetainAllocationHandle(&vmm, (void *)(uintptr_t)ptr);
    printf("vmm.retain.%s %d\n", kind, (int)r);
    if (r == CUDA_SUCCESS) {
        cuMemRelease(vmm);
    }
}

static void plural(const char *kind, CUdeviceptr ptr)
{
    unsigned int type = 77, managed = 77, sync = 77;
    int ordinal = 77;
    unsigned long long id = 77;
    CUcontext ctx = (CUcontext)77;
    void *host = (void *)77;
    CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_HOST_POINTER,
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS};
    void *values[] = {&type, &managed, &ordinal, &id, &ctx, &host, &sync};
    printf("plural.%s %d\n", kind, (int)cuPointerGetAttributes(7, which, values, ptr));
    printf("plural.%s.type %d\n", kind, (int)type);
    printf("plural.%s.managed %d\n", kind, (int)managed);
    printf("plural.%s.ordinal %d\n", kind, ordinal);
    printf("plural.%s.has_id %d\n", kind, id != 0);
    printf("plural.%s.has_context %d\n", kind, ctx != NULL);
    printf("plural.%s.host_pointer %d\n", kind, host == NULL ? 0 : host == (void *)(uintptr_t)ptr);
}

static void kinds(void)
{
    CUdeviceptr device, managed, pool;
    void *pinned;
    char *raw = NULL;
    if (posix_memalign((void **)&raw, 4096, 16384) != 0) {
        return;
    }
    CUcontext ctx = facts_use_primary();
    NEED(cuMemAlloc_v2(&device, 5 * MIB + 100));
    NEED(cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL));
    NEED(cuMemAllocAsync(&pool, 100, NULL));
    NEED(cuMemHostAlloc(&pinned, 100, CU_MEMHOSTALLOC_PORTABLE));
    NEED(cuMemHostRegister_v2(raw, 8192, 0));
    NEED(cuCtxSynchronize());
    attributes_of("device", device + 64, device, ctx);
    attributes_of("managed", managed + 4, managed, ctx);
    attributes_of("pool", pool + 4, pool, ctx);
    CUdeviceptr at_pinned = (CUdeviceptr)(uintptr_t)pinned, at_raw = (CUdeviceptr)(uintptr_t)raw;
    attributes_of("pinned", at_pinned + 4, at_pinned, ctx);
    attributes_of("registered", at_raw + 4, at_raw, ctx);
    attributes_of("pageable", (CUdeviceptr)(uintptr_t)raw + 12288, 0, ctx);
    plural("device", device);
    plural("pool", pool);
    plural("pinned", (CUdeviceptr)(uintptr_t)pinned);
    plural("pageable", (CUdeviceptr)(uintptr_t)raw + 12288);
    plural("null", 0);
    FACT("register.overlap", cuMemHostRegister_v2(raw + 4096, 8192, 0));
    FACT("register.again", cuMemHostRegister_v2(raw, 8192, 0));
    FACT("register.device", cuMemHostRegister_v2((void *)(uintptr_t)device, 4096, 0));
    FACT("register.unmapped", cuMemHostRegister_v2((void *)(uintptr_t)0x10000, 4096, 0));
    FACT("unregister.unknown", cuMemHostUnregister(raw + 12288));
    FACT("unregister.interior", cuMemHostUnregister(raw + 4096));
    FACT("unregister", cuMemHostUnregister(raw));
    FACT("unregister.twice", cuMemHostUnregister(raw));
    FACT("free_host.unknown", cuMemFreeHost(raw));
    CUdeviceptr mapped = 0;
    FACT("host_device_pointer.pageable", cuMemHostGetDevicePointer_v2(&mapped, raw, 0));
    FACT("host_device_pointer.pinned", cuMemHostGetDevicePointer_v2(&mapped, pinned, 0));
    FACT("host_device_pointer.same", mapped == (CUdeviceptr)(uintptr_t)pinned);
    int fd = -1;
    FACT("dmabuf.unaligned", cuMemGetHandleForAddressRange(&fd, device + 512, 4096, 1, 0));
    FACT("dmabuf.odd_size", cuMemGetHandleForAddressRange(&fd, device, 100, 1, 0));
}

/* ---- Pools ----------------------------------------------------------------------------------- */

static long long id_of(CUdeviceptr ptr)
{
    unsigned long long id = 0;
    CUresult result = cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr);
    return result == CUDA_SUCCESS ? (long long)id : -1;
}

static void pools(void)
{
    CUdeviceptr a, b, c, plain;
    CUstream stream, other;
    unsigned int type = 0;
    CUmemoryPool pool;
    facts_use_primary();
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    NEED(cuMemAlloc_v2(&plain, 100));
    long long plain_id = id_of(plain);
    NEED(cuMemFree_v2(plain));
    NEED(cuMemAlloc_v2(&plain, 100));
    FACT("id.device.changes_when_reallocated", id_of(plain) != plain_id);
    NEED(cuMemAllocAsync(&a, 4 * MIB, stream));
    NEED(cuMemAllocAsync(&c, 4 * MIB, stream));
    FACT("id.pool.differs_between_buffers", id_of(a) != id_of(c));
    long long id = id_of(a);
    NEED(cuMemFreeAsync(a, stream));
    FACT("pool.attribute_after_free_async",
         cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a));
    FACT("pool.free_async_twice", cuMemFreeAsync(a, stream));
    NEED(cuMemAllocAsync(&b, 4 * MIB, stream));
    FACT("pool.same_stream_reuses_address", a == b);
    FACT("id.pool.changes_when_reallocated", a == b ? id_of(b) != id : 2);
    NEED(cuStreamSynchronize(stream));
    FACT("pool.free_async_of_device_memory", cuMemFreeAsync(plain, stream));
    FACT("pool.plain_free", cuMemFree_v2(b));
    FACT("pool.free_after_free", cuMemFree_v2(b));
    NEED(cuDeviceGetDefaultMemPool(&pool, 0));
    FACT("pool.destroy_default", cuMemPoolDestroy(pool));
    CUmemPoolPtrExportData data;
    FACT("pool.export_of_default", cuMemPoolExportPointer(&data, c));
    int fd = -1;
    FACT("pool.export_default_pool",
         cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

/* ---- VMM ------------------------------------------------------------------------------------- */

static void vmm(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle a, b;
    CUdeviceptr va, dev;
    size_t granularity = 0;
    int fd = -1;
    unsigned int type = 0;
    CUcontext ctx = facts_use_primary();
    prop.allocFlags.gpuDirectRDMACapable = 1;
    NEED(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    FACT("vmm.granularity", granularity);
    FACT("vmm.create_odd_size", cuMemCreate(&a, MIB, &prop, 0));
    NEED(cuMemCreate(&a, 2 * MIB, &prop, 0));
    NEED(cuMemCreate(&b, 4 * MIB, &prop, 0));
    NEED(cuMemAddressReserve(&va, 16 * MIB, 0, 0, 0));
    FACT("vmm.attribute_of_reserved",
         cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, va));
    attributes_of("vmm_reserved", va + 64, va, ctx);
    FACT("vmm.map_with_offset", cuMemMap(va, 2 * MIB, 2 * MIB, b, 0));
    NEED(cuMemMap(va, 2 * MIB, 0, a, 0));
    FACT("vmm.map_over_mapped", cuMemMap(va, 2 * MIB, 0, a, 0));
    NEED(cuMemMap(va + 2 * MIB, 4 * MIB, 0, b, 0));
    FACT("vmm.memset_without_access", cuMemsetD8_v2(va, 0, 16));
    FACT("vmm.sync_after_that", cuCtxSynchronize());
    NEED(cuMemSetAccess(va, 6 * MIB, &access, 1));
    attributes_of("vmm", va + 64, va, ctx);
    attributes_of("vmm_second", va + 2 * MIB + 64, va + 2 * MIB, ctx);
    plural("vmm", va + 64);
    FACT("vmm.chunks_differ_in_id", id_of(va) != id_of(va + 2 * MIB));
    NEED(cuMemAlloc_v2(&dev, 6 * MIB));
    FACT("vmm.copy_over_the_seam", cuMemcpyDtoD_v2(dev, va, 6 * MIB));
    FACT("vmm.memset_over_the_seam", cuMemsetD8_v2(va, 1, 6 * MIB));
    FACT("vmm.copy_past_the_end", cuMemcpyDtoD_v2(dev, va + 2 * MIB, 5 * MIB));
    FACT("vmm.sync", cuCtxSynchronize());
    FACT("vmm.export_unasked",
         cuMemExportToShareableHandle(&fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    FACT("vmm.address_free_while_mapped", cuMemAddressFree(va, 16 * MIB));
    FACT("vmm.unmap_part", cuMemUnmap(va + 2 * MIB, 2 * MIB));
    long long id = id_of(va);
    NEED(cuMemUnmap(va, 2 * MIB));
    FACT("vmm.attribute_after_unmap",
         cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, va));
    NEED(cuMemMap(va, 2 * MIB, 0, a, 0));
    NEED(cuMemSetAccess(va, 2 * MIB, &access, 1));
    FACT("vmm.id_changes_when_mapped_again", id_of(va) != id);
    FACT("vmm.release", cuMemRelease(a));
    FACT("vmm.release_twice", cuMemRelease(a));
    FACT("vmm.free", cuMemFree_v2(va));
}

/* ---- Without a current context --------------------------------------------------------------- */

typedef struct rest {
    CUdeviceptr ptr, pool;
    void *pinned;
    CUstream stream;
    CUevent event;
    CUcontext ctx;
    CUmodule module;
    CUfunction function;
} rest_t;

static void *without_context(void *arg)
{
    rest_t *r = arg;
    CUdeviceptr ptr, base;
    CUstream stream;
    CUevent event;
    CUcontext ctx;
    CUdevice device;
    CUfunction function;
    CUipcMemHandle handle;
    size_t a, b;
    unsigned int type = 0;
    int low, high, value;
    char *host = r->pinned;
    args_t args = {r->ptr, 0, 1, 1, 0};
    void *params[] = {&args};
    cuCtxGetCurrent(&ctx);
    FACT("none.current_is_null", ctx == NULL);
    FACT("none.alloc", cuMemAlloc_v2(&ptr, 16));
    FACT("none.alloc_async", cuMemAllocAsync(&ptr, 16, r->stream));
    FACT("none.host_alloc", cuMemHostAlloc((void **)&ptr, 16, 0));
    FACT("none.get_info", cuMemGetInfo_v2(&a, &b));
    FACT("none.address_range", cuMemGetAddressRange_v2(&base, &a, r->ptr));
    FACT("none.attribute", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, r->ptr));
    plural("without_context", r->ptr);
    FACT("none.dtoh", cuMemcpyDtoH_v2(host, r->ptr, 8));
    FACT("none.dtoh_async", cuMemcpyDtoHAsync_v2(host, r->ptr, 8, r->stream));
    FACT("none.dtod_async", cuMemcpyDtoDAsync_v2(r->ptr, r->ptr + 64, 8, r->stream));
    FACT("none.unified_async",
         cuMemcpyAsync((CUdeviceptr)(uintptr_t)host, r->ptr, 8, r->stream));
    FACT("none.memset_async", cuMemsetD8Async(r->ptr, 0, 8, r->stream));
    FACT("none.launch", cuLaunchKernel(r->function, 1, 1, 1, 1, 1, 1, 0, r->stream, params, NULL));
    FACT("none.write_value",
         cuStreamWriteValue32_v2(r->stream, (CUdeviceptr)(uintptr_t)host + 64, 1, 0));
    FACT("none.stream_query_default", cuStreamQuery(NULL));
    FACT("none.stream_sync_default", cuStreamSynchronize(NULL));
    FACT("none.stream_sync", cuStreamSynchronize(r->stream));
    FACT("none.stream_query", cuStreamQuery(r->stream));
    FACT("none.stream_get_ctx", cuStreamGetCtx(r->stream, &ctx));
    FACT("none.stream_wait_event", cuStreamWaitEvent(r->stream, r->event, 0));
    FACT("none.event_record", cuEventRecord(r->event, r->stream));
    FACT("none.event_sync", cuEventSynchronize(r->event));
    FACT("none.event_query", cuEventQuery(r->event));
    FACT("none.stream_create", cuStreamCreate(&stream, 0));
    FACT("none.event_create", cuEventCreate(&event, 0));
    FACT("none.ctx_sync", cuCtxSynchronize());
    FACT("none.ctx_get_device", cuCtxGetDevice(&device));
    FACT("none.priority_range", cuCtxGetStreamPriorityRange(&low, &high));
    FACT("none.ipc_get", cuIpcGetMemHandle(&handle, r->ptr));
    FACT("none.get_function",
         cuModuleGetFunction(&function, r->module, "cudasim_test_fill"));
    FACT("none.func_attribute",
         cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, r->function));
    FACT("none.host_device_pointer", cuMemHostGetDevicePointer_v2(&ptr, host, 0));
    FACT("none.host_register", cuMemHostRegister_v2(&args, sizeof(args), 0));
    FACT("none.pop", cuCtxPopCurrent_v2(&ctx));
    FACT("none.free_async", cuMemFreeAsync(r->pool, r->stream));
    FACT("none.free", cuMemFree_v2(r->ptr));
    FACT("none.free_host", cuMemFreeHost(r->pinned));
    FACT("none.event_destroy", cuEventDestroy_v2(r->event));
    FACT("none.stream_destroy", cuStreamDestroy_v2(r->stream));
    FACT("none.module_unload", cuModuleUnload(r->module));
    return NULL;
}

static void no_context(void)
{
    rest_t r;
    unsigned int type;
    FACT("not_initialized.alloc", cuMemAlloc_v2(&r.ptr, 4));
    FACT("not_initialized.attribute",
         cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 4096));
    plural("not_initialized", (CUdeviceptr)(uintptr_t)&r);
    cuInit(0);
    plural("no_context_yet", (CUdeviceptr)(uintptr_t)&r);
    r.ctx = facts_use_primary();
    plural("stack_of_process", (CUdeviceptr)(uintptr_t)&r);
    NEED(cuMemAlloc_v2(&r.ptr, 4096));
    NEED(cuStreamCreate(&r.stream, CU_STREAM_NON_BLOCKING));
    NEED(cuMemAllocAsync(&r.pool, 4096, r.stream));
    NEED(cuMemHostAlloc(&r.pinned, 4096, 0));
    NEED(cuEventCreate(&r.event, CU_EVENT_DISABLE_TIMING));
    NEED(cuModuleLoadData(&r.module, facts_ptx));
    NEED(cuModuleGetFunction(&r.function, r.module, "cudasim_test_fill"));
    NEED(cuStreamSynchronize(r.stream));
    pthread_t thread;
    if (pthread_create(&thread, NULL, without_context, &r) == 0) {
        pthread_join(thread, NULL);
    }
}

/* ---- Several contexts ------------------------------------------------------------------------ */

static void host_function(void *arg)
{
    CUdeviceptr ptr;
    *(int *)arg = (int)cuMemAlloc_v2(&ptr, 4);
}

static void contexts(void)
{
    CUcontext primary = facts_use_primary(), own, got, again;
    CUdeviceptr in_primary, in_own;
    CUstream of_primary, of_own;
    CUevent of_own_event, of_primary_event;
    CUmodule module;
    CUfunction function;
    args_t args;
    void *params[] = {&args};
    NEED(cuMemAlloc_v2(&in_primary, 4096));
    NEED(cuStreamCreate(&of_primary, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&of_primary_event, 0));
    NEED(cuModuleLoadData(&module, facts_ptx));
    NEED(cuModuleGetFunction(&function, module, "cudasim_test_fill"));
    NEED(cuCtxCreate_v2(&own, 0, 0));
    NEED(cuMemAlloc_v2(&in_own, 4096));
    NEED(cuStreamCreate(&of_own, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&of_own_event, 0));
    args = (args_t){in_primary, 0, 1, 1, 0};
    FACT("two.copy_between_contexts", cuMemcpyDtoD_v2(in_own, in_primary, 64));
    FACT("two.copy_on_foreign_stream",
         cuMemcpyDtoDAsync_v2(in_primary, in_own, 64, of_primary));
    FACT("two.memset_on_foreign_stream", cuMemsetD8Async(in_primary, 1, 64, of_primary));
    FACT("two.launch_on_foreign_stream",
         cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, of_primary, params, NULL));
    FACT("two.launch_foreign_function",
         cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, of_own, params, NULL));
    FACT("two.record_foreign_event", cuEventRecord(of_own_event, of_primary));
    FACT("two.record_both_foreign", cuEventRecord(of_primary_event, of_primary));
    FACT("two.wait_for_foreign_event", cuStreamWaitEvent(of_own, of_primary_event, 0));
    FACT("two.sync_foreign_stream", cuStreamSynchronize(of_primary));
    FACT("two.free_foreign_memory", cuMemFree_v2(in_primary));
    FACT("two.enable_peer_same_device", cuCtxEnablePeerAccess(primary, 0));
    int from_host_function = -1;
    NEED(cuLaunchHostFunc(of_own, host_function, &from_host_function));
    NEED(cuStreamSynchronize(of_own));
    FACT("host_function.alloc", from_host_function);
    FACT("two.destroy_primary", cuCtxDestroy_v2(primary));
    NEED(cuCtxDestroy_v2(own));
    cuCtxGetCurrent(&got);
    FACT("destroyed.primary_current_again", got == primary);
    unsigned long long id = 0, id_again = 0;
    cuCtxGetId(primary, &id);
    NEED(cuDevicePrimaryCtxRetain(&again, 0));
    FACT("primary.same_handle", again == primary);
    NEED(cuDevicePrimaryCtxRelease_v2(0));
    NEED(cuDevicePrimaryCtxRelease_v2(0));
    FACT("primary.released_twice_too_often", cuDevicePrimaryCtxRelease_v2(0));
    FACT("primary.alloc_after_release", cuMemAlloc_v2(&in_own, 4));
    NEED(cuDevicePrimaryCtxRetain(&again, 0));
    cuCtxGetId(again, &id_again);
    FACT("primary.same_handle_after_release", again == primary);
    FACT("primary.new_id_after_release", id != id_again);
    FACT("primary.usable_again", cuMemAlloc_v2(&in_own, 4));
    FACT("pop.last", cuCtxPopCurrent_v2(&got));
    FACT("pop.empty", cuCtxPopCurrent_v2(&got));
}

/* ---- Errors that stick ----------------------------------------------------------------------- */

static void sticky(void)
{
    CUdeviceptr dev, ptr;
    CUstream stream;
    CUevent event;
    void *pinned;
    unsigned int type;
    CUcontext ctx = facts_use_primary(), got, own;
    NEED(cuMemAlloc_v2(&dev, 4096));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuEventCreate(&event, 0));
    NEED(cuMemHostAlloc(&pinned, 4096, 0));
    FACT("kernel.good", facts_fill(dev, stream));
    FACT("kernel.good_sync", cuStreamSynchronize(stream));
    FACT("write_value.unaligned",
         cuStreamWriteValue32_v2(stream, (CUdeviceptr)(uintptr_t)pinned + 2, 1, 0));
    FACT("write_value.pageable",
         cuStreamWriteValue32_v2(stream, (CUdeviceptr)(uintptr_t)&ctx, 1, 0));
    FACT("kernel.illegal_launch", facts_fill(8, stream));
    FACT("kernel.illegal_sync", cuStreamSynchronize(stream));
    FACT("broken.alloc", cuMemAlloc_v2(&ptr, 4));
    FACT("broken.free", cuMemFree_v2(dev));
    FACT("broken.stream_query", cuStreamQuery(stream));
    FACT("broken.event_query", cuEventQuery(event));
    FACT("broken.copy", cuMemcpyDtoHAsync_v2(pinned, dev, 4, stream));
    FACT("broken.ctx_sync", cuCtxSynchronize());
    FACT("broken.get_current", cuCtxGetCurrent(&got));
    FACT("broken.push", cuCtxPushCurrent_v2(ctx));
    FACT("broken.attribute", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, dev));
    plural("broken", dev);
    FACT("broken.stream_destroy", cuStreamDestroy_v2(stream));
    FACT("broken.free_host", cuMemFreeHost(pinned));
    FACT("broken.create_other_context", cuCtxCreate_v2(&own, 0, 0));
}

/* ---- Processes ------------------------------------------------------------------------------- */

static int to_importer[2], to_owner[2];

static void owner(void)
{
    CUdeviceptr large, small, opened;
    CUipcMemHandle handles[2];
    char token;
    facts_use_primary();
    NEED(cuMemAlloc_v2(&large, 8 * MIB));
    NEED(cuMemAlloc_v2(&small, 700));
    NEED(cuMemsetD8_v2(large, 5, 8 * MIB));
    NEED(cuCtxSynchronize());
    NEED(cuIpcGetMemHandle(&handles[0], large + 100));
    NEED(cuIpcGetMemHandle(&handles[1], small));
    FACT("ipc.open_in_same_process",
         cuIpcOpenMemHandle_v2(&opened, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    fflush(stdout);
    if (write(to_importer[1], handles, sizeof(handles)) < 0 || read(to_owner[0], &token, 1) != 1) {
        return;
    }
    NEED(cuMemFree_v2(large));
    if (write(to_importer[1], "", 1) != 1 || read(to_owner[0], &token, 1) != 1) {
        return;
    }
}

static void importer(void)
{
    CUdeviceptr large, small, twice, range;
    CUipcMemHandle handles[2], again;
    size_t bytes = 0;
    char token;
    unsigned char byte = 0;
    CUcontext ctx = facts_use_primary(), other;
    if (read(to_importer[0], handles, sizeof(handles)) != (ssize_t)sizeof(handles)) {
        return;
    }
    FACT("ipc.open_without_flag", cuIpcOpenMemHandle_v2(&large, handles[0], 0));
    NEED(cuIpcOpenMemHandle_v2(&large, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    NEED(cuMemcpyDtoH_v2(&byte, large, 1));
    FACT("ipc.data", byte);
    attributes_of("imported", large + 64, large, ctx);
    NEED(cuMemGetAddressRange_v2(&range, &bytes, large + 4096));
    FACT("ipc.range_base_is_pointer", range == large);
    FACT("ipc.opened_twice",
         cuIpcOpenMemHandle_v2(&twice, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    FACT("ipc.same_address_twice", twice == large);
    NEED(cuIpcOpenMemHandle_v2(&small, handles[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    NEED(cuMemGetAddressRange_v2(&range, &bytes, small));
    FACT("ipc.small.range_bytes", bytes);
    FACT("ipc.small.range_base_is_pointer", range == small);
    FACT("ipc.small.aligned_2mib", small % (2 * MIB) == 0);
    FACT("ipc.free_imported", cuMemFree_v2(large));
    FACT("ipc.export_imported", cuIpcGetMemHandle(&again, large));
    FACT("ipc.close_interior", cuIpcCloseMemHandle(large + 512));
    FACT("ipc.close_one_of_two", cuIpcCloseMemHandle(large));
    FACT("ipc.still_usable", cuMemcpyDtoH_v2(&byte, large, 1));
    FACT("ipc.close_two_of_two", cuIpcCloseMemHandle(large));
    FACT("ipc.close_too_often", cuIpcCloseMemHandle(large));
    FACT("ipc.reopen",
         cuIpcOpenMemHandle_v2(&large, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    NEED(cuCtxCreate_v2(&other, 0, 0));
    FACT("ipc.open_in_second_context",
         cuIpcOpenMemHandle_v2(&twice, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    NEED(cuCtxSetCurrent(ctx));
    fflush(stdout);
    if (write(to_owner[1], "", 1) != 1 || read(to_importer[0], &token, 1) != 1) {
        return;
    }
    FACT("ipc.use_after_owners_free", cuMemcpyDtoH_v2(&byte, large, 1));
    FACT("ipc.data_after_owners_free", byte);
    FACT("ipc.close_after_owners_free", cuIpcCloseMemHandle(large));
    FACT("ipc.open_stale",
         cuIpcOpenMemHandle_v2(&large, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    if (write(to_owner[1], "", 1) != 1) {
        return;
    }
}

static void processes(void)
{
    if (pipe(to_importer) != 0 || pipe(to_owner) != 0) {
        return;
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        owner();
        fflush(stdout);
        _exit(0);
    }
    importer();
    fflush(stdout);
    waitpid(pid, NULL, 0);
}

static void forks(void)
{
    CUdeviceptr ptr;
    facts_use_primary();
    NEED(cuMemAlloc_v2(&ptr, 4));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        FACT("forked.alloc", cuMemAlloc_v2(&ptr, 4));
        FACT("forked.init", cuInit(0));
        fflush(stdout);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

int main(void)
{
    void (*const groups[])(void) = {
        addresses, odd_dtoh, odd_htod, odd_nothing, kinds,     pools, vmm,
        no_context, contexts, odd_context, sticky, facts_waits, processes, forks};
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(60);
            groups[i]();
            fflush(stdout);
            _exit(0);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        if (status != 0) {
            printf("group.%zu.ended_by %d\n", i, status);
        }
    }
    return 0;
}
