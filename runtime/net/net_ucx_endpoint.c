/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX provider: connections, their end, and the watch over peers of the same node. */
#include "runtime/net/net_ucx.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/clock.h"
#include "runtime/log.h"

enum { ORIGIN_MAGIC = 0x47524e32 };     /* "GRN2": layout of ucx_origin_t */

enum { WATCH_INTERVAL_MS = 20 };        /* one peer per interval: about 10 us of reading /proc */

/* --- who we are ----------------------------------------------------------------------------- */

static uint64_t fold(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325ull;

    for (; *text != '\0' && *text != '\n'; ++text)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3ull;
    return hash;
}

static bool read_file(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, size - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    return true;
}

/* State and start time from /proc/<pid>/stat; the command in parentheses may hold anything. */
static bool read_process(int pid, char *state, uint64_t *start_time)
{
    char path[64], text[1024];
    unsigned long long ticks;
    const char *p;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (!read_file(path, text, sizeof(text)) || (p = strrchr(text, ')')) == NULL)
        return false;
    /* fields 3 (state) and 22 (starttime) of proc(5) */
    if (sscanf(p + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d"
                      " %llu", state, &ticks) != 2)
        return false;
    *start_time = ticks;
    return true;
}

void grail_ucx_find_origin(ucx_origin_t *origin)
{
    char text[128], state;
    struct stat st;

    memset(origin, 0, sizeof(*origin));
    origin->magic = ORIGIN_MAGIC;
    origin->pid = (int32_t)getpid();
    if (read_file("/proc/sys/kernel/random/boot_id", text, sizeof(text)))
        origin->node = fold(text);
    if (stat("/proc/self/ns/pid", &st) == 0)
        origin->pid_namespace = (uint64_t)st.st_ino;
    if (!read_process(origin->pid, &state, &origin->start_time))
        origin->start_time = 0;     /* peers then cannot watch this process */
}

uint64_t grail_ucx_sender_key(const ucx_origin_t *origin)
{
    static uint32_t nets;
    const uint64_t parts[] = {
        origin->node, origin->pid_namespace, origin->start_time, (uint64_t)(uint32_t)origin->pid,
        __atomic_add_fetch(&nets, 1, __ATOMIC_RELAXED),
    };
    uint64_t x = 0;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); ++i) {
        x = (x ^ parts[i]) + 0x9e3779b97f4a7c15ull;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        x ^= x >> 31;
    }
    return x;
}

static bool can_watch(const ucx_origin_t *self, const ucx_origin_t *peer)
{
    return peer->start_time != 0 && self->start_time != 0 && self->node != 0 &&
           peer->node == self->node && peer->pid_namespace == self->pid_namespace &&
           peer->pid != self->pid;
}

/* --- failure -------------------------------------------------------------------------------- */

/* The callbacks may disconnect the endpoint: it is freed at grail_net_close() only, see below. */
void grail_ucx_fail_endpoint(ucx_endpoint_t *endpoint, grail_status_t status, const char *reason)
{
    ucx_net_t *net = endpoint->net;

    if (endpoint->failed)
        return;
    endpoint->failed = true;
    grail_ucx_fail_requests(&endpoint->sends, status);
    if (endpoint->closed != NULL) {
        /* being closed: whoever waits for it need not learn more than that it is */
        *endpoint->closed = true;
        endpoint->closed = NULL;
        return;
    }
    if (net->on_error != NULL)
        net->on_error(net->handler_arg, endpoint->peer, status, reason);
}

static void endpoint_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    grail_ucx_fail_endpoint(arg, GRAIL_ERR_PEER, ucs_status_string(status));
}

