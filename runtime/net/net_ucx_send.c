/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX provider: sending, and the operations in flight. */
#include "runtime/net/net_ucx.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"

grail_status_t grail_ucx_status(ucs_status_t status)
{
    switch (status) {
    case UCS_OK:
        return GRAIL_OK;
    case UCS_INPROGRESS:
        return GRAIL_IN_PROGRESS;
    case UCS_ERR_NO_MEMORY:
        return GRAIL_ERR_NO_MEMORY;
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_BUSY:
        return GRAIL_ERR_BUSY;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
        return GRAIL_ERR_INVALID;
    case UCS_ERR_MESSAGE_TRUNCATED:
        return GRAIL_ERR_TRUNCATED;
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NOT_IMPLEMENTED:
        return GRAIL_ERR_UNSUPPORTED;
    case UCS_ERR_TIMED_OUT:
        return GRAIL_ERR_TIMEOUT;
    case UCS_ERR_CANCELED:
        return GRAIL_ERR_CANCELLED;
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_REJECTED:
        return GRAIL_ERR_PEER;
    default:
        return GRAIL_ERR_IO;
    }
}

/* --- operations in flight ------------------------------------------------------------------- */

void grail_ucx_init_request(void *request)
{
    ((ucx_request_t *)request)->state = UCX_REQUEST_IDLE;
}

static void free_request(ucx_request_t *request)
{
    request->state = UCX_REQUEST_IDLE;
    ucp_request_free(request);
}

grail_status_t grail_ucx_start(ucx_request_t *request, ucx_link_t *list, grail_net_done_fn done,
                               void *arg, size_t length)
{
    if (request->state == UCX_REQUEST_EARLY) {
        grail_status_t status = request->status;

        free_request(request);
        return status;
    }
    request->state = UCX_REQUEST_FLYING;
    request->unpacking = NULL;
    request->done = done;
    request->arg = arg;
    request->length = length;
    ucx_list_add(list, &request->link);
    return GRAIL_IN_PROGRESS;
}

void grail_ucx_finish(ucx_request_t *request, grail_status_t status)
{
    grail_net_done_fn done = request->done;
    size_t length = request->length;
    void *arg = request->arg;

    switch (request->state) {
    case UCX_REQUEST_IDLE:
        request->state = UCX_REQUEST_EARLY;
        request->status = status;
        return;
    case UCX_REQUEST_FLYING:
        ucx_list_remove(&request->link);
        status = grail_ucx_end_unpacking(request->unpacking, status);
        free_request(request);
        done(arg, status, length);
        return;
    case UCX_REQUEST_EARLY:
    case UCX_REQUEST_ORPHAN:
        free_request(request);
        return;
    }
}

void grail_ucx_fail_requests(ucx_link_t *list, grail_status_t status)
{
    while (!ucx_list_empty(list)) {
        ucx_request_t *request = GRAIL_CONTAINER_OF(list->next, ucx_request_t, link);
        grail_net_done_fn done = request->done;

        ucx_list_remove(&request->link);
        request->state = UCX_REQUEST_ORPHAN;
        grail_ucx_end_unpacking(request->unpacking, status);
        done(request->arg, status, 0);
    }
}

static void send_done(void *request, ucs_status_t status, void *user_data)
{
    (void)user_data;
    grail_ucx_finish(request, grail_ucx_status(status));
}

static grail_status_t send_failed(ucs_status_t status)
{
    grail_status_t ours = grail_ucx_status(status);

    if (ours != GRAIL_ERR_PEER && ours != GRAIL_ERR_CANCELLED)
        grail_error("UCX could not send a message: %s", ucs_status_string(status));
    return ours;
}

/* --- layouts -------------------------------------------------------------------------------- */

/* Makes the packing state before the UCX call, so that this can fail cleanly. */
static bool start_packing(const grail_net_buffer_t *buffer, ucp_request_param_t *param,
                          size_t *length)
{
    ucx_type_t *type = (ucx_type_t *)buffer->type;
    void *state = type->layout.start_pack(type->layout.context, buffer->address, buffer->length);

    if (state == NULL) {
        grail_error("out of memory for packing a message");
        return false;
    }
    *length = type->layout.packed_size(state);
    type->started = state;
    param->op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param->datatype = type->pack_type;
    return true;
}

/* Frees the state if UCX failed before it took it. */
static void packing_started(const grail_net_buffer_t *buffer)
{
    ucx_type_t *type = (ucx_type_t *)buffer->type;

    if (type->started != NULL)
        type->layout.finish(type->started);
    type->started = NULL;
}

/* --- split messages ------------------------------------------------------------------------- */

