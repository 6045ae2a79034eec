/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends of every mode: host buffers go to the net, device buffers to the device protocols. */
#include <string.h>

#include "cuda-aware/copy.h"
#include "pml/comm.h"
#include "pml/device.h"
#include "runtime/log.h"
#include "runtime/stats.h"

/*
 * A host send of this many bytes or more can be named by its receiver: a device receiver may ask for
 * a better path than the net's. It is also where a send that the net did not finish at once counts
 * as a rendezvous in the statistics (the net does not tell which way it went).
 */
enum { NAMED_FROM = 16384 };

void grail_send_match_header(grail_send_req_t *send, uint8_t kind, grail_wire_match_t *match)
{
    const grail_req_t *req = &send->req;
    grail_comm_rank_t *to = req->state->ranks[req->rank];

    match->cid = req->state->cid;
    match->source = req->comm->c_my_rank;
    match->tag = req->tag;
    match->sequence = to->next_send++;
    match->kind = kind;
    match->flags = 0;
    match->sender = req->handle;
}

static void send_finish(grail_send_req_t *send)
{
    grail_req_t *req = &send->req;
    ompi_status_public_t *status = &req->ompi.req_status;

    if (req->listed) {
        TAILQ_REMOVE(&grail_pml.sends, send, list);
        req->listed = false;
    }
    if (GRAIL_UNLIKELY(send->bsend_copy != NULL)) {
        grail_ompi_bsend_free(req->comm, send->bsend_copy);
        send->bsend_copy = NULL;
    }
    if (GRAIL_UNLIKELY(req->device != NULL))
        grail_device_release(req);
    status->MPI_ERROR = GRAIL_LIKELY(send->status == GRAIL_OK) ? MPI_SUCCESS
                                                                : grail_pml_error(send->status);
    if (!req->blocking) {
        status->MPI_SOURCE = req->comm->c_my_rank;
        status->MPI_TAG = req->tag;
        status->_ucount = req->bytes;
        status->_cancelled = 0;
    }
    grail_req_complete(req);
}

void grail_send_done(grail_send_req_t *send, grail_status_t status)
{
    send->sent = true;
    if (GRAIL_UNLIKELY(status != GRAIL_OK)) {
        send->status = status;
        send->req.peer->hurt = true;
    }
    if (send->matched || send->status != GRAIL_OK)
        send_finish(send);
}

void grail_send_matched(grail_send_req_t *send)
{
    if (send->matched)
        return;
    send->matched = true;
    if (send->sent && !send->req.protocol_done)
        send_finish(send);
}

static void net_done(void *arg, grail_status_t status, size_t length)
{
    grail_send_req_t *send = arg;

    (void)length;
    grail_send_done(send, status);
}

static void send_list(grail_send_req_t *send)
{
    if (!send->req.protocol_done && !send->req.listed) {
        send->req.listed = true;
        TAILQ_INSERT_TAIL(&grail_pml.sends, send, list);
    }
}

/* The connection did not take the message. Its number is given back, or the receiver would wait for
 * it for ever. */
static grail_status_t send_refused(const grail_send_req_t *send, uint32_t sequence,
                                   grail_status_t status)
{
    grail_comm_rank_t *to = send->req.state->ranks[send->req.rank];

    if (sequence + 1 == to->next_send)
        to->next_send--;
    else
        grail_peer_fail(to->peer, status, "a message to it could not be sent");
    return status;
}

