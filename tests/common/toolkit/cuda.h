/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands in for the CUDA toolkit's <cuda.h> when the examples are built in this tree, which needs
 * no toolkit: the names as programs write them, without the version that libcuda exports. */
#ifndef GRAIL_TESTS_COMMON_TOOLKIT_CUDA_H
#define GRAIL_TESTS_COMMON_TOOLKIT_CUDA_H

#include "cuda-aware/cuda_abi.h"

#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree cuMemFree_v2
#define cuMemcpyHtoD cuMemcpyHtoD_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2

#endif
