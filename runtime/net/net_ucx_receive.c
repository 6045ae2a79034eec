/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX provider: incoming messages, and the payloads that are kept or still to be fetched. */
#include "runtime/net/net_ucx.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"

enum { TOKENS_PER_BLOCK = 64 };

typedef struct ucx_token_block {
    struct ucx_token_block *next;
    ucx_token_t tokens[TOKENS_PER_BLOCK];
} ucx_token_block_t;

static ucx_token_t *token_get(ucx_net_t *net)
{
    ucx_token_t *token = net->free_tokens;

    if (GRAIL_UNLIKELY(token == NULL)) {
        ucx_token_block_t *block = malloc(sizeof(*block));

        if (block == NULL)
            return NULL;
        block->next = net->token_blocks;
        net->token_blocks = block;
        for (unsigned i = 0; i < TOKENS_PER_BLOCK; ++i) {
            block->tokens[i].live = false;
            block->tokens[i].next_free = net->free_tokens;
            net->free_tokens = &block->tokens[i];
        }
        token = net->free_tokens;
    }
    net->free_tokens = token->next_free;
    token->live = true;
    return token;
}

static void token_put(ucx_net_t *net, ucx_token_t *token)
{
    token->live = false;
    token->next_free = net->free_tokens;
    net->free_tokens = token;
}

/* --- fetching ------------------------------------------------------------------------------- */

static void fetch_done(void *request, ucs_status_t status, size_t length, void *user_data)
{
    (void)length;
    (void)user_data;
    grail_ucx_finish(request, grail_ucx_status(status));
}

static void tag_fetch_done(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                           void *user_data)
{
    (void)info;
    (void)user_data;
    grail_ucx_finish(request, grail_ucx_status(status));
}

static void swallow_done(void *arg, grail_status_t status, size_t length)
{
    (void)arg;
    (void)status;
    (void)length;
}

/* Takes the tag-matched rest of a split message that nobody wants: UCX throws away what does not
 * fit into a receive buffer. */
static void swallow_rest(ucx_net_t *net, const ucx_token_t *token)
{
    static char nowhere;
    ucp_request_param_t param = {
        .op_attr_mask = UCX_OP_ATTRIBUTES,
        .cb.recv = tag_fetch_done,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    ucs_status_ptr_t result =
        ucp_tag_recv_nbx(net->worker, &nowhere, 0, token->tag, UINT64_MAX, &param);

    if (UCS_PTR_IS_PTR(result))
        grail_ucx_start(result, &net->fetches, swallow_done, NULL, 0);
}

/* What UCX or we keep of the message itself: not inside its handler, where returning does it. */
static void release_desc(ucx_net_t *net, ucx_token_t *token)
{
    if (token->copied)
        free(token->desc);
    else
        ucp_am_data_release(net->worker, token->desc);
    token_put(net, token);
}

void grail_ucx_drop(grail_net_t *net_handle, void *token_handle)
{
    ucx_net_t *net = UCX_NET(net_handle);
    ucx_token_t *token = token_handle;

    if (token->kind == UCX_TOKEN_SPLIT)
        swallow_rest(net, token);
    if (token->in_handler)
        token->released = true;
    else
        release_desc(net, token);
}

void grail_ucx_free_tokens(ucx_net_t *net)
{
    while (net->token_blocks != NULL) {
        ucx_token_block_t *block = net->token_blocks;

        for (unsigned i = 0; i < TOKENS_PER_BLOCK; ++i) {
            if (block->tokens[i].live)
                grail_ucx_drop(&net->base, &block->tokens[i]);
        }
        net->token_blocks = block->next;
        free(block);
    }
    net->free_tokens = NULL;
}

/* Prepares to unpack the message: GRAIL_ERR_TRUNCATED when the elements hold less. */
static grail_status_t start_unpacking(const ucx_token_t *token, const grail_net_buffer_t *buffer,
                                      ucx_unpacking_t **started)
{
    ucx_type_t *type = (ucx_type_t *)buffer->type;
    ucx_unpacking_t *unpacking = malloc(sizeof(*unpacking));
    grail_status_t status = GRAIL_OK;

    if (unpacking == NULL)
        goto no_memory;
    unpacking->type = type;
    unpacking->base = 0;
    unpacking->status = GRAIL_OK;
    unpacking->forgotten = false;
    unpacking->state = type->layout.start_unpack(type->layout.context, buffer->address,
                                                 buffer->length);
    if (unpacking->state == NULL)
        goto no_memory;
    if (type->layout.packed_size(unpacking->state) < token->length)
        status = GRAIL_ERR_TRUNCATED;
    else if (token->first > 0)
        status = type->layout.unpack(unpacking->state, 0, token->desc, token->first);
    if (status != GRAIL_OK) {
        grail_ucx_finish_unpacking(unpacking);
        return grail_ucx_end_unpacking(unpacking, status);
    }
    unpacking->base = token->first;
    type->started = unpacking;
    *started = unpacking;
    return GRAIL_OK;

no_memory:
    free(unpacking);
    grail_error("out of memory for unpacking a message of %zu bytes", token->length);
    return GRAIL_ERR_NO_MEMORY;
}

static ucs_status_ptr_t start_fetch(ucx_net_t *net, ucx_token_t *token,
                                    const grail_net_buffer_t *buffer, bool typed)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCX_OP_ATTRIBUTES,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    char *address = buffer->address;
    size_t count = token->length - token->first;

    if (typed) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
        param.datatype = ((const ucx_type_t *)buffer->type)->unpack_type;
        count = buffer->length;
    } else if (token->first > 0) {
        memcpy(address, token->desc, token->first);
        address += token->first;
    }
    if (token->kind == UCX_TOKEN_SPLIT) {
        param.cb.recv = tag_fetch_done;
        return ucp_tag_recv_nbx(net->worker, address, count, token->tag, UINT64_MAX, &param);
    }
    param.cb.recv_am = fetch_done;
    return ucp_am_recv_data_nbx(net->worker, token->desc, address, count, &param);
}

