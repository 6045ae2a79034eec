/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulated driver: contexts, device and host memory, what is told about pointers. */
#include <pthread.h>
#include <signal.h>

#include "tests/cudasim/child.h"

/* ---- Touching device memory crashes --------------------------------------------------------- */

static void touch_read(void *arg)
{
    (void)arg;
    CUdeviceptr ptr;
    child_cuda();
    OK(cuMemAlloc_v2(&ptr, 4096));
    signal(SIGSEGV, SIG_DFL); /* not the sanitizer's handler, so that the signal is seen */
    volatile char got = *(volatile char *)(uintptr_t)ptr;
    (void)got;
}

static void touch_write(void *arg)
{
    (void)arg;
    CUdeviceptr ptr;
    child_cuda();
    OK(cuMemAlloc_v2(&ptr, 8 << 20));
    signal(SIGSEGV, SIG_DFL);
    memset((void *)(uintptr_t)(ptr + 100), 0, 8);
}

static void touch_pool(void *arg)
{
    (void)arg;
    CUdeviceptr ptr;
    child_cuda();
    OK(cuMemAllocAsync(&ptr, 64, NULL));
    OK(cuCtxSynchronize());
    signal(SIGSEGV, SIG_DFL);
    *(volatile int *)(uintptr_t)ptr = 1;
}

static void test_touch_crashes(void **state)
{
    (void)state;
    assert_int_equal(child_run(NULL, touch_read), 128 + SIGSEGV);
    assert_int_equal(child_run(NULL, touch_write), 128 + SIGSEGV);
    assert_int_equal(child_run(NULL, touch_pool), 128 + SIGSEGV);
}

/* ---- Data ----------------------------------------------------------------------------------- */

static void round_trip(void *arg)
{
    (void)arg;
    enum { N = 3 << 20 };
    CUdeviceptr a, b;
    child_cuda();
    OK(cuMemAlloc_v2(&a, N));
    OK(cuMemAlloc_v2(&b, N));
    unsigned char *out = malloc(N), *in = calloc(1, N);
    for (int i = 0; i < N; i++) {
        out[i] = (unsigned char)(i * 7 + (i >> 8));
    }
    OK(cuMemcpyHtoD_v2(a, out, N));
    OK(cuMemcpyDtoD_v2(b, a, N));
    OK(cuMemcpyDtoH_v2(in, b, N));
    CHECK(memcmp(in, out, N) == 0);
    CHECK(memcmp(cudasim_alias(b), out, N) == 0);
    OK(cuMemsetD32_v2(b + 4, 0x01020304, 1));
    OK(cuMemcpyDtoH_v2(in, b, 12));
    CHECK(memcmp(in, out, 4) == 0 && *(uint32_t *)(in + 4) == 0x01020304 &&
          memcmp(in + 8, out + 8, 4) == 0);
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(in, b + 1, N)); /* past the end */
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(in, (CUdeviceptr)(uintptr_t)out, 8));
    OK(cuMemFree_v2(a));
    OK(cuMemFree_v2(b));
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(b));
    CHECK(cudasim_get("allocs_live") == 0 && cudasim_get("bytes_live") == 0);
    CHECK(cudasim_get("device_bytes.0") == 0);
    free(in);
    free(out);
}

static void rows(void *arg)
{
    (void)arg;
    CUdeviceptr ptr;
    size_t pitch;
    char host[6][10], back[6][10];
    child_cuda();
    OK(cuMemAllocPitch_v2(&ptr, &pitch, 10, 6, 4));
    CHECK(pitch >= 10 && pitch % 512 == 0);
    for (int i = 0; i < 60; i++) {
        host[i / 10][i % 10] = (char)i;
    }
    CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .srcPitch = 10,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = ptr, .dstPitch = pitch,
                       .WidthInBytes = 10, .Height = 6};
    OK(cuMemcpy2D_v2(&c));
    CUDA_MEMCPY2D d = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = ptr, .srcPitch = pitch,
                       .srcXInBytes = 2, .srcY = 1, .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = back, .dstPitch = 10, .WidthInBytes = 5, .Height = 5};
    memset(back, -1, sizeof(back));
    OK(cuMemcpy2D_v2(&d));
    CHECK(back[0][0] == 12 && back[4][4] == 56 && back[0][5] == -1);
    CUDA_MEMCPY3D e = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = ptr, .srcPitch = pitch,
                       .srcHeight = 3, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back,
                       .dstPitch = 10, .dstHeight = 2, .WidthInBytes = 10, .Height = 2,
                       .Depth = 2};
    OK(cuMemcpy3D_v2(&e));
    CHECK(back[1][9] == 19 && back[2][0] == 30 && back[3][9] == 49);
}

