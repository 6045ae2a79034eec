/* SPDX-License-Identifier: BSD-3-Clause */
/* Structures shared by the files of the UCX provider. */
#ifndef GRAIL_RUNTIME_NET_UCX_H
#define GRAIL_RUNTIME_NET_UCX_H

#include <sys/types.h>

/* recent headers of UCX compare signs in a macro, which is an error under -Wextra -Werror */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-compare"
#include <ucp/api/ucp.h>
#pragma GCC diagnostic pop

#include "runtime/net/provider.h"

typedef struct ucx_link {
    struct ucx_link *prev, *next;
} ucx_link_t;

/*
 * Every operation says that its memory is host memory: UCX then does not look the pointer up, which
 * costs time on every message once a CUDA-enabled UCX finds a driver.
 */
enum { UCX_OP_ATTRIBUTES = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_MEMORY_TYPE };

/* The id of the first part of a split message (net_ucx_send.c) is UCX_SPLIT_ID + the message's. */
enum { UCX_SPLIT_ID = GRAIL_NET_HANDLERS, UCX_SHORT_ID = 2 * GRAIL_NET_HANDLERS };

/*
 * Header and payload that UCX sends as one copied fragment: its default segment of 8256 bytes (of
 * posix, sysv, rc and dc; made for 8 KiB with headers) less its own 8-byte header. Where a
 * transport takes less, UCX makes two of it; that is slower but right.
 */
enum { UCX_FRAGMENT = 8256 - 8 };

/* After the user's header in the first part of a split message. */
typedef struct ucx_split_trailer {
    uint64_t length;        /* of the whole payload */
    uint64_t tag;           /* of the rest: 40 bits tell senders apart, 24 count their messages */
} ucx_split_trailer_t;

#define UCX_TAG_COUNTER_MASK ((UINT64_C(1) << 24) - 1)

typedef enum ucx_token_kind {
    UCX_TOKEN_EAGER,        /* all there */
    UCX_TOKEN_RNDV,         /* still with its sender */
    UCX_TOKEN_SPLIT         /* `first` bytes there, the rest comes by tag */
} ucx_token_kind_t;

/* A fixed-size piece of memory on a free list, for one kept or unfinished message. */
typedef struct ucx_token {
    struct ucx_token *next_free;
    void *desc;             /* UCX's name for the message; with data, the data */
    size_t length;
    size_t first;           /* bytes at desc that a fetch copies from there */
    uint64_t tag;
    ucx_token_kind_t kind;
    bool live;              /* handed out */
    bool in_handler;        /* the handler that was given this token has not returned */
    bool released;          /* dropped (or truncated) inside the handler */
    bool fetched;           /* fetched inside the handler */
    bool copied;            /* desc is our own memory */
} ucx_token_t;

typedef struct ucx_net ucx_net_t;
typedef struct ucx_endpoint ucx_endpoint_t;

/* Where a process runs and what it is called there: decides whether its death can be seen from
 * here. Sent in front of UCX's own worker address. */
typedef struct ucx_origin {
    uint32_t magic;         /* and version */
    int32_t pid;
    uint64_t slots;         /* of UCX's shared-memory queues: the same number for the same size, 0
                             * for no queues */
    uint64_t node;          /* the kernel's boot id, folded */
    uint64_t pid_namespace;
    uint64_t start_time;    /* of the process, in clock ticks since boot: tells reused pids apart */
} ucx_origin_t;

typedef struct ucx_type ucx_type_t;

/*
 * One unpacking by UCX through a type. An error of the layout's unpack function is kept here until
 * UCX reports the end: told of it at once, UCX 1.22 frees the state and goes on to use it for the
 * fragments that follow. Freed by whoever comes last, UCX (finish) or the operation's end.
 */
typedef struct ucx_unpacking {
    const ucx_type_t *type;
    void *state;            /* the layout's; NULL when UCX has finished with it */
    size_t base;            /* bytes that were unpacked before UCX began */
    grail_status_t status;
    bool forgotten;         /* by the operation */
} ucx_unpacking_t;

/* UCX may complete an operation inside the call that starts it and return a request all the same
 * (1.13 does for ucp_am_recv_data_nbx() over CMA): the request then finds itself IDLE. */
