/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulated driver: VMM, pools, dma-buf; its gdrcopy and NVML stand-ins. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "cuda-aware/gdr_abi.h"
#include "cuda-aware/nvml_abi.h"
#include "tests/cudasim/child.h"

#define MIB ((size_t)1 << 20)

static CUmemAllocationProp prop_on(CUmemLocationType type, int id)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {type, id}};
}

static CUresult grant(CUdeviceptr ptr, size_t bytes, CUmemLocationType type, int id)
{
    CUmemAccessDesc access = {{type, id}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(ptr, bytes, &access, 1);
}

/* ---- VMM ------------------------------------------------------------------------------------ */

static void two_chunks(void *arg)
{
    (void)arg;
    CUmemAllocationProp prop = prop_on(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    CUmemGenericAllocationHandle a, b, again;
    CUdeviceptr ptr, base, dev;
    size_t bytes, granularity;
    unsigned int legacy;
    CUcontext ctx;
    unsigned long long id_a, id_b;
    child_cuda();
    OK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(granularity == 2 * MIB);
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&a, MIB, &prop, 0));
    OK(cuMemCreate(&a, 2 * MIB, &prop, 0));
    OK(cuMemCreate(&b, 4 * MIB, &prop, 0));
    OK(cuMemAddressReserve(&ptr, 8 * MIB, 0, 0, 0));
    OK(cuMemMap(ptr, 2 * MIB, 0, a, 0));
    OK(cuMemMap(ptr + 2 * MIB, 4 * MIB, 0, b, 0));
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemMap(ptr, 2 * MIB, 0, a, 0)); /* taken */
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(ptr, 1, 16));       /* no access yet */
    OK(grant(ptr, 6 * MIB, CU_MEM_LOCATION_TYPE_DEVICE, 0));
    /* One copy may go over the seam. */
    OK(cuMemAlloc_v2(&dev, 6 * MIB));
    OK(cuMemsetD8_v2(ptr, 7, 6 * MIB));
    OK(cuMemcpyDtoD_v2(dev, ptr, 6 * MIB));
    OK(cuCtxSynchronize());
    CHECK(((char *)cudasim_alias(dev))[6 * MIB - 1] == 7);
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(ptr, 1, 6 * MIB + 1));
    /* Each chunk is told by itself. */
    OK(cuMemGetAddressRange_v2(&base, &bytes, ptr + 3 * MIB));
    CHECK(base == ptr + 2 * MIB && bytes == 4 * MIB);
    OK(cuPointerGetAttribute(&id_a, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
    OK(cuPointerGetAttribute(&id_b, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr + 2 * MIB));
    OK(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ptr));
    OK(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
    CHECK(id_a != id_b && !legacy && ctx == NULL);
    CUipcMemHandle handle;
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, ptr));
    int fd;
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, /* it was not asked to be shareable */
             cuMemExportToShareableHandle(&fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(ptr + 5 * MIB)));
    CHECK(again == b);
    CHECK_CU(CUDA_ERROR_INVALID_VALUE,
             cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)dev));
    OK(cuMemRelease(b));
    OK(cuMemRelease(b));
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemRelease(b));
    OK(cuMemRelease(a));
    CHECK(cudasim_get("vmm_handles_live") == 0 && cudasim_get("vmm_maps_live") == 2);
    CHECK(cudasim_get("device_bytes.0") == 12 * (long long)MIB);
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(ptr, MIB));
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(ptr, 8 * MIB));
    OK(cuMemUnmap(ptr, 6 * MIB));
    CHECK(cudasim_get("device_bytes.0") == 6 * (long long)MIB);
    OK(cuMemAddressFree(ptr, 8 * MIB));
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(ptr, 1, 1));
}

static void host_memory(void *arg)
{
    (void)arg;
    CUmemAllocationProp prop = prop_on(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr ptr;
    unsigned int type;
    child_cuda();
    OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    OK(cuMemAddressReserve(&ptr, 2 * MIB, 0, 0, 0));
    OK(cuMemMap(ptr, 2 * MIB, 0, handle, 0));
    OK(grant(ptr, 2 * MIB, CU_MEM_LOCATION_TYPE_DEVICE, 0));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr));
    CHECK(type == CU_MEMORYTYPE_HOST);
    OK(cuMemsetD8_v2(ptr, 3, 2 * MIB));
    OK(cuCtxSynchronize());
    int null = open("/dev/null", 1);
    CHECK(null >= 0 && write(null, (void *)(uintptr_t)ptr, 1) >= 0);
    pid_t pid = fork();
    if (pid == 0) { /* not for the CPU, as long as it was not granted */
        signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile char *)(uintptr_t)ptr);
    }
    CHECK(child_wait(pid) == 128 + SIGSEGV);
    OK(grant(ptr, 2 * MIB, CU_MEM_LOCATION_TYPE_HOST_NUMA, 0));
    CHECK(*(volatile char *)(uintptr_t)ptr == 3);
    OK(cuMemUnmap(ptr, 2 * MIB));
}

