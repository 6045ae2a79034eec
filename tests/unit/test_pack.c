/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels that pack, unpack and copy, against the CPU's walk, on the GPU or the simulator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "cuda-aware/layout_internal.h"
#include "cuda-aware/stream.h"
#include "runtime/options.h"
#include "tests/unit/random_layout.h"

static grail_gpu_t *gpu;
static int rounds = 300;    /* of random shapes; PACK_TEST_ROUNDS */

/* ---- memory ---- */

static CUdeviceptr device_alloc(size_t size)
{
    CUdeviceptr p = 0;

    assert_int_equal(grail_gpu_enter(gpu), CUDA_SUCCESS);
    assert_int_equal(grail_cuda.MemAlloc(&p, size), CUDA_SUCCESS);
    grail_gpu_leave(gpu);
    return p;
}

static void device_free(CUdeviceptr p)
{
    assert_int_equal(grail_gpu_enter(gpu), CUDA_SUCCESS);
    assert_int_equal(grail_cuda.MemFree(p), CUDA_SUCCESS);
    grail_gpu_leave(gpu);
}

static void to_device(CUdeviceptr dst, const void *src, size_t size)
{
    assert_int_equal(grail_gpu_enter(gpu), CUDA_SUCCESS);
    assert_int_equal(grail_cuda.MemcpyHtoDAsync(dst, src, size, NULL), CUDA_SUCCESS);
    assert_int_equal(grail_cuda.StreamSynchronize(NULL), CUDA_SUCCESS);
    grail_gpu_leave(gpu);
}

static void from_device(void *dst, CUdeviceptr src, size_t size)
{
    assert_int_equal(grail_gpu_enter(gpu), CUDA_SUCCESS);
    assert_int_equal(grail_cuda.MemcpyDtoHAsync(dst, src, size, NULL), CUDA_SUCCESS);
    assert_int_equal(grail_cuda.StreamSynchronize(NULL), CUDA_SUCCESS);
    grail_gpu_leave(gpu);
}

static void wait_for(grail_copy_t *op)
{
    time_t begin = time(NULL);
    grail_status_t status;

    do {
        status = grail_copy_test(op);
    } while (status == GRAIL_IN_PROGRESS && time(NULL) < begin + 60);
    assert_int_equal(status, GRAIL_OK);
}

static void fill(unsigned char *p, size_t size, test_random_t *r)
{
    for (size_t i = 0; i < size; i++)
        p[i] = (unsigned char)test_random(r);
}

/* ---- one shape in device memory ---- */

typedef struct place {
    size_t bytes;               /* of memory, host and device alike */
    unsigned char *memory, *base;
    CUdeviceptr device;
} place_t;

/* `shift` moves the elements off their natural alignment. */
static place_t place_shape(const test_shape_t *s, size_t count, size_t shift, test_random_t *r)
{
    place_t p;

    p.bytes = test_shape_memory_size(s, count) + shift;
    p.memory = malloc(p.bytes);
    fill(p.memory, p.bytes, r);
    p.base = p.memory + test_shape_origin(s, count) + shift;
    p.device = device_alloc(p.bytes);
    to_device(p.device, p.memory, p.bytes);
    return p;
}

static void free_place(place_t *p)
{
    device_free(p->device);
    free(p->memory);
}

static void *device_base(const place_t *p)
{
    return (void *)(uintptr_t)(p->device + (size_t)(p->base - p->memory));
}

/* Bytes [offset, offset + n), packed behind `skew` guard bytes in device or pinned host memory. */
static void check_pack_piece(const place_t *p, grail_layout_t *layout, size_t count,
                             const unsigned char *packed, size_t offset, size_t n, size_t skew)
{
    unsigned char *got = malloc(n + 64);
    CUdeviceptr to = device_alloc(n + 64);
    grail_copy_t op;

    memset(got, 0xa5, n + 64);
    to_device(to, got, n + 64);
    assert_int_equal(grail_pack_start(gpu, GRAIL_LANE_OUT, layout, count, device_base(p), offset, n,
                                      (void *)(uintptr_t)(to + skew), &op), GRAIL_OK);
    wait_for(&op);
    from_device(got, to, n + 64);
    assert_memory_equal(got + skew, packed + offset, n);
    for (size_t i = 0; i < skew; i++)
        assert_int_equal(got[i], 0xa5);
    for (size_t i = skew + n; i < n + 64; i++)
        assert_int_equal(got[i], 0xa5);
    device_free(to);
    free(got);
}

