/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of peers that is mapped here: a bounded cache. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda-aware/gpu_internal.h"
#include "cuda-aware/ipc_internal.h"
#include "cuda-aware/stream.h"
#include "runtime/log.h"
#include "runtime/options.h"

enum {
    BUCKETS = 1024,
    FAILURES_TO_BLOCK = 3       /* opens that fail in a row, for no clear reason, end the tries */
};

struct mapping {
    grail_ipc_map_t map;        /* what callers hold */
    struct mapping *next;       /* in the bucket of (owner, base) */
    struct mapping *older, *newer;
    bool local;                 /* memory of this process: nothing was opened, not in the cache */
    bool doomed;                /* not in a bucket any more: closed at its last release */
    bool closed;                /* by fini, under a user: only the structure is left */
};

/* A peer whose memory cannot be mapped by a GPU, or could not be some times. */
struct blocked {
    struct blocked *next;
    uint64_t owner;
    int device;
    CUuuid remote;
    int failures;
    const char *why;            /* NULL: not yet given up */
};

/* Callers hold one lock for all, except grail_ipc_is_mapping(): `lock` is for that. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *buckets[BUCKETS];
static struct mapping *oldest, *newest;     /* every opened mapping, by last use */
static int open_count;
static uint64_t open_bytes;
static struct blocked *blocks;

/* ---- lists ---- */

static struct mapping **bucket_of(uint64_t owner, uint64_t base)
{
    uint64_t x = (owner ^ (base >> 8)) * 0x9e3779b97f4a7c15ull;

    return &buckets[(x >> 40) % BUCKETS];
}

static void unlink_age(struct mapping *m)
{
    if (m->older != NULL)
        m->older->newer = m->newer;
    else
        oldest = m->newer;
    if (m->newer != NULL)
        m->newer->older = m->older;
    else
        newest = m->older;
}

static void link_newest(struct mapping *m)
{
    m->newer = NULL;
    m->older = newest;
    if (newest != NULL)
        newest->newer = m;
    else
        oldest = m;
    newest = m;
}

static void unlink_bucket(struct mapping *m)
{
    struct mapping **link = bucket_of(m->map.key.owner, m->map.key.base);

    while (*link != m)
        link = &(*link)->next;
    *link = m->next;
}

/* ---- closing ---- */

/* The peer may have died or freed the memory: closing works all the same. */
static void close_handle(struct mapping *m)
{
    pthread_mutex_lock(&lock);
    unlink_age(m);
    open_count--;
    open_bytes -= m->map.key.size;
    pthread_mutex_unlock(&lock);
    if (!grail_cuda_gone() && grail_gpu_enter(m->map.gpu) == CUDA_SUCCESS) {
        CUresult result =
            grail_cuda.IpcCloseMemHandle((CUdeviceptr)(uintptr_t)m->map.address);

        grail_gpu_leave(m->map.gpu);
        if (result != CUDA_SUCCESS)
            grail_debug("closing a peer mapping at %p: CUDA error %d", m->map.address,
                        (int)result);
    }
}

/* Not in a bucket. */
static void close_mapping(struct mapping *m)
{
    close_handle(m);
    free(m);
}

/* Takes it out of the cache, and closes it now or at its last release. */
static void retire(struct mapping *m)
{
    unlink_bucket(m);
    m->doomed = true;
    if (m->map.users == 0)
        close_mapping(m);
}

static int evict(int count_limit, uint64_t bytes_limit)
{
    int closed = 0;

    for (struct mapping *m = oldest, *next; m != NULL; m = next) {
        if (open_count <= count_limit && open_bytes <= bytes_limit)
            break;
        next = m->newer;
        if (m->map.users > 0)
            continue;
        retire(m);
        closed++;
    }
    return closed;
}

int grail_ipc_evict(void)
{
    return evict(0, 0);
}

/* ---- reasons ---- */

