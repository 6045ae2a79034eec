/* SPDX-License-Identifier: BSD-3-Clause */
/* Life of transfers and pieces, and the control messages between their two sides. */
#include "pml/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "cuda-aware/gdr.h"
#include "pml/device.h"
#include "pml/layout.h"
#include "pml/pml_grail.h"
#include "runtime/log.h"

unsigned grail_device_active;
size_t grail_sender_chunks;

static TAILQ_HEAD(, grail_device_transfer) all = TAILQ_HEAD_INITIALIZER(all);
static TAILQ_HEAD(, grail_device_transfer) active = TAILQ_HEAD_INITIALIZER(active);
static TAILQ_HEAD(, grail_device_peer) peers = TAILQ_HEAD_INITIALIZER(peers);
static grail_handle_table_t handles;

/* ---- life ---- */

grail_transfer_t *grail_transfer_new(grail_req_t *req, grail_peer_t *peer)
{
    grail_transfer_t *transfer = calloc(1, sizeof(*transfer));

    if (transfer == NULL || grail_handle_new(&handles, transfer, &transfer->handle) != GRAIL_OK) {
        free(transfer);
        grail_error("out of host memory for a device message with %s", grail_peer_string(peer));
        return NULL;
    }
    transfer->req = req;
    transfer->peer = peer;
    transfer->sending = req->is_send;
    transfer->length = req->bytes;
    TAILQ_INIT(&transfer->pieces);
    TAILQ_INSERT_TAIL(&all, transfer, link);
    req->device = transfer;
    return transfer;
}

grail_transfer_t *grail_transfer_find(grail_handle_t handle)
{
    return grail_handle_get(&handles, handle);
}

void grail_transfer_activate(grail_transfer_t *transfer)
{
    if (transfer->active)
        return;
    transfer->active = true;
    grail_device_active++;
    TAILQ_INSERT_TAIL(&active, transfer, active_link);
}

void grail_transfer_deactivate(grail_transfer_t *transfer)
{
    if (!transfer->active)
        return;
    transfer->active = false;
    grail_device_active--;
    TAILQ_REMOVE(&active, transfer, active_link);
}

void grail_transfer_free(grail_transfer_t *transfer)
{
    grail_piece_t *piece;

    grail_late_disarm(transfer);
    grail_transfer_deactivate(transfer);
    if (transfer->tell_abort && transfer->remote != 0)
        grail_control_go(transfer, GRAIL_CONTROL_ABORT, transfer->remote, 0, GRAIL_ERR_CUDA);
    while ((piece = TAILQ_FIRST(&transfer->pieces)) != NULL)
        grail_piece_free(piece);
    if (transfer->held != NULL)
        grail_net_drop(grail_pml.net, transfer->held);
    if (transfer->bounce != NULL)
        grail_staging_put(transfer->bounce);
    free(transfer->rest);
    if (transfer->map != NULL)
        grail_ipc_release(transfer->map);
    if (transfer->view != NULL)
        grail_slots_detach(transfer->view);
    if (transfer->layout != NULL)
        grail_layout_release(transfer->layout);
    if (transfer->remote_layout != NULL)
        grail_layout_release(transfer->remote_layout);
    if (transfer->req != NULL)
        transfer->req->device = NULL;
    grail_handle_free(&handles, transfer->handle);
    TAILQ_REMOVE(&all, transfer, link);
    free(transfer);
}

/* Work on freed memory would be an error of the GPU that ends the whole program, or worse, would
 * hit what the program has allocated there since. */
static grail_status_t check_memory(const grail_transfer_t *t, uint64_t expected, uint64_t *found)
{
    const char *what = t->sending ? "send" : "receive";

    if (grail_mem_identify(grail_req_data(t->req), found) &&
        (expected == 0 || *found == 0 || *found == expected))
        return GRAIL_OK;
    grail_error("the device buffer of a %s %s %s (tag %d, %zu bytes) was freed before the %s "
                "completed: wait for the request before freeing its buffer", what,
                t->sending ? "to" : "from", grail_peer_string(t->peer), t->req->tag, t->length,
                what);
    return GRAIL_ERR_STALE;
}

grail_status_t grail_transfer_check_buffer(const grail_transfer_t *transfer)
{
    uint64_t found;

    if (!transfer->on_device || transfer->req == NULL)
        return GRAIL_OK;
    return check_memory(transfer, transfer->buffer_id, &found);
}