grail_status_t grail_ucx_fetch(grail_net_t *net_handle, void *token_handle,
                               const grail_net_buffer_t *buffer, grail_net_done_fn done, void *arg)
{
    ucx_net_t *net = UCX_NET(net_handle);
    ucx_token_t *token = token_handle;
    ucx_type_t *type = (ucx_type_t *)buffer->type;
    size_t length = token->length;
    bool typed = type != NULL && length > 0;
    ucx_unpacking_t *unpacking = NULL;
    grail_status_t status = GRAIL_OK;
    ucs_status_ptr_t result;

    if (token->copied && token->desc == NULL)
        status = GRAIL_ERR_NO_MEMORY;
    else if (typed)
        status = start_unpacking(token, buffer, &unpacking);
    else if (buffer->length < length)
        status = GRAIL_ERR_TRUNCATED;
    if (status != GRAIL_OK) {
        /* UCX would not check (it asserts in debug builds). Dropping is what its tag matching does
         * with a truncated rendezvous, too: the sender completes, nothing is written. */
        grail_ucx_drop(net_handle, token);
        return status;
    }
    if (length == 0) {
        /* UCX would answer the sender, but not give its own memory back */
        grail_ucx_drop(net_handle, token);
        return GRAIL_OK;
    }
    result = start_fetch(net, token, buffer, typed);
    if (typed && type->started != NULL) {   /* UCX failed before it took the state */
        grail_ucx_finish_unpacking(type->started);
        type->started = NULL;
    }
    if (token->in_handler)
        token->fetched = true;
    else if (token->kind == UCX_TOKEN_SPLIT)
        release_desc(net, token);
    else
        token_put(net, token);
    if (UCS_PTR_IS_ERR(result)) {
        grail_error("UCX could not fetch a message of %zu bytes: %s", length,
                    ucs_status_string(UCS_PTR_STATUS(result)));
        status = grail_ucx_status(UCS_PTR_STATUS(result));
    } else if (result != NULL) {
        status = grail_ucx_start(result, &net->fetches, done, arg, length);
        if (status == GRAIL_IN_PROGRESS) {
            ((ucx_request_t *)result)->unpacking = unpacking;
            return GRAIL_IN_PROGRESS;
        }
    }
    return grail_ucx_end_unpacking(unpacking, status);
}

/* UCX has no way to cancel the receipt of a rendezvous: its request stays until it ends or the worker
 * goes. */
bool grail_ucx_abandon(grail_net_t *net_handle, const void *arg)
{
    ucx_net_t *net = UCX_NET(net_handle);
    bool found = false;

    for (ucx_link_t *link = net->fetches.next, *next; link != &net->fetches; link = next) {
        ucx_request_t *request = GRAIL_CONTAINER_OF(link, ucx_request_t, link);

        next = link->next;
        if (request->arg != arg)
            continue;
        ucx_list_remove(link);
        request->state = UCX_REQUEST_ORPHAN;
        if (request->unpacking != NULL)
            grail_ucx_abandon_unpacking(request->unpacking);
        found = true;
    }
    return found;
}

/* --- receiving ------------------------------------------------------------------------------ */

/* UCX takes the data back when the handler returns, because it lies in the transport's queue. Without
 * memory the token stays, as one whose fetch fails. */
static void copy_first_part(ucx_token_t *token)
{
    void *copy = malloc(token->first > 0 ? token->first : 1);

    if (copy != NULL)
        memcpy(copy, token->desc, token->first);
    else
        grail_error("out of memory for an incoming message of %zu bytes; it is lost",
                    token->length);
    token->desc = copy;
    token->copied = true;
}

/* Decides what UCX does with its part of the message: keep it for us (INPROGRESS) or free it, which
 * also tells the sender of a rendezvous that was not fetched that it is complete. */
static ucs_status_t after_handler(ucx_net_t *net, ucx_token_t *token, grail_net_verdict_t verdict,
                                  bool can_keep)
{
    token->in_handler = false;
    if (token->fetched || token->released || verdict == GRAIL_NET_DONE) {
        bool ucx_keeps = token->fetched && token->kind == UCX_TOKEN_RNDV;

        if (!token->fetched && !token->released && token->kind == UCX_TOKEN_SPLIT)
            swallow_rest(net, token);
        token_put(net, token);
        return ucx_keeps ? UCS_INPROGRESS : UCS_OK;
    }
    if (can_keep)
        return UCS_INPROGRESS;
    /* only a split message is offered for keeping without UCX's consent */
    copy_first_part(token);
    return UCS_OK;
}

