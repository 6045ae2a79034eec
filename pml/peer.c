/* SPDX-License-Identifier: BSD-3-Clause */
/* The processes that this one talks to: what they publish, connections, failure, leave-taking. */
#include "pml/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "opal/class/opal_hash_table.h"
#include "pml/comm.h"
#include "pml/device.h"
#include "pml/probe.h"
#include "pml/transfer.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/options.h"

/* What every process publishes, in front of its net address. The first three fields and the two
 * texts must stay where they are in all versions: they tell versions that do not fit apart. */
enum { CARD_MAGIC = 0x4c495247, WIRE_VERSION = 2 };

typedef struct peer_card {
    uint32_t magic;             /* "GRIL" in this machine's byte order */
    uint32_t wire_version;
    uint32_t size;              /* of this structure */
    uint32_t address_length;    /* bytes that follow it */
    char version[24];
    char host[64];
} peer_card_t;

static opal_hash_table_t peer_table;
static bool peer_table_ready;
static char own_host[64];

grail_status_t grail_peer_publish(void)
{
    const void *address;
    size_t length;
    peer_card_t *card;
    grail_status_t status = grail_net_address(grail_pml.net, &address, &length);
    int rc;

    if (status != GRAIL_OK)
        return status;
    card = calloc(1, sizeof(*card) + length);
    if (card == NULL) {
        grail_error("out of host memory for the address of %zu bytes", length);
        return GRAIL_ERR_NO_MEMORY;
    }
    if (gethostname(own_host, sizeof(own_host) - 1) != 0)
        strcpy(own_host, "unknown");
    card->magic = CARD_MAGIC;
    card->wire_version = WIRE_VERSION;
    card->size = sizeof(*card);
    card->address_length = (uint32_t)length;
    snprintf(card->version, sizeof(card->version), "%s", GRAIL_VERSION);
    memcpy(card->host, own_host, sizeof(card->host));
    memcpy(card + 1, address, length);
    rc = grail_ompi_modex_send(&mca_pml_grail_component.pmlm_version, card,
                               sizeof(*card) + length);
    free(card);
    if (rc != OMPI_SUCCESS) {
        grail_error("the runtime did not take the address of %zu bytes (error %d)", length, rc);
        return GRAIL_ERR_IO;
    }
    OBJ_CONSTRUCT(&peer_table, opal_hash_table_t);
    opal_hash_table_init(&peer_table, 256);
    peer_table_ready = true;
    return GRAIL_OK;
}

grail_peer_t *grail_peer_get(ompi_proc_t *proc)
{
    opal_process_name_t name = proc->super.proc_name;
    uint64_t key = grail_peer_name_key(name);
    void *found;
    grail_peer_t *peer;

    if (opal_hash_table_get_value_uint64(&peer_table, key, &found) == OPAL_SUCCESS)
        return found;
    peer = calloc(1, sizeof(*peer));
    if (peer == NULL ||
        opal_hash_table_set_value_uint64(&peer_table, key, peer) != OPAL_SUCCESS) {
        grail_error("out of host memory for a process");
        free(peer);
        return NULL;
    }
    peer->name = name;
    peer->proc = proc;
    OBJ_RETAIN(proc);
    if (grail_ompi_same_name(name, ompi_proc_local()->super.proc_name)) {
        peer->where = GRAIL_PEER_SELF;
        grail_pml.self = peer;
    } else {
        peer->where = grail_ompi_local_node(proc) ? GRAIL_PEER_NODE : GRAIL_PEER_REMOTE;
    }
    TAILQ_INSERT_TAIL(&grail_pml.peers, peer, list);
    return peer;
}

const char *grail_peer_string(const grail_peer_t *peer)
{
    static char texts[8][112];
    static unsigned next;
    char *text = texts[__atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % 8];
    const char *host = peer->host;

    if (peer->where == GRAIL_PEER_SELF)
        host = own_host;
    else if (host[0] == '\0')
        host = peer->proc->super.proc_hostname;
    if (host == NULL || host[0] == '\0')
        host = peer->where == GRAIL_PEER_NODE ? own_host : "an unknown host";
    if (peer->name.jobid == ompi_proc_local()->super.proc_name.jobid)
        snprintf(text, sizeof(texts[0]), "rank %u on %s", peer->name.vpid, host);
    else
        snprintf(text, sizeof(texts[0]), "rank %u of job %u on %s", peer->name.vpid,
                 peer->name.jobid & 0xffff, host);
    return text;
}

