/* SPDX-License-Identifier: BSD-3-Clause */
/* The resident helper kernel, on the simulated driver: bytes, many in flight, revival, policy, and
 * long copies that its workers share: by way of the host side, and the kernel by itself. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda-aware/copy.h"
#include "cuda-aware/kernels/resident.h"
#include "cuda-aware/stream.h"
#include "runtime/clock.h"
#include "runtime/init.h"
#include "runtime/options.h"

static CUdeviceptr a, b;
static grail_gpu_t *gpu;
static grail_mem_t mem;
enum { SIZE = 1 << 16, LONGEST = 1 << 20, ROOM = LONGEST + 64, AUTO = 1, ON = 2 };
static unsigned char sent[ROOM], got[ROOM];

static int setup(void **state)
{
    CUcontext context;

    (void)state;
    if (grail_runtime_init() != GRAIL_OK || grail_cuda_load() != GRAIL_OK ||
        grail_cuda.DevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        grail_cuda.CtxSetCurrent(context) != CUDA_SUCCESS ||
        grail_cuda.MemAlloc(&a, ROOM) != CUDA_SUCCESS ||
        grail_cuda.MemAlloc(&b, ROOM) != CUDA_SUCCESS ||
        grail_mem_query((void *)(uintptr_t)a, &mem) != GRAIL_OK)
        return -1;
    grail_options.resident = ON;
    return grail_gpu_get(&mem, &gpu) == GRAIL_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    (void)grail_cuda.MemFree(a);
    (void)grail_cuda.MemFree(b);
    grail_gpu_fini();
    return 0;
}

static void wait_for(grail_copy_t *op)
{
    grail_status_t status;

    while ((status = grail_copy_test(op)) == GRAIL_IN_PROGRESS)
        usleep(20);
    assert_int_equal(status, GRAIL_OK);
}

static void fill(unsigned char *bytes, unsigned seed)
{
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)(seed + i * 7 + (i >> 8));
}

static void set_target(int value)
{
    static unsigned char bytes[SIZE];

    memset(bytes, value, SIZE);
    assert_int_equal(grail_copy_sync((void *)(uintptr_t)b, bytes, SIZE, &mem), GRAIL_OK);
}

static void test_bytes(void **state)
{
    static const size_t lengths[] = {1, 8, 15, 16, 17, 4096, 65535 - 5};
    static unsigned char from[SIZE], to[SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        size_t skew = i % 4;
        grail_copy_t op;

        fill(from, (unsigned)i);
        assert_int_equal(grail_copy_sync((void *)(uintptr_t)a, from, SIZE, &mem), GRAIL_OK);
        set_target(0xee);
        assert_int_equal(grail_copy_start(gpu, GRAIL_LANE_PEER, (void *)(uintptr_t)(b + skew),
                                          (void *)(uintptr_t)(a + 1), lengths[i], &op),
                         GRAIL_OK);
        wait_for(&op);
        assert_int_equal(grail_copy_sync(to, (void *)(uintptr_t)b, SIZE, &mem), GRAIL_OK);
        assert_memory_equal(to + skew, from + 1, lengths[i]);
        for (size_t x = 0; x < skew; x++)
            assert_int_equal(to[x], 0xee);
        for (size_t x = skew + lengths[i]; x < SIZE; x++)
            assert_int_equal(to[x], 0xee);
    }
}

/* More than the slots hold, tested in the reverse order; the rest goes the ordinary way. */
static void test_many_in_flight(void **state)
{
    enum { MANY = 40 };
    static unsigned char from[SIZE], to[SIZE];
    grail_copy_t ops[MANY];

    (void)state;
    fill(from, 99);
    assert_int_equal(grail_copy_sync((void *)(uintptr_t)a, from, SIZE, &mem), GRAIL_OK);
    set_target(0);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(grail_copy_start(gpu, GRAIL_LANE_PEER,
                                          (void *)(uintptr_t)(b + (unsigned)i * 64),
                                          (void *)(uintptr_t)(a + (unsigned)i * 64), 64, &ops[i]),
                         GRAIL_OK);
    for (int i = MANY - 1; i >= 0; i--)
        wait_for(&ops[i]);
    assert_int_equal(grail_copy_sync(to, (void *)(uintptr_t)b, SIZE, &mem), GRAIL_OK);
    assert_memory_equal(to, from, MANY * 64);
}