/* A payload that UCX can leave with us, or one that has not all arrived: needs a token. */
static ucs_status_t receive_with_token(const ucx_handler_t *handler, grail_net_message_t *message,
                                       void *data, const ucx_split_trailer_t *split, bool can_keep)
{
    ucx_net_t *net = handler->net;
    ucx_token_t *token = token_get(net);

    if (token == NULL) {
        if (message->rndv) {
            grail_error("out of memory for an incoming message of %zu bytes; it is lost",
                        message->length);
            return UCS_ERR_NO_MEMORY;
        }
        message->may_keep = false;
        handler->call(net->handler_arg, message);
        return UCS_OK;
    }
    token->desc = data;
    token->length = message->length;
    token->kind = split != NULL ? UCX_TOKEN_SPLIT
                : message->rndv ? UCX_TOKEN_RNDV : UCX_TOKEN_EAGER;
    token->first = 0;
    token->in_handler = true;
    token->released = false;
    token->fetched = false;
    token->copied = false;
    if (split != NULL) {
        token->tag = split->tag;
        token->first = message->length;     /* of the active message: see receive_split() */
        token->length = message->length = split->length;
    }
    message->token = token;
    return after_handler(net, token, handler->call(net->handler_arg, message), can_keep);
}

static ucs_status_t receive(void *arg, const void *header, size_t header_length, void *data,
                            size_t length, const ucp_am_recv_param_t *param)
{
    const ucx_handler_t *handler = arg;
    grail_net_message_t message;

    message.header = header;
    message.header_length = header_length;
    message.data = data;
    message.length = length;
    message.rndv = false;
    message.sender_done = false;
    message.may_keep = false;
    message.token = NULL;
    if (param->recv_attr & (UCP_AM_RECV_ATTR_FLAG_RNDV | UCP_AM_RECV_ATTR_FLAG_DATA)) {
        message.rndv = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
        message.may_keep = true;
        if (message.rndv)
            message.data = NULL;
        return receive_with_token(handler, &message, data, NULL, true);
    }
    handler->call(handler->net->handler_arg, &message);
    return UCS_OK;
}

/* The first part of a split message, see net_ucx_send.c. */
static ucs_status_t receive_split(void *arg, const void *header, size_t header_length, void *data,
                                  size_t length, const ucp_am_recv_param_t *param)
{
    ucx_split_trailer_t trailer;
    grail_net_message_t message = {
        .header = header,
        .header_length = header_length - sizeof(trailer),
        .data = NULL,
        .length = length,
        .rndv = true,
        .sender_done = true,    /* it sends copies of fragments */
        .may_keep = true,
    };

    memcpy(&trailer, (const char *)header + message.header_length, sizeof(trailer));
    return receive_with_token(arg, &message, data, &trailer,
                              (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0);
}

/* What UCX keeps of the message is given back on return: nobody needs it longer. */
static ucs_status_t receive_short(void *arg, const void *header, size_t header_length, void *data,
                                  size_t length, const ucp_am_recv_param_t *param)
{
    const ucx_handler_t *handler = arg;
    grail_net_message_t message = {.data = data, .length = length};

    (void)header;
    (void)header_length;
    (void)param;
    handler->call(handler->net->handler_arg, &message);
    return UCS_OK;
}

static ucs_status_t set_handler(ucx_net_t *net, unsigned id, ucp_am_recv_callback_t call,
                                ucx_handler_t *handler)
{
    ucp_am_handler_param_t param = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = id,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = call,
        .arg = handler,
    };

    return ucp_worker_set_am_recv_handler(net->worker, &param);
}

grail_status_t grail_ucx_set_handlers(ucx_net_t *net, const grail_net_params_t *params)
{
    ucs_status_t status;

    if (params->short_handler != NULL) {
        net->short_handler.net = net;
        net->short_handler.call = params->short_handler;
        status = set_handler(net, UCX_SHORT_ID, receive_short, &net->short_handler);
        if (status != UCS_OK) {
            grail_error("UCX refused the handler of short messages: %s", ucs_status_string(status));
            return grail_ucx_status(status);
        }
    }
    for (unsigned id = 0; id < GRAIL_NET_HANDLERS; ++id) {
        if (params->handlers[id] == NULL)
            continue;
        net->handlers[id].net = net;
        net->handlers[id].call = params->handlers[id];
        status = set_handler(net, id, receive, &net->handlers[id]);
        if (status == UCS_OK)
            status = set_handler(net, UCX_SPLIT_ID + id, receive_split, &net->handlers[id]);
        if (status != UCS_OK) {
            grail_error("UCX refused the handler of message kind %u: %s", id,
                        ucs_status_string(status));
            return grail_ucx_status(status);
        }
    }
    return GRAIL_OK;
}
