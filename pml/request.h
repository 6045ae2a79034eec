/* SPDX-License-Identifier: BSD-3-Clause */
/* Send and receive requests, and how a protocol finishes them. */
#ifndef GRAIL_PML_REQUEST_H
#define GRAIL_PML_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "cuda-aware/memory.h"
#include "pml/message.h"
#include "pml/ompi_compat.h"
#include "pml/peer.h"
#include "pml/pml_grail.h"
#include "pml/walk.h"
#include "pml/wire.h"
#include "runtime/status.h"

struct grail_comm;

/* Fields common to both directions. All of it is guarded by the PML's lock. */
typedef struct grail_req {
    ompi_request_t ompi;                /* first: the handle the application holds */
    void *buffer;                       /* as given by the application */
    void *data;                         /* first byte, set by grail_req_describe() */
    size_t count;
    ompi_datatype_t *datatype;          /* retained */
    ompi_communicator_t *comm;
    struct grail_comm *state;           /* comm->c_pml_comm */
    grail_peer_t *peer;                 /* receives: the matched source */
    size_t bytes;                       /* packed size of count elements */
    int tag;
    int rank;                           /* destination, or source as posted */
    grail_handle_t handle;              /* 0 until a protocol needs to be answered */
    struct grail_device_transfer *device; /* owned by the device protocols */
    bool is_send;
    bool contiguous;                    /* one block of memory at buffer + true_lb */
    bool on_device;                     /* the buffer is served by device.h */
    bool free_called;
    bool protocol_done;
    bool retained;                      /* holds references to datatype and communicator */
    bool blocking;                      /* only its creator waits, in grail_req_wait() */
    bool listed;                        /* in grail_pml.sends or grail_pml.moving */
    uint32_t watched;                   /* the watcher's: when it first saw this, 0 not yet */
    uint32_t watch_next;                /* the watcher's: when it reports next */
    grail_walk_t *walk;                 /* host pack/unpack; NULL until it is needed */
} grail_req_t;

typedef struct grail_send_req {
    grail_req_t req;
    TAILQ_ENTRY(grail_send_req) list;   /* of grail_pml.sends */
    grail_status_t status;              /* first error */
    mca_pml_base_send_mode_t mode;
    void *bsend_copy;                   /* buffered mode: what is really sent */
    bool matched;                       /* synchronous mode: the receiver has matched */
    bool sent;                          /* the transport is done with the buffer */
    union {                             /* header in flight, valid until the net is done */
        grail_wire_match_t match;
        unsigned char bytes[GRAIL_NET_HEADER_MAX];
    } header;
} grail_send_req_t;

typedef struct grail_recv_req {
    grail_req_t req;
    TAILQ_ENTRY(grail_recv_req) posted; /* in the specific or the wildcard queue, then `moving` */
    struct grail_recv_req *next_spare;
    uint64_t order;                     /* of posting, decides between the two queues */
    bool is_posted;
    size_t length;                      /* its payload bytes */
    void *token;                        /* net rendezvous being fetched */
    uint64_t buffer_id;                 /* of the device buffer when it was posted; 0: unknown */
} grail_recv_req_t;

/* First byte of the data: buffer + true lower bound (matters for MPI_BOTTOM and resized types). */
static inline void *grail_req_data(const grail_req_t *req)
{
    return req->data;
}

OBJ_CLASS_DECLARATION(grail_send_req_t);
OBJ_CLASS_DECLARATION(grail_recv_req_t);

/* Lists of free requests. */
int grail_requests_init(void);
void grail_requests_fini(void);

/*
 * A free request; NULL when out of memory (logged). The caller fills in the arguments of the MPI
 * call; bytes, contiguous and on_device are set by grail_req_describe() at each start.
 */
grail_send_req_t *grail_send_get_slow(void);
grail_recv_req_t *grail_recv_get_slow(void);

/* Ends what was made for one operation: walk and handle. */
void grail_req_clean(grail_req_t *req);

/* Releases all that the request holds and puts it back. */
void grail_req_recycle(grail_req_t *req);

static inline void grail_req_reset(grail_req_t *req, bool blocking)
{
    req->free_called = false;
    req->protocol_done = false;
    req->blocking = blocking;
    req->watched = 0;
}

static inline grail_send_req_t *grail_send_get(bool blocking)
{
    grail_send_req_t *send = grail_pml.spare_send;

    if (GRAIL_LIKELY(send != NULL))
        grail_pml.spare_send = NULL;
    else if ((send = grail_send_get_slow()) == NULL)
        return NULL;
    grail_req_reset(&send->req, blocking);
    return send;
}

static inline grail_recv_req_t *grail_recv_get(bool blocking)
{
    grail_recv_req_t *recv = grail_pml.spare_recvs;

    if (GRAIL_LIKELY(recv != NULL))
        grail_pml.spare_recvs = recv->next_spare;
    else if ((recv = grail_recv_get_slow()) == NULL)
        return NULL;
    grail_req_reset(&recv->req, blocking);
    return recv;
}

static inline void grail_recv_put(grail_recv_req_t *recv)
{
    recv->next_spare = grail_pml.spare_recvs;
    grail_pml.spare_recvs = recv;
}

/* Puts back a request that only its blocking creator knows. */
static inline void grail_recv_put_blocking(grail_recv_req_t *recv)
{
    grail_req_t *req = &recv->req;

    if (GRAIL_UNLIKELY(req->walk != NULL || req->handle != 0))
        grail_req_recycle(req);
    else
        grail_recv_put(recv);
}

