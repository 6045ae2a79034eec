/* SPDX-License-Identifier: BSD-3-Clause */
/* Device messages: offers, the receiver's choice of path, and the messages that steer transfers. */
#include "pml/device.h"

#include <string.h>

#include "cuda-aware/driver.h"
#include "cuda-aware/gdr.h"
#include "pml/choice.h"
#include "pml/pml_grail.h"
#include "pml/transfer.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/options.h"

static uint64_t gpu_bit(const grail_transfer_t *t)
{
    int device = t->gpu != NULL ? grail_gpu_device(t->gpu) : 0;
    return 1ull << (device & 63);
}

/* A peer's mapping keeps memory alive that its owner has freed. Exporting something new looks for
 * such memory by itself; this does for programs whose allocations have settled. */
static void sweep_sometimes(void)
{
    static uint64_t last_ms;
    uint64_t now_ms = grail_clock_coarse_ms();

    if (now_ms - last_ms < 1000)
        return;
    last_ms = now_ms;
    grail_ipc_on_stale(grail_device_forget);
    grail_ipc_sweep();
}

/* ---- sender ---- */

/* A datatype may reach over several allocations (MPI_BOTTOM): one mapping would not do. */
static bool in_one_allocation(const grail_transfer_t *t)
{
    ptrdiff_t low = 0, high = (ptrdiff_t)t->length;
    CUdeviceptr data = (CUdeviceptr)(uintptr_t)t->data;

    if (t->layout != NULL)
        grail_layout_span(t->layout, t->count, &low, &high);
    return data + (CUdeviceptr)low >= t->mem.base &&
           data + (CUdeviceptr)high <= t->mem.base + t->mem.size;
}

/* May the peer map this buffer? Fills the key. Memory of the own process needs no handle. */
static bool can_offer_map(grail_transfer_t *t, const grail_device_peer_t *peer,
                          grail_ipc_key_t *key)
{
    const char *why = NULL;

    if (!in_one_allocation(t))
        return false;

    if (t->peer->where == GRAIL_PEER_SELF) {
        memset(key, 0, sizeof(*key));
        key->owner = grail_ipc_owner();
        key->gpu = *grail_gpu_uuid(t->gpu);
        key->base = t->mem.base;
        key->size = t->mem.size;
        key->buffer_id = t->mem.buffer_id;
        return true;
    }
    if (!grail_options.ipc || t->peer->where != GRAIL_PEER_NODE ||
        (peer->no_map & ~peer->proved & gpu_bit(t)))
        return false;
    if (grail_ipc_export(&t->mem, key, &why) == GRAIL_OK)
        return true;
    if (why != NULL)
        grail_stats_fallback(GRAIL_PATH_IPC, why, t->mem.exportable);
    return false;
}

typedef struct offer_message {
    grail_wire_match_t match;
    grail_offer_t offer;
    unsigned char parts[GRAIL_NET_HEADER_MAX - sizeof(grail_wire_match_t) - sizeof(grail_offer_t)];
} offer_message_t;

static size_t add_part(offer_message_t *message, size_t used, const void *part, size_t size)
{
    memcpy(message->parts + used, part, size);
    return used + size;
}

static void offer_send(grail_transfer_t *t, const grail_device_peer_t *peer,
                       const grail_ipc_key_t *key)
{
    grail_send_req_t *send = GRAIL_CONTAINER_OF(t->req, grail_send_req_t, req);
    offer_message_t message = {
        .offer = {
            .transfer = t->handle,
            .length = t->length,
            .address = (uint64_t)(uintptr_t)t->data,
            .count = t->count,
            .gpu = *grail_gpu_uuid(t->gpu)
        }
    };
    grail_ipc_key_t probe;
    size_t used = 0, code;

    if (key != NULL) {
        message.offer.flags |= GRAIL_OFFER_KEY;
        used = add_part(&message, used, key, sizeof(*key));
    }
    if (grail_options.ipc && t->peer->where == GRAIL_PEER_NODE &&
        !((peer->proved | peer->no_map) & gpu_bit(t)) &&
        grail_p2p_probe_key(t->gpu, &probe) == GRAIL_OK) {
        message.offer.flags |= GRAIL_OFFER_PROBE;
        used = add_part(&message, used, &probe, sizeof(probe));
    }
    if (t->layout != NULL) {
        message.offer.flags |= GRAIL_OFFER_STRIDED;
        if (grail_layout_encode(t->layout, message.parts + used, sizeof(message.parts) - used,
                                &code) == GRAIL_OK) {
            message.offer.flags |= GRAIL_OFFER_LAYOUT;
            message.offer.layout_size = (uint32_t)code;
            used += code;
        }
    }
    grail_send_match_header(send, GRAIL_WIRE_DEVICE, &message.match);
    send->header.match = message.match;
    grail_late_arm(t);
    grail_control_send_as(t->peer, GRAIL_MSG_MATCH, &message,
                          offsetof(offer_message_t, parts) + used);
}

