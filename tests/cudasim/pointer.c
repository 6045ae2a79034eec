/* SPDX-License-Identifier: BSD-3-Clause */
/* What CUDA tells about a pointer. */
#include <string.h>

#include "tests/cudasim/sim.h"

/** Host memory that VMM made (CU_MEM_LOCATION_TYPE_HOST*): has no device. */
static bool on_host(const sim_alloc_t *alloc)
{
    return alloc->phys < 0;
}

static uint64_t handle_types(const sim_alloc_t *alloc)
{
    if (alloc->kind == SIM_VMM) {
        return (uint64_t)alloc->mem->prop.requestedHandleTypes;
    }
    return 0;
}

/**
 * Writes the attribute's value; alloc NULL: the value for memory that CUDA does not know, as the
 * plural query gives it. sim_mem held for reading.
 */
static CUresult answer(const sim_alloc_t *alloc, CUpointer_attribute attribute, CUdeviceptr ptr,
                       void *value)
{
    const bool host = alloc != NULL && (alloc->kind == SIM_PINNED || alloc->kind == SIM_REGISTERED);
    const bool managed = alloc != NULL && alloc->kind == SIM_MANAGED;
    const bool vmm = alloc != NULL && alloc->kind == SIM_VMM; /* its range: the reservation */
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = alloc != NULL ? alloc->ctx : NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)value = alloc == NULL                 ? 0
                                 : on_host(alloc)              ? CU_MEMORYTYPE_HOST
                                                               : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)value = alloc != NULL ? ptr : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (alloc != NULL && !host && !managed) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *(void **)value = alloc != NULL ? (void *)(uintptr_t)ptr : NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned int *)value = alloc != NULL && (alloc->sync_memops || managed);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)value = alloc != NULL ? alloc->id : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned int *)value = managed;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = alloc != NULL ? alloc->ordinal : -2;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned int *)value = alloc != NULL && alloc->kind == SIM_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = alloc == NULL ? 0 : vmm ? alloc->region->va : alloc->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = alloc == NULL ? 0 : vmm ? alloc->region->bytes : alloc->bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned int *)value = alloc != NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)value = alloc != NULL ? handle_types(alloc) : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(unsigned int *)value =
            alloc != NULL && (alloc->kind == SIM_DEVICE || alloc->kind == SIM_GLOBAL ||
                              (vmm && alloc->mem->prop.allocFlags.gpuDirectRDMACapable));
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned int *)value = alloc != NULL ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)value = alloc != NULL ? alloc->pool : NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)value = alloc == NULL                 ? 0
                           : alloc->kind == SIM_PINNED ? (alloc->room + SIM_PAGE - 1) & -SIM_PAGE
                                                       : alloc->room;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)value = alloc != NULL ? alloc->base : 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_EXPORT CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute,
                                          CUdeviceptr ptr)
{
    SIM_ENTER(cuPointerGetAttribute);
    if (value == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_rwlock_rdlock(&sim_mem);
    const sim_alloc_t *alloc = sim_find(ptr);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (alloc != NULL) {
        result = answer(alloc, attribute, ptr, value);
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}

SIM_EXPORT CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes,
                                           void **values, CUdeviceptr ptr)
{
    SIM_ENTER(cuPointerGetAttributes);
    if (attributes == NULL || values == NULL || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_rwlock_rdlock(&sim_mem);
    const sim_alloc_t *alloc = sim_find(ptr);
    CUresult result = CUDA_SUCCESS;
    for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
            bool cpu = alloc != NULL && (alloc->kind == SIM_PINNED || alloc->kind == SIM_MANAGED ||
                                         alloc->kind == SIM_REGISTERED);
            *(void **)values[i] = cpu || alloc == NULL ? (void *)(uintptr_t)ptr : NULL;
        } else {
            result = answer(alloc, attributes[i], ptr, values[i]);
        }
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}

SIM_EXPORT CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                          CUdeviceptr ptr)
{
    SIM_ENTER(cuPointerSetAttribute);
    if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = CUDA_SUCCESS;
    pthread_rwlock_wrlock(&sim_mem);
    sim_alloc_t *alloc = sim_find(ptr);
    if (alloc == NULL) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (alloc->kind == SIM_VMM) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    } else {
        unsigned int on;
        memcpy(&on, value, sizeof(on));
        alloc->sync_memops = on != 0;
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}
