/* SPDX-License-Identifier: BSD-3-Clause */
/* Slots that this process owns and its peers read. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda-aware/gpu_internal.h"
#include "cuda-aware/staging_internal.h"
#include "runtime/log.h"
#include "runtime/options.h"

enum { RETRY_SECONDS = 1 };     /* between two tries to get device memory that was not there */

struct grail_slots {
    struct grail_slots *next;
    grail_slots_where_t where;
    grail_gpu_t *gpu;           /* RING: whose memory; SHM: who pinned it, NULL: nobody yet */
    size_t slot_size;
    uint32_t count;
    uint32_t free_count;
    uint32_t *free_indices;
    char *base;                 /* NULL: there are none, because of `failed` */
    size_t bytes;
    grail_shm_t shm;
    grail_ipc_key_t key;
    grail_status_t failed;
    time_t retry;               /* when another try makes sense; 0: never */
};

static grail_slots_t *all;

static time_t seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec;
}

static grail_status_t fill_free_list(grail_slots_t *slots)
{
    slots->free_indices = malloc(slots->count * sizeof(*slots->free_indices));
    if (slots->free_indices == NULL) {
        grail_error("out of memory for %u slots", slots->count);
        return GRAIL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < slots->count; ++i)
        slots->free_indices[i] = slots->count - 1 - i;
    slots->free_count = slots->count;
    return GRAIL_OK;
}

/* ---- the shared segment ---- */

static grail_status_t pin_shm(grail_slots_t *slots)
{
    grail_gpu_t *gpu = slots->gpu == NULL ? grail_gpu_any() : NULL;
    const char *why;
    grail_status_t status;

    if (gpu == NULL)
        return GRAIL_OK;        /* pinned already, or no GPU in use: the CPU copies */
    status = grail_staging_pin(gpu, slots->base, slots->bytes, &why);
    if (status != GRAIL_OK) {
        if (grail_log_first_time("shared segment is not pinned"))
            grail_info("the shared segment is not used: %s", why);
        return status;
    }
    slots->gpu = gpu;
    return GRAIL_OK;
}

static grail_status_t make_shm(grail_slots_t *slots)
{
    size_t stride = grail_staging_stride();
    size_t most = grail_staging_slots_limit() / stride;
    grail_status_t status;

    if (!grail_options.shm)
        return GRAIL_ERR_UNSUPPORTED;
    slots->slot_size = stride;
    slots->count = (size_t)grail_options.chunks < most ? (uint32_t)grail_options.chunks
                                                       : (uint32_t)most;
    if (slots->count == 0) {
        grail_info("the shared segment is not used: GRAIL_STAGING_MAX (%zu bytes) leaves no room "
                   "for a chunk of %zu bytes in it", grail_options.staging_max, stride);
        return GRAIL_ERR_UNSUPPORTED;
    }
    slots->bytes = slots->count * stride;
    status = grail_shm_create(slots->bytes, &slots->shm);
    if (status != GRAIL_OK)
        return status;
    slots->base = slots->shm.base;
    status = fill_free_list(slots);
    if (status == GRAIL_OK)
        status = pin_shm(slots);
    if (status != GRAIL_OK) {
        grail_shm_detach(&slots->shm);
        slots->base = NULL;
        free(slots->free_indices);
        slots->free_indices = NULL;
    }
    return status;
}

/* ---- the ring in device memory ---- */

static CUresult allocate_ring(grail_slots_t *slots, CUdeviceptr *memory)
{
    CUresult result = grail_gpu_enter(slots->gpu);

    if (result != CUDA_SUCCESS)
        return result;
    slots->count = (uint32_t)grail_options.ring_chunks;
    result = grail_cuda.MemAlloc(memory, slots->slot_size * slots->count);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        slots->count /= 2;      /* at least 1: the option is at least 2 */
        result = grail_cuda.MemAlloc(memory, slots->slot_size * slots->count);
    }
    grail_gpu_leave(slots->gpu);
    return result;
}

static void free_ring(grail_gpu_t *gpu, CUdeviceptr memory)
{
    if (grail_cuda_gone() || grail_gpu_enter(gpu) != CUDA_SUCCESS)
        return;
    (void)grail_cuda.MemFree(memory);
    grail_gpu_leave(gpu);
}

