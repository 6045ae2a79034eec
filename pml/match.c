/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI matching: messages that arrive meet receives that were posted, in MPI's order. */
#include <stdlib.h>
#include <string.h>

#include "pml/comm.h"
#include "pml/device.h"
#include "pml/transfer.h"
#include "runtime/log.h"

/* A message that nobody has posted a receive for. Small payloads are copied to stand behind the
 * structure; a large one stays in the net's memory when the net lets us keep it. */
enum { STORED_INLINE = 1024, STORED_FREE_MAX = 1024 };

typedef struct stored_msg {
    grail_msg_t msg;
    struct stored_msg *next_free;
    bool pooled;
    TAILQ_ENTRY(stored_msg) offer;
    bool in_offers;
    grail_handle_t owed;        /* a sender whose offer was replaced and has not been told */
    void *replacement;          /* longer than what fits behind the structure */
    unsigned char bytes[];
} stored_msg_t;

static stored_msg_t *stored_free;
static unsigned stored_free_count;

/* Offers that nobody has received yet, in a queue or taken by a matched probe. */
static TAILQ_HEAD(, stored_msg) offers = TAILQ_HEAD_INITIALIZER(offers);

static stored_msg_t *stored_new(size_t length)
{
    stored_msg_t *stored;

    if (length <= STORED_INLINE && stored_free != NULL) {
        stored = stored_free;
        stored_free = stored->next_free;
        stored_free_count--;
        return stored;
    }
    stored = malloc(sizeof(*stored) + (length <= STORED_INLINE ? STORED_INLINE : length));
    if (stored != NULL)
        stored->pooled = length <= STORED_INLINE;
    return stored;
}

void grail_msg_free(grail_msg_t *msg)
{
    stored_msg_t *stored = GRAIL_CONTAINER_OF(msg, stored_msg_t, msg);

    if (msg->token != NULL && !msg->taken)
        grail_net_drop(grail_pml.net, msg->token);
    if (GRAIL_UNLIKELY(stored->in_offers))
        TAILQ_REMOVE(&offers, stored, offer);
    if (GRAIL_UNLIKELY(stored->replacement != NULL))
        free(stored->replacement);
    if (stored->pooled && stored_free_count < STORED_FREE_MAX) {
        stored->next_free = stored_free;
        stored_free = stored;
        stored_free_count++;
    } else {
        free(stored);
    }
}

void grail_match_fini(void)
{
    while (stored_free != NULL) {
        stored_msg_t *stored = stored_free;

        stored_free = stored->next_free;
        free(stored);
    }
    stored_free_count = 0;
}

/* A queued twin of a message on the handler's stack. NULL: out of memory (logged); the message is
 * lost then, and its receiver would wait for ever, so the peer is given up. */
static grail_msg_t *msg_store(grail_msg_t *msg, const grail_net_message_t *message)
{
    bool keep = msg->rndv || (message->may_keep && msg->match.kind == GRAIL_WIRE_DATA &&
                              msg->length > STORED_INLINE);
    stored_msg_t *stored = stored_new(keep ? 0 : msg->length);

    if (stored == NULL) {
        grail_error("out of host memory for an unexpected message of %zu bytes", msg->length);
        if (msg->peer != NULL)
            grail_peer_fail(msg->peer, GRAIL_ERR_NO_MEMORY, "a message of it was lost here");
        return NULL;
    }
    stored->msg = *msg;
    stored->msg.queued = true;
    stored->msg.taken = false;
    stored->owed = 0;
    stored->replacement = NULL;
    stored->in_offers = msg->match.kind == GRAIL_WIRE_DEVICE;
    if (GRAIL_UNLIKELY(stored->in_offers))
        TAILQ_INSERT_TAIL(&offers, stored, offer);
    if (keep) {
        stored->msg.token = message->token;
        msg->taken = true;
    } else {
        memcpy(stored->bytes, msg->data, msg->length);
        stored->msg.data = stored->bytes;
        stored->msg.token = NULL;
    }
    return &stored->msg;
}

static inline bool tag_fits(int wanted, int tag)
{
    /* negative tags belong to Open MPI's own traffic, which MPI_ANY_TAG must not see */
    return wanted == tag || (wanted == MPI_ANY_TAG && tag >= 0);
}

static grail_recv_req_t *queue_find(struct grail_recv_queue *queue, int tag)
{
    grail_recv_req_t *recv;

    TAILQ_FOREACH(recv, queue, posted) {
        if (tag_fits(recv->req.tag, tag))
            break;
    }
    return recv;
}

