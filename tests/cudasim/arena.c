/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device addresses. One arena of address space, reserved PROT_NONE, is what the application sees:
 * any CPU touch of it crashes. A second one behind it, at a constant distance, maps the physical
 * memory: copies and kernels go there.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/cudasim/sim.h"

#define ARENA_PAGES 65536u /* of SIM_PAGE: 128 GiB */
#define ARENA_BYTES (ARENA_PAGES * SIM_PAGE)
/* The same in every process where possible, as with the real driver, so that an address of another
 * process that is used by mistake looks valid; outside of what sanitizers need. */
#define ARENA_WANTED 0x7ea000000000u

typedef struct free_run {
    uint64_t va, bytes;
    struct free_run *next;
} free_run_t;

pthread_rwlock_t sim_mem = PTHREAD_RWLOCK_INITIALIZER;
uint64_t grail_host_generation = 1;

static uint64_t arena_base;
static uint64_t arena_top; /* first address never used so far */
static sim_region_t *pages[ARENA_PAGES];
static free_run_t *free_runs; /* freed last first */
static sim_region_t *small_regions;
static sim_alloc_t *allocs;
static sim_alloc_t **hosts; /* sorted by base */
static size_t host_count, host_room;
static atomic_ullong last_id;

uint64_t sim_next_id(void)
{
    return atomic_fetch_add(&last_id, 1) + 1;
}

/** Kernels running now must look their addresses up again. */
void sim_ranges_changed(void)
{
    __atomic_add_fetch(&grail_host_generation, 1, __ATOMIC_SEQ_CST);
}

