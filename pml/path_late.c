/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small device messages whose receive is late. An offer waits for its receive, other libraries copy
 * such a message aside, and programs rely on that. So an offer that stays unanswered is replaced at
 * the receiver by the data. The receiver answers: REPLACED, or MISSED when the offer is in no queue
 * there. Then it has been matched, and its own answer (GO, FINISHED) is on the way, or it has not
 * arrived yet, and another try follows.
 */
#include "pml/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "pml/choice.h"
#include "pml/device.h"
#include "pml/pml_grail.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/options.h"

/* Progress calls between two looks at the clock; those that must have been made before a message is
 * late (a program that computed for long has not waited); growth of the wait from try to try. */
enum { CALLS_PER_LOOK = 16, CALLS_AT_LEAST = 64, RETRY_FACTOR = 4 };

static struct grail_late_list waiting = TAILQ_HEAD_INITIALIZER(waiting);
static uint32_t calls;

/* Data on its way to the receiver. It does not need the transfer, which may end before it. */
typedef struct late_packet {
    grail_peer_t *peer;
    grail_wire_replace_t header;
    unsigned char data[];
} late_packet_t;

/* Ordered by time; nearly always at the end. */
static void wait_for_answer(grail_transfer_t *t)
{
    grail_transfer_t *other;

    t->late = GRAIL_LATE_WAITING;
    t->late_due = grail_clock_ns() + t->late_wait;
    t->late_calls = calls;
    if (TAILQ_EMPTY(&waiting))
        grail_device_active++;
    TAILQ_FOREACH_REVERSE(other, &waiting, grail_late_list, late_link) {
        if (other->late_due <= t->late_due) {
            TAILQ_INSERT_AFTER(&waiting, other, t, late_link);
            return;
        }
    }
    TAILQ_INSERT_HEAD(&waiting, t, late_link);
}

static void stop_waiting(grail_transfer_t *t)
{
    TAILQ_REMOVE(&waiting, t, late_link);
    if (TAILQ_EMPTY(&waiting))
        grail_device_active--;
    t->late = GRAIL_LATE_NONE;
}

void grail_late_arm(grail_transfer_t *t)
{
    const grail_send_req_t *send = GRAIL_CONTAINER_OF(t->req, grail_send_req_t, req);

    if (send->mode != MCA_PML_BASE_SEND_STANDARD ||
        !grail_choice_late(t->length, &grail_options))
        return;
    t->late_wait = (uint64_t)(grail_options.eager_wait * 1000);
    wait_for_answer(t);
}

void grail_late_disarm(grail_transfer_t *t)
{
    switch (t->late) {
    case GRAIL_LATE_WAITING:
        stop_waiting(t);
        break;
    case GRAIL_LATE_COPYING:
        /* microseconds; the chunk must not be given to others before */
        while (grail_copy_test(&t->copy) == GRAIL_IN_PROGRESS)
            ;
        grail_staging_put(t->bounce);
        t->bounce = NULL;
        grail_transfer_deactivate(t);
        break;
    default:
        break;
    }
    t->late = GRAIL_LATE_NONE;
}

static void packet_done(void *arg, grail_status_t status, size_t length)
{
    late_packet_t *packet = arg;

    (void)length;
    if (status != GRAIL_OK)
        grail_peer_fail(packet->peer, status, "a device message could not be delivered");
    free(packet);
}

/* The data is in t->bounce. May end the transfer (the connection broke). */
static void send_packet(grail_transfer_t *t)
{
    const grail_send_req_t *send = GRAIL_CONTAINER_OF(t->req, grail_send_req_t, req);
    late_packet_t *packet = malloc(sizeof(*packet) + t->length);
    grail_net_buffer_t buffer = {.length = t->length};
    grail_net_endpoint_t *endpoint;
    grail_status_t status = GRAIL_ERR_PEER;

    if (packet != NULL) {
        packet->peer = t->peer;
        packet->header = (grail_wire_replace_t){
            .head = {.op = GRAIL_CONTROL_REPLACE, .from = t->handle},
            .match = send->header.match
        };
        memcpy(packet->data, t->bounce, t->length);
        buffer.address = packet->data;
    }
    grail_staging_put(t->bounce);
    t->bounce = NULL;
    t->late = GRAIL_LATE_SENT;
    if (packet == NULL)
        return;                     /* the receive will come without it, if the program is right */
    if (grail_peer_endpoint(t->peer, &endpoint) == GRAIL_OK)
        status = grail_net_send(grail_pml.net, endpoint, GRAIL_MSG_CHUNK, &packet->header,
                                sizeof(packet->header), &buffer, GRAIL_NET_SEND_EAGER, packet_done,
                                packet);
    if (status != GRAIL_IN_PROGRESS)
        packet_done(packet, status, t->length);
}

static unsigned step_copy(grail_transfer_t *t)
{
    grail_status_t status = grail_copy_test(&t->copy);

    if (status == GRAIL_IN_PROGRESS)
        return 0;
    grail_transfer_deactivate(t);
    if (status == GRAIL_OK) {
        send_packet(t);
        return 1;
    }
    /* the receiver learns of it when it answers the offer */
    grail_staging_put(t->bounce);
    t->bounce = NULL;
    t->late = GRAIL_LATE_NONE;
    return 1;
}

/* BUSY: not now. Other errors: the message waits for its receive, which will show what is wrong. */
static grail_status_t start(grail_transfer_t *t)
{
    grail_status_t status;
    uint64_t id;

    if (!grail_mem_identify(grail_req_data(t->req), &id) || (id != 0 && id != t->buffer_id))
        return GRAIL_ERR_STALE;
    status = grail_staging_get(&t->bounce);
    if (status != GRAIL_OK)
        return status;
    if (t->layout != NULL)
        status = grail_transfer_pack(t, GRAIL_LANE_OUT, 0, t->length, t->bounce, &t->copy);
    else
        status = grail_copy_start(t->gpu, GRAIL_LANE_OUT, t->bounce, t->data, t->length, &t->copy);
    if (status != GRAIL_OK) {
        grail_staging_put(t->bounce);
        t->bounce = NULL;
        return status;
    }
    t->late = GRAIL_LATE_COPYING;
    t->step = step_copy;
    grail_transfer_activate(t);
    return GRAIL_OK;
}

unsigned grail_late_progress(void)
{
    grail_transfer_t *t;
    unsigned events = 0;
    uint64_t now;

    if (TAILQ_EMPTY(&waiting) || ++calls % CALLS_PER_LOOK != 0)
        return 0;
    now = grail_clock_ns();
    while ((t = TAILQ_FIRST(&waiting)) != NULL && t->late_due <= now &&
           calls - t->late_calls >= CALLS_AT_LEAST) {
        stop_waiting(t);
        if (start(t) == GRAIL_ERR_BUSY) {
            wait_for_answer(t);
            break;
        }
        events++;
    }
    return events;
}

void grail_late_answer(grail_transfer_t *t, uint32_t op)
{
    if (t->late != GRAIL_LATE_SENT)
        return;
    t->late = GRAIL_LATE_NONE;
    if (op == GRAIL_CONTROL_REPLACED) {
        t->path = GRAIL_PATH_DEVICE_EAGER;
        grail_transfer_finish(t, GRAIL_OK);
    } else {
        t->late_wait *= RETRY_FACTOR;
        wait_for_answer(t);
    }
}
