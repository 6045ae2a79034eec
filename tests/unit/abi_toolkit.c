/* SPDX-License-Identifier: BSD-3-Clause */
/* The toolkit's side of abi_check: the same table, from <cuda.h> and <nvml.h> where they exist. */
#include "tests/unit/abi_table.h"

#if defined(__has_include)
#if __has_include(<cuda.h>)
#include <cuda.h>
#if CUDA_VERSION >= 12080 /* older ones do not know all of it */
#define HAVE_TOOLKIT_CUDA 1
/* Declares our functions a second time, with the toolkit's types: a difference does not compile. */
#define GRAIL_CUDA_ABI_DECLARE_FUNCTIONS
#include "cuda-aware/cuda_abi.h"
#endif
#endif
#if __has_include(<nvml.h>)
#include <nvml.h>
#if NVML_API_VERSION >= 13
#define HAVE_TOOLKIT_NVML 1
#endif
#endif
#endif

const abi_row_t abi_cuda_toolkit[] = {
#ifdef HAVE_TOOLKIT_CUDA
    ABI_CUDA_ROWS
#endif
    {NULL, 0}};

const abi_row_t abi_nvml_toolkit[] = {
#ifdef HAVE_TOOLKIT_NVML
    ABI_NVML_ROWS
#endif
    {NULL, 0}};
