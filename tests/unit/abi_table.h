/* SPDX-License-Identifier: BSD-3-Clause */
/* What abi_check compares: every number of cuda-aware/cuda_abi.h and nvml_abi.h, by name. */
#ifndef GRAIL_TESTS_UNIT_ABI_TABLE_H
#define GRAIL_TESTS_UNIT_ABI_TABLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct abi_row {
    const char *name;
    long long value;
} abi_row_t;

/* A table, ended by a row without a name; the toolkit's are empty if its header was not found. */
extern const abi_row_t abi_cuda_ours[], abi_cuda_toolkit[];
extern const abi_row_t abi_nvml_ours[], abi_nvml_toolkit[];

#define ABI_VALUE(name) {#name, (long long)(name)},
#define ABI_POINTER(name) {#name, (long long)(intptr_t)(name)},
#define ABI_SIZE(type) {"sizeof " #type, (long long)sizeof(type)},
#define ABI_FIELD(type, field) {#type "." #field, (long long)offsetof(type, field)},

#define ABI_CUDA_ROWS                                                                              \
    ABI_VALUE(CUDA_SUCCESS)                                                                        \
    ABI_VALUE(CUDA_ERROR_INVALID_VALUE)                                                            \
    ABI_VALUE(CUDA_ERROR_OUT_OF_MEMORY)                                                            \
    ABI_VALUE(CUDA_ERROR_NOT_INITIALIZED)                                                          \
    ABI_VALUE(CUDA_ERROR_DEINITIALIZED)                                                            \
    ABI_VALUE(CUDA_ERROR_STUB_LIBRARY)                                                             \
    ABI_VALUE(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER)                                               \
    ABI_VALUE(CUDA_ERROR_DEVICE_UNAVAILABLE)                                                       \
    ABI_VALUE(CUDA_ERROR_NO_DEVICE)                                                                \
    ABI_VALUE(CUDA_ERROR_INVALID_DEVICE)                                                           \
    ABI_VALUE(CUDA_ERROR_INVALID_IMAGE)                                                            \
    ABI_VALUE(CUDA_ERROR_INVALID_CONTEXT)                                                          \
    ABI_VALUE(CUDA_ERROR_MAP_FAILED)                                                               \
    ABI_VALUE(CUDA_ERROR_UNMAP_FAILED)                                                             \
    ABI_VALUE(CUDA_ERROR_ALREADY_MAPPED)                                                           \
    ABI_VALUE(CUDA_ERROR_NO_BINARY_FOR_GPU)                                                        \
    ABI_VALUE(CUDA_ERROR_NOT_MAPPED)                                                               \
    ABI_VALUE(CUDA_ERROR_ECC_UNCORRECTABLE)                                                        \
    ABI_VALUE(CUDA_ERROR_UNSUPPORTED_LIMIT)                                                        \
    ABI_VALUE(CUDA_ERROR_CONTEXT_ALREADY_IN_USE)                                                   \
    ABI_VALUE(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)                                                  \
    ABI_VALUE(CUDA_ERROR_INVALID_PTX)                                                              \
    ABI_VALUE(CUDA_ERROR_NVLINK_UNCORRECTABLE)                                                     \
    ABI_VALUE(CUDA_ERROR_JIT_COMPILER_NOT_FOUND)                                                   \
    ABI_VALUE(CUDA_ERROR_UNSUPPORTED_PTX_VERSION)                                                  \
    ABI_VALUE(CUDA_ERROR_CONTAINED)                                                                \
    ABI_VALUE(CUDA_ERROR_FILE_NOT_FOUND)                                                           \
    ABI_VALUE(CUDA_ERROR_OPERATING_SYSTEM)                                                         \
    ABI_VALUE(CUDA_ERROR_INVALID_HANDLE)                                                           \
    ABI_VALUE(CUDA_ERROR_ILLEGAL_STATE)                                                            \
    ABI_VALUE(CUDA_ERROR_NOT_FOUND)                                                                \
    ABI_VALUE(CUDA_ERROR_NOT_READY)                                                                \
    ABI_VALUE(CUDA_ERROR_ILLEGAL_ADDRESS)                                                          \
    ABI_VALUE(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)                                                  \
    ABI_VALUE(CUDA_ERROR_LAUNCH_TIMEOUT)                                                           \
    ABI_VALUE(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)                                              \
    ABI_VALUE(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)                                                  \
    ABI_VALUE(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE)                                                   \
    ABI_VALUE(CUDA_ERROR_CONTEXT_IS_DESTROYED)                                                     \
    ABI_VALUE(CUDA_ERROR_ASSERT)                                                                   \
    ABI_VALUE(CUDA_ERROR_TOO_MANY_PEERS)                                                           \
    ABI_VALUE(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)                                           \
    ABI_VALUE(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)                                               \
    ABI_VALUE(CUDA_ERROR_HARDWARE_STACK_ERROR)                                                     \
    ABI_VALUE(CUDA_ERROR_ILLEGAL_INSTRUCTION)                                                      \
    ABI_VALUE(CUDA_ERROR_MISALIGNED_ADDRESS)                                                       \
    ABI_VALUE(CUDA_ERROR_INVALID_ADDRESS_SPACE)                                                    \
    ABI_VALUE(CUDA_ERROR_INVALID_PC)                                                               \
    ABI_VALUE(CUDA_ERROR_LAUNCH_FAILED)                                                            \
    ABI_VALUE(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)                                             \
    ABI_VALUE(CUDA_ERROR_NOT_PERMITTED)                                                            \
    ABI_VALUE(CUDA_ERROR_NOT_SUPPORTED)                                                            \
    ABI_VALUE(CUDA_ERROR_SYSTEM_NOT_READY)                                                         \
    ABI_VALUE(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)                                                   \
    ABI_VALUE(CUDA_ERROR_MPS_CONNECTION_FAILED)                                                    \
    ABI_VALUE(CUDA_ERROR_MPS_CLIENT_TERMINATED)                                                    \
    ABI_VALUE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)                                               \
    ABI_VALUE(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)                                               \
    ABI_VALUE(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)                                                 \
    ABI_VALUE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)                                                  \
    ABI_VALUE(CUDA_ERROR_CAPTURED_EVENT)                                                           \
    ABI_VALUE(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)                                              \
    ABI_VALUE(CUDA_ERROR_TIMEOUT)                                                                  \
    ABI_VALUE(CUDA_ERROR_EXTERNAL_DEVICE)                                                          \
    ABI_VALUE(CUDA_ERROR_FUNCTION_NOT_LOADED)                                                      \
    ABI_VALUE(CUDA_ERROR_UNKNOWN)                                                                  \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)                                           \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)                                                 \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)                                                  \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)                                                  \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)                                                  \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)                                     \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_WARP_SIZE)                                                       \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_MAX_PITCH)                                                       \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)                                                      \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)                                            \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_INTEGRATED)                                                      \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)                                             \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)                                                    \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS)                                              \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_ECC_ENABLED)                                                     \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)                                                      \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)                                                   \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)                                                   \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)                                  \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)                                              \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)                                              \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)                                                   \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)                                        \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)                                        \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED)                                     \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)                                                  \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED)                                    \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)                                          \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)                                       \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED)                                    \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)                         \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1)                                       \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1)                                \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)                                              \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES)                                         \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED)                                         \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES)                    \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST)                             \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)                             \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)                     \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)                                   \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)                         \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)                               \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)                                          \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED)                                       \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS)                            \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING)                                 \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES)                                  \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)                                   \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR)                                   \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)                                               \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED)                                             \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)                                    \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_NUMA_CONFIG)                                                     \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_NUMA_ID)                                                         \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED)                                             \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_MPS_ENABLED)                                                     \
    ABI_VALUE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)                                                    \
    ABI_VALUE(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)                                            \
    ABI_VALUE(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)                                            \
    ABI_VALUE(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)                                     \
    ABI_VALUE(CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED)                                 \
    ABI_VALUE(CU_COMPUTEMODE_DEFAULT)                                                              \
    ABI_VALUE(CU_COMPUTEMODE_PROHIBITED)                                                           \
    ABI_VALUE(CU_COMPUTEMODE_EXCLUSIVE_PROCESS)                                                    \
    ABI_VALUE(CU_CTX_SCHED_AUTO)                                                                   \
    ABI_VALUE(CU_CTX_SCHED_SPIN)                                                                   \
    ABI_VALUE(CU_CTX_SCHED_YIELD)                                                                  \
    ABI_VALUE(CU_CTX_SCHED_BLOCKING_SYNC)                                                          \
    ABI_VALUE(CU_CTX_MAP_HOST)                                                                     \
    ABI_VALUE(CU_CTX_SYNC_MEMOPS)                                                                  \
    ABI_VALUE(CU_MEMORYTYPE_HOST)                                                                  \
    ABI_VALUE(CU_MEMORYTYPE_DEVICE)                                                                \
    ABI_VALUE(CU_MEMORYTYPE_ARRAY)                                                                 \
    ABI_VALUE(CU_MEMORYTYPE_UNIFIED)                                                               \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_CONTEXT)                                                        \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_MEMORY_TYPE)                                                    \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_DEVICE_POINTER)                                                 \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_HOST_POINTER)                                                   \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_P2P_TOKENS)                                                     \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)                                                    \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_BUFFER_ID)                                                      \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_IS_MANAGED)                                                     \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)                                                 \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)                                     \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)                                               \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_RANGE_SIZE)                                                     \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_MAPPED)                                                         \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES)                                           \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE)                                     \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS)                                                   \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)                                                 \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_MAPPING_SIZE)                                                   \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR)                                              \
    ABI_VALUE(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID)                                                \
    ABI_VALUE(CU_MEM_ATTACH_GLOBAL)                                                                \
    ABI_VALUE(CU_MEM_ATTACH_HOST)                                                                  \
    ABI_VALUE(CU_MEM_ATTACH_SINGLE)                                                                \
    ABI_VALUE(CU_MEM_ALLOCATION_TYPE_INVALID)                                                      \
    ABI_VALUE(CU_MEM_ALLOCATION_TYPE_PINNED)                                                       \
    ABI_VALUE(CU_MEM_ALLOCATION_TYPE_MAX)                                                          \
    ABI_VALUE(CU_MEM_HANDLE_TYPE_NONE)                                                             \
    ABI_VALUE(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)                                            \
    ABI_VALUE(CU_MEM_HANDLE_TYPE_WIN32)                                                            \
    ABI_VALUE(CU_MEM_HANDLE_TYPE_WIN32_KMT)                                                        \
    ABI_VALUE(CU_MEM_HANDLE_TYPE_FABRIC)                                                           \
    ABI_VALUE(CU_MEM_HANDLE_TYPE_MAX)                                                              \
    ABI_VALUE(CU_MEM_LOCATION_TYPE_INVALID)                                                        \
    ABI_VALUE(CU_MEM_LOCATION_TYPE_DEVICE)                                                         \
    ABI_VALUE(CU_MEM_LOCATION_TYPE_HOST)                                                           \
    ABI_VALUE(CU_MEM_LOCATION_TYPE_HOST_NUMA)                                                      \
    ABI_VALUE(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)                                              \
    ABI_VALUE(CU_MEM_LOCATION_TYPE_MAX)                                                            \
    ABI_VALUE(CU_MEM_ACCESS_FLAGS_PROT_NONE)                                                       \
    ABI_VALUE(CU_MEM_ACCESS_FLAGS_PROT_READ)                                                       \
    ABI_VALUE(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)                                                  \
    ABI_VALUE(CU_MEM_ACCESS_FLAGS_PROT_MAX)                                                        \
    ABI_VALUE(CU_MEM_ALLOC_GRANULARITY_MINIMUM)                                                    \
    ABI_VALUE(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)                                                \
    ABI_VALUE(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)                                                 \
    ABI_VALUE(CU_MEM_RANGE_HANDLE_TYPE_MAX)                                                        \
    ABI_VALUE(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES)                                     \
    ABI_VALUE(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC)                                           \
    ABI_VALUE(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)                                   \
    ABI_VALUE(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)                                                   \
    ABI_VALUE(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)                                                \
    ABI_VALUE(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)                                                   \
    ABI_VALUE(CU_MEMPOOL_ATTR_USED_MEM_CURRENT)                                                    \
    ABI_VALUE(CU_MEMPOOL_ATTR_USED_MEM_HIGH)                                                       \
    ABI_VALUE(CU_STREAM_DEFAULT)                                                                   \
    ABI_VALUE(CU_STREAM_NON_BLOCKING)                                                              \
    ABI_VALUE(CU_EVENT_DEFAULT)                                                                    \
    ABI_VALUE(CU_EVENT_BLOCKING_SYNC)                                                              \
    ABI_VALUE(CU_EVENT_DISABLE_TIMING)                                                             \
    ABI_VALUE(CU_EVENT_INTERPROCESS)                                                               \
    ABI_VALUE(CU_STREAM_WRITE_VALUE_DEFAULT)                                                       \
    ABI_VALUE(CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)                                             \
    ABI_VALUE(CU_STREAM_WAIT_VALUE_GEQ)                                                            \
    ABI_VALUE(CU_STREAM_WAIT_VALUE_EQ)                                                             \
    ABI_VALUE(CU_STREAM_WAIT_VALUE_AND)                                                            \
    ABI_VALUE(CU_STREAM_WAIT_VALUE_NOR)                                                            \
    ABI_VALUE(CU_STREAM_WAIT_VALUE_FLUSH)                                                          \
    ABI_VALUE(CU_STREAM_CAPTURE_STATUS_NONE)                                                       \
    ABI_VALUE(CU_STREAM_CAPTURE_STATUS_ACTIVE)                                                     \
    ABI_VALUE(CU_STREAM_CAPTURE_STATUS_INVALIDATED)                                                \
    ABI_VALUE(CU_STREAM_CAPTURE_MODE_GLOBAL)                                                       \
    ABI_VALUE(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)                                                 \
    ABI_VALUE(CU_STREAM_CAPTURE_MODE_RELAXED)                                                      \
    ABI_VALUE(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)                                                  \
    ABI_VALUE(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX)                                  \
    ABI_VALUE(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER)                                            \
    ABI_VALUE(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES)                                      \
    ABI_VALUE(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)                                             \
    ABI_VALUE(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)                                                 \
    ABI_VALUE(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES)                                                  \
    ABI_VALUE(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)                                                  \
    ABI_VALUE(CU_FUNC_ATTRIBUTE_NUM_REGS)                                                          \
    ABI_VALUE(CU_FUNC_ATTRIBUTE_PTX_VERSION)                                                       \
    ABI_VALUE(CU_FUNC_ATTRIBUTE_BINARY_VERSION)                                                    \
    ABI_VALUE(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)                                     \
    ABI_VALUE(CU_JIT_MAX_REGISTERS)                                                                \
    ABI_VALUE(CU_JIT_INFO_LOG_BUFFER)                                                              \
    ABI_VALUE(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES)                                                   \
    ABI_VALUE(CU_JIT_ERROR_LOG_BUFFER)                                                             \
    ABI_VALUE(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)                                                  \
    ABI_VALUE(CU_GET_PROC_ADDRESS_DEFAULT)                                                         \
    ABI_VALUE(CU_GET_PROC_ADDRESS_LEGACY_STREAM)                                                   \
    ABI_VALUE(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)                                       \
    ABI_VALUE(CU_GET_PROC_ADDRESS_SUCCESS)                                                         \
    ABI_VALUE(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)                                                \
    ABI_VALUE(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)                                          \
    ABI_VALUE(CU_DEVICE_CPU)                                                                       \
    ABI_VALUE(CU_DEVICE_INVALID)                                                                   \
    ABI_VALUE(CU_IPC_HANDLE_SIZE)                                                                  \
    ABI_VALUE(CU_MEMHOSTALLOC_PORTABLE)                                                            \
    ABI_VALUE(CU_MEMHOSTALLOC_DEVICEMAP)                                                           \
    ABI_VALUE(CU_MEMHOSTALLOC_WRITECOMBINED)                                                       \
    ABI_VALUE(CU_MEMHOSTREGISTER_PORTABLE)                                                         \
    ABI_VALUE(CU_MEMHOSTREGISTER_DEVICEMAP)                                                        \
    ABI_VALUE(CU_MEMHOSTREGISTER_IOMEMORY)                                                         \
    ABI_VALUE(CU_MEMHOSTREGISTER_READ_ONLY)                                                        \
    ABI_POINTER(CU_STREAM_LEGACY)                                                                  \
    ABI_POINTER(CU_STREAM_PER_THREAD)                                                              \
    ABI_POINTER(CU_LAUNCH_PARAM_END)                                                               \
    ABI_POINTER(CU_LAUNCH_PARAM_BUFFER_POINTER)                                                    \
    ABI_POINTER(CU_LAUNCH_PARAM_BUFFER_SIZE)                                                       \
    ABI_SIZE(CUdevice)                                                                             \
    ABI_SIZE(CUdeviceptr)                                                                          \
    ABI_SIZE(CUcontext)                                                                            \
    ABI_SIZE(CUstream)                                                                             \
    ABI_SIZE(CUevent)                                                                              \
    ABI_SIZE(CUmodule)                                                                             \
    ABI_SIZE(CUfunction)                                                                           \
    ABI_SIZE(CUmemoryPool)                                                                         \
    ABI_SIZE(CUmemGenericAllocationHandle)                                                         \
    ABI_SIZE(CUresult)                                                                             \
    ABI_SIZE(CUdevice_attribute)                                                                   \
    ABI_SIZE(CUpointer_attribute)                                                                  \
    ABI_SIZE(CUmemorytype)                                                                         \
    ABI_SIZE(cuuint32_t)                                                                           \
    ABI_SIZE(cuuint64_t)                                                                           \
    ABI_SIZE(CUuuid)                                                                               \
    ABI_SIZE(CUipcMemHandle)                                                                       \
    ABI_SIZE(CUipcEventHandle)                                                                     \
    ABI_SIZE(CUmemLocation)                                                                        \
    ABI_SIZE(CUmemAllocationProp)                                                                  \
    ABI_SIZE(CUmemAccessDesc)                                                                      \
    ABI_SIZE(CUmemPoolProps)                                                                       \
    ABI_SIZE(CUmemPoolPtrExportData)                                                               \
    ABI_SIZE(CUDA_MEMCPY2D)                                                                        \
    ABI_SIZE(CUDA_MEMCPY3D)                                                                        \
    ABI_FIELD(CUuuid, bytes)                                                                       \
    ABI_FIELD(CUipcMemHandle, reserved)                                                            \
    ABI_FIELD(CUipcEventHandle, reserved)                                                          \
    ABI_FIELD(CUmemLocation, type)                                                                 \
    ABI_FIELD(CUmemLocation, id)                                                                   \
    ABI_FIELD(CUmemAllocationProp, allocFlags.compressionType)                                     \
    ABI_FIELD(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable)                                \
    ABI_FIELD(CUmemAllocationProp, allocFlags.usage)                                               \
    ABI_FIELD(CUmemAllocationProp, allocFlags.reserved)                                            \
    ABI_FIELD(CUmemAllocationProp, type)                                                           \
    ABI_FIELD(CUmemAllocationProp, requestedHandleTypes)                                           \
    ABI_FIELD(CUmemAllocationProp, location)                                                       \
    ABI_FIELD(CUmemAllocationProp, win32HandleMetaData)                                            \
    ABI_FIELD(CUmemAccessDesc, location)                                                           \
    ABI_FIELD(CUmemAccessDesc, flags)                                                              \
    ABI_FIELD(CUmemPoolProps, allocType)                                                           \
    ABI_FIELD(CUmemPoolProps, handleTypes)                                                         \
    ABI_FIELD(CUmemPoolProps, location)                                                            \
    ABI_FIELD(CUmemPoolProps, win32SecurityAttributes)                                             \
    ABI_FIELD(CUmemPoolProps, maxSize)                                                             \
    ABI_FIELD(CUmemPoolProps, usage)                                                               \
    ABI_FIELD(CUmemPoolProps, reserved)                                                            \
    ABI_FIELD(CUmemPoolPtrExportData, reserved)                                                    \
    ABI_FIELD(CUDA_MEMCPY2D, srcXInBytes)                                                          \
    ABI_FIELD(CUDA_MEMCPY2D, srcY)                                                                 \
    ABI_FIELD(CUDA_MEMCPY2D, srcMemoryType)                                                        \
    ABI_FIELD(CUDA_MEMCPY2D, srcHost)                                                              \
    ABI_FIELD(CUDA_MEMCPY2D, srcDevice)                                                            \
    ABI_FIELD(CUDA_MEMCPY2D, srcArray)                                                             \
    ABI_FIELD(CUDA_MEMCPY2D, srcPitch)                                                             \
    ABI_FIELD(CUDA_MEMCPY2D, dstXInBytes)                                                          \
    ABI_FIELD(CUDA_MEMCPY2D, dstY)                                                                 \
    ABI_FIELD(CUDA_MEMCPY2D, dstMemoryType)                                                        \
    ABI_FIELD(CUDA_MEMCPY2D, dstHost)                                                              \
    ABI_FIELD(CUDA_MEMCPY2D, dstDevice)                                                            \
    ABI_FIELD(CUDA_MEMCPY2D, dstArray)                                                             \
    ABI_FIELD(CUDA_MEMCPY2D, dstPitch)                                                             \
    ABI_FIELD(CUDA_MEMCPY2D, WidthInBytes)                                                         \
    ABI_FIELD(CUDA_MEMCPY2D, Height)                                                               \
    ABI_FIELD(CUDA_MEMCPY3D, srcXInBytes)                                                          \
    ABI_FIELD(CUDA_MEMCPY3D, srcY)                                                                 \
    ABI_FIELD(CUDA_MEMCPY3D, srcZ)                                                                 \
    ABI_FIELD(CUDA_MEMCPY3D, srcLOD)                                                               \
    ABI_FIELD(CUDA_MEMCPY3D, srcMemoryType)                                                        \
    ABI_FIELD(CUDA_MEMCPY3D, srcHost)                                                              \
    ABI_FIELD(CUDA_MEMCPY3D, srcDevice)                                                            \
    ABI_FIELD(CUDA_MEMCPY3D, srcArray)                                                             \
    ABI_FIELD(CUDA_MEMCPY3D, reserved0)                                                            \
    ABI_FIELD(CUDA_MEMCPY3D, srcPitch)                                                             \
    ABI_FIELD(CUDA_MEMCPY3D, srcHeight)                                                            \
    ABI_FIELD(CUDA_MEMCPY3D, dstXInBytes)                                                          \
    ABI_FIELD(CUDA_MEMCPY3D, dstY)                                                                 \
    ABI_FIELD(CUDA_MEMCPY3D, dstZ)                                                                 \
    ABI_FIELD(CUDA_MEMCPY3D, dstLOD)                                                               \
    ABI_FIELD(CUDA_MEMCPY3D, dstMemoryType)                                                        \
    ABI_FIELD(CUDA_MEMCPY3D, dstHost)                                                              \
    ABI_FIELD(CUDA_MEMCPY3D, dstDevice)                                                            \
    ABI_FIELD(CUDA_MEMCPY3D, dstArray)                                                             \
    ABI_FIELD(CUDA_MEMCPY3D, reserved1)                                                            \
    ABI_FIELD(CUDA_MEMCPY3D, dstPitch)                                                             \
    ABI_FIELD(CUDA_MEMCPY3D, dstHeight)                                                            \
    ABI_FIELD(CUDA_MEMCPY3D, WidthInBytes)                                                         \
    ABI_FIELD(CUDA_MEMCPY3D, Height)                                                               \
    ABI_FIELD(CUDA_MEMCPY3D, Depth)

