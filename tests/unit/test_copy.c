/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies between all kinds of memory, their completion, and their failure. */
#include "tests/unit/cuda_child.h"

#include <time.h>

#include "cuda-aware/copy.h"
#include "cuda-aware/gpu.h"
#include "cuda-aware/staging.h"
#include "runtime/options.h"
#include "tests/common/gpu.h"

static const gpu_driver_t *driver(void)
{
    const gpu_driver_t *d = gpu_driver();

    if (d == NULL)
        CHILD_SKIP(gpu_why());
    CHECK(gpu_select(0) == GPU_OK);
    return d;
}

static grail_gpu_t *gpu_of(const gpu_buf_t *buf)
{
    grail_gpu_t *gpu;
    grail_mem_t mem;

    CHECK_OK(grail_mem_query(buf->ptr, &mem));
    CHECK_OK(grail_gpu_get(&mem, &gpu));
    return gpu;
}

static grail_status_t finish(grail_copy_t *op)
{
    grail_status_t status;
    time_t end = time(NULL) + 30;

    while ((status = grail_copy_test(op)) == GRAIL_IN_PROGRESS)
        CHECK(time(NULL) < end);
    return status;
}

static void fill(unsigned char *data, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; ++i)
        data[i] = (unsigned char)(i * 131 + (i >> 8) * 17 + seed);
}

/* ---- right data ---- */

enum { MOST = 3 << 20 };

static void check_copy(gpu_buf_t *dst, gpu_buf_t *src, grail_gpu_t *gpu, size_t length)
{
    static unsigned char expected[MOST], got[MOST];
    grail_status_t status;
    grail_copy_t op;

    fill(expected, length, (unsigned)length);
    gpu_write(src, 0, expected, length);
    gpu_set(dst, 0, 0xee, dst->size);
    status = grail_copy_start(gpu, GRAIL_LANE_PEER, dst->ptr, src->ptr, length, &op);
    if (status != GRAIL_OK)
        fprintf(stderr, "# from kind %c to kind %c\n", src->kind, dst->kind);
    CHECK_OK(status);
    CHECK_OK(finish(&op));
    CHECK_OK(grail_copy_test(&op));
    gpu_read(dst, 0, got, length);
    CHECK(memcmp(got, expected, length) == 0);
    if (length < dst->size) {
        gpu_read(dst, (ptrdiff_t)length, got, 1);
        CHECK(got[0] == 0xee);
    }
}

static void kinds(void)
{
    static const char letters[] = "DIMAVWXCOP";
    static const size_t sizes[] = {1, 8, 4096, 32768, 32769, MOST};
    CUcontext before, after;

    const gpu_driver_t *d = driver();

    d->cuCtxGetCurrent(&before);
    for (const char *a = letters; *a != '\0'; ++a) {
        for (const char *b = letters; *b != '\0'; ++b) {
            gpu_buf_t dst, src;

            if (*a == 'P' && *b == 'P')
                continue;
            if (gpu_buf_alloc(&dst, *a, MOST, 0) != GPU_OK)
                continue;
            if (gpu_buf_alloc(&src, *b, MOST, 0) == GPU_OK) {
                for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
                    if (*a != 'P')
                        check_copy(&dst, &src, gpu_of(&dst), sizes[i]);
                    if (*b != 'P')
                        check_copy(&dst, &src, gpu_of(&src), sizes[i]);
                }
                gpu_buf_free(&src);
            }
            gpu_buf_free(&dst);
        }
    }
    d->cuCtxGetCurrent(&after);
    CHECK(before == after);
    grail_gpu_fini();
}

static void test_kinds(void **state)
{
    (void)state;
    in_child("CUDASIM_DEVICES=2", kinds);
    assert_quiet();
    in_child("CUDASIM_DEVICES=2 CUDASIM_NO_P2P=all CUDASIM_NO_MEMOPS=1", kinds);
    assert_quiet();
}

