/* SPDX-License-Identifier: BSD-3-Clause */
/* What one simulated process tells another so that it can map an allocation (IPC, pools). */
#ifndef GRAIL_TESTS_CUDASIM_SHARE_H
#define GRAIL_TESTS_CUDASIM_SHARE_H

#include "tests/cudasim/sim.h"

typedef struct sim_share {
    uint32_t magic;
    int32_t pid;
    uint64_t start_time; /* with the pid: which process */
    uint64_t inode;      /* of the memfd */
    uint64_t id;         /* the owner's buffer id */
    uint64_t bytes;
    uint64_t offset;     /* in the memfd */
    int32_t fd;          /* in the owner */
    int32_t phys;
    uint64_t reserved;
} sim_share_t;
_Static_assert(sizeof(sim_share_t) == sizeof(CUipcMemHandle), "it is the handle");

void sim_share_describe(sim_share_t *share, const sim_alloc_t *alloc);
/** Maps for owner (a context or a pool), or counts one more use of the mapping it has. sim_mem is
 *  held for writing. */
CUresult sim_share_open(sim_alloc_t **out, const sim_share_t *share, void *owner, sim_kind_t kind);
/** The mapping of kind that starts at base (of owner, or of any if NULL), or NULL; sim_mem held. */
sim_alloc_t *sim_share_find(const void *owner, sim_kind_t kind, uint64_t base);

#endif /* GRAIL_TESTS_CUDASIM_SHARE_H */
