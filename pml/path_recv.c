/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiver's side of the pipelines, and host data that goes into a device buffer. */
#include "pml/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "pml/choice.h"
#include "pml/pml_grail.h"
#include "runtime/log.h"
#include "runtime/options.h"

static void piece_finish(grail_piece_t *piece);

static bool end_if_complete(grail_transfer_t *t)
{
    if (t->done < t->length)
        return false;
    grail_transfer_finish(t, GRAIL_OK);
    return true;
}

/* ---- host buffers: the CPU moves the bytes, in packed order ---- */

/* A strided host buffer is unpacked in packed order; a contiguous one takes pieces as they come. */
static bool host_turn(const grail_transfer_t *t, const grail_piece_t *piece)
{
    return t->contiguous || piece->offset == t->done;
}

static grail_status_t host_unpack(grail_transfer_t *t, size_t offset, const void *bytes,
                                  size_t length)
{
    if (!t->contiguous)
        return grail_req_unpack(t->req, offset, bytes, length);
    memcpy(t->data + offset, bytes, length);
    return GRAIL_OK;
}

/* ---- pieces ---- */

static void answer_free(grail_piece_t *piece)
{
    grail_transfer_t *t = piece->transfer;
    grail_wire_piece_t answer = {
        .head = { .op = GRAIL_CONTROL_FREE, .to = t->remote, .from = t->handle },
        .offset = piece->offset,
        .length = piece->length,
        .slot = piece->slot,
        .epoch = t->epoch
    };
    grail_control_send(t->peer, &answer, sizeof(answer));
}

/* The piece is in the receive buffer. */
static void piece_finish(grail_piece_t *piece)
{
    grail_transfer_t *t = piece->transfer;
    grail_handle_t handle = t->handle;

    piece->state = GRAIL_PIECE_QUEUED;
    if (piece->in_view) {
        answer_free(piece);
        if (grail_transfer_find(handle) != t || t->aborted)
            return;                                 /* the connection broke */
    }
    t->done += piece->length;
    grail_piece_free(piece);
    (void)end_if_complete(t);
}

static void fetch_done(void *arg, grail_status_t status, size_t length)
{
    grail_piece_t *piece = arg;
    grail_transfer_t *t = piece->transfer;

    (void)length;
    piece->state = GRAIL_PIECE_QUEUED;
    if (t->aborted) {
        grail_piece_free(piece);
        return;
    }
    if (status == GRAIL_OK && t->on_device) {
        status = grail_piece_copy_in(piece);
        if (status == GRAIL_OK)
            return;
        piece->state = GRAIL_PIECE_QUEUED;
        if (status == GRAIL_ERR_BUSY)
            return;                                 /* the next step tries again */
    } else if (status == GRAIL_OK) {
        if (piece->staging != NULL)
            status = host_unpack(t, piece->offset, piece->address, piece->length);
        if (status == GRAIL_OK) {
            piece_finish(piece);
            return;
        }
    }
    grail_transfer_abort(t, status);
}

/* A payload that the net holds: fetch it where it is wanted. BUSY: no staging memory now. */
static grail_status_t fetch(grail_piece_t *piece)
{
    grail_transfer_t *t = piece->transfer;
    grail_net_buffer_t buffer = { .length = piece->length };
    void *token = piece->token;
    grail_status_t status;

    if (t->on_device || !t->contiguous) {
        status = grail_staging_get(&piece->staging);
        if (status != GRAIL_OK)
            return status;
        piece->address = piece->staging;
    } else {
        piece->address = t->data + piece->offset;
    }
    buffer.address = piece->address;
    piece->token = NULL;
    piece->state = GRAIL_PIECE_MOVING;
    status = grail_net_fetch(grail_pml.net, token, &buffer, fetch_done, piece);
    if (status != GRAIL_IN_PROGRESS)
        fetch_done(piece, status, piece->length);
    return GRAIL_OK;
}

/* Moves a queued piece on. BUSY: not now. Errors end the transfer. */
static grail_status_t advance(grail_piece_t *piece)
{
    grail_transfer_t *t = piece->transfer;
    grail_status_t status;

    if (!t->on_device && !host_turn(t, piece))
        return GRAIL_ERR_BUSY;
    if (piece->token != NULL)
        return fetch(piece);
    if (t->on_device) {
        status = grail_piece_copy_in(piece);
        if (status == GRAIL_OK)
            return GRAIL_OK;
        piece->state = GRAIL_PIECE_QUEUED;
        if (status == GRAIL_ERR_BUSY)
            return status;
    } else {
        status = host_unpack(t, piece->offset, piece->address, piece->length);
        if (status == GRAIL_OK) {
            piece_finish(piece);
            return GRAIL_OK;
        }
    }
    grail_transfer_abort(t, status);
    return status;
}

