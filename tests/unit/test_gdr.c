/* SPDX-License-Identifier: BSD-3-Clause */
/* CPU access to device memory through gdrcopy (or its stand-in). */
#include "tests/unit/cuda_child.h"

#include "cuda-aware/gdr.h"
#include "cuda-aware/gpu.h"
#include "runtime/options.h"
#include "tests/common/gpu.h"

static void use_gpu(void)
{
    if (gpu_driver() == NULL)
        CHILD_SKIP(gpu_why());
    CHECK(gpu_select(0) == GPU_OK);
    if (!grail_gdr_available())
        CHILD_SKIP("gdrcopy is not installed");
}

static grail_mem_t query(const void *p)
{
    grail_mem_t mem;

    CHECK_OK(grail_mem_query(p, &mem));
    return mem;
}

static void check_range(gpu_buf_t *buf, size_t at, size_t length)
{
    unsigned char data[8192], got[8192];
    grail_mem_t mem = query(buf->ptr + at);

    for (size_t i = 0; i < length; ++i)
        data[i] = (unsigned char)(i * 7 + at);
    gpu_set(buf, 0, 0xaa, buf->size);
    CHECK_OK(grail_gdr_write(&mem, buf->ptr + at, data, length));
    gpu_read(buf, (ptrdiff_t)at, got, length);
    CHECK(memcmp(data, got, length) == 0);
    if (at > 0) {
        gpu_read(buf, (ptrdiff_t)at - 1, got, 1);
        CHECK(got[0] == 0xaa);
    }
    if (at + length < buf->size) {
        gpu_read(buf, (ptrdiff_t)(at + length), got, 1);
        CHECK(got[0] == 0xaa);
    }
    if (length > grail_options.gdrcopy_read_max)
        return;
    memset(got, 0, length);
    CHECK_OK(grail_gdr_read(&mem, got, buf->ptr + at, length));
    CHECK(memcmp(data, got, length) == 0);
}

static void data(void)
{
    static const size_t lengths[] = {1, 2, 3, 5, 8, 13, 64, 100, 255, 256, 257, 1000, 4097, 8192};
    gpu_buf_t big, small;

    use_gpu();
    CHECK(gpu_buf_alloc(&big, 'D', 5 << 20, 0) == GPU_OK);
    CHECK(gpu_buf_alloc(&small, 'I', 8192, 16) == GPU_OK);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
        check_range(&small, 0, lengths[i]);
        check_range(&big, 0, lengths[i]);
        check_range(&big, (1 << 20) - lengths[i] / 2, lengths[i]);      /* across windows */
        check_range(&big, 65536 - 1, lengths[i]);
        check_range(&big, big.size - lengths[i], lengths[i]);
    }
    gpu_buf_free(&big);
    gpu_buf_free(&small);
    grail_gdr_fini();
    grail_gpu_fini();
}

static void test_data(void **state)
{
    (void)state;
    in_child("", data);
    assert_quiet();
}

static void limits(void)
{
    unsigned char bytes[20000];
    gpu_buf_t buf;
    grail_mem_t mem;

    use_gpu();
    CHECK(gpu_buf_alloc(&buf, 'D', 1 << 20, 0) == GPU_OK);
    mem = query(buf.ptr);
    CHECK(grail_gdr_write(&mem, buf.ptr, bytes, 8193) == GRAIL_ERR_UNSUPPORTED);
    CHECK(grail_gdr_read(&mem, bytes, buf.ptr, 257) == GRAIL_ERR_UNSUPPORTED);
    CHECK(grail_gdr_read(&mem, bytes, buf.ptr + (1 << 20) - 8, 9) == GRAIL_ERR_UNSUPPORTED);
    CHECK_OK(grail_gdr_read(&mem, bytes, buf.ptr + (1 << 20) - 8, 8));
    grail_options.gdrcopy = false;
    CHECK(!grail_gdr_available());
    CHECK(grail_gdr_read(&mem, bytes, buf.ptr, 8) == GRAIL_ERR_UNSUPPORTED);
    grail_options.gdrcopy = true;
    gpu_buf_free(&buf);
    grail_gdr_fini();
}

static void test_limits(void **state)
{
    (void)state;
    in_child("", limits);
    assert_quiet();
}

/* Only memory that gdrcopy can pin for certain. */
static void kinds(void)
{
    unsigned char bytes[8];
    gpu_buf_t buf;

    use_gpu();
    for (const char *kind = "AVWXMS"; *kind != '\0'; ++kind) {
        if (gpu_buf_alloc(&buf, *kind, 1024, 0) != GPU_OK)
            continue;
        grail_mem_t mem = query(buf.ptr);

        CHECK(grail_gdr_read(&mem, bytes, buf.ptr, 8) == GRAIL_ERR_UNSUPPORTED);
        CHECK(grail_gdr_write(&mem, buf.ptr, bytes, 8) == GRAIL_ERR_UNSUPPORTED);
        gpu_buf_free(&buf);
    }
    grail_gdr_fini();
    grail_gpu_fini();
}

