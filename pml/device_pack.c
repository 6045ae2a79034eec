/* SPDX-License-Identifier: BSD-3-Clause */
/* A device buffer into host memory at once, for sends in buffered mode. */
#include <stdlib.h>
#include <string.h>

#include "cuda-aware/copy.h"
#include "cuda-aware/staging.h"
#include "pml/device.h"
#include "pml/layout.h"
#include "pml/pml_grail.h"
#include "runtime/log.h"
#include "runtime/options.h"

/* Pinned staging memory may be in use by transfers that only progress can end. */
static grail_status_t staging_wait(void **chunk)
{
    grail_status_t status;

    while ((status = grail_staging_get(chunk)) == GRAIL_ERR_BUSY)
        grail_pml_progress_locked();
    return status;
}

static grail_status_t copy_wait(grail_copy_t *op)
{
    grail_status_t status;

    while ((status = grail_copy_test(op)) == GRAIL_IN_PROGRESS)
        ;
    return status;
}

static grail_status_t pack_by_kernel(const grail_req_t *req, const grail_mem_t *mem,
                                     grail_layout_t *layout, char *packed)
{
    grail_gpu_t *gpu;
    grail_copy_t op;
    void *chunk;
    grail_status_t status = grail_gpu_get(mem, &gpu);

    if (status == GRAIL_OK)
        status = staging_wait(&chunk);
    if (status != GRAIL_OK)
        return status;
    for (size_t offset = 0; offset < req->bytes && status == GRAIL_OK;) {
        size_t length = req->bytes - offset;

        if (length > grail_options.chunk)
            length = grail_options.chunk;
        status = grail_pack_start(gpu, GRAIL_LANE_OUT, layout, req->count, req->buffer, offset,
                                  length, chunk, &op);
        if (status == GRAIL_OK)
            status = copy_wait(&op);
        if (status == GRAIL_OK)
            memcpy(packed + offset, chunk, length);
        offset += length;
    }
    grail_staging_put(chunk);
    return status;
}

/* Without kernels: everything between the first and the last byte, then the CPU picks. */
static grail_status_t pack_by_span(const grail_req_t *req, const grail_mem_t *mem,
                                   const grail_layout_t *layout, void *packed)
{
    ptrdiff_t low, high;
    grail_status_t status;
    char *copy;

    grail_layout_span(layout, req->count, &low, &high);
    copy = malloc((size_t)(high - low));
    if (copy == NULL) {
        grail_error("out of host memory for a copy of %zu bytes of device memory",
                    (size_t)(high - low));
        return GRAIL_ERR_NO_MEMORY;
    }
    status = grail_copy_sync(copy, (const char *)req->buffer + low, (size_t)(high - low), mem);
    if (status == GRAIL_OK)
        grail_layout_pack_host(layout, req->count, copy - low, 0, req->bytes, packed);
    free(copy);
    return status;
}

grail_status_t grail_device_pack(grail_req_t *req, void *packed)
{
    grail_layout_t *layout;
    grail_mem_t mem;
    grail_status_t status = grail_mem_query(grail_req_data(req), &mem);

    if (status != GRAIL_OK)
        return status;
    if (req->contiguous)
        return grail_copy_sync(packed, grail_req_data(req), req->bytes, &mem);
    status = grail_pml_layout(req->datatype, &layout);
    if (status != GRAIL_OK)
        return status;
    status = pack_by_kernel(req, &mem, layout, packed);
    return status == GRAIL_ERR_UNSUPPORTED ? pack_by_span(req, &mem, layout, packed) : status;
}
