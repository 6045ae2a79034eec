/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulated driver: injected faults, life and end of the driver, what is visible. */
#include <dlfcn.h>

#include "tests/cudasim/child.h"

static void nth_call(void *arg)
{
    (void)arg;
    CUdeviceptr ptr;
    child_cuda();
    OK(cuMemAlloc_v2(&ptr, 4));
    CHECK_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&ptr, 4));
    OK(cuMemAlloc_v2(&ptr, 4));
    OK(cuMemFree_v2(ptr));
    CHECK_CU(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(NULL));
    CHECK_CU(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(NULL));
    OK(cuCtxSynchronize());
    CHECK_CU(CUDA_ERROR_UNKNOWN, cuCtxSynchronize());
    CHECK_CU(CUDA_ERROR_UNKNOWN, cuCtxSynchronize());
    CHECK(cudasim_get("calls.cuMemAlloc") == 3 && cudasim_get("allocs") == 2);
    CHECK(cudasim_set_faults("cuMemAlloc:*:CUDA_NONSENSE") == -1);
    CHECK(cudasim_set_faults("cuMemAlloc:0:CUDA_ERROR_UNKNOWN") == -1);
    CHECK(cudasim_set_faults("cuMemAlloc") == -1);
    CHECK(cudasim_set_faults(NULL) == 0);
    OK(cuStreamSynchronize(NULL));
}

static void sticky(void *arg)
{
    (void)arg;
    CUdeviceptr ptr;
    char host[4];
    child_cuda();
    OK(cuMemAlloc_v2(&ptr, 4));
    OK(cuMemcpyDtoH_v2(host, ptr, 4));
    CHECK_CU(CUDA_ERROR_ECC_UNCORRECTABLE, cuMemcpyDtoH_v2(host, ptr, 4));
    CHECK_CU(CUDA_ERROR_ECC_UNCORRECTABLE, cuMemcpyDtoH_v2(host, ptr, 4));
    CHECK_CU(CUDA_ERROR_ECC_UNCORRECTABLE, cuMemFree_v2(ptr));
    OK(cuDevicePrimaryCtxReset_v2(0));
    child_cuda();
    OK(cuMemAlloc_v2(&ptr, 4));
}

/** The call succeeds; its operation fails, and what was queued behind it never runs. */
static void async_fault(void *arg)
{
    (void)arg;
    CUstream stream;
    CUdeviceptr dev, flag_dev;
    uint32_t *flag;
    void *host;
    child_cuda();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&dev, 4));
    OK(cuMemHostAlloc(&host, 64, 0));
    OK(cuMemHostAlloc((void **)&flag, 64, 0));
    *flag = 0;
    OK(cuMemHostGetDevicePointer_v2(&flag_dev, flag, 0));
    OK(cudasim_set_faults("cuMemcpyDtoHAsync:1:@CUDA_ERROR_LAUNCH_FAILED") == 0
           ? CUDA_SUCCESS
           : CUDA_ERROR_UNKNOWN);
    OK(cuMemcpyDtoHAsync_v2(host, dev, 4, stream));
    cuStreamWriteValue32_v2(stream, flag_dev, 1, 0); /* may already see the error */
    CHECK_CU(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(stream));
    CHECK(*flag == 0);
    CHECK_CU(CUDA_ERROR_LAUNCH_FAILED, cuStreamQuery(stream));
    CHECK(cudasim_get("ops_failed") == 1);
}

static void init_fails(void *arg)
{
    (void)arg;
    CHECK_CU(CUDA_ERROR_SYSTEM_NOT_READY, cuInit(0));
    OK(cuInit(0));
}

static void not_this_rank(void *arg)
{
    (void)arg;
    OK(cuInit(0));
}

static void test_injection(void **state)
{
    (void)state;
    assert_int_equal(
        child_run("CUDASIM_FAIL=cuMemAlloc:2:CUDA_ERROR_OUT_OF_MEMORY,cuStreamSynchronize:*:"
                  "CUDA_ERROR_INVALID_HANDLE,cuCtxSynchronize:2+:CUDA_ERROR_UNKNOWN",
                  nth_call),
        0);
    assert_int_equal(child_run("CUDASIM_FAIL=cuMemcpyDtoH:2:CUDA_ERROR_ECC_UNCORRECTABLE", sticky),
                     0);
    assert_int_equal(child_run(NULL, async_fault), 0);
    assert_int_equal(child_run("CUDASIM_FAIL=cuInit:1:CUDA_ERROR_SYSTEM_NOT_READY", init_fails), 0);
    assert_int_equal(child_run("CUDASIM_FAIL=cuInit:1:CUDA_ERROR_SYSTEM_NOT_READY "
                               "CUDASIM_FAIL_RANK=1,3 OMPI_COMM_WORLD_RANK=3",
                               init_fails),
                     0);
    assert_int_equal(child_run("CUDASIM_FAIL=cuInit:1:CUDA_ERROR_SYSTEM_NOT_READY "
                               "CUDASIM_FAIL_RANK=1,3 OMPI_COMM_WORLD_RANK=2",
                               not_this_rank),
                     0);
}

/* ---- The driver's life ---------------------------------------------------------------------- */

static void late(void)
{
    CUdeviceptr ptr;
    CHECK_CU(CUDA_ERROR_DEINITIALIZED, cuMemAlloc_v2(&ptr, 4));
    CHECK_CU(CUDA_ERROR_DEINITIALIZED, cuInit(0));
    _exit(42);
}