static void check_unpack_piece(place_t *p, const test_shape_t *s, grail_layout_t *layout,
                               size_t count, size_t offset, size_t n, size_t skew,
                               test_random_t *r)
{
    unsigned char *data = malloc(n + 64), *got = malloc(p->bytes);
    CUdeviceptr from = device_alloc(n + 64);
    grail_copy_t op;

    fill(data, n + 64, r);
    to_device(from, data, n + 64);
    assert_int_equal(grail_unpack_start(gpu, GRAIL_LANE_IN, layout, count, device_base(p), offset,
                                        n, (const void *)(uintptr_t)(from + skew), &op), GRAIL_OK);
    wait_for(&op);
    from_device(got, p->device, p->bytes);
    if (!s->overlaps) {
        grail_layout_unpack_host(layout, count, p->base, offset, n, data + skew);
        assert_memory_equal(got, p->memory, p->bytes);
    }
    memcpy(p->memory, got, p->bytes);
    device_free(from);
    free(data);
    free(got);
}

static void check_shape(const test_shape_t *s, bool loops, test_random_t *r)
{
    size_t count = 1 + test_random(r) % 3, total = s->size * count;
    grail_layout_t *layout = test_shape_layout(s, loops);
    static const size_t shifts[] = {0, 0, 16, 8, 4, 1};
    place_t p = place_shape(s, count, shifts[test_random(r) % 6], r);
    unsigned char *packed = malloc(total + 1);

    assert_non_null(layout);
    test_shape_pack(s, count, p.base, packed);
    if (total > 0) {
        size_t offset = test_random(r) % total;

        check_pack_piece(&p, layout, count, packed, 0, total, 0);
        check_pack_piece(&p, layout, count, packed, offset, 1 + test_random(r) % (total - offset),
                         test_random(r) % 17);
        offset &= ~(size_t)15;
        check_pack_piece(&p, layout, count, packed, offset, total - offset, 0);
        check_unpack_piece(&p, s, layout, count, 0, total, 0, r);
        offset = test_random(r) % total;
        check_unpack_piece(&p, s, layout, count, offset, 1 + test_random(r) % (total - offset),
                           test_random(r) % 17, r);
    }
    grail_layout_release(layout);
    free(packed);
    free_place(&p);
}

static void test_random_shapes(void **state)
{
    test_random_t r = {.state = 1};

    (void)state;
    for (int i = 0; i < rounds; i++) {
        test_shape_t shape;

        test_shape_make(&shape, &r, i);
        check_shape(&shape, i % 2 == 0, &r);
        test_shape_free(&shape);
    }
}

/* Two different types of the same packed size. */
static void check_repack(const test_shape_t *a, const test_shape_t *b, test_random_t *r)
{
    size_t na = b->size, nb = a->size, total = a->size * b->size;
    grail_layout_t *from, *to;
    unsigned char *packed, *got;
    grail_copy_t op;
    place_t p, q;

    for (size_t d = 2; d <= na && d <= nb; d++) {   /* fewest elements that agree */
        while (na % d == 0 && nb % d == 0) {
            na /= d;
            nb /= d;
            total /= d;
        }
    }
    if (total == 0 || total > 300000 || test_overlap(b, nb))
        return;
    from = test_shape_layout(a, true);
    to = test_shape_layout(b, false);
    p = place_shape(a, na, test_random(r) % 2, r);
    q = place_shape(b, nb, 0, r);
    packed = malloc(total);
    got = malloc(q.bytes);
    assert_int_equal(grail_repack_start(gpu, GRAIL_LANE_PEER, from, na, device_base(&p), to, nb,
                                        device_base(&q), total, &op), GRAIL_OK);
    wait_for(&op);
    from_device(got, q.device, q.bytes);
    grail_layout_pack_host(from, na, p.base, 0, total, packed);
    grail_layout_unpack_host(to, nb, q.base, 0, total, packed);
    assert_memory_equal(got, q.memory, q.bytes);
    free(packed);
    free(got);
    free_place(&p);
    free_place(&q);
    grail_layout_release(from);
    grail_layout_release(to);
}