/* The receive that was posted first among those that fit. */
static inline grail_recv_req_t *posted_find(grail_comm_t *state, grail_comm_rank_t *source, int tag)
{
    grail_recv_req_t *named = queue_find(&source->posted, tag);
    grail_recv_req_t *wild;

    if (GRAIL_LIKELY(TAILQ_EMPTY(&state->wild)))
        return named;
    wild = queue_find(&state->wild, tag);
    if (named == NULL || (wild != NULL && wild->order < named->order))
        return wild;
    return named;
}

static inline void recv_remove(grail_comm_t *state, grail_recv_req_t *recv)
{
    if (recv->req.rank == MPI_ANY_SOURCE)
        TAILQ_REMOVE(&state->wild, recv, posted);
    else
        TAILQ_REMOVE(&state->ranks[recv->req.rank]->posted, recv, posted);
    recv->is_posted = false;
    grail_pml.posted--;
}

void grail_recv_unpost(grail_recv_req_t *recv)
{
    recv_remove(recv->req.state, recv);
}

static void msg_queue(grail_comm_t *state, grail_comm_rank_t *source, grail_msg_t *msg)
{
    TAILQ_INSERT_TAIL(&source->unexpected, msg, by_source);
    TAILQ_INSERT_TAIL(&state->arrived, msg, by_arrival);
}

/* Sorted insertion; nearly always at the end. */
static void early_insert(grail_comm_rank_t *source, grail_msg_t *msg)
{
    grail_msg_t *other;

    TAILQ_FOREACH_REVERSE(other, &source->early, grail_msg_queue, by_source) {
        if ((int32_t)(msg->match.sequence - other->match.sequence) > 0) {
            TAILQ_INSERT_AFTER(&source->early, other, msg, by_source);
            return;
        }
    }
    TAILQ_INSERT_HEAD(&source->early, msg, by_source);
}

/* Messages that have waited for the one before them. */
static void early_drain(grail_comm_t *state, grail_comm_rank_t *source)
{
    grail_msg_t *msg;

    while ((msg = TAILQ_FIRST(&source->early)) != NULL &&
           msg->match.sequence == source->next_receive) {
        grail_recv_req_t *recv;

        TAILQ_REMOVE(&source->early, msg, by_source);
        source->next_receive++;
        recv = posted_find(state, source, msg->match.tag);
        if (recv == NULL) {
            msg_queue(state, source, msg);
            continue;
        }
        recv_remove(state, recv);
        grail_recv_deliver(recv, msg);
        grail_msg_free(msg);
    }
}

static grail_net_verdict_t orphan_add(grail_msg_t *msg, const grail_net_message_t *message)
{
    grail_msg_t *stored = msg_store(msg, message);

    if (stored != NULL)
        TAILQ_INSERT_TAIL(&grail_pml.orphans, stored, by_source);
    return msg->taken ? GRAIL_NET_KEEP : GRAIL_NET_DONE;
}

/* A message whose match header, data and length are set meets a receive or is queued. */
static inline __attribute__((always_inline)) grail_net_verdict_t
match(grail_msg_t *msg, const grail_net_message_t *message)
{
    grail_comm_t *state = NULL;
    grail_comm_rank_t *source;
    grail_recv_req_t *recv;

    msg->rndv = message->rndv;
    msg->sender_done = message->sender_done;
    msg->queued = false;
    msg->taken = false;
    if (GRAIL_LIKELY(msg->match.cid < grail_pml.comms_size))
        state = grail_pml.comms[msg->match.cid];
    if (GRAIL_UNLIKELY(state == NULL)) {
        msg->peer = NULL;
        return orphan_add(msg, message);
    }
    if (GRAIL_UNLIKELY(msg->match.source < 0 || msg->match.source >= state->size ||
                       (source = grail_comm_rank(state, msg->match.source)) == NULL)) {
        grail_error("a message of rank %d for communicator %u of %d processes was dropped",
                    msg->match.source, msg->match.cid, state->size);
        return GRAIL_NET_DONE;
    }
    msg->peer = source->peer;
    if (GRAIL_UNLIKELY(msg->match.sequence != source->next_receive)) {
        grail_msg_t *stored = msg_store(msg, message);

        if (stored != NULL)
            early_insert(source, stored);
        return msg->taken ? GRAIL_NET_KEEP : GRAIL_NET_DONE;
    }
    source->next_receive++;
    recv = posted_find(state, source, msg->match.tag);
    if (GRAIL_LIKELY(recv != NULL)) {
        recv_remove(state, recv);
        grail_recv_deliver(recv, msg);
    } else {
        grail_msg_t *stored = msg_store(msg, message);

        if (stored != NULL)
            msg_queue(state, source, stored);
    }
    if (GRAIL_UNLIKELY(!TAILQ_EMPTY(&source->early)))
        early_drain(state, source);
    return msg->taken ? GRAIL_NET_KEEP : GRAIL_NET_DONE;
}

