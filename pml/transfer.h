/* SPDX-License-Identifier: BSD-3-Clause */
/* A device message under way, on either side. */
#ifndef GRAIL_PML_TRANSFER_H
#define GRAIL_PML_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "cuda-aware/copy.h"
#include "cuda-aware/ipc.h"
#include "cuda-aware/layout.h"
#include "cuda-aware/staging.h"
#include "pml/device_wire.h"
#include "pml/request.h"
#include "runtime/stats.h"

typedef struct grail_device_transfer grail_transfer_t;

TAILQ_HEAD(grail_late_list, grail_device_transfer);

/*
 * What this process knows about a peer's view of its GPUs (bits are CUDA ordinals below 64), and of
 * the peer's memory here. The peer may receive on several GPUs, some of which can map and some not.
 */
typedef struct grail_device_peer {
    TAILQ_ENTRY(grail_device_peer) link;
    grail_peer_t *peer;
    uint64_t proved;            /* a GPU of the peer has proved that it can read this GPU */
    uint64_t no_map;            /* a GPU of the peer cannot map this GPU's memory */
    bool no_shm;                /* its shared segment cannot be used here */
    uint64_t owner;             /* of its device memory, 0: none was offered */
    bool shm_seen;              /* `shm` names its shared segment */
    grail_slots_ticket_t shm;
    unsigned probe_count;       /* one for each of its GPUs that has offered */
    grail_ipc_key_t *probes;
} grail_device_peer_t;

/* One piece of a pipeline. */
typedef enum grail_piece_state {
    GRAIL_PIECE_COPYING,        /* a device copy is queued */
    GRAIL_PIECE_QUEUED,         /* receiver: waits for staging memory or its turn */
    GRAIL_PIECE_MOVING,         /* the net sends or fetches it */
    GRAIL_PIECE_AWAITING        /* sender: the peer reads the slot */
} grail_piece_state_t;

typedef struct grail_piece {
    TAILQ_ENTRY(grail_piece) link;
    grail_transfer_t *transfer;
    grail_piece_state_t state;
    size_t offset;
    size_t length;
    grail_copy_t copy;
    void *address;              /* slot, view of a slot, or staging chunk */
    void *staging;              /* private pinned chunk to give back, or NULL */
    uint32_t slot;
    bool in_view;               /* receiver: `slot` belongs to the sender and must be freed there */
    void *token;                /* receiver: payload held by the net */
    grail_wire_piece_t header;  /* sender: of the message in flight */
} grail_piece_t;

/* A small offer whose receive may be late (path_late.c). */
typedef enum grail_late {
    GRAIL_LATE_NONE,            /* answered, or never to be replaced */
    GRAIL_LATE_WAITING,
    GRAIL_LATE_COPYING,         /* to `bounce`, by `copy` */
    GRAIL_LATE_SENT             /* the receiver will say what became of it */
} grail_late_t;

struct grail_device_transfer {
    TAILQ_ENTRY(grail_device_transfer) link;
    TAILQ_ENTRY(grail_device_transfer) active_link;
    bool active;
    /* Advances local work (copies, pieces that wait for memory); returns events. May end the
     * transfer. */
    unsigned (*step)(grail_transfer_t *transfer);
    grail_handle_t handle;      /* ours, known to the peer */
    grail_handle_t remote;      /* the peer's transfer, 0 until known */
    grail_req_t *req;           /* NULL once the MPI request has been completed */
    grail_peer_t *peer;
    bool sending;
    bool helper;                /* of a host sender whose net rendezvous completes the request */

    /* this side's buffer */
    bool on_device;
    grail_mem_t mem;            /* device side only */
    uint64_t buffer_id;         /* device side: what CUDA knows the first byte's memory by */
    grail_gpu_t *gpu;
    grail_layout_t *layout;     /* device side, not contiguous: retained */
    bool contiguous;            /* of either kind of memory */
    char *data;                 /* contiguous: first byte; layout: element buffer */
    size_t count;
    size_t length;              /* packed bytes of the message */

    /* pipeline */
    grail_path_t path;
    uint32_t epoch;
    size_t piece_size;
    size_t next;                /* sender: next offset to start */
    size_t done;                /* bytes finished */
    unsigned in_flight;
    TAILQ_HEAD(grail_piece_list, grail_piece) pieces;
    grail_slots_t *slots;       /* sender */
    bool ticket_sent;
    grail_slots_view_t *view;   /* receiver */

    /* pull */
    grail_ipc_map_t *map;
    grail_layout_t *remote_layout;
    grail_copy_t copy;

    /* late eager */
    TAILQ_ENTRY(grail_device_transfer) late_link;
    grail_late_t late;
    uint32_t late_calls;        /* of progress, when the wait began */
    uint64_t late_wait;         /* ns */
    uint64_t late_due;          /* ns, CLOCK_MONOTONIC */

    void *held;                 /* receiver from a host sender: its rendezvous, dropped at the end */
    void *bounce;               /* eager: pinned chunk */
    char *rest;                 /* eager data that found no staging memory yet, from rest_offset on */
    size_t rest_offset;
    bool copying;               /* `copy` (not a late one) was started and not seen to end */
    bool moving;                /* the net sends `bounce`, or fetches into `rest` */
    bool aborted;               /* waits only for its pieces, its copy and the net */
    grail_status_t status;      /* aborted: of a request that is not complete yet */
    bool tell_abort;            /* receiver: say ABORT when nothing here reads a slot any more */
};

/* ---- life ---- */

