/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs kernels, which are compiled as host code (cuda-aware/kernels/device.h): a launch's threads
 * one after another, unless they must be able to wait for each other (blocks of a cooperative
 * launch, threads of a kernel with barriers): then each has a thread of its own. Of a kernel with
 * barriers as many blocks run at the same time as MOST_THREADS allows, as on a GPU that is full.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda-aware/kernels/device.h"
#include "tests/cudasim/sim.h"

#define MOST_THREADS 1024 /* of the host, for one launch or block */
#define STACK_BYTES (256u << 10)

__thread grail_host_index_t grail_host_index;
__thread grail_host_range_t grail_host_ranges[GRAIL_HOST_RANGES];

/** Of one block: who takes part and how often all have met. */
typedef struct barrier {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    uint32_t members, arrived;
    uint64_t round;
    _Alignas(16) unsigned char shared[GRAIL_SHARED_SLOTS * GRAIL_SHARED_BYTES];
} barrier_t;

typedef struct launch {
    sim_op_t op;
    const grail_host_kernel_t *kernel;
    sim_launch_shape_t shape;
    sim_ctx_t *ctx;
    atomic_int failed; /* CUresult */
    time_t began;
    void *args;
} launch_t;

/** What a host thread that runs kernel threads knows. */
typedef struct runner {
    launch_t *launch;
    barrier_t *barrier;
    jmp_buf stop;
    unsigned char scratch[16]; /* what damaged peer accesses get */
} runner_t;

static grail_host_kernel_t *kernels;
static __thread runner_t *self;

void grail_host_kernel_register(grail_host_kernel_t *kernel)
{
    kernel->next = kernels; /* constructors run one after another */
    kernels = kernel;
}

const grail_host_kernel_t *sim_kernel_find(const char *name)
{
    const grail_host_kernel_t *kernel = kernels;
    while (kernel != NULL && strcmp(kernel->name, name) != 0) {
        kernel = kernel->next;
    }
    return kernel;
}

/* ---- What kernels call ----------------------------------------------------------------------- */

static _Noreturn void stop_thread(CUresult error)
{
    int none = CUDA_SUCCESS;
    atomic_compare_exchange_strong(&self->launch->failed, &none, (int)error);
    longjmp(self->stop, 1);
}

static bool accessible(const sim_alloc_t *alloc, const sim_ctx_t *ctx)
{
    switch (alloc->kind) {
    case SIM_MANAGED:
    case SIM_PINNED:
    case SIM_REGISTERED:
        return true;
    case SIM_VMM:
        return alloc->access & (1u << ctx->phys);
    case SIM_POOL:
    case SIM_POOL_IMPORT:
        return sim_pool_accessible(alloc, ctx->phys);
    case SIM_IMPORT:
        if (alloc->ctx == ctx) {
            return true;
        }
        break;
    default:
        break;
    }
    return alloc->phys == ctx->phys ||
           (atomic_load(&((sim_ctx_t *)ctx)->peers) & (1u << alloc->phys)) != 0;
}

