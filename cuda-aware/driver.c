/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds out whether the process uses CUDA, and fills the driver table when it does. */
#include "cuda-aware/driver.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "runtime/log.h"
#include "runtime/options.h"

/* The limit in cuda_abi.h says what the declarations need; UUIDs that tell MIG instances apart
 * (cuDeviceGetUuid_v2) came with 11.4. */
enum { OLDEST_DRIVER = 11040 };

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define GRAIL_CUDA_FN(required, name, symbol, args) \
    static CUresult absent_##name args { return CUDA_ERROR_NOT_SUPPORTED; }
#include "cuda-aware/driver_table.def"
#pragma GCC diagnostic pop

#define GRAIL_CUDA_FN(required, name, symbol, args) .name = absent_##name,
grail_cuda_driver_t grail_cuda = {
#include "cuda-aware/driver_table.def"
};

/* The table must match the declarations of the binary interface. */
#define GRAIL_CUDA_FN(required, name, symbol, args) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), CUresult args), #symbol);
#include "cuda-aware/driver_table.def"

static const struct entry {
    const char *symbol;
    size_t offset;
    bool required;
} entries[] = {
#define GRAIL_CUDA_FN(required, name, symbol, args) \
    {#symbol, offsetof(grail_cuda_driver_t, name), required},
#include "cuda-aware/driver_table.def"
};

enum { ENTRY_COUNT = sizeof(entries) / sizeof(entries[0]) };

/* UNKNOWN: look again. READY and NEVER are final. */
enum { STATE_UNKNOWN, STATE_READY, STATE_NEVER };

static int state;                       /* atomic */
static bool gone;                       /* atomic; only ever set */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;                   /* under lock, like all below */
static bool filled;                     /* the table holds the entry points of `library` */
static int driver_version;
static char why_never[200];
static unsigned long long objects_seen; /* atomic: loads counted at the last look without success */

/* ---- is the library there? ---- */

struct scan {
    unsigned long long adds;            /* objects loaded so far in this process */
    char path[512];                     /* a loaded driver library */
};

static int count_objects(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct scan *scan = arg;

    if (size >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof(info->dlpi_adds))
        scan->adds = info->dlpi_adds;
    return 1;
}

static int find_driver(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct scan *scan = arg;
    const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;

    (void)size;
    name = name != NULL ? name + 1 : info->dlpi_name;
    if (name == NULL || strncmp(name, "libcuda.so", strlen("libcuda.so")) != 0 ||
        strlen(info->dlpi_name) >= sizeof(scan->path))
        return 0;
    strcpy(scan->path, info->dlpi_name);
    return 1;
}

/* A counter of the dynamic linker tells that nothing was loaded since the last look: much cheaper
 * than dlopen(RTLD_NOLOAD), which walks and compares all names. 0: not known. */
static unsigned long long loads_so_far(void)
{
    struct scan scan = {0};

    dl_iterate_phdr(count_objects, &scan);
    return scan.adds;
}

static void *open_loaded_library(void)
{
    struct scan scan = {0};
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

    if (handle != NULL)
        return handle;
    dl_iterate_phdr(find_driver, &scan);
    return scan.path[0] != '\0' ? dlopen(scan.path, RTLD_NOW | RTLD_NOLOAD) : NULL;
}

/* ---- the table ---- */

static void set_entry(size_t offset, void *function)
{
    memcpy((char *)&grail_cuda + offset, &function, sizeof(function));
}

static void never(const char *format, ...) GRAIL_PRINTF(1, 2);
static void never(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why_never, sizeof(why_never), format, args);
    va_end(args);
    __atomic_store_n(&state, STATE_NEVER, __ATOMIC_RELEASE);
}

/* cuStreamWriteValue32 had another implementation behind the old name, for which the device has to
 * be asked (gpu.c does). */
