/* SPDX-License-Identifier: BSD-3-Clause */
/* Asks CUDA what a pointer is, and remembers which addresses are host memory. */
#include "cuda-aware/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cuda-aware/driver.h"
#include "cuda-aware/gpu_internal.h"
#include "cuda-aware/ipc_internal.h"
#include "runtime/log.h"

/* ---- the cache of host granules ---- */

/*
 * Why an entry cannot be stale. A granule is inserted because one byte of it, at an address that
 * the program passes to MPI, is readable host memory. The driver puts device memory only where a
 * whole granule is free, so the entry is true until that byte is unmapped. A correct program unmaps
 * its buffer after the MPI call that inserted it (same thread, or ordered by the program's own
 * synchronisation), and the hook then finds the entry and removes it. Relaxed accesses to one
 * location are enough for that.
 *
 * What is left is a program that asks about an address that it does not own: a stale pointer with
 * a count of zero, say, while another thread unmaps the granule. Two things guard that: the byte
 * must be readable at insertion (a freed device address is not), and `epoch` is read before CUDA is
 * asked and again after the entry was written, with full fences, while an unmapping first raises
 * the epoch and then removes entries: one of the two sees the other.
 */
uint64_t grail_mem_host_cache[GRAIL_MEM_CACHE_ENTRIES];

static bool hooks;          /* atomic */
static uint64_t epoch;      /* atomic */

static void clear_cache(void)
{
    for (int i = 0; i < GRAIL_MEM_CACHE_ENTRIES; ++i)
        __atomic_store_n(&grail_mem_host_cache[i], 0, __ATOMIC_RELAXED);
}

void grail_mem_hooks_available(bool available)
{
    __atomic_store_n(&hooks, available, __ATOMIC_SEQ_CST);
    if (!available) {
        __atomic_add_fetch(&epoch, 1, __ATOMIC_SEQ_CST);
        clear_cache();
    }
}

void grail_mem_unmapped(const void *address, size_t length)
{
    uint64_t first, last;

    if (length == 0 || !__atomic_load_n(&hooks, __ATOMIC_RELAXED))
        return;
    __atomic_add_fetch(&epoch, 1, __ATOMIC_SEQ_CST);
    first = (uint64_t)(uintptr_t)address >> GRAIL_MEM_GRANULE_SHIFT;
    last = ((uint64_t)(uintptr_t)address + length - 1) >> GRAIL_MEM_GRANULE_SHIFT;
    if (last < first || last - first >= GRAIL_MEM_CACHE_ENTRIES) {
        clear_cache();
        return;
    }
    for (uint64_t granule = first; granule <= last; ++granule) {
        uint64_t *entry = &grail_mem_host_cache[granule % GRAIL_MEM_CACHE_ENTRIES];

        if (__atomic_load_n(entry, __ATOMIC_SEQ_CST) == granule)
            __atomic_store_n(entry, 0, __ATOMIC_RELAXED);
    }
}

/* The kernel looks at the signal set before it finds that `how` is nonsense: EFAULT when the
 * address cannot be read, EINVAL otherwise. */
static bool readable(const void *address)
{
    uintptr_t word = (uintptr_t)address & ~(uintptr_t)7;
    int saved = errno;
    bool yes = syscall(SYS_rt_sigprocmask, ~0, (void *)word, NULL, 8) == 0 || errno != EFAULT;

    errno = saved;
    return yes;
}

static void remember_host(const void *address, uint64_t epoch_before)
{
    uint64_t granule = (uint64_t)(uintptr_t)address >> GRAIL_MEM_GRANULE_SHIFT;
    uint64_t *entry = &grail_mem_host_cache[granule % GRAIL_MEM_CACHE_ENTRIES];
    uint64_t expected = granule;

    if (granule == 0 || !__atomic_load_n(&hooks, __ATOMIC_RELAXED) || !readable(address))
        return;
    __atomic_store_n(entry, granule, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&epoch, __ATOMIC_SEQ_CST) != epoch_before)
        __atomic_compare_exchange_n(entry, &expected, 0, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_RELAXED);
}