grail_status_t grail_device_send(grail_send_req_t *send)
{
    grail_transfer_t *t;
    grail_device_peer_t *peer;
    grail_net_endpoint_t *endpoint;
    grail_ipc_key_t key;
    grail_status_t status = grail_peer_endpoint(send->req.peer, &endpoint);
    bool can_map;

    if (status != GRAIL_OK)
        return status;
    t = grail_transfer_new(&send->req, send->req.peer);
    if (t == NULL)
        return GRAIL_ERR_NO_MEMORY;
    sweep_sometimes();
    peer = grail_device_peer(send->req.peer);
    status = peer != NULL ? grail_transfer_bind(t) : GRAIL_ERR_NO_MEMORY;
    if (status != GRAIL_OK) {
        grail_transfer_free(t);
        return status;
    }
    can_map = can_offer_map(t, peer, &key);
    if (t->length <= grail_options.chunk &&
        grail_choice_eager(t->length, can_map,
                           t->mem.kind == GRAIL_MEM_DEVICE && grail_gdr_available(),
                           &grail_options)) {
        status = grail_eager_send(t);
        if (status == GRAIL_OK)
            return GRAIL_OK;
        if (status != GRAIL_ERR_BUSY) {
            grail_transfer_free(t);
            return status;
        }
    }
    offer_send(t, peer, can_map ? &key : NULL);
    return GRAIL_OK;
}

/* ---- receiver ---- */

typedef struct offer_view {
    grail_offer_t offer;
    grail_ipc_key_t key;
    grail_ipc_key_t probe;
    const unsigned char *layout_code;
} offer_view_t;

/* The parts are copied out: a message's body has no alignment. */
static bool offer_parse(const void *body, size_t length, offer_view_t *view)
{
    const unsigned char *at = body, *end = at + length;

    memset(view, 0, sizeof(*view));
    if (length < sizeof(view->offer))
        return false;
    memcpy(&view->offer, at, sizeof(view->offer));
    at += sizeof(view->offer);
    if (view->offer.flags & GRAIL_OFFER_KEY) {
        if ((size_t)(end - at) < sizeof(view->key))
            return false;
        memcpy(&view->key, at, sizeof(view->key));
        at += sizeof(view->key);
    }
    if (view->offer.flags & GRAIL_OFFER_PROBE) {
        if ((size_t)(end - at) < sizeof(view->probe))
            return false;
        memcpy(&view->probe, at, sizeof(view->probe));
        at += sizeof(view->probe);
    }
    if (view->offer.flags & GRAIL_OFFER_LAYOUT) {
        if ((size_t)(end - at) < view->offer.layout_size)
            return false;
        view->layout_code = at;
    }
    return true;
}

size_t grail_device_offer_length(const void *body, size_t length)
{
    grail_offer_t offer;

    if (length < sizeof(offer))
        return 0;
    memcpy(&offer, body, sizeof(offer));
    return offer.length;
}

grail_handle_t grail_device_offer_handle(const void *body, size_t length)
{
    grail_offer_t offer;

    if (length < sizeof(offer))
        return 0;
    memcpy(&offer, body, sizeof(offer));
    return offer.transfer;
}

/*
 * Does memory of the sender's GPU arrive here undamaged? Proves it at the first offer of a pair. The
 * sender knows only one of this process's GPUs by then, so its probe is kept for the others. `flags`:
 * what to tell it.
 */
