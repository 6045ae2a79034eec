/* SPDX-License-Identifier: BSD-3-Clause */
/* A device buffer into host memory at once, for sends in buffered mode. */
#include "cuda-aware/copy.h"
#include "cuda-aware/layout.h"
#include "pml/device.h"
#include "pml/layout.h"

grail_status_t grail_device_pack(grail_req_t *req, void *packed)
{
    grail_layout_t *layout;
    grail_mem_t mem;
    grail_status_t status;

    if (req->contiguous) {
        status = grail_mem_query(grail_req_data(req), &mem);
        return status == GRAIL_OK ? grail_copy_sync(packed, grail_req_data(req), req->bytes, &mem)
                                  : status;
    }
    status = grail_pml_layout(req->datatype, &layout);
    if (status != GRAIL_OK)
        return status;
    return grail_pack_sync(layout, req->count, req->buffer, 0, req->bytes, packed);
}