/* ---- asking CUDA ---- */

/* cuPointerGetAttributes writes each value in the type of its attribute. */
struct attributes {
    unsigned int type;
    unsigned int managed;
    CUcontext context;
    int device;
    unsigned int legacy_ipc;
    unsigned long long buffer_id;
    CUdeviceptr base;
    size_t size;
    CUmemoryPool pool;
};

enum { BRIEF = 3, ALL = 9 };    /* the first 3 tell whether the device path must serve it */

static CUresult ask(const void *address, unsigned count, struct attributes *out)
{
    CUpointer_attribute names[ALL] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_CONTEXT,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
    };
    void *values[ALL] = {
        &out->type, &out->managed, &out->context, &out->device, &out->legacy_ipc,
        &out->buffer_id, &out->base, &out->size, &out->pool,
    };
    CUresult result;

    memset(out, 0, sizeof(*out));
    out->device = -1;
    result = grail_cuda.PointerGetAttributes(count, names, values, (CUdeviceptr)(uintptr_t)address);
    /* Plain host memory: reported so while no context exists in the process. */
    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_VALUE) {
        memset(out, 0, sizeof(*out));
        out->device = -1;
        return CUDA_SUCCESS;
    }
    return result;
}

/* Memory that CUDA knows as the host's: pinned memory has the context that pinned it; VMM memory
 * placed in host memory has none, and the CPU may touch it only if the program asked for that, so
 * it is left to the device. (Measured with driver 580.) */
static bool on_device(const struct attributes *a)
{
    return a->type == CU_MEMORYTYPE_DEVICE || a->type == CU_MEMORYTYPE_UNIFIED || a->managed ||
           (a->type == CU_MEMORYTYPE_HOST && a->context == NULL);
}

static void complain(CUresult result, const void *address)
{
    char what[80];

    snprintf(what, sizeof(what), "asking CUDA about the address %p", address);
    (void)grail_cuda_fail(result, what);
}

bool grail_mem_ask_device(const void *address)
{
    uint64_t before = __atomic_load_n(&epoch, __ATOMIC_SEQ_CST);
    struct attributes a;
    CUresult result;

    if (grail_cuda_ready()) {
        result = ask(address, BRIEF, &a);
        if (result != CUDA_SUCCESS) {
            complain(result, address);
            return false;
        }
        if (on_device(&a))
            return true;
        /* Not remembered: CUDA frees pinned memory without a call that the hooks see, and may put
         * device memory there. */
        if (a.type != 0)
            return false;
    }
    remember_host(address, before);
    return false;
}

/* Copies from this memory by the synchronous driver calls of other libraries then wait for all
 * earlier work on it, as RDMA and peer access need. Once per allocation; VMM refuses. */
static void set_sync_memops(const struct attributes *a)
{
    enum { SLOTS = 1024 };
    static unsigned long long done[SLOTS];
    unsigned long long *slot = &done[a->buffer_id % SLOTS];
    unsigned int one = 1;

    if (a->buffer_id == 0 || __atomic_load_n(slot, __ATOMIC_RELAXED) == a->buffer_id)
        return;
    (void)grail_cuda.PointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a->base);
    __atomic_store_n(slot, a->buffer_id, __ATOMIC_RELAXED);
}

static grail_mem_kind_t kind_of(const struct attributes *a)
{
    if (a->managed)
        return GRAIL_MEM_MANAGED;
    if (a->pool != NULL)
        return GRAIL_MEM_POOL;
    if (a->context == NULL)
        return GRAIL_MEM_VMM;
    if (!a->legacy_ipc && grail_ipc_is_mapping(a->base))
        return GRAIL_MEM_IMPORTED;
    return GRAIL_MEM_DEVICE;
}