/* Two buffers that are each closed to the other's GPU. */
static void closed(void)
{
    gpu_buf_t a, b;

    if (driver()->devices < 2)
        CHILD_SKIP("needs two GPUs");
    if (gpu_buf_alloc(&a, 'V', MOST, 0) != GPU_OK)
        CHILD_SKIP(gpu_why());
    CHECK(gpu_select(1) == GPU_OK);
    CHECK(gpu_buf_alloc(&b, 'V', MOST, 0) == GPU_OK);
    CHECK(a.device == 0 && b.device == 1);
    check_copy(&a, &b, gpu_of(&a), MOST);
    check_copy(&a, &b, gpu_of(&b), MOST);
    check_copy(&b, &a, gpu_of(&b), 9);
    grail_gpu_fini();
}

static void test_closed_to_each_other(void **state)
{
    (void)state;
    in_child("CUDASIM_DEVICES=2", closed);
    assert_quiet();
}

static void pageable(void)
{
    static unsigned char host[1 << 20], back[1 << 20];
    gpu_buf_t buf;
    grail_mem_t mem;

    driver();
    CHECK(gpu_buf_alloc(&buf, 'D', sizeof(host), 0) == GPU_OK);
    CHECK_OK(grail_mem_query(buf.ptr, &mem));
    fill(host, sizeof(host), 5);
    CHECK_OK(grail_copy_sync(buf.ptr, host, sizeof(host), &mem));
    CHECK_OK(grail_copy_sync(back, buf.ptr, sizeof(back), &mem));
    CHECK(memcmp(host, back, sizeof(host)) == 0);
    CHECK_OK(grail_copy_sync(back, buf.ptr, 0, &mem));
    gpu_buf_free(&buf);
    grail_gpu_fini();
}

static void test_sync_with_pageable_memory(void **state)
{
    (void)state;
    in_child("", pageable);
    assert_quiet();
}

/* ---- completion ---- */

static void nothing(void)
{
    grail_copy_t op;
    gpu_buf_t buf;

    driver();
    CHECK(gpu_buf_alloc(&buf, 'D', 64, 0) == GPU_OK);
    CHECK_OK(grail_copy_start(gpu_of(&buf), GRAIL_LANE_IN, buf.ptr, NULL, 0, &op));
    CHECK_OK(grail_copy_test(&op));
    CHECK_OK(grail_copy_test(&op));
}

static void test_zero_length(void **state)
{
    (void)state;
    in_child("", nothing);
    assert_quiet();
}

/* Not done until it is, and every operation of many for itself. */
static void slow_copies(void)
{
    enum { COUNT = 64 };
    grail_copy_t ops[COUNT];
    gpu_buf_t buf;
    int pending = 0;
    unsigned char got;

    driver();
    CHECK(gpu_buf_alloc(&buf, 'D', 1 << 20, 0) == GPU_OK);
    if (!simulated())
        CHILD_SKIP("only the simulated driver can be slowed down");
    gpu_set(&buf, 0, 1, buf.size);
    sim_delay(2000);
    for (int i = 0; i < COUNT; ++i)
        CHECK_OK(grail_copy_start(gpu_of(&buf), GRAIL_LANE_PEER, buf.ptr + 4096 * (i + 1), buf.ptr,
                                  4096, &ops[i]));
    for (int i = 0; i < COUNT; ++i)
        pending += grail_copy_test(&ops[i]) == GRAIL_IN_PROGRESS;
    CHECK(pending > COUNT / 2);
    for (int i = COUNT - 1; i >= 0; --i) {
        CHECK_OK(finish(&ops[i]));
        gpu_read(&buf, 4096 * (i + 1), &got, 1);
        CHECK(got == 1);
    }
    sim_delay(0);
    grail_gpu_fini();
}

static void test_slow_copies(void **state)
{
    (void)state;
    in_child("GRAIL_KERNEL_COPY_MAX=0", slow_copies);
    assert_quiet();
    in_child("GRAIL_KERNEL_COPY_MAX=0 CUDASIM_NO_MEMOPS=1 GRAIL_VERBOSE=info", slow_copies);
    assert_logged("has no stream memory operations", 1);
}

/* The tickets of a stream wrap around. */
static void wrap(void)
{
    grail_copy_t op = {0};
    volatile uint32_t word;

    op.word = &word;
    op.stream = NULL;
    word = 0xfffffff0u;
    op.ticket = 0xffffffffu;
    word = 0x00000003u;
    CHECK_OK(grail_copy_test(&op));
    op.ticket = 3;
    CHECK_OK(grail_copy_test(&op));
}

static void test_wrap(void **state)
{
    (void)state;
    in_child("", wrap);
}

