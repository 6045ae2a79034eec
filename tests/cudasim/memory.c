/* SPDX-License-Identifier: BSD-3-Clause */
/* cuMemAlloc and its kin: device, managed, pinned and registered memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cudasim/sim.h"

#define HOST_PAGE 4096u

static CUresult allocate(CUdeviceptr *ptr, sim_ctx_t *ctx, sim_kind_t kind, size_t bytes,
                         unsigned int flags)
{
    sim_alloc_t *alloc;
    if (ptr == NULL || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_rwlock_wrlock(&sim_mem);
    CUresult result = sim_alloc_device(&alloc, kind, ctx, ctx->phys, bytes);
    if (result == CUDA_SUCCESS) {
        alloc->ctx = ctx;
        alloc->flags = flags;
        if (kind == SIM_MANAGED) {
            result = sim_host_view_map(alloc->region->va, alloc->region->bytes, alloc->mem, 0);
            if (result != CUDA_SUCCESS) {
                sim_alloc_release(alloc);
            }
        }
    }
    if (result == CUDA_SUCCESS) {
        *ptr = alloc->base;
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}

SIM_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
    SIM_ENTER(cuMemAlloc);
    SIM_CURRENT(ctx);
    return allocate(ptr, ctx, SIM_DEVICE, bytes, 0);
}

SIM_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height,
                                       unsigned int element_bytes)
{
    SIM_ENTER(cuMemAllocPitch);
    SIM_CURRENT(ctx);
    if (pitch == NULL || width == 0 || height == 0 ||
        (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t row = (width + SIM_GRAIN - 1) / SIM_GRAIN * SIM_GRAIN, bytes;
    if (__builtin_mul_overflow(row, height, &bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = allocate(ptr, ctx, SIM_DEVICE, bytes, 0);
    if (result == CUDA_SUCCESS) {
        *pitch = row;
    }
    return result;
}

SIM_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t bytes, unsigned int flags)
{
    SIM_ENTER(cuMemAllocManaged);
    SIM_CURRENT(ctx);
    if (sim_config()->no_managed) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return allocate(ptr, ctx, SIM_MANAGED, bytes, flags);
}

/** The allocation that starts at ptr and is of a kind that cuMemFree frees; sim_mem held. */
static sim_alloc_t *freeable(CUdeviceptr ptr)
{
    sim_alloc_t *alloc = sim_find(ptr);
    bool right = alloc != NULL && alloc->base == ptr &&
                 (alloc->kind == SIM_DEVICE || alloc->kind == SIM_MANAGED ||
                  alloc->kind == SIM_POOL || alloc->kind == SIM_POOL_IMPORT);
    return right ? alloc : NULL;
}