grail_status_t grail_transfer_bind(grail_transfer_t *transfer)
{
    grail_req_t *req = transfer->req;
    void *first = grail_req_data(req);
    grail_status_t status;

    transfer->count = req->count;
    transfer->contiguous = req->contiguous;
    if (req->is_send) {
        grail_send_req_t *send = GRAIL_CONTAINER_OF(req, grail_send_req_t, req);
        if (send->bsend_copy != NULL) {             /* packed host memory by now */
            transfer->data = send->bsend_copy;
            transfer->contiguous = true;
            return GRAIL_OK;
        }
    }
    transfer->on_device = req->on_device;
    transfer->data = first;
    if (!transfer->on_device)
        return GRAIL_OK;
    status = check_memory(transfer, req->is_send ? 0
                          : GRAIL_CONTAINER_OF(req, grail_recv_req_t, req)->buffer_id,
                          &transfer->buffer_id);
    if (status != GRAIL_OK)
        return status;
    status = grail_mem_query(first, &transfer->mem);
    if (status == GRAIL_OK)
        status = grail_gpu_get(&transfer->mem, &transfer->gpu);
    if (status != GRAIL_OK || req->contiguous)
        return status;
    status = grail_pml_layout(req->datatype, &transfer->layout);
    if (status != GRAIL_OK)
        return status;
    grail_layout_retain(transfer->layout);
    transfer->data = req->buffer;
    return GRAIL_OK;
}

/* The peer, the GPU or the net may still touch memory of this transfer. */
static bool in_use(const grail_transfer_t *transfer)
{
    const grail_piece_t *piece;

    TAILQ_FOREACH(piece, &transfer->pieces, link) {
        if (piece->state != GRAIL_PIECE_QUEUED)
            return true;
    }
    return transfer->copying || transfer->moving;
}

/* Something may still write to the receive buffer. (A fetch from a dead peer may never end.) */
static bool buffer_written(const grail_transfer_t *transfer)
{
    const grail_piece_t *piece;

    if (transfer->sending)
        return false;
    TAILQ_FOREACH(piece, &transfer->pieces, link) {
        if (piece->state == GRAIL_PIECE_COPYING ||
            (piece->state == GRAIL_PIECE_MOVING && piece->staging == NULL &&
             !transfer->peer->failed))
            return true;
    }
    return transfer->copying;
}

void grail_transfer_pieces_return(grail_transfer_t *transfer)
{
    grail_piece_t *piece;

    TAILQ_FOREACH(piece, &transfer->pieces, link) {
        if (piece->state == GRAIL_PIECE_AWAITING)
            piece->state = GRAIL_PIECE_QUEUED;
    }
}

/* Frees the transfer if nobody uses it, and completes its request. */
static void end(grail_transfer_t *transfer, grail_status_t status)
{
    grail_req_t *req = transfer->req;
    size_t length = transfer->length;
    bool sending = transfer->sending, helper = transfer->helper;

    if (req != NULL) {
        if (status == GRAIL_OK && !helper)
            grail_stats_count(sending ? GRAIL_SENT : GRAIL_RECEIVED, transfer->path,
                              transfer->peer->where, length);
        req->device = NULL;
        transfer->req = NULL;
    }
    if (!in_use(transfer))
        grail_transfer_free(transfer);
    if (req == NULL || helper)
        return;
    if (sending)
        grail_send_done(GRAIL_CONTAINER_OF(req, grail_send_req_t, req), status);
    else
        grail_recv_done(GRAIL_CONTAINER_OF(req, grail_recv_req_t, req), status, length);
}

/* Give back the pieces whose copies have ended; those that the peer reads stay until it answers. */
static unsigned step_drain(grail_transfer_t *transfer)
{
    grail_piece_t *piece, *next;
    unsigned events = 0;

    if (transfer->copying && grail_copy_test(&transfer->copy) != GRAIL_IN_PROGRESS)
        transfer->copying = false;
    for (piece = TAILQ_FIRST(&transfer->pieces); piece != NULL; piece = next) {
        next = TAILQ_NEXT(piece, link);
        if (piece->state == GRAIL_PIECE_QUEUED ||
            (piece->state == GRAIL_PIECE_COPYING &&
             grail_copy_test(&piece->copy) != GRAIL_IN_PROGRESS)) {
            grail_piece_free(piece);
            events++;
        }
    }
    if (!in_use(transfer) || (transfer->req != NULL && !buffer_written(transfer))) {
        end(transfer, transfer->status);
        events++;
    }
    return events;
}

