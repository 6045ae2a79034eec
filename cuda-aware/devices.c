/* SPDX-License-Identifier: BSD-3-Clause */
/* Facts about the GPUs that this process sees, and their primary contexts. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cuda-aware/gpu_internal.h"
#include "runtime/log.h"

static struct device {
    bool known;
    char name[160];             /* "GPU 0 (NVIDIA H200)" */
    CUuuid uuid;
    CUcontext primary;          /* NULL: not retained by us */
} devices[GRAIL_DEVICES_MAX];

static const char out_of_range[] = "unknown GPU";
static const CUuuid no_uuid;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Under the lock; NULL: no such device. A device once known stays as it is. */
static struct device *get(int ordinal)
{
    struct device *device;
    CUdevice handle;
    char model[120];

    if (ordinal < 0 || ordinal >= GRAIL_DEVICES_MAX)
        return NULL;
    device = &devices[ordinal];
    if (device->known)
        return device;
    if (grail_cuda.DeviceGet(&handle, ordinal) != CUDA_SUCCESS)
        return NULL;
    if (grail_cuda.DeviceGetName(model, sizeof(model), handle) != CUDA_SUCCESS)
        snprintf(model, sizeof(model), "unnamed");
    snprintf(device->name, sizeof(device->name), "GPU %d (%s)", ordinal, model);
    if (grail_cuda.DeviceGetUuid(&device->uuid, handle) != CUDA_SUCCESS)
        memset(&device->uuid, 0, sizeof(device->uuid));
    device->known = true;
    return device;
}

const char *grail_device_name(int ordinal)
{
    pthread_mutex_lock(&lock);
    struct device *device = get(ordinal);
    pthread_mutex_unlock(&lock);
    return device != NULL ? device->name : out_of_range;
}

const CUuuid *grail_device_uuid(int ordinal)
{
    pthread_mutex_lock(&lock);
    struct device *device = get(ordinal);
    pthread_mutex_unlock(&lock);
    return device != NULL ? &device->uuid : &no_uuid;
}

int grail_device_of_uuid(const CUuuid *uuid)
{
    int count = 0, found = -1;

    if (grail_cuda.DeviceGetCount(&count) != CUDA_SUCCESS)
        return -1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count && found < 0; ++i) {
        struct device *device = get(i);

        if (device != NULL && grail_uuid_equal(&device->uuid, uuid))
            found = i;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

int grail_device_attribute(int ordinal, CUdevice_attribute attribute)
{
    CUdevice handle;
    int value = 0;

    if (grail_cuda.DeviceGet(&handle, ordinal) != CUDA_SUCCESS ||
        grail_cuda.DeviceGetAttribute(&value, attribute, handle) != CUDA_SUCCESS)
        return 0;
    return value;
}

/* The driver names an instance after its profile: "NVIDIA H200 MIG 1g.18gb". */
bool grail_device_is_mig(int ordinal)
{
    return strstr(grail_device_name(ordinal), " MIG ") != NULL;
}

grail_status_t grail_primary_context(int ordinal, CUcontext *context)
{
    grail_status_t status = GRAIL_ERR_CUDA;
    CUdevice handle;
    CUresult result;
    unsigned long long id;
    char what[200];

    pthread_mutex_lock(&lock);
    struct device *device = get(ordinal);

    if (device == NULL) {
        grail_error("there is no GPU %d in this process", ordinal);
        goto unlock;
    }
    if (device->primary != NULL && !grail_context_alive(device->primary, &id))
        device->primary = NULL;     /* the program reset the device */
    if (device->primary == NULL) {
        result = grail_cuda.DeviceGet(&handle, ordinal);
        if (result == CUDA_SUCCESS)
            result = grail_cuda.DevicePrimaryCtxRetain(&device->primary, handle);
        if (result != CUDA_SUCCESS) {
            device->primary = NULL;
            snprintf(what, sizeof(what), "using the primary context of %s", device->name);
            status = grail_cuda_fail(result, what);
            goto unlock;
        }
    }
    *context = device->primary;
    status = GRAIL_OK;
unlock:
    pthread_mutex_unlock(&lock);
    return status;
}

grail_status_t grail_context_for_device(int ordinal, CUcontext *context)
{
    CUcontext current = NULL;
    CUdevice handle, of_current;
    unsigned long long id;
    unsigned flags;
    int active = 0;
    bool retained;

    pthread_mutex_lock(&lock);
    struct device *device = get(ordinal);

    retained = device != NULL && device->primary != NULL &&
               grail_context_alive(device->primary, &id);
    if (retained)
        *context = device->primary;
    pthread_mutex_unlock(&lock);
    if (retained)
        return GRAIL_OK;

    if (device != NULL && grail_cuda.DeviceGet(&handle, ordinal) == CUDA_SUCCESS &&
        grail_cuda.DevicePrimaryCtxGetState(handle, &flags, &active) == CUDA_SUCCESS && !active &&
        grail_cuda.CtxGetCurrent(&current) == CUDA_SUCCESS && current != NULL &&
        grail_cuda.CtxGetDevice(&of_current) == CUDA_SUCCESS && of_current == handle) {
        *context = current;
        return GRAIL_OK;
    }
    return grail_primary_context(ordinal, context);
}

void grail_devices_fini(void)
{
    bool release = !grail_cuda_gone();

    pthread_mutex_lock(&lock);
    for (int i = 0; i < GRAIL_DEVICES_MAX; ++i) {
        CUdevice handle;

        if (devices[i].primary != NULL && release &&
            grail_cuda.DeviceGet(&handle, i) == CUDA_SUCCESS)
            (void)grail_cuda.DevicePrimaryCtxRelease(handle);
        devices[i].primary = NULL;
    }
    pthread_mutex_unlock(&lock);
}