static void peer_grants(void *arg)
{
    (void)arg;
    CUmemAllocationProp prop = prop_on(CU_MEM_LOCATION_TYPE_DEVICE, 1);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr ptr;
    unsigned long long flags;
    CUmemLocation near_gpu = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    child_cuda();
    OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    OK(cuMemAddressReserve(&ptr, 2 * MIB, 0, 0, 0));
    OK(cuMemMap(ptr, 2 * MIB, 0, handle, 0));
    OK(grant(ptr, 2 * MIB, CU_MEM_LOCATION_TYPE_DEVICE, 1));
    OK(cuMemGetAccess(&flags, &near_gpu, ptr));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(ptr, 1, 1)); /* the current device is 0 */
    OK(grant(ptr, 2 * MIB, CU_MEM_LOCATION_TYPE_DEVICE, 0));
    OK(cuMemsetD8_v2(ptr, 1, 1));
    CHECK_CU(CUDA_ERROR_INVALID_DEVICE, grant(ptr, 2 * MIB, CU_MEM_LOCATION_TYPE_DEVICE, 2));
    CHECK_CU(CUDA_ERROR_INVALID_DEVICE, grant(ptr, 2 * MIB, CU_MEM_LOCATION_TYPE_DEVICE, 3));
}

static void unsupported(void *arg)
{
    (void)arg;
    CUmemAllocationProp prop = prop_on(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr ptr;
    int value;
    child_cuda();
    CHECK_CU(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, 2 * MIB, &prop, 0));
    CHECK_CU(CUDA_ERROR_NOT_SUPPORTED, cuMemAllocAsync(&ptr, 8, NULL));
    CHECK_CU(CUDA_ERROR_NOT_SUPPORTED, cuMemAllocManaged(&ptr, 8, CU_MEM_ATTACH_GLOBAL));
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
    CHECK(value == 0);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0));
    CHECK(value == 0);
    OK(cuMemAlloc_v2(&ptr, 4096));
    CHECK_CU(CUDA_ERROR_NOT_SUPPORTED,
             cuMemGetHandleForAddressRange(&value, ptr, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                           0));
}

static void test_vmm(void **state)
{
    (void)state;
    assert_int_equal(child_run(NULL, two_chunks), 0);
    assert_int_equal(child_run(NULL, host_memory), 0);
    assert_int_equal(child_run("CUDASIM_DEVICES=3 CUDASIM_NO_P2P=1-2", peer_grants), 0);
    assert_int_equal(child_run("CUDASIM_NO_VMM=1 CUDASIM_NO_POOLS=1 CUDASIM_NO_MANAGED=1 "
                               "CUDASIM_NO_DMABUF=1",
                               unsupported),
                     0);
}

/* ---- Pools ---------------------------------------------------------------------------------- */

static void pools(void *arg)
{
    (void)arg;
    CUstream stream, other;
    CUmemoryPool pool, got;
    CUdeviceptr a, b, c;
    uint64_t used;
    child_cuda();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemAllocAsync(&a, 100000, stream));
    OK(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a));
    CHECK(got == pool);
    unsigned long long id = cudasim_buffer_id(a);
    cudasim_set_delay(30000);
    OK(cuMemsetD8Async(a, 1, 100000, stream));
    OK(cuMemFreeAsync(a, stream));
    CHECK(cudasim_buffer_id(a) == 0); /* no longer the application's, though not yet free */
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(a, stream));
    OK(cuMemAllocAsync(&b, 100000, other)); /* another stream: other memory */
    OK(cuMemAllocAsync(&c, 100000, stream)); /* the same stream: at once the same address */
    CHECK(b != a && c == a && cudasim_buffer_id(c) != id);
    OK(cuStreamSynchronize(stream));
    CHECK(cudasim_buffer_id(c) != 0); /* the free of its former life does not hit it */
    OK(cuMemFreeAsync(b, other));
    OK(cuMemFree_v2(c));
    OK(cuCtxSynchronize());
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    CHECK(used == 0 && cudasim_get("allocs_live") == 0);
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(pool)); /* the default one */
    OK(cuMemAlloc_v2(&a, 64));
    OK(cuMemFreeAsync(a, stream)); /* the driver frees such memory in stream order, too */
    OK(cuStreamSynchronize(stream));
    CHECK(cudasim_get("allocs_live") == 0);
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                            .maxSize = 4096};
    OK(cuMemPoolCreate(&pool, &props));
    CHECK_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&a, 8192, pool, stream));
    OK(cuDeviceSetMemPool(0, pool));
    OK(cuMemAllocAsync(&a, 4000, stream));
    OK(cuMemPoolDestroy(pool));
    OK(cuMemFreeAsync(a, stream));
    OK(cuStreamSynchronize(stream));
}

