/* SPDX-License-Identifier: BSD-3-Clause */
/* Which path a device message takes: pure functions of what is known, with measured costs. */
#ifndef GRAIL_PML_CHOICE_H
#define GRAIL_PML_CHOICE_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/options.h"
#include "runtime/stats.h"

typedef struct grail_choice {
    size_t length;          /* packed bytes */
    bool same_node;
    bool same_gpu;          /* sender's and receiver's memory are on one GPU */
    bool receiver_device;   /* the receive buffer is device memory */
    bool sender_device;
    bool can_map;           /* a key was offered and the pair of GPUs is proved (or is one process) */
    bool can_map_ring;      /* device rings work between the two GPUs */
    bool direct_layout;     /* no layout is involved, or both sides' are known to the receiver */
} grail_choice_t;

/* Modelled time of `path` in microseconds; HUGE_VAL when it cannot be taken. */
double grail_choice_cost(const grail_choice_t *in, grail_path_t path, const grail_options_t *opt);

/* The cheapest path at or below `from` in the order IPC, RING, HOST_SHM, HOST_NET. HOST_NET always
 * works. Option `path` forces one where it can be taken. */
grail_path_t grail_choice_path(const grail_choice_t *in, grail_path_t from,
                               const grail_options_t *opt);

/* Sender: send this device message at once through host memory, rather than offer it? */
bool grail_choice_eager(size_t length, bool can_offer_map, bool gdr, const grail_options_t *opt);

/* Is an offered message of this length replaced by its data when its receive is late? */
bool grail_choice_late(size_t length, const grail_options_t *opt);

/* Bytes per piece of a two-stage pipeline: balances the fixed cost of a piece against the fill of
 * the pipeline (k pieces cost (k + 1)(f + L / k b), least at k = sqrt(L / f b)). */
size_t grail_choice_piece(size_t length, grail_path_t path, size_t slot_size,
                          const grail_options_t *opt);

#endif
