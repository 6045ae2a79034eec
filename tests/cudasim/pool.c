/* SPDX-License-Identifier: BSD-3-Clause */
/* Stream-ordered allocation: cuMemAllocAsync, memory pools. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cudasim/share.h"
#include "tests/cudasim/sim.h"

#define POOL_FILE_MAGIC 0x6c506d53u

/** Never freed, so that stale handles are recognised. */
struct CUmemPoolHandle_st {
    uint32_t magic;
    bool alive, imported, is_default;
    int phys;
    CUmemPoolProps props;
    uint64_t release_threshold;
    atomic_ullong used, used_high;
    int reuse[3];
    unsigned int access; /* bit per physical device */
    struct CUmemPoolHandle_st *next;
};

typedef struct CUmemPoolHandle_st pool_t;

/** What a pool's shareable file descriptor refers to. */
typedef struct pool_file {
    uint32_t magic;
    int32_t phys;
    CUmemPoolProps props;
} pool_file_t;

static pool_t *pools; /* under sim_lock, as the two tables */
static pool_t *default_pool[SIM_MAX_DEVICES], *current_pool[SIM_MAX_DEVICES];
static atomic_ullong last_token;

static pool_t *pool_new(int phys, const CUmemPoolProps *props)
{
    pool_t *pool = calloc(1, sizeof(*pool));
    if (pool != NULL) {
        pool->magic = SIM_MAGIC_POOL;
        pool->alive = true;
        pool->phys = phys;
        pool->props = *props;
        pool->access = 1u << phys;
        pool->next = pools;
        pools = pool;
    }
    return pool;
}

/** Called with sim_lock held. */
static pool_t *get_default(int phys)
{
    if (default_pool[phys] == NULL) {
        CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, sim_ordinal_of(phys)}};
        default_pool[phys] = pool_new(phys, &props);
        if (default_pool[phys] != NULL) {
            default_pool[phys]->is_default = true;
        }
    }
    return default_pool[phys];
}

static bool valid(const pool_t *pool)
{
    return pool != NULL && pool->magic == SIM_MAGIC_POOL && pool->alive;
}

/* ---- Pools ----------------------------------------------------------------------------------- */

SIM_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    SIM_ENTER(cuMemPoolCreate);
    if (sim_config()->no_pools) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (pool == NULL || props == NULL || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !sim_device_valid(props->location.id) ||
        (props->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = sim_arena_init();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&sim_lock);
    pool_t *made = pool_new(sim_config()->visible[props->location.id], props);
    pthread_mutex_unlock(&sim_lock);
    if (made == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pool = made;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    SIM_ENTER(cuMemPoolDestroy);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_lock);
    if (valid(pool) && !pool->is_default) {
        pool->alive = false; /* its allocations live until they are freed */
        if (current_pool[pool->phys] == pool) {
            current_pool[pool->phys] = NULL;
        }
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim_lock);
    return result;
}