/* The block ends after the linger time; the next copy must find that out. */
static void test_revival(void **state)
{
    static unsigned char from[SIZE], to[SIZE];

    (void)state;
    if (grail_gpu_kernel(gpu, "grail_resident") == NULL)
        skip();         /* built without nvcc */
    for (unsigned round = 0; round < 4; round++) {
        grail_copy_t op;

        usleep(3000);
        fill(from, round + 31);
        assert_int_equal(grail_copy_sync((void *)(uintptr_t)a, from, SIZE, &mem), GRAIL_OK);
        assert_int_equal(grail_copy_start(gpu, GRAIL_LANE_PEER, (void *)(uintptr_t)b,
                                          (void *)(uintptr_t)a, 256, &op),
                         GRAIL_OK);
        assert_non_null(op.stream->resident);
        wait_for(&op);
        assert_int_equal(grail_copy_sync(to, (void *)(uintptr_t)b, 256, &mem), GRAIL_OK);
        assert_memory_equal(to, from, 256);
    }
}

static bool copy_by_helper(void)
{
    grail_copy_t op;
    bool helper;

    assert_int_equal(grail_copy_start(gpu, GRAIL_LANE_PEER, (void *)(uintptr_t)b,
                                      (void *)(uintptr_t)a, 64, &op),
                     GRAIL_OK);
    helper = op.stream->resident != NULL;
    wait_for(&op);
    return helper;
}

/* `auto`: only for copies that follow each other closely. */
static void test_auto(void **state)
{
    double linger = grail_options.resident_linger;
    int count = 0;

    (void)state;
    if (grail_gpu_kernel(gpu, "grail_resident") == NULL)
        skip();         /* built without nvcc */
    usleep(50000);      /* the helper of the test before has ended */
    grail_options.resident = AUTO;
    grail_options.resident_linger = 1000;
    for (int i = 0; i < 10; i++) {
        usleep(2000);
        assert_false(copy_by_helper());
    }
    grail_options.resident_linger = 10000;
    while (!copy_by_helper() && count < 5000)
        count++;
    assert_in_range(count, 3, 4999);
    grail_options.resident = ON;
    grail_options.resident_linger = linger;
}

/* ---- long copies, by way of the host side ---- */

static bool start_copy(size_t to, size_t from, size_t length, grail_copy_t *op)
{
    assert_int_equal(grail_copy_start(gpu, GRAIL_LANE_PEER, (void *)(uintptr_t)(b + to),
                                      (void *)(uintptr_t)(a + from), length, op),
                     GRAIL_OK);
    return op->stream->resident != NULL;
}

/* All of `a` becomes new, all of `b` 0xee. */
static void fresh(unsigned seed)
{
    memset(got, 0xee, ROOM);
    assert_int_equal(grail_copy_sync((void *)(uintptr_t)b, got, ROOM, &mem), GRAIL_OK);
    for (size_t i = 0; i < ROOM; i++)
        sent[i] = (unsigned char)(seed + i * 7 + (i >> 8) + (i >> 16));
    assert_int_equal(grail_copy_sync((void *)(uintptr_t)a, sent, ROOM, &mem), GRAIL_OK);
}

/* `b` has `length` bytes of `a` and nothing around them. */
static void check(size_t to, size_t from, size_t length)
{
    assert_int_equal(grail_copy_sync(got, (void *)(uintptr_t)b, ROOM, &mem), GRAIL_OK);
    assert_memory_equal(got + to, sent + from, length);
    for (size_t x = 0; x < ROOM; x++) {
        if ((x < to || x >= to + length) && got[x] != 0xee)
            fail_msg("byte %zu was written too", x);
    }
}