typedef enum ucx_request_state {
    UCX_REQUEST_IDLE,       /* with UCX, or just returned */
    UCX_REQUEST_EARLY,      /* completed before the call that started it returned */
    UCX_REQUEST_FLYING,     /* in a list of operations */
    UCX_REQUEST_ORPHAN      /* its owner has been told already */
} ucx_request_state_t;

/* Lives in the user area of a UCX request, so it is pooled by UCX and costs nothing when an
 * operation completes at once. */
typedef struct ucx_request {
    ucx_link_t link;        /* in its endpoint's (sends) or net's (fetches) list of operations */
    grail_net_done_fn done;
    void *arg;
    size_t length;
    ucx_unpacking_t *unpacking; /* NULL: none */
    ucx_request_state_t state;
    grail_status_t status;  /* of an early completion */
} ucx_request_t;

struct ucx_endpoint {
    struct grail_net_endpoint base;
    ucx_link_t link;        /* in net->endpoints */
    ucx_net_t *net;
    ucp_ep_h ep;
    void *peer;
    ucx_link_t sends;       /* in flight */
    bool *closed;           /* set while it is being closed and its owner waits for that */
    void *close_request;    /* UCX's, while it is being closed */
    size_t split_end;       /* as in the net, for this peer */
    bool failed;
    bool watched;           /* the process can be looked up in /proc */
    ucx_origin_t origin;
};

typedef struct ucx_handler {
    ucx_net_t *net;
    grail_net_handler_fn call;
} ucx_handler_t;

struct ucx_net {
    struct grail_net base;
    ucp_context_h context;
    ucp_worker_h worker;
    ucx_handler_t handlers[GRAIL_NET_HANDLERS];
    void *handler_arg;
    grail_net_error_fn on_error;
    ucx_token_t *free_tokens;
    struct ucx_token_block *token_blocks;
    struct ucx_split *free_splits;
    size_t split_end_node;  /* fast sends from this size on are UCX's rendezvous; 0: never split */
    size_t split_end_remote;
    ucx_handler_t short_handler;
    uint64_t tag_prefix;
    uint64_t next_tag;
    unsigned idle_calls;    /* of progress, without an event */
    bool in_progress;
    ucx_link_t endpoints;
    ucx_link_t *watch_cursor;
    uint64_t watch_due_ms;
    ucx_link_t fetches;     /* in flight */
    void *address;
    size_t address_length;
    ucx_origin_t origin;
    char description[32];
};

struct ucx_type {
    struct grail_net_type base;
    grail_net_layout_t layout;
    ucp_datatype_t pack_type;
    ucp_datatype_t unpack_type;
    void *started;          /* state made before a UCX call, taken by the call back from it */
};

static inline void ucx_list_init(ucx_link_t *head)
{
    head->prev = head->next = head;
}

static inline bool ucx_list_empty(const ucx_link_t *head)
{
    return head->next == head;
}

