/* SPDX-License-Identifier: BSD-3-Clause */
/* What Grail keeps per CUDA context: streams, completion words, kernels. */
#ifndef GRAIL_CUDA_AWARE_GPU_H
#define GRAIL_CUDA_AWARE_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda-aware/driver.h"
#include "cuda-aware/memory.h"

/* What a stream is used for; each use has option `streams` streams, taken in turn. */
typedef enum grail_lane {
    GRAIL_LANE_IN,          /* host to device, unpack */
    GRAIL_LANE_OUT,         /* device to host, pack */
    GRAIL_LANE_PEER,        /* device to device, own or peer */
    GRAIL_LANE_RESIDENT,    /* the resident helper kernel (resident.h); only its first stream */
    GRAIL_LANE_COUNT
} grail_lane_t;

/* Created at the first device buffer of a context; lives until the context or the process ends. */
typedef struct grail_gpu grail_gpu_t;

/* Made on first use: streams (non-blocking, highest priority), one page of pinned completion words,
 * nothing in device memory. Logs and returns an error when a step fails; nothing is left behind. */
GRAIL_API grail_status_t grail_gpu_get(const grail_mem_t *mem, grail_gpu_t **gpu);

/* For receive-side work that is not tied to a buffer, e.g. a bounce: the GPU of an ordinal through
 * its primary context, retained. */
GRAIL_API grail_status_t grail_gpu_of_device(int device, grail_gpu_t **gpu);

GRAIL_API CUcontext grail_gpu_context(const grail_gpu_t *gpu);
GRAIL_API int grail_gpu_device(const grail_gpu_t *gpu);
GRAIL_API const CUuuid *grail_gpu_uuid(const grail_gpu_t *gpu);
GRAIL_API const char *grail_gpu_name(const grail_gpu_t *gpu);     /* "GPU 0 (NVIDIA H200)" */

/* Kernels of this context (module loaded on first use); NULL when the build or the driver has none:
 * the reason is told once at info level and callers take the path without kernels. */
GRAIL_API CUfunction grail_gpu_kernel(grail_gpu_t *gpu, const char *name);

/* Make the context current and restore the previous one: every function here does it itself. */
GRAIL_API CUresult grail_gpu_enter(const grail_gpu_t *gpu);
GRAIL_API void grail_gpu_leave(const grail_gpu_t *gpu);

/* Frees everything that CUDA still lets be freed. Safe after CUDA has shut down. */
GRAIL_API void grail_gpu_fini(void);

#endif