/*
 * A blocking send of pml/ucx asks for fast completion, which UCX answers with copied fragments up
 * to UCX_RNDV_SEND_NBR_THRESH (256 KiB) instead of a rendezvous. UCX's tag matching copies them
 * straight into the posted buffer, but active messages collect them in memory of their own first:
 * one more copy, 25-35 % more time at 16-64 KiB (net_pingpong: tag-fast against eager). So such a
 * message is split: one active message with the header and as much payload as fits into a fragment,
 * and the rest by tag matching under a tag that the active message names. To the receiver it looks
 * like a rendezvous.
 */
typedef struct ucx_split {
    ucx_net_t *net;
    grail_net_done_fn done;
    void *arg;
    size_t length;
    unsigned open;              /* parts that UCX has not completed */
    bool returned;              /* the send call has returned IN_PROGRESS */
    grail_status_t status;
    struct ucx_split *next_free;
    char header[GRAIL_NET_HEADER_MAX + sizeof(ucx_split_trailer_t)];
} ucx_split_t;

static ucx_split_t *split_get(ucx_net_t *net)
{
    ucx_split_t *split = net->free_splits;

    if (split == NULL)
        return malloc(sizeof(*split));
    net->free_splits = split->next_free;
    return split;
}

static void split_put(ucx_split_t *split)
{
    split->next_free = split->net->free_splits;
    split->net->free_splits = split;
}

void grail_ucx_free_splits(ucx_net_t *net)
{
    while (net->free_splits != NULL) {
        ucx_split_t *split = net->free_splits;

        net->free_splits = split->next_free;
        free(split);
    }
}

static void split_part_done(void *arg, grail_status_t status, size_t length)
{
    ucx_split_t *split = arg;

    (void)length;
    if (split->status == GRAIL_OK)
        split->status = status;
    if (--split->open > 0 || !split->returned)
        return;
    grail_net_done_fn done = split->done;
    void *done_arg = split->arg;
    size_t total = split->length;
    grail_status_t result = split->status;
    split_put(split);
    done(done_arg, result, total);
}

static void split_part_started(ucx_split_t *split, ucx_endpoint_t *endpoint,
                               ucs_status_ptr_t result)
{
    if (result == NULL)
        return;
    if (UCS_PTR_IS_ERR(result)) {
        split->status = send_failed(UCS_PTR_STATUS(result));
        return;
    }
    grail_status_t status = grail_ucx_start(result, &endpoint->sends, split_part_done, split, 0);
    if (status == GRAIL_IN_PROGRESS)
        split->open++;
    else if (split->status == GRAIL_OK)
        split->status = status;
}

/* The receiver gets the first part and would wait for the rest for ever, and the caller would use the
 * message's number again: the connection is of no use any more. */
static grail_status_t split_broken(ucx_split_t *split, ucx_endpoint_t *endpoint)
{
    grail_status_t status = split->status;
    bool in_flight = split->open > 0;   /* UCX may read the header yet: it is given up then */

    grail_ucx_fail_endpoint(endpoint, status, "a part of a message could not be sent");
    if (!in_flight)
        split_put(split);
    return status;
}

