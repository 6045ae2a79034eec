/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of CUDA contexts in use, with their streams, completion words and kernels. */
#include "cuda-aware/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda-aware/gpu_internal.h"
#include "cuda-aware/kernels_fatbin.h"
#include "cuda-aware/layout_internal.h"
#include "cuda-aware/resident.h"
#include "cuda-aware/stream.h"
#include "runtime/log.h"
#include "runtime/options.h"

enum {
    WORD_STRIDE = 64,           /* a cache line of its own for every word */
    KERNELS_MAX = 64,
    STREAMS_MAX = 32            /* per lane: upper limit of the option `streams` */
};

static const char *const lane_names[GRAIL_LANE_COUNT] = {
    [GRAIL_LANE_IN] = "host to device",
    [GRAIL_LANE_OUT] = "device to host",
    [GRAIL_LANE_PEER] = "device to device",
    [GRAIL_LANE_RESIDENT] = "resident helper",
};

struct grail_gpu {
    grail_gpu_t *next;
    CUcontext context;
    unsigned long long id;      /* tells a context from a later one at the same address; 0: unknown */
    int device;
    bool dead;                  /* the program destroyed the context: never touch it again */
    int multiprocessors;
    int priority;
    bool write_value;           /* the device writes words in stream order */
    char *words;                /* page of completion words, mapped by us, pinned into CUDA */
    size_t words_size;
    CUdeviceptr words_device;
    grail_stream_t *streams[GRAIL_LANE_COUNT][STREAMS_MAX];
    unsigned turn[GRAIL_LANE_COUNT];
    int lane_streams;           /* option `streams` when the context was first used */
    enum { KERNELS_UNTRIED, KERNELS_LOADED, KERNELS_NONE } kernels;
    CUmodule module;
    struct kernel {
        char *name;
        CUfunction function;    /* NULL: this module has none of that name */
    } functions[KERNELS_MAX];
    int function_count;
};

static grail_gpu_t *gpus;       /* used last first; entries live until fini */
static int last_device;         /* atomic: of the context used last */

/* ---- entering a context ---- */

/* What grail_gpu_enter() changed, so that leave can undo it. A capture of a CUDA graph by the
 * calling thread forbids allocations and queries unless the thread says that it knows better. */
static __thread struct {
    int depth;
    CUstreamCaptureMode mode[8];
} entered;

/* Pushing a destroyed context succeeds, and popping it corrupts the driver's memory (seen with
 * driver 580): ask first. Drivers before 12.0 cannot tell. */
bool grail_context_alive(CUcontext context, unsigned long long *id)
{
    CUresult result = grail_cuda.CtxGetId(context, id);

    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        *id = 0;
        return true;
    }
    return result == CUDA_SUCCESS;
}

bool grail_gpu_alive(const grail_gpu_t *gpu)
{
    unsigned long long id;

    if (gpu->dead)
        return false;
    if (!grail_context_alive(gpu->context, &id) || id != gpu->id) {
        ((grail_gpu_t *)gpu)->dead = true;
        return false;
    }
    return true;
}

static CUresult enter(CUcontext context)
{
    CUresult result = grail_cuda.CtxPushCurrent(context);

    if (result != CUDA_SUCCESS)
        return result;
    if (entered.depth < (int)(sizeof(entered.mode) / sizeof(entered.mode[0]))) {
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

        if (grail_cuda.ThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)
            mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        entered.mode[entered.depth] = mode;
    }
    entered.depth++;
    return CUDA_SUCCESS;
}

static void leave(void)
{
    CUcontext popped;

    entered.depth--;
    if (entered.depth < (int)(sizeof(entered.mode) / sizeof(entered.mode[0])))
        (void)grail_cuda.ThreadExchangeStreamCaptureMode(&entered.mode[entered.depth]);
    (void)grail_cuda.CtxPopCurrent(&popped);
}

CUresult grail_gpu_enter(const grail_gpu_t *gpu)
{
    if (!grail_gpu_alive(gpu))
        return grail_cuda_gone() ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return enter(gpu->context);
}