static grail_net_verdict_t bad_header(const grail_net_message_t *message)
{
    grail_error("a message with a header of %zu bytes was dropped", message->header_length);
    return GRAIL_NET_DONE;
}

grail_net_verdict_t grail_match_handler(void *arg, grail_net_message_t *message)
{
    grail_msg_t msg;

    (void)arg;
    if (GRAIL_UNLIKELY(message->header_length < sizeof(msg.match)))
        return bad_header(message);
    memcpy(&msg.match, message->header, sizeof(msg.match));
    if (GRAIL_LIKELY(msg.match.kind == GRAIL_WIRE_DATA)) {
        msg.data = message->data;
        msg.length = message->length;
        msg.token = message->rndv || message->may_keep ? message->token : NULL;
    } else {
        msg.data = (const char *)message->header + sizeof(msg.match);
        msg.length = message->header_length - sizeof(msg.match);
        msg.token = NULL;
    }
    return match(&msg, message);
}

grail_net_verdict_t grail_brief_handler(void *arg, grail_net_message_t *message)
{
    grail_wire_brief_t brief;
    grail_msg_t msg;

    (void)arg;
    if (GRAIL_UNLIKELY(message->length < sizeof(brief))) {
        grail_error("a brief message of %zu bytes was dropped", message->length);
        return GRAIL_NET_DONE;
    }
    memcpy(&brief, message->data, sizeof(brief));
    msg.match.cid = brief.from >> 16;
    msg.match.kind = GRAIL_WIRE_DATA;
    msg.match.flags = 0;
    msg.match.source = brief.from & UINT16_MAX;
    msg.match.tag = brief.tag;
    msg.match.sequence = brief.sequence;
    msg.match.sender = 0;
    msg.data = (const char *)message->data + sizeof(brief);
    msg.length = message->length - sizeof(brief);
    msg.token = NULL;
    return match(&msg, message);
}

/* ---- offers that are replaced by their data (path_late.c) ---- */

static stored_msg_t *offer_find(const grail_wire_match_t *match, grail_handle_t transfer)
{
    stored_msg_t *stored;

    TAILQ_FOREACH(stored, &offers, offer) {
        const grail_wire_match_t *its = &stored->msg.match;

        if (its->sequence == match->sequence && its->source == match->source &&
            its->cid == match->cid && its->tag == match->tag &&
            grail_device_offer_handle(stored->msg.data, stored->msg.length) == transfer)
            return stored;
    }
    return NULL;
}

/* From here on the queued message is one of a host sender that came at once. */
static bool offer_replace(stored_msg_t *stored, const void *data, size_t length)
{
    grail_msg_t *msg = &stored->msg;
    void *bytes = stored->bytes;

    if (length != grail_msg_payload(msg)) {
        grail_error("%zu bytes came for an offer of %zu bytes from rank %d: do all ranks run the "
                    "same build of Grail?", length, grail_msg_payload(msg), msg->match.source);
        return false;
    }
    if (!stored->pooled || length > STORED_INLINE) {
        bytes = stored->replacement = malloc(length);
        if (bytes == NULL) {
            grail_error("out of host memory for an unexpected message of %zu bytes", length);
            return false;
        }
    }
    memcpy(bytes, data, length);
    msg->data = bytes;
    msg->length = length;
    msg->match.kind = GRAIL_WIRE_DATA;
    TAILQ_REMOVE(&offers, stored, offer);
    stored->in_offers = false;
    return true;
}

static void answer_replacement(grail_peer_t *peer, uint32_t op, grail_handle_t transfer)
{
    const grail_wire_control_t answer = {.op = op, .to = transfer};

    grail_control_send(peer, &answer, sizeof(answer));
}

