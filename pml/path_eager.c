/* SPDX-License-Identifier: BSD-3-Clause */
/* Small device messages that go at once through host memory. */
#include "pml/transfer.h"

#include "cuda-aware/gdr.h"
#include "pml/device.h"
#include "pml/pml_grail.h"
#include "runtime/log.h"

static void eager_done(void *arg, grail_status_t status, size_t length)
{
    grail_transfer_t *t = arg;

    (void)length;
    t->moving = false;
    if (status != GRAIL_OK)
        grail_peer_fail(t->peer, status, "a device message could not be delivered");
    else
        grail_transfer_finish(t, GRAIL_OK);
}

/* The receiver waits for this sequence number whatever happens here: give it an error to match. */
static void send_failure(grail_transfer_t *t, grail_send_req_t *send, grail_status_t status)
{
    struct {
        grail_wire_match_t match;
        grail_offer_t offer;
    } header = {
        .match = send->header.match,
        .offer = { .length = t->length, .flags = GRAIL_OFFER_FAILED }
    };
    header.match.kind = GRAIL_WIRE_DEVICE;
    grail_control_send_as(t->peer, GRAIL_MSG_MATCH, &header, sizeof(header));
    grail_transfer_finish(t, status);
}

static void send_bounce(grail_transfer_t *t, grail_send_req_t *send)
{
    grail_net_buffer_t buffer = { .address = t->bounce, .length = t->length };
    grail_net_endpoint_t *endpoint;
    grail_handle_t handle = t->handle;
    grail_status_t status;

    if (grail_peer_endpoint(t->peer, &endpoint) != GRAIL_OK) {
        if (grail_transfer_find(handle) == t)       /* not ended with the peer */
            grail_transfer_finish(t, GRAIL_ERR_PEER);
        return;
    }
    grail_transfer_deactivate(t);
    t->moving = true;
    status = grail_net_send(grail_pml.net, endpoint, GRAIL_MSG_MATCH, &send->header.match,
                            sizeof(send->header.match), &buffer, GRAIL_NET_SEND_EAGER, eager_done,
                            t);
    if (status != GRAIL_IN_PROGRESS)
        eager_done(t, status, t->length);
}

static unsigned step_eager(grail_transfer_t *t)
{
    grail_send_req_t *send = GRAIL_CONTAINER_OF(t->req, grail_send_req_t, req);
    grail_status_t status = grail_copy_test(&t->copy);

    if (status == GRAIL_IN_PROGRESS)
        return 0;
    t->copying = false;
    if (status == GRAIL_OK)
        send_bounce(t, send);
    else
        send_failure(t, send, status);
    return 1;
}

/* A synchronous sender must hear of the match, which no other answer implies here. */
static void take_number(grail_send_req_t *send)
{
    bool sync = send->mode == MCA_PML_BASE_SEND_SYNCHRONOUS;

    grail_send_match_header(send, GRAIL_WIRE_DATA, &send->header.match);
    if (sync)
        send->header.match.flags = GRAIL_WIRE_SYNC;
}

grail_status_t grail_eager_send(grail_transfer_t *t)
{
    grail_send_req_t *send = GRAIL_CONTAINER_OF(t->req, grail_send_req_t, req);
    grail_status_t status = GRAIL_OK;

    if (send->mode == MCA_PML_BASE_SEND_SYNCHRONOUS)
        status = grail_req_handle(&send->req);
    if (status == GRAIL_OK)
        status = grail_staging_get(&t->bounce);
    if (status != GRAIL_OK)
        return status;
    t->path = GRAIL_PATH_DEVICE_EAGER;
    if (t->layout == NULL && grail_gdr_available() &&
        grail_gdr_read(&t->mem, t->bounce, t->data, t->length) == GRAIL_OK) {
        take_number(send);
        send_bounce(t, send);
        return GRAIL_OK;
    }
    if (t->layout != NULL)
        status = grail_transfer_pack(t, GRAIL_LANE_OUT, 0, t->length, t->bounce, &t->copy);
    else
        status = grail_copy_start(t->gpu, GRAIL_LANE_OUT, t->bounce, t->data, t->length, &t->copy);
    if (status != GRAIL_OK) {
        grail_staging_put(t->bounce);
        t->bounce = NULL;
        return status;
    }
    t->copying = true;
    take_number(send);
    t->step = step_eager;
    grail_transfer_activate(t);
    return GRAIL_OK;
}