/* ---- failures ---- */

static void start_fails(void)
{
    grail_copy_t op = {.ticket = 99};
    gpu_buf_t buf;

    driver();
    CHECK(gpu_buf_alloc(&buf, 'D', 1 << 20, 0) == GPU_OK);
    grail_gpu_t *gpu = gpu_of(&buf);

    sim_faults("cuMemcpyAsync:1:CUDA_ERROR_OUT_OF_MEMORY");
    CHECK(grail_copy_start(gpu, GRAIL_LANE_PEER, buf.ptr, buf.ptr + 8, 8, &op) ==
          GRAIL_ERR_NO_DEVICE_MEMORY);
    CHECK(op.ticket == 99);
    CHECK_OK(grail_copy_start(gpu, GRAIL_LANE_PEER, buf.ptr, buf.ptr + 8, 8, &op));
    CHECK_OK(finish(&op));
    grail_gpu_fini();
}

static void test_start_fails(void **state)
{
    (void)state;
    in_child("GRAIL_KERNEL_COPY_MAX=0", start_fails);
    assert_logged("a copy of 8 bytes (device to device) on GPU 0", 1);
}

/* An error that happens later, on the GPU: found while polling, told once. */
static void fails_later(void)
{
    grail_copy_t first, second;
    gpu_buf_t buf;

    driver();
    CHECK(gpu_buf_alloc(&buf, 'D', 1 << 20, 0) == GPU_OK);
    grail_gpu_t *gpu = gpu_of(&buf);

    sim_delay(20000);       /* not before the copy is queued */
    sim_faults("cuMemcpyAsync:1:@CUDA_ERROR_ILLEGAL_ADDRESS");
    CHECK_OK(grail_copy_start(gpu, GRAIL_LANE_OUT, buf.ptr, buf.ptr + 4096, 4096, &first));
    grail_status_t status =
        grail_copy_start(gpu, GRAIL_LANE_OUT, buf.ptr, buf.ptr + 4096, 4096, &second);

    CHECK(finish(&first) == GRAIL_ERR_CUDA);
    CHECK(finish(&first) == GRAIL_ERR_CUDA);
    if (status == GRAIL_OK)
        CHECK(finish(&second) == GRAIL_ERR_CUDA);
    grail_gpu_fini();
}

static void test_fails_later(void **state)
{
    (void)state;
    in_child("GRAIL_KERNEL_COPY_MAX=0 GRAIL_STREAMS=1", fails_later);
    assert_logged("CUDA_ERROR_ILLEGAL_ADDRESS", count_in_log("failed: CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_true(count_in_log("failed: CUDA_ERROR_ILLEGAL_ADDRESS") >= 1);
    assert_true(count_in_log("failed: CUDA_ERROR_ILLEGAL_ADDRESS") <= 2);
    in_child("GRAIL_KERNEL_COPY_MAX=0 GRAIL_STREAMS=1 CUDASIM_NO_MEMOPS=1", fails_later);
    assert_true(count_in_log("failed: CUDA_ERROR_ILLEGAL_ADDRESS") >= 1);
}

static void word_fails(void)
{
    grail_copy_t op;
    gpu_buf_t buf;

    driver();
    CHECK(gpu_buf_alloc(&buf, 'D', 1 << 20, 0) == GPU_OK);
    grail_gpu_t *gpu = gpu_of(&buf);

    sim_faults("cuStreamWriteValue32:1:CUDA_ERROR_UNKNOWN");
    CHECK(grail_copy_start(gpu, GRAIL_LANE_OUT, buf.ptr, buf.ptr + 64, 64, &op) == GRAIL_ERR_CUDA);
    grail_gpu_fini();
}

static void test_word_fails(void **state)
{
    (void)state;
    in_child("GRAIL_KERNEL_COPY_MAX=0", word_fails);
    assert_logged("queueing the completion of a copy (device to host) on GPU 0", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_closed_to_each_other),
        cmocka_unit_test(test_sync_with_pageable_memory),
        cmocka_unit_test(test_zero_length),
        cmocka_unit_test(test_slow_copies),
        cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_start_fails),
        cmocka_unit_test(test_fails_later),
        cmocka_unit_test(test_word_fails),
    };

    return cmocka_run_group_tests_name("copy", tests, NULL, NULL);
}
