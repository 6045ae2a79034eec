/* SPDX-License-Identifier: BSD-3-Clause */
/* Packs and unpacks at once, whatever memory is on either side. */
#include <stdlib.h>
#include <string.h>

#include "cuda-aware/copy.h"
#include "cuda-aware/layout_internal.h"
#include "cuda-aware/staging.h"
#include "runtime/log.h"
#include "runtime/options.h"

/* Without kernels: the whole span through the host, unless it is much more than the data. */
enum { SPAN_WASTE_MAX = 16 };

typedef struct job {
    bool pack;
    grail_layout_t *layout;
    size_t count;
    char *elements;
    size_t offset, length;
    char *packed;
    grail_mem_t elements_mem, packed_mem;
} job_t;

static bool on_device(const grail_mem_t *mem)
{
    return mem->kind != GRAIL_MEM_HOST && mem->kind != GRAIL_MEM_PINNED;
}

static grail_status_t wait_for(grail_copy_t *op)
{
    grail_status_t status;

    while ((status = grail_copy_test(op)) == GRAIL_IN_PROGRESS)
        ;
    return status;
}

/* Piece [at, at + n) of the packed order between the elements and `memory`, by one kernel. */
static grail_status_t kernel_piece(const job_t *j, grail_gpu_t *gpu, size_t at, size_t n,
                                   void *memory)
{
    grail_copy_t op;
    grail_status_t status =
        j->pack ? grail_pack_start(gpu, GRAIL_LANE_OUT, j->layout, j->count, j->elements, at, n,
                                   memory, &op)
                : grail_unpack_start(gpu, GRAIL_LANE_IN, j->layout, j->count, j->elements, at, n,
                                     memory, &op);

    return status == GRAIL_OK ? wait_for(&op) : status;
}

/* Between a host buffer and the caller's packed memory, in the job's direction. */
static grail_status_t move_packed(const job_t *j, size_t done, void *buffer, size_t n)
{
    char *packed = j->packed + done;

    if (on_device(&j->packed_mem))
        return j->pack ? grail_copy_sync(packed, buffer, n, &j->packed_mem)
                       : grail_copy_sync(buffer, packed, n, &j->packed_mem);
    if (j->pack)
        memcpy(packed, buffer, n);
    else
        memcpy(buffer, packed, n);
    return GRAIL_OK;
}

/* Elements on a device, `packed` where their kernels cannot go: through a pinned chunk. */
static grail_status_t by_staging(const job_t *j, grail_gpu_t *gpu)
{
    grail_status_t status;
    void *chunk;

    status = grail_staging_get(&chunk);
    if (status == GRAIL_ERR_BUSY)       /* the caller may hold the last one: it goes without */
        return GRAIL_ERR_UNSUPPORTED;
    if (status != GRAIL_OK)
        return status;
    for (size_t done = 0; done < j->length && status == GRAIL_OK;) {
        size_t n = j->length - done;

        if (n > grail_options.chunk)
            n = grail_options.chunk;
        if (!j->pack)
            status = move_packed(j, done, chunk, n);
        if (status == GRAIL_OK)
            status = kernel_piece(j, gpu, j->offset + done, n, chunk);
        if (status == GRAIL_OK && j->pack)
            status = move_packed(j, done, chunk, n);
        done += n;
    }
    grail_staging_put(chunk);
    return status;
}

/* One block after the other; `memory` is host memory for the whole packed piece. */
static grail_status_t by_blocks(const job_t *j, char *memory)
{
    size_t size = grail_layout_size(j->layout), done = 0;
    grail_status_t status = GRAIL_OK;

    while (done < j->length && status == GRAIL_OK) {
        size_t at = j->offset + done, n = j->length - done;
        grail_place_t place;
        char *element;

        grail_layout_locate(j->layout, at % size, &place);
        if (n > place.left)
            n = place.left;
        element = j->elements + (int64_t)(at / size) * j->layout->extent + place.at;
        status = j->pack ? grail_copy_sync(memory + done, element, n, &j->elements_mem)
                         : grail_copy_sync(element, memory + done, n, &j->elements_mem);
        done += n;
    }
    return status;
}

/* Absolute addresses (MPI_BOTTOM) may name several allocations with nothing between them. */
static bool in_one_allocation(const job_t *j, ptrdiff_t low, ptrdiff_t high)
{
    CUdeviceptr first = (CUdeviceptr)(uintptr_t)(j->elements + low);

    return first >= j->elements_mem.base &&
           first + (CUdeviceptr)(high - low) <= j->elements_mem.base + j->elements_mem.size;
}