void grail_gpu_leave(const grail_gpu_t *gpu)
{
    (void)gpu;
    leave();
}

/* ---- making and freeing an entry ---- */

static CUresult pin_words(grail_gpu_t *gpu)
{
    size_t size = ((size_t)GRAIL_LANE_COUNT * (size_t)gpu->lane_streams * WORD_STRIDE + 4095) &
                  ~(size_t)4095;
    void *words = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUresult result;

    if (words == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = grail_cuda.MemHostRegister(words, size, CU_MEMHOSTREGISTER_PORTABLE |
                                                         CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result == CUDA_SUCCESS) {
        result = grail_cuda.MemHostGetDevicePointer(&gpu->words_device, words, 0);
        if (result != CUDA_SUCCESS)
            (void)grail_cuda.MemHostUnregister(words);
    }
    if (result != CUDA_SUCCESS) {
        munmap(words, size);
        return result;
    }
    gpu->words = words;
    gpu->words_size = size;
    return CUDA_SUCCESS;
}

/* The old entry point of cuStreamWriteValue32 (before 11.7) works where the device says so; the new
 * one works everywhere, and should it not, the first use finds out. */
static bool can_write_values(int device)
{
    return grail_cuda_driver_version() >= 11070 ||
           grail_device_attribute(device, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1) != 0;
}

static grail_status_t create(CUcontext context, unsigned long long id, grail_gpu_t **out)
{
    grail_gpu_t *gpu = calloc(1, sizeof(*gpu));
    grail_status_t status;
    const char *step = "entering the context";
    CUresult result;
    CUdevice device;
    int least, greatest;
    char what[240];

    if (gpu == NULL) {
        grail_error("out of memory for the state of a CUDA context");
        return GRAIL_ERR_NO_MEMORY;
    }
    gpu->context = context;
    gpu->id = id;
    gpu->device = -1;
    gpu->lane_streams = grail_options.streams;
    result = enter(context);
    if (result != CUDA_SUCCESS)
        goto free_gpu;
    step = "asking for the context's device";
    result = grail_cuda.CtxGetDevice(&device);
    if (result != CUDA_SUCCESS)
        goto leave_context;
    gpu->device = device;
    step = "asking for stream priorities";
    result = grail_cuda.CtxGetStreamPriorityRange(&least, &greatest);
    if (result != CUDA_SUCCESS)
        goto leave_context;
    step = "pinning a page for completion words";
    result = pin_words(gpu);
    if (result != CUDA_SUCCESS)
        goto leave_context;
    leave();
    gpu->priority = greatest;
    gpu->multiprocessors =
        grail_device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    gpu->write_value = can_write_values(device);
    gpu->next = gpus;
    gpus = gpu;
    __atomic_store_n(&last_device, gpu->device, __ATOMIC_RELAXED);
    grail_debug("using a context of %s", grail_device_name(gpu->device));
    *out = gpu;
    return GRAIL_OK;

leave_context:
    leave();
free_gpu:
    snprintf(what, sizeof(what), "%s of %s", step,
             gpu->device >= 0 ? grail_device_name(gpu->device) : "a GPU");
    status = grail_cuda_fail(result, what);
    free(gpu);
    return status;
}

static grail_status_t find_or_create(CUcontext context, grail_gpu_t **out)
{
    unsigned long long id;
    grail_gpu_t **link, *gpu;

    if (!grail_context_alive(context, &id)) {
        if (!grail_cuda_gone())
            grail_error("the CUDA context of a buffer was destroyed while the buffer was in use");
        return GRAIL_ERR_CUDA;
    }
    for (link = &gpus; (gpu = *link) != NULL; link = &gpu->next) {
        if (gpu->context != context || gpu->dead)
            continue;
        if (gpu->id != id) {
            gpu->dead = true;   /* destroyed, and a new one made at the same address */
            continue;
        }
        *link = gpu->next;
        gpu->next = gpus;
        gpus = gpu;
        __atomic_store_n(&last_device, gpu->device, __ATOMIC_RELAXED);
        *out = gpu;
        return GRAIL_OK;
    }
    return create(context, id, out);
}

grail_status_t grail_gpu_get(const grail_mem_t *mem, grail_gpu_t **gpu)
{
    if (mem->context == NULL) {
        grail_error("internal: a GPU was asked for %s memory", grail_mem_kind_name(mem->kind));
        return GRAIL_ERR_INVALID;
    }
    return find_or_create(mem->context, gpu);
}

grail_status_t grail_gpu_of_device(int device, grail_gpu_t **gpu)
{
    CUcontext context;
    grail_status_t status;

    if (!grail_cuda_ready()) {
        grail_error("GPU %d was asked for, but CUDA is not in use", device);
        return GRAIL_ERR_UNSUPPORTED;
    }
    status = grail_primary_context(device, &context);
    return status == GRAIL_OK ? find_or_create(context, gpu) : status;
}

grail_gpu_t *grail_gpu_any(void)
{
    for (grail_gpu_t *gpu = gpus; gpu != NULL; gpu = gpu->next) {
        if (grail_gpu_alive(gpu))
            return gpu;
    }
    return NULL;
}

int grail_gpu_last_device(void)
{
    return __atomic_load_n(&last_device, __ATOMIC_RELAXED);
}

CUcontext grail_gpu_context(const grail_gpu_t *gpu)
{
    return gpu->context;
}

int grail_gpu_device(const grail_gpu_t *gpu)
{
    return gpu->device;
}

const CUuuid *grail_gpu_uuid(const grail_gpu_t *gpu)
{
    return grail_device_uuid(gpu->device);
}

const char *grail_gpu_name(const grail_gpu_t *gpu)
{
    return grail_device_name(gpu->device);
}

int grail_gpu_multiprocessors(const grail_gpu_t *gpu)
{
    return gpu->multiprocessors;
}

CUresult grail_gpu_pin(grail_gpu_t *gpu, void *address, size_t size)
{
    CUresult result = grail_gpu_enter(gpu);

    if (result != CUDA_SUCCESS)
        return result;
    result = grail_cuda.MemHostRegister(address, size, CU_MEMHOSTREGISTER_PORTABLE |
                                                           CU_MEMHOSTREGISTER_DEVICEMAP);
    leave();
    return result;
}

void grail_gpu_unpin(grail_gpu_t *gpu, void *address)
{
    if (grail_cuda_gone() || grail_gpu_enter(gpu) != CUDA_SUCCESS)
        return;
    (void)grail_cuda.MemHostUnregister(address);
    leave();
}

/* ---- streams ---- */

static grail_stream_t *create_stream(grail_gpu_t *gpu, grail_lane_t lane, unsigned index)
{
    grail_stream_t *stream = calloc(1, sizeof(*stream));
    size_t offset = ((size_t)lane * (size_t)gpu->lane_streams + index) * WORD_STRIDE;
    CUresult result;
    char what[200];

    if (stream == NULL) {
        grail_error("out of memory for a CUDA stream");
        return NULL;
    }
    result = grail_gpu_enter(gpu);
    if (result == CUDA_SUCCESS) {
        result = grail_cuda.StreamCreateWithPriority(&stream->handle, CU_STREAM_NON_BLOCKING,
                                                     gpu->priority);
        leave();
    }
    if (result != CUDA_SUCCESS) {
        snprintf(what, sizeof(what), "creating a stream on %s", grail_gpu_name(gpu));
        (void)grail_cuda_fail(result, what);
        free(stream);
        return NULL;
    }
    stream->gpu = gpu;
    stream->lane = lane_names[lane];
    stream->word = (volatile uint32_t *)(void *)(gpu->words + offset);
    stream->word_device = gpu->words_device + offset;
    stream->use_events = !gpu->write_value;
    gpu->streams[lane][index] = stream;
    return stream;
}

grail_stream_t *grail_stream_pick(grail_gpu_t *gpu, grail_lane_t lane)
{
    unsigned index = gpu->turn[lane]++ % (unsigned)gpu->lane_streams;
    grail_stream_t *stream = gpu->streams[lane][index];

    return GRAIL_LIKELY(stream != NULL) ? stream : create_stream(gpu, lane, index);
}

/* ---- kernels ---- */

static void load_kernels(grail_gpu_t *gpu)
{
    const char *name = "unknown error";
    CUresult result;

    gpu->kernels = KERNELS_NONE;
    if (grail_kernels_fatbin_size == 0) {
        if (grail_log_first_time("built without kernels"))
            grail_info("Grail was built without device kernels (no nvcc): strided buffers are "
                       "packed without them, and small copies use the copy engine");
        return;
    }
    result = grail_gpu_enter(gpu);
    if (result == CUDA_SUCCESS) {
        result = grail_cuda.ModuleLoadData(&gpu->module, grail_kernels_fatbin);
        leave();
    }
    if (result == CUDA_SUCCESS) {
        gpu->kernels = KERNELS_LOADED;
        return;
    }
    (void)grail_cuda.GetErrorName(result, &name);
    if (grail_log_first_time("kernels do not load"))
        grail_info("Grail's device kernels do not load on %s (%s): they are not used. Rebuild Grail "
                   "for this GPU's architecture, or update the driver", grail_gpu_name(gpu), name);
}

CUfunction grail_gpu_kernel(grail_gpu_t *gpu, const char *name)
{
    CUfunction function = NULL;

    /* The one used last comes first: names are compared in full, as callers may build them. */
    for (int i = 0; i < gpu->function_count; ++i) {
        struct kernel found = gpu->functions[i];

        if (strcmp(found.name, name) == 0) {
            gpu->functions[i] = gpu->functions[0];
            gpu->functions[0] = found;
            return found.function;
        }
    }
    if (gpu->kernels == KERNELS_UNTRIED)
        load_kernels(gpu);
    if (gpu->kernels != KERNELS_LOADED)
        return NULL;
    if (gpu->function_count == KERNELS_MAX) {
        grail_error("internal: more than %d kernels are in use", KERNELS_MAX);
        return NULL;
    }
    if (grail_gpu_enter(gpu) != CUDA_SUCCESS)
        return NULL;
    if (grail_cuda.ModuleGetFunction(&function, gpu->module, name) != CUDA_SUCCESS) {
        function = NULL;
        grail_debug("there is no kernel %s", name);
    }
    leave();
    char *copy = strdup(name);

    if (copy == NULL)
        return function;
    gpu->functions[gpu->function_count].name = copy;
    gpu->functions[gpu->function_count++].function = function;
    return function;
}

/* ---- the end ---- */

static void destroy(grail_gpu_t *gpu)
{
    bool usable = !grail_cuda_gone() && grail_gpu_enter(gpu) == CUDA_SUCCESS;

    grail_resident_fini(gpu, usable);
    for (int lane = 0; lane < GRAIL_LANE_COUNT; ++lane) {
        for (int i = 0; i < STREAMS_MAX; ++i) {
            grail_stream_t *stream = gpu->streams[lane][i];

            if (stream == NULL)
                continue;
            if (usable)
                grail_stream_destroy(stream);
            else
                grail_stream_abandon(stream);
        }
    }
    if (usable) {
        if (gpu->kernels == KERNELS_LOADED)
            (void)grail_cuda.ModuleUnload(gpu->module);
        (void)grail_cuda.MemHostUnregister(gpu->words);
        leave();
    }
    /* A context that is not usable may still have work that writes a word: leave the page. */
    if (usable)
        munmap(gpu->words, gpu->words_size);
    for (int i = 0; i < gpu->function_count; ++i)
        free(gpu->functions[i].name);
    free(gpu);
}

void grail_gpu_fini(void)
{
    grail_pack_fini();
    while (gpus != NULL) {
        grail_gpu_t *gpu = gpus;

        gpus = gpu->next;
        destroy(gpu);
    }
    grail_devices_fini();
}