void grail_ucx_watch(ucx_net_t *net)
{
    uint64_t now = grail_clock_coarse_ms(), start_time;
    char reason[96], state;

    if (now < net->watch_due_ms)
        return;
    net->watch_due_ms = now + WATCH_INTERVAL_MS;
    net->watch_cursor = net->watch_cursor->next;
    if (net->watch_cursor == &net->endpoints)   /* the list's head: next round */
        net->watch_cursor = net->watch_cursor->next;
    if (net->watch_cursor == &net->endpoints)
        return;
    ucx_endpoint_t *endpoint = GRAIL_CONTAINER_OF(net->watch_cursor, ucx_endpoint_t, link);
    if (!endpoint->watched || endpoint->failed)
        return;
    if (read_process(endpoint->origin.pid, &state, &start_time) &&
        start_time == endpoint->origin.start_time && state != 'Z' && state != 'X')
        return;
    snprintf(reason, sizeof(reason), "process %d has ended", endpoint->origin.pid);
    grail_ucx_fail_endpoint(endpoint, GRAIL_ERR_PEER, reason);
}

/* --- connections ---------------------------------------------------------------------------- */

grail_status_t grail_ucx_connect(grail_net_t *net_handle, const void *address, size_t length,
                                 void *peer, grail_net_endpoint_t **endpoint)
{
    ucx_net_t *net = UCX_NET(net_handle);
    ucx_endpoint_t *new_endpoint;
    ucx_origin_t origin;
    ucs_status_t status;

    if (length <= sizeof(origin)) {
        grail_error("a peer's address of %zu bytes is too short; do all ranks run the same Grail?",
                    length);
        return GRAIL_ERR_INVALID;
    }
    memcpy(&origin, address, sizeof(origin));
    if (origin.magic != ORIGIN_MAGIC) {
        grail_error("a peer's address has another format; all ranks must run the same Grail");
        return GRAIL_ERR_INVALID;
    }
    if (origin.node == net->origin.node && origin.slots != 0 && net->origin.slots != 0 &&
        origin.slots != net->origin.slots) {
        grail_error("process %d of this node uses other slots in UCX's shared-memory queues; set"
                    " UCX_MM_FIFO_ELEM_SIZE, UCX_POSIX_FIFO_ELEM_SIZE and UCX_SYSV_FIFO_ELEM_SIZE"
                    " alike for all processes, or none of them", origin.pid);
        return GRAIL_ERR_INVALID;
    }
    new_endpoint = calloc(1, sizeof(*new_endpoint));
    if (new_endpoint == NULL) {
        grail_error("out of memory for a connection");
        return GRAIL_ERR_NO_MEMORY;
    }
    new_endpoint->base.provider = &grail_net_ucx;
    new_endpoint->net = net;
    new_endpoint->peer = peer;
    new_endpoint->origin = origin;
    new_endpoint->split_end = origin.node == net->origin.node ? net->split_end_node
                                                              : net->split_end_remote;
    new_endpoint->watched = can_watch(&net->origin, &origin);
    ucx_list_init(&new_endpoint->sends);
    /*
     * Error handling mode NONE, as pml/ucx: PEER takes shared memory and CMA out of the choice
     * unless UCX_POSIX_ERROR_HANDLING, UCX_SYSV_ERROR_HANDLING and UCX_CMA_MEM_INVALIDATE are set
     * (messages in a node would go through TCP), and RDMA of most NICs out of the rendezvous
     * (it wants UCT_MD_FLAG_INVALIDATE). docs/internals.md has the figures. The handler is called
     * in this mode, too, for errors that a transport reports; without a handler UCX would abort
     * the process. What it does not report is a process of this node that died: grail_ucx_watch().
     */
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .address = (const ucp_address_t *)((const char *)address + sizeof(origin)),
        .err_mode = UCP_ERR_HANDLING_MODE_NONE,
        .err_handler = {.cb = endpoint_error, .arg = new_endpoint},
    };
    status = ucp_ep_create(net->worker, &params, &new_endpoint->ep);
    if (status != UCS_OK) {
        grail_error("no connection to process %d of %s node: %s; see which transports UCX has"
                    " there (ucx_info -d) and whether UCX_TLS or UCX_NET_DEVICES forbids them",
                    origin.pid, origin.node == net->origin.node ? "this" : "another",
                    ucs_status_string(status));
        free(new_endpoint);
        return status == UCS_ERR_UNREACHABLE ? GRAIL_ERR_PEER : grail_ucx_status(status);
    }
    ucx_list_add(&net->endpoints, &new_endpoint->link);
    *endpoint = (grail_net_endpoint_t *)new_endpoint;
    return GRAIL_OK;
}