static void test_pools(void **state)
{
    (void)state;
    assert_int_equal(child_run(NULL, pools), 0);
}

/* ---- dma-buf, gdrcopy ----------------------------------------------------------------------- */

static void dma_buf(void *arg)
{
    (void)arg;
    CUdeviceptr first, ptr;
    int fd;
    child_cuda();
    OK(cuMemAlloc_v2(&first, 4096));
    OK(cuMemAlloc_v2(&ptr, 8192));
    OK(cuMemsetD8_v2(ptr, 5, 8192));
    OK(cuCtxSynchronize());
    CHECK_CU(CUDA_ERROR_INVALID_VALUE,
             cuMemGetHandleForAddressRange(&fd, ptr + 512, 4096,
                                           CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    OK(cuMemGetHandleForAddressRange(&fd, ptr, 8192, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    off_t start = lseek(fd, 0, SEEK_CUR);
    CHECK(start == 4096);
    unsigned char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, start);
    CHECK(at != MAP_FAILED && at[0] == 5 && at[8191] == 5);
    at[1] = 6;
    CHECK(((unsigned char *)cudasim_alias(ptr))[1] == 6);
}

typedef struct gdr_table {
    __typeof__(gdr_open) *open;
    __typeof__(gdr_pin_buffer) *pin;
    __typeof__(gdr_unpin_buffer) *unpin;
    __typeof__(gdr_get_info_v2) *info;
    __typeof__(gdr_map) *map;
    __typeof__(gdr_unmap) *unmap;
    __typeof__(gdr_copy_to_mapping) *put;
    __typeof__(gdr_copy_from_mapping) *get;
    __typeof__(gdr_get_callback_flag) *flag;
} gdr_table_t;

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    return found;
}

static gdr_table_t gdr_load(void)
{
    gdr_table_t t;
    void *library = dlopen("libgdrapi.so.2", RTLD_NOW);
    CHECK(library != NULL);
    *(void **)&t.open = symbol(library, "gdr_open");
    *(void **)&t.pin = symbol(library, "gdr_pin_buffer");
    *(void **)&t.unpin = symbol(library, "gdr_unpin_buffer");
    *(void **)&t.info = symbol(library, "gdr_get_info_v2");
    *(void **)&t.map = symbol(library, "gdr_map");
    *(void **)&t.unmap = symbol(library, "gdr_unmap");
    *(void **)&t.put = symbol(library, "gdr_copy_to_mapping");
    *(void **)&t.get = symbol(library, "gdr_copy_from_mapping");
    *(void **)&t.flag = symbol(library, "gdr_get_callback_flag");
    return t;
}

static void gdrcopy(void *arg)
{
    (void)arg;
    CUdeviceptr ptr;
    gdr_mh_t mh;
    gdr_info_v2_t info;
    void *va;
    char out[100] = "over the mapping", in[100];
    int flag = 1;
    child_cuda();
    gdr_table_t t = gdr_load();
    gdr_t gdr = t.open();
    CHECK(gdr != NULL);
    OK(cuMemAlloc_v2(&ptr, 300000));
    uint64_t page = ptr / GRAIL_GDR_PAGE_SIZE * GRAIL_GDR_PAGE_SIZE;
    CHECK(t.pin(gdr, page + 4096, 65536, 0, 0, &mh) == EINVAL);
    CHECK(t.pin(gdr, page, 5 * 65536, 0, 0, &mh) == 0);
    CHECK(t.map(gdr, mh, &va, 5 * 65536) == 0);
    CHECK(t.info(gdr, mh, &info) == 0 && info.va == page && info.mapped &&
          info.mapped_size == 5 * 65536 && info.page_size == 65536);
    char *mapped = (char *)va + (ptr + 1000 - info.va);
    CHECK(t.put(mh, mapped, out, sizeof(out)) == 0);
    OK(cuMemcpyDtoH_v2(in, ptr + 1000, sizeof(in)));
    CHECK(strcmp(in, out) == 0);
    OK(cuMemsetD8_v2(ptr + 1000, 'x', 50));
    OK(cuCtxSynchronize());
    CHECK(t.get(mh, in, mapped, sizeof(in)) == 0 && in[49] == 'x' && in[50] == out[50]);
    CHECK(t.flag(gdr, mh, &flag) == 0 && flag == 0);
    OK(cuMemFree_v2(ptr));
    CHECK(t.flag(gdr, mh, &flag) == 0 && flag == 1);
    CHECK(t.unmap(gdr, mh, va, 5 * 65536) == 0 && t.unpin(gdr, mh) == 0);
    CHECK(t.unpin(gdr, mh) == EINVAL);
}

static void gdrcopy_fails(void *arg)
{
    (void)arg;
    child_cuda();
    CHECK(gdr_load().open() == NULL);
}

static void test_mappings(void **state)
{
    (void)state;
    assert_int_equal(child_run(NULL, dma_buf), 0);
    assert_int_equal(child_run(NULL, gdrcopy), 0);
    assert_int_equal(child_run("CUDASIM_GDR_FAIL=map,open", gdrcopy_fails), 0);
}

/* ---- NVML ----------------------------------------------------------------------------------- */

static void nvml(void *arg)
{
    (void)arg;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    CHECK(library != NULL);
#define NVML(name) __typeof__(name) *name##_fn = symbol(library, #name)
    NVML(nvmlInit_v2);
    NVML(nvmlDeviceGetCount_v2);
    NVML(nvmlDeviceGetHandleByIndex_v2);
    NVML(nvmlDeviceGetHandleByUUID);
    NVML(nvmlDeviceGetUUID);
    NVML(nvmlDeviceGetPciInfo_v3);
    NVML(nvmlDeviceGetP2PStatus);
    NVML(nvmlDeviceGetNvLinkState);
    NVML(nvmlDeviceGetNvLinkRemotePciInfo_v2);
    NVML(nvmlDeviceGetMigMode);
#undef NVML
    unsigned int count, mig, pending;
    nvmlDevice_t d[3], same;
    char uuid[NVML_DEVICE_UUID_BUFFER_SIZE], cuda_uuid[64];
    nvmlPciInfo_t pci;
    nvmlGpuP2PStatus_t p2p;
    nvmlEnableState_t active;
    CUuuid u;
    CHECK(nvmlDeviceGetCount_v2_fn(&count) == NVML_ERROR_UNINITIALIZED);
    CHECK(nvmlInit_v2_fn() == NVML_SUCCESS);
    CHECK(nvmlDeviceGetCount_v2_fn(&count) == NVML_SUCCESS && count == 3); /* not masked */
    for (unsigned int i = 0; i < 3; i++) {
        CHECK(nvmlDeviceGetHandleByIndex_v2_fn(i, &d[i]) == NVML_SUCCESS);
    }
    CHECK(nvmlDeviceGetHandleByIndex_v2_fn(3, &same) == NVML_ERROR_INVALID_ARGUMENT);
    CHECK(nvmlDeviceGetUUID_fn(d[2], uuid, sizeof(uuid)) == NVML_SUCCESS);
    CHECK(nvmlDeviceGetHandleByUUID_fn(uuid, &same) == NVML_SUCCESS && same == d[2]);
    OK(cuInit(0));
    OK(cuDeviceGetUuid_v2(&u, 0)); /* CUDA's device 0 is number 2 */
    const unsigned char *b = (const unsigned char *)u.bytes;
    snprintf(cuda_uuid, sizeof(cuda_uuid), "GPU-%02x%02x%02x%02x-", b[0], b[1], b[2], b[3]);
    CHECK(strncmp(uuid, cuda_uuid, strlen(cuda_uuid)) == 0 && b[15] == 2);
    CHECK(nvmlDeviceGetPciInfo_v3_fn(d[1], &pci) == NVML_SUCCESS && pci.bus == 0x11);
    CHECK(nvmlDeviceGetP2PStatus_fn(d[0], d[1], NVML_P2P_CAPS_INDEX_READ, &p2p) == NVML_SUCCESS &&
          p2p != NVML_P2P_STATUS_OK);
    CHECK(nvmlDeviceGetP2PStatus_fn(d[0], d[2], NVML_P2P_CAPS_INDEX_NVLINK, &p2p) ==
              NVML_SUCCESS &&
          p2p == NVML_P2P_STATUS_OK);
    CHECK(nvmlDeviceGetNvLinkState_fn(d[0], 17, &active) == NVML_SUCCESS && active);
    CHECK(nvmlDeviceGetNvLinkRemotePciInfo_v2_fn(d[0], 5, &pci) == NVML_SUCCESS &&
          pci.bus == 0x12);
    CHECK(nvmlDeviceGetMigMode_fn(d[0], &mig, &pending) == NVML_SUCCESS && mig == 0);
}

static void test_nvml(void **state)
{
    (void)state;
    assert_int_equal(child_run("CUDASIM_DEVICES=3 CUDASIM_NO_P2P=0-1 CUDASIM_NVLINK=direct "
                               "CUDA_VISIBLE_DEVICES=2",
                               nvml),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vmm),
        cmocka_unit_test(test_pools),
        cmocka_unit_test(test_mappings),
        cmocka_unit_test(test_nvml),
    };
    return cmocka_run_group_tests_name("simulated driver: VMM, pools, mappings", tests, NULL, NULL);
}
