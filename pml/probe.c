/* SPDX-License-Identifier: BSD-3-Clause */
/* Probe and matched probe: a look at (or the removal of) the first unexpected message that fits. */
#include "pml/probe.h"

#include <sched.h>

#include "pml/comm.h"
#include "runtime/log.h"

enum { SPINS = 100 };

static void probe_status(const grail_msg_t *msg, ompi_status_public_t *status)
{
    if (status == MPI_STATUS_IGNORE)
        return;
    status->MPI_SOURCE = msg->match.source;
    status->MPI_TAG = msg->match.tag;
    status->_ucount = grail_msg_payload(msg);
    status->_cancelled = 0;
}

/* Under the lock. With `message`, takes what it finds. */
static int probe_once(int rank, int tag, ompi_communicator_t *comm, int *matched,
                      ompi_message_t **message, ompi_status_public_t *status)
{
    grail_comm_t *state = grail_comm_state(comm);
    const grail_msg_t *msg = grail_match_find(state, rank, tag);

    *matched = 0;
    if (msg == NULL) {
        grail_comm_rank_t *source = NULL;

        if (rank != MPI_ANY_SOURCE)
            source = state->ranks[rank];
        if (GRAIL_UNLIKELY(source != NULL && source->peer->failed))
            return grail_pml_error(grail_peer_refuse(source->peer));
        return OMPI_SUCCESS;
    }
    if (message != NULL) {
        ompi_message_t *handle = ompi_message_alloc();

        if (handle == NULL)
            return OMPI_ERR_OUT_OF_RESOURCE;
        probe_status(msg, status);
        handle->comm = comm;
        handle->peer = msg->match.source;
        handle->count = grail_msg_payload(msg);
        handle->req_ptr = grail_match_take(state, msg->match.source, msg->match.tag);
        *message = handle;
    } else {
        probe_status(msg, status);
    }
    *matched = 1;
    return OMPI_SUCCESS;
}

static int probe_try(int rank, int tag, ompi_communicator_t *comm, int *matched,
                     ompi_message_t **message, ompi_status_public_t *status)
{
    static unsigned calls;      /* about: threads may lose some */
    unsigned call;
    int rc;

    if (GRAIL_UNLIKELY(rank == MPI_PROC_NULL)) {
        *matched = 1;
        if (message != NULL)
            *message = &ompi_message_no_proc.message;
        if (status != MPI_STATUS_IGNORE)
            OMPI_COPY_STATUS(status, ompi_request_empty.req_status, false);
        return OMPI_SUCCESS;
    }
    grail_pml_lock();
    rc = probe_once(rank, tag, comm, matched, message, status);
    if (rc == OMPI_SUCCESS && !*matched) {
        grail_pml_progress_locked();
        rc = probe_once(rank, tag, comm, matched, message, status);
    }
    grail_pml_unlock();
    /* Loops of iprobe must advance what others have registered too. */
    if (!*matched) {
        call = __atomic_load_n(&calls, __ATOMIC_RELAXED) + 1;
        __atomic_store_n(&calls, call, __ATOMIC_RELAXED);
        if (call % SPINS == 0)
            opal_progress();
    }
    return rc;
}

static int probe_wait(int rank, int tag, ompi_communicator_t *comm, ompi_message_t **message,
                      ompi_status_public_t *status)
{
    grail_probe_wait_t wait = {.comm = comm, .rank = rank, .tag = tag};
    bool listed = false;
    int matched = 0;
    int rc;

    for (unsigned spins = 0;; spins++) {
        rc = probe_try(rank, tag, comm, &matched, message, status);
        if (matched || rc != OMPI_SUCCESS)
            break;
        if (spins == SPINS) {
            grail_pml_lock();
            TAILQ_INSERT_TAIL(&grail_pml.probes, &wait, list);
            grail_pml_unlock();
            listed = true;
        }
        if (grail_pml.threads)
            sched_yield();
        if (GRAIL_UNLIKELY(wait.status != GRAIL_OK)) {
            rc = grail_pml_error(wait.status);
            break;
        }
    }
    if (listed) {
        grail_pml_lock();
        TAILQ_REMOVE(&grail_pml.probes, &wait, list);
        grail_pml_unlock();
    }
    return rc;
}

int grail_pml_iprobe(int rank, int tag, ompi_communicator_t *comm, int *matched,
                     ompi_status_public_t *status)
{
    return probe_try(rank, tag, comm, matched, NULL, status);
}

int grail_pml_probe(int rank, int tag, ompi_communicator_t *comm, ompi_status_public_t *status)
{
    return probe_wait(rank, tag, comm, NULL, status);
}

int grail_pml_improbe(int rank, int tag, ompi_communicator_t *comm, int *matched,
                      ompi_message_t **message, ompi_status_public_t *status)
{
    return probe_try(rank, tag, comm, matched, message, status);
}

int grail_pml_mprobe(int rank, int tag, ompi_communicator_t *comm, ompi_message_t **message,
                     ompi_status_public_t *status)
{
    return probe_wait(rank, tag, comm, message, status);
}
