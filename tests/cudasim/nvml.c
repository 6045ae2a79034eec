/* SPDX-License-Identifier: BSD-3-Clause */
/* A stand-in for NVML that describes the simulated devices (all of them, as the real one does). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cuda-aware/nvml_abi.h"
#include "tests/cudasim/sim.h"

#define LINKS 18 /* NVLinks of a device */

struct nvmlDevice_st {
    int phys;
};

static struct nvmlDevice_st devices[SIM_MAX_DEVICES];
static atomic_int users;

static nvmlReturn_t check(nvmlDevice_t device)
{
    if (atomic_load(&users) == 0) {
        return NVML_ERROR_UNINITIALIZED;
    }
    bool known = device >= devices && device < devices + sim_config()->device_count;
    return known ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t give(nvmlDevice_t *out, int phys)
{
    devices[phys].phys = phys;
    *out = &devices[phys];
    return NVML_SUCCESS;
}

/** Copies a text out; the size that NVML documents is always large enough. */
static nvmlReturn_t give_text(char *out, unsigned int length, const char *text)
{
    if (out == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (strlen(text) >= length) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    strcpy(out, text);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    if (sim_config()->device_count == 0) {
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    atomic_fetch_add(&users, 1);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlShutdown(void)
{
    if (atomic_load(&users) == 0) {
        return NVML_ERROR_UNINITIALIZED;
    }
    atomic_fetch_sub(&users, 1);
    return NVML_SUCCESS;
}

SIM_EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "The operation was successful";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    default:
        return "Unknown Error";
    }
}

SIM_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    if (atomic_load(&users) == 0) {
        return NVML_ERROR_UNINITIALIZED;
    }
    return give_text(version, length, "simulated");
}

SIM_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    if (version == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *version = sim_config()->driver_version;
    return NVML_SUCCESS;
}

/* ---- Handles --------------------------------------------------------------------------------- */

SIM_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    if (atomic_load(&users) == 0) {
        return NVML_ERROR_UNINITIALIZED;
    }
    if (count == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *count = (unsigned int)sim_config()->device_count;
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    if (atomic_load(&users) == 0) {
        return NVML_ERROR_UNINITIALIZED;
    }
    if (device == NULL || index >= (unsigned int)sim_config()->device_count) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    return give(device, (int)index);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    if (atomic_load(&users) == 0) {
        return NVML_ERROR_UNINITIALIZED;
    }
    if (uuid == NULL || device == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (int i = 0; i < sim_config()->device_count; i++) {
        char text[48];
        sim_uuid_string(i, text);
        if (strcasecmp(text, uuid) == 0) {
            return give(device, i);
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    unsigned int domain, bus, slot, function;
    if (atomic_load(&users) == 0) {
        return NVML_ERROR_UNINITIALIZED;
    }
    if (bus_id == NULL || device == NULL ||
        sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (domain != 0 || bus < 0x10 || bus - 0x10 >= (unsigned int)sim_config()->device_count) {
        return NVML_ERROR_NOT_FOUND;
    }
    return give(device, (int)bus - 0x10);
}

/* ---- Facts ----------------------------------------------------------------------------------- */

SIM_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    nvmlReturn_t result = check(device);
    if (result == NVML_SUCCESS && index == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result == NVML_SUCCESS) {
        *index = (unsigned int)device->phys;
    }
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    return nvmlDeviceGetIndex(device, minor);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    nvmlReturn_t result = check(device);
    return result == NVML_SUCCESS ? give_text(name, length, "Simulated GPU (test double)") : result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    nvmlReturn_t result = check(device);
    char text[48];
    if (result != NVML_SUCCESS) {
        return result;
    }
    sim_uuid_string(device->phys, text);
    return give_text(uuid, length, text);
}

static void fill_pci(int phys, nvmlPciInfo_t *pci)
{
    memset(pci, 0, sizeof(*pci));
    pci->bus = 0x10u + (unsigned int)phys;
    pci->pciDeviceId = 0x233510deu;
    snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "0000:%02X:00.0", pci->bus & 0xffu);
    snprintf(pci->busId, sizeof(pci->busId), "00000000:%02X:00.0", pci->bus & 0xffu);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    nvmlReturn_t result = check(device);
    if (result == NVML_SUCCESS && pci == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result == NVML_SUCCESS) {
        fill_pci(device->phys, pci);
    }
    return result;
}

/** The memory that is in use is known to the driver's side only: all is reported free. */
SIM_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlReturn_t result = check(device);
    if (result == NVML_SUCCESS && memory == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result == NVML_SUCCESS) {
        *memory = (nvmlMemory_t){sim_config()->mem_bytes, sim_config()->mem_bytes, 0};
    }
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
    nvmlReturn_t result = check(device);
    if (result == NVML_SUCCESS && mode == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result == NVML_SUCCESS) {
        *mode = sim_config()->exclusive ? NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
                                        : NVML_COMPUTEMODE_DEFAULT;
    }
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major,
                                                           int *minor)
{
    nvmlReturn_t result = check(device);
    if (result == NVML_SUCCESS && (major == NULL || minor == NULL)) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result == NVML_SUCCESS) {
        *major = sim_config()->cc / 10;
        *minor = sim_config()->cc % 10;
    }
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
                                             unsigned int *pending)
{
    nvmlReturn_t result = check(device);
    if (result == NVML_SUCCESS && (current == NULL || pending == NULL)) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result == NVML_SUCCESS) {
        *current = *pending = sim_config()->mig ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    }
    return result;
}

