/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives: posting, delivery of a matched message, completion. */
#include <string.h>

#include "pml/comm.h"
#include "pml/device.h"
#include "runtime/log.h"
#include "runtime/stats.h"

static void recv_list(grail_recv_req_t *recv)
{
    recv->req.listed = true;
    TAILQ_INSERT_TAIL(&grail_pml.moving, recv, posted);
}

void grail_recv_done(grail_recv_req_t *recv, grail_status_t status, size_t length)
{
    grail_req_t *req = &recv->req;
    ompi_status_public_t *result = &req->ompi.req_status;

    if (GRAIL_UNLIKELY(req->listed)) {
        TAILQ_REMOVE(&grail_pml.moving, recv, posted);
        req->listed = false;
    }
    if (GRAIL_UNLIKELY(req->device != NULL))
        grail_device_release(req);
    if (GRAIL_LIKELY(status == GRAIL_OK)) {
        result->MPI_ERROR = MPI_SUCCESS;
        result->_ucount = length;
    } else if (status == GRAIL_ERR_CANCELLED) {
        result->MPI_ERROR = MPI_SUCCESS;
        result->_ucount = 0;
        result->MPI_SOURCE = MPI_ANY_SOURCE;
        result->MPI_TAG = MPI_ANY_TAG;
    } else {
        result->MPI_ERROR = grail_pml_error(status);
        /* what has been received of a message that is too long */
        result->_ucount = status == GRAIL_ERR_TRUNCATED ? (length < req->bytes ? length : req->bytes)
                                                        : 0;
    }
    grail_req_complete(req);
}

/* A dead sender's data will not come any more, unless it had come before. */
static bool lost_with_sender(const grail_msg_t *msg)
{
    return msg->peer->failed && (msg->rndv || msg->match.kind != GRAIL_WIRE_DATA);
}

bool grail_recv_abandon(grail_recv_req_t *recv, grail_status_t status)
{
    if (recv->req.device != NULL || !grail_net_abandon(grail_pml.net, recv))
        return false;
    recv->token = NULL;
    grail_recv_done(recv, status, 0);
    return true;
}

static void net_done(void *arg, grail_status_t status, size_t length)
{
    grail_recv_req_t *recv = arg;

    (void)length;
    recv->token = NULL;
    grail_recv_done(recv, status, recv->length);
}

static void deliver_rndv(grail_recv_req_t *recv, grail_msg_t *msg)
{
    grail_req_t *req = &recv->req;
    grail_net_buffer_t buffer = {.address = NULL, .length = 0, .type = NULL};
    grail_status_t status = GRAIL_OK;

    if (req->bytes != 0)
        status = grail_req_net_buffer(req, &buffer);
    if (status != GRAIL_OK) {
        grail_net_drop(grail_pml.net, grail_msg_take_token(msg));
        grail_recv_done(recv, status, 0);
        return;
    }
    grail_stats_count(GRAIL_RECEIVED, GRAIL_PATH_NET_RNDV, msg->peer->where, msg->length);
    recv->token = grail_msg_take_token(msg);
    recv_list(recv);
    status = grail_net_fetch(grail_pml.net, recv->token, &buffer, net_done, recv);
    if (status != GRAIL_IN_PROGRESS)
        net_done(recv, status, recv->length);
}

static void deliver_eager(grail_recv_req_t *recv, const grail_msg_t *msg)
{
    grail_req_t *req = &recv->req;
    size_t length = msg->length;
    grail_status_t status = GRAIL_OK;

    if (GRAIL_UNLIKELY(length > req->bytes)) {
        length = req->bytes;
        status = GRAIL_ERR_TRUNCATED;
    }
    grail_stats_count(GRAIL_RECEIVED, GRAIL_PATH_NET_EAGER, msg->peer->where, msg->length);
    if (GRAIL_LIKELY(req->contiguous)) {
        if (length != 0)
            memcpy(grail_req_data(req), msg->data, length);
    } else if (grail_req_unpack(req, 0, msg->data, length) != GRAIL_OK) {
        status = GRAIL_ERR_INVALID;
    }
    grail_recv_done(recv, status, msg->length);
}