CUresult sim_arena_init(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (arena_base == 0) {
        size_t bytes = 2 * ARENA_BYTES + SIM_PAGE;
        void *at = mmap((void *)ARENA_WANTED, bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            madvise(at, bytes, MADV_DONTDUMP);
            uint64_t base = ((uint64_t)(uintptr_t)at + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
            arena_top = base;
            __atomic_store_n(&arena_base, base, __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

bool sim_in_arena(uint64_t addr)
{
    uint64_t base = __atomic_load_n(&arena_base, __ATOMIC_ACQUIRE);
    return base != 0 && addr - base < ARENA_BYTES;
}

int64_t sim_arena_delta(void)
{
    return (int64_t)ARENA_BYTES;
}

/* ---- Address space --------------------------------------------------------------------------- */

static int by_va(const void *a, const void *b)
{
    const free_run_t *x = *(free_run_t *const *)a, *y = *(free_run_t *const *)b;
    return x->va < y->va ? -1 : x->va > y->va;
}

/** Merges neighbours; only when space runs out, since it forgets what was freed last. */
static void merge_free_runs(void)
{
    size_t n = 0;
    for (free_run_t *run = free_runs; run != NULL; run = run->next) {
        n++;
    }
    free_run_t **all = malloc((n + 1) * sizeof(free_run_t *));
    if (all == NULL || n == 0) {
        free(all);
        return;
    }
    n = 0;
    for (free_run_t *run = free_runs; run != NULL; run = run->next) {
        all[n++] = run;
    }
    qsort(all, n, sizeof(free_run_t *), by_va);
    free_runs = all[0];
    free_run_t *last = all[0];
    for (size_t i = 1; i < n; i++) {
        if (last->va + last->bytes == all[i]->va) {
            last->bytes += all[i]->bytes;
            free(all[i]);
        } else {
            last->next = all[i];
            last = all[i];
        }
    }
    last->next = NULL;
    free(all);
}

static uint64_t take_from_run(free_run_t **link, uint64_t va, uint64_t bytes)
{
    free_run_t *run = *link;
    uint64_t end = run->va + run->bytes;
    if (va == run->va && bytes == run->bytes) {
        *link = run->next;
        free(run);
    } else if (va == run->va) {
        run->va += bytes;
        run->bytes -= bytes;
    } else {
        run->bytes = va - run->va;
        if (va + bytes < end) {
            sim_va_give(va + bytes, end - (va + bytes));
        }
    }
    return va;
}

static uint64_t take_freed(uint64_t bytes, uint64_t alignment, bool exact)
{
    for (free_run_t **link = &free_runs; *link != NULL; link = &(*link)->next) {
        uint64_t va = ((*link)->va + alignment - 1) / alignment * alignment;
        if (exact ? (*link)->bytes == bytes && va == (*link)->va
                  : va + bytes <= (*link)->va + (*link)->bytes) {
            return take_from_run(link, va, bytes);
        }
    }
    return 0;
}

static uint64_t take_wanted(uint64_t bytes, uint64_t wanted)
{
    if (wanted >= arena_top && wanted + bytes <= arena_base + ARENA_BYTES) {
        if (wanted > arena_top) {
            sim_va_give(arena_top, wanted - arena_top);
        }
        arena_top = wanted + bytes;
        return wanted;
    }
    for (free_run_t **link = &free_runs; *link != NULL; link = &(*link)->next) {
        if (wanted >= (*link)->va && wanted + bytes <= (*link)->va + (*link)->bytes) {
            return take_from_run(link, wanted, bytes);
        }
    }
    return 0;
}

uint64_t sim_va_take(uint64_t bytes, uint64_t alignment, uint64_t wanted)
{
    if (bytes == 0 || bytes > ARENA_BYTES) {
        return 0;
    }
    if (alignment < SIM_PAGE) {
        alignment = SIM_PAGE;
    }
    uint64_t va = 0;
    if (wanted != 0 && wanted % alignment == 0 && sim_in_arena(wanted)) {
        va = take_wanted(bytes, wanted);
    }
    for (int round = 0; va == 0 && round < 2; round++) {
        va = take_freed(bytes, alignment, true);
        if (va == 0) {
            va = take_freed(bytes, alignment, false);
        }
        uint64_t top = (arena_top + alignment - 1) / alignment * alignment;
        if (va == 0 && top + bytes <= arena_base + ARENA_BYTES) {
            va = take_wanted(bytes, top);
        }
        if (va == 0) {
            merge_free_runs();
        }
    }
    return va;
}

void sim_va_give(uint64_t va, uint64_t bytes)
{
    free_run_t *run = malloc(sizeof(*run));
    if (run == NULL) {
        return; /* the range is lost, nothing else */
    }
    *run = (free_run_t){va, bytes, free_runs};
    free_runs = run;
}

void sim_pages_set(uint64_t va, uint64_t bytes, sim_region_t *region)
{
    for (uint64_t i = 0; i < bytes / SIM_PAGE; i++) {
        pages[(va - arena_base) / SIM_PAGE + i] = region;
    }
}

CUresult sim_alias_map(uint64_t va, uint64_t bytes, const sim_phys_t *mem, uint64_t offset)
{
    void *at = (void *)(uintptr_t)(va + ARENA_BYTES);
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, mem->fd, (off_t)offset) ==
        MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    madvise(at, bytes, MADV_DONTDUMP);
    return CUDA_SUCCESS;
}

static void reserve_again(uint64_t at, uint64_t bytes)
{
    mmap((void *)(uintptr_t)at, bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void sim_alias_unmap(uint64_t va, uint64_t bytes)
{
    reserve_again(va + ARENA_BYTES, bytes);
}

CUresult sim_host_view_map(uint64_t va, uint64_t bytes, const sim_phys_t *mem, uint64_t offset)
{
    return mmap((void *)(uintptr_t)va, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                mem->fd, (off_t)offset) == MAP_FAILED
               ? CUDA_ERROR_OUT_OF_MEMORY
               : CUDA_SUCCESS;
}

void sim_host_view_unmap(uint64_t va, uint64_t bytes)
{
    reserve_again(va, bytes);
}

/* ---- Allocations ----------------------------------------------------------------------------- */

void sim_alloc_link(sim_alloc_t *alloc)
{
    alloc->prev = NULL;
    alloc->next = allocs;
    if (allocs != NULL) {
        allocs->prev = alloc;
    }
    allocs = alloc;
}

void sim_alloc_unlink(sim_alloc_t *alloc)
{
    if (alloc->prev != NULL) {
        alloc->prev->next = alloc->next;
    } else {
        allocs = alloc->next;
    }
    if (alloc->next != NULL) {
        alloc->next->prev = alloc->prev;
    }
    sim_ranges_changed();
}

sim_alloc_t *sim_alloc_first(void)
{
    return allocs;
}

CUresult sim_region_create(sim_region_t **out, sim_phys_t *mem)
{
    sim_region_t *region = calloc(1, sizeof(*region));
    if (region == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    region->va = sim_va_take(mem->bytes, SIM_PAGE, 0);
    if (region->va == 0 ||
        sim_alias_map(region->va, mem->bytes, mem, 0) != CUDA_SUCCESS) {
        if (region->va != 0) {
            sim_va_give(region->va, mem->bytes);
        }
        free(region);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    region->bytes = mem->bytes;
    region->mem = mem;
    sim_pages_set(region->va, region->bytes, region);
    *out = region;
    return CUDA_SUCCESS;
}

void sim_region_destroy(sim_region_t *region)
{
    for (sim_region_t **link = &small_regions; *link != NULL; link = &(*link)->next) {
        if (*link == region) {
            *link = region->next;
            break;
        }
    }
    sim_pages_set(region->va, region->bytes, NULL);
    sim_alias_unmap(region->va, region->bytes);
    if (region->kind == SIM_MANAGED) {
        sim_host_view_unmap(region->va, region->bytes);
    }
    sim_va_give(region->va, region->bytes);
    sim_phys_unref(region->mem);
    free(region->slots);
    free(region);
}

static CUresult new_region(sim_region_t **out, sim_kind_t kind, void *owner, int phys,
                           uint64_t bytes)
{
    sim_phys_t *mem;
    CUresult result = sim_phys_create(&mem, phys, bytes, NULL);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    sim_region_t *region;
    result = sim_region_create(&region, mem);
    if (result != CUDA_SUCCESS) {
        sim_phys_unref(mem);
        return result;
    }
    region->kind = kind;
    region->owner = owner;
    if (bytes <= SIM_SMALL && kind != SIM_MANAGED) { /* rounded up to grains */
        region->type = SIM_REGION_SMALL;
        region->slots = calloc(SIM_PAGE / SIM_GRAIN, sizeof(sim_alloc_t *));
        if (region->slots == NULL) {
            sim_region_destroy(region);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        region->next = small_regions;
        small_regions = region;
    }
    *out = region;
    return CUDA_SUCCESS;
}

static bool grains_free(const sim_region_t *region, uint32_t first, uint32_t count)
{
    if (first + count > SIM_PAGE / SIM_GRAIN) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (region->slots[first + i] != NULL) {
            return false;
        }
    }
    return true;
}

/** What was freed last is used first, so that a stale cache of addresses does not stay unseen. */
static int find_grains(sim_region_t *region, uint32_t count)
{
    for (int i = region->lifo_count - 1; i >= 0; i--) {
        if (grains_free(region, region->lifo[i], count)) {
            int first = region->lifo[i];
            memmove(&region->lifo[i], &region->lifo[i + 1],
                    (size_t)(region->lifo_count - i - 1) * sizeof(region->lifo[0]));
            region->lifo_count--;
            return first;
        }
    }
    for (uint32_t first = 0; first + count <= SIM_PAGE / SIM_GRAIN;) {
        if (region->slots[first] != NULL) {
            first += (uint32_t)(region->slots[first]->room / SIM_GRAIN);
        } else if (grains_free(region, first, count)) {
            return (int)first;
        } else {
            first++;
        }
    }
    return -1;
}

static CUresult place_small(sim_alloc_t *alloc, void *owner)
{
    uint32_t count = (uint32_t)(alloc->room / SIM_GRAIN);
    sim_region_t *region = small_regions;
    int first = -1;
    for (; region != NULL; region = region->next) {
        if (region->kind == alloc->kind && region->owner == owner &&
            region->mem->phys == alloc->phys) {
            first = find_grains(region, count);
            if (first >= 0) {
                break;
            }
        }
    }
    if (region == NULL) {
        CUresult result = new_region(&region, alloc->kind, owner, alloc->phys, alloc->room);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        first = 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        region->slots[(uint32_t)first + i] = alloc;
    }
    alloc->region = region;
    alloc->mem_offset = (uint64_t)first * SIM_GRAIN;
    atomic_store(&region->mem->tail->live[first], alloc->id);
    return CUDA_SUCCESS;
}

static CUresult place_large(sim_alloc_t *alloc, void *owner)
{
    sim_region_t *region;
    CUresult result = new_region(&region, alloc->kind, owner, alloc->phys, alloc->room);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    region->type = SIM_REGION_LARGE;
    region->large = alloc;
    alloc->region = region;
    alloc->mem_offset = 0;
    atomic_store(&region->mem->tail->live[0], alloc->id);
    return CUDA_SUCCESS;
}

CUresult sim_alloc_device(sim_alloc_t **out, sim_kind_t kind, void *owner, int phys,
                          uint64_t bytes)
{
    if (bytes > ARENA_BYTES) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool small = bytes < SIM_SMALL && kind != SIM_MANAGED;
    uint64_t grain = small ? SIM_GRAIN : SIM_PAGE;
    sim_alloc_t *alloc = calloc(1, sizeof(*alloc));
    if (alloc == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    alloc->kind = kind;
    alloc->bytes = bytes;
    alloc->room = (bytes + grain - 1) / grain * grain;
    alloc->id = sim_next_id();
    alloc->phys = phys;
    alloc->ordinal = sim_ordinal_of(phys);
    alloc->delta = ARENA_BYTES;
    CUresult result = small ? place_small(alloc, owner) : place_large(alloc, owner);
    if (result != CUDA_SUCCESS) {
        free(alloc);
        return result;
    }
    alloc->region->live++;
    alloc->mem = alloc->region->mem;
    alloc->base = alloc->region->va + alloc->mem_offset;
    if (bytes < SIM_SMALL || sim_config()->poison) {
        memset((void *)(uintptr_t)(alloc->base + ARENA_BYTES), 0xa5, bytes);
    }
    sim_alloc_link(alloc);
    sim_count(SIM_ALLOCS, 1);
    sim_count(SIM_ALLOCS_LIVE, 1);
    sim_count(SIM_BYTES_LIVE, (long long)bytes);
    *out = alloc;
    return CUDA_SUCCESS;
}

void sim_alloc_release(sim_alloc_t *alloc)
{
    sim_region_t *region = alloc->region;
    uint32_t first = (uint32_t)(alloc->mem_offset / SIM_GRAIN);
    if (!region->mem->imported) {
        atomic_store(&region->mem->tail->live[region->type == SIM_REGION_SMALL ? first : 0], 0);
        sim_count(SIM_FREES, 1);
        sim_count(SIM_ALLOCS_LIVE, -1);
        sim_count(SIM_BYTES_LIVE, -(long long)alloc->bytes);
    }
    if (region->type == SIM_REGION_SMALL) {
        for (uint32_t i = 0; i < alloc->room / SIM_GRAIN; i++) {
            if (region->slots[first + i] == alloc) { /* imports may overlap stale ones */
                region->slots[first + i] = NULL;
            }
        }
        int room = (int)(sizeof(region->lifo) / sizeof(region->lifo[0]));
        if (region->lifo_count == room) {
            memmove(&region->lifo[0], &region->lifo[1], (size_t)(room - 1) * sizeof(uint16_t));
            region->lifo_count--;
        }
        region->lifo[region->lifo_count++] = (uint16_t)first;
    }
    if (alloc->kind == SIM_POOL) {
        sim_pool_freed(alloc);
    }
    sim_alloc_unlink(alloc);
    free(alloc);
    if (--region->live == 0) {
        sim_region_destroy(region);
    }
}

/* ---- Look-up --------------------------------------------------------------------------------- */

/** Index of the first host range that ends above addr. */
static size_t host_index(uint64_t addr)
{
    size_t lo = 0, hi = host_count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (hosts[mid]->base + hosts[mid]->bytes > addr) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return lo;
}

sim_region_t *sim_region_at(uint64_t addr)
{
    return sim_in_arena(addr) ? pages[(addr - arena_base) / SIM_PAGE] : NULL;
}

sim_alloc_t *sim_find_any(uint64_t addr)
{
    sim_alloc_t *alloc = NULL;
    if (sim_in_arena(addr)) {
        sim_region_t *region = sim_region_at(addr);
        if (region == NULL) {
            return NULL;
        }
        switch (region->type) {
        case SIM_REGION_LARGE:
            alloc = region->large;
            break;
        case SIM_REGION_SMALL:
            alloc = region->slots[(addr - region->va) / SIM_GRAIN];
            break;
        case SIM_REGION_RESERVED:
            alloc = region->slots[(addr - region->va) / SIM_PAGE];
            break;
        }
    } else {
        size_t i = host_index(addr);
        alloc = i < host_count ? hosts[i] : NULL;
    }
    return alloc != NULL && addr >= alloc->base && addr - alloc->base < alloc->bytes ? alloc : NULL;
}

sim_alloc_t *sim_find(uint64_t addr)
{
    sim_alloc_t *alloc = sim_find_any(addr);
    return alloc != NULL && !alloc->dying ? alloc : NULL;
}

bool sim_range_live(uint64_t addr, uint64_t bytes, bool dying_too)
{
    for (uint64_t at = addr;;) {
        const sim_alloc_t *alloc = dying_too ? sim_find_any(at) : sim_find(at);
        if (alloc == NULL) {
            return false;
        }
        uint64_t left = alloc->base + alloc->bytes - at;
        if (bytes - (at - addr) <= left) {
            return true;
        }
        if (alloc->kind != SIM_VMM) {
            return false;
        }
        at += left;
    }
}

CUresult sim_host_insert(sim_alloc_t *alloc)
{
    size_t i = host_index(alloc->base);
    if (i < host_count && hosts[i]->base < alloc->base + alloc->bytes) {
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    if (host_count == host_room) {
        size_t room = host_room ? 2 * host_room : 64;
        sim_alloc_t **grown = realloc(hosts, room * sizeof(*grown));
        if (grown == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        hosts = grown;
        host_room = room;
    }
    memmove(&hosts[i + 1], &hosts[i], (host_count - i) * sizeof(*hosts));
    hosts[i] = alloc;
    host_count++;
    sim_alloc_link(alloc);
    return CUDA_SUCCESS;
}

void sim_host_remove(sim_alloc_t *alloc)
{
    size_t i = host_index(alloc->base);
    if (i < host_count && hosts[i] == alloc) {
        memmove(&hosts[i], &hosts[i + 1], (host_count - i - 1) * sizeof(*hosts));
        host_count--;
        sim_alloc_unlink(alloc);
    }
}
