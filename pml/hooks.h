/* SPDX-License-Identifier: BSD-3-Clause */
/* User memory that Open MPI touches outside of the PML: made right or refused on a device. */
#ifndef GRAIL_PML_HOOKS_H
#define GRAIL_PML_HOOKS_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda-aware/memory.h"
#include "pml/ompi_compat.h"

/*
 * Works on device memory: MPI_Pack, MPI_Unpack and their external32 forms, MPI_Sendrecv_replace,
 * and all that copies user data inside Open MPI through its datatype engine (hooks_convertor.c).
 * Ends in one clear error: one-sided operations (hooks_window.c) and file I/O (hooks_file.c).
 * MPIX_Query_cuda_support() and ompi_info tell whether Grail serves the job (hooks_query.c).
 * Host buffers pay about 2 ns for the question what they are.
 */

/* From the component's register step, after its variables are known. */
void grail_hooks_register(void);

/* When the PML is enabled. Never fails: what cannot be installed is told once. */
void grail_hooks_install(void);

/* Before the component may be unloaded: nothing points into it any more. Idempotent. */
void grail_hooks_remove(void);

/* The first byte of the data is in device memory. */
static inline bool grail_hooks_on_device(const void *buffer, size_t count,
                                         const ompi_datatype_t *type)
{
    if (count == 0 || type == NULL || type->super.size == 0)
        return false;
    return grail_mem_is_device((const char *)buffer + type->super.true_lb);
}

/* ---- the parts ---- */

/* Make calls of the function at `address` go to `replacement`. False: it is not possible here. */
bool grail_patch_install(const char *name, void *address, void *replacement);
void grail_patch_remove_all(void);

void grail_hooks_convertor_install(void);
void grail_hooks_query_install(void);
void grail_hooks_window_install(void);
void grail_hooks_window_remove(void);
void grail_hooks_file_install(void);
void grail_hooks_file_remove(void);

#endif
