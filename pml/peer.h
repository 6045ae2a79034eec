/* SPDX-License-Identifier: BSD-3-Clause */
/* Our own table of processes: Open MPI's proc_endpoints differs between builds (DESIGN 5). */
#ifndef GRAIL_PML_PEER_H
#define GRAIL_PML_PEER_H

#include <stdbool.h>
#include <sys/queue.h>

#include "pml/ompi_compat.h"
#include "runtime/net/net.h"
#include "runtime/stats.h"
#include "runtime/status.h"

typedef struct grail_peer {
    opal_process_name_t name;           /* key */
    ompi_proc_t *proc;                  /* retained */
    grail_net_endpoint_t *endpoint;     /* NULL until the first message, and after a failure */
    grail_peer_class_t where;
    bool failed;                        /* sends and receives that name it end in an error */
    bool left;                          /* it said goodbye: its end is no failure */
    bool hurt;                          /* an operation with it ended in an error */
    bool told;                          /* the failure has been logged */
    bool broken;                        /* failed, and what waits for it has not been ended yet */
    struct grail_device_peer *device;   /* owned by the device protocols; NULL until used */

    TAILQ_ENTRY(grail_peer) list;       /* grail_pml.peers */
    bool closing;                       /* a disconnect was started */
    bool closed;                        /* set by the net when it is complete */
    grail_status_t why;                 /* with `failed` */
    char reason[112];                   /* with `failed` */
    char host[64];                      /* as it published, empty until connected */
} grail_peer_t;

/* A process name as one number, as goodbyes carry it. */
static inline uint64_t grail_peer_name_key(opal_process_name_t name)
{
    return (uint64_t)name.jobid << 32 | name.vpid;
}

static inline uint64_t grail_peer_key(const grail_peer_t *peer)
{
    return grail_peer_name_key(peer->name);
}

/* Finds or makes the entry. NULL: out of memory (logged). */
grail_peer_t *grail_peer_get(ompi_proc_t *proc);

/* Connects at first use. Logs and returns an error that names rank and host. */
grail_status_t grail_peer_connect(grail_peer_t *peer);

static inline grail_status_t grail_peer_endpoint(grail_peer_t *peer,
                                                 grail_net_endpoint_t **endpoint)
{
    if (GRAIL_UNLIKELY(peer->endpoint == NULL)) {
        grail_status_t status = grail_peer_connect(peer);
        if (status != GRAIL_OK)
            return status;
    }
    *endpoint = peer->endpoint;
    return GRAIL_OK;
}

/* "rank 3 on node17" in a static ring of buffers: for messages only. */
const char *grail_peer_string(const grail_peer_t *peer);

/*
 * Mark as failed and complete everything that waits for it with an error. Said in one line, once:
 * at once when an operation waits for the peer, else when the first operation names it.
 */
void grail_peer_fail(grail_peer_t *peer, grail_status_t status, const char *reason);

/* The same from inside an operation that goes on to use what such an end would free: operations under
 * way end in grail_peer_end_broken(), which progress calls now and then; new ones are refused. */
void grail_peer_break(grail_peer_t *peer, grail_status_t status, const char *reason);
void grail_peer_end_broken(void);

/* For an operation that names a failed peer: logs the line unless it was logged. Returns `why`. */
grail_status_t grail_peer_refuse(grail_peer_t *peer);

/* Publishes this process (component's init, before the runtime exchanges). */
grail_status_t grail_peer_publish(void);

/* Takes leave: flushes and closes every connection, in bounded time. */
void grail_peer_disconnect_all(void);

/* Frees the table. */
void grail_peer_fini(void);

/*
 * The net notices the end of processes that it has a connection to. Now and then, while receives
 * wait, this connects to those that they wait for and that nothing was ever sent to.
 */
void grail_peer_watch_sources(void);

#endif
