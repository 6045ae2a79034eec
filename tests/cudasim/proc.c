/* SPDX-License-Identifier: BSD-3-Clause */
/* cuGetProcAddress: the functions of this library by name and CUDA version. */
#include <string.h>

#include "tests/cudasim/sim.h"

SIM_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
SIM_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);
SIM_EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int cuda_version,
                                     cuuint64_t flags);

/* name, the exported symbol, the CUDA version that brought it in this form */
#define FUNCTIONS(X)                                                                               \
    X(cuCtxCreate, cuCtxCreate_v2, 4000)                                                           \
    X(cuCtxCreate, cuCtxCreate_v4, 12050)                                                          \
    X(cuCtxDestroy, cuCtxDestroy_v2, 4000)                                                         \
    X(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000)                                        \
    X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000)                                          \
    X(cuCtxGetApiVersion, cuCtxGetApiVersion, 4000)                                                \
    X(cuCtxGetCurrent, cuCtxGetCurrent, 4000)                                                      \
    X(cuCtxGetDevice, cuCtxGetDevice, 4000)                                                        \
    X(cuCtxGetFlags, cuCtxGetFlags, 4000)                                                          \
    X(cuCtxGetId, cuCtxGetId, 12000)                                                               \
    X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 4000)                              \
    X(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000)                                                   \
    X(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000)                                                 \
    X(cuCtxSetCurrent, cuCtxSetCurrent, 4000)                                                      \
    X(cuCtxSynchronize, cuCtxSynchronize, 4000)                                                    \
    X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000)                                          \
    X(cuDeviceGet, cuDeviceGet, 4000)                                                              \
    X(cuDeviceGetAttribute, cuDeviceGetAttribute, 4000)                                            \
    X(cuDeviceGetByPCIBusId, cuDeviceGetByPCIBusId, 4000)                                          \
    X(cuDeviceGetCount, cuDeviceGetCount, 4000)                                                    \
    X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020)                                 \
    X(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020)                                               \
    X(cuDeviceGetName, cuDeviceGetName, 4000)                                                      \
    X(cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, 4000)                                      \
    X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4000)                                              \
    X(cuDeviceGetUuid, cuDeviceGetUuid, 9020)                                                      \
    X(cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040)                                                  \
    X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 4000)                                \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000)                              \
    X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000)                                  \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 4000)                                    \
    X(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, 11000)                            \
    X(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020)                                               \
    X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 4000)                                                 \
    X(cuDriverGetVersion, cuDriverGetVersion, 4000)                                                \
    X(cuEventCreate, cuEventCreate, 4000)                                                          \
    X(cuEventDestroy, cuEventDestroy_v2, 4000)                                                     \
    X(cuEventElapsedTime, cuEventElapsedTime, 4000)                                                \
    X(cuEventElapsedTime, cuEventElapsedTime_v2, 12080)                                            \
    X(cuEventQuery, cuEventQuery, 4000)                                                            \
    X(cuEventRecord, cuEventRecord, 4000)                                                          \
    X(cuEventSynchronize, cuEventSynchronize, 4000)                                                \
    X(cuFlushGPUDirectRDMAWrites, cuFlushGPUDirectRDMAWrites, 11030)                               \
    X(cuFuncGetAttribute, cuFuncGetAttribute, 4000)                                                \
    X(cuFuncSetAttribute, cuFuncSetAttribute, 4000)                                                \
    X(cuGetErrorName, cuGetErrorName, 4000)                                                        \
    X(cuGetErrorString, cuGetErrorString, 4000)                                                    \
    X(cuGetProcAddress, cuGetProcAddress, 11030)                                                   \
    X(cuGetProcAddress, cuGetProcAddress_v2, 12000)                                                \
    X(cuInit, cuInit, 4000)                                                                        \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4000)                                              \
    X(cuIpcGetEventHandle, cuIpcGetEventHandle, 4000)                                              \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4000)                                                  \
    X(cuIpcOpenEventHandle, cuIpcOpenEventHandle, 4000)                                            \
    X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000)                                            \
    X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 4000)                                  \
    X(cuLaunchHostFunc, cuLaunchHostFunc, 10000)                                                   \
    X(cuLaunchKernel, cuLaunchKernel, 4000)                                                        \
    X(cuMemAddressFree, cuMemAddressFree, 10020)                                                   \
    X(cuMemAddressReserve, cuMemAddressReserve, 10020)                                             \
    X(cuMemAlloc, cuMemAlloc_v2, 4000)                                                             \
    X(cuMemAllocAsync, cuMemAllocAsync, 11020)                                                     \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020)                                     \
    X(cuMemAllocHost, cuMemAllocHost_v2, 4000)                                                     \
    X(cuMemAllocManaged, cuMemAllocManaged, 4000)                                                  \
    X(cuMemAllocPitch, cuMemAllocPitch_v2, 4000)                                                   \
    X(cuMemCreate, cuMemCreate, 10020)                                                             \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020)                           \
    X(cuMemFree, cuMemFree_v2, 4000)                                                               \
    X(cuMemFreeAsync, cuMemFreeAsync, 11020)                                                       \
    X(cuMemFreeHost, cuMemFreeHost, 4000)                                                          \
    X(cuMemGetAccess, cuMemGetAccess, 10020)                                                       \
    X(cuMemGetAddressRange, cuMemGetAddressRange_v2, 4000)                                         \
    X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020)                         \
    X(cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, 10020)       \
    X(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070)                         \
    X(cuMemGetInfo, cuMemGetInfo_v2, 4000)                                                         \
    X(cuMemHostAlloc, cuMemHostAlloc, 4000)                                                        \
    X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 4000)                               \
    X(cuMemHostGetFlags, cuMemHostGetFlags, 4000)                                                  \
    X(cuMemHostRegister, cuMemHostRegister_v2, 4000)                                               \
    X(cuMemHostUnregister, cuMemHostUnregister, 4000)                                              \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020)                       \
    X(cuMemMap, cuMemMap, 10020)                                                                   \
    X(cuMemPoolCreate, cuMemPoolCreate, 11020)                                                     \
    X(cuMemPoolDestroy, cuMemPoolDestroy, 11020)                                                   \
    X(cuMemPoolExportPointer, cuMemPoolExportPointer, 11030)                                       \
    X(cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle, 11030)                   \
    X(cuMemPoolGetAccess, cuMemPoolGetAccess, 11020)                                               \
    X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020)                                         \
    X(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, 11030)               \
    X(cuMemPoolImportPointer, cuMemPoolImportPointer, 11030)                                       \
    X(cuMemPoolSetAccess, cuMemPoolSetAccess, 11020)                                               \
    X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020)                                         \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020)                                                     \
    X(cuMemRelease, cuMemRelease, 10020)                                                           \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000)                             \
    X(cuMemSetAccess, cuMemSetAccess, 10020)                                                       \
    X(cuMemUnmap, cuMemUnmap, 10020)                                                               \
    X(cuMemcpy, cuMemcpy, 4000)                                                                    \
    X(cuMemcpy2D, cuMemcpy2D_v2, 4000)                                                             \
    X(cuMemcpy2DAsync, cuMemcpy2DAsync_v2, 4000)                                                   \
    X(cuMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2, 4000)                                           \
    X(cuMemcpy3D, cuMemcpy3D_v2, 4000)                                                             \
    X(cuMemcpy3DAsync, cuMemcpy3DAsync_v2, 4000)                                                   \
    X(cuMemcpyAsync, cuMemcpyAsync, 4000)                                                          \
    X(cuMemcpyDtoD, cuMemcpyDtoD_v2, 4000)                                                         \
    X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 4000)                                               \
    X(cuMemcpyDtoH, cuMemcpyDtoH_v2, 4000)                                                         \
    X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 4000)                                               \
    X(cuMemcpyHtoD, cuMemcpyHtoD_v2, 4000)                                                         \
    X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 4000)                                               \
    X(cuMemcpyPeer, cuMemcpyPeer, 4000)                                                            \
    X(cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000)                                                  \
    X(cuMemsetD32, cuMemsetD32_v2, 4000)                                                           \
    X(cuMemsetD32Async, cuMemsetD32Async, 4000)                                                    \
    X(cuMemsetD8, cuMemsetD8_v2, 4000)                                                             \
    X(cuMemsetD8Async, cuMemsetD8Async, 4000)                                                      \
    X(cuModuleGetFunction, cuModuleGetFunction, 4000)                                              \
    X(cuModuleGetGlobal, cuModuleGetGlobal_v2, 4000)                                               \
    X(cuModuleLoadData, cuModuleLoadData, 4000)                                                    \
    X(cuModuleLoadDataEx, cuModuleLoadDataEx, 4000)                                                \
    X(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 4000)                                          \
    X(cuModuleUnload, cuModuleUnload, 4000)                                                        \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor,                                                 \
      cuOccupancyMaxActiveBlocksPerMultiprocessor, 4000)                                           \
    X(cuPointerGetAttribute, cuPointerGetAttribute, 4000)                                          \
    X(cuPointerGetAttributes, cuPointerGetAttributes, 4000)                                        \
    X(cuPointerSetAttribute, cuPointerSetAttribute, 4000)                                          \
    X(cuStreamCreate, cuStreamCreate, 4000)                                                        \
    X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 4000)                                \
    X(cuStreamDestroy, cuStreamDestroy_v2, 4000)                                                   \
    X(cuStreamGetCtx, cuStreamGetCtx, 4000)                                                        \
    X(cuStreamGetFlags, cuStreamGetFlags, 4000)                                                    \
    X(cuStreamGetId, cuStreamGetId, 12000)                                                         \
    X(cuStreamGetPriority, cuStreamGetPriority, 4000)                                              \
    X(cuStreamIsCapturing, cuStreamIsCapturing, 10000)                                             \
    X(cuStreamQuery, cuStreamQuery, 4000)                                                          \
    X(cuStreamSynchronize, cuStreamSynchronize, 4000)                                              \
    X(cuStreamWaitEvent, cuStreamWaitEvent, 4000)                                                  \
    X(cuStreamWaitValue32, cuStreamWaitValue32_v2, 11070)                                          \
    X(cuStreamWaitValue64, cuStreamWaitValue64_v2, 11070)                                          \
    X(cuStreamWriteValue32, cuStreamWriteValue32_v2, 11070)                                        \
    X(cuStreamWriteValue64, cuStreamWriteValue64_v2, 11070)                                        \
    X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010)

