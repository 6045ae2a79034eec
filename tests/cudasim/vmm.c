/* SPDX-License-Identifier: BSD-3-Clause */
/* Virtual memory management: address reservations, physical allocations, mappings. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/cudasim/sim.h"

#define HOST_ACCESS (1u << 31)

static sim_phys_t *handles; /* under sim_mem */
static unsigned long long last_handle = 0x100;

static CUresult supported(void)
{
    return sim_config()->no_vmm ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/** Physical index of a location, -1 for the host, -2 if there is no such place. */
static int location_phys(const CUmemLocation *location)
{
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return sim_device_valid(location->id) ? sim_config()->visible[location->id] : -2;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return -1;
    default:
        return -2;
    }
}

static CUresult check_prop(const CUmemAllocationProp *prop, int *phys)
{
    if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *phys = location_phys(&prop->location);
    return *phys == -2 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

static sim_phys_t *find_handle(CUmemGenericAllocationHandle handle)
{
    for (sim_phys_t *mem = handles; mem != NULL; mem = mem->next) {
        if (mem->handle == handle) {
            return mem;
        }
    }
    return NULL;
}

/** Gives mem a handle value; sim_mem held for writing. */
static void add_handle(sim_phys_t *mem, CUmemGenericAllocationHandle *handle)
{
    mem->handle = ++last_handle;
    mem->handle_refs = 1;
    mem->next = handles;
    handles = mem;
    sim_count(SIM_VMM_HANDLES_LIVE, 1);
    *handle = mem->handle;
}

/** Drops one reference of the handle, and with the last the handle's hold on the memory. */
static void drop_handle(sim_phys_t *mem)
{
    if (--mem->handle_refs > 0) {
        return;
    }
    for (sim_phys_t **link = &handles; *link != NULL; link = &(*link)->next) {
        if (*link == mem) {
            *link = mem->next;
            break;
        }
    }
    mem->handle = 0;
    sim_count(SIM_VMM_HANDLES_LIVE, -1);
    sim_phys_unref(mem);
}

SIM_EXPORT CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
                                                  CUmemAllocationGranularity_flags option)
{
    SIM_ENTER(cuMemGetAllocationGranularity);
    int phys;
    CUresult result = supported();
    if (result == CUDA_SUCCESS) {
        result = check_prop(prop, &phys);
    }
    if (result != CUDA_SUCCESS || bytes == NULL || (int)option < 0 || (int)option > 1) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    *bytes = SIM_PAGE;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                                const CUmemAllocationProp *prop, unsigned long long flags)
{
    SIM_ENTER(cuMemCreate);
    int phys = -2;
    CUresult result = supported();
    if (result == CUDA_SUCCESS) {
        result = check_prop(prop, &phys);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (handle == NULL || bytes == 0 || bytes % SIM_PAGE != 0 || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_phys_t *mem;
    pthread_rwlock_wrlock(&sim_mem);
    result = sim_phys_create(&mem, phys, bytes, prop);
    if (result == CUDA_SUCCESS) {
        add_handle(mem, handle);
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}

SIM_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    SIM_ENTER(cuMemRelease);
    pthread_rwlock_wrlock(&sim_mem);
    sim_phys_t *mem = find_handle(handle);
    if (mem != NULL) {
        drop_handle(mem);
    }
    pthread_rwlock_unlock(&sim_mem);
    return mem != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                           CUmemGenericAllocationHandle handle)
{
    SIM_ENTER(cuMemGetAllocationPropertiesFromHandle);
    pthread_rwlock_rdlock(&sim_mem);
    const sim_phys_t *mem = find_handle(handle);
    if (mem != NULL && prop != NULL) {
        *prop = mem->prop;
    }
    pthread_rwlock_unlock(&sim_mem);
    return mem != NULL && prop != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *ptr)
{
    SIM_ENTER(cuMemRetainAllocationHandle);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (handle == NULL) {
        return result;
    }
    pthread_rwlock_wrlock(&sim_mem);
    sim_alloc_t *alloc = sim_find((uint64_t)(uintptr_t)ptr);
    if (alloc != NULL && alloc->kind == SIM_VMM) {
        if (alloc->mem->handle != 0) {
            alloc->mem->handle_refs++;
            *handle = alloc->mem->handle;
        } else {
            alloc->mem->refs++;
            add_handle(alloc->mem, handle); /* it was released while mapped: a new one */
        }
        result = CUDA_SUCCESS;
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}

/* ---- Addresses ------------------------------------------------------------------------------- */

SIM_EXPORT CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t bytes, size_t alignment,
                                        CUdeviceptr wanted, unsigned long long flags)
{
    SIM_ENTER(cuMemAddressReserve);
    CUresult result = supported();
    if (result == CUDA_SUCCESS) {
        result = sim_arena_init();
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (ptr == NULL || bytes == 0 || bytes % SIM_PAGE != 0 || flags != 0 ||
        (alignment & (alignment - 1)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_region_t *region = calloc(1, sizeof(*region));
    sim_alloc_t **slots = calloc(bytes / SIM_PAGE, sizeof(*slots));
    result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_rwlock_wrlock(&sim_mem);
    uint64_t va = region != NULL && slots != NULL ? sim_va_take(bytes, alignment, wanted) : 0;
    if (va != 0) {
        region->type = SIM_REGION_RESERVED;
        region->va = va;
        region->bytes = bytes;
        region->slots = slots;
        region->kind = SIM_VMM;
        sim_pages_set(va, bytes, region);
        *ptr = va;
        result = CUDA_SUCCESS;
    }
    pthread_rwlock_unlock(&sim_mem);
    if (result != CUDA_SUCCESS) {
        free(region);
        free(slots);
    }
    return result;
}

SIM_EXPORT CUresult cuMemAddressFree(CUdeviceptr ptr, size_t bytes)
{
    SIM_ENTER(cuMemAddressFree);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_rwlock_wrlock(&sim_mem);
    sim_region_t *region = sim_region_at(ptr);
    if (region != NULL && region->type == SIM_REGION_RESERVED && region->va == ptr &&
        region->bytes == bytes && region->live == 0) {
        sim_pages_set(ptr, bytes, NULL);
        sim_va_give(ptr, bytes);
        free(region->slots);
        free(region);
        result = CUDA_SUCCESS;
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}

/** Is [ptr, ptr + bytes) in one reservation, and mapped nowhere yet? sim_mem held. */
static sim_region_t *unmapped_range(CUdeviceptr ptr, size_t bytes)
{
    sim_region_t *region = sim_region_at(ptr);
    if (region == NULL || region->type != SIM_REGION_RESERVED ||
        ptr + bytes > region->va + region->bytes) {
        return NULL;
    }
    for (uint64_t at = ptr; at < ptr + bytes; at += SIM_PAGE) {
        if (region->slots[(at - region->va) / SIM_PAGE] != NULL) {
            return NULL;
        }
    }
    return region;
}

static CUresult map_range(sim_region_t *region, CUdeviceptr ptr, size_t bytes, sim_phys_t *mem)
{
    sim_alloc_t *alloc = calloc(1, sizeof(*alloc));
    if (alloc == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = sim_alias_map(ptr, bytes, mem, 0);
    if (result != CUDA_SUCCESS) {
        free(alloc);
        return result;
    }
    *alloc = (sim_alloc_t){.kind = SIM_VMM,
                           .base = ptr,
                           .bytes = bytes,
                           .room = bytes,
                           .id = sim_next_id(),
                           .phys = mem->phys,
                           .ordinal = mem->phys >= 0 ? sim_ordinal_of(mem->phys) : -1,
                           .mem = mem,
                           .region = region,
                           .delta = sim_arena_delta()};
    mem->refs++;
    region->live++;
    for (uint64_t at = ptr; at < ptr + bytes; at += SIM_PAGE) {
        region->slots[(at - region->va) / SIM_PAGE] = alloc;
    }
    sim_alloc_link(alloc);
    sim_count(SIM_VMM_MAPS_LIVE, 1);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset,
                             CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    SIM_ENTER(cuMemMap);
    if (ptr % SIM_PAGE != 0 || bytes == 0 || bytes % SIM_PAGE != 0 || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (offset != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_rwlock_wrlock(&sim_mem);
    sim_phys_t *mem = find_handle(handle);
    sim_region_t *region = unmapped_range(ptr, bytes);
    if (mem != NULL && region != NULL && bytes <= mem->bytes) {
        result = map_range(region, ptr, bytes, mem);
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}

static void unmap_one(sim_alloc_t *alloc)
{
    sim_region_t *region = alloc->region;
    for (uint64_t at = alloc->base; at < alloc->base + alloc->bytes; at += SIM_PAGE) {
        region->slots[(at - region->va) / SIM_PAGE] = NULL;
    }
    sim_alias_unmap(alloc->base, alloc->bytes);
    if (alloc->access & HOST_ACCESS) {
        sim_host_view_unmap(alloc->base, alloc->bytes);
    }
    sim_alloc_unlink(alloc);
    region->live--;
    sim_phys_unref(alloc->mem);
    free(alloc);
    sim_count(SIM_VMM_MAPS_LIVE, -1);
}

/** Do whole VMM mappings make up exactly [ptr, ptr + bytes)? sim_mem held. */
static bool whole_mappings(CUdeviceptr ptr, size_t bytes)
{
    uint64_t at = ptr;
    while (at < ptr + bytes) {
        const sim_alloc_t *alloc = sim_find(at);
        if (alloc == NULL || alloc->kind != SIM_VMM || alloc->base != at) {
            return false;
        }
        at += alloc->bytes;
    }
    return at == ptr + bytes;
}

SIM_EXPORT CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
    SIM_ENTER(cuMemUnmap);
    /* It does not wait for work that is queued, as the real one does not. */
    pthread_rwlock_wrlock(&sim_mem);
    bool right = bytes > 0 && whole_mappings(ptr, bytes);
    for (uint64_t at = ptr; right && at < ptr + bytes;) {
        sim_alloc_t *alloc = sim_find(at);
        at += alloc->bytes;
        unmap_one(alloc);
    }
    pthread_rwlock_unlock(&sim_mem);
    return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_access(sim_alloc_t *alloc, const CUmemAccessDesc *desc)
{
    int phys = location_phys(&desc->location);
    unsigned int bit = phys >= 0 ? 1u << phys : HOST_ACCESS;
    bool grant = desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (phys >= 0 && alloc->phys >= 0 && !sim_config()->p2p[phys][alloc->phys]) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (phys < 0) {
        if (alloc->phys >= 0) {
            return CUDA_ERROR_NOT_SUPPORTED; /* the CPU cannot reach this device's memory */
        }
        if (grant && !(alloc->access & bit)) {
            CUresult result = sim_host_view_map(alloc->base, alloc->bytes, alloc->mem, 0);
            if (result != CUDA_SUCCESS) {
                return result;
            }
        } else if (!grant && (alloc->access & bit)) {
            sim_host_view_unmap(alloc->base, alloc->bytes);
        }
    }
    alloc->access = grant ? alloc->access | bit : alloc->access & ~bit;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemSetAccess(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *desc,
                                   size_t count)
{
    SIM_ENTER(cuMemSetAccess);
    if (desc == NULL || count == 0 || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        if (location_phys(&desc[i].location) == -2) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
    }
    CUresult result = CUDA_SUCCESS;
    pthread_rwlock_wrlock(&sim_mem);
    if (!whole_mappings(ptr, bytes)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    for (uint64_t at = ptr; result == CUDA_SUCCESS && at < ptr + bytes;) {
        sim_alloc_t *alloc = sim_find(at);
        for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
            result = set_access(alloc, &desc[i]);
        }
        at += alloc->bytes;
    }
    sim_ranges_changed();
    pthread_rwlock_unlock(&sim_mem);
    return result;
}

SIM_EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                   CUdeviceptr ptr)
{
    SIM_ENTER(cuMemGetAccess);
    if (flags == NULL || location == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int phys = location_phys(location);
    if (phys == -2) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    unsigned int bit = phys >= 0 ? 1u << phys : HOST_ACCESS;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_rwlock_rdlock(&sim_mem);
    const sim_alloc_t *alloc = sim_find(ptr);
    if (alloc != NULL && alloc->kind == SIM_VMM) {
        *flags = (alloc->access & bit) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                       : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        result = CUDA_SUCCESS;
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}

/* ---- Between processes ----------------------------------------------------------------------- */

SIM_EXPORT CUresult cuMemExportToShareableHandle(void *shareable,
                                                 CUmemGenericAllocationHandle handle,
                                                 CUmemAllocationHandleType type,
                                                 unsigned long long flags)
{
    SIM_ENTER(cuMemExportToShareableHandle);
    if (shareable == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_rwlock_rdlock(&sim_mem);
    const sim_phys_t *mem = find_handle(handle);
    if (mem != NULL && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
        (mem->prop.requestedHandleTypes & type)) {
        int fd = fcntl(mem->fd, F_DUPFD_CLOEXEC, 0);
        if (fd >= 0) {
            *(int *)shareable = fd;
            sim_count(SIM_IPC_EXPORTS, 1);
        }
        result = fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}

SIM_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                   void *shareable,
                                                   CUmemAllocationHandleType type)
{
    SIM_ENTER(cuMemImportFromShareableHandle);
    if (handle == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_config()->ipc_open_fails) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    /* The descriptor stays the caller's, as with the real driver. */
    int fd = fcntl((int)(intptr_t)shareable, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_phys_t *mem;
    pthread_rwlock_wrlock(&sim_mem);
    CUresult result = sim_phys_import(&mem, fd);
    if (result == CUDA_SUCCESS) {
        int ordinal = mem->phys >= 0 ? sim_ordinal_of(mem->phys) : -1;
        if (mem->prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
            mem->prop.location.id = ordinal; /* ordinals differ between processes */
        }
        add_handle(mem, handle);
    }
    pthread_rwlock_unlock(&sim_mem);
    if (result != CUDA_SUCCESS) {
        close(fd);
    }
    return result;
}
