/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts: found, made ready, left as they were, given back, and survived. */
#include "tests/unit/cuda_child.h"

#include "cuda-aware/copy.h"
#include "cuda-aware/gpu.h"
#include "cuda-aware/gpu_internal.h"
#include "cuda-aware/stream.h"
#include "tests/common/gpu.h"

static const gpu_driver_t *driver(void)
{
    const gpu_driver_t *d = gpu_driver();

    if (d == NULL)
        CHILD_SKIP(gpu_why());
    CHECK(gpu_select(0) == GPU_OK);
    return d;
}

static CUdeviceptr allocate(size_t size)
{
    CUdeviceptr p;

    CHECK(gpu_driver()->cuMemAlloc_v2(&p, size) == CUDA_SUCCESS);
    return p;
}

static grail_gpu_t *gpu_of(CUdeviceptr p)
{
    grail_gpu_t *gpu;
    grail_mem_t mem;

    CHECK_OK(grail_mem_query((void *)(uintptr_t)p, &mem));
    CHECK_OK(grail_gpu_get(&mem, &gpu));
    return gpu;
}

static void basics(void)
{
    const gpu_driver_t *d = driver();
    CUdeviceptr p = allocate(4096);
    grail_gpu_t *gpu = gpu_of(p);
    CUcontext current;

    CHECK(gpu_of(p) == gpu);
    CHECK(grail_gpu_context(gpu) == gpu_context());
    CHECK(grail_gpu_device(gpu) == 0);
    CHECK(strncmp(grail_gpu_name(gpu), "GPU 0 (", 7) == 0);
    CHECK(grail_gpu_any() == gpu);
    CHECK(grail_gpu_multiprocessors(gpu) > 0);
    CHECK(grail_device_of_uuid(grail_gpu_uuid(gpu)) == 0);
    CHECK(grail_gpu_of_device(0, &gpu) == GRAIL_OK && gpu == gpu_of(p));
    CHECK(d->cuCtxSetCurrent(NULL) == CUDA_SUCCESS);
    CHECK(grail_gpu_enter(gpu) == CUDA_SUCCESS);
    CHECK(d->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == gpu_context());
    CHECK(grail_gpu_enter(gpu) == CUDA_SUCCESS);
    grail_gpu_leave(gpu);
    grail_gpu_leave(gpu);
    CHECK(d->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == NULL);
    grail_gpu_fini();
    CHECK(grail_gpu_any() == NULL);
    grail_gpu_fini();
}

static void test_basics(void **state)
{
    (void)state;
    in_child("", basics);
    assert_quiet();
}

static void no_such_device(void)
{
    grail_gpu_t *gpu;

    driver();
    CHECK(grail_gpu_of_device(60, &gpu) == GRAIL_ERR_CUDA);
    CHECK(grail_gpu_of_device(-1, &gpu) == GRAIL_ERR_CUDA);
}

static void test_no_such_device(void **state)
{
    (void)state;
    in_child("", no_such_device);
    assert_logged("there is no GPU 60", 1);
}

static void two_devices(void)
{
    const gpu_driver_t *d = driver();
    grail_gpu_t *gpu;

    if (d->devices < 2)
        CHILD_SKIP("needs two GPUs");
    CHECK_OK(grail_gpu_of_device(1, &gpu));
    CHECK(grail_gpu_device(gpu) == 1);
    CHECK(gpu != gpu_of(allocate(4096)));
    CHECK(!grail_uuid_equal(grail_gpu_uuid(gpu), grail_device_uuid(0)));
    CHECK(grail_device_of_uuid(grail_gpu_uuid(gpu)) == 1);
    CHECK(grail_gpu_last_device() == 0);
    grail_gpu_fini();
    if (simulated())
        CHECK(sim_count_of("streams_live") == 0 && sim_count_of("host_registered") == 0);
}

static void test_two_devices(void **state)
{
    (void)state;
    in_child("CUDASIM_DEVICES=2", two_devices);
    assert_quiet();
}

/* Using memory leaves nothing behind, and device memory is made for a kernel's counter only. */
static void use_and_end(void)
{
    CUdeviceptr p, q;
    grail_copy_t op;
    long long bytes;

    driver();
    if (!simulated())
        CHILD_SKIP("only the simulated driver counts");
    p = allocate(1 << 20);
    q = allocate(1 << 20);
    bytes = sim_count_of("bytes_live");
    for (int lane = 0; lane <= GRAIL_LANE_PEER; ++lane) {
        CHECK_OK(grail_copy_start(gpu_of(p), (grail_lane_t)lane, (void *)(uintptr_t)p,
                                  (void *)(uintptr_t)q, 1 << 20, &op));
        while (grail_copy_test(&op) == GRAIL_IN_PROGRESS)
            usleep(100);
        CHECK_OK(grail_copy_test(&op));
    }
    CHECK(sim_count_of("bytes_live") - bytes <= (long long)sizeof(uint32_t));
    CHECK(sim_count_of("streams_live") > 0 && sim_count_of("host_registered") == 1);
    grail_gpu_fini();
    CHECK(sim_count_of("bytes_live") == bytes);
    CHECK(sim_count_of("streams_live") == 0);
    CHECK(sim_count_of("host_registered") == 0);
    CHECK(sim_count_of("events_live") == 0);
}