static void shuts_down(void *arg)
{
    (void)arg;
    atexit(late); /* runs after the driver's own, which was set later */
    child_cuda();
    exit(1);
}

static void forks(void *arg)
{
    (void)arg;
    CUdeviceptr ptr;
    child_cuda();
    OK(cuMemAlloc_v2(&ptr, 4));
    OK(cuMemsetD8_v2(ptr, 1, 4));
    pid_t pid = fork();
    if (pid == 0) {
        _exit(cuMemAlloc_v2(&ptr, 4) == CUDA_ERROR_NOT_INITIALIZED &&
                      cuInit(0) == CUDA_ERROR_NOT_INITIALIZED
                  ? 0
                  : 1);
    }
    CHECK(child_wait(pid) == 0);
    pid = fork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    CHECK(child_wait(pid) == 0);
    OK(cuMemFree_v2(ptr));
}

static void test_life(void **state)
{
    (void)state;
    assert_int_equal(child_run("CUDASIM_SHUTDOWN_EARLY=1", shuts_down), 42);
    assert_int_equal(child_run(NULL, forks), 0);
}

/* ---- What is visible ------------------------------------------------------------------------ */

static void no_device(void *arg)
{
    (void)arg;
    CHECK_CU(CUDA_ERROR_NO_DEVICE, cuInit(0));
}

static void order_3_1(void *arg)
{
    (void)arg;
    int count, bus[2], can;
    char id[32];
    CUdevice device;
    CUuuid a, b;
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    CHECK(count == 2);
    OK(cuDeviceGetAttribute(&bus[0], CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0));
    OK(cuDeviceGetAttribute(&bus[1], CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 1));
    CHECK(bus[0] == 0x13 && bus[1] == 0x11);
    OK(cuDeviceGetPCIBusId(id, sizeof(id), 1));
    OK(cuDeviceGetByPCIBusId(&device, id));
    CHECK(device == 1);
    OK(cuDeviceGetUuid_v2(&a, 0));
    OK(cuDeviceGetUuid_v2(&b, 1));
    CHECK(a.bytes[15] == 3 && b.bytes[15] == 1);
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK(!can);
    CHECK_CU(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 2));
}

static void described(void *arg)
{
    (void)arg;
    int major, minor, version;
    OK(cuInit(0));
    OK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    OK(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
    OK(cuDriverGetVersion(&version));
    CHECK(major == 8 && minor == 6 && version == 11040);
    void *fn;
    CUdriverProcAddressQueryResult status;
    OK(cuGetProcAddress_v2("cuMemAlloc", &fn, 11040, 0, &status));
    CHECK(fn == (void *)cuMemAlloc_v2 && status == CU_GET_PROC_ADDRESS_SUCCESS);
    CHECK_CU(CUDA_ERROR_NOT_FOUND, cuGetProcAddress_v2("cuNoSuchThing", &fn, 11040, 0, &status));
    CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CHECK_CU(CUDA_ERROR_NOT_FOUND,
             cuGetProcAddress_v2("cuMemGetHandleForAddressRange", &fn, 12000, 0, &status));
    CHECK_CU(CUDA_ERROR_NOT_FOUND, cuGetProcAddress_v2("cuMemCreate", &fn, 12000, 0, &status));
    OK(cuGetProcAddress_v2("cuMemMap", &fn, 12000, 0, &status));
    OK(cuGetProcAddress_v2("cuCtxCreate", &fn, 13000, 0, NULL));
    CHECK(fn == (void *)cuCtxCreate_v2);
    const char *name;
    OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &name));
    CHECK(strcmp(name, "CUDA_ERROR_ILLEGAL_ADDRESS") == 0);
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &name));
}

static void reports(void *arg)
{
    (void)arg;
    CUdeviceptr ptr;
    child_cuda();
    OK(cuMemAlloc_v2(&ptr, 100));
    exit(0);
}

static void test_report(void **state)
{
    (void)state;
    char settings[128], path[64], line[128];
    snprintf(settings, sizeof(settings), "CUDASIM_REPORT=/tmp/sim-%d OMPI_COMM_WORLD_RANK=5",
             (int)getpid());
    snprintf(path, sizeof(path), "/tmp/sim-%d.5", (int)getpid());
    assert_int_equal(child_run(settings, reports), 0);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    int found = 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        found += strcmp(line, "contexts_created 1\n") == 0;
        found += strcmp(line, "bytes_live 100\n") == 0;
        found += strcmp(line, "calls.cuMemAlloc 1\n") == 0;
    }
    fclose(file);
    unlink(path);
    assert_int_equal(found, 3);
}

static void test_visible(void **state)
{
    (void)state;
    assert_int_equal(child_run("CUDASIM_DEVICES=0", no_device), 0);
    assert_int_equal(child_run("CUDA_VISIBLE_DEVICES=", no_device), 0);
    assert_int_equal(child_run("CUDA_VISIBLE_DEVICES=-1", no_device), 0);
    assert_int_equal(
        child_run("CUDASIM_DEVICES=4 CUDA_VISIBLE_DEVICES=3,1,7,0 CUDASIM_NO_P2P=1-3", order_3_1),
        0);
    assert_int_equal(
        child_run("CUDASIM_CC=86 CUDASIM_DRIVER_VERSION=11040 CUDASIM_HIDE=cuMemCreate", described),
        0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_injection),
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_visible),
        cmocka_unit_test(test_report),
    };
    return cmocka_run_group_tests_name("simulated driver: faults", tests, NULL, NULL);
}
