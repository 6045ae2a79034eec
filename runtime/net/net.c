/* SPDX-License-Identifier: BSD-3-Clause */
/* Hands every call on to the provider that was opened. */
#include "runtime/net/net.h"

#include "runtime/net/provider.h"

/* In the order of preference. */
static const grail_net_provider_t *const net_providers[] = {
    &grail_net_ucx,
};

enum { PROVIDER_COUNT = sizeof(net_providers) / sizeof(net_providers[0]) };

grail_status_t grail_net_open(const grail_net_params_t *params, grail_net_t **net)
{
    grail_status_t status = GRAIL_ERR_UNSUPPORTED;

    for (unsigned i = 0; i < PROVIDER_COUNT && status != GRAIL_OK; ++i)
        status = net_providers[i]->open(params, net);
    return status;
}

void grail_net_close(grail_net_t *net)
{
    if (net != NULL)
        net->provider->close(net);
}

const char *grail_net_provider(const grail_net_t *net)
{
    return net->provider->describe(net);
}

grail_status_t grail_net_address(grail_net_t *net, const void **address, size_t *length)
{
    return net->provider->address(net, address, length);
}

grail_status_t grail_net_connect(grail_net_t *net, const void *address, size_t length, void *peer,
                                 grail_net_endpoint_t **endpoint)
{
    return net->provider->connect(net, address, length, peer, endpoint);
}

grail_status_t grail_net_disconnect(grail_net_t *net, grail_net_endpoint_t *endpoint, bool force,
                                    bool *closed)
{
    return net->provider->disconnect(net, endpoint, force, closed);
}

grail_status_t grail_net_send(grail_net_t *net, grail_net_endpoint_t *endpoint, unsigned id,
                              const void *header, size_t header_length,
                              const grail_net_buffer_t *buffer, unsigned flags,
                              grail_net_done_fn done, void *arg)
{
    return net->provider->send(net, endpoint, id, header, header_length, buffer, flags, done, arg);
}

grail_status_t grail_net_send_short(grail_net_endpoint_t *endpoint, const void *data, size_t length)
{
    return endpoint->provider->send_short(endpoint, data, length);
}

grail_status_t grail_net_fetch(grail_net_t *net, void *token, const grail_net_buffer_t *buffer,
                               grail_net_done_fn done, void *arg)
{
    return net->provider->fetch(net, token, buffer, done, arg);
}

bool grail_net_abandon(grail_net_t *net, const void *arg)
{
    return net->provider->abandon(net, arg);
}

void grail_net_drop(grail_net_t *net, void *token)
{
    net->provider->drop(net, token);
}

grail_status_t grail_net_type_create(grail_net_t *net, const grail_net_layout_t *layout,
                                     grail_net_type_t **type)
{
    return net->provider->type_create(net, layout, type);
}

void grail_net_type_free(grail_net_type_t *type)
{
    if (type != NULL)
        type->provider->type_free(type);
}

unsigned grail_net_progress(grail_net_t *net)
{
    return net->provider->progress(net);
}

void grail_net_external_hooks(void)
{
    for (unsigned i = 0; i < PROVIDER_COUNT; ++i)
        net_providers[i]->external_hooks();
}

void grail_net_memory_released(void *address, size_t length)
{
    for (unsigned i = 0; i < PROVIDER_COUNT; ++i)
        net_providers[i]->memory_released(address, length);
}
