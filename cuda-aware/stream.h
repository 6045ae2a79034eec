/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to cuda-aware/: a CUDA stream with its completion word, and how work is put on it. */
#ifndef GRAIL_CUDA_AWARE_STREAM_H
#define GRAIL_CUDA_AWARE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda-aware/copy.h"
#include "cuda-aware/gpu.h"

/*
 * How to queue work (all under the caller's lock, see gpu.h):
 *
 *     stream = grail_stream_pick(gpu, lane);          NULL: failed, logged
 *     if (grail_gpu_enter(gpu) != CUDA_SUCCESS) ...   the stream's context must be current
 *     ... copies or kernels on stream->handle ...
 *     status = grail_stream_finish(stream, op);       op completes after all of that
 *     grail_gpu_leave(gpu);
 *
 * A kernel that writes the completion word itself saves the separate write:
 *
 *     grail_stream_ticket(stream, op);
 *     ... launch it with stream->word_device and op->ticket; its last store is
 *         __threadfence_system(); *(volatile uint32_t *)word = ticket; ...
 *     status = grail_stream_launched(stream, op);
 *
 * If the launch fails the ticket is simply not used: tickets may skip numbers, never go back.
 */
typedef struct grail_stream {
    CUstream handle;
    grail_gpu_t *gpu;
    const char *lane;           /* for messages: "device to host" */
    volatile uint32_t *word;    /* completion word, host address, alone in its cache line */
    CUdeviceptr word_device;    /* the same word as the device sees it */
    uint32_t next;              /* last ticket given out */
    bool use_events;            /* the driver has no stream memory operations */
    volatile uint32_t seen;     /* with events: last ticket known to be done (CPU writes it) */
    struct grail_stream_event *events, *last_event; /* recorded, oldest first */
    struct grail_resident *resident; /* operations of the resident helper kernel, else NULL */
    CUdeviceptr counter;        /* of kernels with several blocks (pack.c); 0 until one was used */
    CUresult failed;            /* first error of this stream: it never works again */
} grail_stream_t;

/* One of the lane's streams, in turn; created at first use. NULL: failed (logged). */
grail_stream_t *grail_stream_pick(grail_gpu_t *gpu, grail_lane_t lane);

/* Queue the write of the next ticket and fill `op`. Context entered by the caller. Logged. */
grail_status_t grail_stream_finish(grail_stream_t *stream, grail_copy_t *op);

/* Fill `op` with the next ticket, which the caller's kernel will write. Cannot fail. */
void grail_stream_ticket(grail_stream_t *stream, grail_copy_t *op);

/* After the kernel given `op`'s ticket was launched successfully: costs nothing, except with
 * events, where it records one. Context entered by the caller. Logged. */
grail_status_t grail_stream_launched(grail_stream_t *stream, grail_copy_t *op);

/* Wait for the stream's work, free its events and itself. Context entered by the caller. */
void grail_stream_destroy(grail_stream_t *stream);
/* The same where CUDA or the context is gone: host memory only. */
void grail_stream_abandon(grail_stream_t *stream);

/*
 * Owned by kernels (pack.c): copy `length` bytes (at most kernel_copy_max) between two addresses
 * that kernels of stream->gpu can touch (own device, peer-mapped, managed or pinned host memory, any
 * alignment), in one launch that writes the word itself. Context entered by the caller.
 * GRAIL_ERR_UNSUPPORTED: there is no kernel; nothing was queued.
 */
grail_status_t grail_copy_kernel_start(grail_stream_t *stream, void *dst, const void *src,
                                       size_t length, grail_copy_t *op);

/* Facts for launch geometry; read once per context. */
int grail_gpu_multiprocessors(const grail_gpu_t *gpu);

/* The context behind `gpu` is alive (not destroyed by the program). The structure itself stays
 * valid until grail_gpu_fini(), so caches may keep the pointer as a key. */
bool grail_gpu_alive(const grail_gpu_t *gpu);

#endif