/* A lasting copy of the text; equal texts give the same pointer, so that they count as one. */
static const char *reason(const char *format, ...) GRAIL_PRINTF(1, 2);
static const char *reason(const char *format, ...)
{
    static struct text {
        struct text *next;
        char text[];
    } *texts;
    char line[400];
    struct text *node;
    size_t size;
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    for (node = texts; node != NULL; node = node->next) {
        if (strcmp(node->text, line) == 0)
            return node->text;
    }
    size = strlen(line) + 1;
    node = malloc(sizeof(*node) + size);
    if (node == NULL)
        return "the peer's memory cannot be mapped";
    memcpy(node->text, line, size);
    node->next = texts;
    texts = node;
    return node->text;
}

const char *grail_ipc_no_way(const grail_gpu_t *gpu, const CUuuid *remote)
{
    int here = grail_gpu_device(gpu);
    int there = grail_device_of_uuid(remote);
    int can = 0;
    CUdevice a, b;

    if (there < 0 || there == here)
        return NULL;
    if (grail_device_is_mig(here) || grail_device_is_mig(there))
        return "MIG instances cannot map each other's memory: use whole GPUs, or one instance for "
               "all ranks that exchange device buffers";
    if (grail_cuda.DeviceGet(&a, here) != CUDA_SUCCESS ||
        grail_cuda.DeviceGet(&b, there) != CUDA_SUCCESS ||
        grail_cuda.DeviceCanAccessPeer(&can, a, b) != CUDA_SUCCESS || can)
        return NULL;
    return reason("%s and %s have no peer-to-peer access (nvidia-smi topo -p2p r shows why: no "
                  "common PCIe root, a virtual machine, or a GPU model without it)",
                  grail_device_name(here), grail_device_name(there));
}

static const char *error_name(CUresult result)
{
    const char *name = NULL;

    return grail_cuda.GetErrorName(result, &name) == CUDA_SUCCESS && name != NULL
               ? name
               : "unknown CUDA error";
}