/* For `req` (its device field is set). NULL: out of memory (logged). */
grail_transfer_t *grail_transfer_new(grail_req_t *req, grail_peer_t *peer);
grail_transfer_t *grail_transfer_find(grail_handle_t handle);
/* Releases everything it still holds and frees it. */
void grail_transfer_free(grail_transfer_t *transfer);
/* Put into / take out of the list that grail_device_progress() steps through. */
void grail_transfer_activate(grail_transfer_t *transfer);
void grail_transfer_deactivate(grail_transfer_t *transfer);

/* Fills on_device, mem, gpu, layout, data, count from the request's buffer. STALE (logged): a
 * receive was posted earlier, and its buffer has been freed since. */
grail_status_t grail_transfer_bind(grail_transfer_t *transfer);

/* Before work is queued on this side's buffer some time after bind: GRAIL_ERR_STALE (logged) when the
 * program has freed it meanwhile. */
grail_status_t grail_transfer_check_buffer(const grail_transfer_t *transfer);

/*
 * Completes the MPI request (once) and frees the transfer. While the peer, the GPU or the net still
 * uses its memory it stays as a ghost; a receive completes only when nothing writes to its buffer any
 * more. A no-op on a ghost.
 */
void grail_transfer_finish(grail_transfer_t *transfer, grail_status_t status);
/*
 * Local failure: tell the peer, complete the request with `status`. A sender tells at once; a
 * receiver when its last copy out of a slot has ended, so that ABORT means "your slots are free".
 */
void grail_transfer_abort(grail_transfer_t *transfer, grail_status_t status);

grail_device_peer_t *grail_device_peer(grail_peer_t *peer);

/* Its probe for memory on `gpu`, NULL: none has come. Keeping fails quietly: another will come. */
const grail_ipc_key_t *grail_device_peer_probe(const grail_device_peer_t *peer, const CUuuid *gpu);
void grail_device_peer_keep_probe(grail_device_peer_t *peer, const grail_ipc_key_t *probe);

/* The peer has stopped reading: pieces that waited for its answer are free. */
void grail_transfer_pieces_return(grail_transfer_t *transfer);

/* Tell every peer that may have mapped it that this allocation is gone. */
void grail_device_forget(uint64_t base, uint64_t buffer_id);

/* ---- pieces ---- */

grail_piece_t *grail_piece_new(grail_transfer_t *transfer, size_t offset, size_t length);
/* Chunks that hold pieces to send. They wait for chunks of the receiver: were all of two processes'
 * chunks such, both would wait for ever, so half of them is left to receive into. */
extern size_t grail_sender_chunks;
void grail_piece_free(grail_piece_t *piece);    /* gives back slot (own) and staging chunk */

/* Pack a part of this side's strided device buffer: by a kernel, or at once where there is none.
 * BUSY: again after progress. */
grail_status_t grail_transfer_pack(grail_transfer_t *transfer, grail_lane_t lane, size_t offset,
                                   size_t length, void *packed, grail_copy_t *op);

/* Start the device copy of a piece between this side's buffer and piece->address. BUSY: again after
 * progress; STALE: the buffer was freed (logged). */
grail_status_t grail_piece_copy_out(grail_piece_t *piece);  /* buffer -> address */
grail_status_t grail_piece_copy_in(grail_piece_t *piece);   /* address -> buffer */

/* ---- messages ---- */

/* Header-only message; copies `header`. A broken connection fails the peer. */
void grail_control_send(grail_peer_t *peer, const void *header, size_t length);
void grail_control_send_as(grail_peer_t *peer, unsigned id, const void *header, size_t length);
void grail_control_go(grail_transfer_t *transfer, uint32_t op, grail_handle_t to, uint32_t flags,
                      grail_status_t status);

/* ---- the protocols' entry points ---- */

/* path_pull.c: the receiver maps the sender's memory and copies. IN_PROGRESS when started;
 * UNSUPPORTED: take another path (the reason is counted). */
grail_status_t grail_pull_start(grail_transfer_t *transfer, const grail_offer_t *offer,
                                const grail_ipc_key_t *key, const void *layout_code);

/* path_send.c: the sender's side of the pipelines */
void grail_pipeline_send(grail_transfer_t *transfer, grail_path_t path);
void grail_pipeline_freed(grail_transfer_t *transfer, const grail_wire_piece_t *free_msg);
void grail_pipeline_redo(grail_transfer_t *transfer, grail_path_t path);

/* path_recv.c: the receiver's side */
void grail_pipeline_recv(grail_transfer_t *transfer);   /* ready for pieces */
void grail_pipeline_ready(grail_transfer_t *transfer, const grail_wire_piece_t *ready,
                          const grail_slots_ticket_t *ticket);
grail_net_verdict_t grail_pipeline_chunk(grail_transfer_t *transfer,
                                         const grail_wire_piece_t *header,
                                         grail_net_message_t *message);
/* The whole message is at hand in host memory (`data`), or as a rendezvous small enough for one
 * staging chunk (`token`): bring it into the device buffer. */
void grail_feed_data(grail_transfer_t *transfer, const void *data);
void grail_feed_token(grail_transfer_t *transfer, void *token);
/* The same for a longer rendezvous whose sender cannot be asked for a pipeline: through a buffer of
 * its length in ordinary memory. */
void grail_feed_whole(grail_transfer_t *transfer, void *token);

/* path_late.c: an offer was sent; it was answered or ends; an answer to its replacement. */
void grail_late_arm(grail_transfer_t *transfer);
void grail_late_disarm(grail_transfer_t *transfer);
void grail_late_answer(grail_transfer_t *transfer, uint32_t op);
unsigned grail_late_progress(void);

/* path_eager.c */
grail_status_t grail_eager_send(grail_transfer_t *transfer);

#endif