/* IN_PROGRESS: ends in grail_send_done(). */
static grail_status_t send_host(grail_send_req_t *send, grail_peer_t *peer)
{
    grail_req_t *req = &send->req;
    grail_net_buffer_t buffer;
    grail_net_endpoint_t *endpoint;
    grail_status_t status;
    unsigned flags = 0;
    bool sync = send->mode == MCA_PML_BASE_SEND_SYNCHRONOUS;

    status = grail_peer_endpoint(peer, &endpoint);
    if (GRAIL_UNLIKELY(status != GRAIL_OK))
        return status;
    if (GRAIL_UNLIKELY(send->bsend_copy != NULL)) {
        buffer.address = send->bsend_copy;
        buffer.length = req->bytes;
        buffer.type = NULL;
    } else {
        status = grail_req_net_buffer(req, &buffer);
        if (GRAIL_UNLIKELY(status != GRAIL_OK))
            return status;
    }
    if (GRAIL_UNLIKELY(buffer.type != NULL && peer->where == GRAIL_PEER_SELF)) {
        /* UCX 1.13 never ends a rendezvous between two packed layouts of one process. */
        flags = GRAIL_NET_SEND_EAGER;
    } else if (sync && req->bytes >= NAMED_FROM) {
        /* A rendezvous ends when the receiver has fetched, which implies the match. */
        flags = GRAIL_NET_SEND_RNDV;
        sync = false;
    } else if (req->blocking) {
        flags = GRAIL_NET_SEND_FAST;
    }
    if (sync || req->bytes >= NAMED_FROM) {
        status = grail_req_handle(req);
        if (GRAIL_UNLIKELY(status != GRAIL_OK))
            return status;
    }
    grail_send_match_header(send, GRAIL_WIRE_DATA, &send->header.match);
    if (GRAIL_UNLIKELY(sync)) {
        send->header.match.flags = GRAIL_WIRE_SYNC;
        send->matched = false;
    }
    status = grail_net_send(grail_pml.net, endpoint, GRAIL_MSG_MATCH, &send->header.match,
                            sizeof(send->header.match), req->bytes != 0 ? &buffer : NULL, flags,
                            net_done, send);
    if (GRAIL_UNLIKELY(grail_status_is_error(status)))
        return send_refused(send, send->header.match.sequence, status);
    grail_stats_count(GRAIL_SENT,
                      status == GRAIL_OK || req->bytes < NAMED_FROM ? GRAIL_PATH_NET_EAGER
                                                                    : GRAIL_PATH_NET_RNDV,
                      peer->where, req->bytes);
    if (status == GRAIL_OK && sync) {
        send->sent = true;
        if (!send->matched)
            return GRAIL_IN_PROGRESS;
    }
    return status;
}

/*
 * GRAIL_OK: complete, and nobody was told (the caller may use the request at once).
 * GRAIL_IN_PROGRESS: ends in grail_send_done(), or has ended in it.
 */
static inline grail_status_t send_begin(grail_send_req_t *send)
{
    grail_req_t *req = &send->req;
    grail_comm_rank_t *to = grail_comm_rank(req->state, req->rank);
    grail_status_t status;

    if (GRAIL_UNLIKELY(to == NULL))
        return GRAIL_ERR_NO_MEMORY;
    req->peer = to->peer;
    if (GRAIL_UNLIKELY(to->peer->failed))
        return grail_peer_refuse(to->peer);
    send->status = GRAIL_OK;
    send->matched = true;
    send->sent = false;
    if (GRAIL_LIKELY(!req->on_device))
        return send_host(send, to->peer);
    if (send->mode == MCA_PML_BASE_SEND_SYNCHRONOUS)
        send->matched = false;
    status = grail_device_send(send);
    return status == GRAIL_OK ? GRAIL_IN_PROGRESS : status;
}

typedef struct send_args {
    const void *buffer;
    size_t count;
    ompi_datatype_t *type;
    int rank;
    int tag;
    mca_pml_base_send_mode_t mode;
    ompi_communicator_t *comm;
} send_args_t;

static inline void send_fill(grail_send_req_t *send, const send_args_t *args)
{
    grail_req_t *req = &send->req;

    OMPI_REQUEST_INIT(&req->ompi, false);
    req->ompi.req_state = OMPI_REQUEST_ACTIVE;
    req->ompi.req_mpi_object.comm = args->comm;
    /* a stale error would have MPI_Waitall free this one with a request that failed */
    req->ompi.req_status.MPI_ERROR = MPI_SUCCESS;
    req->buffer = (void *)(uintptr_t)args->buffer;
    req->count = args->count;
    req->datatype = args->type;
    req->comm = args->comm;
    req->state = grail_comm_state(args->comm);
    req->tag = args->tag;
    req->rank = args->rank;
    send->mode = args->mode;
}

/* ---- buffered mode ---- */

/* Copies the packed data of `req` out of whatever memory it is in. */
static grail_status_t bsend_pack(grail_req_t *req, void *packed)
{
    if (!req->on_device)
        return grail_req_pack(req, 0, packed, req->bytes);
    return grail_device_pack(req, packed);
}

/*
 * The message is copied to the buffer that the application attached and sent from there by a request
 * that nobody holds: the call is complete for the application.
 */