static void test_repack(void **state)
{
    test_random_t r = {.state = 77};

    (void)state;
    for (int i = 0; i < rounds; i++) {
        test_shape_t a, b;

        test_shape_make(&a, &r, i);
        do {
            test_shape_make(&b, &r, i);
        } while (b.overlaps && (test_shape_free(&b), 1));
        check_repack(&a, &b, &r);
        test_shape_free(&a);
        test_shape_free(&b);
    }
}

/* ---- chosen shapes ---- */

static void check_large(grail_layout_t *layout, size_t count, size_t bytes, size_t origin)
{
    size_t total = grail_layout_size(layout) * count;
    unsigned char *memory = malloc(bytes), *packed = malloc(total), *got = malloc(total);
    CUdeviceptr elements = device_alloc(bytes), to = device_alloc(total);
    test_random_t r = {.state = bytes};
    grail_copy_t op;

    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t v = test_random(&r);

        memcpy(memory + i, &v, 8);
    }
    to_device(elements, memory, bytes);
    grail_layout_pack_host(layout, count, memory + origin, 0, total, packed);
    for (size_t done = 0, n; done < total; done += n) {   /* in unequal pieces */
        n = total - done < 700004 ? total - done : 700004;
        assert_int_equal(grail_pack_start(gpu, GRAIL_LANE_OUT, layout, count,
                                          (void *)(uintptr_t)(elements + origin), done, n,
                                          (void *)(uintptr_t)(to + done), &op), GRAIL_OK);
        wait_for(&op);
    }
    from_device(got, to, total);
    assert_memory_equal(got, packed, total);
    for (size_t i = 0; i + 8 <= total; i += 8) {
        uint64_t v = test_random(&r);

        memcpy(packed + i, &v, 8);
    }
    to_device(to, packed, total);
    assert_int_equal(grail_unpack_start(gpu, GRAIL_LANE_IN, layout, count,
                                        (void *)(uintptr_t)(elements + origin), 0, total,
                                        (void *)(uintptr_t)to, &op), GRAIL_OK);
    wait_for(&op);
    grail_layout_unpack_host(layout, count, memory + origin, 0, total, packed);
    packed = realloc(packed, bytes);
    from_device(packed, elements, bytes);
    assert_memory_equal(packed, memory, bytes);
    device_free(elements);
    device_free(to);
    free(memory);
    free(packed);
    free(got);
}

static void check_vector(size_t block, ptrdiff_t stride, size_t blocks)
{
    size_t reach = (size_t)(stride < 0 ? -stride : stride) * blocks + block;
    grail_layout_builder_t *b = grail_layout_begin();
    grail_layout_t *layout = NULL;

    grail_layout_add_strided(b, 0, block, blocks, stride);
    assert_int_equal(grail_layout_end(b, (ptrdiff_t)reach, &layout), GRAIL_OK);
    check_large(layout, 1, (reach + 7) & ~(size_t)7, stride < 0 ? reach - block : 0);
    grail_layout_release(layout);
}

static void test_vectors(void **state)
{
    (void)state;
    check_vector(4, 12, 100000);
    check_vector(4, -8, 70001);
    check_vector(8, 24, 50000);
    check_vector(16, 4096, 2000);
    check_vector(4096, 4100, 300);
    check_vector(1000, 1024, 999);
    check_vector(3, 7, 30000);
    check_vector(1001, 1003, 700);
    check_vector(1, 2, 50000);
}

