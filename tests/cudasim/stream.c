/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams: queues of operations, each run in order by a thread of its own, which starts with the
 * first operation, sleeps while there is none and ends when it was idle for a while.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/cudasim/sim.h"

#define IDLE_SECONDS 1

__thread bool sim_in_host_function;

static atomic_ullong last_stream_id;

CUresult sim_stream_new(sim_stream_t **out, sim_ctx_t *ctx, unsigned int flags, int priority)
{
    sim_stream_t *stream = calloc(1, sizeof(*stream));
    if (stream == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stream->magic = SIM_MAGIC_STREAM;
    stream->ctx = ctx;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = atomic_fetch_add(&last_stream_id, 1) + 1;
    stream->tail = &stream->head;
    stream->alive = true;
    atomic_store(&stream->refs, 1);
    pthread_mutex_init(&stream->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&stream->cond, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_lock(&ctx->lock);
    stream->next = ctx->streams;
    ctx->streams = stream;
    pthread_mutex_unlock(&ctx->lock);
    *out = stream;
    return CUDA_SUCCESS;
}

void sim_stream_ref(sim_stream_t *stream)
{
    atomic_fetch_add(&stream->refs, 1);
}

/* Stream structures are never freed, so that a stale handle is recognised and never looks like a
 * newer stream. */
void sim_stream_unref(sim_stream_t *stream)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static sim_stream_t *dead;
    if (atomic_fetch_sub(&stream->refs, 1) == 1) {
        pthread_mutex_lock(&lock);
        stream->next = dead;
        dead = stream;
        pthread_mutex_unlock(&lock);
    }
}

void sim_stream_wait(sim_stream_t *stream, uint64_t seq)
{
    if (sim_stream_done(stream, seq)) {
        return;
    }
    pthread_mutex_lock(&stream->lock);
    while (!sim_stream_done(stream, seq)) {
        pthread_cond_wait(&stream->cond, &stream->lock);
    }
    pthread_mutex_unlock(&stream->lock);
}

/* ---- The thread of a stream ------------------------------------------------------------------ */

static void run_op(sim_stream_t *stream, sim_op_t *op)
{
    sim_ctx_t *ctx = stream->ctx;
    for (int i = 0; i < op->dep_count; i++) {
        sim_stream_wait(op->deps[i].stream, op->deps[i].seq);
        sim_stream_unref(op->deps[i].stream);
    }
    if (op->extra_dep.stream != NULL) {
        sim_stream_wait(op->extra_dep.stream, op->extra_dep.seq);
        sim_stream_unref(op->extra_dep.stream);
    }
    unsigned int delay = atomic_load_explicit(&sim_delay_us, memory_order_relaxed);
    if (delay > 0) {
        usleep(delay);
    }
    CUresult result = CUDA_SUCCESS;
    if (op->always || atomic_load(&ctx->error) == CUDA_SUCCESS) {
        result = op->fault != CUDA_SUCCESS ? op->fault : op->run(op);
    }
    if (result != CUDA_SUCCESS) {
        /* What fails after it was queued breaks the context, whatever the error. */
        sim_count(SIM_OPS_FAILED, 1);
        sim_ctx_fail(ctx, result);
    }
    if (op->drop != NULL) {
        op->drop(op);
    }
    free(op->deps);
}

/** Waits for an op; false when the thread shall end. The lock is held. */
static bool await_op(sim_stream_t *stream)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += IDLE_SECONDS;
    while (stream->head == NULL) {
        if (!stream->alive || pthread_cond_timedwait(&stream->cond, &stream->lock, &until) ==
                                  ETIMEDOUT) {
            return stream->head != NULL;
        }
    }
    return true;
}

/** A GPU needs no CPU: the ranks of a job, which poll, must not keep this thread from running. Both
 *  may fail; then it is only slow. */