void grail_match_replace(const grail_wire_match_t *match, grail_handle_t transfer,
                         const void *data, size_t length)
{
    stored_msg_t *stored = offer_find(match, transfer);
    grail_comm_t *state;

    if (stored != NULL && offer_replace(stored, data, length)) {
        if (stored->msg.peer != NULL)
            answer_replacement(stored->msg.peer, GRAIL_CONTROL_REPLACED, transfer);
        else
            stored->owed = transfer;    /* its communicator does not exist here yet */
        return;
    }
    state = match->cid < grail_pml.comms_size ? grail_pml.comms[match->cid] : NULL;
    if (state != NULL && match->source >= 0 && match->source < state->size &&
        state->ranks[match->source] != NULL)
        answer_replacement(state->ranks[match->source]->peer, GRAIL_CONTROL_MISSED, transfer);
}

void grail_match_adopt(grail_comm_t *state)
{
    grail_msg_t *msg = TAILQ_FIRST(&grail_pml.orphans);

    while (msg != NULL) {
        grail_msg_t *next = TAILQ_NEXT(msg, by_source);

        if (msg->match.cid == state->cid) {
            grail_comm_rank_t *source = NULL;

            TAILQ_REMOVE(&grail_pml.orphans, msg, by_source);
            if (msg->match.source >= 0 && msg->match.source < state->size)
                source = grail_comm_rank(state, msg->match.source);
            if (source == NULL) {
                grail_error("a message of rank %d for communicator %u of %d processes was dropped",
                            msg->match.source, msg->match.cid, state->size);
                grail_msg_free(msg);
            } else {
                stored_msg_t *stored = GRAIL_CONTAINER_OF(msg, stored_msg_t, msg);

                msg->peer = source->peer;
                if (stored->owed != 0)
                    answer_replacement(source->peer, GRAIL_CONTROL_REPLACED, stored->owed);
                early_insert(source, msg);
                early_drain(state, source);
            }
        }
        msg = next;
    }
}

const grail_msg_t *grail_match_find(grail_comm_t *state, int rank, int tag)
{
    grail_msg_t *msg;

    if (rank == MPI_ANY_SOURCE) {
        TAILQ_FOREACH(msg, &state->arrived, by_arrival) {
            if (tag_fits(tag, msg->match.tag))
                return msg;
        }
        return NULL;
    }
    if (state->ranks[rank] == NULL)
        return NULL;
    TAILQ_FOREACH(msg, &state->ranks[rank]->unexpected, by_source) {
        if (tag_fits(tag, msg->match.tag))
            return msg;
    }
    return NULL;
}

grail_msg_t *grail_match_take(grail_comm_t *state, int rank, int tag)
{
    grail_msg_t *msg = (grail_msg_t *)(uintptr_t)grail_match_find(state, rank, tag);

    if (msg != NULL) {
        TAILQ_REMOVE(&state->arrived, msg, by_arrival);
        TAILQ_REMOVE(&state->ranks[msg->match.source]->unexpected, msg, by_source);
    }
    return msg;
}

size_t grail_msg_payload(const grail_msg_t *msg)
{
    if (msg->match.kind == GRAIL_WIRE_DATA)
        return msg->length;
    return grail_device_offer_length(msg->data, msg->length);
}

void grail_match_acknowledge(grail_peer_t *peer, const grail_wire_match_t *match)
{
    if (GRAIL_UNLIKELY(match->flags & GRAIL_WIRE_SYNC)) {
        const grail_wire_control_t control = {.op = GRAIL_CONTROL_MATCHED, .to = match->sender};

        grail_control_send(peer, &control, sizeof(control));
    }
}

grail_net_verdict_t grail_control_handler(void *arg, grail_net_message_t *message)
{
    grail_wire_control_t control;

    (void)arg;
    if (message->header_length < sizeof(control)) {
        grail_error("a control message of %zu bytes was dropped", message->header_length);
        return GRAIL_NET_DONE;
    }
    memcpy(&control, message->header, sizeof(control));
    if (control.op >= GRAIL_CONTROL_DEVICE_FIRST) {
        grail_device_control(message->header, message->header_length);
    } else if (control.op == GRAIL_CONTROL_MATCHED) {
        grail_req_t *req = grail_handle_get(&grail_pml.handles, control.to);

        if (req != NULL && req->is_send)
            grail_send_matched((grail_send_req_t *)req);
    } else if (control.op == GRAIL_CONTROL_BYE) {
        grail_peer_t *peer;

        TAILQ_FOREACH(peer, &grail_pml.peers, list) {
            if (grail_peer_key(peer) == control.from)
                peer->left = true;
        }
    } else {
        grail_error("a control message with unknown operation %u was dropped", control.op);
    }
    return GRAIL_NET_DONE;
}

grail_net_verdict_t grail_chunk_handler(void *arg, grail_net_message_t *message)
{
    (void)arg;
    return grail_device_chunk(message);
}
