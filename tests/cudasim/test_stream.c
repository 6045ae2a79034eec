/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulated driver: order and asynchrony of streams, events, memory operations, kernels. */
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "tests/cudasim/child.h"
#include "tests/cudasim/test_kernels.h"

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *pinned(size_t bytes)
{
    void *ptr;
    OK(cuMemHostAlloc(&ptr, bytes, 0));
    return memset(ptr, 0, bytes);
}

/* ---- Asynchrony ----------------------------------------------------------------------------- */

static void asynchronous(void *arg)
{
    (void)arg;
    CUstream stream;
    CUdeviceptr dev, dev2;
    char pageable[16] = "pageable";
    child_cuda();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&dev, 16));
    OK(cuMemAlloc_v2(&dev2, 16));
    char *host = pinned(16), *back = pinned(16);
    CHECK(cudasim_get("threads_started") == 0);
    cudasim_set_delay(100000);
    /* From pinned memory it is read later: what is written meanwhile is what arrives. */
    strcpy(host, "before");
    OK(cuMemcpyHtoDAsync_v2(dev, host, 16, stream));
    CHECK_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    strcpy(host, "after");
    OK(cuMemcpyDtoHAsync_v2(back, dev, 16, stream));
    CHECK(back[0] == '\0');
    OK(cuStreamSynchronize(stream));
    CHECK(strcmp(back, "after") == 0);
    OK(cuStreamQuery(stream));
    /* From pageable memory it was staged. */
    OK(cuMemcpyHtoDAsync_v2(dev, pageable, 16, stream));
    CHECK_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    strcpy(pageable, "changed");
    OK(cuMemcpyDtoHAsync_v2(pageable, dev, 16, stream)); /* to pageable memory it waits */
    CHECK(strcmp(pageable, "pageable") == 0);
    OK(cuStreamQuery(stream));
    /* Even the plain copy between device memory does not wait. */
    double begin = seconds();
    OK(cuMemcpyDtoD_v2(dev2, dev, 16));
    CHECK(seconds() - begin < 0.09);
    CHECK(memcmp(cudasim_alias(dev2), "pageable", 8) != 0);
    OK(cuCtxSynchronize());
    CHECK(memcmp(cudasim_alias(dev2), "pageable", 8) == 0);
    OK(cuStreamDestroy_v2(stream));
    CHECK_CU(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    CHECK(cudasim_get("copies_htod") == 2 && cudasim_get("copies_dtoh") == 2 &&
          cudasim_get("copies_dtod") == 1 && cudasim_get("copy_bytes") == 5 * 16);
}

static void free_waits(void *arg)
{
    (void)arg;
    CUstream stream;
    CUdeviceptr dev;
    child_cuda();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&dev, 1024));
    char *host = pinned(1024);
    cudasim_set_delay(50000);
    OK(cuMemsetD8Async(dev, 7, 1024, stream));
    OK(cuMemcpyDtoHAsync_v2(host, dev, 1024, stream));
    OK(cuMemFree_v2(dev));
    OK(cuStreamQuery(stream));
    CHECK(host[1023] == 7);
}

static void test_asynchronous(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it changes the source of a copy under way: a race, on purpose */
#endif
    assert_int_equal(child_run(NULL, asynchronous), 0);
    assert_int_equal(child_run(NULL, free_waits), 0);
}

/* ---- Order ---------------------------------------------------------------------------------- */

static void strict_order(void *arg)
{
    (void)arg;
    enum { N = 2000 };
    CUstream stream;
    CUdeviceptr dev;
    child_cuda();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&dev, 4));
    uint32_t *log = pinned(N * sizeof(*log));
    for (uint32_t i = 0; i < N; i++) {
        OK(cuMemsetD32Async(dev, i, 1, stream));
        OK(cuMemcpyDtoHAsync_v2(&log[i], dev, 4, stream));
    }
    OK(cuStreamSynchronize(stream));
    for (uint32_t i = 0; i < N; i++) {
        CHECK(log[i] == i);
    }
    CHECK(cudasim_get("threads_started") == 1);
}