static void test_data(void **state)
{
    (void)state;
    assert_int_equal(child_run(NULL, round_trip), 0);
    assert_int_equal(child_run(NULL, rows), 0);
}

/* ---- Addresses ------------------------------------------------------------------------------ */

static uint64_t buffer_id(CUdeviceptr ptr)
{
    unsigned long long id = 0;
    OK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
    return id;
}

static void addresses(void *arg)
{
    (void)arg;
    CUdeviceptr a, b, c, base;
    size_t bytes;
    child_cuda();
    OK(cuMemAlloc_v2(&a, 1000));
    OK(cuMemAlloc_v2(&b, 10));
    OK(cuMemAlloc_v2(&c, 1000));
    CHECK(a % 512 == 0 && b % 512 == 0 && (b - a) >= 1000 && b >> 21 == a >> 21);
    OK(cuMemGetAddressRange_v2(&base, &bytes, b + 9));
    CHECK(base == b && bytes == 10 && b % (2 << 20) != 0);
    CHECK_CU(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &bytes, b + 10));
    /* Freed last, used first, and known by a new id. */
    uint64_t old_id = buffer_id(b);
    CHECK(old_id != buffer_id(a) && old_id == buffer_id(b + 9));
    OK(cuMemFree_v2(b));
    CHECK_CU(CUDA_ERROR_INVALID_VALUE,
             cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_BUFFER_ID, b));
    CUdeviceptr again;
    OK(cuMemAlloc_v2(&again, 512));
    CHECK(again == b && buffer_id(again) != old_id);
    /* Large ones have pages of their own. */
    CUdeviceptr large, large2;
    OK(cuMemAlloc_v2(&large, 5 << 20));
    CHECK(large % (2 << 20) == 0);
    old_id = buffer_id(large);
    OK(cuMemFree_v2(large));
    OK(cuMemAlloc_v2(&large2, 5 << 20));
    CHECK(large2 == large && buffer_id(large2) != old_id);
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&large, 0));
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(large2 + 512));
}

static void out_of_memory(void *arg)
{
    (void)arg;
    CUdeviceptr ptr[9];
    size_t free_bytes, total;
    child_cuda();
    for (int i = 0; i < 8; i++) {
        OK(cuMemAlloc_v2(&ptr[i], 2 << 20));
    }
    CHECK_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&ptr[8], 4));
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    CHECK(free_bytes == 0 && total == 16 << 20);
    OK(cuMemFree_v2(ptr[3]));
    OK(cuMemAlloc_v2(&ptr[8], 4));
}

typedef struct pair {
    channel_t to_second, to_first;
} pair_t;

static void first_of_job(void *arg)
{
    const pair_t *pair = arg;
    CUdeviceptr ptr;
    char token = 0;
    child_cuda();
    OK(cuMemAlloc_v2(&ptr, 12 << 20));
    channel_send(&pair->to_second, &token, 1);
    channel_receive(&pair->to_first, &token, 1);
    OK(cuMemFree_v2(ptr));
    channel_send(&pair->to_second, &token, 1);
    channel_receive(&pair->to_first, &token, 1);
    OK(cuMemAlloc_v2(&ptr, 12 << 20));
    channel_send(&pair->to_second, &token, 1);
    channel_receive(&pair->to_first, &token, 1);
    kill(getpid(), SIGKILL); /* its memory is given back all the same */
}

static void second_of_job(void *arg)
{
    const pair_t *pair = arg;
    CUdeviceptr ptr;
    char token = 0;
    child_cuda();
    channel_receive(&pair->to_second, &token, 1);
    CHECK_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&ptr, 8 << 20));
    channel_send(&pair->to_first, &token, 1);
    channel_receive(&pair->to_second, &token, 1);
    OK(cuMemAlloc_v2(&ptr, 8 << 20));
    OK(cuMemFree_v2(ptr));
    channel_send(&pair->to_first, &token, 1);
    channel_receive(&pair->to_second, &token, 1);
    CHECK_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&ptr, 8 << 20));
    channel_send(&pair->to_first, &token, 1);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < 500 && result != CUDA_SUCCESS; i++) {
        usleep(10000);
        result = cuMemAlloc_v2(&ptr, 8 << 20);
    }
    OK(result);
    exit(0); /* with exit handlers: they remove the job's file */
}

