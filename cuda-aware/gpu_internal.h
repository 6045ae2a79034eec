/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to cuda-aware/: facts about devices, and contexts that are not tied to a buffer. */
#ifndef GRAIL_CUDA_AWARE_GPU_INTERNAL_H
#define GRAIL_CUDA_AWARE_GPU_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda-aware/gpu.h"

enum { GRAIL_DEVICES_MAX = 64 };

/* ---- devices of this process, by ordinal; any thread ---- */

/* Never NULL: "GPU 0 (NVIDIA H200)". Lasting. */
const char *grail_device_name(int device);
/* All zero if the driver cannot tell. Lasting. */
const CUuuid *grail_device_uuid(int device);
/* -1: this process does not see it. */
int grail_device_of_uuid(const CUuuid *uuid);
bool grail_device_is_mig(int device);
int grail_device_attribute(int device, CUdevice_attribute attribute);
static inline bool grail_uuid_equal(const CUuuid *a, const CUuuid *b)
{
    return __builtin_memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

/* The device's primary context, retained once until grail_gpu_fini(). Any thread. Logged. */
grail_status_t grail_primary_context(int device, CUcontext *context);

/*
 * The context to use for memory of `device` that belongs to none (pools, VMM): the primary one if
 * it is active, else the current one if it is of that device (a program that made its own context
 * should not pay for a second one), else the primary one, made now. Any thread. Logged.
 */
grail_status_t grail_context_for_device(int device, CUcontext *context);

void grail_devices_fini(void);

/* ---- contexts ---- */

/* The context used last that is still alive, NULL if there is none: for memory that any context
 * may own (pinned host memory). */
grail_gpu_t *grail_gpu_any(void);

/* Device of the context used last, 0 before. Any thread. */
int grail_gpu_last_device(void);

/* The context exists; `id` becomes its unique number (0: the driver cannot tell). Any thread. */
bool grail_context_alive(CUcontext context, unsigned long long *id);

/*
 * Pin host memory into CUDA for all contexts. Memory from mmap, registered, instead of memory
 * that CUDA allocates: a program may destroy the context, and then registered memory is still
 * there, only slower. Not logged.
 */
CUresult grail_gpu_pin(grail_gpu_t *gpu, void *address, size_t size);
void grail_gpu_unpin(grail_gpu_t *gpu, void *address);

#endif
