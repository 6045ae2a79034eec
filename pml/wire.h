/* SPDX-License-Identifier: BSD-3-Clause */
/* What travels between two PMLs. Both sides run the same build: native layout, checked at start. */
#ifndef GRAIL_PML_WIRE_H
#define GRAIL_PML_WIRE_H

#include <stdint.h>

#include "runtime/handle.h"

/* Handlers of the net (message ids) */
enum {
    GRAIL_MSG_MATCH,        /* grail_wire_match_t [+ body] + payload: takes part in matching */
    GRAIL_MSG_CONTROL,      /* grail_wire_control_t + body: between two known requests or peers */
    GRAIL_MSG_CHUNK         /* like control, with payload: a piece of a host pipeline */
};

/* What follows the match header */
enum {
    GRAIL_WIRE_DATA,        /* the payload is the message (at once, or rendezvous of the net) */
    GRAIL_WIRE_DEVICE       /* the body is an offer of the device protocols; no payload */
};

enum { GRAIL_WIRE_SYNC = 1 };   /* the sender waits for a GRAIL_CONTROL_MATCHED */

typedef struct grail_wire_match {
    uint32_t cid : 24;      /* communicator's context id (GRAIL_OMPI_MAX_CONTEXT) */
    uint32_t kind : 4;
    uint32_t flags : 4;
    int32_t source;         /* sender's rank in it (remote group of an intercommunicator) */
    int32_t tag;
    /* Per (communicator, sender, receiver), from 0. 32 bits: a device message may leave late, and
     * tens of thousands of host messages may overtake it meanwhile. */
    uint32_t sequence;
    grail_handle_t sender;  /* send request; 0 when nothing will ever be answered */
} grail_wire_match_t;

/*
 * The same for a message of kind GRAIL_WIRE_DATA without flags that nothing will ever be answered to,
 * where the numbers fit. It goes by grail_net_send_short(), header and data in one piece. A cache
 * line that goes from core to core costs up to 0.15 us: with this header and 36 bytes of UCX's own
 * 16 bytes of data go in one, and GRAIL_WIRE_BRIEF_DATA_MAX in two.
 */
typedef struct grail_wire_brief {
    uint32_t from;          /* grail_wire_brief_from() */
    int32_t tag;
    uint32_t sequence;
} grail_wire_brief_t;

#define GRAIL_WIRE_NOT_BRIEF UINT32_MAX

enum { GRAIL_WIRE_BRIEF_DATA_MAX = 80 };

/* Communicator and the sender's rank in it as one number, or GRAIL_WIRE_NOT_BRIEF. */
static inline uint32_t grail_wire_brief_from(uint32_t cid, int source)
{
    return cid < UINT16_MAX && source >= 0 && source < UINT16_MAX ? cid << 16 | (uint32_t)source
                                                                   : GRAIL_WIRE_NOT_BRIEF;
}

_Static_assert(sizeof(grail_wire_brief_t) + 36 + 16 <= 64, "16 bytes go in one cache line");
_Static_assert(sizeof(grail_wire_brief_t) + 36 + GRAIL_WIRE_BRIEF_DATA_MAX <= 128, "two lines");

/* What a control message asks for; values from 16 belong to the device protocols */
enum {
    GRAIL_CONTROL_MATCHED = 1,
    GRAIL_CONTROL_BYE,      /* the sender finalizes; `from` is its process name (grail_peer_key) */
    GRAIL_CONTROL_DEVICE_FIRST = 16
};

typedef struct grail_wire_control {
    uint32_t op;
    uint32_t reserved;
    grail_handle_t to;      /* the receiver's object */
    grail_handle_t from;    /* the sender's object, when an answer may follow */
} grail_wire_control_t;

#endif