/* ---- connection ---- */

static grail_status_t card_check(grail_peer_t *peer, const peer_card_t *card, size_t length)
{
    if (length < sizeof(*card) || card->magic != CARD_MAGIC) {
        grail_error("%s published no address of Grail's that can be read here: is it the same "
                    "build on all hosts?", grail_peer_string(peer));
        return GRAIL_ERR_PEER;
    }
    memcpy(peer->host, card->host, sizeof(peer->host));
    peer->host[sizeof(peer->host) - 1] = '\0';
    if (card->wire_version != WIRE_VERSION || card->size != sizeof(*card) ||
        strncmp(card->version, GRAIL_VERSION, sizeof(card->version)) != 0) {
        grail_error("Grail %s (wire %d) on %s cannot talk to Grail %.24s (wire %u) of %s: install "
                    "the same version on all hosts", GRAIL_VERSION, WIRE_VERSION, own_host,
                    card->version, card->wire_version, grail_peer_string(peer));
        return GRAIL_ERR_PEER;
    }
    if (card->address_length != length - sizeof(*card)) {
        grail_error("%s published a damaged address (%u of %zu bytes)", grail_peer_string(peer),
                    card->address_length, length - sizeof(*card));
        return GRAIL_ERR_PEER;
    }
    return GRAIL_OK;
}

grail_status_t grail_peer_connect(grail_peer_t *peer)
{
    peer_card_t *card = NULL;
    const void *address = NULL;
    void *data = NULL;
    size_t length = 0;
    grail_status_t status = GRAIL_OK;

    if (peer->failed)
        return grail_peer_refuse(peer);
    if (peer->where == GRAIL_PEER_SELF) {
        status = grail_net_address(grail_pml.net, &address, &length);
    } else {
        int rc = grail_ompi_modex_recv(&mca_pml_grail_component.pmlm_version, &peer->name, &data,
                                       &length);

        card = data;
        if (rc != OMPI_SUCCESS || card == NULL) {
            grail_error("%s has published no address (error %d): is pml/grail selected there too?",
                        grail_peer_string(peer), rc);
            status = GRAIL_ERR_PEER;
        } else {
            status = card_check(peer, card, length);
            address = card + 1;
            length -= sizeof(*card);
        }
    }
    if (status == GRAIL_OK)
        status = grail_net_connect(grail_pml.net, address, length, peer, &peer->endpoint);
    free(data);
    if (status != GRAIL_OK) {
        peer->told = true;      /* by whoever found the reason */
        grail_peer_break(peer, status, "no connection");
    }
    return status;
}

/* ---- failure ---- */

/* Callbacks of ended receives may post new ones: those stay. */
static void queue_fail(const grail_comm_t *state, struct grail_recv_queue *queue,
                       grail_status_t status)
{
    uint64_t end = state->next_order;
    grail_recv_req_t *recv;

    while ((recv = TAILQ_FIRST(queue)) != NULL && recv->order < end) {
        grail_recv_unpost(recv);
        grail_recv_done(recv, status, 0);
    }
}

/* Does anything wait for this peer, and for nobody else? */
static bool peer_awaited(const grail_peer_t *peer)
{
    const grail_comm_t *state;
    const grail_send_req_t *send;
    const grail_recv_req_t *recv;
    const grail_probe_wait_t *probe;

    TAILQ_FOREACH(send, &grail_pml.sends, list) {
        if (send->req.peer == peer)
            return true;
    }
    TAILQ_FOREACH(recv, &grail_pml.moving, posted) {
        if (recv->req.peer == peer)
            return true;
    }
    TAILQ_FOREACH(state, &grail_pml.comm_list, list) {
        for (int rank = 0; rank < state->size; rank++) {
            if (state->ranks[rank] != NULL && state->ranks[rank]->peer == peer &&
                !TAILQ_EMPTY(&state->ranks[rank]->posted))
                return true;
        }
        if (!peer->left && !TAILQ_EMPTY(&state->wild) && grail_comm_has_peer(state, peer))
            return true;
    }
    TAILQ_FOREACH(probe, &grail_pml.probes, list) {
        const grail_comm_t *of = grail_comm_state(probe->comm);

        if (probe->rank == MPI_ANY_SOURCE ? !peer->left && grail_comm_has_peer(of, peer)
                                          : of->ranks[probe->rank] != NULL &&
                                                of->ranks[probe->rank]->peer == peer)
            return true;
    }
    return false;
}

