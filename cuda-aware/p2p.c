/* SPDX-License-Identifier: BSD-3-Clause */
/* Proof by data that memory of one GPU arrives undamaged at another. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "cuda-aware/copy.h"
#include "cuda-aware/gpu_internal.h"
#include "cuda-aware/ipc_internal.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/options.h"

enum {
    PROBE_BYTES = 65536,
    KERNEL_BYTES = 4096,        /* copied apart, by a kernel where there is one */
    PROOF_SECONDS = 10
};

/* Memory that peers prove their way to us with; one per context. */
struct probe {
    struct probe *next;
    grail_gpu_t *gpu;
    CUdeviceptr memory;
    grail_ipc_key_t key;        /* `reserved` is the seed of the pattern */
    const char *why;            /* not NULL: there will be none */
};

struct pair {
    struct pair *next;
    CUuuid local, remote;
    grail_p2p_state_t state;
    const char *why;
};

static struct probe *probes;
static struct pair *pairs;

static const char damaged[] =
    "peer-to-peer copies between these GPUs arrive damaged: PCIe ACS or an IOMMU redirects them; "
    "disable ACS on the PCIe switches (or the IOMMU in the BIOS), or set GRAIL_IPC=off";

/* The seed differs for every probe, so that neither zeros nor an older probe can pass for it. */
static void make_pattern(uint64_t seed, uint64_t *words, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        uint64_t x = seed + (i + 1) * 0x9e3779b97f4a7c15ull;

        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        words[i] = x ^ (x >> 31);
    }
}

static grail_status_t allocate(grail_gpu_t *gpu, size_t size, CUdeviceptr *memory, const char *what)
{
    CUresult result = grail_gpu_enter(gpu);

    if (result == CUDA_SUCCESS) {
        result = grail_cuda.MemAlloc(memory, size);
        grail_gpu_leave(gpu);
    }
    if (result == CUDA_SUCCESS)
        return GRAIL_OK;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        if (grail_log_first_time(what))
            grail_info("%s has no room for %zu bytes: %s", grail_gpu_name(gpu), size, what);
        return GRAIL_ERR_NO_DEVICE_MEMORY;
    }
    return grail_cuda_fail(result, what);
}

static void release(grail_gpu_t *gpu, CUdeviceptr memory)
{
    if (memory == 0 || grail_cuda_gone() || grail_gpu_enter(gpu) != CUDA_SUCCESS)
        return;
    (void)grail_cuda.MemFree(memory);
    grail_gpu_leave(gpu);
}

/* ---- the owner's side ---- */

static grail_status_t make_probe(struct probe *probe)
{
    uint64_t *pattern = malloc(PROBE_BYTES);
    uint64_t seed = grail_ipc_owner();
    grail_status_t status;
    grail_mem_t mem;

    if (pattern == NULL) {
        grail_error("out of memory for the pattern of a peer-to-peer check");
        return GRAIL_ERR_NO_MEMORY;
    }
    status = allocate(probe->gpu, PROBE_BYTES, &probe->memory,
                      "peers cannot prove their way to this GPU and use other paths");
    if (status != GRAIL_OK)
        goto free_pattern;
    status = grail_mem_query((void *)(uintptr_t)probe->memory, &mem);
    if (status != GRAIL_OK)
        goto free_memory;
    seed ^= mem.buffer_id * 0xd1342543de82ef95ull;
    make_pattern(seed, pattern, PROBE_BYTES / sizeof(*pattern));
    status = grail_copy_sync((void *)(uintptr_t)probe->memory, pattern, PROBE_BYTES, &mem);
    if (status != GRAIL_OK)
        goto free_memory;
    status = grail_ipc_export(&mem, &probe->key, &probe->why);
    if (status != GRAIL_OK)
        goto free_memory;
    probe->key.reserved = seed;
    free(pattern);
    return GRAIL_OK;

free_memory:
    release(probe->gpu, probe->memory);
    probe->memory = 0;
free_pattern:
    free(pattern);
    return status;
}