static int bsend_start(const grail_send_req_t *original)
{
    const send_args_t args = {original->req.buffer, original->req.count, original->req.datatype,
                              original->req.rank, original->req.tag, MCA_PML_BASE_SEND_STANDARD,
                              original->req.comm};
    grail_send_req_t *send = grail_send_get(false);
    grail_req_t *req;
    grail_status_t status;

    if (send == NULL)
        return OMPI_ERR_OUT_OF_RESOURCE;
    req = &send->req;
    send_fill(send, &args);
    grail_req_describe(req);
    if (req->bytes != 0) {
        void *copy = grail_ompi_bsend_alloc(req->comm, req->bytes);

        if (copy == NULL) {
            grail_req_recycle(req);
            return MPI_ERR_BUFFER;
        }
        status = bsend_pack(req, copy);
        if (status != GRAIL_OK) {
            grail_ompi_bsend_free(req->comm, copy);
            grail_req_recycle(req);
            return grail_pml_error(status);
        }
        send->bsend_copy = copy;
        req->on_device = false;
        req->contiguous = true;
    }
    grail_req_retain(req);
    req->free_called = true;
    status = send_begin(send);
    if (status == GRAIL_IN_PROGRESS) {
        send_list(send);
    } else {
        send->status = status;
        send->matched = true;
        send_finish(send);
    }
    return status == GRAIL_IN_PROGRESS ? MPI_SUCCESS : grail_pml_error(status);
}

/* ---- small sends ---- */

/* Copies a few bytes, up to 16 without a call. */
static inline void copy_brief(char *to, const char *from, size_t length)
{
    uint64_t first, last;

    if (length >= 8 && length <= 16) {
        memcpy(&first, from, 8);
        memcpy(&last, from + length - 8, 8);
        memcpy(to, &first, 8);
        memcpy(to + length - 8, &last, 8);
    } else if (length > 16) {
        memcpy(to, from, length);
    } else {
        for (size_t i = 0; i < length; ++i)
            to[i] = from[i];
    }
}

/*
 * The commonest case: some ten bytes of contiguous host memory to a connected peer, with room in its
 * queue. No request is made. False: nothing was done, take the long way. What counts here is the
 * number of stores (grail_ucx_send_short()), so everything stays in registers.
 */
static inline __attribute__((always_inline)) bool
send_brief(const void *buffer, size_t count, const ompi_datatype_t *type, int rank, int tag,
           mca_pml_base_send_mode_t mode, const ompi_communicator_t *comm)
{
    const size_t length = type->super.size * count;
    const grail_comm_t *state = grail_comm_state(comm);
    grail_comm_rank_t *to = state->ranks[rank];
    const char *data = (const char *)buffer + type->super.true_lb;
    struct {
        grail_wire_brief_t header;
        char data[GRAIL_WIRE_BRIEF_DATA_MAX];
    } message;

    if (GRAIL_UNLIKELY(length > sizeof(message.data) || to == NULL || to->peer->endpoint == NULL ||
                       to->peer->failed ||
                       state->brief_from == GRAIL_WIRE_NOT_BRIEF ||
                       (mode != MCA_PML_BASE_SEND_STANDARD && mode != MCA_PML_BASE_SEND_READY) ||
                       !grail_type_is_block(&type->super, count) ||
                       (length != 0 && grail_mem_is_device(data))))
        return false;
    message.header.from = state->brief_from;
    message.header.tag = tag;
    message.header.sequence = to->next_send;
    copy_brief(message.data, data, length);
    to->next_send++;
    if (GRAIL_UNLIKELY(grail_net_send_short(to->peer->endpoint, &message,
                                            sizeof(message.header) + length) != GRAIL_OK)) {
        to->next_send--;
        return false;
    }
    grail_stats_count(GRAIL_SENT, GRAIL_PATH_NET_EAGER, to->peer->where, length);
    return true;
}

/* The rest of send_small() when the net has not sent at once. */
static __attribute__((noinline)) grail_status_t
send_small_left(grail_send_req_t *send, const send_args_t *args, bool blocking, grail_peer_t *peer,
                const grail_net_buffer_t *buffer, grail_status_t status)
{
    grail_req_reset(&send->req, blocking);
    send_fill(send, args);
    send->req.data = buffer->address;
    send->req.bytes = buffer->length;
    send->req.contiguous = true;
    send->req.on_device = false;
    send->req.peer = peer;
    send->status = GRAIL_OK;
    send->matched = true;
    send->sent = false;
    if (status != GRAIL_IN_PROGRESS)
        return send_refused(send, send->header.match.sequence, status);
    grail_stats_count(GRAIL_SENT, GRAIL_PATH_NET_EAGER, peer->where, buffer->length);
    send_list(send);
    return GRAIL_IN_PROGRESS;
}

