/* SPDX-License-Identifier: BSD-3-Clause */
/* Events, also between processes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/cudasim/sim.h"

#define EVENT_HANDLE_MAGIC 0x76456d53u

/** What the processes that share an event see: numbers of its records. */
typedef struct shared_event {
    atomic_ullong recorded, completed;
} shared_event_t;

typedef struct event_handle {
    uint32_t magic;
    int32_t pid;
    uint64_t start_time;
    uint64_t inode;
    int32_t fd;
    uint32_t flags;
} event_handle_t;
_Static_assert(sizeof(event_handle_t) <= sizeof(CUipcEventHandle), "the handle must fit");

/** Never freed, so that stale handles are recognised. */
struct CUevent_st {
    uint32_t magic;
    bool alive;
    sim_ctx_t *ctx;
    unsigned int flags;
    pthread_mutex_t lock;
    sim_stream_t *stream; /* of the last record; NULL: never recorded */
    uint64_t seq;
    unsigned long long number; /* of the last record */
    uint64_t done_number;      /* record whose time is in done_ns */
    uint64_t done_ns;
    int fd;
    shared_event_t *shared;
    struct CUevent_st *next;
};

typedef struct CUevent_st event_t;

static event_t *events; /* all that ever were */

typedef struct record_op {
    sim_op_t op;
    event_t *event;
    unsigned long long number;
} record_op_t;

static CUresult run_record(sim_op_t *op)
{
    record_op_t *record = (record_op_t *)op;
    event_t *event = record->event;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&event->lock);
    event->done_number = record->number;
    event->done_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    pthread_mutex_unlock(&event->lock);
    if (event->shared != NULL) {
        atomic_store(&event->shared->completed, record->number);
    }
    return CUDA_SUCCESS;
}

static event_t *event_new(sim_ctx_t *ctx, unsigned int flags)
{
    event_t *event = calloc(1, sizeof(*event));
    if (event == NULL) {
        return NULL;
    }
    event->magic = SIM_MAGIC_EVENT;
    event->alive = true;
    event->ctx = ctx;
    event->flags = flags;
    event->fd = -1;
    pthread_mutex_init(&event->lock, NULL);
    pthread_mutex_lock(&sim_lock);
    event->next = events;
    events = event;
    pthread_mutex_unlock(&sim_lock);
    sim_count(SIM_EVENTS_CREATED, 1);
    sim_count(SIM_EVENTS_LIVE, 1);
    return event;
}