void grail_recv_deliver(grail_recv_req_t *recv, grail_msg_t *msg)
{
    grail_req_t *req = &recv->req;
    ompi_status_public_t *result = &req->ompi.req_status;

    req->peer = msg->peer;
    result->MPI_SOURCE = msg->match.source;
    result->MPI_TAG = msg->match.tag;
    if (GRAIL_UNLIKELY(lost_with_sender(msg))) {
        grail_recv_done(recv, grail_peer_refuse(msg->peer), 0);
        return;
    }
    if (GRAIL_UNLIKELY(msg->match.kind != GRAIL_WIRE_DATA)) {
        recv->length = grail_device_offer_length(msg->data, msg->length);
        recv_list(recv);
        grail_device_recv(recv, msg);
        return;
    }
    recv->length = msg->length;
    grail_match_acknowledge(msg->peer, &msg->match);
    if (GRAIL_UNLIKELY(req->on_device && msg->length != 0)) {
        recv_list(recv);
        grail_device_recv(recv, msg);
    } else if (msg->rndv) {
        deliver_rndv(recv, msg);
    } else {
        deliver_eager(recv, msg);
    }
}

static inline void recv_fill(grail_recv_req_t *recv, void *buffer, size_t count,
                             ompi_datatype_t *type, int rank, int tag, ompi_communicator_t *comm)
{
    grail_req_t *req = &recv->req;

    req->buffer = buffer;
    req->count = count;
    req->datatype = type;
    req->comm = comm;
    req->state = grail_comm_state(comm);
    req->rank = rank;
    req->tag = tag;
}

/* A receive that can only come from failed processes ends at once. */
static bool recv_refused(grail_recv_req_t *recv, grail_peer_t *peer)
{
    if (GRAIL_LIKELY(!peer->failed))
        return false;
    grail_recv_done(recv, grail_peer_refuse(peer), 0);
    return true;
}

void grail_recv_post(grail_recv_req_t *recv)
{
    grail_req_t *req = &recv->req;
    grail_comm_t *state = req->state;
    grail_comm_rank_t *source = NULL;
    grail_msg_t *msg = NULL;

    grail_req_describe(req);
    recv->buffer_id = 0;
    /* a stale error would have MPI_Waitall free this one with a request that failed */
    req->ompi.req_status._cancelled = 0;
    req->ompi.req_status.MPI_ERROR = MPI_SUCCESS;
    if (req->rank != MPI_ANY_SOURCE) {
        source = grail_comm_rank(state, req->rank);
        if (GRAIL_UNLIKELY(source == NULL)) {
            grail_recv_done(recv, GRAIL_ERR_NO_MEMORY, 0);
            return;
        }
        req->peer = source->peer;
        if (GRAIL_UNLIKELY(!TAILQ_EMPTY(&source->unexpected)))
            msg = grail_match_take(state, req->rank, req->tag);
    } else {
        req->peer = NULL;
        if (!TAILQ_EMPTY(&state->arrived))
            msg = grail_match_take(state, req->rank, req->tag);
    }
    if (msg != NULL) {
        grail_recv_deliver(recv, msg);
        grail_msg_free(msg);
        return;
    }
    if (source != NULL && recv_refused(recv, source->peer))
        return;
    if (GRAIL_UNLIKELY(req->on_device))
        (void)grail_mem_identify(grail_req_data(req), &recv->buffer_id);
    recv->order = state->next_order++;
    recv->is_posted = true;
    grail_pml.posted++;
    if (source != NULL)
        TAILQ_INSERT_TAIL(&source->posted, recv, posted);
    else
        TAILQ_INSERT_TAIL(&state->wild, recv, posted);
}

