/* SPDX-License-Identifier: BSD-3-Clause */
/* Packs and unpacks elements in host memory piece by piece, wherever the pieces end. */
#ifndef GRAIL_PML_WALK_H
#define GRAIL_PML_WALK_H

#include <stdbool.h>
#include <stddef.h>

#include "pml/ompi_compat.h"
#include "runtime/status.h"

/*
 * One transfer's walk over `count` elements. Open MPI's convertor packs whole basic elements only
 * and gives less than was asked when the next one does not fit; nobody who cuts a message into
 * pieces can use that, and UCX's active messages misplace the header then. A walk gives every byte.
 * Under the PML's lock.
 */
typedef struct grail_walk grail_walk_t;

/* Retains the datatype. NULL: out of memory (logged). */
grail_walk_t *grail_walk_new(ompi_datatype_t *datatype, const void *buffer, size_t count,
                             bool to_pack);
void grail_walk_free(grail_walk_t *walk);

size_t grail_walk_size(const grail_walk_t *walk);

/* Exactly `max` bytes from `offset` of the packed data on, fewer only at its end; tells how many.
 * Pieces are taken in order; offset 0 begins anew. */
size_t grail_walk_pack(grail_walk_t *walk, size_t offset, void *packed, size_t max);

/* Pieces may come in any order; offset 0 once more begins anew. GRAIL_ERR_NO_MEMORY (logged): no
 * room to keep a piece that is out of turn. */
grail_status_t grail_walk_unpack(grail_walk_t *walk, size_t offset, const void *packed,
                                 size_t length);

/* Frees the pool of walks. */
void grail_walks_fini(void);

#endif