static void test_use_and_end(void **state)
{
    (void)state;
    in_child("", use_and_end);
    assert_quiet();
    in_child("CUDASIM_NO_MEMOPS=1", use_and_end);
    assert_quiet();
}

/* Every step may fail; nothing is left, and the next try works. */
static void steps_fail(void)
{
    static const char *const steps[] = {
        "cuCtxGetStreamPriorityRange", "cuMemHostRegister", "cuMemHostGetDevicePointer",
        "cuCtxPushCurrent", "cuStreamCreateWithPriority", "cuCtxGetDevice",
    };
    CUdeviceptr p;
    char spec[120];

    driver();
    p = allocate(4096);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); ++i) {
        grail_gpu_t *gpu = NULL;
        grail_mem_t mem;
        grail_stream_t *stream = NULL;

        CHECK_OK(grail_mem_query((void *)(uintptr_t)p, &mem));
        snprintf(spec, sizeof(spec), "%s:*:CUDA_ERROR_OUT_OF_MEMORY", steps[i]);
        sim_faults(spec);
        grail_status_t status = grail_gpu_get(&mem, &gpu);

        if (status == GRAIL_OK)
            stream = grail_stream_pick(gpu, GRAIL_LANE_OUT);
        if (stream != NULL)
            fprintf(stderr, "# %s did not matter\n", steps[i]);
        CHECK(stream == NULL);
        sim_faults("");
        CHECK(sim_count_of("streams_live") == 0);
        CHECK_OK(grail_gpu_get(&mem, &gpu));
        CHECK(grail_stream_pick(gpu, GRAIL_LANE_OUT) != NULL);
        grail_gpu_fini();
        CHECK(sim_count_of("streams_live") == 0 && sim_count_of("host_registered") == 0);
    }
}

static void test_steps_fail(void **state)
{
    (void)state;
    in_child("", steps_fail);
    assert_logged("CUDA_ERROR_OUT_OF_MEMORY", 6);
}