/*
 * A small contiguous host message to a connected peer. Only what the wire needs is written; the
 * request is filled when the net could not send at once. GRAIL_OK: sent. GRAIL_IN_PROGRESS: *left is
 * under way. GRAIL_ERR_UNSUPPORTED: nothing was done, take the long way.
 */
static inline grail_status_t send_small(const send_args_t *args, bool blocking,
                                        grail_send_req_t **left)
{
    const opal_datatype_t *type = &args->type->super;
    grail_comm_t *state = grail_comm_state(args->comm);
    grail_comm_rank_t *to = state->ranks[args->rank];
    grail_send_req_t *send = grail_pml.spare_send;
    grail_wire_match_t *match;
    grail_net_buffer_t buffer;
    grail_peer_t *peer;
    grail_status_t status;

    buffer.address = (char *)(uintptr_t)args->buffer + type->true_lb;
    buffer.length = type->size * args->count;
    buffer.type = NULL;
    if (GRAIL_UNLIKELY(to == NULL || send == NULL || buffer.length >= NAMED_FROM ||
                       (args->mode != MCA_PML_BASE_SEND_STANDARD &&
                        args->mode != MCA_PML_BASE_SEND_READY) ||
                       !grail_type_is_block(type, args->count)))
        return GRAIL_ERR_UNSUPPORTED;
    peer = to->peer;
    if (GRAIL_UNLIKELY(peer->endpoint == NULL || peer->failed ||
                       (buffer.length != 0 && grail_mem_is_device(buffer.address))))
        return GRAIL_ERR_UNSUPPORTED;
    grail_pml.spare_send = NULL;
    match = &send->header.match;
    match->cid = state->cid;
    match->kind = GRAIL_WIRE_DATA;
    match->flags = 0;
    match->source = args->comm->c_my_rank;
    match->tag = args->tag;
    match->sequence = to->next_send++;
    match->sender = 0;
    status = grail_net_send(grail_pml.net, peer->endpoint, GRAIL_MSG_MATCH, match, sizeof(*match),
                            buffer.length != 0 ? &buffer : NULL,
                            blocking ? GRAIL_NET_SEND_FAST : 0, net_done, send);
    if (GRAIL_LIKELY(status == GRAIL_OK)) {
        grail_stats_count(GRAIL_SENT, GRAIL_PATH_NET_EAGER, peer->where, buffer.length);
        if (GRAIL_LIKELY(grail_pml.spare_send == NULL))
            grail_pml.spare_send = send;
        else
            opal_free_list_return_st(&grail_pml.send_requests, &send->req.ompi.super);
        return GRAIL_OK;
    }
    *left = send;
    return send_small_left(send, args, blocking, peer, &buffer, status);
}

/* ---- calls ---- */

grail_status_t grail_send_start(grail_send_req_t *send)
{
    grail_status_t status;

    grail_req_describe(&send->req);
    if (GRAIL_UNLIKELY(send->mode == MCA_PML_BASE_SEND_BUFFERED)) {
        int rc = bsend_start(send);

        send->status = GRAIL_OK;
        if (rc != MPI_SUCCESS)
            return rc == MPI_ERR_BUFFER ? GRAIL_ERR_BUSY
                                        : rc == OMPI_ERR_OUT_OF_RESOURCE ? GRAIL_ERR_NO_MEMORY
                                                                         : GRAIL_ERR_PEER;
        send_finish(send);
        return GRAIL_OK;
    }
    status = send_begin(send);
    if (status == GRAIL_OK)
        send_finish(send);
    else if (status == GRAIL_IN_PROGRESS)
        send_list(send);
    return grail_status_is_error(status) ? status : GRAIL_OK;
}

/* The long way of a blocking or nonblocking send. GRAIL_IN_PROGRESS: *left is under way; otherwise
 * *rc is the result. */
