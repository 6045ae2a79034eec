/* SPDX-License-Identifier: BSD-3-Clause */
/* The CUDA driver for tests: opening it, choosing a device, moving bytes (buffers: gpu_buf.c). */
#include "tests/common/gpu_internal.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gpu_driver_t driver;
static enum { NOT_TRIED, OPEN, ABSENT } driver_state;
static char why[256] = "no reason was recorded";
static int local_rank_now;
static int selected = -1;
static CUcontext own_context;

const char *gpu_why(void)
{
    return why;
}

int gpu_because(int result, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    return result;
}

const char *gpu_error_name(CUresult error)
{
    static char number[32];
    const char *name = NULL;

    if (driver.cuGetErrorName && driver.cuGetErrorName(error, &name) == CUDA_SUCCESS && name)
        return name;
    snprintf(number, sizeof(number), "CUDA error %d", (int)error);
    return number;
}

void gpu_try(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "# CUDA: %s: %s\n", call, gpu_error_name(result));
    abort();
}

/* Functions without which there is no GPU to test. */
static const char *first_missing(void)
{
#define NEEDED(name)                                                                               \
    if (!driver.name)                                                                              \
        return #name;
    NEEDED(cuInit)
    NEEDED(cuDeviceGetCount)
    NEEDED(cuDeviceGet)
    NEEDED(cuDevicePrimaryCtxRetain)
    NEEDED(cuCtxPushCurrent_v2)
    NEEDED(cuCtxPopCurrent_v2)
    NEEDED(cuCtxSetCurrent)
    NEEDED(cuCtxSynchronize)
    NEEDED(cuMemAlloc_v2)
    NEEDED(cuMemFree_v2)
    NEEDED(cuMemcpyHtoD_v2)
    NEEDED(cuMemcpyDtoH_v2)
    NEEDED(cuMemsetD8_v2)
#undef NEEDED
    return NULL;
}

static int open_driver(void)
{
    const char *missing;
    CUresult result;

    driver.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver.library)
        return gpu_because(GPU_UNSUPPORTED, "no CUDA driver (%s)", dlerror());
#define LOOK_UP(name) driver.name = (__typeof__(name) *)dlsym(driver.library, #name);
    GPU_DRIVER_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    missing = first_missing();
    if (missing)
        return gpu_because(GPU_UNSUPPORTED, "the CUDA driver has no %s", missing);
    result = driver.cuInit(0);
    if (result != CUDA_SUCCESS)
        return gpu_because(GPU_UNSUPPORTED, "cuInit: %s", gpu_error_name(result));
    if (driver.cuDriverGetVersion)
        driver.cuDriverGetVersion(&driver.version);
    result = driver.cuDeviceGetCount(&driver.devices);
    if (result != CUDA_SUCCESS || driver.devices < 1)
        return gpu_because(GPU_UNSUPPORTED, "no CUDA device is visible");
    return GPU_OK;
}

const gpu_driver_t *gpu_driver(void)
{
    if (driver_state == NOT_TRIED)
        driver_state = open_driver() == GPU_OK ? OPEN : ABSENT;
    return driver_state == OPEN ? &driver : NULL;
}

const gpu_driver_t *gpu_driver_if_open(void)
{
    return driver_state == OPEN ? &driver : NULL;
}

void gpu_set_local_rank(int local_rank)
{
    local_rank_now = local_rank;
}

int gpu_local_rank_from_env(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "MV2_COMM_WORLD_LOCAL_RANK", "PMIX_LOCAL_RANK",
                                        "PMI_LOCAL_RANK", "SLURM_LOCALID"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        char *end;
        long rank;

        if (!value || !*value)
            continue;
        rank = strtol(value, &end, 10);
        if (*end == '\0' && rank >= 0 && rank < 1 << 20)
            return (int)rank;
    }
    return -1;
}

int gpu_selected(void)
{
    return selected;
}

CUcontext gpu_context(void)
{
    return own_context;
}

int gpu_select(int local_rank)
{
    const gpu_driver_t *cu = gpu_driver();
    CUdevice device;
    CUcontext context;
    CUresult result;
    int ordinal;

    if (!cu)
        return GPU_UNSUPPORTED;
    ordinal = local_rank % cu->devices;
    if (selected == ordinal)
        return GPU_OK;
    result = cu->cuDeviceGet(&device, ordinal);
    if (result == CUDA_SUCCESS)
        result = cu->cuDevicePrimaryCtxRetain(&context, device);
    if (result == CUDA_SUCCESS)
        result = cu->cuCtxSetCurrent(context);
    if (result != CUDA_SUCCESS)
        return gpu_because(GPU_FAILED, "cannot use device %d: %s", ordinal, gpu_error_name(result));
    selected = ordinal;
    own_context = context;
    return GPU_OK;
}

int gpu_select_default(void)
{
    return selected >= 0 ? GPU_OK : gpu_select(local_rank_now);
}

size_t gpu_free_memory(void)
{
    size_t free_bytes = 0, total;
    CUcontext popped;

    if (selected < 0 || !driver.cuMemGetInfo_v2)
        return 0;
    GPU_TRY(driver.cuCtxPushCurrent_v2(own_context));
    GPU_TRY(driver.cuMemGetInfo_v2(&free_bytes, &total));
    GPU_TRY(driver.cuCtxPopCurrent_v2(&popped));
    return free_bytes;
}

/* ---- Moving bytes ---------------------------------------------------------------------- */

static void push(const gpu_buf_t *buf)
{
    GPU_TRY(driver.cuCtxPushCurrent_v2(buf->context));
}

/* A copy from pageable memory may return before it has reached the device, and a set always may:
 * MPI must find the bytes whatever stream or process it reads them from. */
static void finish_and_pop(void)
{
    CUcontext context;

    GPU_TRY(driver.cuCtxSynchronize());
    GPU_TRY(driver.cuCtxPopCurrent_v2(&context));
}

static bool through_host(const gpu_buf_t *buf)
{
    return !gpu_kind_on_device(buf->kind) && buf->kind != 'G';
}

void gpu_write(const gpu_buf_t *buf, ptrdiff_t offset, const void *src, size_t n)
{
    if (n == 0)
        return;
    if (through_host(buf)) {
        memcpy(buf->ptr + offset, src, n);
        return;
    }
    push(buf);
    GPU_TRY(driver.cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)(buf->ptr + offset), src, n));
    finish_and_pop();
}

void gpu_read(const gpu_buf_t *buf, ptrdiff_t offset, void *dst, size_t n)
{
    if (n == 0)
        return;
    if (through_host(buf)) {
        memcpy(dst, buf->ptr + offset, n);
        return;
    }
    push(buf);
    GPU_TRY(driver.cuMemcpyDtoH_v2(dst, (CUdeviceptr)(uintptr_t)(buf->ptr + offset), n));
    finish_and_pop();
}

void gpu_set(const gpu_buf_t *buf, ptrdiff_t offset, unsigned char value, size_t n)
{
    if (n == 0)
        return;
    if (through_host(buf)) {
        memset(buf->ptr + offset, value, n);
        return;
    }
    push(buf);
    GPU_TRY(driver.cuMemsetD8_v2((CUdeviceptr)(uintptr_t)(buf->ptr + offset), value, n));
    finish_and_pop();
}