static void test_long(void **state)
{
    static const struct {
        size_t length, from, to;
    } copies[] = {
        {65536, 0, 0}, {65537, 0, 0}, {65536 + 16, 16, 16}, {131072, 0, 0}, {200003, 1, 3},
        {LONGEST - 3, 8, 8}, {LONGEST, 0, 16}, {LONGEST, 5, 2},
    };
    grail_copy_t op;

    (void)state;
    if (grail_gpu_kernel(gpu, "grail_resident") == NULL)
        skip();         /* built without nvcc */
    for (unsigned i = 0; i < sizeof(copies) / sizeof(copies[0]); i++) {
        fresh(i);
        assert_true(start_copy(copies[i].to, copies[i].from, copies[i].length, &op));
        wait_for(&op);
        check(copies[i].to, copies[i].from, copies[i].length);
    }
    assert_false(start_copy(0, 0, LONGEST + 1, &op));
    wait_for(&op);
    grail_options.resident_blocks = 1;
    assert_false(start_copy(0, 0, 65537, &op));
    wait_for(&op);
    assert_true(start_copy(0, 0, 65536, &op));
    wait_for(&op);
    grail_options.resident_blocks = 16;
    grail_options.resident_max = 70000;
    assert_true(start_copy(0, 0, 70000, &op));
    wait_for(&op);
    assert_false(start_copy(0, 0, 70001, &op));
    wait_for(&op);
    grail_options.resident_max = LONGEST;
}

/* Many at once, long and short mixed: the first one, short or long, also behind a leader that has no
 * workers yet, is the helper's, and so are the short ones; a long one that meets another is launched. */
static void test_mixed(void **state)
{
    static const size_t lengths[] = {131072, 64, 8, 70000, 66000, 1, 65537, 4096, 65536, 100000, 16};
    enum { COUNT = sizeof(lengths) / sizeof(lengths[0]) };
    double linger = grail_options.resident_linger;
    grail_copy_t ops[COUNT];

    (void)state;
    if (grail_gpu_kernel(gpu, "grail_resident") == NULL)
        skip();         /* built without nvcc */
    usleep(50000);
    grail_options.resident_linger = 10000;
    for (unsigned round = 0; round < 3; round++) {
        size_t at = 0;

        fresh(round + 77);
        for (int i = 0; i < COUNT; i++) {
            bool helped = start_copy(at, at, lengths[i], &ops[i]);

            assert_true(helped || (i > 0 && lengths[i] > GRAIL_RESIDENT_ALONE));
            at += lengths[i];
        }
        for (int i = 0; i < COUNT; i++)
            wait_for(&ops[i]);
        check(0, 0, at);
    }
    grail_options.resident_linger = linger;
}

/* Kernels launched so far; -1 on a real driver. */
static long long launches(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    long long (*get)(const char *) = NULL;

    if (driver == NULL)
        return -1;
    *(void **)&get = dlsym(driver, "cudasim_get");
    dlclose(driver);
    return get == NULL ? -1 : get("launches");
}

/* For tests that count launches: the last helper ends, and the next ones stay long enough for the
 * simulator. Gives the linger time to be restored. */
static double linger_long(void)
{
    double linger = grail_options.resident_linger;

    if (grail_gpu_kernel(gpu, "grail_resident") == NULL || launches() < 0)
        skip();         /* built without nvcc, or on a real driver */
    usleep(50000);
    grail_options.resident_linger = 10000;
    return linger;
}

/* A long copy ends a leader that was launched without workers: the next launch has them. */
static void test_worker_launches(void **state)
{
    double linger;
    long long before;
    grail_copy_t op;

    (void)state;
    linger = linger_long();
    /* a launch that no long copy came before, or since the one before */
    for (int i = 0; i < 2; i++) {
        assert_true(start_copy(0, 0, 64, &op));
        wait_for(&op);
        usleep(i == 0 ? 100000 : 0);
    }
    before = launches();
    assert_true(start_copy(0, 0, 131072, &op));
    assert_true(start_copy(262144, 262144, 64, &op));
    wait_for(&op);
    assert_true(launches() > before);
    grail_options.resident_linger = linger;
}

