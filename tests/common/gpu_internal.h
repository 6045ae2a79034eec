/* SPDX-License-Identifier: BSD-3-Clause */
/* What gpu.c and gpu_buf.c share; nobody else includes this. */
#ifndef GRAIL_TESTS_COMMON_GPU_INTERNAL_H
#define GRAIL_TESTS_COMMON_GPU_INTERNAL_H

#include "tests/common/gpu.h"

/** Record the reason for gpu_why() and return result. */
int gpu_because(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Select the device of gpu_set_local_rank() unless one is selected. */
int gpu_select_default(void);

#endif
