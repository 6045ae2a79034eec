/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts: primary and created ones, each thread's stack of current contexts. */
#include <stdlib.h>
#include <string.h>

#include "tests/cudasim/sim.h"

#define STACK_DEPTH 64

pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;

static sim_ctx_t *contexts; /* all that ever were */
static sim_ctx_t *primary[SIM_MAX_DEVICES]; /* by physical index; made again in the same place */
static unsigned int primary_flags[SIM_MAX_DEVICES];
static unsigned long long last_ctx_id;
static __thread sim_ctx_t *stack[STACK_DEPTH];
static __thread int depth; /* the current context is stack[depth - 1] */

sim_ctx_t *sim_ctx_current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

CUresult sim_ctx_usable(sim_ctx_t **out)
{
    sim_ctx_t *ctx = sim_ctx_current();
    if (ctx == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!ctx->alive) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    int error = atomic_load_explicit(&ctx->error, memory_order_relaxed);
    if (error != CUDA_SUCCESS) {
        return (CUresult)error;
    }
    *out = ctx;
    return CUDA_SUCCESS;
}

CUresult sim_ctx_optional(void)
{
    sim_ctx_t *ctx;
    CUresult result = sim_ctx_usable(&ctx);
    return result == CUDA_ERROR_INVALID_CONTEXT && !sim_config()->strict_context ? CUDA_SUCCESS
                                                                                  : result;
}

void sim_ctx_fail(sim_ctx_t *ctx, CUresult error)
{
    int none = CUDA_SUCCESS;
    atomic_compare_exchange_strong(&ctx->error, &none, (int)error);
}

/** Called with sim_lock held. */
static bool known(const sim_ctx_t *ctx)
{
    for (const sim_ctx_t *at = contexts; at != NULL; at = at->next) {
        if (at == ctx) {
            return true;
        }
    }
    return false;
}

bool sim_ctx_valid(CUcontext ctx)
{
    pthread_mutex_lock(&sim_lock);
    bool valid = known(ctx) && ctx->alive;
    pthread_mutex_unlock(&sim_lock);
    return valid;
}

