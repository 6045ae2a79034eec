/* SPDX-License-Identifier: BSD-3-Clause */
/* Life of requests: lists of free ones, host pack and unpack, completion, cancel and free. */
#include "pml/request.h"

#include <sched.h>

#include "pml/comm.h"
#include "pml/datatype.h"
#include "pml/pml_grail.h"
#include "runtime/log.h"

/* Spins on our own progress between two rounds of everybody's, as stock PMLs do. */
enum { SPINS = 100, REQUESTS_GROW = 64 };

static int req_free(ompi_request_t **handle);
static int req_cancel(ompi_request_t *request, int flag);

static void req_construct(grail_req_t *req, bool is_send)
{
    req->ompi.req_type = OMPI_REQUEST_PML;
    req->ompi.req_start = grail_pml_start;
    req->ompi.req_free = req_free;
    req->ompi.req_cancel = req_cancel;
    req->is_send = is_send;
    req->handle = 0;
    req->device = NULL;
    req->peer = NULL;
    req->retained = false;
    req->listed = false;
    req->walk = NULL;
}

static void send_construct(grail_send_req_t *send)
{
    req_construct(&send->req, true);
    send->bsend_copy = NULL;
}

static void recv_construct(grail_recv_req_t *recv)
{
    req_construct(&recv->req, false);
    recv->is_posted = false;
}

OBJ_CLASS_INSTANCE(grail_send_req_t, ompi_request_t, send_construct, NULL);
OBJ_CLASS_INSTANCE(grail_recv_req_t, ompi_request_t, recv_construct, NULL);

int grail_requests_init(void)
{
    int rc;

    OBJ_CONSTRUCT(&grail_pml.send_requests, opal_free_list_t);
    OBJ_CONSTRUCT(&grail_pml.recv_requests, opal_free_list_t);
    rc = opal_free_list_init(&grail_pml.send_requests, sizeof(grail_send_req_t),
                             opal_cache_line_size, OBJ_CLASS(grail_send_req_t), 0, 0,
                             REQUESTS_GROW, -1, REQUESTS_GROW, NULL, 0, NULL, NULL, NULL);
    if (rc == OPAL_SUCCESS)
        rc = opal_free_list_init(&grail_pml.recv_requests, sizeof(grail_recv_req_t),
                                 opal_cache_line_size, OBJ_CLASS(grail_recv_req_t), 0, 0,
                                 REQUESTS_GROW, -1, REQUESTS_GROW, NULL, 0, NULL, NULL, NULL);
    if (rc != OPAL_SUCCESS)
        grail_error("out of host memory for requests");
    return rc;
}

void grail_requests_fini(void)
{
    grail_pml.spare_send = NULL;
    grail_pml.spare_recvs = NULL;
    OBJ_DESTRUCT(&grail_pml.send_requests);
    OBJ_DESTRUCT(&grail_pml.recv_requests);
    grail_handle_table_clear(&grail_pml.handles);
}

grail_send_req_t *grail_send_get_slow(void)
{
    grail_send_req_t *send =
        (grail_send_req_t *)opal_free_list_get_st(&grail_pml.send_requests);

    if (send == NULL)
        grail_error("out of host memory for a send request");
    return send;
}

grail_recv_req_t *grail_recv_get_slow(void)
{
    grail_recv_req_t *recv =
        (grail_recv_req_t *)opal_free_list_get_st(&grail_pml.recv_requests);

    if (recv == NULL)
        grail_error("out of host memory for a receive request");
    return recv;
}

void grail_req_clean(grail_req_t *req)
{
    if (req->walk != NULL) {
        grail_walk_free(req->walk);
        req->walk = NULL;
    }
    if (req->handle != 0) {
        grail_handle_free(&grail_pml.handles, req->handle);
        req->handle = 0;
    }
}