void grail_transfer_finish(grail_transfer_t *transfer, grail_status_t status)
{
    if (transfer->aborted)
        return;
    if (in_use(transfer)) {
        transfer->aborted = true;
        transfer->status = status;
        transfer->step = step_drain;
        grail_transfer_activate(transfer);
        if (transfer->req == NULL || buffer_written(transfer))
            return;
    }
    end(transfer, status);
}

void grail_transfer_abort(grail_transfer_t *transfer, grail_status_t status)
{
    if (transfer->aborted)
        return;
    if (!transfer->sending)
        transfer->tell_abort = true;
    else if (transfer->remote != 0)
        grail_control_go(transfer, GRAIL_CONTROL_ABORT, transfer->remote, 0, status);
    grail_transfer_finish(transfer, status);
}

grail_device_peer_t *grail_device_peer(grail_peer_t *peer)
{
    if (peer->device == NULL) {
        peer->device = calloc(1, sizeof(*peer->device));
        if (peer->device == NULL) {
            grail_error("out of host memory for the device state of %s", grail_peer_string(peer));
            return NULL;
        }
        peer->device->peer = peer;
        TAILQ_INSERT_TAIL(&peers, peer->device, link);
    }
    return peer->device;
}

const grail_ipc_key_t *grail_device_peer_probe(const grail_device_peer_t *peer, const CUuuid *gpu)
{
    for (unsigned i = 0; i < peer->probe_count; i++) {
        if (memcmp(&peer->probes[i].gpu, gpu, sizeof(*gpu)) == 0)
            return &peer->probes[i];
    }
    return NULL;
}

void grail_device_peer_keep_probe(grail_device_peer_t *peer, const grail_ipc_key_t *probe)
{
    const grail_ipc_key_t *known = grail_device_peer_probe(peer, &probe->gpu);
    grail_ipc_key_t *probes;

    if (known != NULL) {
        peer->probes[known - peer->probes] = *probe;
        return;
    }
    probes = realloc(peer->probes, (peer->probe_count + 1) * sizeof(*probes));
    if (probes == NULL)
        return;
    probes[peer->probe_count++] = *probe;
    peer->probes = probes;
}

/* What it exported would live on for as long as it is mapped here. */
static void device_peer_free(grail_device_peer_t *peer)
{
    TAILQ_REMOVE(&peers, peer, link);
    peer->peer->device = NULL;
    if (peer->shm_seen)
        grail_slots_close_peer(&peer->shm);
    if (peer->owner != 0 && peer->owner != grail_ipc_owner()) {
        grail_slots_close_rings(peer->owner);
        grail_ipc_forget(peer->owner, 0, 0);
    }
    free(peer->probes);
    free(peer);
}

/* ---- pieces ---- */

grail_piece_t *grail_piece_new(grail_transfer_t *transfer, size_t offset, size_t length)
{
    grail_piece_t *piece = calloc(1, sizeof(*piece));

    if (piece == NULL) {
        grail_error("out of host memory for a piece of a device message with %s",
                    grail_peer_string(transfer->peer));
        return NULL;
    }
    piece->transfer = transfer;
    piece->offset = offset;
    piece->length = length;
    TAILQ_INSERT_TAIL(&transfer->pieces, piece, link);
    transfer->in_flight++;
    return piece;
}

void grail_piece_free(grail_piece_t *piece)
{
    grail_transfer_t *transfer = piece->transfer;

    if (piece->staging != NULL) {
        grail_staging_put(piece->staging);
        if (transfer->sending)
            grail_sender_chunks--;
    } else if (piece->address != NULL && !piece->in_view && transfer->slots != NULL) {
        grail_slots_put(transfer->slots, piece->slot);
    }
    if (piece->token != NULL)
        grail_net_drop(grail_pml.net, piece->token);
    TAILQ_REMOVE(&transfer->pieces, piece, link);
    transfer->in_flight--;
    free(piece);
}

grail_status_t grail_transfer_pack(grail_transfer_t *t, grail_lane_t lane, size_t offset,
                                   size_t length, void *packed, grail_copy_t *op)
{
    grail_status_t status = grail_pack_start(t->gpu, lane, t->layout, t->count, t->data, offset,
                                             length, packed, op);

    if (status != GRAIL_ERR_UNSUPPORTED)
        return status;
    status = grail_pack_sync(t->layout, t->count, t->data, offset, length, packed);
    return status == GRAIL_OK ? grail_copy_start(t->gpu, lane, packed, packed, 0, op) : status;
}

