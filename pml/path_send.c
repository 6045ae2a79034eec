/* SPDX-License-Identifier: BSD-3-Clause */
/* Sender's side of the pipelines: pieces through a device ring, a shared segment, or the net. */
#include "pml/transfer.h"

#include <string.h>

#include "pml/choice.h"
#include "pml/pml_grail.h"
#include "runtime/log.h"
#include "runtime/options.h"

static unsigned step_send(grail_transfer_t *transfer);

static bool all_started(const grail_transfer_t *t)
{
    return t->next >= t->length;
}

/* Everything was read by the peer: the send is over. */
static bool end_if_complete(grail_transfer_t *t)
{
    if (t->done < t->length)
        return false;
    grail_transfer_finish(t, GRAIL_OK);
    return true;
}

/* ---- a piece that is filled ---- */

static void announce_slot(grail_piece_t *piece)
{
    grail_transfer_t *t = piece->transfer;
    struct {
        grail_wire_piece_t piece;
        grail_slots_ticket_t ticket;
    } message = { .piece = piece->header };
    size_t length = sizeof(message.piece);

    message.piece.head.op = GRAIL_CONTROL_READY;
    if (!t->ticket_sent && grail_slots_ticket(t->slots, &message.ticket) == GRAIL_OK) {
        message.piece.has_ticket = 1;
        t->ticket_sent = true;
        length = sizeof(message);
    }
    piece->state = GRAIL_PIECE_AWAITING;
    grail_control_send(t->peer, &message, length);
}

static void chunk_done(void *arg, grail_status_t status, size_t length)
{
    grail_piece_t *piece = arg;
    grail_transfer_t *t = piece->transfer;

    (void)length;
    if (status == GRAIL_OK)
        t->done += piece->length;
    grail_piece_free(piece);
    if (status != GRAIL_OK)
        grail_peer_fail(t->peer, status, "a piece of a device message could not be delivered");
    else if (!t->aborted && !end_if_complete(t) && !all_started(t))
        grail_transfer_activate(t);
}

static void send_chunk(grail_piece_t *piece)
{
    grail_transfer_t *t = piece->transfer;
    grail_net_buffer_t buffer = { .address = piece->address, .length = piece->length };
    grail_net_endpoint_t *endpoint;
    grail_status_t status;

    piece->header.head.op = GRAIL_CONTROL_CHUNK;
    piece->state = GRAIL_PIECE_QUEUED;
    if (grail_peer_endpoint(t->peer, &endpoint) != GRAIL_OK)
        return;                                     /* the peer has failed: everything ends there */
    piece->state = GRAIL_PIECE_MOVING;
    status = grail_net_send(grail_pml.net, endpoint, GRAIL_MSG_CHUNK, &piece->header,
                            sizeof(piece->header), &buffer, GRAIL_NET_SEND_RNDV, chunk_done, piece);
    if (status != GRAIL_IN_PROGRESS)
        chunk_done(piece, status, piece->length);
}

static void piece_filled(grail_piece_t *piece)
{
    grail_transfer_t *t = piece->transfer;

    piece->header = (grail_wire_piece_t){
        .head = { .to = t->remote, .from = t->handle },
        .offset = piece->offset,
        .length = piece->length,
        .slot = piece->slot,
        .epoch = t->epoch
    };
    if (t->path == GRAIL_PATH_HOST_NET)
        send_chunk(piece);
    else
        announce_slot(piece);
}

/* ---- filling ---- */

/* GRAIL_ERR_BUSY: no memory to fill now. */
static grail_status_t get_place(grail_transfer_t *t, grail_piece_t *piece)
{
    grail_status_t status;

    if (t->path != GRAIL_PATH_HOST_NET)
        return grail_slots_get(t->slots, &piece->slot, &piece->address);
    if (!t->on_device && t->contiguous) {      /* the net can read it where it is */
        piece->address = t->data + piece->offset;
        return GRAIL_OK;
    }
    if (grail_sender_chunks > 0 && grail_sender_chunks >= grail_staging_chunks() / 2)
        return GRAIL_ERR_BUSY;
    status = grail_staging_get_to_send(&piece->staging);
    if (status == GRAIL_OK) {
        piece->address = piece->staging;
        grail_sender_chunks++;
    }
    return status;
}

static grail_status_t fill(grail_transfer_t *t, grail_piece_t *piece)
{
    if (t->on_device)
        return grail_piece_copy_out(piece);
    piece->state = GRAIL_PIECE_QUEUED;
    if (piece->address == t->data + piece->offset)
        return GRAIL_OK;
    if (t->contiguous)
        memcpy(piece->address, t->data + piece->offset, piece->length);
    else
        return grail_req_pack(t->req, piece->offset, piece->address, piece->length);
    return GRAIL_OK;
}

/* Starts one more piece. */
static grail_status_t start_piece(grail_transfer_t *t)
{
    size_t length = t->length - t->next < t->piece_size ? t->length - t->next : t->piece_size;
    grail_piece_t *piece;
    grail_status_t status;

    if (t->req == NULL)             /* a restart after the host sender's request has ended */
        return GRAIL_ERR_STALE;
    piece = grail_piece_new(t, t->next, length);
    if (piece == NULL)
        return GRAIL_ERR_NO_MEMORY;
    piece->state = GRAIL_PIECE_QUEUED;
    status = get_place(t, piece);
    if (status == GRAIL_OK)
        status = fill(t, piece);
    if (status != GRAIL_OK) {
        piece->state = GRAIL_PIECE_QUEUED;
        grail_piece_free(piece);
        return status;
    }
    t->next += length;
    if (!t->on_device)
        piece_filled(piece);
    return GRAIL_OK;
}