/* Tables: irregular equal blocks, irregular lengths, structs in vectors, many elements. */
static void test_tables(void **state)
{
    test_random_t r = {.state = 5};

    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        grail_layout_builder_t *b = grail_layout_begin();
        grail_layout_t *layout = NULL;
        int64_t at = 0;

        if (kind == 3)
            grail_layout_loop(b, 50, 100000);
        for (int i = 0; i < 1000; i++) {
            size_t length = kind == 1 ? 4 * (1 + test_random(&r) % 20) : kind == 2 ? 5 : 8;

            grail_layout_add(b, at, length);
            if (kind == 2 && i % 100 == 50)
                grail_layout_add_strided(b, at + 16, 2, 12, 3);
            at += (int64_t)(length + (kind == 2 ? 60 : 4) * (1 + test_random(&r) % 3));
        }
        if (kind == 3) {
            grail_layout_loop_end(b);
            at = 50 * 100000;
        }
        at = (at + 79) & ~(int64_t)15;
        assert_int_equal(grail_layout_end(b, at, &layout), GRAIL_OK);
        check_large(layout, 3, (size_t)at * 3, 0);
        grail_layout_release(layout);
    }
}

/* At once, between all kinds of memory, with and without kernels. */
static void check_sync(const test_shape_t *s, bool packed_on_device, bool elements_on_device,
                       test_random_t *r)
{
    size_t count = 1 + test_random(r) % 3, total = s->size * count, offset, n;
    grail_layout_t *layout = test_shape_layout(s, true);
    place_t p = place_shape(s, count, 0, r);
    CUdeviceptr device = device_alloc(total + 1);
    unsigned char *packed = malloc(total + 1), *got = malloc(p.bytes + total);
    void *elements = elements_on_device ? device_base(&p) : p.base;
    void *memory = packed_on_device ? (void *)(uintptr_t)device : got;

    offset = total == 0 ? 0 : test_random(r) % total;
    n = total - offset;
    assert_int_equal(grail_pack_sync(layout, count, elements, offset, n, memory), GRAIL_OK);
    if (packed_on_device && n > 0)
        from_device(got, device, n);
    grail_layout_pack_host(layout, count, p.base, offset, n, packed);
    assert_memory_equal(got, packed, n);
    fill(packed, n, r);
    if (packed_on_device && n > 0)
        to_device(device, packed, n);
    else
        memcpy(got, packed, n);
    if (!s->overlaps) {
        unsigned char *expected = malloc(p.bytes);

        memcpy(expected, p.memory, p.bytes);
        grail_layout_unpack_host(layout, count, expected + (p.base - p.memory), offset, n, packed);
        assert_int_equal(grail_unpack_sync(layout, count, elements, offset, n, memory), GRAIL_OK);
        if (elements_on_device)
            from_device(p.memory, p.device, p.bytes);
        assert_memory_equal(p.memory, expected, p.bytes);
        free(expected);
    }
    device_free(device);
    free(packed);
    free(got);
    free_place(&p);
    grail_layout_release(layout);
}

static void test_sync(void **state)
{
    test_random_t r = {.state = 31};

    (void)state;
    for (int i = 0; i < 80; i++) {
        test_shape_t shape;

        grail_options.pack_kernels = i % 8 != 7;
        do {
            test_shape_make(&shape, &r, i);
        } while ((shape.count > 200 && i % 8 == 7) && (test_shape_free(&shape), 1));
        check_sync(&shape, i & 1, i & 2, &r);
        test_shape_free(&shape);
    }
    grail_options.pack_kernels = true;
}

static void test_pageable_is_refused(void **state)
{
    grail_layout_builder_t *b = grail_layout_begin();
    CUdeviceptr p = device_alloc(64);
    grail_layout_t *layout = NULL;
    char *pageable = malloc(64);
    grail_copy_t op;

    (void)state;
    grail_layout_add(b, 0, 4);
    grail_layout_add(b, 8, 4);
    assert_int_equal(grail_layout_end(b, 16, &layout), GRAIL_OK);
    assert_int_equal(grail_pack_start(gpu, GRAIL_LANE_OUT, layout, 1, (void *)(uintptr_t)p, 0, 8,
                                      pageable, &op), GRAIL_ERR_UNSUPPORTED);
    grail_layout_release(layout);
    device_free(p);
    free(pageable);
}