static void fill_alternatives(void)
{
    void *function = dlsym(library, "cuStreamWriteValue32_v2");

    if (function == NULL)
        function = dlsym(library, "cuStreamWriteValue32");
    if (function != NULL)
        set_entry(offsetof(grail_cuda_driver_t, StreamWriteValue32), function);
}

/* cuDriverGetVersion works before cuInit. */
static bool fill_table(void)
{
    if (filled)
        return true;

    CUresult (*get_version)(int *) = NULL;
    void *symbol = dlsym(library, "cuDriverGetVersion");

    memcpy(&get_version, &symbol, sizeof(symbol));
    if (get_version == NULL || get_version(&driver_version) != CUDA_SUCCESS) {
        never("the loaded libcuda.so.1 is not a CUDA driver (cuDriverGetVersion fails)");
        grail_warn("device buffers cannot be served: %s; check the installation of the NVIDIA "
                   "driver", why_never);
        return false;
    }
    if (driver_version < OLDEST_DRIVER) {
        never("the CUDA driver is version %d.%d, and at least %d.%d is needed",
              driver_version / 1000, driver_version % 1000 / 10, OLDEST_DRIVER / 1000,
              OLDEST_DRIVER % 1000 / 10);
        grail_warn("device buffers cannot be served: %s; install a newer NVIDIA driver", why_never);
        return false;
    }
    for (int i = 0; i < ENTRY_COUNT; ++i) {
        symbol = dlsym(library, entries[i].symbol);
        if (symbol == NULL && entries[i].required) {
            never("the CUDA driver (version %d.%d) lacks %s", driver_version / 1000,
                  driver_version % 1000 / 10, entries[i].symbol);
            grail_warn("device buffers cannot be served: %s; install an unmodified NVIDIA driver "
                       "of version %d.%d or later", why_never, OLDEST_DRIVER / 1000,
                       OLDEST_DRIVER % 1000 / 10);
            return false;
        }
        if (symbol != NULL)
            set_entry(entries[i].offset, symbol);
    }
    fill_alternatives();
    filled = true;
    return true;
}

/* Under the lock. cuCtxGetCurrent reads a thread-local variable, works without a context, and
 * refuses without any side effect until somebody has called cuInit. */
static bool look(void)
{
    CUcontext context;

    if (library == NULL) {
        unsigned long long adds = loads_so_far();

        library = open_loaded_library();
        if (library == NULL) {
            __atomic_store_n(&objects_seen, adds, __ATOMIC_RELAXED);
            return false;
        }
    }
    if (!fill_table())
        return false;

    CUresult result = grail_cuda.CtxGetCurrent(&context);

    if (result == CUDA_ERROR_DEINITIALIZED) {
        __atomic_store_n(&gone, true, __ATOMIC_RELEASE);
        return false;
    }
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_CONTEXT_IS_DESTROYED)
        return false;
    grail_debug("CUDA driver %d.%d is in use", driver_version / 1000, driver_version % 1000 / 10);
    __atomic_store_n(&state, STATE_READY, __ATOMIC_RELEASE);
    return true;
}

bool grail_cuda_ready(void)
{
    int now = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
    bool ready;

    if (GRAIL_LIKELY(now == STATE_READY))
        return !__atomic_load_n(&gone, __ATOMIC_RELAXED) && grail_options.cuda;
    if (now == STATE_NEVER || !grail_options.cuda)
        return false;

    unsigned long long seen = __atomic_load_n(&objects_seen, __ATOMIC_RELAXED);

    if (seen != 0 && seen == loads_so_far())
        return false;
    pthread_mutex_lock(&lock);
    now = __atomic_load_n(&state, __ATOMIC_RELAXED);
    ready = now == STATE_READY || (now == STATE_UNKNOWN && look());
    pthread_mutex_unlock(&lock);
    return ready;
}

