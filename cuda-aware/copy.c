/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies and their completion. */
#include "cuda-aware/copy.h"

#include <stdio.h>
#include <stdlib.h>

#include "cuda-aware/gpu_internal.h"
#include "cuda-aware/resident.h"
#include "cuda-aware/stream.h"
#include "runtime/log.h"
#include "runtime/options.h"

/* Between two polls a caller does a round of progress, 0.1-1 us: an error is found within some
 * milliseconds, and a query (0.3 us) is lost in the noise. */
enum { POLLS_PER_QUERY = 4096, BOUNCE_BYTES = 4 << 20 };

struct grail_stream_event {
    struct grail_stream_event *next;
    CUevent event;
    uint32_t ticket;
};

static volatile uint32_t done_word;     /* always 0, the ticket of operations without work */

static grail_status_t stream_failed(grail_stream_t *stream, CUresult result, const char *what)
{
    char text[300];

    if (stream->failed != CUDA_SUCCESS)
        return GRAIL_ERR_CUDA;
    stream->failed = result;
    snprintf(text, sizeof(text), "%s (%s) on %s", what, stream->lane,
             grail_gpu_name(stream->gpu));
    (void)grail_cuda_fail(result, text);
    return GRAIL_ERR_CUDA;
}

/* ---- completion ---- */

static void fill(grail_stream_t *stream, grail_copy_t *op)
{
    op->ticket = ++stream->next;
    op->word = stream->use_events ? &stream->seen : stream->word;
    op->polls = 0;
    op->stream = stream;
}

static CUresult record_event(grail_stream_t *stream, uint32_t ticket)
{
    struct grail_stream_event *node = malloc(sizeof(*node));
    CUresult result;

    if (node == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = grail_cuda.EventCreate(&node->event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        free(node);
        return result;
    }
    result = grail_cuda.EventRecord(node->event, stream->handle);
    if (result != CUDA_SUCCESS) {
        (void)grail_cuda.EventDestroy(node->event);
        free(node);
        return result;
    }
    node->ticket = ticket;
    node->next = NULL;
    if (stream->events == NULL)
        stream->events = node;
    else
        stream->last_event->next = node;
    stream->last_event = node;
    return CUDA_SUCCESS;
}

/* Advance `seen` over the events that have happened. */
static CUresult look_at_events(grail_stream_t *stream)
{
    while (stream->events != NULL) {
        struct grail_stream_event *node = stream->events;
        CUresult result = grail_cuda.EventQuery(node->event);

        if (result == CUDA_ERROR_NOT_READY)
            return CUDA_SUCCESS;
        if (result != CUDA_SUCCESS)
            return result;
        stream->events = node->next;
        stream->seen = node->ticket;
        (void)grail_cuda.EventDestroy(node->event);
        free(node);
    }
    return CUDA_SUCCESS;
}

/* From words to events, for work from now on. Operations under way keep polling the word: what was
 * queued before still writes it. */
static void switch_to_events(grail_stream_t *stream)
{
    if (grail_log_first_time("no stream memory operations"))
        grail_info("%s has no stream memory operations: completion is learned from events, which "
                   "costs about 2 us more per operation", grail_gpu_name(stream->gpu));
    stream->use_events = true;
    stream->seen = stream->next;
}

grail_status_t grail_stream_finish(grail_stream_t *stream, grail_copy_t *op)
{
    CUresult result;

    if (!stream->use_events) {
        result = grail_cuda.StreamWriteValue32(stream->handle, stream->word_device,
                                               stream->next + 1, CU_STREAM_WRITE_VALUE_DEFAULT);
        if (result == CUDA_SUCCESS) {
            fill(stream, op);
            return GRAIL_OK;
        }
        if (result != CUDA_ERROR_NOT_SUPPORTED)
            return stream_failed(stream, result, "queueing the completion of a copy");
        switch_to_events(stream);
    }
    result = record_event(stream, stream->next + 1);
    if (result != CUDA_SUCCESS)
        return stream_failed(stream, result, "recording an event after a copy");
    fill(stream, op);
    return GRAIL_OK;
}

void grail_stream_ticket(grail_stream_t *stream, grail_copy_t *op)
{
    fill(stream, op);
}

grail_status_t grail_stream_launched(grail_stream_t *stream, grail_copy_t *op)
{
    CUresult result;

    if (GRAIL_LIKELY(!stream->use_events))
        return GRAIL_OK;
    result = record_event(stream, op->ticket);
    return result == CUDA_SUCCESS
               ? GRAIL_OK
               : stream_failed(stream, result, "recording an event after a kernel");
}

void grail_stream_abandon(grail_stream_t *stream)
{
    while (stream->events != NULL) {
        struct grail_stream_event *node = stream->events;

        stream->events = node->next;
        free(node);
    }
    free(stream);
}

void grail_stream_destroy(grail_stream_t *stream)
{
    (void)grail_cuda.StreamSynchronize(stream->handle);
    for (struct grail_stream_event *node = stream->events; node != NULL; node = node->next)
        (void)grail_cuda.EventDestroy(node->event);
    if (stream->counter != 0)
        (void)grail_cuda.MemFree(stream->counter);
    (void)grail_cuda.StreamDestroy(stream->handle);
    grail_stream_abandon(stream);
}

static bool reached(const grail_copy_t *op)
{
    return (int32_t)(*op->word - op->ticket) >= 0;
}

grail_status_t grail_copy_test_slow(grail_copy_t *op)
{
    grail_stream_t *stream = op->stream;
    bool by_event;
    CUresult result;

    if (stream == NULL)
        return GRAIL_OK;
    if (stream->resident != NULL)
        return grail_resident_test(op);
    by_event = op->word == &stream->seen;
    if (GRAIL_LIKELY(!by_event && ++op->polls % POLLS_PER_QUERY != 0 &&
                     stream->failed == CUDA_SUCCESS))
        return GRAIL_IN_PROGRESS;
    if (stream->failed != CUDA_SUCCESS)
        return GRAIL_ERR_CUDA;

    result = grail_gpu_enter(stream->gpu);
    if (result != CUDA_SUCCESS)
        return stream_failed(stream, result, "waiting for a copy");
    result = by_event ? look_at_events(stream) : grail_cuda.StreamQuery(stream->handle);
    grail_gpu_leave(stream->gpu);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
        return stream_failed(stream, result, "a copy");
    if (reached(op)) {
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        return GRAIL_OK;
    }
    if (!by_event && result == CUDA_SUCCESS)
        return stream_failed(stream, CUDA_ERROR_UNKNOWN,
                             "a copy that ended without writing its completion word");
    return GRAIL_IN_PROGRESS;
}

/* ---- copies ---- */

/* May kernels of `gpu` touch this address? Memory that belongs to another context of this process
 * may need peer access that nobody enabled: the copy engine deals with that. */
static bool kernel_can_touch(const grail_gpu_t *gpu, const void *address)
{
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_CONTEXT,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    };
    unsigned int type = 0;
    CUcontext context = NULL;
    int device = -1;
    void *values[] = {&type, &context, &device};

    if (grail_cuda.PointerGetAttributes(3, names, values, (CUdeviceptr)(uintptr_t)address) !=
            CUDA_SUCCESS || type == 0)
        return false;
    if (context != NULL)
        return context == grail_gpu_context(gpu);
    return type == CU_MEMORYTYPE_DEVICE && device == grail_gpu_device(gpu);
}