#define ABI_NVML_ROWS                                                                              \
    ABI_VALUE(NVML_SUCCESS)                                                                        \
    ABI_VALUE(NVML_ERROR_UNINITIALIZED)                                                            \
    ABI_VALUE(NVML_ERROR_INVALID_ARGUMENT)                                                         \
    ABI_VALUE(NVML_ERROR_NOT_SUPPORTED)                                                            \
    ABI_VALUE(NVML_ERROR_NO_PERMISSION)                                                            \
    ABI_VALUE(NVML_ERROR_NOT_FOUND)                                                                \
    ABI_VALUE(NVML_ERROR_INSUFFICIENT_SIZE)                                                        \
    ABI_VALUE(NVML_ERROR_DRIVER_NOT_LOADED)                                                        \
    ABI_VALUE(NVML_ERROR_LIBRARY_NOT_FOUND)                                                        \
    ABI_VALUE(NVML_ERROR_FUNCTION_NOT_FOUND)                                                       \
    ABI_VALUE(NVML_ERROR_GPU_IS_LOST)                                                              \
    ABI_VALUE(NVML_ERROR_RESET_REQUIRED)                                                           \
    ABI_VALUE(NVML_ERROR_OPERATING_SYSTEM)                                                         \
    ABI_VALUE(NVML_ERROR_LIB_RM_VERSION_MISMATCH)                                                  \
    ABI_VALUE(NVML_ERROR_UNKNOWN)                                                                  \
    ABI_VALUE(NVML_FEATURE_DISABLED)                                                               \
    ABI_VALUE(NVML_FEATURE_ENABLED)                                                                \
    ABI_VALUE(NVML_COMPUTEMODE_DEFAULT)                                                            \
    ABI_VALUE(NVML_COMPUTEMODE_EXCLUSIVE_THREAD)                                                   \
    ABI_VALUE(NVML_COMPUTEMODE_PROHIBITED)                                                         \
    ABI_VALUE(NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)                                                  \
    ABI_VALUE(NVML_NVLINK_DEVICE_TYPE_GPU)                                                         \
    ABI_VALUE(NVML_NVLINK_DEVICE_TYPE_IBMNPU)                                                      \
    ABI_VALUE(NVML_NVLINK_DEVICE_TYPE_SWITCH)                                                      \
    ABI_VALUE(NVML_NVLINK_DEVICE_TYPE_UNKNOWN)                                                     \
    ABI_VALUE(NVML_TOPOLOGY_INTERNAL)                                                              \
    ABI_VALUE(NVML_TOPOLOGY_SINGLE)                                                                \
    ABI_VALUE(NVML_TOPOLOGY_MULTIPLE)                                                              \
    ABI_VALUE(NVML_TOPOLOGY_HOSTBRIDGE)                                                            \
    ABI_VALUE(NVML_TOPOLOGY_NODE)                                                                  \
    ABI_VALUE(NVML_TOPOLOGY_SYSTEM)                                                                \
    ABI_VALUE(NVML_P2P_STATUS_OK)                                                                  \
    ABI_VALUE(NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED)                                               \
    ABI_VALUE(NVML_P2P_STATUS_GPU_NOT_SUPPORTED)                                                   \
    ABI_VALUE(NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED)                                          \
    ABI_VALUE(NVML_P2P_STATUS_DISABLED_BY_REGKEY)                                                  \
    ABI_VALUE(NVML_P2P_STATUS_NOT_SUPPORTED)                                                       \
    ABI_VALUE(NVML_P2P_STATUS_UNKNOWN)                                                             \
    ABI_VALUE(NVML_P2P_CAPS_INDEX_READ)                                                            \
    ABI_VALUE(NVML_P2P_CAPS_INDEX_WRITE)                                                           \
    ABI_VALUE(NVML_P2P_CAPS_INDEX_NVLINK)                                                          \
    ABI_VALUE(NVML_P2P_CAPS_INDEX_ATOMICS)                                                         \
    ABI_VALUE(NVML_P2P_CAPS_INDEX_PCI)                                                             \
    ABI_VALUE(NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE)                                               \
    ABI_VALUE(NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE)                                                  \
    ABI_VALUE(NVML_DEVICE_UUID_BUFFER_SIZE)                                                        \
    ABI_VALUE(NVML_DEVICE_UUID_V2_BUFFER_SIZE)                                                     \
    ABI_VALUE(NVML_DEVICE_NAME_V2_BUFFER_SIZE)                                                     \
    ABI_VALUE(NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE)                                              \
    ABI_VALUE(NVML_NVLINK_MAX_LINKS)                                                               \
    ABI_VALUE(NVML_DEVICE_MIG_DISABLE)                                                             \
    ABI_VALUE(NVML_DEVICE_MIG_ENABLE)                                                              \
    ABI_SIZE(nvmlDevice_t)                                                                         \
    ABI_SIZE(nvmlReturn_t)                                                                         \
    ABI_SIZE(nvmlPciInfo_t)                                                                        \
    ABI_SIZE(nvmlMemory_t)                                                                         \
    ABI_FIELD(nvmlPciInfo_t, busIdLegacy)                                                          \
    ABI_FIELD(nvmlPciInfo_t, domain)                                                               \
    ABI_FIELD(nvmlPciInfo_t, bus)                                                                  \
    ABI_FIELD(nvmlPciInfo_t, device)                                                               \
    ABI_FIELD(nvmlPciInfo_t, pciDeviceId)                                                          \
    ABI_FIELD(nvmlPciInfo_t, pciSubSystemId)                                                       \
    ABI_FIELD(nvmlPciInfo_t, busId)                                                                \
    ABI_FIELD(nvmlMemory_t, total)                                                                 \
    ABI_FIELD(nvmlMemory_t, free)                                                                  \
    ABI_FIELD(nvmlMemory_t, used)

#endif /* GRAIL_TESTS_UNIT_ABI_TABLE_H */