/* A helper that is never idle ends as well, and the next one follows at once. */
static void test_old_age(void **state)
{
    double linger;
    uint64_t end;
    long long before;
    grail_copy_t op;

    (void)state;
    linger = linger_long();
    before = launches();
    end = grail_clock_ns() + 60000000000;
    while (launches() < before + 3 && grail_clock_ns() < end) {     /* a life is 50 ms */
        assert_true(start_copy(0, 0, 64, &op));
        wait_for(&op);
    }
    assert_true(launches() >= before + 3);
    grail_options.resident_linger = linger;
}

/* ---- the kernel by itself, with as many blocks and threads as a test wants ---- */

/* In pinned host memory, where the test can look. */
typedef struct bench {
    grail_resident_command_t commands[GRAIL_RESIDENT_SLOTS];
    grail_resident_control_t control;
    volatile uint32_t done, ended;
    CUdeviceptr device;
    CUstream stream;
    uint32_t number, launch, before;
} bench_t;

static bench_t *bench_new(void)
{
    void *memory;
    bench_t *bench;
    int least, greatest;

    assert_int_equal(grail_cuda.MemHostAlloc(&memory, sizeof(*bench), CU_MEMHOSTALLOC_DEVICEMAP),
                     CUDA_SUCCESS);
    bench = memory;
    memset(bench, 0, sizeof(*bench));
    assert_int_equal(grail_cuda.MemHostGetDevicePointer(&bench->device, memory, 0), CUDA_SUCCESS);
    assert_int_equal(grail_cuda.CtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
    assert_int_equal(grail_cuda.StreamCreateWithPriority(&bench->stream, CU_STREAM_NON_BLOCKING,
                                                         greatest),
                     CUDA_SUCCESS);
    return bench;
}

static void bench_launch(bench_t *bench, unsigned blocks, unsigned threads, uint64_t linger_ms)
{
    grail_resident_args_t args = {
        .commands = bench->device,
        .done = bench->device + offsetof(bench_t, done),
        .ended = bench->device + offsetof(bench_t, ended),
        .control = bench->device + offsetof(bench_t, control),
        .linger_ns = linger_ms * 1000000,
        .life_ns = UINT64_MAX,
        .first = bench->done + 1,
        .launch = ++bench->launch
    };
    void *params[] = {&args};
    CUfunction kernel = grail_gpu_kernel(gpu, "grail_resident");

    assert_int_equal(grail_cuda.LaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, bench->stream,
                                             params, NULL),
                     CUDA_SUCCESS);
}

static void bench_give(bench_t *bench, uint64_t dst, uint64_t src, uint64_t length)
{
    uint64_t tag = (uint64_t)(++bench->number & 0xffff) << 48;
    volatile grail_resident_command_t *command =
        &bench->commands[bench->number % GRAIL_RESIDENT_SLOTS];

    command->dst = tag | dst;
    command->src = tag | src;
    command->length = tag | length;
}

/* Waits for workers 1 to count - 1: a leader that is first would do without them. */
static void bench_meet(bench_t *bench, unsigned count)
{
    for (unsigned i = 1; i < count; i++) {
        while (__atomic_load_n(&bench->control.present[i], __ATOMIC_ACQUIRE) != bench->launch)
            usleep(50);
    }
}

/* Parts that workers did since the last call. */
static uint32_t bench_parts(bench_t *bench)
{
    uint32_t now = __atomic_load_n(&bench->control.finished, __ATOMIC_ACQUIRE);
    uint32_t parts = now - bench->before;

    bench->before = now;
    return parts;
}

static void bench_copy(bench_t *bench, size_t length, unsigned skew)
{
    fresh(bench->number);
    bench_give(bench, b + skew, a + 2 * skew, length);
    while (__atomic_load_n(&bench->done, __ATOMIC_ACQUIRE) != bench->number)
        usleep(50);
    check(skew, 2 * skew, length);
}

static void bench_end(bench_t *bench)
{
    assert_int_equal(grail_cuda.StreamSynchronize(bench->stream), CUDA_SUCCESS);
    assert_int_equal(bench->ended, bench->launch);
}

static void bench_free(bench_t *bench)
{
    assert_int_equal(grail_cuda.StreamDestroy(bench->stream), CUDA_SUCCESS);
    assert_int_equal(grail_cuda.MemFreeHost(bench), CUDA_SUCCESS);
}