static grail_status_t send_split(ucx_net_t *net, ucx_endpoint_t *endpoint, unsigned id,
                                 const void *header, size_t header_length,
                                 const grail_net_buffer_t *buffer, size_t length,
                                 ucp_request_param_t *param, grail_net_done_fn done, void *arg)
{
    ucx_split_trailer_t trailer = {.length = length, .tag = net->tag_prefix | net->next_tag};
    size_t first = 0;
    bool begun;
    ucx_split_t *split = split_get(net);

    if (split == NULL) {
        grail_error("out of memory for sending a message of %zu bytes", length);
        if (buffer->type != NULL)
            packing_started(buffer);
        return GRAIL_ERR_NO_MEMORY;
    }
    net->next_tag = (net->next_tag + 1) & UCX_TAG_COUNTER_MASK;
    if (buffer->type == NULL)
        first = (UCX_FRAGMENT - header_length - sizeof(trailer)) & ~(size_t)63;
    split->net = net;
    split->done = done;
    split->arg = arg;
    split->length = length;
    split->open = 0;
    split->returned = false;
    split->status = GRAIL_OK;
    memcpy(split->header, header, header_length);
    memcpy(split->header + header_length, &trailer, sizeof(trailer));

    ucp_request_param_t first_param = {
        .op_attr_mask = UCX_OP_ATTRIBUTES | UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FLAG_FAST_CMPL,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = send_done,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    split_part_started(split, endpoint,
                       ucp_am_send_nbx(endpoint->ep, UCX_SPLIT_ID + id, split->header,
                                       header_length + sizeof(trailer), buffer->address, first,
                                       &first_param));
    begun = split->status == GRAIL_OK;
    param->op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FIELD_FLAGS;
    if (begun && buffer->type == NULL)
        split_part_started(split, endpoint,
                           ucp_tag_send_nbx(endpoint->ep, (char *)buffer->address + first,
                                            length - first, trailer.tag, param));
    else if (begun)
        split_part_started(split, endpoint,
                           ucp_tag_send_nbx(endpoint->ep, buffer->address, buffer->length,
                                            trailer.tag, param));
    if (buffer->type != NULL)
        packing_started(buffer);
    if (GRAIL_UNLIKELY(begun && split->status != GRAIL_OK))
        return split_broken(split, endpoint);
    if (split->open > 0) {
        split->returned = true;
        return GRAIL_IN_PROGRESS;
    }
    grail_status_t status = split->status;
    split_put(split);
    return status;
}

/* --- sending -------------------------------------------------------------------------------- */

static inline uint32_t ucx_send_flags(unsigned flags)
{
    _Static_assert((int)GRAIL_NET_SEND_EAGER == 1 && (int)GRAIL_NET_SEND_RNDV == 2, "order");
    static const uint32_t translated[4] = {
        0, UCP_AM_SEND_FLAG_EAGER, UCP_AM_SEND_FLAG_RNDV, UCP_AM_SEND_FLAG_RNDV,
    };

    return translated[flags & 3];
}

/*
 * Without a hint UCX takes a rendezvous for what is quickest for one message alone, from 5.8 KiB on a
 * recent processor; an MPI_Isend is rarely alone (8 KiB, windows of 64: half the time with MULTI_SEND).
 */
static inline uint32_t ucx_send_hint(unsigned flags)
{
    if (flags & GRAIL_NET_SEND_FAST)
        return UCP_OP_ATTR_FLAG_FAST_CMPL;
    return flags == 0 ? UCP_OP_ATTR_FLAG_MULTI_SEND : 0;
}

static inline bool must_split(const ucx_endpoint_t *endpoint, size_t header_length, size_t length,
                              unsigned flags)
{
    return flags == GRAIL_NET_SEND_FAST && length + header_length > UCX_FRAGMENT &&
           length < endpoint->split_end;
}

grail_status_t grail_ucx_send(grail_net_t *net_handle, grail_net_endpoint_t *endpoint_handle,
                              unsigned id, const void *header, size_t header_length,
                              const grail_net_buffer_t *buffer, unsigned flags,
                              grail_net_done_fn done, void *arg)
{
    ucx_net_t *net = UCX_NET(net_handle);
    ucx_endpoint_t *endpoint = UCX_ENDPOINT(endpoint_handle);
    ucp_request_param_t param;
    ucs_status_ptr_t result;
    const void *address = NULL;
    size_t count = 0, length = 0;

    if (GRAIL_UNLIKELY(endpoint->failed))
        return GRAIL_ERR_PEER;
    param.op_attr_mask = UCX_OP_ATTRIBUTES | UCP_OP_ATTR_FIELD_FLAGS;
    param.op_attr_mask |= ucx_send_hint(flags);
    param.flags = ucx_send_flags(flags);
    param.cb.send = send_done;
    param.memory_type = UCS_MEMORY_TYPE_HOST;
    if (buffer != NULL) {
        address = buffer->address;
        count = length = buffer->length;
        if (GRAIL_UNLIKELY(buffer->type != NULL) && !start_packing(buffer, &param, &length))
            return GRAIL_ERR_NO_MEMORY;
        if (must_split(endpoint, header_length, length, flags))
            return send_split(net, endpoint, id, header, header_length, buffer, length, &param,
                              done, arg);
    }
    result = ucp_am_send_nbx(endpoint->ep, id, header, header_length, address, count, &param);
    if (GRAIL_UNLIKELY(buffer != NULL && buffer->type != NULL))
        packing_started(buffer);
    if (GRAIL_LIKELY(result == NULL))
        return GRAIL_OK;
    if (GRAIL_UNLIKELY(UCS_PTR_IS_ERR(result)))
        return send_failed(UCS_PTR_STATUS(result));
    return grail_ucx_start(result, &endpoint->sends, done, arg, length);
}

/*
 * A process that sends small messages in a row waits for cache lines: the slot in the peer's queue is
 * written with a miss of some 0.1 us, and the stores of the next message wait behind that one; when
 * they fill the core's store buffer it stops (what a profile suggests). So this way
 * stores as little as it can, and hands UCX one piece: with the header apart 8 bytes took 0.37 us
 * instead of 0.25, by UCX's tags 0.24 (windows of 64, H200 machine). UCX refuses at once what it
 * cannot send at once, so nothing must live on after the call.
 */
grail_status_t grail_ucx_send_short(grail_net_endpoint_t *endpoint_handle, const void *data,
                                    size_t length)
{
    static const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    const ucx_endpoint_t *endpoint = UCX_ENDPOINT(endpoint_handle);

    if (GRAIL_UNLIKELY(endpoint->failed ||
                       ucp_am_send_nbx(endpoint->ep, UCX_SHORT_ID, NULL, 0, data, length, &param) !=
                           NULL))
        return GRAIL_ERR_BUSY;
    return GRAIL_OK;
}
