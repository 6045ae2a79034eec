/* SPDX-License-Identifier: BSD-3-Clause */
/* Matching state of one communicator. */
#ifndef GRAIL_PML_COMM_H
#define GRAIL_PML_COMM_H

#include <stdint.h>

#include "pml/pml_grail.h"
#include "pml/request.h"

/* One other rank, as seen from this communicator; made at the first message with it. */
typedef struct grail_comm_rank {
    grail_peer_t *peer;
    uint32_t next_send;             /* sequence of the next message to it */
    uint32_t next_receive;          /* sequence expected from it */
    struct grail_recv_queue posted; /* receives that name it, in order of posting */
    struct grail_msg_queue unexpected;
    struct grail_msg_queue early;   /* arrived ahead of their sequence, sorted */
} grail_comm_rank_t;

typedef struct grail_comm {
    ompi_communicator_t *comm;
    TAILQ_ENTRY(grail_comm) list;   /* grail_pml.comm_list */
    uint32_t cid;
    uint32_t brief_from;            /* of this rank's brief messages */
    int size;                       /* of the remote group for an intercommunicator */
    uint64_t next_order;
    struct grail_recv_queue wild;   /* MPI_ANY_SOURCE receives, in order of posting */
    struct grail_msg_queue arrived; /* all unexpected messages, in order of arrival */
    grail_comm_rank_t **ranks;      /* NULL entries until used */
} grail_comm_t;

/* Makes the entry; NULL when out of memory (logged). */
grail_comm_rank_t *grail_comm_rank_new(grail_comm_t *state, int rank);

static inline grail_comm_rank_t *grail_comm_rank(grail_comm_t *state, int rank)
{
    grail_comm_rank_t *entry = state->ranks[rank];
    return GRAIL_LIKELY(entry != NULL) ? entry : grail_comm_rank_new(state, rank);
}

static inline grail_comm_t *grail_comm_state(const ompi_communicator_t *comm)
{
    return (grail_comm_t *)(void *)comm->c_pml_comm;
}

/* Is the process one that a rank of this communicator stands for? Looks only at ranks in use and
 * at entries that Open MPI has made. */
bool grail_comm_has_peer(const grail_comm_t *state, const grail_peer_t *peer);

#endif