static void prefer_this_thread(void)
{
    struct { /* sched_attr, which the C library does not declare */
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {.size = 48, .policy = SCHED_OTHER, .nice = -10, .runtime = 100000};
    if (syscall(SYS_sched_setattr, 0, &attr, 0) != 0) {
        attr.nice = 0;
        syscall(SYS_sched_setattr, 0, &attr, 0);
    }
}

static void *stream_main(void *arg)
{
    sim_stream_t *stream = arg;
    prefer_this_thread();
    pthread_mutex_lock(&stream->lock);
    while (await_op(stream)) {
        sim_op_t *op = stream->head;
        stream->head = op->next;
        if (stream->head == NULL) {
            stream->tail = &stream->head;
        }
        pthread_mutex_unlock(&stream->lock);
        uint64_t seq = op->seq;
        run_op(stream, op);
        free(op);
        pthread_mutex_lock(&stream->lock);
        atomic_store_explicit(&stream->completed, seq, memory_order_release);
        pthread_cond_broadcast(&stream->cond);
    }
    stream->running = false;
    pthread_mutex_unlock(&stream->lock);
    sim_stream_unref(stream);
    return NULL;
}

/** Called with the stream's lock held. */
static CUresult start_thread(sim_stream_t *stream)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    /* The application's signals are for its own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sim_stream_ref(stream);
    int failed = pthread_create(&thread, &attr, stream_main, stream);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        sim_stream_unref(stream);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    stream->running = true;
    sim_count(SIM_THREADS_STARTED, 1);
    return CUDA_SUCCESS;
}

/* ---- Submission ------------------------------------------------------------------------------ */

void *sim_op_new(size_t bytes, sim_op_fn_t run)
{
    sim_op_t *op = calloc(1, bytes);
    if (op != NULL) {
        op->run = run;
    }
    return op;
}

static bool blocking(const sim_stream_t *stream)
{
    return !stream->legacy && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

static bool pending(sim_stream_t *stream)
{
    pthread_mutex_lock(&stream->lock);
    bool some = !sim_stream_done(stream, stream->submitted);
    pthread_mutex_unlock(&stream->lock);
    return some;
}

/** The legacy default stream waits for all blocking streams, and they for it. The context's lock is
 *  held, so the order of submissions is one for all streams. */
static CUresult add_deps(sim_stream_t *stream, sim_op_t *op)
{
    int most = 0;
    for (sim_stream_t *other = stream->ctx->streams; other != NULL; other = other->next) {
        most++;
    }
    op->deps = malloc((size_t)most * sizeof(*op->deps));
    if (op->deps == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (sim_stream_t *other = stream->ctx->streams; other != NULL; other = other->next) {
        bool ordered = stream->legacy ? blocking(other) : blocking(stream) && other->legacy;
        if (ordered && other != stream && pending(other)) {
            sim_stream_ref(other);
            op->deps[op->dep_count++] = (sim_dep_t){other, other->submitted};
        }
    }
    return CUDA_SUCCESS;
}

CUresult sim_submit(sim_stream_t *stream, sim_op_t *op, uint64_t *seq)
{
    sim_ctx_t *ctx = stream->ctx;
    CUresult result = CUDA_SUCCESS;
    op->stream = stream;
    op->fault = sim_take_async_fault();
    pthread_mutex_lock(&ctx->lock);
    if (!stream->alive) {
        result = CUDA_ERROR_INVALID_HANDLE;
    } else if (stream->legacy || blocking(stream)) {
        result = add_deps(stream, op);
    }
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&stream->lock);
        if (!stream->running) {
            result = start_thread(stream);
        }
        if (result == CUDA_SUCCESS) {
            op->seq = ++stream->submitted;
            if (seq != NULL) {
                *seq = op->seq;
            }
            *stream->tail = op;
            stream->tail = &op->next;
            pthread_cond_broadcast(&stream->cond);
        }
        pthread_mutex_unlock(&stream->lock);
    }
    pthread_mutex_unlock(&ctx->lock);
    if (result != CUDA_SUCCESS) {
        for (int i = 0; i < op->dep_count; i++) {
            sim_stream_unref(op->deps[i].stream);
        }
        if (op->extra_dep.stream != NULL) {
            sim_stream_unref(op->extra_dep.stream);
        }
        if (op->drop != NULL) {
            op->drop(op);
        }
        free(op->deps);
        free(op);
    }
    return result;
}

CUresult sim_ctx_drain(sim_ctx_t *ctx)
{
    for (;;) {
        sim_stream_t *busy = NULL;
        uint64_t seq = 0;
        pthread_mutex_lock(&ctx->lock);
        for (sim_stream_t *stream = ctx->streams; stream != NULL && busy == NULL;
             stream = stream->next) {
            if (pending(stream)) {
                busy = stream;
                seq = stream->submitted;
                sim_stream_ref(busy);
            }
        }
        pthread_mutex_unlock(&ctx->lock);
        if (busy == NULL) {
            return (CUresult)atomic_load(&ctx->error);
        }
        sim_stream_wait(busy, seq);
        sim_stream_unref(busy);
    }
}

/* ---- Handles --------------------------------------------------------------------------------- */

static CUresult per_thread_stream(sim_ctx_t *ctx, sim_stream_t **out)
{
    pthread_t self = pthread_self();
    pthread_mutex_lock(&ctx->lock);
    sim_stream_t *stream = ctx->streams;
    while (stream != NULL && !(stream->per_thread && pthread_equal(stream->maker, self))) {
        stream = stream->next;
    }
    pthread_mutex_unlock(&ctx->lock);
    if (stream == NULL) {
        CUresult result = sim_stream_new(&stream, ctx, CU_STREAM_DEFAULT, 0);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        stream->maker = self;
        stream->per_thread = true;
    }
    *out = stream;
    return CUDA_SUCCESS;
}

CUresult sim_stream_get(CUstream handle, sim_stream_t **out)
{
    bool is_default = handle == NULL || handle == CU_STREAM_LEGACY ||
                      handle == CU_STREAM_PER_THREAD;
    if (is_default || sim_config()->strict_context) {
        SIM_CURRENT(ctx);
        if (handle == CU_STREAM_PER_THREAD) {
            return per_thread_stream(ctx, out);
        }
        if (is_default) {
            *out = ctx->legacy;
            return CUDA_SUCCESS;
        }
    }
    if (handle->magic != SIM_MAGIC_STREAM || !handle->alive) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    int error = atomic_load(&handle->ctx->error);
    if (error != CUDA_SUCCESS) {
        return (CUresult)error;
    }
    *out = handle;
    return CUDA_SUCCESS;
}

/** Called with the context's lock held. */
static void unlink_stream(sim_stream_t *stream)
{
    for (sim_stream_t **link = &stream->ctx->streams; *link != NULL; link = &(*link)->next) {
        if (*link == stream) {
            *link = stream->next;
            return;
        }
    }
}

/** The queue is worked off, then the thread ends. The context's lock is held. */
static void retire(sim_stream_t *stream)
{
    unlink_stream(stream);
    pthread_mutex_lock(&stream->lock);
    stream->alive = false;
    pthread_cond_broadcast(&stream->cond);
    pthread_mutex_unlock(&stream->lock);
    if (!stream->legacy && !stream->per_thread) {
        sim_count(SIM_STREAMS_LIVE, -1);
    }
    sim_stream_unref(stream);
}

void sim_streams_destroy_all(sim_ctx_t *ctx)
{
    pthread_mutex_lock(&ctx->lock);
    while (ctx->streams != NULL) {
        retire(ctx->streams);
    }
    ctx->legacy = NULL;
    pthread_mutex_unlock(&ctx->lock);
}

static CUresult create(CUstream *stream, unsigned int flags, int priority)
{
    SIM_CURRENT(ctx);
    if (stream == NULL || (flags & ~(unsigned int)CU_STREAM_NON_BLOCKING) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    CUresult result = sim_stream_new(stream, ctx, flags, priority);
    if (result == CUDA_SUCCESS) {
        sim_count(SIM_STREAMS_CREATED, 1);
        sim_count(SIM_STREAMS_LIVE, 1);
    }
    return result;
}

SIM_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    SIM_ENTER(cuStreamCreate);
    return create(stream, flags, 0);
}

SIM_EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    SIM_ENTER(cuStreamCreateWithPriority);
    return create(stream, flags, priority);
}

