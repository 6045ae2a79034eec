/* SPDX-License-Identifier: BSD-3-Clause */
/* What the resident helper kernel and the host share. */
#ifndef GRAIL_CUDA_AWARE_KERNELS_RESIDENT_H
#define GRAIL_CUDA_AWARE_KERNELS_RESIDENT_H

#include "cuda-aware/kernels/device.h"

enum {
    GRAIL_RESIDENT_SLOTS = 16,      /* commands in flight */
    GRAIL_RESIDENT_THREADS = 512,   /* most threads of its one block */
    GRAIL_RESIDENT_THREADS_MIN = 32
};

/*
 * One copy, 32 bytes: one sector of a PCIe read. The GPU reads it while the host may be writing, in
 * 8-byte pieces that are each whole; every word carries the low 16 bits of the command's number on
 * top, so a mixture of an old and a new command is recognised and read again. Addresses have 48
 * bits (longer ones are not sent here).
 */
typedef struct grail_resident_command {
    uint64_t dst;       /* | number << 48 */
    uint64_t src;       /* | number << 48 */
    uint64_t length;    /* | number << 48 */
    uint64_t unused;
} grail_resident_command_t;

typedef struct grail_resident_args {
    grail_dptr_t commands;  /* GRAIL_RESIDENT_SLOTS of them in pinned host memory, by number */
    grail_dptr_t done;      /* uint32_t in pinned host memory: number of the last copy done */
    grail_dptr_t ended;     /* uint32_t in pinned host memory: set to `launch` at the end */
    uint64_t linger_ns;     /* ends when no command came for so long */
    uint32_t first;         /* number of the next command */
    uint32_t launch;
} grail_resident_args_t;

#endif