/** The legacy default stream is ordered with blocking streams only. */
static void default_stream(void *arg)
{
    (void)arg;
    CUstream blocking, apart;
    CUdeviceptr dev;
    child_cuda();
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&dev, 4));
    volatile uint32_t *word = pinned(64), *gate = word + 1;
    uint32_t *seen = pinned(64);
    CUdeviceptr gate_dev;
    OK(cuMemHostGetDevicePointer_v2(&gate_dev, (void *)gate, 0));
    /* blocking: waits for the gate, writes 1; default: copies; blocking: writes 2 */
    OK(cuStreamWaitValue32_v2(blocking, gate_dev, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuMemsetD32Async(dev, 1, 1, blocking));
    OK(cuMemcpyDtoHAsync_v2(&seen[0], dev, 4, NULL));
    OK(cuMemsetD32Async(dev, 2, 1, blocking));
    OK(cuMemcpyDtoHAsync_v2(&seen[1], dev, 4, CU_STREAM_LEGACY));
    OK(cuMemsetD32Async(dev, 3, 1, apart)); /* waits for none of them */
    OK(cuStreamSynchronize(apart));
    CHECK(*(uint32_t *)cudasim_alias(dev) == 3);
    CHECK_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    CHECK_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(blocking));
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(NULL));
    CHECK(seen[0] == 1 && seen[1] == 2);
    OK(cuMemsetD32Async(dev, 4, 1, CU_STREAM_PER_THREAD));
    OK(cuMemcpyDtoHAsync_v2(&seen[2], dev, 4, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK(seen[2] == 4);
}

static void events(void *arg)
{
    (void)arg;
    CUstream first, second;
    CUevent event, start;
    CUdeviceptr dev, gate_dev;
    CUcontext ctx, other;
    float ms;
    child_cuda();
    OK(cuCtxGetCurrent(&ctx));
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreateWithPriority(&second, CU_STREAM_NON_BLOCKING, -3));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    OK(cuMemAlloc_v2(&dev, 4));
    uint32_t *gate = pinned(64), *seen = pinned(64);
    OK(cuMemHostGetDevicePointer_v2(&gate_dev, gate, 0));
    OK(cuEventQuery(event)); /* never recorded: done */
    OK(cuEventRecord(start, first));
    OK(cuEventSynchronize(start));
    OK(cuStreamWaitValue32_v2(first, gate_dev, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD32Async(dev, 42, 1, first));
    OK(cuEventRecord(event, first));
    CHECK_CU(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    CHECK_CU(CUDA_ERROR_NOT_READY, cuEventElapsedTime_v2(&ms, start, event));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(cuMemcpyDtoHAsync_v2(seen, dev, 4, second));
    CHECK_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
    usleep(20000);
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(second));
    CHECK(*seen == 42);
    OK(cuEventSynchronize(event));
    OK(cuEventElapsedTime_v2(&ms, start, event));
    CHECK(ms >= 15 && ms < 10000);
    int priority;
    OK(cuStreamGetPriority(second, &priority));
    CHECK(priority == -3);
    /* An event belongs to its context. */
    OK(cuCtxCreate_v2(&other, 0, 0));
    CUstream foreign;
    OK(cuStreamCreate(&foreign, 0));
    CHECK_CU(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, foreign));
    OK(cuStreamWaitEvent(foreign, event, 0));
    OK(cuMemsetD32Async(dev, 1, 1, second)); /* a stream of another context than the current */
    OK(cuStreamSynchronize(second));
    OK(cuEventDestroy_v2(event));
    CHECK_CU(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
}

static void test_order(void **state)
{
    (void)state;
    assert_int_equal(child_run(NULL, strict_order), 0);
    assert_int_equal(child_run("CUDASIM_DELAY_US=300", default_stream), 0);
    assert_int_equal(child_run(NULL, events), 0);
}

/* ---- Flags and host functions --------------------------------------------------------------- */

static void flags(void *arg)
{
    (void)arg;
    CUstream stream;
    CUdeviceptr dev, flag_dev;
    child_cuda();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    enum { N = 1 << 20 };
    OK(cuMemAlloc_v2(&dev, N));
    uint32_t *flag = pinned(64);
    unsigned char *host = pinned(N);
    OK(cuMemHostGetDevicePointer_v2(&flag_dev, flag, 0));
    for (uint32_t i = 1; i <= 50; i++) {
        OK(cuMemsetD8Async(dev, (unsigned char)i, N, stream));
        OK(cuMemcpyDtoHAsync_v2(host, dev, N, stream));
        OK(cuStreamWriteValue32_v2(stream, flag_dev, i, 0));
        while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != i) {
        }
        CHECK(host[0] == i && host[N - 1] == i);
    }
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32_v2(stream, flag_dev + 2, 1, 0));
    uint32_t pageable;
    CHECK_CU(CUDA_ERROR_INVALID_VALUE,
             cuStreamWriteValue32_v2(stream, (CUdeviceptr)(uintptr_t)&pageable, 1, 0));
    OK(cuStreamWriteValue64_v2(stream, dev + 8, 0x0102030405060708u, 0));
    OK(cuStreamWaitValue64_v2(stream, dev + 8, 0x0102030405060708u, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamSynchronize(stream));
    CHECK(*(uint64_t *)cudasim_alias(dev + 8) == 0x0102030405060708u);
}

