/* SPDX-License-Identifier: BSD-3-Clause */
/* Bounded pools of bounce memory: pinned host, pinned shared segments, exported device rings. */
#ifndef GRAIL_CUDA_AWARE_STAGING_H
#define GRAIL_CUDA_AWARE_STAGING_H

#include <stddef.h>
#include <stdint.h>

#include "cuda-aware/gpu.h"
#include "cuda-aware/ipc.h"
#include "runtime/shm.h"

/* ---- private pinned chunks (option `chunk` bytes each, at most `staging_max` in all) ---- */

/* GRAIL_ERR_BUSY: all in use; some will be returned by progress. Portable across contexts. */
GRAIL_API grail_status_t grail_staging_get(void **chunk);
/*
 * The same for a piece that is held until the peer has fetched it. It leaves one chunk to others,
 * however few there are: if sends of both sides held all, no receive could fetch anything.
 */
GRAIL_API grail_status_t grail_staging_get_to_send(void **chunk);
GRAIL_API void grail_staging_put(void *chunk);
/* How many there can be at once. */
GRAIL_API size_t grail_staging_chunks(void);
/* A chunk that may never come back: it counts no more, so that another can take its place. */
GRAIL_API void grail_staging_write_off(void);

/* ---- a set of equal slots that this process owns and peers read ---- */

typedef enum grail_slots_where { GRAIL_SLOTS_SHM, GRAIL_SLOTS_RING } grail_slots_where_t;

/*
 * SHM: a sealed shared segment (runtime/shm.h) of `chunks` slots of `chunk` bytes, pinned into CUDA
 * in the owner (and by each attacher), one per process and shared by all its transfers.
 * RING: device memory of `ring_chunks` slots of `ring_chunk` bytes in one cuMemAlloc allocation,
 * one per GPU context, exportable by IPC.
 */
typedef struct grail_slots grail_slots_t;

/* Created on first use. `gpu` is ignored for SHM. NO_DEVICE_MEMORY/NO_MEMORY/UNSUPPORTED are
 * logged once as info: callers take another path. */
GRAIL_API grail_status_t grail_slots_open(grail_slots_where_t where, grail_gpu_t *gpu,
                                          grail_slots_t **slots);
GRAIL_API size_t grail_slots_size(const grail_slots_t *slots);      /* bytes of one slot */
/* GRAIL_ERR_BUSY when all are in use. */
GRAIL_API grail_status_t grail_slots_get(grail_slots_t *slots, uint32_t *index, void **address);
GRAIL_API void grail_slots_put(grail_slots_t *slots, uint32_t index);

/* What a peer needs to see the slots. */
typedef struct grail_slots_ticket {
    uint32_t where;
    uint32_t count;
    uint64_t slot_size;
    union {
        grail_shm_ticket_t shm;
        grail_ipc_key_t ring;
    } u;
} grail_slots_ticket_t;

GRAIL_API grail_status_t grail_slots_ticket(grail_slots_t *slots, grail_slots_ticket_t *ticket);

/*
 * The peer's view; cached by ticket. With `gpu` the SHM segment is pinned into CUDA, so that copies
 * run at full speed; NULL (SHM only): for CPU copies. `why` as for shm. Addresses are valid until
 * detach; a view that nobody uses stays cached (some dozens, those of dead processes go first) until
 * grail_slots_close_peer().
 */
typedef struct grail_slots_view grail_slots_view_t;
GRAIL_API grail_status_t grail_slots_attach(const grail_slots_ticket_t *ticket, grail_gpu_t *gpu,
                                            grail_slots_view_t **view, const char **why);
GRAIL_API const void *grail_slots_at(const grail_slots_view_t *view, uint32_t index);
GRAIL_API void grail_slots_detach(grail_slots_view_t *view);
/* The peer is gone or goes away: close the view of its slots, now or at the last detach. */
GRAIL_API void grail_slots_close_peer(const grail_slots_ticket_t *ticket);
/* The same for all rings of the owner of device memory (grail_ipc_key_t). */
GRAIL_API void grail_slots_close_rings(uint64_t owner);

/* What is held now: pinned host memory (own and peers' segments) and device memory, in bytes. */
GRAIL_API void grail_staging_bytes(size_t *pinned, size_t *device);

GRAIL_API void grail_staging_fini(void);

#endif
