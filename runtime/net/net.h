/* SPDX-License-Identifier: BSD-3-Clause */
/* Host messaging: active messages with a header and a payload of host memory. */
#ifndef GRAIL_RUNTIME_NET_H
#define GRAIL_RUNTIME_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/api.h"
#include "runtime/status.h"

/*
 * A provider (UCX first; libfabric must be possible without touching pml/) moves active messages
 * between processes. It never sees a device pointer. Messages between two processes may arrive in
 * another order than they were sent (the PML numbers them). Whether a payload goes at once or by
 * rendezvous is the provider's choice unless a flag says otherwise.
 *
 * Threads: the caller serialises all calls on one grail_net_t (the PML's lock). Handlers and
 * completion callbacks run inside grail_net_progress(), or inside grail_net_send()/_fetch() of the
 * same thread, and may call back into the net.
 */
typedef struct grail_net grail_net_t;
typedef struct grail_net_endpoint grail_net_endpoint_t;

enum { GRAIL_NET_HANDLERS = 8, GRAIL_NET_HEADER_MAX = 512, GRAIL_NET_SHORT_MAX = 96 };

/* Non-contiguous host memory, walked by the owner's pack and unpack functions. `start` returns a
 * state for one transfer (NULL on failure), `finish` ends it. Offsets ascend without gaps. `pack`
 * writes `max` bytes, fewer only at the end of the data: UCX places a header by what it asked for. */
typedef struct grail_net_layout {
    void *(*start_pack)(void *context, const void *buffer, size_t count);
    void *(*start_unpack)(void *context, void *buffer, size_t count);
    size_t (*packed_size)(void *state);
    size_t (*pack)(void *state, size_t offset, void *dst, size_t max);      /* bytes written */
    grail_status_t (*unpack)(void *state, size_t offset, const void *src, size_t length);
    void (*finish)(void *state);
    void *context;
} grail_net_layout_t;

/* A registered layout; create once per datatype, free with it. */
typedef struct grail_net_type grail_net_type_t;

/* Memory to send from or receive into: `length` bytes, or with `type` set `length` elements. */
typedef struct grail_net_buffer {
    void *address;
    size_t length;
    const grail_net_type_t *type;
} grail_net_buffer_t;

enum {
    GRAIL_NET_SEND_EAGER = 1,   /* never rendezvous: the receiver gets the data with the header */
    GRAIL_NET_SEND_RNDV = 2,    /* always rendezvous: complete only after the receiver fetched */
    GRAIL_NET_SEND_FAST = 4     /* the caller waits for this send next (MPI_Send): prefer a way that
                                   lets the buffer go early, as pml/ucx does */
};

/* An incoming message. Header and data are valid during the handler only, unless kept. */
typedef struct grail_net_message {
    const void *header;
    size_t header_length;
    void *data;                 /* NULL for a rendezvous */
    size_t length;              /* payload bytes */
    bool rndv;                  /* payload must be fetched or dropped */
    bool sender_done;           /* rndv, but its sender may have completed all the same (parts of the
                                   data were copied on their way) */
    bool may_keep;              /* data stays valid after return when the handler says KEEP */
    void *token;                /* for grail_net_fetch()/grail_net_drop() */
} grail_net_message_t;

typedef enum grail_net_verdict {
    GRAIL_NET_DONE,             /* the message has been consumed (for a rendezvous: dropped, unless
                                   it was fetched inside the handler) */
    GRAIL_NET_KEEP              /* kept: exactly one of fetch (rendezvous) or drop follows, or was
                                   already called inside the handler */
} grail_net_verdict_t;

typedef grail_net_verdict_t (*grail_net_handler_fn)(void *arg, grail_net_message_t *message);
typedef void (*grail_net_done_fn)(void *arg, grail_status_t status, size_t length);
/*
 * A connection broke or its process died: called once per endpoint, after the sends in flight on it
 * have completed with GRAIL_ERR_PEER; later sends on it return GRAIL_ERR_PEER. The net does not log
 * (it cannot name the rank); the callee does. A fetch from that peer may never complete by itself
 * before grail_net_close(), which completes it with GRAIL_ERR_CANCELLED: see grail_net_abandon().
 * `reason` is valid during the call.
 */
typedef void (*grail_net_error_fn)(void *arg, void *peer, grail_status_t status,
                                   const char *reason);

typedef struct grail_net_params {
    grail_net_handler_fn handlers[GRAIL_NET_HANDLERS];  /* by message id; NULL: unused */
    grail_net_handler_fn short_handler;     /* of grail_net_send_short(): no header, nothing to keep;
                                               its verdict is ignored; NULL: none will come */
    void *handler_arg;
    grail_net_error_fn on_error;   /* a connection broke */
    bool threads;                  /* several threads will call (serialised by the caller) */
    unsigned processes;            /* of the job, and of those on this node: hints for the choice */
    unsigned processes_on_node;    /* of transports; 0 is unknown */
    bool first_on_node;            /* this process warns of what is wrong with the node */
} grail_net_params_t;