/* Each worker that is there takes one part of each long copy, and none of a short one. */
static void test_workers(void **state)
{
    static const size_t lengths[] = {65537, LONGEST, 65536, 131072, 300001, 8, 70000, LONGEST - 1};
    bench_t *bench;

    (void)state;
    if (grail_gpu_kernel(gpu, "grail_resident") == NULL)
        skip();         /* built without nvcc */
    bench = bench_new();
    for (unsigned blocks = 2; blocks <= GRAIL_RESIDENT_BLOCKS; blocks += 7) {
        bench_launch(bench, blocks, 32, 500);
        bench_meet(bench, blocks);
        for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
            bench_copy(bench, lengths[i], i % 3);
            assert_int_equal(bench_parts(bench),
                             lengths[i] > GRAIL_RESIDENT_ALONE ? blocks - 1 : 0);
        }
        bench_end(bench);
    }
    bench_free(bench);
}

/* Commands that wait already when the last is done: no part may go to the wrong one. */
static void test_workers_in_a_row(void **state)
{
    bench_t *bench;

    (void)state;
    if (grail_gpu_kernel(gpu, "grail_resident") == NULL)
        skip();         /* built without nvcc */
    bench = bench_new();
    bench_launch(bench, 4, 32, 500);
    bench_meet(bench, 4);
    for (unsigned round = 0; round < 20; round++) {
        size_t at = 0;

        fresh(round);
        for (unsigned i = 0; i < GRAIL_RESIDENT_SLOTS - 1; i++) {
            size_t length = i % 3 == 2 ? 1 + i : 65537 + i * 512;

            bench_give(bench, b + at, a + at, length);
            at += length;
        }
        while (__atomic_load_n(&bench->done, __ATOMIC_ACQUIRE) != bench->number)
            usleep(50);
        check(0, 0, at);
        assert_int_equal(bench_parts(bench), 3 * 10);
    }
    bench_end(bench);
    bench_free(bench);
}

/* The GPU has no room for all blocks: those that run do it all, the rest come late and end. */
static void test_fewer_workers(void **state)
{
    enum { THREADS = 256, FIT = 4 };    /* the simulator runs 1024 threads at once */
    bench_t *bench;

    (void)state;
    if (grail_gpu_kernel(gpu, "grail_resident") == NULL)
        skip();         /* built without nvcc */
    bench = bench_new();
    for (unsigned round = 0; round < 2; round++) {
        bench_launch(bench, 7, THREADS, 500);
        bench_meet(bench, FIT);
        for (unsigned i = 0; i < 3; i++) {
            bench_copy(bench, LONGEST - i, 1);
            assert_int_equal(bench_parts(bench), FIT - 1);
        }
        bench_end(bench);
    }
    /* alone, whatever was asked for */
    bench_launch(bench, 2, 1024, 500);
    bench_copy(bench, LONGEST, 0);
    assert_int_equal(bench_parts(bench), 0);
    bench_end(bench);
    bench_free(bench);
}

/* A command without length ends the launch that it names, and no other. */
static void test_end_command(void **state)
{
    bench_t *bench;
    uint64_t began;

    (void)state;
    if (grail_gpu_kernel(gpu, "grail_resident") == NULL)
        skip();         /* built without nvcc */
    bench = bench_new();
    for (unsigned blocks = 1; blocks <= 3; blocks += 2) {
        began = grail_clock_ns();
        bench_launch(bench, blocks, 32, 30000);
        bench_give(bench, bench->launch - 1, 0, 0);
        bench_copy(bench, 4096, 0);
        bench_give(bench, bench->launch, 0, 0);
        bench_end(bench);
        assert_int_equal(bench->done, bench->number);
        assert_true(grail_clock_ns() - began < 20000000000);
    }
    bench_free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_many_in_flight),
        cmocka_unit_test(test_revival),
        cmocka_unit_test(test_auto),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_worker_launches),
        cmocka_unit_test(test_old_age),
        cmocka_unit_test(test_workers),
        cmocka_unit_test(test_workers_in_a_row),
        cmocka_unit_test(test_fewer_workers),
        cmocka_unit_test(test_end_command),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