static CUresult queue_copy(grail_stream_t *stream, void *dst, const void *src, size_t length)
{
    /* The generic copy finds out by itself where both ends are, in any context. */
    return grail_cuda.MemcpyAsync((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src, length,
                                  stream->handle);
}

/* Through host memory, at once: for two buffers that no single context may touch. */
static grail_status_t bounce(void *dst, const grail_mem_t *dst_mem, const void *src,
                             const grail_mem_t *src_mem, size_t length, grail_copy_t *op)
{
    size_t chunk = length < BOUNCE_BYTES ? length : BOUNCE_BYTES;
    char *buffer = malloc(chunk);
    grail_status_t status = GRAIL_OK;

    if (buffer == NULL) {
        grail_error("out of memory for a copy of %zu bytes through the host", length);
        return GRAIL_ERR_NO_MEMORY;
    }
    for (size_t at = 0; at < length && status == GRAIL_OK; at += chunk) {
        size_t n = length - at < chunk ? length - at : chunk;

        status = grail_copy_sync(buffer, (const char *)src + at, n, src_mem);
        if (status == GRAIL_OK)
            status = grail_copy_sync((char *)dst + at, buffer, n, dst_mem);
    }
    free(buffer);
    if (status == GRAIL_OK)
        *op = (grail_copy_t){.word = &done_word};
    return status;
}

/*
 * Memory of cuMemCreate and of pools may be closed to all devices but those that the program
 * opened it for, and then the copy is refused in the context of any other: try in the contexts of
 * its ends. GRAIL_ERR_UNSUPPORTED: nothing was queued or copied.
 */
static grail_status_t start_elsewhere(const grail_gpu_t *tried, grail_lane_t lane, void *dst,
                                      const void *src, size_t length, grail_copy_t *op)
{
    grail_mem_t ends[2];
    int on_device = 0;

    for (int i = 0; i < 2; ++i) {
        grail_stream_t *stream;
        grail_status_t status;
        CUresult result;
        grail_gpu_t *gpu;

        if (grail_mem_query(i == 0 ? dst : src, &ends[i]) != GRAIL_OK)
            return GRAIL_ERR_UNSUPPORTED;
        if (ends[i].context == NULL || grail_gpu_get(&ends[i], &gpu) != GRAIL_OK)
            continue;
        on_device++;
        if (gpu == tried || (stream = grail_stream_pick(gpu, lane)) == NULL ||
            grail_gpu_enter(gpu) != CUDA_SUCCESS)
            continue;
        result = queue_copy(stream, dst, src, length);
        status = result == CUDA_SUCCESS ? grail_stream_finish(stream, op) : GRAIL_ERR_UNSUPPORTED;
        grail_gpu_leave(gpu);
        if (status != GRAIL_ERR_UNSUPPORTED)
            return status;
    }
    return on_device == 2 && ends[0].context != ends[1].context
               ? bounce(dst, &ends[0], src, &ends[1], length, op)
               : GRAIL_ERR_UNSUPPORTED;
}

/* Sizes that a kernel copies, if it can touch both ends. Between host and device the copy engine is
 * faster at every size: 6-7 us for 8 bytes against 9.5 us by kernel (H200). Between two places of
 * device memory a kernel takes 8.5 us up to 32 KiB and 10 us at 1 MiB, the copy engine 9.4 and 10.2,
 * and the CPU needs 4.4 us to queue the one and 6.2 us the other. */
static bool kernel_size(grail_lane_t lane, size_t length)
{
    return lane == GRAIL_LANE_PEER && length <= grail_options.kernel_copy_max;
}

static grail_status_t start_in_context(grail_lane_t lane, grail_stream_t *stream, void *dst,
                                       const void *src, size_t length, bool by_kernel,
                                       grail_copy_t *op, CUresult *refused)
{
    if (by_kernel && kernel_size(lane, length)) {
        grail_status_t status = grail_copy_kernel_start(stream, dst, src, length, op);

        if (status != GRAIL_ERR_UNSUPPORTED)
            return status;
    }
    *refused = queue_copy(stream, dst, src, length);
    return *refused == CUDA_SUCCESS ? grail_stream_finish(stream, op) : GRAIL_ERR_CUDA;
}

static grail_status_t start(grail_gpu_t *gpu, grail_lane_t lane, void *dst, const void *src,
                            size_t length, bool by_kernel, grail_resident_t *helper,
                            grail_copy_t *op)
{
    grail_stream_t *stream;
    grail_status_t status;
    CUresult result, refused = CUDA_SUCCESS;
    char what[160];

    if (length == 0) {
        *op = (grail_copy_t){.word = &done_word};
        return GRAIL_OK;
    }
    if (by_kernel && helper != NULL &&
        grail_resident_start(helper, dst, src, length, op) == GRAIL_OK)
        return GRAIL_OK;
    stream = grail_stream_pick(gpu, lane);
    if (stream == NULL)
        return GRAIL_ERR_CUDA;
    if (stream->failed != CUDA_SUCCESS)
        return GRAIL_ERR_CUDA;
    result = grail_gpu_enter(gpu);
    if (result != CUDA_SUCCESS)
        return stream_failed(stream, result, "starting a copy");
    status = start_in_context(lane, stream, dst, src, length, by_kernel, op, &refused);
    grail_gpu_leave(gpu);
    if (GRAIL_LIKELY(refused == CUDA_SUCCESS))
        return status;
    if (refused == CUDA_ERROR_INVALID_VALUE) {
        status = start_elsewhere(gpu, lane, dst, src, length, op);
        if (status != GRAIL_ERR_UNSUPPORTED)
            return status;
    }
    snprintf(what, sizeof(what), "a copy of %zu bytes (%s) on %s", length, stream->lane,
             grail_gpu_name(gpu));
    return grail_cuda_fail(refused, what);
}

grail_status_t grail_copy_start(grail_gpu_t *gpu, grail_lane_t lane, void *dst, const void *src,
                                size_t length, grail_copy_t *op)
{
    grail_resident_t *helper = grail_resident_pick(gpu, lane, length);
    bool by_kernel = (helper != NULL || kernel_size(lane, length)) &&
                     kernel_can_touch(gpu, dst) && kernel_can_touch(gpu, src);

    return start(gpu, lane, dst, src, length, by_kernel, helper, op);
}

grail_status_t grail_copy_peer_start(grail_gpu_t *gpu, void *dst, const void *src, size_t length,
                                     grail_copy_t *op)
{
    return start(gpu, GRAIL_LANE_PEER, dst, src, length, true,
                 grail_resident_pick(gpu, GRAIL_LANE_PEER, length), op);
}

grail_status_t grail_copy_sync(void *dst, const void *src, size_t length,
                               const grail_mem_t *device_side)
{
    grail_gpu_t *gpu;
    grail_stream_t *stream;
    grail_status_t status;
    CUresult result;

    if (length == 0)
        return GRAIL_OK;
    status = grail_gpu_get(device_side, &gpu);
    if (status != GRAIL_OK)
        return status;
    stream = grail_stream_pick(gpu, GRAIL_LANE_PEER);
    if (stream == NULL || stream->failed != CUDA_SUCCESS)
        return GRAIL_ERR_CUDA;
    result = grail_gpu_enter(gpu);
    if (result != CUDA_SUCCESS)
        return stream_failed(stream, result, "starting a copy");
    result = queue_copy(stream, dst, src, length);
    if (result == CUDA_SUCCESS)
        result = grail_cuda.StreamSynchronize(stream->handle);
    grail_gpu_leave(gpu);
    if (result != CUDA_SUCCESS) {
        char what[160];

        snprintf(what, sizeof(what), "a copy of %zu bytes on %s", length, grail_gpu_name(gpu));
        return grail_cuda_fail(result, what);
    }
    return GRAIL_OK;
}