/* Opens the provider. Logs and returns an error when none works. */
GRAIL_API grail_status_t grail_net_open(const grail_net_params_t *params, grail_net_t **net);

/* Completes what is in flight with GRAIL_ERR_CANCELLED, drops what is kept, sets every pending
 * `closed`, frees all. Never waits for a peer: callers that need their last messages delivered
 * disconnect without `force` first. Types are freed before. NULL is ignored. */
GRAIL_API void grail_net_close(grail_net_t *net);
GRAIL_API const char *grail_net_provider(const grail_net_t *net);   /* "ucx 1.13.1" */

/* This process's address, to be published; the net owns it until close. */
GRAIL_API grail_status_t grail_net_address(grail_net_t *net, const void **address, size_t *length);

/* Lazy connection; `peer` is given to on_error. */
GRAIL_API grail_status_t grail_net_connect(grail_net_t *net, const void *address, size_t length,
                                           void *peer, grail_net_endpoint_t **endpoint);

/*
 * Starts to close; flushes first unless `force`, which fails the sends in flight with
 * GRAIL_ERR_CANCELLED and is complete on return. Completion in *closed (set to true by this call,
 * by progress or by grail_net_close()); `closed` must stay valid until then, and the endpoint must
 * not be used any more. An endpoint whose peer is gone closes as if forced.
 */
GRAIL_API grail_status_t grail_net_disconnect(grail_net_t *net, grail_net_endpoint_t *endpoint,
                                              bool force, bool *closed);

/*
 * Sends `header` (up to GRAIL_NET_HEADER_MAX bytes) and `buffer` (NULL: none) to handler `id`.
 * GRAIL_OK: complete, `done` will not be called. GRAIL_IN_PROGRESS: `done` will be called once, and
 * header and buffer must stay valid until then. Otherwise nothing was sent.
 */
GRAIL_API grail_status_t grail_net_send(grail_net_t *net, grail_net_endpoint_t *endpoint,
                                        unsigned id, const void *header, size_t header_length,
                                        const grail_net_buffer_t *buffer, unsigned flags,
                                        grail_net_done_fn done, void *arg);

/*
 * The short way for a message of up to GRAIL_NET_SHORT_MAX bytes without a header, which the peer's
 * short_handler gets as its payload. GRAIL_OK: sent, `data` is free. GRAIL_ERR_BUSY: not possible at
 * once, nothing was sent; take grail_net_send().
 */
GRAIL_API grail_status_t grail_net_send_short(grail_net_endpoint_t *endpoint, const void *data,
                                              size_t length);

/*
 * Fetches a kept rendezvous payload into `buffer`; a longer payload ends in GRAIL_ERR_TRUNCATED
 * with nothing written past the buffer. GRAIL_OK/GRAIL_IN_PROGRESS as for send. `done`'s length is
 * the payload's.
 */
GRAIL_API grail_status_t grail_net_fetch(grail_net_t *net, void *token,
                                         const grail_net_buffer_t *buffer, grail_net_done_fn done,
                                         void *arg);

/*
 * Gives up the fetches that were started with `arg`, whose buffer the caller needs back: `done` will
 * not be called any more. For a peer that is gone only: nothing else keeps the provider from writing
 * to the buffer. False when there is none.
 */
GRAIL_API bool grail_net_abandon(grail_net_t *net, const void *arg);

/* Releases a kept message; a rendezvous that was not fetched completes at its sender. */
GRAIL_API void grail_net_drop(grail_net_t *net, void *token);

GRAIL_API grail_status_t grail_net_type_create(grail_net_t *net, const grail_net_layout_t *layout,
                                               grail_net_type_t **type);
GRAIL_API void grail_net_type_free(grail_net_type_t *type);

/*
 * Memory that goes away while the provider may have it registered. A caller that sees every
 * unmapping of this process (Open MPI's memory hooks) calls grail_net_external_hooks() before
 * grail_net_open(), then grail_net_memory_released() from its hook, at any time and from any
 * thread; neither takes a lock of the caller's. Without this a provider installs hooks of its own
 * where it needs them.
 */
GRAIL_API void grail_net_external_hooks(void);
GRAIL_API void grail_net_memory_released(void *address, size_t length);

/* Advances everything; returns the number of events handled. */
GRAIL_API unsigned grail_net_progress(grail_net_t *net);

#endif