static CUresult usable(const event_t *event)
{
    if (event == NULL || event->magic != SIM_MAGIC_EVENT || !event->alive) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return event->ctx->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult share(event_t *event)
{
    event->fd = memfd_create("cudasim-event", MFD_CLOEXEC);
    if (event->fd < 0 || ftruncate(event->fd, sizeof(shared_event_t)) != 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    void *at = mmap(NULL, sizeof(shared_event_t), PROT_READ | PROT_WRITE, MAP_SHARED, event->fd, 0);
    if (at == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->shared = at;
    return CUDA_SUCCESS;
}

static void end_event(event_t *event)
{
    pthread_mutex_lock(&event->lock);
    event->alive = false;
    pthread_mutex_unlock(&event->lock);
    sim_count(SIM_EVENTS_LIVE, -1);
    /* The mapping stays: a record may still be queued. */
    if (event->fd >= 0) {
        close(event->fd);
        event->fd = -1;
    }
}

SIM_EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    SIM_ENTER(cuEventCreate);
    SIM_CURRENT(ctx);
    if (event == NULL || flags > 7 ||
        ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    event_t *made = event_new(ctx, flags);
    if (made == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = (flags & CU_EVENT_INTERPROCESS) ? share(made) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        end_event(made);
        return result;
    }
    *event = made;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
    SIM_ENTER(cuEventDestroy);
    if (event == NULL || event->magic != SIM_MAGIC_EVENT || !event->alive) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    end_event(event);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuEventRecord(CUevent event, CUstream handle)
{
    SIM_ENTER(cuEventRecord);
    CUresult result = usable(event);
    sim_stream_t *stream;
    if (result == CUDA_SUCCESS) {
        result = sim_stream_get(handle, &stream);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (stream->ctx != event->ctx) {
        return CUDA_ERROR_INVALID_HANDLE; /* must be of the same context */
    }
    record_op_t *op = sim_op_new(sizeof(*op), run_record);
    if (op == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint64_t seq;
    pthread_mutex_lock(&event->lock);
    unsigned long long number = event->shared != NULL
                                    ? atomic_fetch_add(&event->shared->recorded, 1) + 1
                                    : event->number + 1;
    op->event = event;
    op->number = number;
    op->op.always = true;
    result = sim_submit(stream, &op->op, &seq);
    if (result == CUDA_SUCCESS) {
        sim_stream_ref(stream);
        if (event->stream != NULL) {
            sim_stream_unref(event->stream);
        }
        event->stream = stream;
        event->seq = seq;
        event->number = number;
    }
    pthread_mutex_unlock(&event->lock);
    return result;
}

/** What the event stood at when it was asked: done, or a place in a stream to wait for. */
typedef struct snapshot {
    bool done;
    sim_stream_t *stream; /* a reference; NULL: shared */
    uint64_t seq;
    unsigned long long number;
} snapshot_t;

static snapshot_t look(event_t *event)
{
    snapshot_t now = {.done = true};
    pthread_mutex_lock(&event->lock);
    if (event->shared != NULL) {
        now.number = atomic_load(&event->shared->recorded);
        now.done = atomic_load(&event->shared->completed) >= now.number;
    } else if (event->stream != NULL && !sim_stream_done(event->stream, event->seq)) {
        now = (snapshot_t){false, event->stream, event->seq, event->number};
        sim_stream_ref(now.stream);
    }
    pthread_mutex_unlock(&event->lock);
    return now;
}

static void wait_shared(event_t *event, unsigned long long number)
{
    while (atomic_load(&event->shared->completed) < number &&
           atomic_load(&event->ctx->error) == CUDA_SUCCESS && event->ctx->alive) {
        usleep(50);
    }
}

SIM_EXPORT CUresult cuEventQuery(CUevent event)
{
    SIM_ENTER(cuEventQuery);
    CUresult result = usable(event);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    snapshot_t now = look(event);
    if (now.stream != NULL) {
        sim_stream_unref(now.stream);
    }
    result = (CUresult)atomic_load(&event->ctx->error);
    return result != CUDA_SUCCESS ? result : now.done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIM_EXPORT CUresult cuEventSynchronize(CUevent event)
{
    SIM_ENTER(cuEventSynchronize);
    CUresult result = usable(event);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    snapshot_t now = look(event);
    if (now.stream != NULL) {
        sim_stream_wait(now.stream, now.seq);
        sim_stream_unref(now.stream);
    } else if (!now.done) {
        wait_shared(event, now.number);
    }
    return (CUresult)atomic_load(&event->ctx->error);
}

static CUresult run_wait_shared(sim_op_t *op)
{
    record_op_t *wait = (record_op_t *)op;
    wait_shared(wait->event, wait->number);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags)
{
    SIM_ENTER(cuStreamWaitEvent);
    (void)flags;
    CUresult result = usable(event);
    sim_stream_t *stream;
    if (result == CUDA_SUCCESS) {
        result = sim_stream_get(handle, &stream);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    snapshot_t now = look(event);
    if (now.done) {
        return CUDA_SUCCESS;
    }
    record_op_t *op = sim_op_new(sizeof(*op), now.stream != NULL ? sim_op_nothing
                                                                  : run_wait_shared);
    if (op == NULL) {
        if (now.stream != NULL) {
            sim_stream_unref(now.stream);
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    op->event = event;
    op->number = now.number;
    if (now.stream != NULL) {
        op->op.extra_dep = (sim_dep_t){now.stream, now.seq};
    }
    return sim_submit(stream, &op->op, NULL);
}

SIM_EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    SIM_ENTER(cuEventElapsedTime);
    CUresult result = usable(start);
    if (result == CUDA_SUCCESS) {
        result = usable(end);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (milliseconds == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) || start->number == 0 ||
        end->number == 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    uint64_t ns[2];
    const event_t *const both[2] = {start, end};
    for (int i = 0; i < 2; i++) {
        pthread_mutex_lock((pthread_mutex_t *)&both[i]->lock);
        bool done = both[i]->done_number == both[i]->number;
        ns[i] = both[i]->done_ns;
        pthread_mutex_unlock((pthread_mutex_t *)&both[i]->lock);
        if (!done) {
            return CUDA_ERROR_NOT_READY;
        }
    }
    *milliseconds = (float)((double)(int64_t)(ns[1] - ns[0]) * 1e-6);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);
SIM_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

/* ---- Between processes ----------------------------------------------------------------------- */

SIM_EXPORT CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    SIM_ENTER(cuIpcGetEventHandle);
    CUresult result = usable(event);
    struct stat st;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (handle == NULL || event->fd < 0 || sim_config()->mig || fstat(event->fd, &st) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    event_handle_t made = {EVENT_HANDLE_MAGIC, getpid(), sim_process_start_time(getpid()),
                           st.st_ino, event->fd, event->flags};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &made, sizeof(made));
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
    SIM_ENTER(cuIpcOpenEventHandle);
    SIM_CURRENT(ctx);
    event_handle_t given;
    memcpy(&given, &handle, sizeof(given));
    if (event == NULL || given.magic != EVENT_HANDLE_MAGIC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (given.pid == getpid() || given.start_time != sim_process_start_time(given.pid)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    char path[64];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", given.pid, given.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return CUDA_ERROR_MAP_FAILED;
    }
    void *at = MAP_FAILED;
    if (fstat(fd, &st) == 0 && st.st_ino == given.inode) {
        at = mmap(NULL, sizeof(shared_event_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    event_t *made = at != MAP_FAILED ? event_new(ctx, given.flags) : NULL;
    if (made == NULL) {
        close(fd);
        return CUDA_ERROR_MAP_FAILED;
    }
    close(fd);
    made->shared = at;
    *event = made;
    return CUDA_SUCCESS;
}