static void test_addresses(void **state)
{
    (void)state;
    assert_int_equal(child_run(NULL, addresses), 0);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    assert_int_equal(child_run("CUDASIM_MEM_MB=16", out_of_memory), 0);
    pair_t pair;
    assert_int_equal(pipe(pair.to_first.fd), 0);
    assert_int_equal(pipe(pair.to_second.fd), 0);
    char settings[128], path[256];
    snprintf(settings, sizeof(settings), "CUDASIM_MEM_MB=16 CUDASIM_JOB=test-%d TMPDIR=/tmp",
             (int)getpid());
    pid_t first = child_start(settings, first_of_job, &pair);
    pid_t second = child_start(settings, second_of_job, &pair);
    assert_int_equal(child_wait(first), 128 + SIGKILL);
    assert_int_equal(child_wait(second), 0);
    snprintf(path, sizeof(path), "/tmp/cudasim-%u-test-%d", (unsigned int)getuid(), (int)getpid());
    assert_int_not_equal(access(path, F_OK), 0);
}

/* ---- Kinds of memory ------------------------------------------------------------------------ */

typedef struct facts {
    unsigned int type, managed, legacy_ipc;
    CUcontext ctx;
    unsigned long long id;
    int ordinal;
    CUmemoryPool pool;
    CUdeviceptr start;
    size_t bytes;
} facts_t;

static facts_t ask(CUdeviceptr ptr)
{
    facts_t f;
    memset(&f, 0xff, sizeof(f));
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_CONTEXT,        CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&f.type,       &f.managed, &f.ctx,   &f.id,   &f.ordinal,
                      &f.legacy_ipc, &f.pool,    &f.start, &f.bytes};
    OK(cuPointerGetAttributes(9, attributes, values, ptr));
    return f;
}

static void kinds(void *arg)
{
    (void)arg;
    CUcontext ctx = child_cuda();
    CUdeviceptr device, managed, pool, global;
    void *pinned;
    CUmodule module;
    char *pageable = malloc(10000);
    OK(cuMemAlloc_v2(&device, 100));
    OK(cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocAsync(&pool, 100, NULL));
    OK(cuMemHostAlloc(&pinned, 100, CU_MEMHOSTALLOC_PORTABLE));
    OK(cuMemHostRegister_v2(pageable + 100, 5000, 0));
    OK(cuModuleLoadData(&module, "any image"));
    OK(cuModuleGetGlobal_v2(&global, NULL, module, "table_64"));

    facts_t f = ask(device + 50);
    CHECK(f.type == CU_MEMORYTYPE_DEVICE && f.ctx == ctx && f.legacy_ipc && !f.managed &&
          f.pool == NULL && f.start == device && f.bytes == 100 && f.ordinal == 0);
    f = ask(managed);
    CHECK(f.type == CU_MEMORYTYPE_DEVICE && f.managed && !f.legacy_ipc && f.ctx == ctx);
    *(volatile char *)(uintptr_t)managed = 5; /* the CPU may */
    CHECK(*(char *)cudasim_alias(managed) == 5);
    f = ask(pool);
    CHECK(f.type == CU_MEMORYTYPE_DEVICE && f.pool != NULL && f.ctx == NULL && !f.legacy_ipc);
    f = ask((CUdeviceptr)(uintptr_t)pinned);
    CHECK(f.type == CU_MEMORYTYPE_HOST && f.ctx == ctx && !f.legacy_ipc);
    f = ask((CUdeviceptr)(uintptr_t)(pageable + 5099));
    CHECK(f.type == CU_MEMORYTYPE_HOST && f.start == (CUdeviceptr)(uintptr_t)(pageable + 100));
    f = ask(global);
    CHECK(f.type == CU_MEMORYTYPE_DEVICE && f.bytes == 64 && !f.legacy_ipc);
    f = ask((CUdeviceptr)(uintptr_t)pageable);
    CHECK(f.type == 0 && f.ctx == NULL && f.id == 0);
    unsigned int type;
    CHECK_CU(CUDA_ERROR_INVALID_VALUE,
             cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   (CUdeviceptr)(uintptr_t)pageable));
    CHECK_CU(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
             cuMemHostRegister_v2(pageable + 4000, 4000, 0));
    OK(cuMemHostUnregister(pageable + 100));
    CHECK_CU(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(pageable + 100));
    CHECK(ask((CUdeviceptr)(uintptr_t)(pageable + 100)).type == 0);
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pageable));
    OK(cuMemFreeHost(pinned));
    unsigned int on = 1;
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device));
    free(pageable);
}

static void test_kinds(void **state)
{
    (void)state;
    assert_int_equal(child_run(NULL, kinds), 0);
}