int grail_pml_recv(void *buffer, size_t count, ompi_datatype_t *type, int rank, int tag,
                   ompi_communicator_t *comm, ompi_status_public_t *status)
{
    grail_recv_req_t *recv;
    int rc;

    if (GRAIL_UNLIKELY(rank == MPI_PROC_NULL)) {
        if (status != MPI_STATUS_IGNORE)
            OMPI_COPY_STATUS(status, ompi_request_empty.req_status, false);
        return OMPI_SUCCESS;
    }
    grail_pml_lock();
    recv = grail_recv_get(true);
    if (GRAIL_UNLIKELY(recv == NULL)) {
        grail_pml_unlock();
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    recv_fill(recv, buffer, count, type, rank, tag, comm);
    recv->req.ompi.req_complete = REQUEST_PENDING;
    recv->req.ompi.req_complete_cb = NULL;
    grail_recv_post(recv);
    grail_pml_unlock();
    grail_req_wait(&recv->req);
    grail_pml_lock();
    rc = recv->req.ompi.req_status.MPI_ERROR;
    if (status != MPI_STATUS_IGNORE)
        OMPI_COPY_STATUS(status, recv->req.ompi.req_status, false);
    grail_recv_put_blocking(recv);
    grail_pml_unlock();
    return rc;
}

int grail_pml_irecv(void *buffer, size_t count, ompi_datatype_t *type, int rank, int tag,
                    ompi_communicator_t *comm, ompi_request_t **request)
{
    grail_recv_req_t *recv;

    if (GRAIL_UNLIKELY(rank == MPI_PROC_NULL)) {
        *request = &ompi_request_empty;
        return OMPI_SUCCESS;
    }
    grail_pml_lock();
    recv = grail_recv_get(false);
    if (GRAIL_UNLIKELY(recv == NULL)) {
        grail_pml_unlock();
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    recv_fill(recv, buffer, count, type, rank, tag, comm);
    OMPI_REQUEST_INIT(&recv->req.ompi, false);
    recv->req.ompi.req_state = OMPI_REQUEST_ACTIVE;
    recv->req.ompi.req_mpi_object.comm = comm;
    grail_req_retain(&recv->req);
    *request = &recv->req.ompi;
    grail_recv_post(recv);
    grail_pml_unlock();
    return OMPI_SUCCESS;
}

int grail_pml_irecv_init(void *buffer, size_t count, ompi_datatype_t *type, int rank, int tag,
                         ompi_communicator_t *comm, ompi_request_t **request)
{
    grail_recv_req_t *recv;

    grail_pml_lock();
    recv = grail_recv_get(false);
    if (recv == NULL) {
        grail_pml_unlock();
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    recv_fill(recv, buffer, count, type, rank, tag, comm);
    OMPI_REQUEST_INIT(&recv->req.ompi, true);
    recv->req.ompi.req_mpi_object.comm = comm;
    recv->req.ompi.req_status = ompi_status_empty;
    recv->req.protocol_done = true;
    grail_req_retain(&recv->req);
    *request = &recv->req.ompi;
    grail_pml_unlock();
    return OMPI_SUCCESS;
}

/* ---- matched receives: the request keeps the message that a probe has taken ---- */

static int mrecv_prepare(void *buffer, size_t count, ompi_datatype_t *type,
                         ompi_message_t **message, bool blocking, grail_recv_req_t **result)
{
    grail_msg_t *msg = (*message)->req_ptr;
    ompi_communicator_t *comm = (*message)->comm;
    grail_recv_req_t *recv = grail_recv_get(blocking);

    if (recv == NULL)
        return OMPI_ERR_OUT_OF_RESOURCE;
    recv_fill(recv, buffer, count, type, msg->match.source, msg->match.tag, comm);
    OMPI_REQUEST_INIT(&recv->req.ompi, false);
    recv->req.ompi.req_state = OMPI_REQUEST_ACTIVE;
    recv->req.ompi.req_mpi_object.comm = comm;
    recv->req.ompi.req_status._cancelled = 0;
    recv->req.ompi.req_status.MPI_ERROR = MPI_SUCCESS;
    if (!blocking)
        grail_req_retain(&recv->req);
    grail_req_describe(&recv->req);
    recv->buffer_id = 0;
    ompi_message_return(*message);
    *message = MPI_MESSAGE_NULL;
    *result = recv;
    grail_recv_deliver(recv, msg);
    grail_msg_free(msg);
    return OMPI_SUCCESS;
}

int grail_pml_imrecv(void *buffer, size_t count, ompi_datatype_t *type, ompi_message_t **message,
                     ompi_request_t **request)
{
    grail_recv_req_t *recv = NULL;
    int rc;

    grail_pml_lock();
    rc = mrecv_prepare(buffer, count, type, message, false, &recv);
    if (rc == OMPI_SUCCESS)
        *request = &recv->req.ompi;
    grail_pml_unlock();
    return rc;
}

int grail_pml_mrecv(void *buffer, size_t count, ompi_datatype_t *type, ompi_message_t **message,
                    ompi_status_public_t *status)
{
    grail_recv_req_t *recv = NULL;
    int rc;

    grail_pml_lock();
    rc = mrecv_prepare(buffer, count, type, message, true, &recv);
    grail_pml_unlock();
    if (rc != OMPI_SUCCESS)
        return rc;
    grail_req_wait(&recv->req);
    grail_pml_lock();
    rc = recv->req.ompi.req_status.MPI_ERROR;
    if (status != MPI_STATUS_IGNORE)
        OMPI_COPY_STATUS(status, recv->req.ompi.req_status, false);
    grail_recv_put_blocking(recv);
    grail_pml_unlock();
    return rc;
}