/* Memory in no GPU (VMM in host memory) is served by the GPU in use. */
static int device_of(const struct attributes *a)
{
    CUdevice current;

    if (a->device >= 0)
        return a->device;
    if (grail_cuda.CtxGetDevice(&current) == CUDA_SUCCESS)
        return current;
    return grail_gpu_last_device();
}

static CUresult find_range(const void *address, const grail_mem_t *mem, struct attributes *a)
{
    CUcontext previous;
    CUresult result = grail_cuda.CtxPushCurrent(mem->context);

    if (result != CUDA_SUCCESS)
        return result;
    result = grail_cuda.MemGetAddressRange(&a->base, &a->size, (CUdeviceptr)(uintptr_t)address);
    grail_cuda.CtxPopCurrent(&previous);
    return result;
}

grail_status_t grail_mem_query(const void *address, grail_mem_t *mem)
{
    grail_mem_t found = {.kind = GRAIL_MEM_HOST, .device = -1};
    struct attributes a;
    grail_status_t status;
    CUresult result;

    if (address == NULL || !grail_cuda_ready()) {
        *mem = found;
        return GRAIL_OK;
    }
    result = ask(address, ALL, &a);
    if (result != CUDA_SUCCESS) {
        complain(result, address);
        return GRAIL_ERR_CUDA;
    }
    if (!on_device(&a)) {
        if (a.type != 0)
            found.kind = GRAIL_MEM_PINNED;
        *mem = found;
        return GRAIL_OK;
    }
    found.kind = kind_of(&a);
    found.device = device_of(&a);
    found.context = a.context;
    if (found.context == NULL) {
        status = grail_context_for_device(found.device, &found.context);
        if (status != GRAIL_OK)
            return status;
    }
    if (a.base == 0 || a.size == 0) {
        result = find_range(address, &found, &a);
        if (result != CUDA_SUCCESS) {
            complain(result, address);
            return GRAIL_ERR_CUDA;
        }
    }
    found.base = a.base;        /* VMM: the whole reservation, however many chunks it has */
    found.size = a.size;
    /* An id of VMM memory is that of one chunk, not of the range. */
    found.buffer_id = found.kind == GRAIL_MEM_VMM ? 0 : a.buffer_id;
    found.exportable = found.kind == GRAIL_MEM_DEVICE && a.legacy_ipc != 0;
    if (found.kind == GRAIL_MEM_DEVICE)
        set_sync_memops(&a);
    *mem = found;
    return GRAIL_OK;
}

bool grail_mem_still_valid(const grail_mem_t *mem)
{
    struct attributes a;

    if (mem->kind == GRAIL_MEM_HOST || mem->kind == GRAIL_MEM_PINNED)
        return true;
    if (!grail_cuda_ready() ||
        ask((const void *)(uintptr_t)mem->base, ALL, &a) != CUDA_SUCCESS)
        return false;
    if (mem->buffer_id != 0)
        return a.buffer_id == mem->buffer_id;
    return a.base == mem->base && a.size == mem->size;
}

bool grail_mem_identify(const void *address, uint64_t *id)
{
    struct attributes a;

    *id = 0;
    if (!grail_cuda_ready() || ask(address, ALL, &a) != CUDA_SUCCESS)
        return true;        /* whoever uses the memory gets the error, and tells it */
    *id = a.buffer_id;
    return on_device(&a);
}

const char *grail_mem_kind_name(grail_mem_kind_t kind)
{
    switch (kind) {
    case GRAIL_MEM_HOST:
        return "host";
    case GRAIL_MEM_PINNED:
        return "pinned host";
    case GRAIL_MEM_DEVICE:
        return "device";
    case GRAIL_MEM_POOL:
        return "stream-ordered pool";
    case GRAIL_MEM_VMM:
        return "virtual memory";
    case GRAIL_MEM_MANAGED:
        return "managed";
    case GRAIL_MEM_IMPORTED:
        return "imported";
    }
    return "unknown";
}
