/* SPDX-License-Identifier: BSD-3-Clause */
/* The embedded device code of Grail, as nvcc's fatbin: what cuModuleLoadData takes. */
#ifndef GRAIL_CUDA_AWARE_KERNELS_FATBIN_H
#define GRAIL_CUDA_AWARE_KERNELS_FATBIN_H

#include <stddef.h>

/* Both are constant. The size in bytes is 0 when Grail was built without nvcc; then the array
 * holds nothing to load, and what kernels do on the device is done on the host. */
extern const unsigned char grail_kernels_fatbin[];
extern const size_t grail_kernels_fatbin_size;

#endif
