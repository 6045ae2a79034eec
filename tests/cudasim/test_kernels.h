/* SPDX-License-Identifier: BSD-3-Clause */
/* Arguments of the kernels by which the simulator is tested (test_kernels.cu). */
#ifndef GRAIL_TESTS_CUDASIM_TEST_KERNELS_H
#define GRAIL_TESTS_CUDASIM_TEST_KERNELS_H

#include <stdint.h>

/** cudasim_test_fill: count words at dst become value + index; cudasim_test_sum: see the source. */
typedef struct cudasim_test_args {
    uint64_t dst;
    uint64_t src;
    uint64_t count;
    uint32_t value;
    uint32_t reserved;
} cudasim_test_args_t;

#endif /* GRAIL_TESTS_CUDASIM_TEST_KERNELS_H */