static unsigned most_in_flight(const grail_transfer_t *t)
{
    return t->path == GRAIL_PATH_RING ? (unsigned)grail_options.ring_chunks
                                      : (unsigned)grail_options.chunks;
}

/* Fill what there is room for. Returns pieces started; may end the transfer. */
static unsigned pump(grail_transfer_t *t, bool *ended)
{
    unsigned events = 0;
    grail_handle_t handle = t->handle;

    *ended = false;
    while (!all_started(t) && t->in_flight < most_in_flight(t)) {
        grail_status_t status = start_piece(t);
        if (status == GRAIL_ERR_BUSY)
            break;
        if (status != GRAIL_OK) {
            grail_transfer_abort(t, status);
            *ended = true;
            return events + 1;
        }
        events++;
        /* a chunk completed at once and ended it, or the connection broke */
        if (grail_transfer_find(handle) != t || t->aborted) {
            *ended = true;
            return events;
        }
    }
    return events;
}

static unsigned step_send(grail_transfer_t *t)
{
    grail_handle_t handle = t->handle;
    grail_piece_t *piece, *next;
    unsigned events = 0;
    bool ended;

    for (piece = TAILQ_FIRST(&t->pieces); piece != NULL; piece = next) {
        grail_status_t status;

        next = TAILQ_NEXT(piece, link);
        if (piece->state != GRAIL_PIECE_COPYING)
            continue;
        status = grail_copy_test(&piece->copy);
        if (status == GRAIL_IN_PROGRESS)
            continue;
        events++;
        if (status != GRAIL_OK) {
            piece->state = GRAIL_PIECE_QUEUED;
            grail_transfer_abort(t, status);
            return events;
        }
        piece_filled(piece);
        /* completed at once, or the connection broke */
        if (grail_transfer_find(handle) != t || t->aborted)
            return events;
    }
    events += pump(t, &ended);
    if (ended)
        return events;
    TAILQ_FOREACH(piece, &t->pieces, link) {
        if (piece->state == GRAIL_PIECE_COPYING)
            return events;
    }
    if (all_started(t) || t->in_flight >= most_in_flight(t))
        grail_transfer_deactivate(t);               /* answers will wake it */
    return events;
}

/* ---- entry points ---- */

static grail_status_t open_slots(grail_transfer_t *t)
{
    grail_slots_where_t where =
        t->path == GRAIL_PATH_RING ? GRAIL_SLOTS_RING : GRAIL_SLOTS_SHM;

    if (t->path == GRAIL_PATH_RING && !t->on_device)
        return GRAIL_ERR_UNSUPPORTED;
    return grail_slots_open(where, t->gpu, &t->slots);
}

void grail_pipeline_send(grail_transfer_t *t, grail_path_t path)
{
    static const char *const ring_why =
        "no device memory for the staging ring: free GPU memory or lower GRAIL_RING_CHUNK";
    static const char *const shm_why =
        "no pinned shared segment: raise the memlock limit (ulimit -l) or lower GRAIL_CHUNK";
    size_t slot = grail_options.chunk;
    bool ended;

    t->slots = NULL;
    t->ticket_sent = false;
    t->next = t->done = 0;
    for (t->path = path; t->path < GRAIL_PATH_HOST_NET; t->path++) {
        if (t->path == GRAIL_PATH_RING && (!grail_options.ring || !grail_options.ipc))
            continue;
        if (t->path == GRAIL_PATH_HOST_SHM &&
            (!grail_options.shm || t->peer->where == GRAIL_PEER_REMOTE))
            continue;
        if (open_slots(t) == GRAIL_OK) {
            slot = grail_slots_size(t->slots);
            break;
        }
        grail_stats_fallback(t->path, t->path == GRAIL_PATH_RING ? ring_why : shm_why, 1);
    }
    t->piece_size = grail_choice_piece(t->length, t->path, slot, &grail_options);
    t->step = step_send;
    grail_transfer_activate(t);
    (void)pump(t, &ended);
}

void grail_pipeline_freed(grail_transfer_t *t, const grail_wire_piece_t *answer)
{
    grail_piece_t *piece;

    TAILQ_FOREACH(piece, &t->pieces, link) {
        if (piece->state == GRAIL_PIECE_AWAITING && piece->slot == answer->slot &&
            piece->offset == answer->offset && piece->header.epoch == answer->epoch)
            break;
    }
    if (piece == NULL)
        return;                         /* of an epoch that was given up */
    t->done += piece->length;
    grail_piece_free(piece);
    if (t->aborted || end_if_complete(t))
        return;
    if (!all_started(t))
        grail_transfer_activate(t);
}

void grail_pipeline_redo(grail_transfer_t *t, grail_path_t path)
{
    grail_piece_t *piece;

    if (t->aborted)
        return;                         /* the peer will say when it is done with our slots */
    /* The peer could not see our slots, so nobody reads them: all announced ones are free. Copies
     * into slots that still run must end first, which the GPU does in microseconds. */
    while ((piece = TAILQ_FIRST(&t->pieces)) != NULL) {
        while (piece->state == GRAIL_PIECE_COPYING &&
               grail_copy_test(&piece->copy) == GRAIL_IN_PROGRESS)
            ;
        grail_piece_free(piece);
    }
    t->epoch++;
    grail_pipeline_send(t, path);
}
