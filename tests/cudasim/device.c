/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices: number, names, attributes, links between them. */
#include <stdio.h>
#include <string.h>

#include "tests/cudasim/sim.h"

bool sim_device_valid(CUdevice device)
{
    return device >= 0 && device < sim_config()->visible_count;
}

int sim_ordinal_of(int phys)
{
    const sim_config_t *config = sim_config();
    for (int i = 0; i < config->visible_count; i++) {
        if (config->visible[i] == phys) {
            return i;
        }
    }
    return -1;
}

SIM_EXPORT CUresult cuDeviceGetCount(int *count)
{
    SIM_ENTER(cuDeviceGetCount);
    if (count == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *count = sim_config()->visible_count;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    SIM_ENTER(cuDeviceGet);
    if (device == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_device_valid(ordinal)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *device = ordinal;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    SIM_ENTER(cuDeviceGetName);
    if (name == NULL || length <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_device_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    snprintf(name, (size_t)length, "Simulated GPU (test double)");
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    SIM_ENTER(cuDeviceGetUuid);
    if (uuid == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_device_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    memcpy(uuid->bytes, sim_config()->uuid[sim_config()->visible[device]], 16);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
SIM_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

SIM_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    SIM_ENTER(cuDeviceTotalMem);
    if (bytes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_device_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *bytes = sim_config()->mem_bytes;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetPCIBusId(char *bus_id, int length, CUdevice device)
{
    SIM_ENTER(cuDeviceGetPCIBusId);
    if (bus_id == NULL || length < 13) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_device_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    snprintf(bus_id, (size_t)length, "0000:%02x:00.0", 0x10 + sim_config()->visible[device]);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *bus_id)
{
    SIM_ENTER(cuDeviceGetByPCIBusId);
    unsigned int domain = 0, bus, slot, function = 0;
    if (device == NULL || bus_id == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4 &&
        sscanf(bus_id, "%x:%x.%x", &bus, &slot, &function) != 3) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int ordinal = bus >= 0x10 ? sim_ordinal_of((int)bus - 0x10) : -1;
    if (ordinal < 0) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *device = ordinal;
    return CUDA_SUCCESS;
}

static int limit(CUdevice_attribute attribute)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
        return INT32_MAX;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
        return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        return 49152;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        return 32;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        return 1000000;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return 8; /* few: each thread of a kernel is run by a CPU */
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        return 1 << 20;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
        return 32;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        return 3;
    default:
        return -1;
    }
}

static int ability(const sim_config_t *config, CUdevice_attribute attribute)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
        return 1;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
        return !config->no_managed;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES:
        return !config->no_memops;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        return !config->no_vmm;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        return !config->no_pools;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
        return !config->no_dmabuf;
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
        return !config->mig;
    default:
        return -1;
    }
}

SIM_EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    SIM_ENTER(cuDeviceGetAttribute);
    const sim_config_t *config = sim_config();
    if (value == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_device_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    int answer = limit(attribute);
    if (answer < 0) {
        answer = ability(config, attribute);
    }
    if (answer < 0) {
        switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
            answer = config->cc / 10;
            break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
            answer = config->cc % 10;
            break;
        case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
            answer = 0x10 + config->visible[device];
            break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
            answer = config->exclusive ? CU_COMPUTEMODE_EXCLUSIVE_PROCESS : CU_COMPUTEMODE_DEFAULT;
            break;
        case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
            answer = 200; /* all devices: the memory is the CPU's */
            break;
        case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
            answer = config->no_pools ? 0 : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
            break;
        case CU_DEVICE_ATTRIBUTE_NUMA_ID:
            answer = -1; /* no memory that is a NUMA node of the host */
            break;
        default:
            if ((int)attribute < 1 || (int)attribute > 147) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            answer = 0;
            break;
        }
    }
    *value = answer;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceCanAccessPeer(int *can_access, CUdevice device, CUdevice peer)
{
    SIM_ENTER(cuDeviceCanAccessPeer);
    if (can_access == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_device_valid(device) || !sim_device_valid(peer)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    const sim_config_t *config = sim_config();
    *can_access = device != peer && config->p2p[config->visible[device]][config->visible[peer]];
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute,
                                            CUdevice source, CUdevice destination)
{
    SIM_ENTER(cuDeviceGetP2PAttribute);
    if (value == NULL || source == destination) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_device_valid(source) || !sim_device_valid(destination)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    const sim_config_t *config = sim_config();
    bool linked = config->p2p[config->visible[source]][config->visible[destination]];
    bool nvlink = linked && config->nvlink != SIM_NVLINK_NONE;
    switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = nvlink ? 0 : 1;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = linked;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = nvlink;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}
