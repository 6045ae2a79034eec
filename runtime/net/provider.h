/* SPDX-License-Identifier: BSD-3-Clause */
/* What a provider of host messaging fills in; only runtime/net/ includes this. */
#ifndef GRAIL_RUNTIME_NET_PROVIDER_H
#define GRAIL_RUNTIME_NET_PROVIDER_H

#include "runtime/net/net.h"

/* Contracts are those of the functions of the same name in net.h. No member may be NULL. */
typedef struct grail_net_provider {
    const char *name;
    grail_status_t (*open)(const grail_net_params_t *params, grail_net_t **net);
    void (*close)(grail_net_t *net);
    const char *(*describe)(const grail_net_t *net);
    grail_status_t (*address)(grail_net_t *net, const void **address, size_t *length);
    grail_status_t (*connect)(grail_net_t *net, const void *address, size_t length, void *peer,
                              grail_net_endpoint_t **endpoint);
    grail_status_t (*disconnect)(grail_net_t *net, grail_net_endpoint_t *endpoint, bool force,
                                 bool *closed);
    grail_status_t (*send)(grail_net_t *net, grail_net_endpoint_t *endpoint, unsigned id,
                           const void *header, size_t header_length,
                           const grail_net_buffer_t *buffer, unsigned flags, grail_net_done_fn done,
                           void *arg);
    grail_status_t (*send_short)(grail_net_endpoint_t *endpoint, const void *data, size_t length);
    grail_status_t (*fetch)(grail_net_t *net, void *token, const grail_net_buffer_t *buffer,
                            grail_net_done_fn done, void *arg);
    bool (*abandon)(grail_net_t *net, const void *arg);
    void (*drop)(grail_net_t *net, void *token);
    grail_status_t (*type_create)(grail_net_t *net, const grail_net_layout_t *layout,
                                  grail_net_type_t **type);
    void (*type_free)(grail_net_type_t *type);
    unsigned (*progress)(grail_net_t *net);
    void (*external_hooks)(void);
    void (*memory_released)(void *address, size_t length);
} grail_net_provider_t;

/* Providers' own structures begin with these. */
struct grail_net {
    const grail_net_provider_t *provider;
};

struct grail_net_endpoint {
    const grail_net_provider_t *provider;
};

struct grail_net_type {
    const grail_net_provider_t *provider;
};

extern const grail_net_provider_t grail_net_ucx;

#endif