static void test_kinds(void **state)
{
    (void)state;
    in_child("", kinds);
    assert_quiet();
}

/* Freed and allocated again at the same place: never the old memory. */
static void reallocated(void)
{
    use_gpu();
    for (int i = 0; i < 50; ++i) {
        size_t size = i % 2 ? 4 << 20 : 3000;
        gpu_buf_t buf;
        unsigned char byte = (unsigned char)(i + 1), got = 0;

        CHECK(gpu_buf_alloc(&buf, 'D', size, 0) == GPU_OK);
        grail_mem_t mem = query(buf.ptr);

        gpu_set(&buf, 0, 0, size);
        CHECK_OK(grail_gdr_write(&mem, buf.ptr + 100, &byte, 1));
        gpu_read(&buf, 100, &got, 1);
        CHECK(got == byte);
        gpu_set(&buf, 0, (unsigned char)(byte + 1), size);
        CHECK_OK(grail_gdr_read(&mem, &got, buf.ptr + 100, 1));
        CHECK(got == (unsigned char)(byte + 1));
        gpu_buf_free(&buf);
    }
    grail_gdr_fini();
}

static void test_reallocated(void **state)
{
    (void)state;
    in_child("", reallocated);
    assert_quiet();
}

/* More buffers than windows. */
static void many(void)
{
    enum { COUNT = 100 };
    static gpu_buf_t bufs[COUNT];
    static grail_mem_t mems[COUNT];
    uint32_t value, got;

    use_gpu();
    for (int i = 0; i < COUNT; ++i) {
        CHECK(gpu_buf_alloc(&bufs[i], 'D', 2 << 20, 0) == GPU_OK);
        mems[i] = query(bufs[i].ptr);
    }
    for (int round = 0; round < 3; ++round) {
        for (uint32_t i = 0; i < COUNT; ++i) {
            value = i * 1000 + (uint32_t)round;
            CHECK_OK(grail_gdr_write(&mems[i], bufs[i].ptr + (1 << 20), &value, sizeof(value)));
        }
        for (uint32_t i = 0; i < COUNT; ++i) {
            CHECK_OK(grail_gdr_read(&mems[i], &got, bufs[i].ptr + (1 << 20), sizeof(got)));
            CHECK(got == i * 1000 + (uint32_t)round);
        }
    }
    for (int i = 0; i < COUNT; ++i)
        gpu_buf_free(&bufs[i]);
    grail_gdr_fini();
}

static void test_many(void **state)
{
    (void)state;
    in_child("", many);
    assert_quiet();
}

static void unavailable(void)
{
    CHECK(!grail_gdr_available());      /* CUDA is not in use */
    if (gpu_driver() == NULL)
        CHILD_SKIP(gpu_why());
    CHECK(gpu_select(0) == GPU_OK);
    if (!simulated())
        CHILD_SKIP("needs the stand-in");
    CHECK(!grail_gdr_available());
    CHECK(!grail_gdr_available());
    grail_gdr_fini();
}

static void cannot_pin(void)
{
    gpu_buf_t buf;
    unsigned char byte;

    use_gpu();
    if (!simulated())
        CHILD_SKIP("needs the stand-in");
    CHECK(gpu_buf_alloc(&buf, 'D', 4096, 0) == GPU_OK);
    grail_mem_t mem = query(buf.ptr);

    for (int i = 0; i < 10; ++i)
        CHECK(grail_gdr_read(&mem, &byte, buf.ptr, 1) == GRAIL_ERR_UNSUPPORTED);
    gpu_buf_free(&buf);
    grail_gdr_fini();
}

static void test_failures(void **state)
{
    (void)state;
    in_child("CUDASIM_GDR_FAIL=open GRAIL_VERBOSE=info", unavailable);
    assert_logged("its kernel driver is not", 1);
    in_child("CUDASIM_GDR_FAIL=pin GRAIL_VERBOSE=info", cannot_pin);
    assert_logged("gdrcopy cannot map device memory", 1);
    in_child("CUDASIM_GDR_FAIL=map GRAIL_VERBOSE=info", cannot_pin);
    assert_logged("gdrcopy cannot map device memory", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_reallocated),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_failures),
    };

    return cmocka_run_group_tests_name("gdr", tests, NULL, NULL);
}
