/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX provider: layouts of non-contiguous memory as UCX's generic datatypes. */
#include "runtime/net/net_ucx.h"

#include <stdlib.h>

#include "runtime/log.h"

/* The state was made before the UCX call so that a failure to make it can be reported: UCX does not
 * expect one here. */
static void *take_started(void *context, ucx_type_t **type)
{
    void *state;

    *type = context;
    state = (*type)->started;
    (*type)->started = NULL;
    return state;
}

static void *dt_start_pack(void *context, const void *buffer, size_t count)
{
    ucx_type_t *type;

    (void)buffer;
    (void)count;
    return take_started(context, &type);
}

static void *dt_start_unpack(void *context, void *buffer, size_t count)
{
    ucx_type_t *type;

    (void)buffer;
    (void)count;
    return take_started(context, &type);
}

static size_t dt_unpack_size(void *state)
{
    ucx_unpacking_t *unpacking = state;

    return unpacking->type->layout.packed_size(unpacking->state) - unpacking->base;
}

static size_t dt_no_pack(void *state, size_t offset, void *dst, size_t max)
{
    (void)state;
    (void)offset;
    (void)dst;
    (void)max;
    return 0;
}

static ucs_status_t dt_unpack(void *state, size_t offset, const void *src, size_t length)
{
    ucx_unpacking_t *unpacking = state;

    if (unpacking->state != NULL && unpacking->status == GRAIL_OK)
        unpacking->status = unpacking->type->layout.unpack(unpacking->state,
                                                           unpacking->base + offset, src, length);
    return UCS_OK;
}

static ucs_status_t dt_no_unpack(void *state, size_t offset, const void *src, size_t length)
{
    (void)state;
    (void)offset;
    (void)src;
    (void)length;
    return UCS_ERR_UNSUPPORTED;
}

void grail_ucx_finish_unpacking(void *state)
{
    ucx_unpacking_t *unpacking = state;

    if (unpacking->state != NULL)
        unpacking->type->layout.finish(unpacking->state);
    unpacking->state = NULL;
    if (unpacking->forgotten)
        free(unpacking);
}

void grail_ucx_abandon_unpacking(ucx_unpacking_t *unpacking)
{
    if (unpacking->state == NULL) {
        free(unpacking);
        return;
    }
    unpacking->type->layout.finish(unpacking->state);
    unpacking->state = NULL;
    unpacking->forgotten = true;
}

grail_status_t grail_ucx_end_unpacking(ucx_unpacking_t *unpacking, grail_status_t status)
{
    if (unpacking == NULL)
        return status;
    if (status == GRAIL_OK)
        status = unpacking->status;
    if (unpacking->state != NULL)
        unpacking->forgotten = true;
    else
        free(unpacking);
    return status;
}

grail_status_t grail_ucx_type_create(grail_net_t *net, const grail_net_layout_t *layout,
                                     grail_net_type_t **type)
{
    ucx_type_t *new_type = calloc(1, sizeof(*new_type));
    ucp_generic_dt_ops_t pack = {
        .start_pack = dt_start_pack,
        .start_unpack = dt_start_unpack,
        .packed_size = layout->packed_size,
        .pack = layout->pack,
        .unpack = dt_no_unpack,
        .finish = layout->finish,
    };
    ucp_generic_dt_ops_t unpack = {
        .start_pack = dt_start_pack,
        .start_unpack = dt_start_unpack,
        .packed_size = dt_unpack_size,
        .pack = dt_no_pack,
        .unpack = dt_unpack,
        .finish = grail_ucx_finish_unpacking,
    };

    if (new_type == NULL)
        goto no_memory;
    new_type->base.provider = net->provider;
    new_type->layout = *layout;
    if (ucp_dt_create_generic(&pack, new_type, &new_type->pack_type) != UCS_OK)
        goto free_type;
    if (ucp_dt_create_generic(&unpack, new_type, &new_type->unpack_type) != UCS_OK)
        goto destroy_pack_type;
    *type = &new_type->base;
    return GRAIL_OK;

destroy_pack_type:
    ucp_dt_destroy(new_type->pack_type);
free_type:
    free(new_type);
no_memory:
    grail_error("out of memory for a datatype of host messages");
    return GRAIL_ERR_NO_MEMORY;
}

void grail_ucx_type_free(grail_net_type_t *type)
{
    ucx_type_t *ucx_type = (ucx_type_t *)type;

    ucp_dt_destroy(ucx_type->pack_type);
    ucp_dt_destroy(ucx_type->unpack_type);
    free(ucx_type);
}