static void peer_tell(grail_peer_t *peer)
{
    if (peer->told)
        return;
    peer->told = true;
    grail_error("lost %s: %s; operations with it end in an error", grail_peer_string(peer),
                peer->reason);
}

grail_status_t grail_peer_refuse(grail_peer_t *peer)
{
    peer_tell(peer);
    return peer->why;
}

/*
 * A receive from MPI_ANY_SOURCE might still get its message from somebody else, but nobody could
 * tell a program that waits for the dead process for ever from one that does not: it ends in an
 * error, unless the process had said goodbye.
 */
static void comms_fail(grail_peer_t *peer, grail_status_t status)
{
    grail_comm_t *state;
    grail_probe_wait_t *probe;

    TAILQ_FOREACH(state, &grail_pml.comm_list, list) {
        for (int rank = 0; rank < state->size; rank++) {
            if (state->ranks[rank] != NULL && state->ranks[rank]->peer == peer)
                queue_fail(state, &state->ranks[rank]->posted, status);
        }
        if (!peer->left && !TAILQ_EMPTY(&state->wild) && grail_comm_has_peer(state, peer))
            queue_fail(state, &state->wild, status);
    }
    TAILQ_FOREACH(probe, &grail_pml.probes, list) {
        const grail_comm_t *of = grail_comm_state(probe->comm);

        if (probe->rank == MPI_ANY_SOURCE && !peer->left && grail_comm_has_peer(of, peer))
            probe->status = status;
    }
}

/* What the net had in hand it has ended; the rest waits for an answer. */
static void sends_fail(const grail_peer_t *peer, grail_status_t status)
{
    grail_send_req_t *send = TAILQ_FIRST(&grail_pml.sends);

    while (send != NULL) {
        if (send->req.peer == peer && send->sent) {
            grail_send_done(send, status);
            send = TAILQ_FIRST(&grail_pml.sends);   /* the list may have changed anywhere */
        } else {
            send = TAILQ_NEXT(send, list);
        }
    }
}

/* Messages of it that were matched and are on their way by the net. */
static void moving_fail(const grail_peer_t *peer, grail_status_t status)
{
    grail_recv_req_t *recv = TAILQ_FIRST(&grail_pml.moving);

    while (recv != NULL) {
        grail_recv_req_t *next = TAILQ_NEXT(recv, posted);

        if (recv->req.peer == peer && grail_recv_abandon(recv, status))
            next = TAILQ_FIRST(&grail_pml.moving);  /* the list may have changed anywhere */
        recv = next;
    }
}

static unsigned broken;         /* peers whose operations are still to be ended */

void grail_peer_break(grail_peer_t *peer, grail_status_t status, const char *reason)
{
    if (peer->failed)
        return;
    peer->failed = true;
    peer->why = status;
    snprintf(peer->reason, sizeof(peer->reason), "%s", reason);
    peer->broken = true;
    broken++;
}

static void peer_end(grail_peer_t *peer)
{
    const char *reason = peer->reason;
    grail_status_t status = peer->why;

    if (grail_pml.finalizing) {
        grail_debug("while leaving: %s: %s", grail_peer_string(peer), reason);
        peer->told = true;
    } else if (peer->hurt || peer_awaited(peer)) {
        peer_tell(peer);
    }
    if (peer->endpoint != NULL && !peer->closing) {
        peer->closing = true;
        grail_net_disconnect(grail_pml.net, peer->endpoint, true, &peer->closed);
        peer->endpoint = NULL;
    }
    grail_device_peer_gone(peer, status);
    sends_fail(peer, status);
    moving_fail(peer, status);
    comms_fail(peer, status);
}

void grail_peer_end_broken(void)
{
    grail_peer_t *peer;

    if (GRAIL_LIKELY(broken == 0))
        return;
    TAILQ_FOREACH(peer, &grail_pml.peers, list) {   /* they are freed at the end only */
        if (peer->broken) {
            peer->broken = false;
            broken--;
            peer_end(peer);
        }
    }
}

void grail_peer_fail(grail_peer_t *peer, grail_status_t status, const char *reason)
{
    if (peer->failed && !peer->broken)
        return;
    grail_peer_break(peer, status, reason);
    peer->broken = false;
    broken--;
    peer_end(peer);
}

