/* SPDX-License-Identifier: BSD-3-Clause */
/* What kind of memory is this? */
#ifndef GRAIL_CUDA_AWARE_MEMORY_H
#define GRAIL_CUDA_AWARE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda-aware/cuda_abi.h"
#include "runtime/api.h"
#include "runtime/status.h"

typedef enum grail_mem_kind {
    GRAIL_MEM_HOST,         /* pageable, or unknown to CUDA */
    GRAIL_MEM_PINNED,       /* cuMemHostAlloc or cuMemHostRegister: the CPU path serves it */
    GRAIL_MEM_DEVICE,       /* cuMemAlloc, cudaMalloc: legacy IPC works */
    GRAIL_MEM_POOL,         /* cuMemAllocAsync */
    GRAIL_MEM_VMM,          /* cuMemMap, one or several chunks */
    GRAIL_MEM_MANAGED,      /* cuMemAllocManaged */
    GRAIL_MEM_IMPORTED      /* another process's memory, mapped here: cannot be exported again */
} grail_mem_kind_t;

typedef struct grail_mem {
    grail_mem_kind_t kind;
    int device;             /* CUDA ordinal in this process, -1 for host */
    CUcontext context;      /* context to queue work in; never NULL for device kinds */
    CUdeviceptr base;       /* allocation (VMM: the mapped range) that contains the pointer */
    size_t size;
    uint64_t buffer_id;     /* unique for the life of the process; 0 where CUDA gives none */
    bool exportable;        /* cuIpcGetMemHandle may work */
} grail_mem_t;

/*
 * A cache of address granules that are known to be host memory. An entry stays true as long as the
 * granule is not unmapped: the driver can only place device memory at addresses that are free.
 * grail_mem_unmapped() must be called for every munmap (the PML wires Open MPI's memory hooks to
 * it); without hooks the cache stays off and every pointer is asked for.
 *
 * A granule is 2 MiB: the driver reserves device address space in multiples of that, so host and
 * device memory never share one while the host part is mapped.
 */
enum { GRAIL_MEM_GRANULE_SHIFT = 21, GRAIL_MEM_CACHE_ENTRIES = 1024 };

/* Entries are granule numbers (0: empty); relaxed atomics, any thread. */
GRAIL_API extern uint64_t grail_mem_host_cache[GRAIL_MEM_CACHE_ENTRIES];

GRAIL_API void grail_mem_hooks_available(bool available);

/* Async-signal-safe, lock-free, any thread; callable from inside munmap. */
GRAIL_API void grail_mem_unmapped(const void *address, size_t length);

/* The slow way: asks CUDA when the process uses it. True for the device kinds and managed memory,
 * which need grail_device_*; pinned and pageable host memory give false. */
GRAIL_API bool grail_mem_ask_device(const void *address);

/*
 * Must this address be served by the device path? About 2 ns for cached host memory. NULL and the
 * addresses of zero-length buffers are host.
 */
static inline bool grail_mem_is_device(const void *address)
{
    uint64_t granule = (uint64_t)(uintptr_t)address >> GRAIL_MEM_GRANULE_SHIFT;
    uint64_t seen = __atomic_load_n(&grail_mem_host_cache[granule % GRAIL_MEM_CACHE_ENTRIES],
                                    __ATOMIC_RELAXED);
    if (GRAIL_LIKELY(seen == granule && granule != 0))
        return false;
    return grail_mem_ask_device(address);
}

/* Everything about a pointer. Host memory: kind, device -1, the rest zero. Errors: GRAIL_ERR_CUDA
 * (logged). Any thread, with or without a current context; changes none. */
GRAIL_API grail_status_t grail_mem_query(const void *address, grail_mem_t *mem);

/* Is `mem` still the allocation that it was (same buffer id at its base)? */
GRAIL_API bool grail_mem_still_valid(const grail_mem_t *mem);

/*
 * Is there device memory at this address now, and which? `id` gets CUDA's number of it, that of one
 * chunk for VMM memory, or 0 where CUDA gives none or cannot be asked (then the answer is true).
 * 0.05 us: to tell whether a buffer is still what it was.
 */
GRAIL_API bool grail_mem_identify(const void *address, uint64_t *id);

GRAIL_API const char *grail_mem_kind_name(grail_mem_kind_t kind);

#endif
