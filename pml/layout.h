/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI datatypes as layouts. */
#ifndef GRAIL_PML_LAYOUT_H
#define GRAIL_PML_LAYOUT_H

#include "cuda-aware/layout.h"
#include "pml/ompi_compat.h"

/*
 * The layout of a committed datatype: its packed order is Open MPI's convertor's, displacements are
 * from the address that the application passes (lower bounds included). Made at first use and kept
 * with the type; the reference is the type's: retain it to use it after the type may be freed.
 * Under the PML's lock. Errors: GRAIL_ERR_NO_MEMORY, GRAIL_ERR_UNSUPPORTED (logged).
 */
grail_status_t grail_pml_layout(ompi_datatype_t *datatype, grail_layout_t **layout);

/* The same for Open MPI's lower layer, not kept: the caller's reference. */
grail_status_t grail_layout_of_opal(const opal_datatype_t *datatype, grail_layout_t **layout);

#endif