static unsigned step_recv(grail_transfer_t *t)
{
    grail_handle_t handle = t->handle;
    grail_piece_t *piece, *next;
    unsigned events = 0;

    for (piece = TAILQ_FIRST(&t->pieces); piece != NULL; piece = next) {
        grail_status_t status;

        next = TAILQ_NEXT(piece, link);
        if (piece->state == GRAIL_PIECE_QUEUED) {
            status = advance(piece);
            if (status != GRAIL_ERR_BUSY)
                events++;
        } else if (piece->state == GRAIL_PIECE_COPYING) {
            status = grail_copy_test(&piece->copy);
            if (status == GRAIL_IN_PROGRESS)
                continue;
            events++;
            if (status == GRAIL_OK) {
                piece_finish(piece);
            } else {
                piece->state = GRAIL_PIECE_QUEUED;
                grail_transfer_abort(t, status);
            }
        }
        if (grail_transfer_find(handle) != t || t->aborted)
            return events;
    }
    if (TAILQ_EMPTY(&t->pieces))
        grail_transfer_deactivate(t);               /* the next piece will wake it */
    return events;
}

/* ---- what arrives ---- */

void grail_pipeline_recv(grail_transfer_t *t)
{
    t->step = step_recv;
}

static void refuse_slots(grail_transfer_t *t, const char *why, grail_status_t status)
{
    if (status == GRAIL_ERR_UNSUPPORTED) {
        grail_device_peer_t *peer = grail_device_peer(t->peer);

        if (peer != NULL && t->path == GRAIL_PATH_HOST_SHM)
            peer->no_shm = true;                    /* later messages need not try */
        grail_stats_fallback(t->path, why, 1);
    }
    t->path = t->path == GRAIL_PATH_RING ? GRAIL_PATH_HOST_SHM : GRAIL_PATH_HOST_NET;
    t->epoch++;
    grail_control_go(t, GRAIL_CONTROL_REDO, t->remote, 0, GRAIL_OK);
}

void grail_pipeline_ready(grail_transfer_t *t, const grail_wire_piece_t *ready,
                          const grail_slots_ticket_t *ticket)
{
    grail_piece_t *piece;

    if (t->aborted || ready->epoch != t->epoch)
        return;
    t->remote = ready->head.from;
    if (t->view == NULL) {
        const char *why = "";
        grail_status_t status = GRAIL_ERR_INVALID;

        if (ticket != NULL) {
            t->path = ticket->where == GRAIL_SLOTS_RING ? GRAIL_PATH_RING : GRAIL_PATH_HOST_SHM;
            status = grail_slots_attach(ticket, t->gpu, &t->view, &why);
        }
        if (status != GRAIL_OK) {
            refuse_slots(t, why, status);
            return;
        }
        if (ticket->where == GRAIL_SLOTS_SHM && grail_device_peer(t->peer) != NULL) {
            t->peer->device->shm = *ticket;
            t->peer->device->shm_seen = true;
        }
    }
    if (ready->length > t->length || ready->offset > t->length - ready->length) {
        grail_transfer_abort(t, GRAIL_ERR_CORRUPT);
        return;
    }
    piece = grail_piece_new(t, ready->offset, ready->length);
    if (piece == NULL) {
        grail_transfer_abort(t, GRAIL_ERR_NO_MEMORY);
        return;
    }
    piece->state = GRAIL_PIECE_QUEUED;
    piece->in_view = true;
    piece->slot = ready->slot;
    piece->address = (void *)(uintptr_t)grail_slots_at(t->view, ready->slot);
    grail_transfer_activate(t);
    (void)step_recv(t);
}

grail_net_verdict_t grail_pipeline_chunk(grail_transfer_t *t, const grail_wire_piece_t *header,
                                         grail_net_message_t *message)
{
    grail_piece_t *piece;

    if (t->aborted || header->epoch != t->epoch)
        return GRAIL_NET_DONE;
    if (!message->rndv || header->length > t->length ||
        header->offset > t->length - header->length) {
        grail_transfer_abort(t, GRAIL_ERR_CORRUPT);
        return GRAIL_NET_DONE;
    }
    t->remote = header->head.from;
    t->path = GRAIL_PATH_HOST_NET;
    piece = grail_piece_new(t, header->offset, header->length);
    if (piece == NULL) {
        grail_transfer_abort(t, GRAIL_ERR_NO_MEMORY);
        return GRAIL_NET_DONE;
    }
    piece->state = GRAIL_PIECE_QUEUED;
    piece->token = message->token;
    grail_transfer_activate(t);
    (void)step_recv(t);
    return GRAIL_NET_KEEP;
}