typedef struct function {
    const char *name;
    void *address;
    int since;
} function_t;

static const function_t functions[] = {
#define FUNCTION_ROW(name, symbol, since) {#name, (void *)symbol, since},
    FUNCTIONS(FUNCTION_ROW)
#undef FUNCTION_ROW
};

/** Is name in the list CUDASIM_HIDE? */
static bool hidden(const char *name)
{
    const char *list = sim_config()->hidden;
    size_t length = strlen(name);
    for (const char *at = list; at != NULL && *at != '\0';) {
        size_t word = strcspn(at, ",");
        if (word == length && strncmp(at, name, length) == 0) {
            return true;
        }
        at += word + (at[word] == ',');
    }
    return false;
}

static CUresult find(const char *symbol, void **function, int cuda_version,
                     CUdriverProcAddressQueryResult *status)
{
    if (symbol == NULL || function == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const function_t *best = NULL;
    bool known = false;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        const function_t *f = &functions[i];
        if (strcmp(f->name, symbol) != 0 || hidden(symbol) ||
            f->since > sim_config()->driver_version) {
            continue;
        }
        known = true;
        if (f->since <= cuda_version && (best == NULL || f->since > best->since)) {
            best = f;
        }
    }
    if (status != NULL) {
        *status = best != NULL ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known      ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                               : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    *function = best != NULL ? best->address : NULL;
    return best != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SIM_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int cuda_version,
                                        cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    SIM_ENTER_ANY(cuGetProcAddress, false);
    (void)flags; /* per-thread default streams are had by CU_STREAM_PER_THREAD only */
    return find(symbol, function, cuda_version, status);
}

SIM_EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int cuda_version,
                                     cuuint64_t flags)
{
    SIM_ENTER_ANY(cuGetProcAddress, false);
    (void)flags;
    return find(symbol, function, cuda_version, NULL);
}