static inline void ucx_list_add(ucx_link_t *head, ucx_link_t *link)
{
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

static inline void ucx_list_remove(ucx_link_t *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->prev = link->next = link;
}

#define UCX_NET(n)      ((ucx_net_t *)(n))
#define UCX_ENDPOINT(e) ((ucx_endpoint_t *)(e))

/* Bytes of a slot in UCX's shared-memory queues (net_ucx.c): for 8 KiB and all headers, in whole
 * pairs of cache lines, which processors fetch together (0.08 us). */
#define UCX_SLOT_SIZE "8448"

/* About what UCX's posix transport takes in /dev/shm at start: one chunk of receive buffers
 * (4292720 bytes with 1.13) and a queue (64 slots with 1.13, 256 with 1.16). */
enum { UCX_POSIX_NEED = 7 << 20 };

/* Which transports UCX may use. */
typedef struct ucx_transports {
    size_t fast_rndv_node;  /* size from which UCX uses a rendezvous for sends with FAST_CMPL */
    size_t fast_rndv_remote; /* the same to other nodes; 0: not a number */
    bool ours;              /* the user left the choice open (UCX_TLS=all, the default) */
    bool posix;             /* shared memory in files of posix_folder */
    bool no_posix;          /* asked for: a try with it has failed */
    bool queues;            /* one with queues in shared memory may be used */
    const char *posix_folder;
    int posix_error;        /* errno if it cannot be looked at, 0 if it can */
    size_t posix_free;      /* when last looked at, bytes */
} ucx_transports_t;

/*
 * Takes from UCX's default choice what Grail must not or cannot use: CUDA (never needed, because
 * no device pointer is given to UCX, and its start-up would touch the driver), cma where processes
 * may not read each other, and posix shared memory where /dev/shm has no room. A choice made by the
 * user stays. Also reads the threshold.
 */
void grail_ucx_choose_transports(ucp_config_t *config, const grail_net_params_t *params,
                                 ucx_transports_t *transports);
bool grail_ucx_posix_has_room(ucx_transports_t *transports);

/* May peers of this node (processes in all, 0 if unknown), with the rights that this process has,
 * read its memory? If not, why, and what helps: lasting strings. */
bool grail_ucx_may_copy(unsigned processes_on_node, const char **reason, const char **cure);

/* UCX's status in ours. */
grail_status_t grail_ucx_status(ucs_status_t status);

/* Takes every operation off `list` and tells its owner `status`. UCX may still complete the
 * operation later; that is then ignored. */
void grail_ucx_fail_requests(ucx_link_t *list, grail_status_t status);

/* For ucp_params_t.request_init. */
void grail_ucx_init_request(void *request);

/* A UCX call has returned a request. GRAIL_IN_PROGRESS: it is in flight, `done` will be called.
 * Anything else: it is over, `done` will not be called. */
grail_status_t grail_ucx_start(ucx_request_t *request, ucx_link_t *list, grail_net_done_fn done,
                               void *arg, size_t length);

/* For UCX's completion callbacks. */
void grail_ucx_finish(ucx_request_t *request, grail_status_t status);

/* The elements must not be touched any more; UCX may hold on to the structure. */
void grail_ucx_abandon_unpacking(ucx_unpacking_t *unpacking);

/* For UCX's finish, and for the end of the operation: gives the status of both. */
void grail_ucx_finish_unpacking(void *unpacking);
grail_status_t grail_ucx_end_unpacking(ucx_unpacking_t *unpacking, grail_status_t status);

void grail_ucx_free_splits(ucx_net_t *net);

grail_status_t grail_ucx_set_handlers(ucx_net_t *net, const grail_net_params_t *params);

/* Drops what is still kept, then frees all. Before the worker goes. */
void grail_ucx_free_tokens(ucx_net_t *net);

grail_status_t grail_ucx_send(grail_net_t *net, grail_net_endpoint_t *endpoint, unsigned id,
                              const void *header, size_t header_length,
                              const grail_net_buffer_t *buffer, unsigned flags,
                              grail_net_done_fn done, void *arg);
grail_status_t grail_ucx_send_short(grail_net_endpoint_t *endpoint, const void *data,
                                    size_t length);
grail_status_t grail_ucx_fetch(grail_net_t *net, void *token, const grail_net_buffer_t *buffer,
                               grail_net_done_fn done, void *arg);
bool grail_ucx_abandon(grail_net_t *net, const void *arg);
void grail_ucx_drop(grail_net_t *net, void *token);
grail_status_t grail_ucx_type_create(grail_net_t *net, const grail_net_layout_t *layout,
                                     grail_net_type_t **type);
void grail_ucx_type_free(grail_net_type_t *type);

void grail_ucx_find_origin(ucx_origin_t *origin);

/* 64 well-mixed bits that differ between processes, also between two nets of one process. */
uint64_t grail_ucx_sender_key(const ucx_origin_t *origin);

grail_status_t grail_ucx_connect(grail_net_t *net, const void *address, size_t length, void *peer,
                                 grail_net_endpoint_t **endpoint);
grail_status_t grail_ucx_disconnect(grail_net_t *net, grail_net_endpoint_t *endpoint, bool force,
                                    bool *closed);

/* Ends its sends and reports it, once. */
void grail_ucx_fail_endpoint(ucx_endpoint_t *endpoint, grail_status_t status, const char *reason);

/* Looks now and then whether the processes of this node that are connected still live. */
void grail_ucx_watch(ucx_net_t *net);

/* Ends every endpoint without waiting; for grail_net_close(). */
void grail_ucx_abandon_endpoints(ucx_net_t *net);

#endif
