/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX provider: messages of some ten bytes, which go by tag. */
#include "runtime/net/net_ucx.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"

/*
 * A process that sends small messages in a row waits for cache lines: the slot in the peer's queue is
 * written with a miss of some 0.1 us, and the stores of the next message wait behind that one. When
 * they fill the core's store buffer (56 entries a thread on recent processors) it stops. An active
 * message of UCX takes 40 stores, a message by tag 20, and MPI_Isend and the PML 30 more. So these
 * messages go by tag, and the receiver keeps receives posted for them, which cost it more
 * instructions than an active message. A message that is sent alone is an active message: its time
 * is the receiver's (0.05 us less).
 *
 * A receive that was used is not posted again at once, but when nothing else is to be done (the
 * answer to the message may be what the peer waits for) or half of them are used. Without a posted
 * receive UCX keeps the message until there is one.
 */
enum { LANDINGS = 32, LANDINGS_LOW = LANDINGS / 2, LANDING_SIZE = 128 };

_Static_assert((int)GRAIL_NET_SHORT_MAX <= (int)LANDING_SIZE, "a message fits into its landing");

struct ucx_landing {
    _Alignas(64) char data[LANDING_SIZE];
    ucx_net_t *net;
    void *request;              /* UCX's */
    bool posted;
    struct ucx_landing *next;   /* of those that are not */
};

static void landed(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
    ucx_landing_t *landing = arg;
    ucx_net_t *net = landing->net;
    grail_net_message_t message = {.data = landing->data};

    if (GRAIL_LIKELY(status == UCS_OK)) {
        message.length = info->length;
        net->short_handler(net->handler_arg, &message);
    } else if (status != UCS_ERR_CANCELED) {
        grail_error("UCX lost a short message: %s", ucs_status_string(status));
    }
    ucp_request_free(request);
    landing->posted = false;
    landing->next = net->idle_landings;
    net->idle_landings = landing;
    net->posted_landings--;
}

/* False: UCX could not (logged). */
static bool landing_post(ucx_net_t *net)
{
    ucx_landing_t *landing = net->idle_landings;
    /* UCX 1.13 gives no length when it completes at once, so it shall always call back */
    const ucp_request_param_t param = {
        .op_attr_mask = UCX_OP_ATTRIBUTES | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv = landed,
        .user_data = landing,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    ucs_status_ptr_t result;

    net->idle_landings = landing->next;
    net->posted_landings++;
    landing->posted = true;
    result = ucp_tag_recv_nbx(net->worker, landing->data, GRAIL_NET_SHORT_MAX, UCX_SHORT_TAG,
                              UINT64_MAX, &param);
    if (GRAIL_LIKELY(UCS_PTR_IS_PTR(result))) {
        landing->request = result;      /* of no meaning if it has landed inside the call */
        return true;
    }
    grail_warn_once("ucx-short", "UCX cannot post receives for short messages now: %s; they wait",
                    ucs_status_string(UCS_PTR_STATUS(result)));
    landing->posted = false;
    landing->next = net->idle_landings;
    net->idle_landings = landing;
    net->posted_landings--;
    return false;
}

void grail_ucx_land(ucx_net_t *net, bool idle)
{
    if (GRAIL_LIKELY(net->idle_landings == NULL || (!idle && net->posted_landings > LANDINGS_LOW)))
        return;
    while (net->idle_landings != NULL && landing_post(net)) {
    }
}

static ucs_status_t receive_alone(void *arg, const void *header, size_t header_length, void *data,
                                  size_t length, const ucp_am_recv_param_t *param)
{
    ucx_net_t *net = arg;
    grail_net_message_t message = {.data = data, .length = length};

    (void)header;
    (void)header_length;
    (void)param;
    net->short_handler(net->handler_arg, &message);
    return UCS_OK;
}

grail_status_t grail_ucx_open_short(ucx_net_t *net, grail_net_handler_fn handler)
{
    const ucp_am_handler_param_t param = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_FLAGS | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = UCX_SHORT_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = receive_alone,
        .arg = net,
    };
    ucs_status_t status;

    if (handler == NULL)
        return GRAIL_OK;
    net->short_handler = handler;
    status = ucp_worker_set_am_recv_handler(net->worker, &param);
    if (status != UCS_OK) {
        grail_error("UCX refused the handler of short messages: %s", ucs_status_string(status));
        return grail_ucx_status(status);
    }
    net->landings = aligned_alloc(64, LANDINGS * sizeof(*net->landings));
    if (net->landings == NULL) {
        grail_error("out of memory for receiving short messages");
        return GRAIL_ERR_NO_MEMORY;
    }
    for (unsigned i = 0; i < LANDINGS; ++i) {
        net->landings[i].net = net;
        net->landings[i].posted = false;
        net->landings[i].next = i + 1 < LANDINGS ? &net->landings[i + 1] : NULL;
    }
    net->idle_landings = &net->landings[0];
    return GRAIL_OK;
}

void grail_ucx_close_short(ucx_net_t *net)
{
    if (net->landings == NULL)
        return;
    for (unsigned i = 0; i < LANDINGS; ++i) {
        if (net->landings[i].posted)
            ucp_request_cancel(net->worker, net->landings[i].request);
    }
    free(net->landings);
    net->landings = NULL;
}

/* UCX refuses at once what it cannot send at once, so nothing must live on after the call. */
grail_status_t grail_ucx_send_short(grail_net_endpoint_t *endpoint_handle, const void *data,
                                    size_t length, bool alone)
{
    static const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    const ucx_endpoint_t *endpoint = UCX_ENDPOINT(endpoint_handle);
    ucs_status_ptr_t refused;

    if (GRAIL_UNLIKELY(endpoint->failed))
        return GRAIL_ERR_BUSY;
    refused = alone ? ucp_am_send_nbx(endpoint->ep, UCX_SHORT_ID, NULL, 0, data, length, &param)
                    : ucp_tag_send_nbx(endpoint->ep, data, length, UCX_SHORT_TAG, &param);
    return GRAIL_LIKELY(refused == NULL) ? GRAIL_OK : GRAIL_ERR_BUSY;
}