/* Trees of freed layouts are replaced by those of new ones, on all streams. */
static void test_table_is_reused(void **state)
{
    test_random_t r = {.state = 3};

    (void)state;
    for (int i = 0; i < 40; i++) {
        grail_layout_builder_t *b = grail_layout_begin();
        grail_layout_t *layout = NULL;
        int64_t at = 0;

        for (int n = 0; n < 300; n++, at += 8 + 4 * (int64_t)(1 + test_random(&r) % 3))
            grail_layout_add(b, at, 8);
        assert_int_equal(grail_layout_end(b, at, &layout), GRAIL_OK);
        check_large(layout, 1, (size_t)(at + 15) & ~(size_t)7, 0);
        grail_layout_release(layout);
    }
}

static void test_copy_kernel(void **state)
{
    enum { ROOM = 200000 };
    unsigned char *memory = malloc(ROOM), *got = malloc(ROOM);
    CUdeviceptr from = device_alloc(ROOM), to = device_alloc(ROOM);
    test_random_t r = {.state = 9};
    grail_stream_t *stream = grail_stream_pick(gpu, GRAIL_LANE_PEER);

    (void)state;
    assert_non_null(stream);
    fill(memory, ROOM, &r);
    to_device(from, memory, ROOM);
    for (int i = 0; i < rounds; i++) {
        size_t length = 1 + test_random(&r) % (i % 10 == 0 ? ROOM - 64 : 600);
        size_t a = i % 3 == 0 ? 0 : test_random(&r) % 33, b = i % 3 == 1 ? a : test_random(&r) % 33;
        grail_copy_t op;

        if (i % 3 == 0)
            b = 16 * (b & 1);
        memset(got, 0x5a, ROOM);
        to_device(to, got, ROOM);
        assert_int_equal(grail_gpu_enter(gpu), CUDA_SUCCESS);
        assert_int_equal(grail_copy_kernel_start(stream, (void *)(uintptr_t)(to + b),
                                                 (const void *)(uintptr_t)(from + a), length, &op),
                         GRAIL_OK);
        grail_gpu_leave(gpu);
        wait_for(&op);
        from_device(got, to, ROOM);
        assert_memory_equal(got + b, memory + a, length);
        for (size_t k = 0; k < b; k++)
            assert_int_equal(got[k], 0x5a);
        for (size_t k = b + length; k < b + length + 64 && k < ROOM; k++)
            assert_int_equal(got[k], 0x5a);
    }
    device_free(from);
    device_free(to);
    free(memory);
    free(got);
}