SIM_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t min_bytes_to_keep)
{
    SIM_ENTER(cuMemPoolTrimTo);
    (void)min_bytes_to_keep; /* nothing is kept beyond what is in use */
    return valid(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult pool_attribute(pool_t *pool, CUmemPool_attribute attribute, void *value, bool set)
{
    if (!valid(pool) || value == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: {
        int *kept = &pool->reuse[attribute - 1];
        memcpy(set ? (void *)kept : value, set ? value : (void *)kept, sizeof(int));
        return CUDA_SUCCESS;
    }
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        memcpy(set ? (void *)&pool->release_threshold : value,
               set ? value : (void *)&pool->release_threshold, sizeof(uint64_t));
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        if (set) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *(uint64_t *)value = atomic_load(&pool->used);
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (set) {
            atomic_store(&pool->used_high, 0);
        } else {
            *(uint64_t *)value = atomic_load(&pool->used_high);
        }
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                          void *value)
{
    SIM_ENTER(cuMemPoolSetAttribute);
    return pool_attribute(pool, attribute, value, true);
}

SIM_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                          void *value)
{
    SIM_ENTER(cuMemPoolGetAttribute);
    return pool_attribute(pool, attribute, value, false);
}

SIM_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    SIM_ENTER(cuMemPoolSetAccess);
    if (!valid(pool) || map == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            !sim_device_valid(map[i].location.id)) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        int phys = sim_config()->visible[map[i].location.id];
        if (!sim_config()->p2p[phys][pool->phys]) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        pthread_rwlock_wrlock(&sim_mem);
        if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
            pool->access |= 1u << phys;
        } else if (phys != pool->phys) {
            pool->access &= ~(1u << phys);
        }
        sim_ranges_changed();
        pthread_rwlock_unlock(&sim_mem);
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool,
                                       CUmemLocation *location)
{
    SIM_ENTER(cuMemPoolGetAccess);
    if (!valid(pool) || flags == NULL || location == NULL ||
        location->type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_valid(location->id)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool has = pool->access & (1u << sim_config()->visible[location->id]);
    *flags = has ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

bool sim_pool_accessible(const sim_alloc_t *alloc, int phys)
{
    return alloc->pool == NULL || (alloc->pool->access & (1u << phys)) != 0;
}

void sim_pool_freed(const sim_alloc_t *alloc)
{
    atomic_fetch_sub(&alloc->pool->used, alloc->room);
}

static CUresult device_pool(CUmemoryPool *pool, CUdevice device, bool of_default)
{
    if (sim_config()->no_pools) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (pool == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_device_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    int phys = sim_config()->visible[device];
    pthread_mutex_lock(&sim_lock);
    pool_t *found = of_default ? NULL : current_pool[phys];
    found = found != NULL ? found : get_default(phys);
    pthread_mutex_unlock(&sim_lock);
    if (found == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pool = found;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    SIM_ENTER(cuDeviceGetDefaultMemPool);
    return device_pool(pool, device, true);
}

SIM_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    SIM_ENTER(cuDeviceGetMemPool);
    return device_pool(pool, device, false);
}

SIM_EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    SIM_ENTER(cuDeviceSetMemPool);
    if (!sim_device_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!valid(pool) || pool->imported || pool->phys != sim_config()->visible[device]) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&sim_lock);
    current_pool[pool->phys] = pool;
    pthread_mutex_unlock(&sim_lock);
    return CUDA_SUCCESS;
}

/* ---- Allocation ------------------------------------------------------------------------------ */

typedef struct free_op {
    sim_op_t op;
    uint64_t base, token;
} free_op_t;

static CUresult run_free(sim_op_t *base)
{
    const free_op_t *op = (free_op_t *)base;
    pthread_rwlock_wrlock(&sim_mem);
    sim_alloc_t *alloc = sim_find_any(op->base);
    if (alloc != NULL && alloc->dying && alloc->dying_token == op->token) {
        sim_alloc_release(alloc);
    }
    pthread_rwlock_unlock(&sim_mem);
    return CUDA_SUCCESS;
}

/** What the same stream freed before may be given out again at once. */
static sim_alloc_t *reuse(const pool_t *pool, uint64_t bytes, const sim_stream_t *stream)
{
    for (sim_alloc_t *alloc = sim_alloc_first(); alloc != NULL; alloc = alloc->next) {
        if (alloc->dying && alloc->pool == pool && alloc->dying_stream == stream &&
            alloc->bytes == bytes) {
            alloc->dying = false;
            alloc->id = sim_next_id();
            atomic_store(&alloc->mem->tail->live[alloc->region->type == SIM_REGION_SMALL
                                                     ? alloc->mem_offset / SIM_GRAIN
                                                     : 0],
                         alloc->id);
            return alloc;
        }
    }
    return NULL;
}

static CUresult allocate(CUdeviceptr *ptr, size_t bytes, pool_t *pool, const sim_stream_t *stream)
{
    if (ptr == NULL || bytes == 0 || pool->imported) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = CUDA_SUCCESS;
    pthread_rwlock_wrlock(&sim_mem);
    sim_alloc_t *alloc = reuse(pool, bytes, stream);
    if (alloc == NULL) {
        if (pool->props.maxSize != 0 && atomic_load(&pool->used) + bytes > pool->props.maxSize) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            result = sim_alloc_device(&alloc, SIM_POOL, pool, pool->phys, bytes);
        }
        if (result == CUDA_SUCCESS) {
            alloc->pool = pool;
            unsigned long long used = atomic_fetch_add(&pool->used, alloc->room) + alloc->room;
            if (used > atomic_load(&pool->used_high)) {
                atomic_store(&pool->used_high, used);
            }
        }
    }
    if (result == CUDA_SUCCESS) {
        *ptr = alloc->base;
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}

SIM_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream handle)
{
    SIM_ENTER(cuMemAllocAsync);
    sim_stream_t *stream;
    CUmemoryPool pool;
    CUresult result = sim_stream_get(handle, &stream);
    if (result == CUDA_SUCCESS) {
        result = device_pool(&pool, stream->ctx->ordinal, false);
    }
    return result == CUDA_SUCCESS ? allocate(ptr, bytes, pool, stream) : result;
}

