/* SPDX-License-Identifier: BSD-3-Clause */
/* Every kind of memory is recognised, cheaply, from any thread, and never from stale knowledge. */
#include "tests/unit/cuda_child.h"

#include <pthread.h>
#include <time.h>

#include "cuda-aware/driver.h"
#include "cuda-aware/gpu.h"
#include "cuda-aware/memory.h"
#include "tests/common/gpu.h"

static const gpu_driver_t *driver(void)
{
    const gpu_driver_t *d = gpu_driver();

    if (d == NULL)
        CHILD_SKIP(gpu_why());
    CHECK(gpu_select(0) == GPU_OK);
    return d;
}

/* ---- kinds ---- */

static void check_kind(char letter, grail_mem_kind_t kind, int exportable)
{
    const gpu_driver_t *d = driver();
    CUcontext before = NULL, after = NULL;
    gpu_buf_t buf;
    grail_mem_t mem;
    int result = gpu_buf_alloc(&buf, letter, 3 << 20, 64);

    if (result == GPU_UNSUPPORTED) {
        fprintf(stderr, "# kind %c: %s\n", letter, gpu_why());
        return;
    }
    CHECK(result == GPU_OK);
    d->cuCtxGetCurrent(&before);
    for (size_t at = 0; at <= (3 << 20) - 1; at += (1 << 20) - 7) {
        bool device = kind != GRAIL_MEM_HOST && kind != GRAIL_MEM_PINNED;

        CHECK(grail_mem_is_device(buf.ptr + at) == device);
        CHECK_OK(grail_mem_query(buf.ptr + at, &mem));
        if (mem.kind != kind)
            fprintf(stderr, "# kind %c is taken for %s\n", letter, grail_mem_kind_name(mem.kind));
        CHECK(mem.kind == kind);
        if (!device) {
            CHECK(mem.device == -1 && mem.context == NULL && mem.base == 0 && mem.size == 0);
            CHECK(mem.buffer_id == 0 && !mem.exportable);
            continue;
        }
        CHECK(mem.device == buf.device);
        CHECK(mem.context != NULL);
        if (kind == GRAIL_MEM_DEVICE)
            CHECK(mem.context == buf.context);
        CHECK(mem.base <= (CUdeviceptr)(uintptr_t)(buf.ptr + at));
        CHECK(mem.base + mem.size > (CUdeviceptr)(uintptr_t)(buf.ptr + at));
        CHECK(mem.exportable == (exportable != 0));
        CHECK((mem.buffer_id != 0) == (kind != GRAIL_MEM_VMM));
        CHECK(grail_mem_still_valid(&mem));
    }
    d->cuCtxGetCurrent(&after);
    CHECK(before == after);
    gpu_buf_free(&buf);
    if (kind != GRAIL_MEM_HOST && kind != GRAIL_MEM_PINNED)
        CHECK(!grail_mem_still_valid(&mem));
}

static void kinds(void)
{
    driver();
    grail_mem_hooks_available(true);
    check_kind('H', GRAIL_MEM_HOST, 0);
    check_kind('P', GRAIL_MEM_PINNED, 0);
    check_kind('R', GRAIL_MEM_PINNED, 0);
    check_kind('D', GRAIL_MEM_DEVICE, 1);
    check_kind('I', GRAIL_MEM_DEVICE, 1);
    check_kind('M', GRAIL_MEM_MANAGED, 0);
    check_kind('G', GRAIL_MEM_MANAGED, 0);
    check_kind('A', GRAIL_MEM_POOL, 0);
    check_kind('V', GRAIL_MEM_VMM, 0);
    check_kind('W', GRAIL_MEM_VMM, 0);
    check_kind('X', GRAIL_MEM_VMM, 0);
    check_kind('C', GRAIL_MEM_DEVICE, 1);
    check_kind('T', GRAIL_MEM_DEVICE, 1);
    check_kind('O', GRAIL_MEM_DEVICE, 1);
    grail_gpu_fini();
}

static void test_kinds(void **state)
{
    (void)state;
    in_child("CUDASIM_DEVICES=2", kinds);
    assert_quiet();
}

static void symbol(void)
{
    gpu_buf_t buf;
    grail_mem_t mem;
    int result;

    driver();
    result = gpu_buf_alloc(&buf, 'S', 1024, 0);
    if (result == GPU_UNSUPPORTED)
        CHILD_SKIP(gpu_why());
    CHECK(result == GPU_OK);
    CHECK(grail_mem_is_device(buf.ptr + 3));
    CHECK_OK(grail_mem_query(buf.ptr + 3, &mem));
    CHECK(mem.kind == GRAIL_MEM_DEVICE && !mem.exportable);
}

