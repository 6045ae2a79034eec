/* SPDX-License-Identifier: BSD-3-Clause */
/* One allocator per buffer kind (gpu.h lists them). */
#include "tests/common/gpu_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a __device__ variable of a CUDA program looks like to the driver. The number in the name is
 * its size, which is how the simulated driver, that reads no PTX, gets to know it. */
#define SYMBOL_NAME "grail_test_symbol_33554432"
#define SYMBOL_SIZE ((size_t)32 << 20)
static const char symbol_ptx[] = ".version 6.4\n"
                                 ".target sm_70\n"
                                 ".address_size 64\n"
                                 ".visible .global .align 256 .b8 " SYMBOL_NAME "[33554432];\n";

/* Distance by which an interior pointer lies inside its allocation: odd, past the first page. */
#define INTERIOR_OFFSET 12345

static const struct {
    char kind;
    bool on_device;
    const char *name;
} kinds[] = {
    {'H', false, "host memory"},
    {'P', false, "pinned host memory"},
    {'R', false, "registered host memory"},
    {'D', true, "device memory"},
    {'I', true, "interior device pointer"},
    {'M', false, "managed memory"},
    {'G', false, "managed memory, on the device"},
    {'A', true, "stream-ordered pool memory"},
    {'V', true, "VMM memory"},
    {'W', true, "VMM memory of several chunks"},
    {'X', true, "VMM memory without a shareable handle"},
    {'S', true, "__device__ symbol"},
    {'C', true, "memory of a second context"},
    {'T', true, "device memory, no current context"},
    {'O', true, "memory of another device"},
    {'B', true, "device memory from before MPI_Init"},
};

static struct {
    CUdeviceptr base;
    size_t size, used;
    int live;
} early;

static struct {
    CUmodule module;
    CUdeviceptr base;
    bool in_use[2];
} symbol;

static CUcontext second_context;

static int kind_index(char kind)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (kinds[i].kind == kind)
            return (int)i;
    return -1;
}

bool gpu_kind_known(char kind)
{
    return kind_index(kind) >= 0;
}

const char *gpu_kind_name(char kind)
{
    int i = kind_index(kind);

    return i >= 0 ? kinds[i].name : "unknown kind";
}

bool gpu_kind_on_device(char kind)
{
    int i = kind_index(kind);

    return i >= 0 && kinds[i].on_device;
}

static CUdeviceptr as_device(const void *ptr)
{
    return (CUdeviceptr)(uintptr_t)ptr;
}

static int cuda_says(CUresult result, const char *call, char kind)
{
    bool absent = result == CUDA_ERROR_NOT_SUPPORTED;

    return gpu_because(absent ? GPU_UNSUPPORTED : GPU_FAILED, "%s: %s: %s", gpu_kind_name(kind),
                       call, gpu_error_name(result));
}

static int attribute(int device, CUdevice_attribute which)
{
    const gpu_driver_t *cu = gpu_driver();
    CUdevice handle;
    int value = 0;

    if (cu->cuDeviceGetAttribute && cu->cuDeviceGet(&handle, device) == CUDA_SUCCESS)
        cu->cuDeviceGetAttribute(&value, which, handle);
    return value;
}

/* ---- Allocators: each sets base and base_size, or returns the reason ------------------- */

static int alloc_host(gpu_buf_t *b)
{
    if (posix_memalign(&b->base, 4096, b->base_size) != 0)
        return gpu_because(GPU_FAILED, "no %zu bytes of host memory", b->base_size);
    return GPU_OK;
}

static int alloc_pinned(gpu_buf_t *b)
{
    const gpu_driver_t *cu = gpu_driver();
    CUresult result;

    if (b->kind == 'P') {
        if (!cu->cuMemHostAlloc || !cu->cuMemFreeHost)
            return gpu_because(GPU_UNSUPPORTED, "the driver has no cuMemHostAlloc");
        result = cu->cuMemHostAlloc(&b->base, b->base_size, CU_MEMHOSTALLOC_PORTABLE);
        return result == CUDA_SUCCESS ? GPU_OK : cuda_says(result, "cuMemHostAlloc", b->kind);
    }
    if (!cu->cuMemHostRegister_v2 || !cu->cuMemHostUnregister)
        return gpu_because(GPU_UNSUPPORTED, "the driver has no cuMemHostRegister");
    if (alloc_host(b) != GPU_OK)
        return GPU_FAILED;
    result = cu->cuMemHostRegister_v2(b->base, b->base_size, CU_MEMHOSTREGISTER_PORTABLE);
    if (result == CUDA_SUCCESS)
        return GPU_OK;
    free(b->base);
    return cuda_says(result, "cuMemHostRegister", b->kind);
}

