/* SPDX-License-Identifier: BSD-3-Clause */
/* The entry of every API function: initialisation rules and injected faults; error names. */
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cudasim/sim.h"

/* ---- Error names ----------------------------------------------------------------------------- */

#define ERRORS(X)                                                                                  \
    X(SUCCESS, "no error")                                                                         \
    X(ERROR_INVALID_VALUE, "invalid argument")                                                     \
    X(ERROR_OUT_OF_MEMORY, "out of memory")                                                        \
    X(ERROR_NOT_INITIALIZED, "initialization error")                                               \
    X(ERROR_DEINITIALIZED, "driver shutting down")                                                 \
    X(ERROR_STUB_LIBRARY, "CUDA driver is a stub library")                                         \
    X(ERROR_CALL_REQUIRES_NEWER_DRIVER, "call requires a newer driver")                            \
    X(ERROR_DEVICE_UNAVAILABLE, "devices are busy or unavailable")                                 \
    X(ERROR_NO_DEVICE, "no CUDA-capable device is detected")                                       \
    X(ERROR_INVALID_DEVICE, "invalid device ordinal")                                              \
    X(ERROR_INVALID_IMAGE, "device kernel image is invalid")                                       \
    X(ERROR_INVALID_CONTEXT, "invalid device context")                                             \
    X(ERROR_MAP_FAILED, "mapping of buffer object failed")                                         \
    X(ERROR_UNMAP_FAILED, "unmapping of buffer object failed")                                     \
    X(ERROR_ALREADY_MAPPED, "resource already mapped")                                             \
    X(ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")         \
    X(ERROR_NOT_MAPPED, "resource not mapped")                                                     \
    X(ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered")                              \
    X(ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture")                      \
    X(ERROR_CONTEXT_ALREADY_IN_USE, "exclusive-thread device already in use by another thread")    \
    X(ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices")     \
    X(ERROR_INVALID_PTX, "a PTX JIT compilation failed")                                           \
    X(ERROR_NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected during the execution")      \
    X(ERROR_JIT_COMPILER_NOT_FOUND, "PTX JIT compiler library not found")                          \
    X(ERROR_UNSUPPORTED_PTX_VERSION, "PTX was compiled with an unsupported toolchain")             \
    X(ERROR_CONTAINED, "invalid access of peer GPU memory over NVLink or a hardware error")        \
    X(ERROR_FILE_NOT_FOUND, "file not found")                                                      \
    X(ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS")              \
    X(ERROR_INVALID_HANDLE, "invalid resource handle")                                             \
    X(ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state")               \
    X(ERROR_NOT_FOUND, "named symbol not found")                                                   \
    X(ERROR_NOT_READY, "device not ready")                                                         \
    X(ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                           \
    X(ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")                    \
    X(ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated")                             \
    X(ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled")                         \
    X(ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled")                           \
    X(ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process")           \
    X(ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                                          \
    X(ERROR_ASSERT, "device-side assert triggered")                                                \
    X(ERROR_TOO_MANY_PEERS, "peer mapping resources exhausted")                                    \
    X(ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the memory is already mapped")         \
    X(ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered region")      \
    X(ERROR_HARDWARE_STACK_ERROR, "hardware stack error")                                          \
    X(ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered")                         \
    X(ERROR_MISALIGNED_ADDRESS, "misaligned address")                                              \
    X(ERROR_INVALID_ADDRESS_SPACE, "operation not supported on global/shared address space")       \
    X(ERROR_INVALID_PC, "invalid program counter")                                                 \
    X(ERROR_LAUNCH_FAILED, "unspecified launch failure")                                           \
    X(ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch")                 \
    X(ERROR_NOT_PERMITTED, "operation not permitted")                                              \
    X(ERROR_NOT_SUPPORTED, "operation not supported")                                              \
    X(ERROR_SYSTEM_NOT_READY, "system not yet initialized")                                        \
    X(ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver mix")     \
    X(ERROR_MPS_CONNECTION_FAILED, "MPS client failed to connect to the MPS control daemon")       \
    X(ERROR_MPS_CLIENT_TERMINATED, "MPS client has been terminated by the server")                 \
    X(ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")        \
    X(ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error in capture")     \
    X(ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream")   \
    X(ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on capture")   \
    X(ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in capture")        \
    X(ERROR_STREAM_CAPTURE_WRONG_THREAD, "capture was begun by another thread")                    \
    X(ERROR_TIMEOUT, "wait operation timed out")                                                   \
    X(ERROR_EXTERNAL_DEVICE, "an async error has occurred in external entity")                     \
    X(ERROR_FUNCTION_NOT_LOADED, "the requested function is not loaded")                           \
    X(ERROR_UNKNOWN, "unknown error")

typedef struct error_text {
    CUresult error;
    const char *name, *text;
} error_text_t;

static const error_text_t error_texts[] = {
#define ERROR_ROW(name, text) {CUDA_##name, "CUDA_" #name, text},
    ERRORS(ERROR_ROW)
#undef ERROR_ROW
};

static const error_text_t *find_error(CUresult error)
{
    for (size_t i = 0; i < sizeof(error_texts) / sizeof(error_texts[0]); i++) {
        if (error_texts[i].error == error) {
            return &error_texts[i];
        }
    }
    return NULL;
}

CUresult sim_error_by_name(const char *name, CUresult *error)
{
    for (size_t i = 0; i < sizeof(error_texts) / sizeof(error_texts[0]); i++) {
        if (strcmp(error_texts[i].name, name) == 0) {
            *error = error_texts[i].error;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuGetErrorName(CUresult error, const char **name)
{
    const error_text_t *found = find_error(error);
    if (name == NULL || found == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *name = found->name;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGetErrorString(CUresult error, const char **text)
{
    const error_text_t *found = find_error(error);
    if (text == NULL || found == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *text = found->text;
    return CUDA_SUCCESS;
}

bool sim_error_is_sticky(CUresult error)
{
    switch (error) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
        return true;
    default:
        return false;
    }
}

/* ---- Injected faults ------------------------------------------------------------------------- */

typedef struct fault {
    char name[64]; /* of the function, or "*" */
    long long first, last;
    CUresult error;
    bool async; /* the call succeeds, its operation fails */
    atomic_llong seen;
    struct fault *next;
} fault_t;

static _Atomic(fault_t *) faults; /* lists are never freed: a caller may be reading one */
static __thread CUresult async_fault;

/** One of "name:count:error"; 0 or -1. */
static int parse_fault(char *text, fault_t *fault)
{
    char *save = NULL;
    const char *name = strtok_r(text, ":", &save);
    const char *count = strtok_r(NULL, ":", &save);
    const char *error = strtok_r(NULL, ":", &save);
    if (error == NULL || strtok_r(NULL, ":", &save) != NULL ||
        strlen(name) >= sizeof(fault->name)) {
        return -1;
    }
    strcpy(fault->name, name);
    if (error[0] == '@') {
        fault->async = true;
        error++;
    }
    if (sim_error_by_name(error, &fault->error) != CUDA_SUCCESS ||
        fault->error == CUDA_SUCCESS) {
        return -1;
    }
    if (strcmp(count, "*") == 0) {
        fault->first = 1;
        fault->last = INT64_MAX;
        return 0;
    }
    char *end;
    fault->first = strtoll(count, &end, 10);
    fault->last = *end == '+' ? INT64_MAX : fault->first;
    return fault->first >= 1 && (*end == '\0' || strcmp(end, "+") == 0) ? 0 : -1;
}

/** Replaced lists are kept: other threads may be reading them. */
static _Atomic(struct retired *) retired;
struct retired {
    fault_t *list;
    struct retired *next;
};

static void retire_faults(fault_t *list)
{
    struct retired *node = list != NULL ? malloc(sizeof(*node)) : NULL;
    if (node == NULL) {
        return;
    }
    node->list = list;
    node->next = atomic_load(&retired);
    while (!atomic_compare_exchange_weak(&retired, &node->next, node)) {
    }
}

SIM_EXPORT int cudasim_set_faults(const char *spec)
{
    fault_t *list = NULL;
    char *copy = strdup(spec != NULL ? spec : ""), *rest = copy;
    int bad = copy == NULL;
    for (char *word; !bad && (word = strsep(&rest, ",")) != NULL;) {
        if (*word == '\0') {
            continue;
        }
        fault_t *fault = calloc(1, sizeof(*fault));
        bad = fault == NULL || parse_fault(word, fault) != 0;
        if (fault != NULL) {
            fault->next = list;
            list = fault;
        }
    }
    free(copy);
    if (bad) {
        while (list != NULL) {
            fault_t *next = list->next;
            free(list);
            list = next;
        }
        return -1;
    }
    retire_faults(atomic_exchange(&faults, list));
    return 0;
}

/** Is this process among the ranks that faults are for? */
static bool rank_matches(void)
{
    const char *wanted = getenv("CUDASIM_FAIL_RANK");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (wanted == NULL || *wanted == '\0') {
        return true;
    }
    char *copy = strdup(wanted), *rest = copy;
    bool found = false;
    for (char *word; copy != NULL && (word = strsep(&rest, ",")) != NULL;) {
        found = found || (rank != NULL && strcmp(word, rank) == 0);
    }
    free(copy);
    return found;
}

void sim_faults_init(void)
{
    const char *spec = getenv("CUDASIM_FAIL");
    if (spec != NULL && rank_matches() && cudasim_set_faults(spec) != 0) {
        fprintf(stderr,
                "cudasim: CUDASIM_FAIL=%s cannot be parsed: want FUNCTION:N|N+|*:[@]CUDA_ERROR_...,"
                " no fault is injected\n",
                spec);
    }
}

static CUresult injected(const char *name)
{
    CUresult result = CUDA_SUCCESS;
    for (fault_t *fault = atomic_load(&faults); fault != NULL; fault = fault->next) {
        if (strcmp(fault->name, "*") != 0 && strcmp(fault->name, name) != 0) {
            continue;
        }
        long long n = atomic_fetch_add(&fault->seen, 1) + 1;
        if (n < fault->first || n > fault->last) {
            continue;
        }
        if (fault->async) {
            async_fault = fault->error;
        } else {
            result = fault->error;
        }
    }
    return result;
}

CUresult sim_take_async_fault(void)
{
    CUresult fault = async_fault;
    async_fault = CUDA_SUCCESS;
    return fault;
}

/* ---- Initialisation and entry ---------------------------------------------------------------- */

enum { NOT_YET, READY, FORKED, GONE };
static atomic_int state;
static _Atomic(sim_api_t *) apis;
atomic_uint sim_delay_us;

sim_api_t *sim_api_list(void)
{
    return atomic_load(&apis);
}

SIM_EXPORT void cudasim_set_delay(unsigned int microseconds)
{
    atomic_store(&sim_delay_us, microseconds);
}

static void list_api(sim_api_t *api)
{
    if (!atomic_exchange(&api->listed, true)) {
        api->next = atomic_load(&apis);
        while (!atomic_compare_exchange_weak(&apis, &api->next, api)) {
        }
    }
}

CUresult sim_enter(sim_api_t *api, bool needs_init)
{
    atomic_fetch_add_explicit(&api->calls, 1, memory_order_relaxed);
    if (!atomic_load_explicit(&api->listed, memory_order_relaxed)) {
        list_api(api);
    }
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now == GONE) {
        return CUDA_ERROR_DEINITIALIZED;
    }
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (now == NOT_YET) {
        pthread_once(&once, sim_faults_init); /* cuInit itself may be made to fail */
    }
    if (needs_init && now != READY) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (sim_in_host_function) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    async_fault = CUDA_SUCCESS;
    if (atomic_load_explicit(&faults, memory_order_relaxed) == NULL) {
        return CUDA_SUCCESS;
    }
    CUresult result = injected(api->name);
    sim_ctx_t *ctx = sim_ctx_current();
    if (sim_error_is_sticky(result) && ctx != NULL) {
        sim_ctx_fail(ctx, result);
    }
    return result;
}

SIM_EXPORT void cudasim_shutdown(void)
{
    atomic_store(&state, GONE);
}

/* Neither threads nor device memory pass a fork; the real driver refuses all calls as well. */
static void in_forked_child(void)
{
    if (atomic_load(&state) == READY) {
        atomic_store(&state, FORKED);
    }
}

static void at_exit(void)
{
    if (atomic_load(&state) == FORKED) {
        return;
    }
    sim_report_at_exit();
    if (sim_config()->shutdown_early) {
        cudasim_shutdown();
    }
}

SIM_EXPORT CUresult cuInit(unsigned int flags)
{
    SIM_ENTER_ANY(cuInit, false);
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool begun;
    CUresult result = CUDA_SUCCESS;
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    if (!begun) {
        begun = true;
        const char *delay = getenv("CUDASIM_DELAY_US");
        if (delay != NULL) {
            atomic_store(&sim_delay_us, (unsigned int)strtoul(delay, NULL, 10));
        }
        pthread_atfork(NULL, NULL, in_forked_child);
        atexit(at_exit);
    }
    if (atomic_load(&state) == FORKED) {
        result = CUDA_ERROR_NOT_INITIALIZED;
    } else if (sim_config()->visible_count == 0) {
        result = CUDA_ERROR_NO_DEVICE;
    } else {
        atomic_store(&state, READY);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

SIM_EXPORT CUresult cuDriverGetVersion(int *version)
{
    SIM_ENTER_ANY(cuDriverGetVersion, false);
    if (version == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *version = sim_config()->driver_version;
    return CUDA_SUCCESS;
}
