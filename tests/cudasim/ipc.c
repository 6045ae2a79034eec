/* SPDX-License-Identifier: BSD-3-Clause */
/* cuMemAlloc memory between processes: legacy IPC handles. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cudasim/share.h"
#include "tests/cudasim/sim.h"

#define HANDLE_MAGIC 0x68496d53u

void sim_share_describe(sim_share_t *share, const sim_alloc_t *alloc)
{
    memset(share, 0, sizeof(*share));
    share->magic = HANDLE_MAGIC;
    share->pid = getpid();
    share->start_time = sim_process_start_time(getpid());
    share->inode = alloc->mem->inode;
    share->id = alloc->id;
    share->bytes = alloc->bytes;
    share->offset = alloc->mem_offset;
    share->fd = alloc->mem->fd;
    share->phys = alloc->phys;
}

/** Opens the owner's memfd and proves that it is the one meant, with the allocation still live. */
static CUresult open_share(const sim_share_t *share, sim_phys_t **mem)
{
    char path[64];
    struct stat st;
    if (sim_process_start_time(share->pid) != share->start_time) {
        return CUDA_ERROR_INVALID_VALUE; /* the owner is gone, or out of sight */
    }
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", share->pid, share->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) { /* freed since, or not for this process */
        return errno == ENOENT ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_MAP_FAILED;
    }
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (fstat(fd, &st) == 0 && st.st_ino == share->inode) {
        result = sim_phys_import(mem, fd);
    }
    if (result != CUDA_SUCCESS) {
        close(fd);
        return result;
    }
    bool small = share->bytes < SIM_SMALL;
    uint64_t slot = small ? share->offset / SIM_GRAIN : 0;
    if (slot >= SIM_PAGE / SIM_GRAIN || share->offset + share->bytes > (*mem)->bytes ||
        atomic_load(&(*mem)->tail->live[slot]) != share->id) {
        sim_phys_unref(*mem);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/** This context's mapping of the owner's memory, if it has one; sim_mem held. */
static sim_region_t *mapped_region(const void *owner, sim_kind_t kind, ino_t inode)
{
    for (sim_alloc_t *alloc = sim_alloc_first(); alloc != NULL; alloc = alloc->next) {
        if (alloc->kind == kind && alloc->region->owner == owner && alloc->mem->inode == inode) {
            return alloc->region;
        }
    }
    return NULL;
}

static CUresult map_region(sim_region_t **out, const sim_share_t *share, void *owner,
                           sim_kind_t kind)
{
    sim_phys_t *mem;
    CUresult result = open_share(share, &mem);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *out = mapped_region(owner, kind, share->inode);
    if (*out != NULL) {
        sim_phys_unref(mem); /* opened only to check that the allocation lives */
        return CUDA_SUCCESS;
    }
    result = sim_region_create(out, mem);
    if (result != CUDA_SUCCESS) {
        sim_phys_unref(mem);
        return result;
    }
    (*out)->kind = kind;
    (*out)->owner = owner;
    (*out)->type = share->bytes < SIM_SMALL ? SIM_REGION_SMALL : SIM_REGION_LARGE;
    if ((*out)->type == SIM_REGION_SMALL) {
        (*out)->slots = calloc(SIM_PAGE / SIM_GRAIN, sizeof(sim_alloc_t *));
        if ((*out)->slots == NULL) {
            sim_region_destroy(*out);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return CUDA_SUCCESS;
}

static void take_slots(sim_alloc_t *alloc)
{
    if (alloc->region->type == SIM_REGION_LARGE) {
        alloc->region->large = alloc;
        return;
    }
    uint64_t first = alloc->mem_offset / SIM_GRAIN;
    for (uint64_t i = 0; i < alloc->room / SIM_GRAIN; i++) {
        alloc->region->slots[first + i] = alloc;
    }
}

sim_alloc_t *sim_share_find(const void *owner, sim_kind_t kind, uint64_t base)
{
    for (sim_alloc_t *alloc = sim_alloc_first(); alloc != NULL; alloc = alloc->next) {
        if (alloc->kind == kind && alloc->base == base &&
            (owner == NULL || alloc->region->owner == owner)) {
            return alloc;
        }
    }
    return NULL;
}

CUresult sim_share_open(sim_alloc_t **out, const sim_share_t *share, void *owner, sim_kind_t kind)
{
    if (share->magic != HANDLE_MAGIC || share->phys < 0 || share->phys >= SIM_MAX_DEVICES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_region_t *region;
    CUresult result = map_region(&region, share, owner, kind);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    sim_alloc_t *alloc = sim_share_find(owner, kind, region->va + share->offset);
    bool fresh = alloc == NULL;
    if (fresh) {
        alloc = calloc(1, sizeof(*alloc));
        if (alloc == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (alloc->remote_id != share->id) {
        /* New, or the owner freed what was open here and made another allocation in its place:
         * the driver maps whole blocks, so the old opening goes on and counts as one of this. */
        uint64_t grain = region->type == SIM_REGION_SMALL ? SIM_GRAIN : SIM_PAGE;
        alloc->kind = kind;
        alloc->base = region->va + share->offset;
        alloc->bytes = share->bytes;
        alloc->room = (share->bytes + grain - 1) / grain * grain;
        alloc->id = sim_next_id();
        alloc->phys = share->phys;
        alloc->ordinal = sim_ordinal_of(share->phys);
        alloc->mem = region->mem;
        alloc->mem_offset = share->offset;
        alloc->region = region;
        alloc->remote_id = share->id;
        alloc->delta = sim_arena_delta();
        take_slots(alloc);
        sim_ranges_changed();
    }
    if (fresh) {
        region->live++;
        sim_alloc_link(alloc);
    }
    alloc->opens++;
    *out = alloc;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
    SIM_ENTER(cuIpcGetMemHandle);
    SIM_CURRENT(ctx);
    (void)ctx;
    if (handle == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_config()->ipc_get_fails || sim_config()->mig) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_rwlock_rdlock(&sim_mem);
    const sim_alloc_t *alloc = sim_find(ptr);
    if (alloc != NULL && alloc->kind == SIM_DEVICE) {
        sim_share_t share;
        sim_share_describe(&share, alloc);
        memset(handle, 0, sizeof(*handle));
        memcpy(handle, &share, sizeof(share));
        result = CUDA_SUCCESS;
        sim_count(SIM_IPC_EXPORTS, 1);
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}

/** Memory of a device of another process may be open in one context per device only. */
static bool open_in_other_context(const sim_ctx_t *ctx, const sim_share_t *share)
{
    for (sim_alloc_t *alloc = sim_alloc_first(); alloc != NULL; alloc = alloc->next) {
        if (alloc->kind == SIM_IMPORT && alloc->phys == share->phys && alloc->ctx != ctx &&
            alloc->ctx->phys == ctx->phys && alloc->owner_pid == share->pid) {
            return true;
        }
    }
    return false;
}

SIM_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle handle,
                                          unsigned int flags)
{
    SIM_ENTER(cuIpcOpenMemHandle);
    SIM_CURRENT(ctx);
    const sim_config_t *config = sim_config();
    sim_share_t share;
    memcpy(&share, &handle, sizeof(share));
    if (ptr == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
        share.magic != HANDLE_MAGIC || share.phys < 0 || share.phys >= config->device_count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (share.pid == getpid() && share.start_time == sim_process_start_time(share.pid)) {
        return CUDA_ERROR_INVALID_CONTEXT; /* not in the process that exported it */
    }
    if (config->ipc_open_fails || (config->masked_ipc_fails && sim_ordinal_of(share.phys) < 0)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!config->p2p[ctx->phys][share.phys]) {
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    sim_alloc_t *alloc;
    pthread_rwlock_wrlock(&sim_mem);
    CUresult result = open_in_other_context(ctx, &share)
                          ? CUDA_ERROR_INVALID_HANDLE
                          : sim_share_open(&alloc, &share, ctx, SIM_IMPORT);
    if (result == CUDA_SUCCESS) {
        alloc->ctx = ctx;
        alloc->owner_pid = share.pid;
        alloc->ordinal = ctx->ordinal; /* it is reported as memory of the device that opened it */
        *ptr = alloc->base;
        sim_count(SIM_IPC_OPENS, 1);
        sim_count(SIM_IPC_LIVE, alloc->opens == 1);
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}

SIM_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
    SIM_ENTER(cuIpcCloseMemHandle);
    SIM_CURRENT(ctx);
    pthread_rwlock_rdlock(&sim_mem);
    const sim_alloc_t *found = sim_share_find(NULL, SIM_IMPORT, ptr);
    bool last = found != NULL && found->opens == 1;
    pthread_rwlock_unlock(&sim_mem);
    if (last) {
        sim_ctx_drain(ctx);
    }
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_rwlock_wrlock(&sim_mem);
    sim_alloc_t *alloc = sim_share_find(NULL, SIM_IMPORT, ptr);
    if (alloc != NULL) {
        if (--alloc->opens == 0) {
            sim_alloc_release(alloc);
            sim_count(SIM_IPC_LIVE, -1);
        }
        result = CUDA_SUCCESS;
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}