static void test_pinned_packed(void **state)
{
    enum { BLOCKS = 20000 };
    grail_layout_builder_t *b = grail_layout_begin();
    CUdeviceptr elements = device_alloc(BLOCKS * 32);
    unsigned char *memory = malloc(BLOCKS * 32), *packed = malloc(BLOCKS * 12), *pinned = NULL;
    test_random_t r = {.state = 11};
    grail_layout_t *layout = NULL;
    grail_copy_t op;

    (void)state;
    grail_layout_add_strided(b, 4, 12, BLOCKS, 32);
    assert_int_equal(grail_layout_end(b, BLOCKS * 32, &layout), GRAIL_OK);
    assert_int_equal(grail_gpu_enter(gpu), CUDA_SUCCESS);
    assert_int_equal(grail_cuda.MemHostAlloc((void **)&pinned, BLOCKS * 12,
                                             CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
    grail_gpu_leave(gpu);
    fill(memory, BLOCKS * 32, &r);
    to_device(elements, memory, BLOCKS * 32);
    grail_layout_pack_host(layout, 1, memory, 0, BLOCKS * 12, packed);
    assert_int_equal(grail_pack_start(gpu, GRAIL_LANE_OUT, layout, 1, (void *)(uintptr_t)elements,
                                      0, BLOCKS * 12, pinned, &op), GRAIL_OK);
    wait_for(&op);
    assert_memory_equal(pinned, packed, BLOCKS * 12);
    fill(pinned, BLOCKS * 12, &r);
    assert_int_equal(grail_unpack_start(gpu, GRAIL_LANE_IN, layout, 1, (void *)(uintptr_t)elements,
                                        0, BLOCKS * 12, pinned, &op), GRAIL_OK);
    wait_for(&op);
    grail_layout_unpack_host(layout, 1, memory, 0, BLOCKS * 12, pinned);
    packed = realloc(packed, BLOCKS * 32);
    from_device(packed, elements, BLOCKS * 32);
    assert_memory_equal(packed, memory, BLOCKS * 32);
    assert_int_equal(grail_gpu_enter(gpu), CUDA_SUCCESS);
    grail_cuda.MemFreeHost(pinned);
    grail_gpu_leave(gpu);
    grail_layout_release(layout);
    device_free(elements);
    free(memory);
    free(packed);
}

static void test_nothing_to_do(void **state)
{
    grail_layout_builder_t *b = grail_layout_begin();
    grail_layout_t *layout = NULL;
    grail_copy_t op = {.ticket = 7};

    (void)state;
    grail_layout_add(b, 0, 4);
    grail_layout_add(b, 8, 4);
    assert_int_equal(grail_layout_end(b, 16, &layout), GRAIL_OK);
    assert_int_equal(grail_pack_start(gpu, GRAIL_LANE_OUT, layout, 5, NULL, 0, 0, NULL, &op),
                     GRAIL_OK);
    assert_int_equal(grail_copy_test(&op), GRAIL_OK);
    grail_layout_release(layout);
}

static void test_option_switches_kernels_off(void **state)
{
    grail_layout_builder_t *b = grail_layout_begin();
    CUdeviceptr p = device_alloc(64);
    grail_layout_t *layout = NULL;
    grail_copy_t op;

    (void)state;
    grail_layout_add(b, 0, 4);
    grail_layout_add(b, 8, 4);
    assert_int_equal(grail_layout_end(b, 16, &layout), GRAIL_OK);
    grail_options.pack_kernels = false;
    assert_int_equal(grail_pack_start(gpu, GRAIL_LANE_OUT, layout, 1, (void *)(uintptr_t)p, 0, 8,
                                      (void *)(uintptr_t)(p + 32), &op), GRAIL_ERR_UNSUPPORTED);
    grail_options.pack_kernels = true;
    grail_layout_release(layout);
    device_free(p);
}

/* A layout may outlive the GPU state, and its tree is uploaded again afterwards. */
static void test_layout_outlives_gpu(void **state)
{
    grail_layout_builder_t *b = grail_layout_begin();
    grail_layout_t *layout = NULL;
    int64_t at = 0;

    (void)state;
    for (int n = 0; n < 300; n++, at += 12 + n % 2 * 8)
        grail_layout_add(b, at, 4 + (size_t)(n % 3));
    assert_int_equal(grail_layout_end(b, at, &layout), GRAIL_OK);
    check_large(layout, 1, (size_t)(at + 15) & ~(size_t)7, 0);
    assert_non_null(layout->copies);
    grail_gpu_fini();
    assert_null(layout->copies);
    assert_int_equal(grail_gpu_of_device(0, &gpu), GRAIL_OK);
    check_large(layout, 1, (size_t)(at + 15) & ~(size_t)7, 0);
    grail_layout_release(layout);
}

static int setup(void **state)
{
    const char *wanted = getenv("PACK_TEST_ROUNDS");

    (void)state;
    if (wanted != NULL)
        rounds = atoi(wanted);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_to_do),
        cmocka_unit_test(test_copy_kernel),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_table_is_reused),
        cmocka_unit_test(test_pinned_packed),
        cmocka_unit_test(test_random_shapes),
        cmocka_unit_test(test_repack),
        cmocka_unit_test(test_sync),
        cmocka_unit_test(test_pageable_is_refused),
        cmocka_unit_test(test_option_switches_kernels_off),
        cmocka_unit_test(test_layout_outlives_gpu),
    };
    int failed;

    if (grail_options_load_environment() != GRAIL_OK)
        return 1;
    if (grail_cuda_load() != GRAIL_OK) {
        puts("# SKIP no CUDA driver and no GPU");
        return 77;
    }
    if (grail_gpu_of_device(0, &gpu) != GRAIL_OK)
        return 1;
    if (grail_gpu_kernel(gpu, "grail_move_any") == NULL) {
        puts("# SKIP built without device kernels");
        return 77;
    }
    failed = cmocka_run_group_tests(tests, setup, NULL);
    grail_gpu_fini();
    return failed;
}