grail_status_t grail_cuda_load(void)
{
    grail_status_t status = GRAIL_ERR_UNSUPPORTED;
    CUresult result;

    if (!grail_options.cuda) {
        grail_info("CUDA is not loaded: the option cuda is off");
        return GRAIL_ERR_UNSUPPORTED;
    }
    pthread_mutex_lock(&lock);
    if (library == NULL && (library = open_loaded_library()) == NULL)
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        grail_info("there is no CUDA driver: %s", dlerror());
        goto unlock;
    }
    if (state == STATE_NEVER || !fill_table())
        goto unlock;
    result = grail_cuda.Init(0);
    if (result == CUDA_ERROR_NO_DEVICE) {
        grail_info("the CUDA driver %d.%d sees no GPU (CUDA_VISIBLE_DEVICES?)",
                   driver_version / 1000, driver_version % 1000 / 10);
        goto unlock;
    }
    if (result != CUDA_SUCCESS) {
        status = grail_cuda_fail(result, "cuInit");
        goto unlock;
    }
    if (look())
        status = GRAIL_OK;
unlock:
    pthread_mutex_unlock(&lock);
    return status;
}

bool grail_cuda_gone(void)
{
    CUcontext context;

    if (__atomic_load_n(&gone, __ATOMIC_ACQUIRE))
        return true;
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != STATE_READY)
        return false;
    if (grail_cuda.CtxGetCurrent(&context) != CUDA_ERROR_DEINITIALIZED)
        return false;
    __atomic_store_n(&gone, true, __ATOMIC_RELEASE);
    return true;
}

grail_status_t grail_cuda_fail(CUresult result, const char *what)
{
    const char *name = NULL, *text = NULL;

    if (result == CUDA_ERROR_DEINITIALIZED) {
        __atomic_store_n(&gone, true, __ATOMIC_RELEASE);
        return GRAIL_ERR_CUDA;
    }
    if (grail_cuda.GetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        name = "unknown CUDA error";
    if (grail_cuda.GetErrorString(result, &text) != CUDA_SUCCESS || text == NULL)
        text = "no description";
    grail_error("%s failed: %s (%d: %s)", what, name, (int)result, text);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? GRAIL_ERR_NO_DEVICE_MEMORY : GRAIL_ERR_CUDA;
}

int grail_cuda_driver_version(void)
{
    int version;

    pthread_mutex_lock(&lock);
    version = driver_version;
    pthread_mutex_unlock(&lock);
    return version;
}

void grail_cuda_describe(char *text, size_t size)
{
    int count = 0, length;
    char first[128] = "", name[128];
    bool alike = true;

    if (!grail_options.cuda) {
        snprintf(text, size, "CUDA is not served: the option cuda is off");
        return;
    }
    if (!grail_cuda_ready()) {
        pthread_mutex_lock(&lock);
        if (state == STATE_NEVER)
            snprintf(text, size, "CUDA is not served: %s", why_never);
        else if (__atomic_load_n(&gone, __ATOMIC_RELAXED))
            snprintf(text, size, "CUDA has shut down");
        else if (library != NULL)
            snprintf(text, size, "CUDA driver %d.%d is loaded, but not initialised",
                     driver_version / 1000, driver_version % 1000 / 10);
        else
            snprintf(text, size, "CUDA is not in use in this process");
        pthread_mutex_unlock(&lock);
        return;
    }
    grail_cuda.DeviceGetCount(&count);
    for (int i = 0; i < count; ++i) {
        CUdevice device;

        if (grail_cuda.DeviceGet(&device, i) != CUDA_SUCCESS ||
            grail_cuda.DeviceGetName(name, sizeof(name), device) != CUDA_SUCCESS)
            continue;
        if (first[0] == '\0')
            memcpy(first, name, sizeof(first));
        else if (strcmp(first, name) != 0)
            alike = false;
    }
    length = snprintf(text, size, "CUDA driver %d.%d, %d GPU%s", driver_version / 1000,
                      driver_version % 1000 / 10, count, count == 1 ? "" : "s");
    if (first[0] != '\0' && length > 0 && (size_t)length < size)
        snprintf(text + length, size - (size_t)length, ": %s%s", first,
                 alike ? "" : " and others");
}
