/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX provider: opening, the address, progress and closing. */
#include "runtime/net/net_ucx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ucm/api/ucm.h>

#include "runtime/log.h"

enum { VERSION_MAJOR = 1, VERSION_MINOR = 13 };

/* Progress calls without an event between two looks at the clock for grail_ucx_watch(). */
enum { IDLE_CALLS_PER_WATCH = 1024 };

/* The prefix that pml/ucx reads its configuration with: MPI_UCX_<NAME>, then UCX_<NAME>. */
static const char config_prefix[] = "MPI";

static grail_status_t check_version(ucx_net_t *net)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    snprintf(net->description, sizeof(net->description), "ucx %u.%u.%u", major, minor, release);
    if (major > VERSION_MAJOR || (major == VERSION_MAJOR && minor >= VERSION_MINOR))
        return GRAIL_OK;
    grail_error("the UCX library that was loaded is %u.%u.%u, but Grail needs %d.%d or later;"
                " install a newer one or correct LD_LIBRARY_PATH", major, minor, release,
                VERSION_MAJOR, VERSION_MINOR);
    return GRAIL_ERR_UNSUPPORTED;
}

/*
 * UCX's shared-memory queues have slots of 128 bytes. What does not fit goes through a buffer beside
 * the queue, and with a header of ours behind the payload that is two cache misses more for the
 * receiver than a message by tag: 0.1-0.25 us from 64 bytes to 8 KiB. In slots for 8 KiB all of a
 * message lies together; they take 0.5 (UCX 1.13) or 2 MiB (1.16) of shared memory per process.
 * Processes address each other's slots by their own size, so all must agree, which is checked when
 * they connect: the number returned is the same for the same choice. A choice of the user's stays.
 * Without such a queue (UCX_TLS=tcp,self) nothing may be set: UCX warns of what it has no use for.
 */
static uint64_t choose_slots(ucp_config_t *config, const ucx_transports_t *transports)
{
    static const char *const names[] = {
        "UCX_MM_FIFO_ELEM_SIZE", "UCX_POSIX_FIFO_ELEM_SIZE", "UCX_SYSV_FIFO_ELEM_SIZE",
        "MPI_UCX_MM_FIFO_ELEM_SIZE", "MPI_UCX_POSIX_FIFO_ELEM_SIZE", "MPI_UCX_SYSV_FIFO_ELEM_SIZE",
    };
    uint64_t chosen = 0;

    if (!transports->queues)
        return 0;
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        const char *value = getenv(names[i]);

        if (value != NULL)
            chosen = (chosen + strtoul(value, NULL, 10)) * 1000003 + i + 1;
    }
    if (chosen != 0)
        return chosen;
    if (ucp_config_modify(config, names[0] + sizeof("UCX_") - 1, UCX_SLOT_SIZE) == UCS_OK)
        return strtoul(UCX_SLOT_SIZE, NULL, 10);
    grail_debug("UCX does not take %s", names[0]);
    return 1;
}

static grail_status_t open_context(ucx_net_t *net, const grail_net_params_t *params,
                                   ucx_transports_t *transports)
{
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(config_prefix, NULL, &config);
    ucp_params_t context_params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_REQUEST_SIZE |
                      UCP_PARAM_FIELD_REQUEST_INIT | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
        .features = UCP_FEATURE_AM | UCP_FEATURE_TAG,   /* tags: for split messages only */
        .request_size = sizeof(ucx_request_t),
        .request_init = grail_ucx_init_request,
        .mt_workers_shared = 0,
        .estimated_num_eps = params->processes,
        .estimated_num_ppn = params->processes_on_node,
    };

    if (status != UCS_OK) {
        grail_error("UCX's configuration cannot be read: %s; check the UCX_* environment variables",
                    ucs_status_string(status));
        return grail_ucx_status(status);
    }
    if (params->processes != 0)
        context_params.field_mask |= UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
    if (params->processes_on_node != 0)
        context_params.field_mask |= UCP_PARAM_FIELD_ESTIMATED_NUM_PPN;
    grail_ucx_choose_transports(config, params, transports);
    net->origin.slots = choose_slots(config, transports);
    status = ucp_init(&context_params, config, &net->context);
    ucp_config_release(config);
    if (status != UCS_OK) {
        grail_error("UCX found no usable transport: %s; see ucx_info -d, and whether UCX_TLS or"
                    " UCX_NET_DEVICES forbids all", ucs_status_string(status));
        return GRAIL_ERR_UNSUPPORTED;
    }
    return GRAIL_OK;
}

