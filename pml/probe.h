/* SPDX-License-Identifier: BSD-3-Clause */
/* A call blocked in probe, as the watcher and failing peers see it. */
#ifndef GRAIL_PML_PROBE_H
#define GRAIL_PML_PROBE_H

#include <stdint.h>
#include <sys/queue.h>

#include "pml/pml_grail.h"
#include "runtime/status.h"

typedef struct grail_probe_wait {
    TAILQ_ENTRY(grail_probe_wait) list;     /* grail_pml.probes */
    ompi_communicator_t *comm;
    int rank;
    int tag;
    grail_status_t status;  /* set to end the wait with an error */
    uint32_t watched;
    uint32_t watch_next;
} grail_probe_wait_t;

#endif