/* Pack: everything between the first and the last byte to the host, where the CPU picks. */
static grail_status_t by_span(const job_t *j, char *memory, bool *done)
{
    ptrdiff_t low, high;
    grail_status_t status;
    char *copy;

    grail_layout_span(j->layout, j->count, &low, &high);
    *done = false;
    if ((size_t)(high - low) / SPAN_WASTE_MAX > j->length || !in_one_allocation(j, low, high))
        return GRAIL_OK;
    copy = malloc((size_t)(high - low));
    if (copy == NULL)
        return GRAIL_OK;
    status = grail_copy_sync(copy, j->elements + low, (size_t)(high - low), &j->elements_mem);
    if (status == GRAIL_OK)
        grail_layout_pack_host(j->layout, j->count, copy - low, j->offset, j->length, memory);
    free(copy);
    *done = true;
    return status;
}

static grail_status_t without_kernels(const job_t *j)
{
    grail_status_t status = GRAIL_OK;
    char *memory = malloc(j->length);
    bool done = false;

    if (memory == NULL) {
        grail_error("out of host memory for %zu packed bytes of device memory", j->length);
        return GRAIL_ERR_NO_MEMORY;
    }
    if (!j->pack)
        status = move_packed(j, 0, memory, j->length);
    else if (grail_layout_blocks(j->layout) > 1)
        status = by_span(j, memory, &done);
    if (status == GRAIL_OK && !done)
        status = by_blocks(j, memory);
    if (status == GRAIL_OK && j->pack)
        status = move_packed(j, 0, memory, j->length);
    free(memory);
    return status;
}

static grail_status_t from_device(const job_t *j)
{
    bool reachable = j->packed_mem.kind == GRAIL_MEM_PINNED ||
                     j->packed_mem.kind == GRAIL_MEM_MANAGED ||
                     (on_device(&j->packed_mem) &&
                      j->packed_mem.context == j->elements_mem.context);
    grail_gpu_t *gpu;
    grail_status_t status = grail_gpu_get(&j->elements_mem, &gpu);

    if (status == GRAIL_OK)
        status = reachable ? kernel_piece(j, gpu, j->offset, j->length, j->packed)
                           : by_staging(j, gpu);
    return status == GRAIL_ERR_UNSUPPORTED ? without_kernels(j) : status;
}

static void walk_host(const job_t *j, size_t done, size_t n, char *packed)
{
    if (j->pack)
        grail_layout_pack_host(j->layout, j->count, j->elements, j->offset + done, n, packed);
    else
        grail_layout_unpack_host(j->layout, j->count, j->elements, j->offset + done, n, packed);
}

/* Elements in host memory, `packed` on a device. */
static grail_status_t from_host(const job_t *j)
{
    size_t room = j->length < grail_options.chunk ? j->length : grail_options.chunk;
    grail_status_t status = GRAIL_OK;
    char *buffer = malloc(room);

    if (buffer == NULL) {
        grail_error("out of host memory for %zu packed bytes", room);
        return GRAIL_ERR_NO_MEMORY;
    }
    for (size_t done = 0; done < j->length && status == GRAIL_OK; done += room) {
        size_t n = j->length - done < room ? j->length - done : room;

        if (j->pack)
            walk_host(j, done, n, buffer);
        status = move_packed(j, done, buffer, n);
        if (status == GRAIL_OK && !j->pack)
            walk_host(j, done, n, buffer);
    }
    free(buffer);
    return status;
}

static grail_status_t run(job_t *j)
{
    grail_place_t place;
    grail_status_t status;

    if (j->length == 0)
        return GRAIL_OK;
    grail_layout_locate(j->layout, 0, &place);
    status = grail_mem_query(j->elements + place.at, &j->elements_mem);
    if (status == GRAIL_OK)
        status = grail_mem_query(j->packed, &j->packed_mem);
    if (status != GRAIL_OK)
        return status;
    if (on_device(&j->elements_mem))
        return from_device(j);
    if (on_device(&j->packed_mem))
        return from_host(j);
    walk_host(j, 0, j->length, j->packed);
    return GRAIL_OK;
}

grail_status_t grail_pack_sync(grail_layout_t *layout, size_t count, const void *elements,
                               size_t offset, size_t length, void *packed)
{
    job_t j = {.pack = true, .layout = layout, .count = count, .elements = (char *)elements,
               .offset = offset, .length = length, .packed = packed};

    return run(&j);
}

grail_status_t grail_unpack_sync(grail_layout_t *layout, size_t count, void *elements,
                                 size_t offset, size_t length, const void *packed)
{
    job_t j = {.pack = false, .layout = layout, .count = count, .elements = elements,
               .offset = offset, .length = length, .packed = (char *)packed};

    return run(&j);
}