static ucs_status_t create_worker(ucx_net_t *net, const grail_net_params_t *params)
{
    ucp_worker_params_t worker_params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS,
        .thread_mode = params->threads ? UCS_THREAD_MODE_SERIALIZED : UCS_THREAD_MODE_SINGLE,
        /* operations towards a dead peer stay with UCX until the end; that is no news then */
        .flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK,
    };

    return ucp_worker_create(net->context, &worker_params, &net->worker);
}

/* Several processes that each found room may all have failed, and it is there again. */
static bool room_for_all(ucx_transports_t *transports, unsigned processes)
{
    if (!grail_ucx_posix_has_room(transports))
        return false;
    return transports->posix_free / (size_t)UCX_POSIX_NEED >= (processes != 0 ? processes : 2);
}

/* The worker opens the transports; where UCX's default for shared memory has no room, it goes
 * without that one. */
static grail_status_t open_worker(ucx_net_t *net, const grail_net_params_t *params)
{
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
    ucx_transports_t transports = {.posix = true};
    grail_status_t ours = open_context(net, params, &transports);
    ucs_status_t status;

    if (ours != GRAIL_OK)
        return ours;
    status = create_worker(net, params);
    if (status != UCS_OK && transports.posix && transports.ours &&
        !room_for_all(&transports, params->processes_on_node)) {
        /* other processes took what was left between the look and now */
        transports.no_posix = true;
        ucp_cleanup(net->context);
        net->context = NULL;
        ours = open_context(net, params, &transports);
        if (ours != GRAIL_OK)
            return ours;
        status = create_worker(net, params);
    }
    if (status != UCS_OK && transports.posix && !grail_ucx_posix_has_room(&transports) &&
        transports.posix_error == 0) {
        grail_error("UCX could not start its transports (%s): %s has %zu KiB left and UCX needs"
                    " about %d KiB per process there; enlarge it (mount -o remount,size=1g %s, or"
                    " docker run --shm-size=1g) or leave posix out of UCX_TLS",
                    ucs_status_string(status), transports.posix_folder,
                    transports.posix_free >> 10, UCX_POSIX_NEED >> 10, transports.posix_folder);
        return grail_ucx_status(status);
    }
    if (status != UCS_OK) {
        grail_error("UCX could not start its transports: %s; UCX_LOG_LEVEL=info shows which, and"
                    " UCX_TLS can leave it out", ucs_status_string(status));
        return grail_ucx_status(status);
    }
    status = ucp_worker_query(net->worker, &attr);
    if (status == UCS_OK && attr.max_am_header < GRAIL_NET_HEADER_MAX) {
        grail_error("UCX's transports take headers of %zu bytes only, Grail needs %d; raise"
                    " UCX_*_SEG_SIZE", attr.max_am_header, GRAIL_NET_HEADER_MAX);
        status = UCS_ERR_UNSUPPORTED;
    }
    net->split_end_node = transports.fast_rndv_node;
    net->split_end_remote = transports.fast_rndv_remote;
    return grail_ucx_status(status);
}

static grail_status_t make_address(ucx_net_t *net)
{
    ucp_address_t *worker_address;
    size_t length;
    ucs_status_t status = ucp_worker_get_address(net->worker, &worker_address, &length);

    if (status != UCS_OK) {
        grail_error("UCX has no address for this process: %s", ucs_status_string(status));
        return grail_ucx_status(status);
    }
    net->address = malloc(sizeof(net->origin) + length);
    if (net->address != NULL) {
        memcpy(net->address, &net->origin, sizeof(net->origin));
        memcpy((char *)net->address + sizeof(net->origin), worker_address, length);
        net->address_length = sizeof(net->origin) + length;
    } else {
        grail_error("out of memory for this process's address");
    }
    ucp_worker_release_address(net->worker, worker_address);
    return net->address != NULL ? GRAIL_OK : GRAIL_ERR_NO_MEMORY;
}