void *grail_host_ptr_lookup(grail_dptr_t addr, size_t bytes, int write)
{
    const sim_ctx_t *ctx = self->launch->ctx;
    if (addr % bytes != 0) {
        stop_thread(CUDA_ERROR_MISALIGNED_ADDRESS);
    }
    grail_host_range_t range = {.generation = __atomic_load_n(&grail_host_generation,
                                                              __ATOMIC_SEQ_CST)};
    bool corrupt = false, legal = false;
    pthread_rwlock_rdlock(&sim_mem);
    const sim_alloc_t *alloc = sim_find_any(addr);
    if (alloc != NULL && addr + bytes <= alloc->base + alloc->bytes && accessible(alloc, ctx)) {
        legal = true;
        range.lo = alloc->base;
        range.hi = alloc->base + alloc->bytes;
        range.delta = alloc->delta;
        corrupt = alloc->phys >= 0 && alloc->phys != ctx->phys &&
                  sim_config()->corrupt[ctx->phys][alloc->phys];
    }
    pthread_rwlock_unlock(&sim_mem);
    if (!legal) {
        stop_thread(CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    void *at = (void *)(uintptr_t)(addr + (uint64_t)range.delta);
    if (corrupt) {
        if (!write) {
            memcpy(self->scratch, at, bytes);
            self->scratch[0] ^= 0x55;
        }
        return self->scratch;
    }
    grail_host_ranges[(addr >> 16) % GRAIL_HOST_RANGES] = range;
    return at;
}

void grail_host_spin(void)
{
    static __thread unsigned int spins;
    launch_t *launch = self->launch;
    if (atomic_load(&launch->failed) != CUDA_SUCCESS ||
        atomic_load(&launch->ctx->error) != CUDA_SUCCESS) {
        longjmp(self->stop, 1);
    }
    if (++spins % 8 != 0) {
        sched_yield();
        return;
    }
    unsigned int limit = sim_config()->kernel_timeout;
    if (limit > 0 && time(NULL) - launch->began > (time_t)limit) {
        stop_thread(CUDA_ERROR_LAUNCH_TIMEOUT);
    }
    usleep(20); /* what is waited for may need this CPU */
}

void *grail_host_shared(unsigned int slot)
{
    if (self->barrier == NULL || slot >= GRAIL_SHARED_SLOTS) {
        stop_thread(CUDA_ERROR_ILLEGAL_INSTRUCTION); /* not declared GRAIL_KERNEL_BARRIER */
    }
    return self->barrier->shared + slot * GRAIL_SHARED_BYTES;
}

static void leave_barrier(barrier_t *barrier)
{
    pthread_mutex_lock(&barrier->lock);
    barrier->members--;
    if (barrier->members > 0 && barrier->arrived == barrier->members) {
        barrier->arrived = 0;
        barrier->round++;
        pthread_cond_broadcast(&barrier->cond);
    }
    pthread_mutex_unlock(&barrier->lock);
}

void grail_host_sync_block(void)
{
    barrier_t *barrier = self->barrier;
    if (barrier == NULL) {
        stop_thread(CUDA_ERROR_ILLEGAL_INSTRUCTION); /* not declared GRAIL_KERNEL_BARRIER */
    }
    pthread_mutex_lock(&barrier->lock);
    uint64_t round = barrier->round;
    if (++barrier->arrived == barrier->members) {
        barrier->arrived = 0;
        barrier->round++;
        pthread_cond_broadcast(&barrier->cond);
    }
    while (barrier->round == round) {
        pthread_cond_wait(&barrier->cond, &barrier->lock);
    }
    pthread_mutex_unlock(&barrier->lock);
    if (atomic_load(&self->launch->failed) != CUDA_SUCCESS) {
        longjmp(self->stop, 1);
    }
}

/* ---- Running a launch ------------------------------------------------------------------------ */

static grail_host_dim3_t place_in(uint32_t index, const uint32_t size[3])
{
    return (grail_host_dim3_t){index % size[0], index / size[0] % size[1],
                               index / size[0] / size[1]};
}

static void enter(runner_t *runner, launch_t *launch, barrier_t *barrier)
{
    memset(runner, 0, sizeof(*runner));
    runner->launch = launch;
    runner->barrier = barrier;
    self = runner;
    memset(grail_host_ranges, 0, sizeof(grail_host_ranges));
    const sim_launch_shape_t *s = &launch->shape;
    grail_host_index.grid = (grail_host_dim3_t){s->grid[0], s->grid[1], s->grid[2]};
    grail_host_index.block = (grail_host_dim3_t){s->block[0], s->block[1], s->block[2]};
}

static uint32_t volume(const uint32_t size[3])
{
    return size[0] * size[1] * size[2];
}

/** Threads [first, last) of a block; false if one of them failed. */
static bool run_threads(runner_t *runner, uint32_t block, uint32_t first, uint32_t last)
{
    launch_t *launch = runner->launch;
    grail_host_index.block_id = place_in(block, launch->shape.grid);
    if (setjmp(runner->stop) != 0) {
        return false;
    }
    for (uint32_t thread = first; thread < last; thread++) {
        grail_host_index.thread_id = place_in(thread, launch->shape.block);
        launch->kernel->thread(launch->args);
    }
    return true;
}

typedef struct part {
    pthread_t host;
    bool started;
    launch_t *launch;
    barrier_t *barrier;
    uint32_t block, first, last;
} part_t;

static void *run_part(void *arg)
{
    part_t *part = arg;
    runner_t runner;
    enter(&runner, part->launch, part->barrier);
    run_threads(&runner, part->block, part->first, part->last);
    if (part->barrier != NULL) {
        leave_barrier(part->barrier);
    }
    self = NULL;
    return NULL;
}

/** Runs all parts at the same time. */
static void run_parts(launch_t *launch, part_t *parts, uint32_t count)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (uint32_t i = 0; i < count; i++) {
        parts[i].started = pthread_create(&parts[i].host, &attr, run_part, &parts[i]) == 0;
        if (!parts[i].started) {
            int none = CUDA_SUCCESS;
            atomic_compare_exchange_strong(&launch->failed, &none,
                                           CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
            if (parts[i].barrier != NULL) {
                leave_barrier(parts[i].barrier);
            }
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (parts[i].started) {
            pthread_join(parts[i].host, NULL);
        }
    }
    pthread_attr_destroy(&attr);
}

/** Blocks [first, last) side by side, one host thread each, or one for each of their threads. */
static CUresult run_side_by_side(launch_t *launch, uint32_t first, uint32_t last)
{
    uint32_t threads = volume(launch->shape.block);
    uint32_t per_block = launch->kernel->barrier ? threads : 1;
    uint32_t count = (last - first) * per_block;
    part_t *parts = calloc(count, sizeof(*parts));
    barrier_t *barriers = calloc(last - first, sizeof(*barriers));
    if (parts == NULL || barriers == NULL) {
        free(parts);
        free(barriers);
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    for (uint32_t b = 0; b < last - first; b++) {
        pthread_mutex_init(&barriers[b].lock, NULL);
        pthread_cond_init(&barriers[b].cond, NULL);
        barriers[b].members = threads;
        for (uint32_t i = 0; i < per_block; i++) {
            part_t *part = &parts[b * per_block + i];
            *part = (part_t){.launch = launch, .block = first + b};
            part->barrier = launch->kernel->barrier ? &barriers[b] : NULL;
            part->first = launch->kernel->barrier ? i : 0;
            part->last = launch->kernel->barrier ? i + 1 : threads;
        }
    }
    run_parts(launch, parts, count);
    for (uint32_t b = 0; b < last - first; b++) {
        pthread_mutex_destroy(&barriers[b].lock);
        pthread_cond_destroy(&barriers[b].cond);
    }
    free(parts);
    free(barriers);
    return (CUresult)atomic_load(&launch->failed);
}

static CUresult run_launch(sim_op_t *op)
{
    launch_t *launch = (launch_t *)op;
    uint32_t blocks = volume(launch->shape.grid);
    launch->began = time(NULL);
    if (launch->shape.cooperative) {
        return run_side_by_side(launch, 0, blocks);
    }
    if (launch->kernel->barrier) {
        CUresult result = CUDA_SUCCESS;
        uint32_t room = MOST_THREADS / volume(launch->shape.block); /* a block has 1024 at most */
        for (uint32_t b = 0; b < blocks && result == CUDA_SUCCESS; b += room) {
            result = run_side_by_side(launch, b, b + room < blocks ? b + room : blocks);
        }
        return result;
    }
    runner_t runner;
    enter(&runner, launch, NULL);
    for (uint32_t b = 0; b < blocks; b++) {
        if (!run_threads(&runner, b, 0, volume(launch->shape.block))) {
            break;
        }
    }
    self = NULL;
    return (CUresult)atomic_load(&launch->failed);
}

static void drop_launch(sim_op_t *op)
{
    free(((launch_t *)op)->args);
}

CUresult sim_kernel_submit(const grail_host_kernel_t *kernel, const sim_launch_shape_t *shape,
                           sim_stream_t *stream, const void *args)
{
    uint64_t blocks = (uint64_t)shape->grid[0] * shape->grid[1] * shape->grid[2];
    uint64_t threads = (uint64_t)shape->block[0] * shape->block[1] * shape->block[2];
    if (blocks == 0 || threads == 0 || shape->grid[1] > 65535 || shape->grid[2] > 65535 ||
        shape->block[2] > 64 || shape->grid[0] > INT32_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (threads > 1024 || blocks > UINT32_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (shape->cooperative && blocks * (kernel->barrier ? threads : 1) > MOST_THREADS) {
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }
    launch_t *launch = sim_op_new(sizeof(*launch), run_launch);
    if (launch == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    launch->op.drop = drop_launch;
    launch->kernel = kernel;
    launch->shape = *shape;
    launch->ctx = stream->ctx;
    launch->args = malloc(kernel->args_bytes);
    if (launch->args == NULL) {
        free(launch);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(launch->args, args, kernel->args_bytes);
    sim_count(SIM_LAUNCHES, 1);
    return sim_submit(stream, &launch->op, NULL);
}