static void no_memops(void *arg)
{
    (void)arg;
    CUdeviceptr dev;
    int value;
    child_cuda();
    OK(cuMemAlloc_v2(&dev, 8));
    CHECK_CU(CUDA_ERROR_NOT_SUPPORTED, cuStreamWriteValue32_v2(NULL, dev, 1, 0));
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 0));
    CHECK(value == 0);
}

static void host_function(void *arg)
{
    CUcontext ctx;
    *(int *)arg = cuCtxGetCurrent(&ctx) == CUDA_ERROR_NOT_PERMITTED ? 1 : -1;
}

static void host_functions(void *arg)
{
    (void)arg;
    int ran = 0;
    child_cuda();
    OK(cuLaunchHostFunc(NULL, host_function, &ran));
    OK(cuCtxSynchronize());
    CHECK(ran == 1);
}

static void test_flags(void **state)
{
    (void)state;
    assert_int_equal(child_run(NULL, flags), 0);
    assert_int_equal(child_run("CUDASIM_NO_MEMOPS=1", no_memops), 0);
    assert_int_equal(child_run(NULL, host_functions), 0);
}

/* ---- Kernels -------------------------------------------------------------------------------- */

static CUfunction kernel(const char *name)
{
    CUmodule module;
    CUfunction function;
    OK(cuModuleLoadData(&module, "any image"));
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

static CUresult launch(CUfunction function, unsigned int grid, unsigned int block, CUstream stream,
                       cudasim_test_args_t args)
{
    void *params[] = {&args};
    return cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, params, NULL);
}

static void kernels(void *arg)
{
    (void)arg;
    enum { N = 100003 };
    CUdeviceptr a, b, page;
    child_cuda();
    OK(cuMemAlloc_v2(&a, 4 * N));
    OK(cuMemAlloc_v2(&b, 4 * 4096));
    uint32_t *host = pinned(4 * N);
    CUmodule module;
    CUfunction function;
    OK(cuModuleLoadData(&module, "any image"));
    CHECK_CU(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "no_such_kernel"));
    OK(launch(kernel("cudasim_test_fill"), 7, 96, NULL, (cudasim_test_args_t){a, 0, N, 5, 0}));
    OK(cuMemcpyDtoH_v2(host, a, 4 * N));
    for (uint32_t i = 0; i < N; i++) {
        CHECK(host[i] == i + 5);
    }
    /* Pinned memory can be reached as well; 16-byte accesses. */
    OK(cuMemHostGetDevicePointer_v2(&page, host, 0));
    OK(launch(kernel("cudasim_test_copy16"), 3, 64, NULL,
              (cudasim_test_args_t){b, page, 1024, 0, 0}));
    OK(cuCtxSynchronize());
    CHECK(memcmp(cudasim_alias(b), host, 16384) == 0);
    CHECK(cudasim_get("launches") == 2);
    CHECK_CU(CUDA_ERROR_INVALID_VALUE,
             launch(kernel("cudasim_test_fill"), 1, 2000, NULL,
                    (cudasim_test_args_t){a, 0, N, 5, 0}));
    CHECK_CU(CUDA_ERROR_INVALID_VALUE,
             launch(kernel("cudasim_test_fill"), 0, 1, NULL,
                    (cudasim_test_args_t){a, 0, N, 5, 0}));
}

static void kernel_waits(void *arg)
{
    (void)arg;
    CUstream stream;
    CUdeviceptr sum, flag_dev;
    child_cuda();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&sum, 4));
    OK(cuMemsetD32_v2(sum, 0, 1));
    OK(cuCtxSynchronize());
    uint32_t *flag = pinned(64);
    OK(cuMemHostGetDevicePointer_v2(&flag_dev, flag, 0));
    OK(launch(kernel("cudasim_test_wait"), 2, 8, stream,
              (cudasim_test_args_t){sum, flag_dev, 0, 9, 0}));
    usleep(20000);
    CHECK_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    __atomic_store_n(flag, 9, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(stream));
    CHECK(*(uint32_t *)cudasim_alias(sum) == 16);
    /* Blocks of a cooperative launch run at the same time. */
    OK(cuMemsetD32_v2(sum, 0, 1));
    cudasim_test_args_t args = {sum, 0, 0, 0, 0};
    void *params[] = {&args};
    OK(cuLaunchCooperativeKernel(kernel("cudasim_test_meet"), 6, 1, 1, 4, 1, 1, 0, NULL, params));
    OK(cuCtxSynchronize());
    CHECK(*(uint32_t *)cudasim_alias(sum) == 6);
}