grail_status_t grail_p2p_probe_key(grail_gpu_t *gpu, grail_ipc_key_t *key)
{
    struct probe *probe;
    grail_status_t status;

    for (probe = probes; probe != NULL; probe = probe->next) {
        if (probe->gpu == gpu)
            break;
    }
    if (probe != NULL && probe->why != NULL)
        return GRAIL_ERR_UNSUPPORTED;
    if (probe != NULL) {
        *key = probe->key;
        return GRAIL_OK;
    }
    probe = calloc(1, sizeof(*probe));
    if (probe == NULL) {
        grail_error("out of memory for a peer-to-peer check");
        return GRAIL_ERR_NO_MEMORY;
    }
    probe->gpu = gpu;
    status = make_probe(probe);
    if (status != GRAIL_OK && probe->why == NULL) {
        free(probe);            /* may work another time */
        return status;
    }
    probe->next = probes;
    probes = probe;
    if (status == GRAIL_OK)
        *key = probe->key;
    return status;
}

/* ---- the other side ---- */

static struct pair *find_pair(const CUuuid *local, const CUuuid *remote)
{
    struct pair *pair;

    for (pair = pairs; pair != NULL; pair = pair->next) {
        if (grail_uuid_equal(&pair->local, local) && grail_uuid_equal(&pair->remote, remote))
            return pair;
    }
    return NULL;
}

static grail_p2p_state_t keep(grail_gpu_t *gpu, const CUuuid *remote, grail_p2p_state_t state,
                              const char *reason, const char **why)
{
    struct pair *pair = calloc(1, sizeof(*pair));

    if (pair != NULL) {
        pair->local = *grail_gpu_uuid(gpu);
        pair->remote = *remote;
        pair->state = state;
        pair->why = reason;
        pair->next = pairs;
        pairs = pair;
    }
    if (state == GRAIL_P2P_BAD)
        *why = reason;
    return state;
}

grail_p2p_state_t grail_p2p_state(grail_gpu_t *gpu, const CUuuid *remote, const char **why)
{
    const struct pair *pair = find_pair(grail_gpu_uuid(gpu), remote);
    const char *reason;

    if (pair != NULL) {
        if (pair->state == GRAIL_P2P_BAD)
            *why = pair->why;
        return pair->state;
    }
    reason = grail_ipc_no_way(gpu, remote);
    if (reason != NULL)
        return keep(gpu, remote, GRAIL_P2P_BAD, reason, why);
    return grail_options.p2p_check ? GRAIL_P2P_UNKNOWN
                                   : keep(gpu, remote, GRAIL_P2P_GOOD, NULL, why);
}

static grail_status_t wait_for(grail_copy_t *op)
{
    uint64_t start = grail_clock_ns();
    grail_status_t status;

    while ((status = grail_copy_test(op)) == GRAIL_IN_PROGRESS) {
        if (grail_clock_ns() - start > PROOF_SECONDS * 1000000000ull) {
            grail_error("a peer-to-peer check did not end within %d s", PROOF_SECONDS);
            return GRAIL_ERR_TIMEOUT;
        }
        sched_yield();
    }
    return status;
}

/* By copy engine to this GPU, by copy engine to the host, and by kernel. Order matters: a kernel
 * that faults ends the context, so it comes last. */
static grail_status_t compare(grail_gpu_t *gpu, const grail_ipc_map_t *map,
                              const grail_mem_t *scratch, const uint64_t *expected, uint64_t *got,
                              bool *same)
{
    void *local = (void *)(uintptr_t)scratch->base;
    grail_copy_t op;
    grail_status_t status;

    *same = false;
    status = grail_copy_sync(local, map->address, PROBE_BYTES, scratch);
    if (status == GRAIL_OK)
        status = grail_copy_sync(got, local, PROBE_BYTES, scratch);
    if (status != GRAIL_OK || memcmp(got, expected, PROBE_BYTES) != 0)
        return status;
    memset(got, 0, PROBE_BYTES);
    status = grail_copy_sync(got, map->address, PROBE_BYTES, scratch);
    if (status != GRAIL_OK || memcmp(got, expected, PROBE_BYTES) != 0)
        return status;
    memset(got, 0, PROBE_BYTES);
    status = grail_copy_sync(local, got, KERNEL_BYTES, scratch);
    if (status == GRAIL_OK)
        status = grail_copy_start(gpu, GRAIL_LANE_PEER, local, map->address, KERNEL_BYTES, &op);
    if (status == GRAIL_OK)
        status = wait_for(&op);
    if (status == GRAIL_OK)
        status = grail_copy_sync(got, local, KERNEL_BYTES, scratch);
    *same = status == GRAIL_OK && memcmp(got, expected, KERNEL_BYTES) == 0;
    return status;
}