SIM_EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    SIM_ENTER(cuStreamDestroy);
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
        stream->magic != SIM_MAGIC_STREAM || !stream->alive) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    sim_ctx_t *ctx = stream->ctx;
    pthread_mutex_lock(&ctx->lock);
    retire(stream);
    pthread_mutex_unlock(&ctx->lock);
    return (CUresult)atomic_load(&ctx->error);
}

CUresult sim_op_nothing(sim_op_t *op)
{
    (void)op;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuStreamQuery(CUstream handle)
{
    SIM_ENTER(cuStreamQuery);
    sim_stream_t *stream;
    CUresult result = sim_stream_get(handle, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return pending(stream) ? CUDA_ERROR_NOT_READY : (CUresult)atomic_load(&stream->ctx->error);
}

SIM_EXPORT CUresult cuStreamSynchronize(CUstream handle)
{
    SIM_ENTER(cuStreamSynchronize);
    sim_stream_t *stream;
    CUresult result = sim_stream_get(handle, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t seq;
    if (stream->legacy) {
        sim_op_t *op = sim_op_new(sizeof(*op), sim_op_nothing);
        if (op == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        result = sim_submit(stream, op, &seq);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    } else {
        pthread_mutex_lock(&stream->lock);
        seq = stream->submitted;
        pthread_mutex_unlock(&stream->lock);
    }
    sim_stream_ref(stream);
    sim_stream_wait(stream, seq);
    sim_stream_unref(stream);
    return (CUresult)atomic_load(&stream->ctx->error);
}

SIM_EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    SIM_ENTER(cuStreamGetCtx);
    sim_stream_t *stream;
    CUresult result = sim_stream_get(handle, &stream);
    if (result == CUDA_SUCCESS && context == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *context = stream->ctx;
    }
    return result;
}

SIM_EXPORT CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
    SIM_ENTER(cuStreamGetFlags);
    sim_stream_t *stream;
    CUresult result = sim_stream_get(handle, &stream);
    if (result == CUDA_SUCCESS && flags == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *flags = stream->flags;
    }
    return result;
}

SIM_EXPORT CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
    SIM_ENTER(cuStreamGetPriority);
    sim_stream_t *stream;
    CUresult result = sim_stream_get(handle, &stream);
    if (result == CUDA_SUCCESS && priority == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *priority = stream->priority;
    }
    return result;
}

SIM_EXPORT CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
    SIM_ENTER(cuStreamGetId);
    sim_stream_t *stream;
    CUresult result = sim_stream_get(handle, &stream);
    if (result == CUDA_SUCCESS && id == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *id = stream->id;
    }
    return result;
}

SIM_EXPORT CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    SIM_ENTER(cuStreamIsCapturing);
    sim_stream_t *stream;
    CUresult result = sim_stream_get(handle, &stream);
    if (result == CUDA_SUCCESS && status == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *status = CU_STREAM_CAPTURE_STATUS_NONE;
    }
    return result;
}

SIM_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    SIM_ENTER(cuThreadExchangeStreamCaptureMode);
    static __thread CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (mode == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUstreamCaptureMode before = current;
    current = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
