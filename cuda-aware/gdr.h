/* SPDX-License-Identifier: BSD-3-Clause */
/* CPU loads and stores to device memory through gdrcopy, where it is installed. */
#ifndef GRAIL_CUDA_AWARE_GDR_H
#define GRAIL_CUDA_AWARE_GDR_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda-aware/memory.h"

/* libgdrapi.so.2 is there and its driver answers (asked once). */
GRAIL_API bool grail_gdr_available(void);

/*
 * Copy between host memory and device memory of kind GRAIL_MEM_DEVICE through a cached mapping
 * (bounded, verified by buffer id). Complete on return. GRAIL_ERR_UNSUPPORTED: use another way.
 */
GRAIL_API grail_status_t grail_gdr_write(const grail_mem_t *mem, void *device_dst, const void *src,
                                         size_t length);
GRAIL_API grail_status_t grail_gdr_read(const grail_mem_t *mem, void *dst, const void *device_src,
                                        size_t length);
GRAIL_API void grail_gdr_fini(void);

#endif