static grail_status_t transfer_unpack(grail_transfer_t *t, grail_lane_t lane, size_t offset,
                                      size_t length, const void *packed, grail_copy_t *op)
{
    grail_status_t status = grail_unpack_start(t->gpu, lane, t->layout, t->count, t->data, offset,
                                               length, packed, op);

    if (status != GRAIL_ERR_UNSUPPORTED)
        return status;
    status = grail_unpack_sync(t->layout, t->count, t->data, offset, length, packed);
    return status == GRAIL_OK ? grail_copy_start(t->gpu, lane, t->data, t->data, 0, op) : status;
}

grail_status_t grail_piece_copy_out(grail_piece_t *piece)
{
    grail_transfer_t *t = piece->transfer;
    grail_lane_t lane = t->path == GRAIL_PATH_RING ? GRAIL_LANE_PEER : GRAIL_LANE_OUT;
    grail_status_t status = grail_transfer_check_buffer(t);

    if (status != GRAIL_OK)
        return status;
    piece->state = GRAIL_PIECE_COPYING;
    if (t->layout != NULL)
        return grail_transfer_pack(t, lane, piece->offset, piece->length, piece->address,
                                   &piece->copy);
    return grail_copy_start(t->gpu, lane, piece->address, t->data + piece->offset, piece->length,
                            &piece->copy);
}

grail_status_t grail_piece_copy_in(grail_piece_t *piece)
{
    grail_transfer_t *t = piece->transfer;
    grail_lane_t lane = t->path == GRAIL_PATH_RING ? GRAIL_LANE_PEER : GRAIL_LANE_IN;
    grail_status_t status = grail_transfer_check_buffer(t);

    if (status != GRAIL_OK)
        return status;
    piece->state = GRAIL_PIECE_COPYING;
    if (t->layout != NULL)
        return transfer_unpack(t, lane, piece->offset, piece->length, piece->address,
                               &piece->copy);
    return grail_copy_start(t->gpu, lane, t->data + piece->offset, piece->address, piece->length,
                            &piece->copy);
}

/* ---- messages ---- */

/* A header must stay valid until the net is done with it. */
typedef struct control_packet {
    struct control_packet *next_free;
    grail_peer_t *peer;
    unsigned char bytes[GRAIL_NET_HEADER_MAX];
} control_packet_t;

static control_packet_t *free_packets;      /* as many as were once in flight */

static control_packet_t *packet_get(void)
{
    control_packet_t *packet = free_packets;

    if (packet == NULL)
        return malloc(sizeof(*packet));
    free_packets = packet->next_free;
    return packet;
}

static void packet_put(control_packet_t *packet)
{
    packet->next_free = free_packets;
    free_packets = packet;
}

static void control_done(void *arg, grail_status_t status, size_t length)
{
    control_packet_t *packet = arg;

    (void)length;
    if (status != GRAIL_OK)
        grail_peer_fail(packet->peer, status, "a control message could not be delivered");
    packet_put(packet);
}

/* Callers go on to use the transfer that it is about, so the peer's end waits. */
void grail_control_send_as(grail_peer_t *peer, unsigned id, const void *header, size_t length)
{
    grail_net_endpoint_t *endpoint;
    control_packet_t *packet;
    grail_status_t status;

    if (peer->failed || peer->closing || grail_peer_endpoint(peer, &endpoint) != GRAIL_OK)
        return;
    packet = packet_get();
    if (packet == NULL) {
        grail_peer_break(peer, GRAIL_ERR_NO_MEMORY, "no host memory for a control message");
        return;
    }
    packet->peer = peer;
    memcpy(packet->bytes, header, length);
    status = grail_net_send(grail_pml.net, endpoint, id, packet->bytes, length, NULL,
                            GRAIL_NET_SEND_EAGER, control_done, packet);
    if (grail_status_is_error(status))
        grail_peer_break(peer, status, "a control message could not be sent");
    if (status != GRAIL_IN_PROGRESS)
        packet_put(packet);
}

void grail_control_send(grail_peer_t *peer, const void *header, size_t length)
{
    grail_control_send_as(peer, GRAIL_MSG_CONTROL, header, length);
}

void grail_control_go(grail_transfer_t *transfer, uint32_t op, grail_handle_t to, uint32_t flags,
                      grail_status_t status)
{
    grail_wire_go_t go = {
        .head = { .op = op, .to = to, .from = transfer->handle },
        .path = transfer->path,
        .flags = flags,
        .status = status,
        .epoch = transfer->epoch,
        .who = grail_peer_name_key(ompi_proc_local()->super.proc_name)
    };
    grail_control_send(transfer->peer, &go, sizeof(go));
}