/* Takes references for a request that outlives the MPI call that made it. */
static inline void grail_req_retain(grail_req_t *req)
{
    req->retained = true;
    OMPI_DATATYPE_RETAIN(req->datatype);
    OBJ_RETAIN(req->comm);
}

/* One block of memory, `true_lb` after the buffer's address. */
static inline bool grail_type_is_block(const opal_datatype_t *type, size_t count)
{
    return (type->flags & OPAL_DATATYPE_FLAG_CONTIGUOUS) != 0 &&
           (count == 1 || (type->flags & OPAL_DATATYPE_FLAG_NO_GAPS) != 0);
}

/* bytes, contiguous, on_device of buffer, count and datatype. */
static inline void grail_req_describe(grail_req_t *req)
{
    const opal_datatype_t *type = &req->datatype->super;

    req->data = (char *)req->buffer + type->true_lb;
    req->bytes = type->size * req->count;
    req->contiguous = grail_type_is_block(type, req->count);
    req->on_device = req->bytes != 0 && grail_mem_is_device(req->data);
}

/* Progress until a blocking request is complete. */
void grail_req_wait(grail_req_t *req);

/* The MPI request is complete: tells whoever waits, or recycles what was freed while active. The
 * request must not be touched afterwards. */
static inline void grail_req_complete(grail_req_t *req)
{
    req->protocol_done = true;
    if (req->blocking) {
        opal_atomic_wmb();
        req->ompi.req_complete = REQUEST_COMPLETED;
        return;
    }
    if (GRAIL_UNLIKELY(req->walk != NULL || req->handle != 0))
        grail_req_clean(req);
    if (GRAIL_UNLIKELY(req->free_called))
        grail_req_recycle(req);
    else
        ompi_request_complete(&req->ompi, true);
}

/* Gives the request a handle that a peer can name (idempotent). */
grail_status_t grail_req_handle(grail_req_t *req);

/* Buffer of a host request as the net wants it. Errors: GRAIL_ERR_NO_MEMORY (logged). */
grail_status_t grail_req_net_buffer(grail_req_t *req, grail_net_buffer_t *buffer);

/* Starts a send whose fields are set (persistent and not). On an error nothing was sent. */
grail_status_t grail_send_start(grail_send_req_t *send);

/* Posts a receive: matches an unexpected message or waits in the queues. */
void grail_recv_post(grail_recv_req_t *recv);

/* Ends a receive that is still in the queues. */
void grail_recv_unpost(grail_recv_req_t *recv);

/* Removes and gives the first unexpected message that fits; NULL: none. */
grail_msg_t *grail_match_take(struct grail_comm *state, int rank, int tag);
/* The same without removing it: for probe. */
const grail_msg_t *grail_match_find(struct grail_comm *state, int rank, int tag);
/* Frees a queued message; its token is dropped unless it was taken. */
void grail_msg_free(grail_msg_t *msg);
/* Payload bytes as the receiver's status tells them. */
size_t grail_msg_payload(const grail_msg_t *msg);
/*
 * The data of a device offer that was sent earlier, by a sender that waits no longer for its
 * receive. It takes the offer's place where that is still queued, and the sender is told: REPLACED;
 * MISSED when it is not.
 */
void grail_match_replace(const grail_wire_match_t *match, grail_handle_t transfer,
                         const void *data, size_t length);
/* A communicator came to life: hand it the messages that were early. */
void grail_match_adopt(struct grail_comm *state);

/* Frees the pool of message objects. */
void grail_match_fini(void);

/* Handlers of the net */
grail_net_verdict_t grail_match_handler(void *arg, grail_net_message_t *message);
grail_net_verdict_t grail_brief_handler(void *arg, grail_net_message_t *message);
grail_net_verdict_t grail_control_handler(void *arg, grail_net_message_t *message);
grail_net_verdict_t grail_chunk_handler(void *arg, grail_net_message_t *message);

/*
 * Sequence number and fields of a message's match header. Call once per message, in the order in
 * which MPI was called: receivers match in this order, whatever path each message takes.
 */
void grail_send_match_header(grail_send_req_t *send, uint8_t kind, grail_wire_match_t *match);

/* Host data of a send into or out of `packed`, any datatype, at ascending offsets. */
grail_status_t grail_req_pack(grail_req_t *req, size_t offset, void *packed, size_t length);
grail_status_t grail_req_unpack(grail_req_t *req, size_t offset, const void *packed, size_t length);

/*
 * The transport no longer needs the send buffer (or failed). Completes the MPI request once, for
 * synchronous mode, the match was acknowledged too (grail_send_matched()).
 */
void grail_send_done(grail_send_req_t *send, grail_status_t status);
void grail_send_matched(grail_send_req_t *send);

/* All data of `length` bytes has arrived (or status says why not); sets the MPI status. */
void grail_recv_done(grail_recv_req_t *recv, grail_status_t status, size_t length);

/* Ends a receive whose data the net was fetching from a peer that is gone. False: that is not what it
 * waits for. */
bool grail_recv_abandon(grail_recv_req_t *recv, grail_status_t status);

/* Tell a synchronous sender that its message has been matched; a no-op for other messages. The
 * device protocols need not call it when their own answer implies the match. */
void grail_match_acknowledge(grail_peer_t *peer, const grail_wire_match_t *match);

/* A message has been matched: set up peer, match, length of the receive, then move the data by the
 * path that buffer kinds and message ask for. Host to host stays inside; else device.h. */
void grail_recv_deliver(grail_recv_req_t *recv, grail_msg_t *msg);

#endif
