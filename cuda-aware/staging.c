/* SPDX-License-Identifier: BSD-3-Clause */
/* The pool of private pinned chunks, and the limits of all bounce memory. */
#include <stdlib.h>
#include <sys/mman.h>

#include "cuda-aware/gpu_internal.h"
#include "cuda-aware/staging_internal.h"
#include "runtime/log.h"
#include "runtime/options.h"

/* One chunk for sends and one for receives: see grail_staging_get_to_send(). */
enum { LEAST_CHUNKS = 2 };

enum { PAGE = 4096, GROUP_CHUNKS_FIRST = 2, GROUP_CHUNKS_MOST = 16 };

size_t grail_staging_pinned, grail_staging_device;

/* Chunks are mapped and pinned a group at a time: pinning has a fixed cost of some 100 us. */
struct group {
    struct group *next;
    char *base;
    size_t size;
    grail_gpu_t *gpu;           /* that pinned it; NULL: not pinned (no GPU was in use yet) */
};

struct free_chunk {
    struct free_chunk *next;
};

static struct group *groups;
static struct free_chunk *free_chunks;
static size_t pool_bytes;
static bool some_unpinned;
static size_t next_group = GROUP_CHUNKS_FIRST;

size_t grail_staging_stride(void)
{
    return (grail_options.chunk + PAGE - 1) & ~(size_t)(PAGE - 1);
}

/* Half for private chunks and half for the shared segment, so that neither starves the other. */
size_t grail_staging_pool_limit(void)
{
    size_t limit = grail_options.shm ? grail_options.staging_max / 2 : grail_options.staging_max;

    return limit > LEAST_CHUNKS * grail_staging_stride() ? limit
                                                          : LEAST_CHUNKS * grail_staging_stride();
}

size_t grail_staging_slots_limit(void)
{
    size_t pool = grail_staging_pool_limit();

    return grail_options.staging_max > pool ? grail_options.staging_max - pool : 0;
}

grail_status_t grail_staging_pin(grail_gpu_t *gpu, void *address, size_t size, const char **why)
{
    CUresult result = grail_gpu_pin(gpu, address, size);

    if (result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
        grail_staging_pinned += size;
        return GRAIL_OK;
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        *why = "host memory cannot be pinned (cuMemHostRegister: out of memory): free host memory, "
               "raise the job's memory limit, or lower GRAIL_STAGING_MAX";
        return GRAIL_ERR_NO_MEMORY;
    }
    *why = "host memory cannot be pinned (cuMemHostRegister fails): check the driver and the "
           "limits of the container";
    return GRAIL_ERR_UNSUPPORTED;
}

static void add_chunks(struct group *group)
{
    size_t stride = grail_staging_stride();

    for (size_t at = 0; at + stride <= group->size; at += stride) {
        struct free_chunk *chunk = (struct free_chunk *)(void *)(group->base + at);

        chunk->next = free_chunks;
        free_chunks = chunk;
    }
}

static grail_status_t add_group(size_t chunks, grail_gpu_t *gpu, const char **why)
{
    struct group *group = calloc(1, sizeof(*group));
    size_t size = chunks * grail_staging_stride();
    grail_status_t status;

    if (group == NULL) {
        *why = "out of host memory";
        return GRAIL_ERR_NO_MEMORY;
    }
    group->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (group->base == MAP_FAILED) {
        free(group);
        *why = "out of host memory (mmap)";
        return GRAIL_ERR_NO_MEMORY;
    }
    (void)madvise(group->base, size, MADV_HUGEPAGE);
    group->size = size;
    if (gpu != NULL) {
        status = grail_staging_pin(gpu, group->base, size, why);
        if (status != GRAIL_OK) {
            munmap(group->base, size);
            free(group);
            return status;
        }
        group->gpu = gpu;
    } else {
        some_unpinned = true;
    }
    group->next = groups;
    groups = group;
    pool_bytes += size;
    add_chunks(group);
    return GRAIL_OK;
}

