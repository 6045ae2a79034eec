/* SPDX-License-Identifier: BSD-3-Clause */
/* Path `ipc`: the receiver maps the sender's memory and one copy or kernel brings the data over. */
#include "pml/transfer.h"

#include "pml/pml_grail.h"
#include "runtime/log.h"

static void pull_finished(grail_transfer_t *transfer, grail_status_t status)
{
    grail_control_go(transfer, GRAIL_CONTROL_FINISHED, transfer->remote, GRAIL_GO_PROVED,
                     GRAIL_OK);
    grail_transfer_finish(transfer, status);
}

static unsigned step_pull(grail_transfer_t *transfer)
{
    grail_status_t status = grail_copy_test(&transfer->copy);

    if (status == GRAIL_IN_PROGRESS)
        return 0;
    transfer->copying = false;
    if (status == GRAIL_OK)
        pull_finished(transfer, GRAIL_OK);
    else
        grail_transfer_abort(transfer, status);
    return 1;
}

static grail_status_t start_copy(grail_transfer_t *t, const void *source, size_t source_count,
                                 bool source_strided)
{
    grail_lane_t lane = GRAIL_LANE_PEER;

    if (source_strided && t->layout != NULL)
        return grail_repack_start(t->gpu, lane, t->remote_layout, source_count, source, t->layout,
                                  t->count, t->data, t->length, &t->copy);
    if (source_strided)
        return grail_pack_start(t->gpu, lane, t->remote_layout, source_count, source, 0, t->length,
                                t->data, &t->copy);
    if (t->layout != NULL)
        return grail_unpack_start(t->gpu, lane, t->layout, t->count, t->data, 0, t->length, source,
                                  &t->copy);
    /* Own memory in its own context and a mapping made for it; not a pool's or VMM memory, whose
     * access rights a kernel must not violate. */
    if (t->mem.kind == GRAIL_MEM_DEVICE && t->peer->where != GRAIL_PEER_SELF &&
        t->map->gpu == t->gpu)
        return grail_copy_peer_start(t->gpu, t->data, source, t->length, &t->copy);
    return grail_copy_start(t->gpu, lane, t->data, source, t->length, &t->copy);
}

grail_status_t grail_pull_start(grail_transfer_t *transfer, const grail_offer_t *offer,
                                const grail_ipc_key_t *key, const void *layout_code)
{
    bool strided = (offer->flags & GRAIL_OFFER_STRIDED) != 0;
    const char *why = NULL;
    grail_status_t status;

    status = grail_ipc_map(transfer->gpu, key, &transfer->map, &why);
    if (status != GRAIL_OK) {
        if (status == GRAIL_ERR_UNSUPPORTED)
            grail_stats_fallback(GRAIL_PATH_IPC, why, 1);
        return GRAIL_ERR_UNSUPPORTED;
    }
    /* Kernels reach the mapping from its own context only. */
    if (transfer->map->gpu != transfer->gpu && (strided || transfer->layout != NULL))
        status = GRAIL_ERR_UNSUPPORTED;
    else if (strided)
        status = grail_layout_decode(layout_code, offer->layout_size, &transfer->remote_layout);
    if (status == GRAIL_OK) {
        /* In the sender's numbers the data is at `address`, inside the allocation at key->base; a
         * strided element buffer may start before it, so the difference is signed. */
        ptrdiff_t distance = (ptrdiff_t)(offer->address - key->base);
        transfer->path = GRAIL_PATH_IPC;
        status = start_copy(transfer, (char *)transfer->map->address + distance, offer->count,
                            strided);
    }
    if (status != GRAIL_OK) {
        grail_ipc_release(transfer->map);
        transfer->map = NULL;
        if (transfer->remote_layout != NULL)
            grail_layout_release(transfer->remote_layout);
        transfer->remote_layout = NULL;
        return status == GRAIL_ERR_UNSUPPORTED ? status : GRAIL_ERR_CUDA;
    }
    transfer->copying = true;
    transfer->step = step_pull;
    grail_transfer_activate(transfer);
    return GRAIL_IN_PROGRESS;
}