SIM_EXPORT CUresult cuMemFree_v2(CUdeviceptr ptr)
{
    SIM_ENTER(cuMemFree);
    CUresult result = sim_ctx_optional();
    if (result != CUDA_SUCCESS || ptr == 0) {
        return result;
    }
    pthread_rwlock_rdlock(&sim_mem);
    const sim_alloc_t *found = freeable(ptr);
    int phys = found != NULL ? found->phys : -1;
    sim_ctx_t *owner = found != NULL ? found->ctx : NULL;
    pthread_rwlock_unlock(&sim_mem);
    if (found == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (owner != NULL && atomic_load(&owner->error) != CUDA_SUCCESS) {
        return (CUresult)atomic_load(&owner->error);
    }
    sim_device_drain(phys); /* as the real one, it waits for the device */
    pthread_rwlock_wrlock(&sim_mem);
    sim_alloc_t *alloc = freeable(ptr);
    if (alloc != NULL) {
        sim_alloc_release(alloc);
    }
    pthread_rwlock_unlock(&sim_mem);
    return alloc != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    SIM_ENTER(cuMemGetInfo);
    SIM_CURRENT(ctx);
    if (free_bytes == NULL || total_bytes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t used = sim_job_used(ctx->phys), total = sim_config()->mem_bytes;
    *total_bytes = total;
    *free_bytes = used < total ? total - used : 0;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr)
{
    SIM_ENTER(cuMemGetAddressRange);
    SIM_CURRENT(ctx);
    (void)ctx;
    pthread_rwlock_rdlock(&sim_mem);
    const sim_alloc_t *alloc = sim_find(ptr);
    if (alloc != NULL && base != NULL) {
        *base = alloc->base;
    }
    if (alloc != NULL && bytes != NULL) {
        *bytes = alloc->bytes;
    }
    pthread_rwlock_unlock(&sim_mem);
    return alloc != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/**
 * The dma-buf stand-in: an open file of the memfd whose file position is where the range starts
 * (a real dma-buf starts there; whoever maps it asks lseek for the position).
 */
static int open_range(const sim_alloc_t *alloc, CUdeviceptr ptr)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", alloc->mem->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        /* ptr may lie before the allocation: a range of pages takes in its neighbours. */
        uint64_t offset = alloc->mem_offset + (ptr - alloc->base);
        if (lseek(fd, (off_t)offset, SEEK_SET) < 0) {
            close(fd);
            fd = -1;
        }
    }
    return fd;
}

SIM_EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr ptr, size_t bytes,
                                                  CUmemRangeHandleType type,
                                                  unsigned long long flags)
{
    SIM_ENTER(cuMemGetHandleForAddressRange);
    if (sim_config()->no_dmabuf) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (handle == NULL || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || bytes == 0 ||
        ptr % HOST_PAGE != 0 || bytes % HOST_PAGE != 0 || flags > 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_rwlock_rdlock(&sim_mem);
    const sim_alloc_t *alloc = NULL;
    /* The first page may begin in a neighbour or in a gap: find what lies in it. */
    for (uint64_t at = ptr; alloc == NULL && at < ptr + HOST_PAGE; at += SIM_GRAIN) {
        alloc = sim_find(at);
    }
    if (alloc != NULL && alloc->mem != NULL && alloc->kind != SIM_MANAGED) {
        uint64_t lo = alloc->kind == SIM_VMM ? alloc->base : alloc->region->va;
        uint64_t hi = alloc->kind == SIM_VMM ? lo + alloc->bytes : lo + alloc->region->bytes;
        if (ptr >= lo && ptr + bytes <= hi) {
            int fd = open_range(alloc, ptr);
            result = fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
            if (fd >= 0) {
                *(int *)handle = fd;
                sim_count(SIM_DMABUF_EXPORTS, 1);
            }
        }
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}

/* ---- Host memory ----------------------------------------------------------------------------- */

static CUresult insert_host(sim_ctx_t *ctx, void *ptr, size_t bytes, sim_kind_t kind,
                            unsigned int flags)
{
    sim_alloc_t *alloc = calloc(1, sizeof(*alloc));
    if (alloc == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *alloc = (sim_alloc_t){.kind = kind,
                           .base = (uint64_t)(uintptr_t)ptr,
                           .bytes = bytes,
                           .id = sim_next_id(),
                           .phys = -1,
                           .ordinal = ctx->ordinal,
                           .ctx = ctx,
                           .flags = flags};
    alloc->room = (bytes + HOST_PAGE - 1) / HOST_PAGE * HOST_PAGE;
    pthread_rwlock_wrlock(&sim_mem);
    CUresult result = sim_host_insert(alloc);
    pthread_rwlock_unlock(&sim_mem);
    if (result != CUDA_SUCCESS) {
        free(alloc);
    } else {
        sim_count(kind == SIM_PINNED ? SIM_HOST_ALLOCS_LIVE : SIM_HOST_REGISTERED, 1);
    }
    return result;
}

/** Frees a linked host range; sim_mem held for writing. */
static void remove_host(sim_alloc_t *alloc)
{
    sim_host_remove(alloc);
    if (alloc->kind == SIM_PINNED) {
        munmap((void *)(uintptr_t)alloc->base, alloc->room);
    }
    sim_count(alloc->kind == SIM_PINNED ? SIM_HOST_ALLOCS_LIVE : SIM_HOST_REGISTERED, -1);
    free(alloc);
}

static CUresult allocate_host(void **ptr, size_t bytes, unsigned int flags)
{
    SIM_CURRENT(ctx);
    if (ptr == NULL || bytes == 0 || flags > 7 || bytes > SIZE_MAX / 2) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    void *at = mmap(NULL, (bytes + HOST_PAGE - 1) / HOST_PAGE * HOST_PAGE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = insert_host(ctx, at, bytes, SIM_PINNED, flags);
    if (result != CUDA_SUCCESS) {
        munmap(at, bytes);
        return result;
    }
    *ptr = at;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned int flags)
{
    SIM_ENTER(cuMemHostAlloc);
    return allocate_host(ptr, bytes, flags);
}

SIM_EXPORT CUresult cuMemAllocHost_v2(void **ptr, size_t bytes)
{
    SIM_ENTER(cuMemAllocHost);
    return allocate_host(ptr, bytes, 0);
}

static CUresult free_host(void *ptr, sim_kind_t kind, CUresult if_unknown)
{
    pthread_rwlock_rdlock(&sim_mem);
    const sim_alloc_t *found = sim_find((uint64_t)(uintptr_t)ptr);
    bool right = found != NULL && found->kind == kind && found->base == (uint64_t)(uintptr_t)ptr;
    sim_ctx_t *owner = right ? found->ctx : NULL;
    pthread_rwlock_unlock(&sim_mem);
    if (!right) {
        return found != NULL ? CUDA_ERROR_INVALID_VALUE : if_unknown;
    }
    CUresult result = sim_ctx_drain(owner); /* as the real one: no queued copy loses its memory */
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_rwlock_wrlock(&sim_mem);
    sim_alloc_t *alloc = sim_find((uint64_t)(uintptr_t)ptr);
    right = alloc != NULL && alloc->kind == kind && alloc->base == (uint64_t)(uintptr_t)ptr;
    if (right) {
        remove_host(alloc);
    }
    pthread_rwlock_unlock(&sim_mem);
    return right ? CUDA_SUCCESS : if_unknown;
}

SIM_EXPORT CUresult cuMemFreeHost(void *ptr)
{
    SIM_ENTER(cuMemFreeHost);
    CUresult result = sim_ctx_optional();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return free_host(ptr, SIM_PINNED, CUDA_ERROR_INVALID_VALUE);
}

SIM_EXPORT CUresult cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned int flags)
{
    SIM_ENTER(cuMemHostRegister);
    SIM_CURRENT(ctx);
    uint64_t at = (uint64_t)(uintptr_t)ptr;
    if (ptr == NULL || bytes == 0 || flags > 15 || sim_in_arena(at)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t first = at / HOST_PAGE * HOST_PAGE;
    if (msync((void *)(uintptr_t)first, at + bytes - first, MS_ASYNC) != 0 && errno == ENOMEM) {
        return CUDA_ERROR_INVALID_VALUE; /* not all of it is mapped */
    }
    return insert_host(ctx, ptr, bytes, SIM_REGISTERED, flags);
}

SIM_EXPORT CUresult cuMemHostUnregister(void *ptr)
{
    SIM_ENTER(cuMemHostUnregister);
    SIM_CURRENT(ctx);
    (void)ctx;
    return free_host(ptr, SIM_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static bool host_flags(void *ptr, unsigned int *flags)
{
    pthread_rwlock_rdlock(&sim_mem);
    const sim_alloc_t *alloc = sim_find((uint64_t)(uintptr_t)ptr);
    bool found = alloc != NULL && (alloc->kind == SIM_PINNED || alloc->kind == SIM_REGISTERED);
    if (found) {
        *flags = alloc->flags;
    }
    pthread_rwlock_unlock(&sim_mem);
    return found;
}

SIM_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device_ptr, void *ptr,
                                                 unsigned int flags)
{
    SIM_ENTER(cuMemHostGetDevicePointer);
    SIM_CURRENT(ctx);
    (void)ctx;
    unsigned int kept;
    if (device_ptr == NULL || flags != 0 || !host_flags(ptr, &kept)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *device_ptr = (CUdeviceptr)(uintptr_t)ptr;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemHostGetFlags(unsigned int *flags, void *ptr)
{
    SIM_ENTER(cuMemHostGetFlags);
    SIM_CURRENT(ctx);
    (void)ctx;
    unsigned int kept;
    if (flags == NULL || !host_flags(ptr, &kept)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = kept | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}

/* ---- End of a context, test helpers ---------------------------------------------------------- */

void sim_memory_drop_context(sim_ctx_t *ctx)
{
    pthread_rwlock_wrlock(&sim_mem);
    for (sim_alloc_t *alloc = sim_alloc_first(), *next; alloc != NULL; alloc = next) {
        next = alloc->next;
        if (alloc->ctx != ctx) {
            continue;
        }
        if (alloc->kind == SIM_PINNED || alloc->kind == SIM_REGISTERED) {
            remove_host(alloc);
        } else {
            sim_count(SIM_IPC_LIVE, alloc->kind == SIM_IMPORT ? -1 : 0);
            sim_alloc_release(alloc);
        }
    }
    pthread_rwlock_unlock(&sim_mem);
}

SIM_EXPORT void *cudasim_alias(uint64_t ptr)
{
    pthread_rwlock_rdlock(&sim_mem);
    const sim_alloc_t *alloc = sim_find(ptr);
    void *at = alloc != NULL ? (void *)(uintptr_t)(ptr + (uint64_t)alloc->delta) : NULL;
    pthread_rwlock_unlock(&sim_mem);
    return at;
}

SIM_EXPORT int cudasim_fd(uint64_t ptr, uint64_t *offset)
{
    pthread_rwlock_rdlock(&sim_mem);
    const sim_alloc_t *alloc = sim_find(ptr);
    int fd = alloc != NULL && alloc->mem != NULL ? alloc->mem->fd : -1;
    if (fd >= 0) {
        *offset = alloc->mem_offset + (ptr - alloc->base);
    }
    pthread_rwlock_unlock(&sim_mem);
    return fd;
}

SIM_EXPORT uint64_t cudasim_buffer_id(uint64_t ptr)
{
    pthread_rwlock_rdlock(&sim_mem);
    const sim_alloc_t *alloc = sim_find(ptr);
    uint64_t id = alloc != NULL ? alloc->id : 0;
    pthread_rwlock_unlock(&sim_mem);
    return id;
}