static void watch_rank(grail_comm_t *state, int rank)
{
    grail_comm_rank_t *entry = grail_comm_rank(state, rank);

    if (entry != NULL && !entry->peer->failed && entry->peer->endpoint == NULL)
        grail_peer_connect(entry->peer);
}

/* Any source: those of this node, which are the ones whose end the net can see. */
static void watch_node(grail_comm_t *state)
{
    for (int rank = 0; rank < state->size; rank++) {
        ompi_proc_t *proc = ompi_group_get_proc_ptr_raw(state->comm->c_remote_group, rank);

        if (!ompi_proc_is_sentinel(proc) && grail_ompi_local_node(proc))
            watch_rank(state, rank);
    }
}

void grail_peer_watch_sources(void)
{
    grail_comm_t *state;
    grail_probe_wait_t *probe;

    TAILQ_FOREACH(state, &grail_pml.comm_list, list) {
        if (!TAILQ_EMPTY(&state->wild))
            watch_node(state);
        for (int rank = 0; rank < state->size; rank++) {
            if (state->ranks[rank] != NULL && !TAILQ_EMPTY(&state->ranks[rank]->posted))
                watch_rank(state, rank);
        }
    }
    TAILQ_FOREACH(probe, &grail_pml.probes, list) {
        if (probe->rank == MPI_ANY_SOURCE)
            watch_node(grail_comm_state(probe->comm));
        else
            watch_rank(grail_comm_state(probe->comm), probe->rank);
    }
}

/* ---- leave ---- */

/* Runs progress until `pending` says false; false: the time is over. */
static bool progress_until(bool (*pending)(void), double seconds)
{
    uint64_t end = grail_clock_ns() + (uint64_t)(seconds * 1e9);

    for (unsigned i = 1; pending(); i++) {
        grail_pml_progress_locked();
        if (i % 128 == 0) {
            grail_pml_unlock();
            opal_progress();
            grail_pml_lock();
            if (grail_clock_ns() > end)
                return false;
        }
    }
    return true;
}

static bool sends_pending(void)
{
    return !TAILQ_EMPTY(&grail_pml.sends);
}

static bool closing_pending(void)
{
    const grail_peer_t *peer;

    TAILQ_FOREACH(peer, &grail_pml.peers, list) {
        if (peer->closing && !peer->closed)
            return true;
    }
    return false;
}

void grail_peer_disconnect_all(void)
{
    grail_peer_t *peer;

    /* Sends that the program started and freed without waiting. */
    if (!progress_until(sends_pending, grail_options.peer_timeout)) {
        const grail_send_req_t *send = TAILQ_FIRST(&grail_pml.sends);

        grail_warn("a send to %s (tag %d, %zu bytes) was never received; it is given up after "
                   "%g s", grail_peer_string(send->req.peer), send->req.tag, send->req.bytes,
                   grail_options.peer_timeout);
    }
    TAILQ_FOREACH(peer, &grail_pml.peers, list) {
        if (peer->endpoint != NULL && !peer->failed && peer->where != GRAIL_PEER_SELF) {
            const grail_wire_control_t bye = {
                .op = GRAIL_CONTROL_BYE,
                .from = grail_peer_name_key(ompi_proc_local()->super.proc_name)
            };

            grail_control_send(peer, &bye, sizeof(bye));
        }
    }
    TAILQ_FOREACH(peer, &grail_pml.peers, list) {
        grail_device_peer_gone(peer, GRAIL_ERR_CANCELLED);
        if (peer->endpoint == NULL || peer->closing)
            continue;
        peer->closing = true;
        if (grail_net_disconnect(grail_pml.net, peer->endpoint, false, &peer->closed) != GRAIL_OK)
            peer->closed = true;
        peer->endpoint = NULL;
    }
    if (!progress_until(closing_pending, grail_options.peer_timeout)) {
        TAILQ_FOREACH(peer, &grail_pml.peers, list) {
            if (peer->closing && !peer->closed)
                grail_warn("the connection to %s could not be flushed in %g s",
                           grail_peer_string(peer), grail_options.peer_timeout);
        }
    }
}

void grail_peer_fini(void)
{
    grail_peer_t *peer;

    while ((peer = TAILQ_FIRST(&grail_pml.peers)) != NULL) {
        TAILQ_REMOVE(&grail_pml.peers, peer, list);
        OBJ_RELEASE(peer->proc);
        free(peer);
    }
    grail_pml.self = NULL;
    if (peer_table_ready)
        OBJ_DESTRUCT(&peer_table);
    peer_table_ready = false;
}
