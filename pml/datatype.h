/* SPDX-License-Identifier: BSD-3-Clause */
/* What is kept with a datatype: made at its first use, released with it. */
#ifndef GRAIL_PML_DATATYPE_H
#define GRAIL_PML_DATATYPE_H

#include "pml/ompi_compat.h"
#include "runtime/net/net.h"
#include "runtime/status.h"

struct grail_layout;

typedef struct grail_pml_type {
    ompi_datatype_t *datatype;
    grail_net_type_t *net_type;     /* NULL until the host path needs it */
    struct grail_layout *layout;    /* NULL until the device path needs it; one reference */
    struct grail_pml_type *next;    /* predefined types: released at finalize */
} grail_pml_type_t;

/* NULL: out of memory (logged). Under the PML's lock. */
grail_pml_type_t *grail_pml_type(ompi_datatype_t *datatype);

/* The net's view of a datatype that is not contiguous. Errors: GRAIL_ERR_NO_MEMORY (logged). */
grail_status_t grail_pml_net_type(ompi_datatype_t *datatype, const grail_net_type_t **type);

int grail_types_init(void);
void grail_types_fini(void);

#endif