/* ---- all of them ---- */

unsigned grail_device_progress(void)
{
    unsigned events = grail_late_progress();

    /* Each step may end this transfer or, through completion callbacks, start and end others, so no
     * pointer into the list survives a step: take the first and put it last, as often as there are
     * transfers now. */
    for (unsigned n = grail_device_active; n > 0 && !TAILQ_EMPTY(&active); n--) {
        grail_transfer_t *transfer = TAILQ_FIRST(&active);

        TAILQ_REMOVE(&active, transfer, active_link);
        TAILQ_INSERT_TAIL(&active, transfer, active_link);
        events += transfer->step(transfer);
    }
    return events;
}

void grail_device_forget(uint64_t base, uint64_t buffer_id)
{
    grail_wire_forget_t forget = {
        .head = { .op = GRAIL_CONTROL_FORGET },
        .owner = grail_ipc_owner(),
        .base = base,
        .buffer_id = buffer_id
    };
    grail_device_peer_t *peer;

    TAILQ_FOREACH(peer, &peers, link)
        grail_control_send(peer->peer, &forget, sizeof(forget));
}

/* A fetch from a dead peer may last until the net closes, and its chunk is not free before: the
 * messages of others must not wait for it. */
static void write_off_fetches(const grail_peer_t *peer)
{
    const grail_transfer_t *transfer;
    const grail_piece_t *piece;

    TAILQ_FOREACH(transfer, &all, link) {
        if (transfer->peer != peer || transfer->sending)
            continue;
        TAILQ_FOREACH(piece, &transfer->pieces, link) {
            if (piece->state == GRAIL_PIECE_MOVING && piece->staging != NULL)
                grail_staging_write_off();
        }
    }
}

void grail_device_peer_gone(grail_peer_t *peer, grail_status_t status)
{
    grail_transfer_t *transfer;

    TAILQ_FOREACH(transfer, &all, link) {       /* ghosts too: each is stepped until it is free */
        if (transfer->peer == peer)
            grail_transfer_pieces_return(transfer);
    }
    do {        /* a completion callback may have ended any other one: start again after each */
        TAILQ_FOREACH(transfer, &all, link) {
            if (transfer->peer == peer && !transfer->aborted)
                break;
        }
        if (transfer != NULL)
            grail_transfer_finish(transfer, status);
    } while (transfer != NULL);
    if (peer->failed)
        write_off_fetches(peer);
    if (peer->device != NULL)
        device_peer_free(peer->device);
}

void grail_device_release(grail_req_t *req)
{
    grail_transfer_t *transfer = req->device;

    if (transfer == NULL)
        return;
    req->device = NULL;
    transfer->req = NULL;
    if (transfer->next >= transfer->length)
        return;                 /* all of it was packed: only answers are outstanding */
    grail_transfer_pieces_return(transfer);
    grail_transfer_finish(transfer, GRAIL_ERR_CANCELLED);
}

void grail_device_leave(void)
{
    grail_transfer_t *transfer;
    grail_piece_t *piece, *next;

    TAILQ_FOREACH(transfer, &all, link) {
        grail_late_disarm(transfer);
        transfer->req = NULL;
        transfer->tell_abort = false;
        transfer->aborted = true;
        if (transfer->held != NULL)
            grail_net_drop(grail_pml.net, transfer->held);
        transfer->held = NULL;
        for (piece = TAILQ_FIRST(&transfer->pieces); piece != NULL; piece = next) {
            next = TAILQ_NEXT(piece, link);
            if (piece->state != GRAIL_PIECE_MOVING)
                grail_piece_free(piece);
        }
    }
}

void grail_device_fini(void)
{
    grail_transfer_t *transfer;
    grail_device_peer_t *peer;

    while ((transfer = TAILQ_FIRST(&all)) != NULL)
        grail_transfer_free(transfer);
    while ((peer = TAILQ_FIRST(&peers)) != NULL)
        device_peer_free(peer);
    while (free_packets != NULL) {
        control_packet_t *packet = free_packets;

        free_packets = packet->next_free;
        free(packet);
    }
    grail_handle_table_clear(&handles);
    grail_gdr_fini();
    grail_ipc_fini();
    grail_staging_fini();
    grail_gpu_fini();
}