static void test_symbol(void **state)
{
    (void)state;
    in_child("", symbol);
    assert_quiet();
}

/* Pool memory of a device whose primary context nobody made current: its context is found, and
 * given back. */
static void *without_context(void *arg)
{
    const gpu_driver_t *d = gpu_driver();
    CUcontext current = (CUcontext)(uintptr_t)1;
    grail_mem_t mem;

    CHECK(d->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == NULL);
    CHECK(grail_mem_is_device(arg));
    CHECK_OK(grail_mem_query(arg, &mem));
    CHECK(mem.context != NULL);
    CHECK(d->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == NULL);
    return NULL;
}

static void threads(void)
{
    static const char letters[] = "DAMV";
    gpu_buf_t buf;

    driver();
    for (const char *letter = letters; *letter != '\0'; ++letter) {
        pthread_t thread;

        if (gpu_buf_alloc(&buf, *letter, 1 << 20, 0) != GPU_OK)
            continue;
        CHECK(pthread_create(&thread, NULL, without_context, buf.ptr) == 0);
        pthread_join(thread, NULL);
        gpu_buf_free(&buf);
    }
    grail_gpu_fini();
}

static void test_thread_without_context(void **state)
{
    (void)state;
    in_child("", threads);
    assert_quiet();
}

static void unused(void)
{
    grail_mem_t mem;
    int x = 0;

    CHECK(!grail_mem_is_device(&x));
    CHECK(!grail_mem_is_device(NULL));
    CHECK_OK(grail_mem_query(&x, &mem));
    CHECK(mem.kind == GRAIL_MEM_HOST && mem.device == -1);
    CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) == NULL);
}

static void test_cuda_not_in_use(void **state)
{
    (void)state;
    in_child("", unused);
    assert_string_equal(child_log, "");
}

static void query_fails(void)
{
    gpu_buf_t buf;
    grail_mem_t mem = {.device = 77};

    driver();
    CHECK(gpu_buf_alloc(&buf, 'D', 4096, 0) == GPU_OK);
    sim_faults("cuPointerGetAttributes:*:CUDA_ERROR_ECC_UNCORRECTABLE");
    CHECK(grail_mem_query(buf.ptr, &mem) == GRAIL_ERR_CUDA);
    CHECK(mem.device == 77);
}

static void test_query_fails(void **state)
{
    (void)state;
    in_child("", query_fails);
    assert_logged("CUDA_ERROR_ECC_UNCORRECTABLE", 1);
}

/* ---- buffers that come back at the same address ---- */

static void reallocated(void)
{
    const gpu_driver_t *d = driver();
    CUdeviceptr p, q;
    grail_mem_t first, second;
    uint64_t id;

    for (int i = 0; i < 20; ++i) {
        CHECK(d->cuMemAlloc_v2(&p, 4 << 20) == CUDA_SUCCESS);
        CHECK_OK(grail_mem_query((void *)(uintptr_t)p, &first));
        CHECK(d->cuMemFree_v2(p) == CUDA_SUCCESS);
        CHECK(!grail_mem_still_valid(&first));
        CHECK(!grail_mem_identify((void *)(uintptr_t)p, &id));
        CHECK(!grail_mem_is_device((void *)(uintptr_t)p));
        CHECK(d->cuMemAlloc_v2(&q, 4 << 20) == CUDA_SUCCESS);
        CHECK_OK(grail_mem_query((void *)(uintptr_t)q, &second));
        CHECK(second.buffer_id != first.buffer_id);
        CHECK(!grail_mem_still_valid(&first));
        CHECK(grail_mem_still_valid(&second));
        CHECK(grail_mem_identify((void *)(uintptr_t)(q + 1000), &id) && id == second.buffer_id);
        CHECK(d->cuMemFree_v2(q) == CUDA_SUCCESS);
    }
}

static void test_reallocated(void **state)
{
    (void)state;
    in_child("", reallocated);
    assert_quiet();
}

/* A freed device address is asked about (a zero-length send, say), then given out again. */
static void dangling(void)
{
    const gpu_driver_t *d = driver();
    CUdeviceptr p, q;
    int same = 0;

    grail_mem_hooks_available(true);
    for (int i = 0; i < 20; ++i) {
        CHECK(d->cuMemAlloc_v2(&p, 4 << 20) == CUDA_SUCCESS);
        CHECK(d->cuMemFree_v2(p) == CUDA_SUCCESS);
        CHECK(!grail_mem_is_device((void *)(uintptr_t)p));
        CHECK(d->cuMemAlloc_v2(&q, 4 << 20) == CUDA_SUCCESS);
        CHECK(grail_mem_is_device((void *)(uintptr_t)q));
        same += p == q;
        CHECK(d->cuMemFree_v2(q) == CUDA_SUCCESS);
    }
    if (simulated())
        CHECK(same > 0);
}