static grail_status_t examine(grail_gpu_t *gpu, const grail_ipc_map_t *map, uint64_t seed,
                              bool *same)
{
    uint64_t *expected = malloc(2 * PROBE_BYTES);
    uint64_t *got = expected + PROBE_BYTES / sizeof(*expected);
    CUdeviceptr memory = 0;
    grail_status_t status;
    grail_mem_t scratch;

    if (expected == NULL) {
        grail_error("out of memory for a peer-to-peer check");
        return GRAIL_ERR_NO_MEMORY;
    }
    make_pattern(seed, expected, PROBE_BYTES / sizeof(*expected));
    status = allocate(gpu, PROBE_BYTES, &memory,
                      "the way from a peer's GPU cannot be proved and another path is used");
    if (status == GRAIL_OK)
        status = grail_mem_query((void *)(uintptr_t)memory, &scratch);
    if (status == GRAIL_OK)
        status = compare(gpu, map, &scratch, expected, got, same);
    release(gpu, memory);
    free(expected);
    return status;
}

grail_p2p_state_t grail_p2p_prove(grail_gpu_t *gpu, const grail_ipc_key_t *probe, const char **why)
{
    const char *reason = NULL;
    grail_p2p_state_t known = grail_p2p_state(gpu, &probe->gpu, why);
    grail_status_t status;
    grail_ipc_map_t *map;
    bool same = false;

    if (known != GRAIL_P2P_UNKNOWN)
        return known;
    if (probe->size < PROBE_BYTES) {
        grail_error("internal: a peer-to-peer probe of %llu bytes", (unsigned long long)probe->size);
        *why = "the peer's probe is not one";
        return GRAIL_P2P_BAD;
    }
    status = grail_ipc_map(gpu, probe, &map, &reason);
    if (status != GRAIL_OK) {
        *why = reason != NULL ? reason : "the peer's memory cannot be mapped";
        return grail_ipc_blocked(gpu, probe->owner, &probe->gpu) != NULL ? GRAIL_P2P_BAD
                                                                         : GRAIL_P2P_UNKNOWN;
    }
    status = examine(gpu, map, probe->reserved, &same);
    grail_ipc_release(map);
    if (status == GRAIL_ERR_NO_MEMORY || status == GRAIL_ERR_NO_DEVICE_MEMORY) {
        *why = "no memory to prove the way between these two GPUs: free GPU memory";
        return GRAIL_P2P_UNKNOWN;
    }
    if (status != GRAIL_OK)
        return keep(gpu, &probe->gpu, GRAIL_P2P_BAD,
                    "copies from the peer's GPU fail (the error is logged above): check the GPUs "
                    "with nvidia-smi and dmesg (Xid), or set GRAIL_IPC=off", why);
    if (!same)
        return keep(gpu, &probe->gpu, GRAIL_P2P_BAD, damaged, why);
    grail_debug("%s reads its peer's memory undamaged", grail_gpu_name(gpu));
    return keep(gpu, &probe->gpu, GRAIL_P2P_GOOD, NULL, why);
}

void grail_p2p_fini(void)
{
    while (probes != NULL) {
        struct probe *probe = probes;

        probes = probe->next;
        release(probe->gpu, probe->memory);
        free(probe);
    }
    while (pairs != NULL) {
        struct pair *pair = pairs;

        pairs = pair->next;
        free(pair);
    }
}
