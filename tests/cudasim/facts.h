/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of the program `facts` share. */
#ifndef GRAIL_TESTS_CUDASIM_FACTS_H
#define GRAIL_TESTS_CUDASIM_FACTS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cuda-aware/cuda_abi.h"

#define MIB ((size_t)1 << 20)
#define FACT(name, value) printf("%s %lld\n", name, (long long)(value))
/* What every group needs; a failure ends the group, which facts.txt then tells. */
#define NEED(call)                                                                                 \
    do {                                                                                           \
        CUresult need_ = (call);                                                                   \
        if (need_ != CUDA_SUCCESS) {                                                               \
            printf("%s.%d %s %d\n", __func__, __LINE__, #call, (int)need_);                        \
            return;                                                                                \
        }                                                                                          \
    } while (0)

typedef struct args {
    uint64_t dst, src, count;
    uint32_t value, reserved;
} args_t;

extern const char facts_ptx[]; /* has the kernel cudasim_test_fill */

/** Initialises CUDA; the primary context of device 0 is current. */
CUcontext facts_use_primary(void);
/** Launches a kernel that stores a word to dst. */
CUresult facts_fill(CUdeviceptr dst, CUstream stream);
/** Prints which calls wait for work that is queued: one fact waits.CALL each. */
void facts_waits(void);

#endif /* GRAIL_TESTS_CUDASIM_FACTS_H */
