/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to cuda-aware/: what the kinds of bounce memory share. */
#ifndef GRAIL_CUDA_AWARE_STAGING_INTERNAL_H
#define GRAIL_CUDA_AWARE_STAGING_INTERNAL_H

#include <stddef.h>

#include "cuda-aware/staging.h"

extern size_t grail_staging_pinned, grail_staging_device;

/* Bytes from one chunk to the next: the option rounded up to pages. */
size_t grail_staging_stride(void);

/* How the option staging_max is shared out, in bytes. */
size_t grail_staging_pool_limit(void);
size_t grail_staging_slots_limit(void);

/* Pins host memory; where that fails, a lasting text says why. */
grail_status_t grail_staging_pin(grail_gpu_t *gpu, void *address, size_t size, const char **why);

void grail_slots_fini(void);
void grail_slots_views_fini(void);

#endif
