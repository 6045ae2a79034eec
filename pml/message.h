/* SPDX-License-Identifier: BSD-3-Clause */
/* A message that has arrived: on the handler's stack when it is expected, queued when it is not. */
#ifndef GRAIL_PML_MESSAGE_H
#define GRAIL_PML_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "pml/wire.h"
#include "runtime/net/net.h"

struct grail_peer;

typedef struct grail_msg {
    TAILQ_ENTRY(grail_msg) by_source;   /* unexpected messages of one source */
    TAILQ_ENTRY(grail_msg) by_arrival;  /* unexpected messages of the communicator */
    grail_wire_match_t match;
    struct grail_peer *peer;
    size_t length;          /* payload bytes; for GRAIL_WIRE_DEVICE the body's length */
    const void *data;       /* payload or body; NULL for a rendezvous of the net */
    bool rndv;
    bool sender_done;       /* rndv: the sender may have completed and cannot be asked for anything */
    bool queued;            /* lives in the heap (unexpected), not on the handler's stack */
    bool taken;             /* somebody took the token and will fetch or drop it */
    void *token;            /* of the net; NULL when the data was copied into this object */
} grail_msg_t;

/*
 * Become responsible for the net's token: exactly one grail_net_fetch() or grail_net_drop() must
 * follow. For a message on the handler's stack this also makes the handler return KEEP.
 */
static inline void *grail_msg_take_token(grail_msg_t *msg)
{
    msg->taken = true;
    return msg->token;
}

#endif