static grail_status_t send_any(const send_args_t *args, bool blocking, grail_send_req_t **left,
                               int *rc)
{
    grail_send_req_t *send = grail_send_get(blocking);
    grail_status_t status;

    if (send == NULL) {
        *rc = OMPI_ERR_OUT_OF_RESOURCE;
        return GRAIL_ERR_NO_MEMORY;
    }
    send_fill(send, args);
    if (args->mode == MCA_PML_BASE_SEND_BUFFERED) {
        *rc = bsend_start(send);
        grail_req_recycle(&send->req);
        return GRAIL_OK;
    }
    grail_req_describe(&send->req);
    status = send_begin(send);
    if (status == GRAIL_IN_PROGRESS) {
        send_list(send);
        *left = send;
        return status;
    }
    *rc = grail_pml_error(status);
    grail_req_recycle(&send->req);
    return status;
}

/*
 * A send that is not brief, under the lock. GRAIL_IN_PROGRESS: *left is under way; otherwise *rc is
 * the result.
 */
static grail_status_t send_long(const send_args_t *args, bool blocking, grail_send_req_t **left,
                                int *rc)
{
    grail_status_t status = send_small(args, blocking, left);

    *rc = OMPI_SUCCESS;
    if (status == GRAIL_OK || status == GRAIL_IN_PROGRESS)
        return status;
    if (status == GRAIL_ERR_UNSUPPORTED)
        return send_any(args, blocking, left, rc);
    *rc = grail_pml_error(status);
    grail_req_recycle(&(*left)->req);
    return status;
}

static __attribute__((noinline)) int send_blocking(const send_args_t *args)
{
    grail_send_req_t *send;
    int rc;

    if (send_long(args, true, &send, &rc) == GRAIL_IN_PROGRESS) {
        grail_pml_unlock();
        grail_req_wait(&send->req);
        grail_pml_lock();
        rc = send->req.ompi.req_status.MPI_ERROR;
        grail_req_recycle(&send->req);
    }
    return rc;
}

static __attribute__((noinline)) int send_nonblocking(const send_args_t *args,
                                                      ompi_request_t **request)
{
    grail_send_req_t *send;
    int rc;

    if (send_long(args, false, &send, &rc) == GRAIL_IN_PROGRESS) {
        /* It may have ended inside the call: then the references are not needed. */
        if (!send->req.protocol_done)
            grail_req_retain(&send->req);
        *request = &send->req.ompi;
    }
    return rc;
}

int grail_pml_send(const void *buffer, size_t count, ompi_datatype_t *type, int rank, int tag,
                   mca_pml_base_send_mode_t mode, ompi_communicator_t *comm)
{
    int rc = OMPI_SUCCESS;

    if (GRAIL_UNLIKELY(rank == MPI_PROC_NULL))
        return OMPI_SUCCESS;
    grail_pml_lock();
    if (GRAIL_UNLIKELY(!send_brief(buffer, count, type, rank, tag, mode, comm)))
        rc = send_blocking(&(send_args_t){buffer, count, type, rank, tag, mode, comm});
    grail_pml_unlock();
    return rc;
}

int grail_pml_isend(const void *buffer, size_t count, ompi_datatype_t *type, int rank, int tag,
                    mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
                    ompi_request_t **request)
{
    int rc = OMPI_SUCCESS;

    /* What a finished send's status tells is always the same, so one request serves all. */
    *request = &ompi_request_empty;
    if (GRAIL_UNLIKELY(rank == MPI_PROC_NULL))
        return OMPI_SUCCESS;
    grail_pml_lock();
    if (GRAIL_UNLIKELY(!send_brief(buffer, count, type, rank, tag, mode, comm)))
        rc = send_nonblocking(&(send_args_t){buffer, count, type, rank, tag, mode, comm}, request);
    grail_pml_unlock();
    return rc;
}

int grail_pml_isend_init(const void *buffer, size_t count, ompi_datatype_t *type, int rank,
                         int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
                         ompi_request_t **request)
{
    const send_args_t args = {buffer, count, type, rank, tag, mode, comm};
    grail_send_req_t *send;

    grail_pml_lock();
    send = grail_send_get(false);
    if (send == NULL) {
        grail_pml_unlock();
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    send_fill(send, &args);
    OMPI_REQUEST_INIT(&send->req.ompi, true);
    send->req.ompi.req_status = ompi_status_empty;
    send->req.protocol_done = true;
    grail_req_retain(&send->req);
    *request = &send->req.ompi;
    grail_pml_unlock();
    return OMPI_SUCCESS;
}