/* ---- Contexts ------------------------------------------------------------------------------- */

static void *in_new_thread(void *arg)
{
    CUdeviceptr ptr = *(CUdeviceptr *)arg, got;
    CUcontext ctx;
    char host;
    facts_t f = ask(ptr); /* needs no context */
    OK(cuCtxGetCurrent(&ctx));
    CHECK(ctx == NULL && f.ctx != NULL);
    CHECK_CU(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&got, 4));
    CHECK_CU(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyDtoH_v2(&host, ptr, 1));
    CHECK_CU(CUDA_ERROR_INVALID_CONTEXT, cuStreamSynchronize(NULL));
    OK(cuCtxPushCurrent_v2(f.ctx));
    OK(cuMemcpyDtoH_v2(&host, ptr, 1));
    OK(cuCtxPopCurrent_v2(NULL));
    return NULL;
}

static void contexts(void *arg)
{
    (void)arg;
    CUcontext primary, primary2, own, current;
    CUdeviceptr in_primary, in_own;
    unsigned int flags;
    int active;
    char host[8] = "context";
    CHECK_CU(CUDA_ERROR_NOT_INITIALIZED, cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(!active && cudasim_get("contexts_created") == 0);
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuDevicePrimaryCtxRetain(&primary2, 0));
    CHECK(primary == primary2 && cudasim_get("contexts_created") == 1);
    OK(cuCtxGetCurrent(&current));
    CHECK(current == NULL);
    OK(cuCtxSetCurrent(primary));
    OK(cuMemAlloc_v2(&in_primary, 8));
    OK(cuCtxCreate_v2(&own, 0, 1));
    OK(cuMemAlloc_v2(&in_own, 8));
    /* A copy with memory of another context, on a stream of a third party. */
    OK(cuMemcpyHtoD_v2(in_own, host, 8));
    OK(cuMemcpyDtoD_v2(in_primary, in_own, 8));
    memset(host, 0, sizeof(host));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(host, in_primary, 8));
    CHECK(strcmp(host, "context") == 0);
    CHECK(ask(in_own).ctx == own && ask(in_own).ordinal == 1 && ask(in_primary).ctx == primary);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_new_thread, &in_own) == 0);
    pthread_join(thread, NULL);
    OK(cuCtxDestroy_v2(own));
    OK(cuCtxGetCurrent(&current));
    CHECK(current == primary);
    CHECK_CU(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSetCurrent(own));
    CHECK(cudasim_buffer_id(in_own) == 0);
    unsigned long long id, id2;
    OK(cuCtxGetId(primary, &id));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    CHECK(cudasim_get("contexts_live") == 1);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    CHECK(cudasim_get("contexts_live") == 0 && cudasim_get("allocs_live") == 0);
    CHECK_CU(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&in_own, 8));
    OK(cuDevicePrimaryCtxRetain(&primary2, 0));
    OK(cuCtxGetId(primary2, &id2));
    CHECK(id != id2);
}

typedef struct use {
    CUdeviceptr ptr;
    CUstream stream;
} use_t;

/** With an explicit stream a driver does without a current context; older ones are stricter. */
static void *explicit_stream(void *arg)
{
    const use_t *use = arg;
    CUresult wanted = getenv("CUDASIM_STRICT_CONTEXT") != NULL ? CUDA_ERROR_INVALID_CONTEXT
                                                                : CUDA_SUCCESS;
    CHECK_CU(wanted, cuMemsetD8Async(use->ptr, 1, 16, use->stream));
    CHECK_CU(wanted, cuStreamSynchronize(use->stream));
    CHECK_CU(wanted, cuMemFree_v2(use->ptr));
    return NULL;
}

static void no_current(void *arg)
{
    (void)arg;
    use_t use;
    pthread_t thread;
    child_cuda();
    OK(cuStreamCreate(&use.stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&use.ptr, 16));
    CHECK(pthread_create(&thread, NULL, explicit_stream, &use) == 0);
    pthread_join(thread, NULL);
}

static void test_contexts(void **state)
{
    (void)state;
    assert_int_equal(child_run(NULL, no_current), 0);
    assert_int_equal(child_run("CUDASIM_STRICT_CONTEXT=1", no_current), 0);
    assert_int_equal(child_run("CUDASIM_DEVICES=2", contexts), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_touch_crashes), cmocka_unit_test(test_data),
        cmocka_unit_test(test_addresses),     cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_kinds),         cmocka_unit_test(test_contexts),
    };
    return cmocka_run_group_tests_name("simulated driver: memory", tests, NULL, NULL);
}