static grail_p2p_state_t prove_pair(const grail_transfer_t *t, const offer_view_t *view,
                                    uint32_t *flags)
{
    static const char unproved[] = "no way between these two GPUs has been proved yet";
    const char *why = NULL, *refused;
    grail_device_peer_t *peer = grail_device_peer(t->peer);
    const grail_ipc_key_t *probe;
    grail_p2p_state_t state;

    *flags = 0;
    if (t->peer->where == GRAIL_PEER_SELF) {
        *flags = GRAIL_GO_PROVED;
        return GRAIL_P2P_GOOD;
    }
    if (peer == NULL || !grail_options.ipc || t->peer->where != GRAIL_PEER_NODE)
        return GRAIL_P2P_UNKNOWN;
    if (view->offer.flags & GRAIL_OFFER_PROBE)
        grail_device_peer_keep_probe(peer, &view->probe);
    if (!t->on_device)
        return GRAIL_P2P_UNKNOWN;
    state = grail_p2p_state(t->gpu, &view->offer.gpu, &why);
    probe = grail_device_peer_probe(peer, &view->offer.gpu);
    if (state == GRAIL_P2P_UNKNOWN && probe != NULL)
        state = grail_p2p_prove(t->gpu, probe, &why);
    refused = grail_ipc_blocked(t->gpu, peer->owner, &view->offer.gpu);
    if (state == GRAIL_P2P_GOOD && refused != NULL) {   /* proved with another process's memory */
        state = GRAIL_P2P_BAD;
        why = refused;
    }
    if (state == GRAIL_P2P_GOOD)
        *flags = GRAIL_GO_PROVED;
    else if (state == GRAIL_P2P_BAD)
        *flags = GRAIL_GO_NO_MAP;
    else if (probe == NULL)
        *flags = GRAIL_GO_PROBE_WANTED;
    if (state != GRAIL_P2P_GOOD && why != NULL)
        grail_stats_fallback(GRAIL_PATH_IPC, why, 1);
    else if (state != GRAIL_P2P_GOOD && (view->offer.flags & GRAIL_OFFER_KEY))
        grail_stats_fallback(GRAIL_PATH_IPC, unproved, 0);  /* without a key the peer tells why */
    return state;
}

/* Whose memory is mapped here, to be unmapped when it goes. */
static void note_owner(const grail_transfer_t *t, const offer_view_t *view)
{
    const grail_ipc_key_t *key = view->offer.flags & GRAIL_OFFER_KEY ? &view->key : &view->probe;

    if (t->peer->device != NULL && key->owner != 0)
        t->peer->device->owner = key->owner;
}

/* False once the peer's shared segment could not be used. */
static bool can_see_slots(const grail_transfer_t *t)
{
    return t->peer->device == NULL || !t->peer->device->no_shm;
}

static void receive_offer(grail_transfer_t *t, const offer_view_t *view)
{
    uint32_t flags;
    grail_p2p_state_t pair = prove_pair(t, view, &flags);
    bool self = t->peer->where == GRAIL_PEER_SELF;
    grail_choice_t choice = {
        .length = t->length,
        .same_node = t->peer->where != GRAIL_PEER_REMOTE,
        .same_gpu = t->on_device && memcmp(&view->offer.gpu, grail_gpu_uuid(t->gpu),
                                           sizeof(view->offer.gpu)) == 0,
        .receiver_device = t->on_device,
        .sender_device = true,
        .can_map = pair == GRAIL_P2P_GOOD && (view->offer.flags & GRAIL_OFFER_KEY),
        .can_map_ring = pair == GRAIL_P2P_GOOD && !self,
        .direct_layout = !(view->offer.flags & GRAIL_OFFER_STRIDED) || view->layout_code != NULL
    };

    note_owner(t, view);
    t->path = grail_choice_path(&choice, GRAIL_PATH_IPC, &grail_options);
    if (t->path == GRAIL_PATH_IPC) {
        if (grail_pull_start(t, &view->offer, &view->key, view->layout_code) ==
            GRAIL_IN_PROGRESS)
            return;
        choice.can_map = false;
        t->path = grail_choice_path(&choice, GRAIL_PATH_RING, &grail_options);
    }
    if (t->path < GRAIL_PATH_HOST_NET &&
        (self || (t->path == GRAIL_PATH_HOST_SHM && !can_see_slots(t))))
        t->path = GRAIL_PATH_HOST_NET;
    grail_pipeline_recv(t);
    grail_control_go(t, GRAIL_CONTROL_GO, t->remote, flags, GRAIL_OK);
}

/* A host sender: its data is here, or held by the net. */
static void receive_data(grail_transfer_t *t, grail_msg_t *msg)
{
    if (!msg->rndv) {
        t->path = GRAIL_PATH_NET_EAGER;
        if (t->layout == NULL && grail_gdr_available() &&
            grail_gdr_write(&t->mem, t->data, msg->data, t->length) == GRAIL_OK)
            grail_transfer_finish(t, GRAIL_OK);
        else
            grail_feed_data(t, msg->data);
        return;
    }
    if (t->length <= grail_options.chunk) {
        t->path = GRAIL_PATH_NET_RNDV;
        grail_feed_token(t, grail_msg_take_token(msg));
        return;
    }
    if (msg->match.sender == 0 || msg->sender_done) {   /* nobody is there to answer a GO_HOST */
        t->path = GRAIL_PATH_NET_RNDV;
        grail_feed_whole(t, grail_msg_take_token(msg));
        return;
    }
    t->held = grail_msg_take_token(msg);
    t->path = t->peer->where == GRAIL_PEER_NODE && grail_options.shm && can_see_slots(t)
                  ? GRAIL_PATH_HOST_SHM : GRAIL_PATH_HOST_NET;
    grail_pipeline_recv(t);
    grail_control_go(t, GRAIL_CONTROL_GO_HOST, msg->match.sender, 0, GRAIL_OK);
}

