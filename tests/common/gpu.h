/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU buffers for tests and benchmarks, over the CUDA driver API loaded at run time.
 *
 * The driver is opened (dlopen "libcuda.so.1") when the first buffer kind that needs it is asked
 * for, so one binary runs with a real driver, the simulated one, or none, and a run on host memory
 * alone never touches it. Nothing here uses Grail or MPI. Not thread safe, except gpu_write(),
 * gpu_read() and gpu_set() on different buffers.
 *
 * Buffer kinds, each a letter:
 *    H  host memory                         P  pinned host memory (cuMemHostAlloc)
 *    R  registered host memory              D  device memory (cuMemAlloc)
 *    I  interior, odd address of a larger cuMemAlloc
 *    M  managed, last touched by the host   G  managed, last touched by the device
 *    A  stream-ordered pool (cuMemAllocAsync)
 *    V  VMM, one exportable chunk           W  VMM, several chunks, the buffer across a seam
 *    X  VMM, chunk without a shareable handle
 *    S  symbol: a __device__ variable of a loaded module
 *    C  device memory of a second, non-primary context
 *    T  device memory, while the thread has no current context
 *    O  memory of another device than the current one
 *    B  device memory allocated before MPI_Init (gpu_reserve_early())
 */
#ifndef GRAIL_TESTS_COMMON_GPU_H
#define GRAIL_TESTS_COMMON_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda-aware/cuda_abi.h"

/* Driver functions that the tests call; those a driver lacks stay NULL (needed() in gpu.c lists
 * the ones without which there is no GPU to test). */
#define GPU_DRIVER_FUNCTIONS(X)                                                                    \
    X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuDeviceGetCount) X(cuDeviceGet)           \
    X(cuDeviceGetName) X(cuDeviceGetUuid_v2) X(cuDeviceGetAttribute) X(cuDeviceTotalMem_v2)        \
    X(cuDeviceCanAccessPeer) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2)           \
    X(cuDevicePrimaryCtxGetState) X(cuCtxCreate_v2) X(cuCtxDestroy_v2) X(cuCtxPushCurrent_v2)      \
    X(cuCtxPopCurrent_v2) X(cuCtxSetCurrent) X(cuCtxGetCurrent) X(cuCtxSynchronize)                \
    X(cuCtxEnablePeerAccess) X(cuMemGetInfo_v2) X(cuMemAlloc_v2) X(cuMemAllocManaged)              \
    X(cuMemFree_v2) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemHostRegister_v2)                     \
    X(cuMemHostUnregister) X(cuMemAllocAsync) X(cuMemFreeAsync) X(cuMemAddressReserve)             \
    X(cuMemAddressFree) X(cuMemCreate) X(cuMemRelease) X(cuMemMap) X(cuMemUnmap)                   \
    X(cuMemSetAccess) X(cuMemGetAllocationGranularity) X(cuMemcpy) X(cuMemcpyHtoD_v2)              \
    X(cuMemcpyDtoH_v2) X(cuMemcpyAsync) X(cuMemcpyDtoDAsync_v2) X(cuMemcpyPeerAsync)               \
    X(cuMemsetD8_v2) X(cuStreamCreate) X(cuStreamDestroy_v2) X(cuStreamSynchronize)                \
    X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetGlobal_v2) X(cuPointerGetAttribute)

typedef struct gpu_driver {
#define GPU_DECLARE(name) __typeof__(name) *name;
    GPU_DRIVER_FUNCTIONS(GPU_DECLARE)
#undef GPU_DECLARE
    void *library;
    int devices; /* visible devices, at least 1 */
    int version; /* 1000 * major + 10 * minor */
} gpu_driver_t;

enum gpu_result {
    GPU_OK = 0,
    GPU_UNSUPPORTED = 1, /* this machine, driver or device has no such thing: a reason to skip */
    GPU_FAILED = -1      /* it should have worked */
};

typedef struct gpu_buf {
    char kind;
    unsigned char *ptr; /* what a program gives to MPI */
    size_t size;        /* bytes from ptr on that the program may use */
    size_t guard;       /* bytes before ptr and after ptr + size that belong to the buffer, too */
    int device;         /* ordinal, -1 for plain host memory */
    CUcontext context;  /* NULL for plain host memory */
    /* private to gpu.c */
    void *base;
    size_t base_size;
    CUmemGenericAllocationHandle chunks[16];
    int chunk_count;
    size_t chunk_size;
} gpu_buf_t;

/** All kind letters, in the order of the list above. */
#define GPU_KINDS "HPRDIMGAVWXSCTOB"

/** True if letter names a kind. */
bool gpu_kind_known(char kind);
/** Words for a kind ("device memory"). */
const char *gpu_kind_name(char kind);
/** True if the CPU must not touch a buffer of this kind. */
bool gpu_kind_on_device(char kind);

/** The driver, opened on first call; NULL if there is none or no device (gpu_why() tells). */
const gpu_driver_t *gpu_driver(void);
/** The driver if it was opened already; never opens it. */
const gpu_driver_t *gpu_driver_if_open(void);
/** Why the last call here returned NULL, GPU_UNSUPPORTED or GPU_FAILED. Never NULL. */
const char *gpu_why(void);

/** Make device (local_rank modulo the device count) this process's own, its primary context
 *  current. gpu_buf_alloc() calls it with the rank of gpu_set_local_rank() if nobody has. */
int gpu_select(int local_rank);
/** Remember the local rank without opening the driver. */
void gpu_set_local_rank(int local_rank);
/** Local rank as the launcher's environment tells it before MPI_Init; -1 if it does not. */
int gpu_local_rank_from_env(void);
/** The selected device's ordinal, -1 if none was selected. */
int gpu_selected(void);
/** The selected device's primary context, NULL if none. */
CUcontext gpu_context(void);
/** Bytes free on the selected device; 0 if none is selected. */
size_t gpu_free_memory(void);

/** Allocate bytes for later buffers of kind B; call before MPI_Init. */
int gpu_reserve_early(size_t bytes);

/** Allocate; *buf is set only on GPU_OK. Contents are undefined. Kind T leaves the calling thread
 *  without a current context until gpu_buf_free(). */
int gpu_buf_alloc(gpu_buf_t *buf, char kind, size_t size, size_t guard);
/** Free; *buf is cleared. */
void gpu_buf_free(gpu_buf_t *buf);

/** Copy to, copy from and set bytes of buf, offsets relative to buf->ptr, from -guard up to
 *  size + guard. Finished, and visible to any stream and process, on return. Any current context is
 *  right and stays as it is. A CUDA error ends the process with a message. */
void gpu_write(const gpu_buf_t *buf, ptrdiff_t offset, const void *src, size_t n);
void gpu_read(const gpu_buf_t *buf, ptrdiff_t offset, void *dst, size_t n);
void gpu_set(const gpu_buf_t *buf, ptrdiff_t offset, unsigned char value, size_t n);

/** Name of a CUDA error, e.g. "CUDA_ERROR_OUT_OF_MEMORY". */
const char *gpu_error_name(CUresult error);

/** End the process with the call's name unless it succeeded. */
#define GPU_TRY(call) gpu_try((call), #call)
void gpu_try(CUresult result, const char *call);

#endif