/** Called with sim_lock held; old is a dead primary context to revive, or NULL. */
static CUresult create(sim_ctx_t **out, int phys, unsigned int flags, bool is_primary,
                       sim_ctx_t *old)
{
    CUresult result = sim_arena_init();
    /* A context that an error broke takes the process's GPU work down with it. */
    for (sim_ctx_t *at = contexts; at != NULL && result == CUDA_SUCCESS; at = at->next) {
        result = at->alive ? (CUresult)atomic_load(&at->error) : CUDA_SUCCESS;
    }
    sim_ctx_t *ctx = old;
    if (result == CUDA_SUCCESS && ctx == NULL) {
        ctx = calloc(1, sizeof(*ctx));
        if (ctx == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        ctx->magic = SIM_MAGIC_CTX;
        pthread_mutex_init(&ctx->lock, NULL);
        ctx->next = contexts;
        contexts = ctx;
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    ctx->phys = phys;
    ctx->ordinal = sim_ordinal_of(phys);
    ctx->primary = is_primary;
    ctx->flags = flags;
    ctx->id = ++last_ctx_id;
    atomic_store(&ctx->error, CUDA_SUCCESS);
    atomic_store(&ctx->peers, 0);
    result = sim_stream_new(&ctx->legacy, ctx, CU_STREAM_DEFAULT, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    ctx->legacy->legacy = true;
    ctx->alive = true;
    sim_count(SIM_CONTEXTS_CREATED, 1);
    sim_count(SIM_CONTEXTS_LIVE, 1);
    *out = ctx;
    return CUDA_SUCCESS;
}

/** Ends a live context and all that is in it. Called with sim_lock held. */
static void destroy(sim_ctx_t *ctx)
{
    sim_ctx_drain(ctx);
    ctx->alive = false;
    ctx->retained = 0;
    sim_streams_destroy_all(ctx);
    sim_modules_drop_context(ctx);
    sim_memory_drop_context(ctx);
    sim_count(SIM_CONTEXTS_LIVE, -1);
}

void sim_device_drain(int phys)
{
    /* Contexts are never freed, so the list may be walked without the lock, which must not be held
     * while work runs that may wait for another thread's calls. */
    pthread_mutex_lock(&sim_lock);
    sim_ctx_t *first = contexts;
    pthread_mutex_unlock(&sim_lock);
    for (sim_ctx_t *ctx = first; ctx != NULL; ctx = ctx->next) {
        if (ctx->alive && ctx->phys == phys) {
            sim_ctx_drain(ctx);
        }
    }
}

/* ---- Primary contexts ------------------------------------------------------------------------ */

SIM_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    SIM_ENTER(cuDevicePrimaryCtxRetain);
    if (context == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_device_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    int phys = sim_config()->visible[device];
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&sim_lock);
    if (primary[phys] == NULL || !primary[phys]->alive) {
        result = create(&primary[phys], phys, primary_flags[phys], true, primary[phys]);
    }
    if (result == CUDA_SUCCESS) {
        primary[phys]->retained++;
        *context = primary[phys];
    }
    pthread_mutex_unlock(&sim_lock);
    return result;
}

SIM_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    SIM_ENTER(cuDevicePrimaryCtxRelease);
    if (!sim_device_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&sim_lock);
    sim_ctx_t *ctx = primary[sim_config()->visible[device]];
    if (ctx == NULL || !ctx->alive || ctx->retained == 0) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else if (--ctx->retained == 0) {
        destroy(ctx);
    }
    pthread_mutex_unlock(&sim_lock);
    return result;
}

SIM_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    SIM_ENTER(cuDevicePrimaryCtxReset);
    if (!sim_device_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    pthread_mutex_lock(&sim_lock);
    sim_ctx_t *ctx = primary[sim_config()->visible[device]];
    if (ctx != NULL && ctx->alive) {
        destroy(ctx);
    }
    pthread_mutex_unlock(&sim_lock);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    SIM_ENTER(cuDevicePrimaryCtxSetFlags);
    if (!sim_device_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    int phys = sim_config()->visible[device];
    pthread_mutex_lock(&sim_lock);
    primary_flags[phys] = flags;
    if (primary[phys] != NULL && primary[phys]->alive) {
        primary[phys]->flags = flags;
    }
    pthread_mutex_unlock(&sim_lock);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    SIM_ENTER(cuDevicePrimaryCtxGetState);
    if (flags == NULL || active == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_device_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    int phys = sim_config()->visible[device];
    pthread_mutex_lock(&sim_lock);
    *flags = primary_flags[phys];
    *active = primary[phys] != NULL && primary[phys]->alive;
    pthread_mutex_unlock(&sim_lock);
    return CUDA_SUCCESS;
}

/* ---- Created contexts, the stack ------------------------------------------------------------- */

static CUresult push(sim_ctx_t *ctx)
{
    if (depth == STACK_DEPTH) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    stack[depth++] = ctx;
    return CUDA_SUCCESS;
}

static CUresult create_current(CUcontext *context, unsigned int flags, CUdevice device)
{
    if (context == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_device_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    sim_ctx_t *ctx = NULL;
    pthread_mutex_lock(&sim_lock);
    CUresult result = create(&ctx, sim_config()->visible[device], flags, false, NULL);
    pthread_mutex_unlock(&sim_lock);
    if (result == CUDA_SUCCESS) {
        result = push(ctx);
    }
    if (result == CUDA_SUCCESS) {
        *context = ctx;
    }
    return result;
}

SIM_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    SIM_ENTER(cuCtxCreate);
    return create_current(context, flags, device);
}

SIM_EXPORT CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params,
                                   unsigned int flags, CUdevice device)
{
    SIM_ENTER(cuCtxCreate);
    if (params != NULL) {
        return CUDA_ERROR_NOT_SUPPORTED; /* execution affinity, graphics interoperation */
    }
    return create_current(context, flags, device);
}

SIM_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    SIM_ENTER(cuCtxDestroy);
    CUresult result = CUDA_SUCCESS;
    if (sim_ctx_valid(context)) {
        sim_ctx_drain(context); /* not under the lock, see sim_device_drain */
    }
    pthread_mutex_lock(&sim_lock);
    if (context == NULL || !known(context)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (!context->alive) {
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    } else if (context->primary) {
        result = CUDA_ERROR_INVALID_CONTEXT; /* it is released, not destroyed */
    } else {
        destroy(context);
    }
    pthread_mutex_unlock(&sim_lock);
    if (result == CUDA_SUCCESS && sim_ctx_current() == context) {
        depth--;
    }
    return result;
}

static CUresult check(CUcontext context)
{
    pthread_mutex_lock(&sim_lock);
    CUresult result = !known(context)     ? CUDA_ERROR_INVALID_CONTEXT
                      : !context->alive   ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                          : CUDA_SUCCESS;
    pthread_mutex_unlock(&sim_lock);
    return result;
}

SIM_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    SIM_ENTER(cuCtxPushCurrent);
    CUresult result = check(context);
    return result == CUDA_SUCCESS ? push(context) : result;
}

SIM_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    SIM_ENTER(cuCtxPopCurrent);
    if (depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    depth--;
    if (context != NULL) {
        *context = stack[depth];
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    SIM_ENTER(cuCtxSetCurrent);
    if (context == NULL) {
        depth -= depth > 0;
        return CUDA_SUCCESS;
    }
    CUresult result = check(context);
    if (result == CUDA_SUCCESS) {
        depth -= depth > 0;
        result = push(context);
    }
    return result;
}

SIM_EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
    SIM_ENTER(cuCtxGetCurrent);
    if (context == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *context = sim_ctx_current();
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    SIM_ENTER(cuCtxGetDevice);
    const sim_ctx_t *ctx = sim_ctx_current();
    if (device == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (ctx == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!ctx->alive) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    *device = ctx->ordinal;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxGetFlags(unsigned int *flags)
{
    SIM_ENTER(cuCtxGetFlags);
    SIM_CURRENT(ctx);
    if (flags == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = ctx->flags;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    SIM_ENTER(cuCtxGetId);
    const sim_ctx_t *ctx = context != NULL ? context : sim_ctx_current();
    if (id == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (ctx == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    CUresult result = check((CUcontext)ctx);
    if (result == CUDA_SUCCESS) {
        *id = ctx->id;
    }
    return result;
}

SIM_EXPORT CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
    SIM_ENTER(cuCtxGetApiVersion);
    const sim_ctx_t *ctx = context != NULL ? context : sim_ctx_current();
    if (version == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (ctx == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    CUresult result = check((CUcontext)ctx);
    if (result == CUDA_SUCCESS) {
        *version = 3020;
    }
    return result;
}

SIM_EXPORT CUresult cuCtxSynchronize(void)
{
    SIM_ENTER(cuCtxSynchronize);
    SIM_CURRENT(ctx);
    return sim_ctx_drain(ctx);
}

SIM_EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    SIM_ENTER(cuCtxGetStreamPriorityRange);
    SIM_CURRENT(ctx);
    (void)ctx;
    if (least != NULL) {
        *least = 0;
    }
    if (greatest != NULL) {
        *greatest = -5;
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    SIM_ENTER(cuCtxEnablePeerAccess);
    SIM_CURRENT(ctx);
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_ctx_valid(peer) || peer == ctx) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!sim_config()->p2p[ctx->phys][peer->phys] || ctx->phys == peer->phys) {
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    unsigned int bit = 1u << peer->phys;
    return (atomic_fetch_or(&ctx->peers, bit) & bit) ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
                                                     : CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    SIM_ENTER(cuCtxDisablePeerAccess);
    SIM_CURRENT(ctx);
    if (!sim_ctx_valid(peer) || peer == ctx) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    unsigned int bit = 1u << peer->phys;
    sim_ctx_drain(ctx);
    return (atomic_fetch_and(&ctx->peers, ~bit) & bit) ? CUDA_SUCCESS
                                                       : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