void grail_device_recv(grail_recv_req_t *recv, grail_msg_t *msg)
{
    grail_transfer_t *t = grail_transfer_new(&recv->req, msg->peer);
    bool offer = msg->match.kind == GRAIL_WIRE_DEVICE;
    grail_status_t status = GRAIL_OK;
    offer_view_t view;

    if (t == NULL) {
        grail_recv_done(recv, GRAIL_ERR_NO_MEMORY, 0);
        return;
    }
    if (offer) {
        if (!offer_parse(msg->data, msg->length, &view)) {
            grail_error("an offer of %zu bytes from %s is malformed: do all ranks run the same "
                        "build of Grail?", msg->length, grail_peer_string(msg->peer));
            grail_transfer_finish(t, GRAIL_ERR_CORRUPT);
            return;
        }
        t->remote = view.offer.transfer;
        t->length = view.offer.length;
        if (view.offer.flags & GRAIL_OFFER_FAILED)
            status = GRAIL_ERR_CUDA;
    } else {
        t->length = msg->length;
        if (t->length == 0) {
            t->path = GRAIL_PATH_NET_EAGER;
            grail_transfer_finish(t, GRAIL_OK);
            return;
        }
    }
    if (msg->peer->failed && (offer || msg->rndv))
        status = grail_peer_refuse(msg->peer);      /* it came, but its data never will */
    if (status == GRAIL_OK && t->length > recv->req.bytes)
        status = GRAIL_ERR_TRUNCATED;
    if (status == GRAIL_OK)
        status = grail_transfer_bind(t);
    if (status != GRAIL_OK) {
        /* The sender has done its part: its send ends well, the receive does not. */
        if (t->remote != 0)
            grail_control_go(t, GRAIL_CONTROL_FINISHED, t->remote, 0, GRAIL_OK);
        grail_transfer_finish(t, status);
        return;
    }
    if (offer)
        receive_offer(t, &view);
    else
        receive_data(t, msg);
}

void grail_device_describe(char *text, size_t size)
{
    grail_cuda_describe(text, size);
}

/* ---- steering ---- */

static void note_flags(grail_transfer_t *t, uint32_t flags)
{
    grail_device_peer_t *peer = grail_device_peer(t->peer);

    if (peer == NULL)
        return;
    if (flags & GRAIL_GO_PROVED)
        peer->proved |= gpu_bit(t);
    if (flags & GRAIL_GO_NO_MAP)
        peer->no_map |= gpu_bit(t);
    if (flags & GRAIL_GO_PROBE_WANTED) {
        peer->proved &= ~gpu_bit(t);
        peer->no_map &= ~gpu_bit(t);
    }
}

static void send_matched(grail_transfer_t *t)
{
    if (t->req != NULL && !t->helper)
        grail_send_matched(GRAIL_CONTAINER_OF(t->req, grail_send_req_t, req));
}

/* The receiver must not wait for pieces that will never come. */
static void refuse_host(const grail_wire_go_t *go, grail_status_t status)
{
    grail_wire_go_t answer = {
        .head = { .op = GRAIL_CONTROL_ABORT, .to = go->head.from },
        .status = status,
        .epoch = go->epoch
    };
    grail_peer_t *peer;

    TAILQ_FOREACH(peer, &grail_pml.peers, list) {
        if (grail_peer_key(peer) == go->who)
            grail_control_send(peer, &answer, sizeof(answer));
    }
}

static void start_host_helper(const grail_wire_go_t *go)
{
    grail_req_t *req = grail_handle_get(&grail_pml.handles, go->head.to);
    grail_transfer_t *t;

    if (req == NULL || !req->is_send) {
        grail_error("a receiver asks for a host message whose send has ended here; its receive ends "
                    "in an error");
        refuse_host(go, GRAIL_ERR_IO);
        return;
    }
    t = grail_transfer_new(req, req->peer);
    if (t == NULL) {
        refuse_host(go, GRAIL_ERR_NO_MEMORY);
        return;
    }
    t->helper = true;
    t->remote = go->head.from;
    t->epoch = go->epoch;
    if (grail_transfer_bind(t) != GRAIL_OK) {
        grail_transfer_abort(t, GRAIL_ERR_CUDA);
        return;
    }
    grail_pipeline_send(t, go->path);
}

