/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory of another process of this node, mapped here. */
#ifndef GRAIL_CUDA_AWARE_IPC_H
#define GRAIL_CUDA_AWARE_IPC_H

#include <stdint.h>

#include "cuda-aware/gpu.h"

/* Names one allocation of one process; position independent; 128 bytes. */
typedef struct grail_ipc_key {
    CUipcMemHandle handle;
    CUuuid gpu;                 /* where the memory is */
    uint64_t owner;             /* random number of the owning process (never a pid: two containers
                                   may have the same) */
    uint64_t base;              /* in the owner */
    uint64_t size;
    uint64_t buffer_id;
    uint64_t reserved;
} grail_ipc_key_t;

/* This process's random owner number. */
GRAIL_API uint64_t grail_ipc_owner(void);

/*
 * Key for the allocation of `mem`, cached by base and buffer id. GRAIL_ERR_UNSUPPORTED when the
 * memory cannot be exported (`why`: a lasting reason). When a new allocation is exported, older
 * cache entries are checked for life; those freed meanwhile are reported to `on_stale` so that
 * peers can unmap them and the owner gets its memory back.
 */
typedef void (*grail_ipc_stale_fn)(uint64_t base, uint64_t buffer_id);
GRAIL_API void grail_ipc_on_stale(grail_ipc_stale_fn fn);
GRAIL_API grail_status_t grail_ipc_export(const grail_mem_t *mem, grail_ipc_key_t *key,
                                          const char **why);
/* Check all exported allocations for life now (also called from a slow timer in progress). */
GRAIL_API void grail_ipc_sweep(void);

/* `gpu` may be another context of the same device than the one that was asked for: copies reach the
 * mapping from there too, kernels do not. */
typedef struct grail_ipc_map {
    void *address;              /* of key.base, in this process */
    grail_ipc_key_t key;
    grail_gpu_t *gpu;
    int users;
} grail_ipc_map_t;

/*
 * Map for use by `gpu`; cached by (gpu, owner, base, buffer id), least recently used unused ones
 * closed beyond options ipc_cache and ipc_cache_bytes; an entry with the same owner and base but
 * another buffer id is closed first. GRAIL_ERR_UNSUPPORTED with a lasting `why` that names cause
 * and cure (masked GPUs, no P2P, container, MIG...). Release when the copy is done.
 */
GRAIL_API grail_status_t grail_ipc_map(grail_gpu_t *gpu, const grail_ipc_key_t *key,
                                       grail_ipc_map_t **map, const char **why);
GRAIL_API void grail_ipc_release(grail_ipc_map_t *map);

/* Why memory of this owner and GPU is not mapped any more, whatever allocation: it was refused, and
 * will be. NULL: it may be tried. */
GRAIL_API const char *grail_ipc_blocked(const grail_gpu_t *gpu, uint64_t owner,
                                        const CUuuid *remote);

/* The owner freed it, or is gone (base 0: all of that owner). In use: closed at release. */
GRAIL_API void grail_ipc_forget(uint64_t owner, uint64_t base, uint64_t buffer_id);

GRAIL_API void grail_ipc_fini(void);

/* ---- proof that a pair of GPUs really moves data ---- */

/* A small exported allocation with a known pattern, made at the first offer to any peer. */
GRAIL_API grail_status_t grail_p2p_probe_key(grail_gpu_t *gpu, grail_ipc_key_t *key);

typedef enum grail_p2p_state { GRAIL_P2P_UNKNOWN, GRAIL_P2P_GOOD, GRAIL_P2P_BAD } grail_p2p_state_t;

/* Known result for memory on GPU `remote` used by `gpu` */
GRAIL_API grail_p2p_state_t grail_p2p_state(grail_gpu_t *gpu, const CUuuid *remote,
                                            const char **why);
/*
 * Maps `probe` of the owner, copies it to this GPU and to the host, and compares the pattern. What
 * the data shows is kept per pair of GPUs; BAD sets `why` (e.g. "PCIe ACS or an IOMMU damages peer
 * traffic: disable ACS on the switches or set GRAIL_IPC=off"). A refusal to map says something about
 * this owner only: BAD when it is lasting (grail_ipc_blocked()), else UNKNOWN, with `why`.
 */
GRAIL_API grail_p2p_state_t grail_p2p_prove(grail_gpu_t *gpu, const grail_ipc_key_t *probe,
                                            const char **why);

#endif