SIM_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool,
                                            CUstream handle)
{
    SIM_ENTER(cuMemAllocFromPoolAsync);
    sim_stream_t *stream;
    CUresult result = sim_stream_get(handle, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return valid(pool) ? allocate(ptr, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream handle)
{
    SIM_ENTER(cuMemFreeAsync);
    sim_stream_t *stream;
    CUresult result = sim_stream_get(handle, &stream);
    free_op_t *op = NULL;
    if (result == CUDA_SUCCESS) {
        op = sim_op_new(sizeof(*op), run_free);
        result = op != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    op->op.always = true;
    op->base = ptr;
    op->token = atomic_fetch_add(&last_token, 1) + 1;
    pthread_rwlock_wrlock(&sim_mem);
    sim_alloc_t *alloc = sim_find(ptr);
    bool right = alloc != NULL && alloc->base == ptr &&
                 (alloc->kind == SIM_POOL || alloc->kind == SIM_POOL_IMPORT ||
                  alloc->kind == SIM_DEVICE);
    if (right) {
        alloc->dying = true;
        alloc->dying_token = op->token;
        alloc->dying_stream = stream;
        sim_ranges_changed();
    }
    pthread_rwlock_unlock(&sim_mem);
    if (!right) {
        free(op);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return sim_submit(stream, &op->op, NULL);
}

/* ---- Between processes ----------------------------------------------------------------------- */

SIM_EXPORT CUresult cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool,
                                                     CUmemAllocationHandleType type,
                                                     unsigned long long flags)
{
    SIM_ENTER(cuMemPoolExportToShareableHandle);
    if (handle == NULL || flags != 0 || !valid(pool) || pool->imported ||
        type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !(pool->props.handleTypes & type)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pool_file_t file = {POOL_FILE_MAGIC, pool->phys, pool->props};
    int fd = memfd_create("cudasim-pool", MFD_CLOEXEC);
    if (fd < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (pwrite(fd, &file, sizeof(file), 0) != (ssize_t)sizeof(file)) {
        close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *(int *)handle = fd;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle,
                                                       CUmemAllocationHandleType type,
                                                       unsigned long long flags)
{
    SIM_ENTER(cuMemPoolImportFromShareableHandle);
    pool_file_t file;
    if (pool == NULL || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        pread((int)(intptr_t)handle, &file, sizeof(file), 0) != (ssize_t)sizeof(file) ||
        file.magic != POOL_FILE_MAGIC || file.phys < 0 || file.phys >= SIM_MAX_DEVICES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_config()->ipc_open_fails) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    CUresult result = sim_arena_init();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&sim_lock);
    pool_t *made = pool_new(file.phys, &file.props);
    if (made != NULL) {
        made->imported = true;
    }
    pthread_mutex_unlock(&sim_lock);
    if (made == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pool = made;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr ptr)
{
    SIM_ENTER(cuMemPoolExportPointer);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (data == NULL) {
        return result;
    }
    pthread_rwlock_rdlock(&sim_mem);
    const sim_alloc_t *alloc = sim_find(ptr);
    if (alloc != NULL && alloc->kind == SIM_POOL &&
        (alloc->pool->props.handleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
        sim_share_t share;
        sim_share_describe(&share, alloc);
        memcpy(data, &share, sizeof(share));
        result = CUDA_SUCCESS;
        sim_count(SIM_IPC_EXPORTS, 1);
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}

SIM_EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *ptr, CUmemoryPool pool,
                                           CUmemPoolPtrExportData *data)
{
    SIM_ENTER(cuMemPoolImportPointer);
    if (ptr == NULL || data == NULL || !valid(pool) || !pool->imported) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_share_t share;
    sim_alloc_t *alloc;
    memcpy(&share, data, sizeof(share));
    pthread_rwlock_wrlock(&sim_mem);
    CUresult result = sim_share_open(&alloc, &share, pool, SIM_POOL_IMPORT);
    if (result == CUDA_SUCCESS) {
        alloc->pool = pool;
        *ptr = alloc->base;
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}