static void free_endpoint(ucx_endpoint_t *endpoint)
{
    ucx_net_t *net = endpoint->net;

    if (net->watch_cursor == &endpoint->link)
        net->watch_cursor = endpoint->link.prev;
    ucx_list_remove(&endpoint->link);
    free(endpoint);
}

static void endpoint_closed(void *request, ucs_status_t status, void *user_data)
{
    ucx_endpoint_t *endpoint = user_data;

    (void)status;
    if (endpoint->close_request == endpoint) {
        endpoint->close_request = NULL;     /* the call that started it has not returned */
        return;
    }
    if (endpoint->close_request != NULL)
        ucp_request_free(request);
    endpoint->close_request = NULL;
    /* a close that was forced or failed meanwhile has been reported, and UCX may still name the
     * endpoint in its error handler: then it stays until grail_net_close() */
    if (endpoint->closed == NULL)
        return;
    grail_ucx_fail_requests(&endpoint->sends, GRAIL_ERR_CANCELLED);
    *endpoint->closed = true;
    free_endpoint(endpoint);
}

/*
 * UCX cannot close by force in error handling mode NONE, and a flush towards a dead process would
 * never end. So a forced or failed endpoint is only forgotten here; UCX frees its part when the
 * worker is destroyed.
 */
grail_status_t grail_ucx_disconnect(grail_net_t *net_handle, grail_net_endpoint_t *handle,
                                    bool force, bool *closed)
{
    ucx_endpoint_t *endpoint = UCX_ENDPOINT(handle);
    ucs_status_ptr_t result;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = endpoint_closed,
        .user_data = endpoint,
    };

    (void)net_handle;
    if (force || endpoint->failed) {
        bool was_failed = endpoint->failed;

        endpoint->failed = true;    /* no error will be reported for it any more */
        if (!was_failed)
            grail_ucx_fail_requests(&endpoint->sends, GRAIL_ERR_CANCELLED);
        *closed = true;
        return GRAIL_OK;
    }
    endpoint->closed = closed;
    endpoint->close_request = endpoint;
    result = ucp_ep_close_nbx(endpoint->ep, &param);
    if (UCS_PTR_IS_PTR(result) && endpoint->close_request != NULL) {
        endpoint->close_request = result;
        return GRAIL_OK;
    }
    endpoint->close_request = NULL;
    if (UCS_PTR_IS_PTR(result))
        ucp_request_free(result);
    else if (UCS_PTR_IS_ERR(result))
        grail_debug("closing a connection: %s", ucs_status_string(UCS_PTR_STATUS(result)));
    endpoint->closed = NULL;
    grail_ucx_fail_requests(&endpoint->sends, GRAIL_ERR_CANCELLED);
    *closed = true;
    free_endpoint(endpoint);
    return GRAIL_OK;
}

void grail_ucx_abandon_endpoints(ucx_net_t *net)
{
    for (ucx_link_t *link = net->endpoints.next; link != &net->endpoints; link = link->next) {
        ucx_endpoint_t *endpoint = GRAIL_CONTAINER_OF(link, ucx_endpoint_t, link);

        endpoint->failed = true;
        grail_ucx_fail_requests(&endpoint->sends, GRAIL_ERR_CANCELLED);
        if (endpoint->closed != NULL)
            *endpoint->closed = true;
        endpoint->closed = NULL;
        /* when UCX destroys its worker it asserts that nobody waits for a flush any more */
        if (endpoint->close_request != NULL)
            ucp_request_free(endpoint->close_request);
        endpoint->close_request = NULL;
    }
}