static void ucx_close(grail_net_t *net_handle)
{
    ucx_net_t *net = UCX_NET(net_handle);

    grail_ucx_abandon_endpoints(net);
    grail_ucx_fail_requests(&net->fetches, GRAIL_ERR_CANCELLED);
    grail_ucx_free_tokens(net);
    if (net->worker != NULL)
        ucp_worker_destroy(net->worker);
    if (net->context != NULL)
        ucp_cleanup(net->context);
    while (!ucx_list_empty(&net->endpoints)) {
        ucx_link_t *link = net->endpoints.next;

        ucx_list_remove(link);
        free(GRAIL_CONTAINER_OF(link, ucx_endpoint_t, link));
    }
    grail_ucx_free_splits(net);
    free(net->address);
    free(net);
}

static grail_status_t ucx_open(const grail_net_params_t *params, grail_net_t **net)
{
    ucx_net_t *new_net = calloc(1, sizeof(*new_net));
    grail_status_t status;

    if (new_net == NULL) {
        grail_error("out of memory for the messaging library");
        return GRAIL_ERR_NO_MEMORY;
    }
    new_net->base.provider = &grail_net_ucx;
    new_net->handler_arg = params->handler_arg;
    new_net->on_error = params->on_error;
    ucx_list_init(&new_net->endpoints);
    ucx_list_init(&new_net->fetches);
    new_net->watch_cursor = &new_net->endpoints;
    grail_ucx_find_origin(&new_net->origin);
    new_net->tag_prefix = grail_ucx_sender_key(&new_net->origin) & ~UCX_TAG_COUNTER_MASK;

    status = check_version(new_net);
    if (status == GRAIL_OK)
        status = open_worker(new_net, params);
    if (status == GRAIL_OK)
        status = grail_ucx_set_handlers(new_net, params);
    if (status == GRAIL_OK)
        status = make_address(new_net);
    if (status != GRAIL_OK) {
        ucx_close(&new_net->base);
        return status;
    }
    *net = &new_net->base;
    return GRAIL_OK;
}

static const char *ucx_describe(const grail_net_t *net)
{
    return ((const ucx_net_t *)net)->description;
}

static grail_status_t ucx_address(grail_net_t *net, const void **address, size_t *length)
{
    *address = UCX_NET(net)->address;
    *length = UCX_NET(net)->address_length;
    return GRAIL_OK;
}

static unsigned ucx_progress(grail_net_t *net_handle)
{
    ucx_net_t *net = UCX_NET(net_handle);
    unsigned events;

    if (GRAIL_UNLIKELY(net->in_progress))   /* a handler that waits: UCX must not be re-entered */
        return 0;
    net->in_progress = true;
    events = ucp_worker_progress(net->worker);
    if (events == 0 && GRAIL_UNLIKELY(++net->idle_calls >= IDLE_CALLS_PER_WATCH)) {
        net->idle_calls = 0;
        grail_ucx_watch(net);
    }
    net->in_progress = false;
    return events;
}

static void ucx_external_hooks(void)
{
    ucm_set_external_event(UCM_EVENT_VM_UNMAPPED);
}

static void ucx_memory_released(void *address, size_t length)
{
    ucm_vm_munmap(address, length);
}

const grail_net_provider_t grail_net_ucx = {
    .name = "ucx",
    .open = ucx_open,
    .close = ucx_close,
    .describe = ucx_describe,
    .address = ucx_address,
    .connect = grail_ucx_connect,
    .disconnect = grail_ucx_disconnect,
    .send = grail_ucx_send,
    .send_short = grail_ucx_send_short,
    .fetch = grail_ucx_fetch,
    .abandon = grail_ucx_abandon,
    .drop = grail_ucx_drop,
    .type_create = grail_ucx_type_create,
    .type_free = grail_ucx_type_free,
    .progress = ucx_progress,
    .external_hooks = ucx_external_hooks,
    .memory_released = ucx_memory_released,
};