/* ---- host data for a device buffer, all at hand ---- */

static unsigned step_feed(grail_transfer_t *t);

/* Bring pieces of `data` (the message from offset `base` on) into staging chunks and start their
 * copies. BUSY: some are left. */
static grail_status_t feed_pieces(grail_transfer_t *t, const char *data, size_t base)
{
    while (t->next < t->length) {
        size_t length = t->length - t->next < grail_options.chunk ? t->length - t->next
                                                                  : grail_options.chunk;
        grail_piece_t *piece = grail_piece_new(t, t->next, length);
        grail_status_t status = piece != NULL ? GRAIL_OK : GRAIL_ERR_NO_MEMORY;

        if (piece == NULL)
            return status;
        piece->state = GRAIL_PIECE_QUEUED;
        status = grail_staging_get(&piece->staging);
        if (status == GRAIL_OK) {
            piece->address = piece->staging;
            memcpy(piece->address, data + (t->next - base), length);
            status = grail_piece_copy_in(piece);
        }
        if (status != GRAIL_OK) {
            piece->state = GRAIL_PIECE_QUEUED;
            grail_piece_free(piece);
            return status;
        }
        t->next += length;
    }
    return GRAIL_OK;
}

static unsigned step_feed(grail_transfer_t *t)
{
    grail_handle_t handle = t->handle;
    unsigned events = step_recv(t);
    grail_status_t status;

    if (grail_transfer_find(handle) != t || t->aborted || t->rest == NULL)
        return events;
    grail_transfer_activate(t);
    status = feed_pieces(t, t->rest, t->rest_offset);
    if (status == GRAIL_OK) {
        free(t->rest);
        t->rest = NULL;
    } else if (status != GRAIL_ERR_BUSY) {
        grail_transfer_abort(t, status);
    }
    return events;
}

void grail_feed_data(grail_transfer_t *t, const void *data)
{
    grail_status_t status = feed_pieces(t, data, 0);

    t->step = step_feed;
    grail_transfer_activate(t);
    if (status == GRAIL_OK)
        return;
    if (status == GRAIL_ERR_BUSY) {
        t->rest = malloc(t->length - t->next);
        t->rest_offset = t->next;
        if (t->rest != NULL) {
            memcpy(t->rest, (const char *)data + t->next, t->length - t->next);
            return;
        }
        status = GRAIL_ERR_NO_MEMORY;
        grail_error("out of host memory for an early message of %zu bytes from %s", t->length,
                    grail_peer_string(t->peer));
    }
    grail_transfer_abort(t, status);
}

static void whole_done(void *arg, grail_status_t status, size_t length)
{
    grail_transfer_t *t = arg;

    (void)length;
    t->moving = false;
    if (t->aborted)
        return;                                     /* the next step frees it */
    if (status != GRAIL_OK) {
        grail_transfer_abort(t, status);
        return;
    }
    t->step = step_feed;
    grail_transfer_activate(t);
}

void grail_feed_whole(grail_transfer_t *t, void *token)
{
    grail_net_buffer_t buffer = { .address = malloc(t->length), .length = t->length };
    grail_status_t status;

    if (buffer.address == NULL) {
        grail_error("out of host memory for a message of %zu bytes from %s", t->length,
                    grail_peer_string(t->peer));
        grail_net_drop(grail_pml.net, token);
        grail_transfer_abort(t, GRAIL_ERR_NO_MEMORY);
        return;
    }
    t->rest = buffer.address;
    t->rest_offset = 0;
    t->moving = true;
    status = grail_net_fetch(grail_pml.net, token, &buffer, whole_done, t);
    if (status != GRAIL_IN_PROGRESS)
        whole_done(t, status, t->length);
}

void grail_feed_token(grail_transfer_t *t, void *token)
{
    grail_piece_t *piece = grail_piece_new(t, 0, t->length);

    if (piece == NULL) {
        grail_net_drop(grail_pml.net, token);
        grail_transfer_abort(t, GRAIL_ERR_NO_MEMORY);
        return;
    }
    piece->state = GRAIL_PIECE_QUEUED;
    piece->token = token;
    t->step = step_recv;
    grail_transfer_activate(t);
    (void)step_recv(t);
}