static void test_dangling(void **state)
{
    (void)state;
    in_child("", dangling);
    assert_quiet();
}

/* Pinned memory is freed by CUDA without a call that a memory hook sees: never remembered. */
static void pinned_not_remembered(void)
{
    const gpu_driver_t *d = driver();
    void *p;

    grail_mem_hooks_available(true);
    CHECK(d->cuMemHostAlloc(&p, 8 << 20, CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS);
    CHECK(!grail_mem_is_device(p));
    for (int i = 0; i < GRAIL_MEM_CACHE_ENTRIES; ++i)
        CHECK(grail_mem_host_cache[i] != (uint64_t)(uintptr_t)p >> GRAIL_MEM_GRANULE_SHIFT);
    CHECK(d->cuMemFreeHost(p) == CUDA_SUCCESS);
}

static void test_pinned_not_remembered(void **state)
{
    (void)state;
    in_child("", pinned_not_remembered);
    assert_quiet();
}

/* ---- the cache ---- */

static bool cached(const void *p)
{
    uint64_t granule = (uint64_t)(uintptr_t)p >> GRAIL_MEM_GRANULE_SHIFT;

    return grail_mem_host_cache[granule % GRAIL_MEM_CACHE_ENTRIES] == granule;
}

static char *map_host(size_t size)
{
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(p != MAP_FAILED);
    return p;
}

static void cache(void)
{
    size_t granule = (size_t)1 << GRAIL_MEM_GRANULE_SHIFT;
    char *p = map_host(8 * granule);
    char *inside = (char *)(((uintptr_t)p + granule) & ~(granule - 1)) + 100;
    long long calls;

    driver();
    CHECK(!grail_mem_is_device(inside) && !cached(inside));    /* no hooks: off */
    grail_mem_hooks_available(true);
    CHECK(!grail_mem_is_device(inside) && cached(inside));
    CHECK(!cached(inside + granule));
    if (simulated()) {
        calls = sim_count_of("calls");
        for (int i = 0; i < 1000; ++i)
            CHECK(!grail_mem_is_device(inside + i));
        CHECK(sim_count_of("calls") == calls);                  /* hits ask nobody */
    }
    grail_mem_unmapped(inside - 100 - 4096, 4096);              /* the neighbour */
    CHECK(cached(inside));
    grail_mem_unmapped(inside + granule - 100, 1);
    CHECK(cached(inside));
    grail_mem_unmapped(inside - 100 + granule - 1, 1);          /* one byte of it */
    CHECK(!cached(inside));
    CHECK(!grail_mem_is_device(inside) && cached(inside));
    grail_mem_unmapped(p, 8 * granule);
    CHECK(!cached(inside));
    CHECK(!grail_mem_is_device(inside) && cached(inside));
    grail_mem_unmapped((void *)4096, (size_t)1 << 46);          /* everything */
    CHECK(!cached(inside));
    CHECK(!grail_mem_is_device(inside) && cached(inside));
    grail_mem_unmapped((void *)(uintptr_t)-4096, 8192);         /* wraps: everything */
    CHECK(!cached(inside));
    CHECK(!grail_mem_is_device(inside) && cached(inside));
    grail_mem_hooks_available(false);
    CHECK(!cached(inside));
    CHECK(!grail_mem_is_device(inside) && !cached(inside));
    /* unreadable: somebody else's reservation, perhaps CUDA's */
    grail_mem_hooks_available(true);
    CHECK(mprotect(p, 8 * granule, PROT_NONE) == 0);
    CHECK(!grail_mem_is_device(inside) && !cached(inside));
    munmap(p, 8 * granule);
    CHECK(!grail_mem_is_device(inside) && !cached(inside));
}

static void test_cache(void **state)
{
    (void)state;
    in_child("", cache);
    assert_quiet();
}

/* Before CUDA is in use the cache fills as well; what is placed there later is device memory only
 * after an unmapping. */
static void cache_then_cuda(void)
{
    char *p = map_host(64 << 20);
    CUdeviceptr device;

    grail_mem_hooks_available(true);
    for (size_t at = 0; at < 64 << 20; at += 1 << 20)
        CHECK(!grail_mem_is_device(p + at));
    CHECK(cached(p));
    grail_mem_unmapped(p, 64 << 20);
    munmap(p, 64 << 20);
    const gpu_driver_t *d = driver();

    for (int i = 0; i < 64; ++i) {
        CHECK(d->cuMemAlloc_v2(&device, 2 << 20) == CUDA_SUCCESS);
        CHECK(grail_mem_is_device((void *)(uintptr_t)device));
    }
}

static void test_cache_then_cuda(void **state)
{
    (void)state;
    in_child("", cache_then_cuda);
    assert_quiet();
}

/* Threads that map, ask, unmap and allocate device memory: nobody ever gets a wrong answer. */
enum { STORM_ROUNDS = 300 };

static void *storm(void *arg)
{
    const gpu_driver_t *d = gpu_driver();
    unsigned seed = (unsigned)(uintptr_t)arg;
    CUdeviceptr device;

    CHECK(d->cuCtxSetCurrent(gpu_context()) == CUDA_SUCCESS);
    for (int i = 0; i < STORM_ROUNDS; ++i) {
        size_t size = (size_t)(1 + rand_r(&seed) % 4) << 20;
        char *p = map_host(size);

        p[0] = 1;
        CHECK(!grail_mem_is_device(p));
        CHECK(!grail_mem_is_device(p + size - 1));
        CHECK(d->cuMemAlloc_v2(&device, size) == CUDA_SUCCESS);
        CHECK(grail_mem_is_device((void *)(uintptr_t)device));
        CHECK(grail_mem_is_device((void *)(uintptr_t)(device + size - 1)));
        CHECK(!grail_mem_is_device(p));
        grail_mem_unmapped(p, size);
        munmap(p, size);
        CHECK(d->cuMemFree_v2(device) == CUDA_SUCCESS);
    }
    return NULL;
}

static void storms(void)
{
    pthread_t t[4];

    driver();
    grail_mem_hooks_available(true);
    for (uintptr_t i = 0; i < 4; ++i)
        CHECK(pthread_create(&t[i], NULL, storm, (void *)(i + 1)) == 0);
    for (int i = 0; i < 4; ++i)
        pthread_join(t[i], NULL);
}

static void test_threads(void **state)
{
    (void)state;
    in_child("", storms);
    assert_quiet();
}

/* ---- costs ---- */

static double ns_per_ask(const void *p, int n)
{
    struct timespec a, b;
    bool any = false;

    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < n; ++i) {
        __asm__ volatile("" : "+r"(p));
        any |= grail_mem_is_device(p);
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    (void)any;
    return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / n;
}

static void cost(void)
{
    static char host[64];
    gpu_buf_t buf;
    grail_mem_t mem;

    fprintf(stderr, "# ns per question: CUDA not in use, no hooks: %.1f\n",
            ns_per_ask(host, 100000));
    driver();
    CHECK(gpu_buf_alloc(&buf, 'D', 1 << 20, 0) == GPU_OK);
    fprintf(stderr, "# ns per question: CUDA in use, no hooks: %.1f\n", ns_per_ask(host, 100000));
    grail_mem_hooks_available(true);
    fprintf(stderr, "# ns per question: cached: %.2f\n", ns_per_ask(host, 10000000));
    fprintf(stderr, "# ns per question: device memory: %.1f\n", ns_per_ask(buf.ptr, 100000));
    if (!simulated())
        return;
    long long before = sim_count_of("calls.cuPointerGetAttributes");

    CHECK(grail_mem_is_device(buf.ptr));
    CHECK_OK(grail_mem_query(buf.ptr, &mem));
    CHECK(sim_count_of("calls.cuPointerGetAttributes") == before + 2);   /* one call each */
    CHECK(sim_count_of("calls.cuPointerGetAttribute") == 0);             /* the slow one */
    before = sim_count_of("calls.cuPointerSetAttribute");
    CHECK(before == 1);                                                  /* SYNC_MEMOPS */
    for (int i = 0; i < 10; ++i)
        CHECK_OK(grail_mem_query(buf.ptr + i, &mem));
    CHECK(sim_count_of("calls.cuPointerSetAttribute") == before);
    CHECK(sim_count_of("calls.cuMemRetainAllocationHandle") == 0);
}

static void test_cost(void **state)
{
    (void)state;
    in_child("", cost);
    assert_quiet();
    print_message("%s", child_log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_symbol),
        cmocka_unit_test(test_thread_without_context),
        cmocka_unit_test(test_cuda_not_in_use),
        cmocka_unit_test(test_query_fails),
        cmocka_unit_test(test_reallocated),
        cmocka_unit_test(test_dangling),
        cmocka_unit_test(test_pinned_not_remembered),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_cache_then_cuda),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_cost),
    };

    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