void grail_req_recycle(grail_req_t *req)
{
    if (GRAIL_UNLIKELY(req->walk != NULL || req->handle != 0))
        grail_req_clean(req);
    if (req->retained) {
        req->retained = false;
        OMPI_DATATYPE_RELEASE(req->datatype);
        OBJ_RELEASE(req->comm);
    }
    if (!req->blocking)
        OMPI_REQUEST_FINI(&req->ompi);
    if (req->is_send) {
        if (grail_pml.spare_send == NULL)
            grail_pml.spare_send = (grail_send_req_t *)req;
        else
            opal_free_list_return_st(&grail_pml.send_requests, &req->ompi.super);
    } else {
        grail_recv_put((grail_recv_req_t *)req);
    }
}

/* MPI_Request_free, MPI_Wait and MPI_Test of the requests that the application holds. */
static int req_free(ompi_request_t **handle)
{
    grail_req_t *req = (grail_req_t *)*handle;

    *handle = MPI_REQUEST_NULL;
    grail_pml_lock();
    if (GRAIL_LIKELY(req->protocol_done))
        grail_req_recycle(req);
    else
        req->free_called = true;
    grail_pml_unlock();
    return OMPI_SUCCESS;
}

static int req_cancel(ompi_request_t *request, int flag)
{
    grail_req_t *req = (grail_req_t *)request;

    /* A send is on its way as soon as it was started, and cannot be called back. */
    if (!flag || req->is_send)
        return OMPI_SUCCESS;
    grail_pml_lock();
    if (!req->protocol_done && ((grail_recv_req_t *)req)->is_posted) {
        grail_recv_req_t *recv = (grail_recv_req_t *)req;

        grail_recv_unpost(recv);
        req->ompi.req_status._cancelled = 1;
        grail_recv_done(recv, GRAIL_ERR_CANCELLED, 0);
    }
    grail_pml_unlock();
    return OMPI_SUCCESS;
}

void grail_req_wait(grail_req_t *req)
{
    for (;;) {
        for (int i = 0; i < SPINS; i++) {
            if (REQUEST_COMPLETE(&req->ompi)) {
                opal_atomic_rmb();
                return;
            }
            if (GRAIL_LIKELY(grail_pml_trylock())) {
                grail_pml_progress_locked();
                grail_pml_unlock();
            } else {
                sched_yield();  /* the thread that holds the lock advances our request too */
            }
        }
        opal_progress();
    }
}

grail_status_t grail_req_handle(grail_req_t *req)
{
    if (req->handle != 0)
        return GRAIL_OK;
    return grail_handle_new(&grail_pml.handles, req, &req->handle);
}

grail_status_t grail_req_net_buffer(grail_req_t *req, grail_net_buffer_t *buffer)
{
    if (GRAIL_LIKELY(req->contiguous)) {
        buffer->address = grail_req_data(req);
        buffer->length = req->bytes;
        buffer->type = NULL;
        return GRAIL_OK;
    }
    buffer->address = req->buffer;
    buffer->length = req->count;
    return grail_pml_net_type(req->datatype, &buffer->type);
}

static grail_walk_t *req_walk(grail_req_t *req)
{
    if (req->walk == NULL)
        req->walk = grail_walk_new(req->datatype, req->buffer, req->count, req->is_send);
    return req->walk;
}

grail_status_t grail_req_pack(grail_req_t *req, size_t offset, void *packed, size_t length)
{
    if (length == 0)
        return GRAIL_OK;
    if (req->contiguous) {
        memcpy(packed, (char *)grail_req_data(req) + offset, length);
        return GRAIL_OK;
    }
    if (req_walk(req) == NULL)
        return GRAIL_ERR_NO_MEMORY;
    return grail_walk_pack(req->walk, offset, packed, length) == length ? GRAIL_OK
                                                                        : GRAIL_ERR_INVALID;
}

grail_status_t grail_req_unpack(grail_req_t *req, size_t offset, const void *packed, size_t length)
{
    if (length == 0)
        return GRAIL_OK;
    if (req->contiguous) {
        memcpy((char *)grail_req_data(req) + offset, packed, length);
        return GRAIL_OK;
    }
    if (req_walk(req) == NULL)
        return GRAIL_ERR_NO_MEMORY;
    return grail_walk_unpack(req->walk, offset, packed, length);
}
