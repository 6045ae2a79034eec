/* SPDX-License-Identifier: BSD-3-Clause */
/* The resident helper kernel, on the simulated driver: bytes, many in flight, revival, policy. */
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
#include "cuda-aware/stream.h"
#include "runtime/init.h"
#include "runtime/options.h"

static CUdeviceptr a, b;
static grail_gpu_t *gpu;
static grail_mem_t mem;
enum { SIZE = 1 << 16, AUTO = 1, ON = 2 };

static int setup(void **state)
{
    CUcontext context;

    (void)state;
    if (grail_runtime_init() != GRAIL_OK || grail_cuda_load() != GRAIL_OK ||
        grail_cuda.DevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        grail_cuda.CtxSetCurrent(context) != CUDA_SUCCESS ||
        grail_cuda.MemAlloc(&a, SIZE) != CUDA_SUCCESS ||
        grail_cuda.MemAlloc(&b, SIZE) != CUDA_SUCCESS ||
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_many_in_flight),
        cmocka_unit_test(test_revival),
        cmocka_unit_test(test_auto),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