static grail_status_t grow(void)
{
    size_t stride = grail_staging_stride();
    size_t room = (grail_staging_pool_limit() - pool_bytes) / stride;
    size_t chunks = next_group < room ? next_group : room;
    grail_gpu_t *gpu = grail_gpu_any();
    const char *why = NULL, *unpinned_why;
    grail_status_t status;

    if (chunks == 0)
        return GRAIL_ERR_BUSY;
    status = add_group(chunks, gpu, &why);
    if (status != GRAIL_OK && chunks > 1)
        status = add_group(1, gpu, &why);
    if (status != GRAIL_OK && pool_bytes < LEAST_CHUNKS * stride) {
        grail_warn_once("staging-unpinned", "device messages through the host are slow: %s", why);
        status = add_group(LEAST_CHUNKS - pool_bytes / stride, NULL, &unpinned_why);
    }
    if (status == GRAIL_OK) {
        if (next_group < GROUP_CHUNKS_MOST)
            next_group *= 2;
        return GRAIL_OK;
    }
    if (pool_bytes > 0) {
        if (grail_log_first_time("staging pool does not grow"))
            grail_info("the staging pool stays at %zu bytes: %s", pool_bytes, why);
        return GRAIL_ERR_BUSY;
    }
    grail_error("no host memory for staging (%zu bytes): %s", stride, why);
    return status;
}

/* Chunks made before a GPU was in use, or when memory was short. What cannot be pinned stays as it is:
 * slower, but right. */
static void pin_groups(void)
{
    grail_gpu_t *gpu = grail_gpu_any();
    const char *why;

    if (gpu == NULL)
        return;
    some_unpinned = false;
    for (struct group *group = groups; group != NULL; group = group->next) {
        if (group->gpu == NULL &&
            grail_staging_pin(gpu, group->base, group->size, &why) == GRAIL_OK)
            group->gpu = gpu;
    }
}

/* Makes at least `count` chunks free, if that can be. */
static grail_status_t make_free(unsigned count)
{
    grail_status_t status = GRAIL_OK;

    if (GRAIL_UNLIKELY(some_unpinned))
        pin_groups();
    while (status == GRAIL_OK) {
        struct free_chunk *chunk = free_chunks;

        for (unsigned i = 1; chunk != NULL && i < count; ++i)
            chunk = chunk->next;
        if (chunk != NULL)
            return GRAIL_OK;
        status = grow();
    }
    return status;
}

static void *take(void)
{
    struct free_chunk *first = free_chunks;

    free_chunks = first->next;
    return first;
}

grail_status_t grail_staging_get(void **chunk)
{
    grail_status_t status = make_free(1);

    if (status == GRAIL_OK)
        *chunk = take();
    return status;
}

grail_status_t grail_staging_get_to_send(void **chunk)
{
    grail_status_t status = make_free(2);

    if (status == GRAIL_OK)
        *chunk = take();
    return status;
}

void grail_staging_put(void *chunk)
{
    struct free_chunk *first = chunk;

    if (first == NULL)
        return;
    first->next = free_chunks;
    free_chunks = first;
}

size_t grail_staging_chunks(void)
{
    return grail_staging_pool_limit() / grail_staging_stride();
}

void grail_staging_write_off(void)
{
    size_t stride = grail_staging_stride();

    pool_bytes -= stride < pool_bytes ? stride : pool_bytes;
}

void grail_staging_bytes(size_t *pinned, size_t *device)
{
    *pinned = grail_staging_pinned;
    *device = grail_staging_device;
}

void grail_staging_fini(void)
{
    grail_slots_views_fini();
    grail_slots_fini();
    while (groups != NULL) {
        struct group *group = groups;

        groups = group->next;
        if (group->gpu != NULL) {
            grail_gpu_unpin(group->gpu, group->base);
            grail_staging_pinned -= group->size;
        }
        munmap(group->base, group->size);
        free(group);
    }
    free_chunks = NULL;
    pool_bytes = 0;
    some_unpinned = false;
    next_group = GROUP_CHUNKS_FIRST;
}
