/* SPDX-License-Identifier: BSD-3-Clause */
/* Device messages: what matching and requests ask of the device protocols. */
#ifndef GRAIL_PML_DEVICE_H
#define GRAIL_PML_DEVICE_H

#include "pml/request.h"

/* Nonzero while grail_device_progress() has something to do. */
extern unsigned grail_device_active;

/*
 * Start a send whose buffer is device memory. Takes the match header's sequence number at once and
 * ends in grail_send_done(). On an error return nothing was sent and no sequence was consumed.
 */
grail_status_t grail_device_send(grail_send_req_t *send);

/*
 * Receive a matched message when the receive buffer is device memory (any message kind), or the
 * message is an offer of a device sender (GRAIL_WIRE_DEVICE, any receive buffer). Consumes what it
 * needs of `msg` before it returns, or takes its token. Ends in grail_recv_done(), errors too.
 */
void grail_device_recv(grail_recv_req_t *recv, grail_msg_t *msg);

/* Handlers of GRAIL_MSG_CONTROL (ops from GRAIL_CONTROL_DEVICE_FIRST) and GRAIL_MSG_CHUNK. */
void grail_device_control(const grail_wire_control_t *header, size_t length);
grail_net_verdict_t grail_device_chunk(grail_net_message_t *message);

/* Payload bytes of a device offer, for probe and for the status of a receive. */
size_t grail_device_offer_length(const void *body, size_t length);
/* The sender's transfer in it, 0 in one that is malformed or only tells of a failure. */
grail_handle_t grail_device_offer_handle(const void *body, size_t length);

unsigned grail_device_progress(void);

/*
 * The request object is about to be completed, reused or freed while `req->device` is set (a host
 * sender whose payload went by a device path): the device protocols let go of it.
 */
void grail_device_release(grail_req_t *req);

/* The peer failed or goes away: transfers with it end in `status`, mappings are closed. */
void grail_device_peer_gone(grail_peer_t *peer, grail_status_t status);

/* The end, in two steps: gives back what the net still holds for messages, before the net closes (which
 * ends sends and fetches that use memory from here); then frees all. */
void grail_device_leave(void);
void grail_device_fini(void);

/* The state of CUDA as the start report tells it: "CUDA driver 13.0, not used yet". Asks nothing that
 * would create a context. */
void grail_device_describe(char *text, size_t size);

/* All packed bytes of a request's device buffer into pageable host memory, before it returns (for
 * buffered sends). */
grail_status_t grail_device_pack(grail_req_t *req, void *packed);

#endif