static int alloc_plain(gpu_buf_t *b)
{
    CUdeviceptr ptr;
    CUresult result = gpu_driver()->cuMemAlloc_v2(&ptr, b->base_size);

    if (result != CUDA_SUCCESS)
        return cuda_says(result, "cuMemAlloc", b->kind);
    b->base = (void *)(uintptr_t)ptr;
    return GPU_OK;
}

static int alloc_managed(gpu_buf_t *b)
{
    const gpu_driver_t *cu = gpu_driver();
    CUdeviceptr ptr;
    CUresult result;

    if (!cu->cuMemAllocManaged || !attribute(b->device, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY))
        return gpu_because(GPU_UNSUPPORTED, "device %d has no managed memory", b->device);
    result = cu->cuMemAllocManaged(&ptr, b->base_size, CU_MEM_ATTACH_GLOBAL);
    if (result != CUDA_SUCCESS)
        return cuda_says(result, "cuMemAllocManaged", b->kind);
    b->base = (void *)(uintptr_t)ptr;
    return GPU_OK;
}

static int alloc_pool(gpu_buf_t *b)
{
    const gpu_driver_t *cu = gpu_driver();
    CUdeviceptr ptr;
    CUresult result;

    if (!cu->cuMemAllocAsync || !cu->cuMemFreeAsync ||
        !attribute(b->device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
        return gpu_because(GPU_UNSUPPORTED, "device %d has no memory pools", b->device);
    result = cu->cuMemAllocAsync(&ptr, b->base_size, NULL);
    if (result == CUDA_SUCCESS)
        result = cu->cuStreamSynchronize(NULL);
    if (result != CUDA_SUCCESS)
        return cuda_says(result, "cuMemAllocAsync", b->kind);
    b->base = (void *)(uintptr_t)ptr;
    return GPU_OK;
}

static void vmm_release(gpu_buf_t *b, int mapped)
{
    const gpu_driver_t *cu = gpu_driver();
    CUdeviceptr base = as_device(b->base);

    for (int i = 0; i < b->chunk_count; i++) {
        if (i < mapped)
            GPU_TRY(cu->cuMemUnmap(base + (size_t)i * b->chunk_size, b->chunk_size));
        GPU_TRY(cu->cuMemRelease(b->chunks[i]));
    }
    if (base)
        GPU_TRY(cu->cuMemAddressFree(base, b->base_size));
}

static int vmm_map(gpu_buf_t *b, const CUmemAllocationProp *prop, int count)
{
    const gpu_driver_t *cu = gpu_driver();
    CUmemAccessDesc access = {.location = prop->location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr base = 0;
    CUresult result = cu->cuMemAddressReserve(&base, b->base_size, 0, 0, 0);
    const char *call = "cuMemAddressReserve";
    int mapped = 0;

    b->base = (void *)(uintptr_t)base;
    while (result == CUDA_SUCCESS && mapped < count) {
        call = "cuMemCreate";
        result = cu->cuMemCreate(&b->chunks[mapped], b->chunk_size, prop, 0);
        if (result != CUDA_SUCCESS)
            break;
        b->chunk_count++;
        call = "cuMemMap";
        result = cu->cuMemMap(base + (size_t)mapped * b->chunk_size, b->chunk_size, 0,
                              b->chunks[mapped], 0);
        if (result == CUDA_SUCCESS)
            mapped++;
    }
    if (result == CUDA_SUCCESS) {
        call = "cuMemSetAccess";
        result = cu->cuMemSetAccess(base, b->base_size, &access, 1);
    }
    if (result == CUDA_SUCCESS)
        return GPU_OK;
    vmm_release(b, mapped);
    return cuda_says(result, call, b->kind);
}

static int alloc_vmm(gpu_buf_t *b)
{
    const gpu_driver_t *cu = gpu_driver();
    CUmemAllocationProp prop;
    size_t granule = 0, wanted = b->base_size;
    size_t count = 1;
    CUresult result;

    if (!cu->cuMemCreate || !cu->cuMemGetAllocationGranularity || !cu->cuMemAddressReserve ||
        !attribute(b->device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        return gpu_because(GPU_UNSUPPORTED, "device %d has no virtual memory management",
                           b->device);
    if (b->kind != 'X' &&
        !attribute(b->device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
        return gpu_because(GPU_UNSUPPORTED, "device %d exports no file descriptors", b->device);

    memset(&prop, 0, sizeof(prop)); /* the driver refuses padding that is not zero */
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = b->device;
    if (b->kind != 'X')
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    result = cu->cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result != CUDA_SUCCESS || granule == 0)
        return cuda_says(result, "cuMemGetAllocationGranularity", b->kind);

    b->chunk_size = (wanted + granule - 1) / granule * granule;
    if (b->kind == 'W') {
        size_t most = sizeof(b->chunks) / sizeof(b->chunks[0]) - 2;

        b->chunk_size = (wanted / most + granule) / granule * granule;
        count = wanted / b->chunk_size + 2;
    }
    b->base_size = b->chunk_size * count;
    return vmm_map(b, &prop, (int)count);
}

static int alloc_symbol(gpu_buf_t *b)
{
    const gpu_driver_t *cu = gpu_driver();
    size_t half = SYMBOL_SIZE / 2, size = 0;
    CUresult result;
    int which = symbol.in_use[0] ? 1 : 0;

    if (!cu->cuModuleLoadData || !cu->cuModuleGetGlobal_v2)
        return gpu_because(GPU_UNSUPPORTED, "the driver loads no modules");
    if (b->base_size > half || symbol.in_use[which])
        return gpu_because(GPU_UNSUPPORTED, "symbols hold at most two buffers of %zu bytes", half);
    if (!symbol.base) {
        result = cu->cuModuleLoadData(&symbol.module, symbol_ptx);
        if (result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_NO_BINARY_FOR_GPU ||
            result == CUDA_ERROR_JIT_COMPILER_NOT_FOUND)
            return gpu_because(GPU_UNSUPPORTED, "the driver compiles no PTX (%s)",
                               gpu_error_name(result));
        if (result == CUDA_SUCCESS)
            result = cu->cuModuleGetGlobal_v2(&symbol.base, &size, symbol.module, SYMBOL_NAME);
        if (result != CUDA_SUCCESS)
            return cuda_says(result, "cuModuleGetGlobal", b->kind);
        if (size < SYMBOL_SIZE)
            return gpu_because(GPU_FAILED, "the symbol has %zu bytes", size);
    }
    symbol.in_use[which] = true;
    b->base = (void *)(uintptr_t)(symbol.base + (size_t)which * half);
    return GPU_OK;
}

int gpu_reserve_early(size_t bytes)
{
    int result;
    CUresult cuda;

    if (early.base)
        return GPU_OK;
    result = gpu_select_default();
    if (result != GPU_OK)
        return result;
    cuda = gpu_driver()->cuMemAlloc_v2(&early.base, bytes);
    if (cuda != CUDA_SUCCESS)
        return cuda_says(cuda, "cuMemAlloc", 'B');
    early.size = bytes;
    return GPU_OK;
}

static int alloc_early(gpu_buf_t *b)
{
    size_t need = (b->base_size + 255) / 256 * 256;

    if (!early.base)
        return gpu_because(GPU_UNSUPPORTED, "nothing was allocated before MPI_Init");
    if (early.live == 0)
        early.used = 0;
    if (need > early.size - early.used)
        return gpu_because(GPU_UNSUPPORTED, "only %zu bytes were allocated before MPI_Init",
                           early.size);
    b->base = (void *)(uintptr_t)(early.base + early.used);
    early.used += need;
    early.live++;
    return GPU_OK;
}

/* ---- The context each kind is allocated in --------------------------------------------- */

static int context_of(gpu_buf_t *b)
{
    const gpu_driver_t *cu = gpu_driver();
    CUcontext popped;
    CUdevice device;
    CUresult result = CUDA_SUCCESS;

    b->device = gpu_selected();
    b->context = gpu_context();
    if (b->kind == 'O') {
        if (cu->devices < 2)
            return gpu_because(GPU_UNSUPPORTED, "there is only one device");
        b->device = (gpu_selected() + 1) % cu->devices;
        result = cu->cuDeviceGet(&device, b->device);
        if (result == CUDA_SUCCESS) /* kept to the end, as programs with several devices do */
            result = cu->cuDevicePrimaryCtxRetain(&b->context, device);
    } else if (b->kind == 'C') {
        if (!cu->cuCtxCreate_v2)
            return gpu_because(GPU_UNSUPPORTED, "the driver has no cuCtxCreate_v2");
        if (!second_context) {
            result = cu->cuDeviceGet(&device, b->device);
            if (result == CUDA_SUCCESS)
                result = cu->cuCtxCreate_v2(&second_context, 0, device);
            if (result == CUDA_SUCCESS)
                result = cu->cuCtxPopCurrent_v2(&popped);
        }
        b->context = second_context;
    }
    return result == CUDA_SUCCESS ? GPU_OK : cuda_says(result, "context", b->kind);
}

static int alloc_in_context(gpu_buf_t *b)
{
    switch (b->kind) {
    case 'P':
    case 'R':
        return alloc_pinned(b);
    case 'M':
    case 'G':
        return alloc_managed(b);
    case 'A':
        return alloc_pool(b);
    case 'V':
    case 'W':
    case 'X':
        return alloc_vmm(b);
    case 'S':
        return alloc_symbol(b);
    case 'B':
        return alloc_early(b);
    default:
        return alloc_plain(b);
    }
}

int gpu_buf_alloc(gpu_buf_t *buf, char kind, size_t size, size_t guard)
{
    gpu_buf_t b = {.kind = kind, .size = size, .guard = guard, .device = -1};
    size_t inside = kind == 'I' ? INTERIOR_OFFSET : 0;
    CUcontext popped;
    int result;

    if (!gpu_kind_known(kind))
        return gpu_because(GPU_FAILED, "'%c' is no buffer kind", kind);
    b.base_size = size + 2 * guard + inside;
    if (b.base_size == 0)
        b.base_size = 1;
    if (kind == 'H') {
        result = alloc_host(&b);
    } else {
        result = gpu_select_default();
        if (result == GPU_OK)
            result = context_of(&b);
        if (result != GPU_OK)
            return result;
        GPU_TRY(gpu_driver()->cuCtxPushCurrent_v2(b.context));
        result = alloc_in_context(&b);
        GPU_TRY(gpu_driver()->cuCtxPopCurrent_v2(&popped));
    }
    if (result != GPU_OK)
        return result;
    b.ptr = (unsigned char *)b.base + inside + guard;
    if (kind == 'W') /* half of the buffer, at most half a chunk, lies before the first seam */
        b.ptr = (unsigned char *)b.base + b.chunk_size -
                (size / 2 < b.chunk_size / 2 ? size / 2 : b.chunk_size / 2);
    if (kind == 'T')
        GPU_TRY(gpu_driver()->cuCtxSetCurrent(NULL));
    *buf = b;
    return GPU_OK;
}

void gpu_buf_free(gpu_buf_t *buf)
{
    const gpu_driver_t *cu;
    CUcontext popped;

    if (!buf->base)
        return;
    if (buf->kind == 'H') {
        free(buf->base);
        memset(buf, 0, sizeof(*buf));
        return;
    }
    cu = gpu_driver();
    if (buf->kind == 'T')
        GPU_TRY(cu->cuCtxSetCurrent(gpu_context()));
    GPU_TRY(cu->cuCtxPushCurrent_v2(buf->context));
    switch (buf->kind) {
    case 'P':
        GPU_TRY(cu->cuMemFreeHost(buf->base));
        break;
    case 'R':
        GPU_TRY(cu->cuMemHostUnregister(buf->base));
        free(buf->base);
        break;
    case 'A':
        GPU_TRY(cu->cuMemFreeAsync(as_device(buf->base), NULL));
        GPU_TRY(cu->cuStreamSynchronize(NULL));
        break;
    case 'V':
    case 'W':
    case 'X':
        vmm_release(buf, buf->chunk_count);
        break;
    case 'S':
        symbol.in_use[as_device(buf->base) != symbol.base] = false;
        break;
    case 'B':
        early.live--;
        break;
    default:
        GPU_TRY(cu->cuMemFree_v2(as_device(buf->base)));
        break;
    }
    GPU_TRY(cu->cuCtxPopCurrent_v2(&popped));
    memset(buf, 0, sizeof(*buf));
}
