/* SPDX-License-Identifier: BSD-3-Clause */
/* What the device protocols say to each other. */
#ifndef GRAIL_PML_DEVICE_WIRE_H
#define GRAIL_PML_DEVICE_WIRE_H

#include <stdint.h>

#include "cuda-aware/ipc.h"
#include "cuda-aware/staging.h"
#include "pml/wire.h"
#include "runtime/net/net.h"

/*
 * The offer of a device sender: body of a GRAIL_WIRE_DEVICE message. Optional parts follow in the
 * order of their flags. With match header, offer, both keys and a layout code it stays within
 * GRAIL_NET_HEADER_MAX.
 */
enum {
    GRAIL_OFFER_KEY = 1,        /* grail_ipc_key_t of the allocation: may be mapped */
    GRAIL_OFFER_PROBE = 2,      /* grail_ipc_key_t of the probe: this pair of GPUs is not proved */
    GRAIL_OFFER_LAYOUT = 4,     /* rest: code of the datatype; data is not contiguous */
    GRAIL_OFFER_STRIDED = 8,    /* not contiguous (with or without a code) */
    GRAIL_OFFER_FAILED = 16     /* the sender's GPU failed: the receive ends in an error */
};

typedef struct grail_offer {
    grail_handle_t transfer;    /* of the sender: answers go there */
    uint64_t length;            /* packed bytes */
    uint64_t address;           /* contiguous: first byte; strided: the element buffer */
    uint64_t count;             /* strided: elements */
    CUuuid gpu;                 /* where the buffer is */
    uint32_t flags;
    uint32_t layout_size;
} grail_offer_t;

enum {
    GRAIL_CONTROL_GO = GRAIL_CONTROL_DEVICE_FIRST, /* receiver: start the pipeline */
    GRAIL_CONTROL_GO_HOST,  /* the same, to a host sender's request whose payload is held open */
    GRAIL_CONTROL_FINISHED, /* receiver: pulled all (or wants nothing); the send buffer is free */
    GRAIL_CONTROL_READY,    /* sender: a slot is filled */
    GRAIL_CONTROL_FREE,     /* receiver: a slot was read */
    GRAIL_CONTROL_REDO,     /* receiver: cannot see your slots, start again on a lower path */
    GRAIL_CONTROL_ABORT,    /* either: the transfer failed here */
    GRAIL_CONTROL_FORGET,   /* owner: this allocation is gone, unmap it */
    GRAIL_CONTROL_CHUNK,    /* sender: a piece is the payload of this message */
    GRAIL_CONTROL_REPLACE,  /* sender: the payload is what that offer offers, take it instead */
    GRAIL_CONTROL_REPLACED, /* receiver: done, the send buffer is free */
    GRAIL_CONTROL_MISSED    /* receiver: that offer waits for no receive here */
};

enum {
    GRAIL_GO_PROVED = 1,    /* the pair of GPUs moves data: no more probes */
    GRAIL_GO_NO_MAP = 2,    /* mapping this GPU's memory does not work here: no more keys */
    GRAIL_GO_PROBE_WANTED = 4 /* this pair could not be judged: send a probe again */
};

typedef struct grail_wire_go {      /* GO, GO_HOST, REDO, FINISHED, ABORT */
    grail_wire_control_t head;
    uint32_t path;                  /* grail_path_t: the best that the receiver can take */
    uint32_t flags;
    int32_t status;                 /* FINISHED, ABORT: grail_status_t */
    uint32_t epoch;                 /* of the pipeline, counts restarts */
    uint64_t who;                   /* GO_HOST: the process that asks (grail_peer_key) */
} grail_wire_go_t;

typedef struct grail_wire_piece {   /* READY, FREE, CHUNK */
    grail_wire_control_t head;
    uint64_t offset;
    uint64_t length;
    uint32_t slot;
    uint32_t epoch;
    uint32_t has_ticket;            /* READY: a grail_slots_ticket_t follows */
    uint32_t reserved;
} grail_wire_piece_t;

typedef struct grail_wire_replace {
    grail_wire_control_t head;
    grail_wire_match_t match;       /* of the offer */
} grail_wire_replace_t;

typedef struct grail_wire_forget {
    grail_wire_control_t head;
    uint64_t owner;
    uint64_t base;
    uint64_t buffer_id;
} grail_wire_forget_t;

_Static_assert(sizeof(grail_wire_piece_t) + sizeof(grail_slots_ticket_t) <= GRAIL_NET_HEADER_MAX,
               "a READY with its ticket is one header");

#endif