static grail_status_t make_ring(grail_slots_t *slots)
{
    const char *why = NULL;
    CUdeviceptr memory;
    grail_status_t status;
    grail_mem_t mem;
    CUresult result;

    if (!grail_options.ring)
        return GRAIL_ERR_UNSUPPORTED;
    /* 512: slots start as aligned as allocations do */
    slots->slot_size = (grail_options.ring_chunk + 511) & ~(size_t)511;
    result = allocate_ring(slots, &memory);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        if (grail_log_first_time("no device memory for a ring"))
            grail_info("%s has no room for a staging ring of %zu bytes: other paths are used; "
                       "lower GRAIL_RING_CHUNK or GRAIL_RING_CHUNKS", grail_gpu_name(slots->gpu),
                       slots->slot_size * slots->count);
        slots->retry = seconds() + RETRY_SECONDS;
        return GRAIL_ERR_NO_DEVICE_MEMORY;
    }
    if (result != CUDA_SUCCESS)
        return grail_cuda_fail(result, "allocating a staging ring");
    slots->bytes = slots->slot_size * slots->count;
    status = grail_mem_query((void *)(uintptr_t)memory, &mem);
    if (status == GRAIL_OK)
        status = grail_ipc_export(&mem, &slots->key, &why);
    if (status == GRAIL_ERR_UNSUPPORTED && grail_log_first_time("ring is not exported"))
        grail_info("the device staging ring is not used on %s: %s", grail_gpu_name(slots->gpu),
                   why);
    if (status == GRAIL_OK)
        status = fill_free_list(slots);
    if (status != GRAIL_OK) {
        free_ring(slots->gpu, memory);
        return status;
    }
    slots->base = (char *)(uintptr_t)memory;
    grail_staging_device += slots->bytes;
    return GRAIL_OK;
}

/* ---- for callers ---- */

grail_status_t grail_slots_open(grail_slots_where_t where, grail_gpu_t *gpu,
                                grail_slots_t **result)
{
    grail_slots_t *slots;

    for (slots = all; slots != NULL; slots = slots->next) {
        if (slots->where == where && (where == GRAIL_SLOTS_SHM || slots->gpu == gpu))
            break;
    }
    if (slots == NULL) {
        slots = calloc(1, sizeof(*slots));
        if (slots == NULL) {
            grail_error("out of memory for the state of a staging area");
            return GRAIL_ERR_NO_MEMORY;
        }
        slots->where = where;
        slots->gpu = where == GRAIL_SLOTS_RING ? gpu : NULL;
        slots->next = all;
        all = slots;
        slots->failed = where == GRAIL_SLOTS_RING ? make_ring(slots) : make_shm(slots);
    } else if (slots->base == NULL && slots->retry != 0 && seconds() >= slots->retry) {
        slots->retry = 0;
        slots->failed = make_ring(slots);
    } else if (slots->base != NULL && where == GRAIL_SLOTS_SHM && slots->gpu == NULL) {
        grail_status_t status = pin_shm(slots);

        if (status != GRAIL_OK)
            return status;
    }
    if (slots->failed == GRAIL_OK)
        *result = slots;
    return slots->failed;
}

size_t grail_slots_size(const grail_slots_t *slots)
{
    return slots->slot_size;
}

grail_status_t grail_slots_get(grail_slots_t *slots, uint32_t *index, void **address)
{
    if (slots->free_count == 0)
        return GRAIL_ERR_BUSY;
    *index = slots->free_indices[--slots->free_count];
    *address = slots->base + (size_t)*index * slots->slot_size;
    return GRAIL_OK;
}

void grail_slots_put(grail_slots_t *slots, uint32_t index)
{
    if (index >= slots->count || slots->free_count == slots->count) {
        grail_error("internal: slot %u was returned, of %u of which %u are free", index,
                    slots->count, slots->free_count);
        return;
    }
    slots->free_indices[slots->free_count++] = index;
}

grail_status_t grail_slots_ticket(grail_slots_t *slots, grail_slots_ticket_t *ticket)
{
    memset(ticket, 0, sizeof(*ticket));
    ticket->where = slots->where;
    ticket->count = slots->count;
    ticket->slot_size = slots->slot_size;
    if (slots->where == GRAIL_SLOTS_SHM)
        ticket->u.shm = slots->shm.ticket;
    else
        ticket->u.ring = slots->key;
    return GRAIL_OK;
}

void grail_slots_fini(void)
{
    while (all != NULL) {
        grail_slots_t *slots = all;

        all = slots->next;
        if (slots->base != NULL && slots->where == GRAIL_SLOTS_RING) {
            free_ring(slots->gpu, (CUdeviceptr)(uintptr_t)slots->base);
            grail_staging_device -= slots->bytes;
        } else if (slots->base != NULL) {
            if (slots->gpu != NULL) {
                grail_gpu_unpin(slots->gpu, slots->base);
                grail_staging_pinned -= slots->bytes;
            }
            grail_shm_detach(&slots->shm);
        }
        free(slots->free_indices);
        free(slots);
    }
}
