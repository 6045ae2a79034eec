/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators come and go; their ranks are set up at first use. */
#include "pml/comm.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"

enum { COMMS_FIRST = 64 };

static int comms_reserve(uint32_t cid)
{
    uint32_t size = grail_pml.comms_size != 0 ? grail_pml.comms_size : COMMS_FIRST;
    struct grail_comm **comms;

    if (cid < grail_pml.comms_size)
        return OMPI_SUCCESS;
    while (size <= cid)
        size *= 2;
    comms = realloc(grail_pml.comms, size * sizeof(*comms));
    if (comms == NULL)
        return OMPI_ERR_OUT_OF_RESOURCE;
    memset(comms + grail_pml.comms_size, 0, (size - grail_pml.comms_size) * sizeof(*comms));
    grail_pml.comms = comms;
    grail_pml.comms_size = size;
    return OMPI_SUCCESS;
}

int grail_pml_add_comm(ompi_communicator_t *comm)
{
    uint32_t cid = grail_ompi_cid(comm);
    grail_comm_t *state;
    int size = grail_ompi_peer_count(comm);
    int rc = OMPI_SUCCESS;

    if (cid > GRAIL_OMPI_MAX_CONTEXT) {
        grail_error("communicator id %u exceeds %d", cid, GRAIL_OMPI_MAX_CONTEXT);
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    state = calloc(1, sizeof(*state));
    if (state != NULL)
        state->ranks = calloc(size > 0 ? (size_t)size : 1, sizeof(*state->ranks));
    grail_pml_lock();
    if (state == NULL || state->ranks == NULL || comms_reserve(cid) != OMPI_SUCCESS) {
        grail_error("out of host memory for a communicator of %d processes", size);
        rc = OMPI_ERR_OUT_OF_RESOURCE;
        goto free_state;
    }
    state->comm = comm;
    state->cid = cid;
    state->brief_from = grail_wire_brief_from(cid, comm->c_my_rank);
    state->size = size;
    TAILQ_INIT(&state->wild);
    TAILQ_INIT(&state->arrived);
    grail_pml.comms[cid] = state;
    TAILQ_INSERT_TAIL(&grail_pml.comm_list, state, list);
    comm->c_pml_comm = (struct mca_pml_comm_t *)(void *)state;
    grail_match_adopt(state);
    grail_pml_unlock();
    return rc;

free_state:
    if (state != NULL)
        free(state->ranks);
    free(state);
    grail_pml_unlock();
    return rc;
}

static void queue_drop_receives(struct grail_recv_queue *queue)
{
    grail_recv_req_t *recv;

    /* Only a receive that was freed while active can be here: nobody waits for it. */
    while ((recv = TAILQ_FIRST(queue)) != NULL) {
        grail_recv_unpost(recv);
        recv->req.ompi.req_status._cancelled = 1;
        grail_recv_done(recv, GRAIL_ERR_CANCELLED, 0);
    }
}

int grail_pml_del_comm(ompi_communicator_t *comm)
{
    grail_comm_t *state = grail_comm_state(comm);
    grail_msg_t *msg;

    if (state == NULL)
        return OMPI_SUCCESS;
    grail_pml_lock();
    grail_pml.comms[state->cid] = NULL;
    TAILQ_REMOVE(&grail_pml.comm_list, state, list);
    queue_drop_receives(&state->wild);
    while ((msg = TAILQ_FIRST(&state->arrived)) != NULL) {
        TAILQ_REMOVE(&state->arrived, msg, by_arrival);
        grail_msg_free(msg);
    }
    for (int rank = 0; rank < state->size; rank++) {
        grail_comm_rank_t *entry = state->ranks[rank];

        if (entry == NULL)
            continue;
        queue_drop_receives(&entry->posted);
        while ((msg = TAILQ_FIRST(&entry->early)) != NULL) {
            TAILQ_REMOVE(&entry->early, msg, by_source);
            grail_msg_free(msg);
        }
        free(entry);
    }
    free(state->ranks);
    free(state);
    comm->c_pml_comm = NULL;
    grail_pml_unlock();
    return OMPI_SUCCESS;
}

grail_comm_rank_t *grail_comm_rank_new(grail_comm_t *state, int rank)
{
    grail_comm_rank_t *entry = calloc(1, sizeof(*entry));

    if (entry == NULL) {
        grail_error("out of host memory for rank %d of a communicator", rank);
        return NULL;
    }
    entry->peer = grail_peer_get(ompi_comm_peer_lookup(state->comm, rank));
    if (entry->peer == NULL) {
        free(entry);
        return NULL;
    }
    TAILQ_INIT(&entry->posted);
    TAILQ_INIT(&entry->unexpected);
    TAILQ_INIT(&entry->early);
    state->ranks[rank] = entry;
    return entry;
}

bool grail_comm_has_peer(const grail_comm_t *state, const grail_peer_t *peer)
{
    ompi_group_t *group = state->comm->c_remote_group;

    for (int rank = 0; rank < state->size; rank++) {
        if (state->ranks[rank] != NULL) {
            if (state->ranks[rank]->peer == peer)
                return true;
        } else if (grail_ompi_same_name(ompi_group_get_proc_name(group, rank), peer->name)) {
            return true;
        }
    }
    return false;
}

int grail_pml_dump(ompi_communicator_t *comm, int verbose)
{
    grail_comm_t *state = grail_comm_state(comm);

    (void)verbose;
    if (state == NULL)
        return OMPI_SUCCESS;
    grail_pml_lock();
    for (int rank = 0; rank < state->size; rank++) {
        const grail_comm_rank_t *entry = state->ranks[rank];
        const grail_recv_req_t *recv;
        const grail_msg_t *msg;
        unsigned posted = 0, unexpected = 0, early = 0;

        if (entry == NULL)
            continue;
        TAILQ_FOREACH(recv, &entry->posted, posted)
            posted++;
        TAILQ_FOREACH(msg, &entry->unexpected, by_source)
            unexpected++;
        TAILQ_FOREACH(msg, &entry->early, by_source)
            early++;
        grail_log_write(GRAIL_LOG_INFO,
                        "communicator %u: %s: next send %u, next receive %u, %u posted, "
                        "%u unexpected, %u early",
                        state->cid, grail_peer_string(entry->peer), entry->next_send,
                        entry->next_receive, posted, unexpected, early);
    }
    grail_pml_unlock();
    return OMPI_SUCCESS;
}
