/* SPDX-License-Identifier: BSD-3-Clause */
/* Holds the device code that nvcc built, or says that there is none. */
#include "cuda-aware/kernels_fatbin.h"

#ifdef GRAIL_KERNELS_FATBIN

__asm__(".section .rodata,\"a\",%progbits\n"
        ".balign 64\n"
        ".globl grail_kernels_fatbin\n"
        ".hidden grail_kernels_fatbin\n"
        ".type grail_kernels_fatbin, %object\n"
        "grail_kernels_fatbin:\n"
        ".incbin \"" GRAIL_KERNELS_FATBIN "\"\n"
        "grail_kernels_fatbin_end:\n"
        ".size grail_kernels_fatbin, grail_kernels_fatbin_end - grail_kernels_fatbin\n"
        ".balign 8\n"
        ".globl grail_kernels_fatbin_size\n"
        ".hidden grail_kernels_fatbin_size\n"
        ".type grail_kernels_fatbin_size, %object\n"
        "grail_kernels_fatbin_size:\n"
        ".quad grail_kernels_fatbin_end - grail_kernels_fatbin\n"
        ".size grail_kernels_fatbin_size, 8\n"
        ".previous\n");

#else

const unsigned char grail_kernels_fatbin[1] = {0};
const size_t grail_kernels_fatbin_size = 0;

#endif
