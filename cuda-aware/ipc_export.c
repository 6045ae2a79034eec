/* SPDX-License-Identifier: BSD-3-Clause */
/* What this process has given to its peers to map. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "cuda-aware/gpu_internal.h"
#include "cuda-aware/ipc_internal.h"
#include "runtime/log.h"
#include "runtime/options.h"

enum {
    FIRST_CAPACITY = 64,
    SWEEP_PER_EXPORT = 256      /* entries checked (0.1 us each) when something new is exported */
};

/* An answer of the driver about one allocation: a key, or why there is none. */
struct exported {
    CUdeviceptr base;           /* 0: free */
    uint64_t buffer_id;
    const char *why;            /* NULL: `key` is valid */
    grail_ipc_key_t key;
};

/* Open addressing by base; at most half full. */
static struct exported *table;
static size_t capacity, used;
static size_t hand;             /* where the next partial sweep goes on */
static grail_ipc_stale_fn stale_fn;

uint64_t grail_ipc_owner(void)
{
    static uint64_t owner;
    uint64_t seen = __atomic_load_n(&owner, __ATOMIC_RELAXED), mine = 0;

    if (GRAIL_LIKELY(seen != 0))
        return seen;
    if (getrandom(&mine, sizeof(mine), 0) != (ssize_t)sizeof(mine)) {
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        mine = ((uint64_t)now.tv_nsec * 0x9e3779b97f4a7c15ull) ^ ((uint64_t)now.tv_sec << 20) ^
               ((uint64_t)getpid() << 44) ^ (uint64_t)(uintptr_t)&now;
    }
    mine |= mine == 0;
    if (__atomic_compare_exchange_n(&owner, &seen, mine, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
        return mine;
    return seen;
}

void grail_ipc_on_stale(grail_ipc_stale_fn fn)
{
    stale_fn = fn;
}

/* ---- the table ---- */

static size_t slot_of(CUdeviceptr base)
{
    return (size_t)((base >> 8) * 0x9e3779b97f4a7c15ull >> 20) & (capacity - 1);
}

static struct exported *find(CUdeviceptr base)
{
    if (capacity == 0)
        return NULL;
    for (size_t i = slot_of(base);; i = (i + 1) & (capacity - 1)) {
        if (table[i].base == base)
            return &table[i];
        if (table[i].base == 0)
            return NULL;
    }
}

static void place(const struct exported *entry)
{
    size_t i = slot_of(entry->base);

    while (table[i].base != 0)
        i = (i + 1) & (capacity - 1);
    table[i] = *entry;
}

static grail_status_t grow(void)
{
    struct exported *old = table;
    size_t old_capacity = capacity;
    size_t bigger = old_capacity ? 2 * old_capacity : FIRST_CAPACITY;
    struct exported *fresh = calloc(bigger, sizeof(*fresh));

    if (fresh == NULL) {
        grail_error("out of memory for a table of %zu exported allocations", bigger);
        return GRAIL_ERR_NO_MEMORY;
    }
    table = fresh;
    capacity = bigger;
    hand = 0;
    for (size_t i = 0; i < old_capacity; ++i) {
        if (old[i].base != 0)
            place(&old[i]);
    }
    free(old);
    return GRAIL_OK;
}

/* Entries behind the hole that hashed to or before it move up, so that searches need no marks. */
static void erase(struct exported *entry)
{
    size_t hole = (size_t)(entry - table);
    size_t i = hole;

    for (;;) {
        i = (i + 1) & (capacity - 1);
        if (table[i].base == 0)
            break;
        size_t home = slot_of(table[i].base);

        if (((i - home) & (capacity - 1)) >= ((i - hole) & (capacity - 1))) {
            table[hole] = table[i];
            hole = i;
        }
    }
    table[hole].base = 0;
    used--;
}

static void report_stale(struct exported *entry)
{
    struct exported gone = *entry;

    erase(entry);
    if (gone.why == NULL && stale_fn != NULL)
        stale_fn(gone.base, gone.buffer_id);
}

static bool alive(const struct exported *entry)
{
    grail_mem_t mem = {
        .kind = GRAIL_MEM_DEVICE, .base = entry->base, .buffer_id = entry->buffer_id};

    return grail_mem_still_valid(&mem);
}

static void sweep(size_t count)
{
    for (; count > 0 && used > 0; --count) {
        hand &= capacity - 1;
        if (table[hand].base != 0 && !alive(&table[hand]))
            report_stale(&table[hand]);     /* another entry may be there now: look again */
        else
            hand++;
    }
}

void grail_ipc_sweep(void)
{
    if (used == 0 || !grail_cuda_ready() || grail_cuda_gone())
        return;
    hand = 0;
    /* An erasure repeats its slot, and wraps an entry at most once past the end. */
    sweep(capacity + used);
}

/* ---- export ---- */

static const char *why_not_exportable(const grail_mem_t *mem)
{
    switch (mem->kind) {
    case GRAIL_MEM_POOL:
        return "memory of a stream-ordered pool (cudaMallocAsync) cannot be mapped by a peer; "
               "memory of cudaMalloc can";
    case GRAIL_MEM_VMM:
        return "memory of cuMemCreate (expandable segments) cannot be mapped by a peer; memory of "
               "cudaMalloc can";
    case GRAIL_MEM_MANAGED:
        return "managed memory cannot be mapped by a peer; memory of cudaMalloc can";
    case GRAIL_MEM_IMPORTED:
        return "memory of another process cannot be given on to a third";
    default:
        return "this device memory (e.g. a __device__ variable) cannot be mapped by a peer; memory "
               "of cudaMalloc can";
    }
}

static const char *why_get_failed(const grail_mem_t *mem, CUresult result)
{
    if (grail_device_is_mig(mem->device))
        return "the driver gives out no IPC handles on this MIG instance";
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        return "CUDA IPC is not supported on this machine (cuIpcGetMemHandle says so)";
    if (result == CUDA_ERROR_OPERATING_SYSTEM || result == CUDA_ERROR_NOT_PERMITTED)
        return "the operating system forbids CUDA IPC (cuIpcGetMemHandle): run containers with a "
               "shared IPC namespace (--ipc=host)";
    return "the driver gives out no IPC handle for this memory (cuIpcGetMemHandle failed)";
}

/* Asks the driver; a failure is an answer, too, and kept. */
static grail_status_t ask(const grail_mem_t *mem, struct exported *entry)
{
    grail_gpu_t *gpu;
    grail_status_t status = grail_gpu_get(mem, &gpu);
    CUresult result;

    if (status != GRAIL_OK)
        return status;
    memset(entry, 0, sizeof(*entry));
    entry->base = mem->base;
    entry->buffer_id = mem->buffer_id;
    result = grail_gpu_enter(gpu);
    if (result == CUDA_SUCCESS) {
        result = grail_cuda.IpcGetMemHandle(&entry->key.handle, mem->base);
        grail_gpu_leave(gpu);
    }
    if (result != CUDA_SUCCESS) {
        entry->why = why_get_failed(mem, result);
        grail_debug("no IPC handle for the allocation at 0x%llx (CUDA error %d)",
                    (unsigned long long)mem->base, (int)result);
        return GRAIL_OK;
    }
    entry->key.gpu = *grail_gpu_uuid(gpu);
    entry->key.owner = grail_ipc_owner();
    entry->key.base = mem->base;
    entry->key.size = mem->size;
    entry->key.buffer_id = mem->buffer_id;
    return GRAIL_OK;
}

static grail_status_t answer(const struct exported *entry, grail_ipc_key_t *key, const char **why)
{
    if (entry->why != NULL) {
        *why = entry->why;
        return GRAIL_ERR_UNSUPPORTED;
    }
    *key = entry->key;
    return GRAIL_OK;
}

grail_status_t grail_ipc_export(const grail_mem_t *mem, grail_ipc_key_t *key, const char **why)
{
    struct exported *known, fresh;
    grail_status_t status;

    if (!grail_options.ipc) {
        *why = "the option ipc is off";
        return GRAIL_ERR_UNSUPPORTED;
    }
    if (!mem->exportable || mem->buffer_id == 0) {
        *why = why_not_exportable(mem);
        return GRAIL_ERR_UNSUPPORTED;
    }
    known = find(mem->base);
    if (known != NULL && known->buffer_id == mem->buffer_id)
        return answer(known, key, why);
    if (known != NULL)
        report_stale(known);
    status = ask(mem, &fresh);
    if (status != GRAIL_OK)
        return status;
    sweep(capacity < SWEEP_PER_EXPORT ? capacity : SWEEP_PER_EXPORT);
    if (2 * (used + 1) > capacity) {
        status = grow();
        if (status != GRAIL_OK)
            return status;
    }
    place(&fresh);
    used++;
    return answer(&fresh, key, why);
}

void grail_ipc_export_fini(void)
{
    free(table);
    table = NULL;
    capacity = used = hand = 0;
}
