/* SPDX-License-Identifier: BSD-3-Clause */
/* Are our declarations of the CUDA and NVML interfaces (cuda_abi.h, nvml_abi.h) the toolkit's? */
#include <stdbool.h>
#include <stdio.h>

#include "cuda-aware/cuda_abi.h"
#include "cuda-aware/nvml_abi.h"
#include "tests/unit/abi_table.h"

const abi_row_t abi_cuda_ours[] = {ABI_CUDA_ROWS{NULL, 0}};
const abi_row_t abi_nvml_ours[] = {ABI_NVML_ROWS{NULL, 0}};

static int tests, failures;

static void compare(const char *what, const abi_row_t *ours, const abi_row_t *toolkit)
{
    bool equal = true;
    int rows = 0;
    tests++;
    if (toolkit[0].name == NULL) {
        printf("ok %d %s # SKIP the toolkit's header was not found\n", tests, what);
        return;
    }
    for (; ours[rows].name != NULL; rows++) {
        if (ours[rows].value != toolkit[rows].value) {
            printf("# %s is %lld here and %lld in the toolkit\n", ours[rows].name,
                   ours[rows].value, toolkit[rows].value);
            equal = false;
        }
    }
    printf("%s %d %s: %d numbers\n", equal ? "ok" : "not ok", tests, what, rows);
    failures += !equal;
}

int main(void)
{
    if (abi_cuda_toolkit[0].name == NULL && abi_nvml_toolkit[0].name == NULL) {
        printf("# SKIP neither <cuda.h> nor <nvml.h> was found to compare with\n");
        return 77;
    }
    compare("cuda_abi.h", abi_cuda_ours, abi_cuda_toolkit);
    compare("nvml_abi.h", abi_nvml_ours, abi_nvml_toolkit);
    printf("1..%d\n", tests);
    return failures != 0;
}