/* `certain`: trying again is no use. */
static const char *why_open_failed(const grail_gpu_t *gpu, const grail_ipc_key_t *key,
                                   CUresult result, bool *certain)
{
    int there = grail_device_of_uuid(&key->gpu);
    const char *name = error_name(result);

    *certain = result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED ||
               result == CUDA_ERROR_INVALID_DEVICE || result == CUDA_ERROR_NOT_SUPPORTED ||
               result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_OPERATING_SYSTEM ||
               result == CUDA_ERROR_TOO_MANY_PEERS || result == CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return reason("no room to map the peer's memory on %s (%s): free GPU memory or lower "
                      "GRAIL_IPC_CACHE_BYTES", grail_gpu_name(gpu), name);
    if (grail_device_is_mig(grail_gpu_device(gpu)))
        return reason("CUDA IPC does not work on this MIG instance (%s)", name);
    if (there < 0)
        return reason("the peer's GPU is hidden from this process (%s): CUDA_VISIBLE_DEVICES, a "
                      "scheduler's binding (Slurm --gpus-per-task) or a container masks it; give "
                      "every rank of a node all its GPUs and let it choose one by its local rank",
                      name);
    if (result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
        return reason("%s cannot access the peer's GPU (%s): see nvidia-smi topo -p2p r",
                      grail_gpu_name(gpu), name);
    if (result == CUDA_ERROR_TOO_MANY_PEERS)
        return reason("%s has reached the hardware's number of peer GPUs (%s)",
                      grail_gpu_name(gpu), name);
    if (grail_device_attribute(grail_gpu_device(gpu), CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) ==
        CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
        return reason("CUDA IPC fails between processes of a GPU in exclusive mode (%s): use "
                      "nvidia-smi -c DEFAULT, or MPS", name);
    return reason("the driver cannot open the peer's memory (%s): if the ranks are in different "
                  "containers, give them one IPC and PID namespace (--ipc=host --pid=host)", name);
}

static struct blocked *block_of(const grail_gpu_t *gpu, uint64_t owner, const CUuuid *remote)
{
    struct blocked *b;

    for (b = blocks; b != NULL; b = b->next) {
        if (b->owner == owner && b->device == grail_gpu_device(gpu) &&
            grail_uuid_equal(&b->remote, remote))
            return b;
    }
    return NULL;
}

const char *grail_ipc_blocked(const grail_gpu_t *gpu, uint64_t owner, const CUuuid *remote)
{
    const struct blocked *b = block_of(gpu, owner, remote);

    return b != NULL ? b->why : NULL;
}

static void note_failure(const grail_gpu_t *gpu, const grail_ipc_key_t *key, bool certain,
                         const char *why)
{
    struct blocked *b = block_of(gpu, key->owner, &key->gpu);

    if (b == NULL) {
        b = calloc(1, sizeof(*b));
        if (b == NULL)
            return;
        b->owner = key->owner;
        b->device = grail_gpu_device(gpu);
        b->remote = key->gpu;
        b->next = blocks;
        blocks = b;
    }
    b->failures++;
    if (certain || b->failures >= FAILURES_TO_BLOCK)
        b->why = why;
}

/* ---- opening ---- */

static CUresult try_open(grail_gpu_t *gpu, const grail_ipc_key_t *key, CUdeviceptr *address)
{
    CUresult result = grail_gpu_enter(gpu);

    if (result != CUDA_SUCCESS)
        return result;
    result = grail_cuda.IpcOpenMemHandle(address, key->handle,
                                         CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    grail_gpu_leave(gpu);
    return result;
}

/* Mappings that nobody uses may be what is in the way: of address space, of page tables, or (when
 * the peer freed and allocated again) of the very range. */
static CUresult open_or_evict(grail_gpu_t *gpu, const grail_ipc_key_t *key, CUdeviceptr *address)
{
    CUresult result = try_open(gpu, key, address);

    if ((result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_ALREADY_MAPPED) &&
        grail_ipc_evict() > 0)
        result = try_open(gpu, key, address);
    return result;
}

/*
 * CUDA opens memory of one process and GPU in one context per device of the importer only (a second
 * one gets CUDA_ERROR_INVALID_HANDLE). Copies queued in another context reach it all the same, so
 * the context that opened first is the home of all that follow.
 */
static grail_gpu_t *home_of(grail_gpu_t *gpu, const grail_ipc_key_t *key)
{
    for (const struct mapping *m = newest; m != NULL; m = m->older) {
        if (m->map.key.owner == key->owner && grail_uuid_equal(&m->map.key.gpu, &key->gpu) &&
            grail_gpu_device(m->map.gpu) == grail_gpu_device(gpu) && grail_gpu_alive(m->map.gpu))
            return m->map.gpu;
    }
    return gpu;
}

static struct mapping *lookup(const grail_gpu_t *gpu, const grail_ipc_key_t *key)
{
    struct mapping *m, *next;

    for (m = *bucket_of(key->owner, key->base); m != NULL; m = next) {
        next = m->next;
        if (m->map.key.owner != key->owner || m->map.key.base != key->base)
            continue;
        if (m->map.key.buffer_id != key->buffer_id)
            retire(m);          /* freed by its owner, and allocated anew */
        else if (m->map.gpu == gpu || (grail_gpu_device(m->map.gpu) == grail_gpu_device(gpu) &&
                                       grail_gpu_alive(m->map.gpu)))
            return m;
    }
    return NULL;
}

static grail_status_t map_local(grail_gpu_t *gpu, const grail_ipc_key_t *key,
                                grail_ipc_map_t **map)
{
    struct mapping *m = calloc(1, sizeof(*m));

    if (m == NULL) {
        grail_error("out of memory for a mapping");
        return GRAIL_ERR_NO_MEMORY;
    }
    m->local = true;
    m->map = (grail_ipc_map_t){.address = (void *)(uintptr_t)key->base, .key = *key, .gpu = gpu,
                               .users = 1};
    *map = &m->map;
    return GRAIL_OK;
}

static grail_status_t map_new(grail_gpu_t *gpu, const grail_ipc_key_t *key, grail_ipc_map_t **map,
                              const char **why)
{
    struct blocked *block = block_of(gpu, key->owner, &key->gpu);
    struct mapping *m, **bucket;
    CUdeviceptr address;
    CUresult result;
    bool certain = true;

    *why = block != NULL && block->why != NULL ? block->why : grail_ipc_no_way(gpu, &key->gpu);
    if (*why != NULL)
        return GRAIL_ERR_UNSUPPORTED;
    m = calloc(1, sizeof(*m));
    if (m == NULL) {
        grail_error("out of memory for a mapping");
        *why = "out of host memory";
        return GRAIL_ERR_NO_MEMORY;
    }
    evict(grail_options.ipc_cache - 1, key->size < grail_options.ipc_cache_bytes
                                           ? grail_options.ipc_cache_bytes - key->size
                                           : 0);
    gpu = home_of(gpu, key);
    result = open_or_evict(gpu, key, &address);
    if (result != CUDA_SUCCESS) {
        free(m);
        *why = why_open_failed(gpu, key, result, &certain);
        if (result != CUDA_ERROR_OUT_OF_MEMORY)
            note_failure(gpu, key, certain, *why);
        grail_debug("mapping %llu bytes of a peer on %s: %s", (unsigned long long)key->size,
                    grail_gpu_name(gpu), error_name(result));
        return GRAIL_ERR_UNSUPPORTED;
    }
    if (block != NULL)
        block->failures = 0;
    m->map = (grail_ipc_map_t){.address = (void *)(uintptr_t)address, .key = *key, .gpu = gpu,
                               .users = 1};
    bucket = bucket_of(key->owner, key->base);
    pthread_mutex_lock(&lock);
    m->next = *bucket;
    *bucket = m;
    link_newest(m);
    open_count++;
    open_bytes += key->size;
    pthread_mutex_unlock(&lock);
    *map = &m->map;
    return GRAIL_OK;
}

grail_status_t grail_ipc_map(grail_gpu_t *gpu, const grail_ipc_key_t *key, grail_ipc_map_t **map,
                             const char **why)
{
    struct mapping *m;

    if (key->owner == grail_ipc_owner())
        return map_local(gpu, key, map);
    if (!grail_options.ipc) {
        *why = "the option ipc is off";
        return GRAIL_ERR_UNSUPPORTED;
    }
    m = lookup(gpu, key);
    if (m == NULL)
        return map_new(gpu, key, map, why);
    pthread_mutex_lock(&lock);
    unlink_age(m);
    link_newest(m);
    pthread_mutex_unlock(&lock);
    m->map.users++;
    *map = &m->map;
    return GRAIL_OK;
}

void grail_ipc_release(grail_ipc_map_t *map)
{
    struct mapping *m = GRAIL_CONTAINER_OF(map, struct mapping, map);

    if (--map->users > 0)
        return;
    if (m->local || m->closed)
        free(m);
    else if (m->doomed)
        close_mapping(m);
    else
        evict(grail_options.ipc_cache, grail_options.ipc_cache_bytes);
}

void grail_ipc_forget(uint64_t owner, uint64_t base, uint64_t buffer_id)
{
    for (struct mapping *m = oldest, *next; m != NULL; m = next) {
        next = m->newer;
        if (m->map.key.owner == owner && !m->doomed &&
            (base == 0 || (m->map.key.base == base && m->map.key.buffer_id == buffer_id)))
            retire(m);
    }
    if (base != 0)
        return;
    for (struct blocked **link = &blocks, *b; (b = *link) != NULL;) {
        if (b->owner == owner) {
            *link = b->next;
            free(b);
        } else {
            link = &b->next;
        }
    }
}

bool grail_ipc_is_mapping(CUdeviceptr address)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (const struct mapping *m = newest; m != NULL && !found; m = m->older)
        found = (CUdeviceptr)(uintptr_t)m->map.address == address;
    pthread_mutex_unlock(&lock);
    return found;
}

void grail_ipc_fini(void)
{
    grail_p2p_fini();
    while (oldest != NULL) {
        struct mapping *m = oldest;

        if (!m->doomed)
            unlink_bucket(m);
        close_handle(m);
        m->closed = true;
        if (m->map.users == 0)
            free(m);
    }
    while (blocks != NULL) {
        struct blocked *b = blocks;

        blocks = b->next;
        free(b);
    }
    grail_ipc_export_fini();
}
