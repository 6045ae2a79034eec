/* SPDX-License-Identifier: BSD-3-Clause */
/* The CUDA driver API, loaded at run time (no link to libcuda, no libcudart). */
#ifndef GRAIL_CUDA_AWARE_DRIVER_H
#define GRAIL_CUDA_AWARE_DRIVER_H

#include <stdbool.h>

#include "cuda-aware/cuda_abi.h"
#include "runtime/api.h"
#include "runtime/status.h"

/*
 * One member per entry point used, named as in the driver API without version suffix, e.g.
 * grail_cuda.MemcpyDtoHAsync. All "required" members are non-NULL once grail_cuda_ready() is true;
 * "optional" ones may be missing in old drivers and have a stand-in that returns
 * CUDA_ERROR_NOT_SUPPORTED, so callers never test for NULL. driver_table.def lists them.
 */
typedef struct grail_cuda_driver {
#define GRAIL_CUDA_FN(required, name, symbol, args) CUresult (*name) args;
#include "cuda-aware/driver_table.def"
} grail_cuda_driver_t;

GRAIL_API extern grail_cuda_driver_t grail_cuda;

/*
 * Is CUDA in use in this process, i.e. has somebody loaded the driver and called cuInit? Never
 * loads or initialises anything itself. Cheap once true; while false it costs one look for the
 * loaded library. True implies that the table is filled and the driver is recent enough (>= 11.4);
 * a driver that is too old or lacks a required entry point is reported once, with its version and
 * the needed one, and false is returned ever after.
 */
GRAIL_API bool grail_cuda_ready(void);

/* Load the driver and initialise CUDA: for tools and tests, not for the PML. */
GRAIL_API grail_status_t grail_cuda_load(void);

/* CUDA has shut down (process exit): nothing may be called any more. Checked by all finalizers. */
GRAIL_API bool grail_cuda_gone(void);

/* Log `what` failed with CUDA's error name and text, and return the matching status
 * (NO_DEVICE_MEMORY for out of memory, CUDA otherwise; silent for DEINITIALIZED). */
GRAIL_API grail_status_t grail_cuda_fail(CUresult result, const char *what);

/* e.g. 13000, or 0 */
GRAIL_API int grail_cuda_driver_version(void);

/* "CUDA driver 13.0, 2 GPUs: NVIDIA H200" or the reason why there is none; never initialises. */
GRAIL_API void grail_cuda_describe(char *text, size_t size);

#endif