static CUcontext make_context(void)
{
    CUcontext context;

    CHECK(gpu_driver()->cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    return context;
}

/* The program destroys a context that we used, with work of ours in it, and makes others: maybe at
 * the same address. */
static void destroyed(void)
{
    const gpu_driver_t *d = driver();
    grail_gpu_t *gpus[8];

    for (int i = 0; i < 8; ++i) {
        CUcontext context = make_context(), popped;
        CUdeviceptr p = allocate(1 << 20);
        grail_copy_t op;
        grail_status_t status;

        gpus[i] = gpu_of(p);
        CHECK(grail_gpu_context(gpus[i]) == context);
        for (int j = 0; j < i; ++j)
            CHECK(gpus[i] != gpus[j] && !grail_gpu_alive(gpus[j]));
        CHECK_OK(grail_copy_start(gpus[i], GRAIL_LANE_PEER, (void *)(uintptr_t)p,
                                  (void *)(uintptr_t)(p + 4096), 4096, &op));
        CHECK(d->cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS && popped == context);
        CHECK(grail_gpu_any() == gpus[i]);
        CHECK(d->cuCtxDestroy_v2(context) == CUDA_SUCCESS);
        CHECK(!grail_gpu_alive(gpus[i]));
        CHECK(grail_gpu_enter(gpus[i]) != CUDA_SUCCESS);
        CHECK(grail_gpu_kernel(gpus[i], "anything") == NULL);
        for (int poll = 0; poll < 10000; ++poll)
            status = grail_copy_test(&op);
        CHECK(status != GRAIL_IN_PROGRESS);     /* done before, or an error: no hang, no crash */
    }
    grail_gpu_fini();
}

static void test_destroyed(void **state)
{
    (void)state;
    in_child("", destroyed);
}

/* Work of a context that is destroyed under it ends in an error. */
static void destroyed_under_work(void)
{
    const gpu_driver_t *d = driver();
    CUcontext context = make_context(), popped;
    CUdeviceptr p = allocate(1 << 20);
    grail_gpu_t *gpu = gpu_of(p);
    grail_stream_t *stream = grail_stream_pick(gpu, GRAIL_LANE_OUT);
    grail_status_t status = GRAIL_IN_PROGRESS;
    grail_copy_t op;

    grail_stream_ticket(stream, &op);       /* a kernel that never ran */
    CHECK(d->cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS);
    CHECK(d->cuCtxDestroy_v2(context) == CUDA_SUCCESS);
    for (int poll = 0; poll < 10000 && status == GRAIL_IN_PROGRESS; ++poll)
        status = grail_copy_test(&op);
    CHECK(status == GRAIL_ERR_CUDA);
    CHECK(grail_copy_test(&op) == GRAIL_ERR_CUDA);
    CHECK(grail_copy_start(gpu, GRAIL_LANE_OUT, (void *)(uintptr_t)p, (void *)(uintptr_t)p, 8,
                           &op) == GRAIL_ERR_CUDA);
    grail_gpu_fini();
}

static void test_destroyed_under_work(void **state)
{
    (void)state;
    in_child("", destroyed_under_work);
    assert_logged("] error: waiting for a copy (device to host) on GPU 0", 1);
}

/* cudaDeviceReset, in between and before the end */
static void reset(void)
{
    CUresult (*reset_device)(CUdevice) = NULL;
    void *symbol;
    grail_gpu_t *before, *after;

    driver();
    symbol = sim_symbol("cuDevicePrimaryCtxReset_v2");
    memcpy(&reset_device, &symbol, sizeof(symbol));
    CHECK_OK(grail_gpu_of_device(0, &before));
    CHECK(grail_stream_pick(before, GRAIL_LANE_IN) != NULL);
    CHECK(reset_device(0) == CUDA_SUCCESS);
    CHECK(!grail_gpu_alive(before));
    CHECK_OK(grail_gpu_of_device(0, &after));
    CHECK(after != before);
    CHECK(grail_stream_pick(after, GRAIL_LANE_IN) != NULL);
    CHECK(reset_device(0) == CUDA_SUCCESS);
    grail_gpu_fini();
}

static void test_reset(void **state)
{
    (void)state;
    in_child("", reset);
    assert_quiet();
}

/* The primary context that was retained for pool memory is given back. */
static void primary_given_back(void)
{
    const gpu_driver_t *d = driver();
    unsigned flags;
    int active = -1;
    CUcontext context;

    if (d->devices < 2)
        CHILD_SKIP("needs two GPUs");
    CHECK(grail_cuda_ready());
    CHECK(d->cuDevicePrimaryCtxGetState(1, &flags, &active) == CUDA_SUCCESS && !active);
    CHECK_OK(grail_primary_context(1, &context));
    CHECK_OK(grail_primary_context(1, &context));
    CHECK(d->cuDevicePrimaryCtxGetState(1, &flags, &active) == CUDA_SUCCESS && active);
    grail_gpu_fini();
    CHECK(d->cuDevicePrimaryCtxGetState(1, &flags, &active) == CUDA_SUCCESS && !active);
}

static void test_primary_given_back(void **state)
{
    (void)state;
    in_child("CUDASIM_DEVICES=2", primary_given_back);
    assert_quiet();
}

/* Memory without a context, in a program that has only a context of its own: no second one. */
static void own_context_is_enough(void)
{
    const gpu_driver_t *d = gpu_driver();
    CUcontext own, found;
    unsigned flags;
    int active = -1;

    if (d == NULL)
        CHILD_SKIP(gpu_why());
    CHECK(grail_cuda_ready());
    own = make_context();
    CHECK_OK(grail_context_for_device(0, &found));
    CHECK(found == own);
    CHECK(d->cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS && !active);
}

static void test_own_context_is_enough(void **state)
{
    (void)state;
    in_child("", own_context_is_enough);
    assert_quiet();
}

static void ends_after_cuda(void)
{
    driver();
    CHECK(grail_stream_pick(gpu_of(allocate(4096)), GRAIL_LANE_OUT) != NULL);
    (void)grail_cuda_fail(CUDA_ERROR_DEINITIALIZED, "anything");
    long long calls = sim_count_of("calls");

    grail_gpu_fini();
    CHECK(sim_count_of("calls") == calls);      /* not one more */
}

static void test_ends_after_cuda(void **state)
{
    (void)state;
    in_child("", ends_after_cuda);
    assert_quiet();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_basics),
        cmocka_unit_test(test_no_such_device),
        cmocka_unit_test(test_two_devices),
        cmocka_unit_test(test_use_and_end),
        cmocka_unit_test(test_steps_fail),
        cmocka_unit_test(test_destroyed),
        cmocka_unit_test(test_destroyed_under_work),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_primary_given_back),
        cmocka_unit_test(test_own_context_is_enough),
        cmocka_unit_test(test_ends_after_cuda),
    };

    return cmocka_run_group_tests_name("gpu", tests, NULL, NULL);
}
