/* SPDX-License-Identifier: BSD-3-Clause */
/* What the resident helper kernel and the host share. */
#ifndef GRAIL_CUDA_AWARE_KERNELS_RESIDENT_H
#define GRAIL_CUDA_AWARE_KERNELS_RESIDENT_H

#include <stddef.h>

#include "cuda-aware/kernels/device.h"

enum {
    GRAIL_RESIDENT_SLOTS = 16,      /* commands in flight */
    GRAIL_RESIDENT_BLOCKS = 16,     /* most blocks: the leader and its workers */
    GRAIL_RESIDENT_THREADS = 512,   /* most threads of a block */
    GRAIL_RESIDENT_THREADS_MIN = 32,
    GRAIL_RESIDENT_ALONE = 65536    /* most bytes that the leader copies without its workers */
};

/*
 * One copy, 32 bytes: one sector of a PCIe read. The GPU reads it while the host may be writing, in
 * 8-byte pieces that are each whole; every word carries the low 16 bits of the command's number on
 * top, so a mixture of an old and a new command is recognised and read again. Addresses have 48
 * bits (longer ones are not sent here). Without length it ends the helper of launch `dst`.
 */
typedef struct grail_resident_command {
    uint64_t dst;       /* | number << 48 */
    uint64_t src;       /* | number << 48 */
    uint64_t length;    /* | number << 48 */
    uint64_t unused;
} grail_resident_command_t;

/*
 * How the leader shares a long copy with its workers, in device memory, in the same manner; they
 * read it without asking the host. `number` here counts shared copies and ends, over all launches.
 */
typedef struct grail_resident_shared {
    uint64_t dst;       /* | number << 48 */
    uint64_t src;       /* | number << 48 */
    uint64_t length;    /* | bytes of one part << 24 | number << 48 */
    uint64_t launch;    /* | parts << 32 | number << 48; 0 parts: the launch is over */
} grail_resident_shared_t;

/* All zero before the first launch. Each object has cache lines of its own. */
typedef struct grail_resident_control {
    grail_resident_shared_t shared;
    uint64_t apart[12];
    uint32_t present[32];   /* by block: the launch of which it runs; GRAIL_RESIDENT_BLOCKS used */
    uint32_t finished;      /* parts that workers have copied so far, of all launches */
    uint32_t apart_too[31];
} grail_resident_control_t;

typedef struct grail_resident_args {
    grail_dptr_t commands;  /* GRAIL_RESIDENT_SLOTS of them in pinned host memory, by number */
    grail_dptr_t done;      /* uint32_t in pinned host memory: number of the last copy done */
    grail_dptr_t ended;     /* uint32_t in pinned host memory: set to `launch` at the end */
    grail_dptr_t control;   /* grail_resident_control_t in device memory; 0 with one block */
    uint64_t linger_ns;     /* ends when no command came for so long */
    uint64_t life_ns;       /* ends after the first copy that it has done when it is that old */
    uint32_t first;         /* number of the next command */
    uint32_t launch;        /* not 0 */
} grail_resident_args_t;

#endif
