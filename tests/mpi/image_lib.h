/* SPDX-License-Identifier: BSD-3-Clause */
/* Typed messages checked byte by byte against MPI_Pack and MPI_Unpack of host memory. */
#ifndef GRAIL_TESTS_MPI_IMAGE_LIB_H
#define GRAIL_TESTS_MPI_IMAGE_LIB_H

#include "tests/common/mpitest.h"

typedef struct image_layout {
    MPI_Datatype type;
    int count;
} image_layout_t;

/** Memory that count elements of the type touch: bytes from low (may be negative) on. */
void image_span(image_layout_t layout, ptrdiff_t *low, size_t *bytes);
/** Bytes of data in the layout. */
size_t image_data(image_layout_t layout);
/** The layout of n packed bytes. */
image_layout_t image_packed(size_t n);

/** Host memory that a send from layout with this seed starts with (malloc; span bytes). */
unsigned char *image_source(image_layout_t layout, uint64_t seed);
/** What it packs to (malloc; image_data() bytes). */
unsigned char *image_pack(image_layout_t layout, const unsigned char *source);
/** Host memory, guards first, after unpacking packed into layout (malloc; span bytes). */
unsigned char *image_unpack(image_layout_t layout, const unsigned char *packed);

typedef enum {
    IMAGE_BLOCKING,
    IMAGE_POSTED,       /* the receive first */
    IMAGE_PROBED,
    IMAGE_NONBLOCKING,  /* MPI_Isend */
    IMAGE_SYNCHRONOUS,  /* MPI_Issend */
    IMAGE_WAYS
} image_way_t;

/** Compare span bytes of a buffer and its guards; `what` names the message. */
bool image_compare(const gpu_buf_t *have, const unsigned char *want, size_t span, const char *what);
/** One message of the pair, sent from one layout and received into the other; both must have the
 *  same signature. Both ranks call it with the same arguments. False after a failure. */
bool image_transfer(image_layout_t from, image_layout_t to, uint64_t seed, image_way_t way);
/** Buffers that image_transfer() works in, of the pair's kinds. False: the case is skipped. */
bool image_begin(size_t most_bytes);
void image_end(void);

#endif