static void kernel_barrier(void *arg)
{
    (void)arg;
    enum { BLOCKS = 3, THREADS = 40, N = BLOCKS * THREADS };
    CUdeviceptr src, dst;
    child_cuda();
    OK(cuMemAlloc_v2(&src, 4 * N));
    OK(cuMemAlloc_v2(&dst, 4 * N));
    OK(launch(kernel("cudasim_test_fill"), 1, 32, NULL, (cudasim_test_args_t){src, 0, N, 0, 0}));
    OK(launch(kernel("cudasim_test_reverse"), BLOCKS, THREADS, NULL,
              (cudasim_test_args_t){dst, src, 0, 0, 0}));
    OK(cuCtxSynchronize());
    const uint32_t *out = cudasim_alias(dst);
    for (uint32_t i = 0; i < N; i++) {
        CHECK(out[i] == i / THREADS * THREADS + THREADS - 1 - i % THREADS);
    }
}

static CUresult run_bad(CUdeviceptr dst, uint64_t count)
{
    CUresult result = launch(kernel("cudasim_test_fill"), 1, 1, NULL,
                             (cudasim_test_args_t){dst, 0, count, 0, 0});
    return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
}

static void illegal_address(void *arg)
{
    (void)arg;
    CUdeviceptr dev;
    CUcontext other;
    child_cuda();
    OK(cuCtxCreate_v2(&other, 0, 0));
    OK(cuCtxPopCurrent_v2(NULL));
    OK(cuMemAlloc_v2(&dev, 400));
    OK(run_bad(dev, 100));
    CHECK_CU(CUDA_ERROR_ILLEGAL_ADDRESS, run_bad(dev, 101));
    /* It sticks to the context, and no other one can be made beside it. */
    CHECK_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&dev, 4));
    CHECK_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(NULL));
    CUcontext third;
    CHECK_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxCreate_v2(&third, 0, 0));
    OK(cuCtxPushCurrent_v2(other));
    OK(cuMemAlloc_v2(&dev, 4));
    OK(run_bad(dev, 1));
}

static void illegal_host(void *arg)
{
    (void)arg;
    uint32_t *pageable = malloc(64);
    child_cuda();
    CHECK_CU(CUDA_ERROR_ILLEGAL_ADDRESS, run_bad((CUdeviceptr)(uintptr_t)pageable, 1));
    free(pageable);
}

static void misaligned(void *arg)
{
    (void)arg;
    CUdeviceptr dev;
    child_cuda();
    OK(cuMemAlloc_v2(&dev, 400));
    CHECK_CU(CUDA_ERROR_MISALIGNED_ADDRESS, run_bad(dev + 2, 1));
}

static void peer_access(void *arg)
{
    (void)arg;
    CUdeviceptr far;
    CUcontext near_ctx, far_ctx;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&far_ctx, 0, 1));
    OK(cuMemAlloc_v2(&far, 4));
    OK(cuCtxCreate_v2(&near_ctx, 0, 0));
    OK(cuCtxEnablePeerAccess(far_ctx, 0));
    CHECK_CU(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(far_ctx, 0));
    OK(run_bad(far, 1));
    OK(cuCtxDisablePeerAccess(far_ctx));
    CHECK_CU(CUDA_ERROR_ILLEGAL_ADDRESS, run_bad(far, 1));
}

static void spins_for_ever(void *arg)
{
    (void)arg;
    CUdeviceptr dev;
    child_cuda();
    OK(cuMemAlloc_v2(&dev, 8));
    OK(cuMemsetD32_v2(dev, 0, 2));
    OK(launch(kernel("cudasim_test_wait"), 1, 1, NULL,
              (cudasim_test_args_t){dev, dev + 4, 0, 9, 0}));
    CHECK_CU(CUDA_ERROR_LAUNCH_TIMEOUT, cuCtxSynchronize());
}

static void no_kernels(void *arg)
{
    (void)arg;
    CUmodule module;
    child_cuda();
    CHECK_CU(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, "any image"));
}

static void test_kernels(void **state)
{
    (void)state;
    assert_int_equal(child_run(NULL, kernels), 0);
    assert_int_equal(child_run(NULL, kernel_waits), 0);
    assert_int_equal(child_run(NULL, kernel_barrier), 0);
    assert_int_equal(child_run("CUDASIM_NO_KERNELS=1", no_kernels), 0);
}

static void test_kernel_faults(void **state)
{
    (void)state;
    assert_int_equal(child_run(NULL, illegal_address), 0);
    assert_int_equal(child_run(NULL, illegal_host), 0);
    assert_int_equal(child_run(NULL, misaligned), 0);
    assert_int_equal(child_run("CUDASIM_DEVICES=2", peer_access), 0);
    assert_int_equal(child_run("CUDASIM_KERNEL_TIMEOUT_S=1", spins_for_ever), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asynchronous), cmocka_unit_test(test_order),
        cmocka_unit_test(test_flags),        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_kernel_faults),
    };
    return cmocka_run_group_tests_name("simulated driver: streams", tests, NULL, NULL);
}
