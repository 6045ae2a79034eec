/* SPDX-License-Identifier: BSD-3-Clause */
/* Which path moved how much, and why a faster one was not taken. */
#ifndef GRAIL_RUNTIME_STATS_H
#define GRAIL_RUNTIME_STATS_H

#include <stdint.h>
#include <stdio.h>

#include "runtime/api.h"

typedef enum grail_path {
    GRAIL_PATH_NET_EAGER,    /* host memory, sent at once by the net provider */
    GRAIL_PATH_NET_RNDV,     /* host memory, rendezvous of the net provider */
    GRAIL_PATH_DEVICE_EAGER, /* device memory, through a short host copy, sent at once */
    GRAIL_PATH_IPC,          /* one copy over a peer mapping (or inside one process) */
    GRAIL_PATH_RING,         /* exported device staging ring */
    GRAIL_PATH_HOST_SHM,     /* pinned segment shared by two processes of a node */
    GRAIL_PATH_HOST_NET,     /* pinned chunks sent by the net provider */
    GRAIL_PATH_COUNT
} grail_path_t;

typedef enum grail_peer_class {
    GRAIL_PEER_SELF,
    GRAIL_PEER_NODE,
    GRAIL_PEER_REMOTE,
    GRAIL_PEER_CLASS_COUNT
} grail_peer_class_t;

typedef enum grail_direction { GRAIL_SENT, GRAIL_RECEIVED } grail_direction_t;

typedef struct grail_stats_cell {
    uint64_t messages;
    uint64_t bytes;
} grail_stats_cell_t;

/* Plain counters: callers hold the PML's lock (or are single-threaded). */
GRAIL_API extern grail_stats_cell_t
    grail_stats_cells[2][GRAIL_PATH_COUNT][GRAIL_PEER_CLASS_COUNT];

static inline void grail_stats_count(grail_direction_t direction, grail_path_t path,
                                     grail_peer_class_t peer, uint64_t bytes)
{
    grail_stats_cell_t *cell = &grail_stats_cells[direction][path][peer];
    cell->messages++;
    cell->bytes += bytes;
}

GRAIL_API const char *grail_path_name(grail_path_t path);

/*
 * A faster path was not taken. `reason` is a lasting string that names cause and cure. Counts per
 * (wanted, reason); warns once per pair when `warn` is set.
 */
GRAIL_API void grail_stats_fallback(grail_path_t wanted, const char *reason, int warn);

/* The table: paths x peer classes with messages and bytes, then the reasons. Prints nothing when
 * nothing was counted and `always` is 0. */
GRAIL_API void grail_stats_print(FILE *to, int rank, int always);

GRAIL_API void grail_stats_reset(void);

#endif