/* ---- Links ----------------------------------------------------------------------------------- */

SIM_EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t peer,
                                               nvmlGpuP2PCapsIndex_t index,
                                               nvmlGpuP2PStatus_t *status)
{
    nvmlReturn_t result = check(device);
    if (result == NVML_SUCCESS) {
        result = check(peer);
    }
    if (result == NVML_SUCCESS && status == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result != NVML_SUCCESS) {
        return result;
    }
    bool nvlink = sim_config()->nvlink != SIM_NVLINK_NONE;
    bool wanted = index == NVML_P2P_CAPS_INDEX_READ || index == NVML_P2P_CAPS_INDEX_WRITE ||
                  (nvlink && index == NVML_P2P_CAPS_INDEX_NVLINK) ||
                  (nvlink && index == NVML_P2P_CAPS_INDEX_ATOMICS) ||
                  (!nvlink && index == NVML_P2P_CAPS_INDEX_PCI);
    bool linked = device != peer && sim_config()->p2p[device->phys][peer->phys];
    *status = linked && wanted ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t peer,
                                                            nvmlGpuTopologyLevel_t *level)
{
    nvmlReturn_t result = check(device);
    if (result == NVML_SUCCESS) {
        result = check(peer);
    }
    if (result == NVML_SUCCESS && level == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result == NVML_SUCCESS) {
        *level = device == peer ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_NODE;
    }
    return result;
}

/** The device at the other end of a direct link: the links are dealt out over the peers in turn.
 *  -1: no device. */
static int remote_of(int phys, unsigned int link)
{
    const sim_config_t *config = sim_config();
    int peers[SIM_MAX_DEVICES], count = 0;
    for (int i = 0; i < config->device_count; i++) {
        if (i != phys && config->p2p[phys][i]) {
            peers[count++] = i;
        }
    }
    return count > 0 ? peers[link % (unsigned int)count] : -1;
}

static nvmlReturn_t check_link(nvmlDevice_t device, unsigned int link, const void *out)
{
    nvmlReturn_t result = check(device);
    if (result == NVML_SUCCESS && (link >= LINKS || out == NULL)) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result == NVML_SUCCESS && sim_config()->nvlink == SIM_NVLINK_NONE) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    return result;
}

static bool link_active(const struct nvmlDevice_st *device, unsigned int link)
{
    return sim_config()->nvlink == SIM_NVLINK_SWITCH || remote_of(device->phys, link) >= 0;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                                 nvmlEnableState_t *active)
{
    nvmlReturn_t result = check_link(device, link, active);
    if (result == NVML_SUCCESS) {
        *active = link_active(device, link) ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    }
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link,
                                                   unsigned int *version)
{
    nvmlReturn_t result = check_link(device, link, version);
    if (result == NVML_SUCCESS) {
        *version = 4;
    }
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                            nvmlPciInfo_t *pci)
{
    nvmlReturn_t result = check_link(device, link, pci);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (!link_active(device, link)) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    if (sim_config()->nvlink == SIM_NVLINK_SWITCH) {
        fill_pci(0x70 + (int)link % 4, pci); /* one of four switches */
        pci->pciDeviceId = 0x22a310deu;
    } else {
        fill_pci(remote_of(device->phys, link), pci);
    }
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                            nvmlIntNvLinkDeviceType_t *type)
{
    nvmlReturn_t result = check_link(device, link, type);
    if (result == NVML_SUCCESS) {
        *type = sim_config()->nvlink == SIM_NVLINK_SWITCH ? NVML_NVLINK_DEVICE_TYPE_SWITCH
                                                          : NVML_NVLINK_DEVICE_TYPE_GPU;
    }
    return result;
}