static void steer(grail_transfer_t *t, const grail_wire_go_t *go)
{
    grail_late_disarm(t);
    if (t->aborted && go->head.op != GRAIL_CONTROL_ABORT)
        return;
    switch (go->head.op) {
    case GRAIL_CONTROL_GO:
        t->remote = go->head.from;
        t->epoch = go->epoch;
        note_flags(t, go->flags);
        send_matched(t);
        grail_pipeline_send(t, go->path);
        break;
    case GRAIL_CONTROL_FINISHED:
        note_flags(t, go->flags);
        send_matched(t);
        t->path = GRAIL_PATH_IPC;
        grail_transfer_finish(t, go->status);
        break;
    case GRAIL_CONTROL_REDO:
        grail_pipeline_redo(t, go->path);
        break;
    case GRAIL_CONTROL_ABORT:
        if (t->sending)
            grail_transfer_pieces_return(t);
        else
            t->tell_abort = true;
        grail_transfer_finish(t, go->status);
        break;
    default:
        break;
    }
}

void grail_device_control(const grail_wire_control_t *header, size_t length)
{
    /* as it came it may lie at any address */
    union {
        grail_wire_control_t control;
        char bytes[GRAIL_NET_HEADER_MAX];
    } aligned;
    const grail_wire_control_t *control = &aligned.control;
    grail_transfer_t *t;

    if (length < sizeof(*control) || length > sizeof(aligned))
        return;
    memcpy(aligned.bytes, header, length);
    if (control->op == GRAIL_CONTROL_FORGET && length >= sizeof(grail_wire_forget_t)) {
        const grail_wire_forget_t *forget = (const grail_wire_forget_t *)control;
        grail_ipc_forget(forget->owner, forget->base, forget->buffer_id);
        return;
    }
    if (control->op == GRAIL_CONTROL_GO_HOST && length >= sizeof(grail_wire_go_t)) {
        start_host_helper((const grail_wire_go_t *)control);
        return;
    }
    t = grail_transfer_find(control->to);
    if (t == NULL)
        return;                             /* it ended meanwhile, e.g. by an error */
    if (control->op == GRAIL_CONTROL_READY && length >= sizeof(grail_wire_piece_t)) {
        const grail_wire_piece_t *piece = (const grail_wire_piece_t *)control;
        grail_slots_ticket_t ticket;
        bool with_ticket =
            piece->has_ticket && length >= sizeof(*piece) + sizeof(grail_slots_ticket_t);

        if (with_ticket)
            memcpy(&ticket, piece + 1, sizeof(ticket));
        grail_pipeline_ready(t, piece, with_ticket ? &ticket : NULL);
    } else if (control->op == GRAIL_CONTROL_FREE && length >= sizeof(grail_wire_piece_t)) {
        grail_pipeline_freed(t, (const grail_wire_piece_t *)control);
    } else if (control->op == GRAIL_CONTROL_REPLACED || control->op == GRAIL_CONTROL_MISSED) {
        grail_late_answer(t, control->op);
    } else if (length >= sizeof(grail_wire_go_t)) {
        steer(t, (const grail_wire_go_t *)control);
    }
}

/* The sender waits no longer for the receive of its offer, and here is what it offered. */
static void take_replacement(const grail_net_message_t *message)
{
    grail_wire_replace_t replace;

    if (message->header_length < sizeof(replace) || message->rndv)
        return;
    memcpy(&replace, message->header, sizeof(replace));
    grail_match_replace(&replace.match, replace.head.from, message->data, message->length);
}

grail_net_verdict_t grail_device_chunk(grail_net_message_t *message)
{
    grail_wire_control_t control;
    grail_wire_piece_t piece;
    grail_transfer_t *t;

    if (message->header_length < sizeof(control))
        return GRAIL_NET_DONE;
    memcpy(&control, message->header, sizeof(control));
    if (control.op == GRAIL_CONTROL_REPLACE) {
        take_replacement(message);
        return GRAIL_NET_DONE;
    }
    if (message->header_length < sizeof(piece))
        return GRAIL_NET_DONE;
    memcpy(&piece, message->header, sizeof(piece));
    t = grail_transfer_find(piece.head.to);
    return t != NULL ? grail_pipeline_chunk(t, &piece, message) : GRAIL_NET_DONE;
}
