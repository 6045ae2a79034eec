/* SPDX-License-Identifier: BSD-3-Clause */
/* Modules, functions, launches. Any image gives the kernels that are linked into this library. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cuda-aware/kernels/device.h"
#include "tests/cudasim/sim.h"

#define GLOBAL_BYTES 4096

typedef struct sim_global {
    char name[128];
    CUdeviceptr ptr;
    size_t bytes;
    struct sim_global *next;
} sim_global_t;

/** Modules and functions are never freed, so that stale handles are recognised. */
struct CUmod_st {
    uint32_t magic;
    bool alive;
    sim_ctx_t *ctx;
    sim_global_t *globals;
    struct CUfunc_st *functions;
    struct CUmod_st *next;
};

struct CUfunc_st {
    struct CUmod_st *module;
    const grail_host_kernel_t *kernel;
    struct CUfunc_st *next;
};

static struct CUmod_st *modules;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult load(CUmodule *module, const void *image)
{
    SIM_CURRENT(ctx);
    if (module == NULL || image == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_config()->no_kernels) {
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    sim_ctx_drain(ctx); /* as the real one */
    struct CUmod_st *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->magic = SIM_MAGIC_MODULE;
    made->alive = true;
    made->ctx = ctx;
    pthread_mutex_lock(&lock);
    made->next = modules;
    modules = made;
    pthread_mutex_unlock(&lock);
    sim_count(SIM_MODULES_LOADED, 1);
    *module = made;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    SIM_ENTER(cuModuleLoadData);
    return load(module, image);
}

SIM_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image,
                                       unsigned int option_count, CUjit_option *options,
                                       void **values)
{
    SIM_ENTER(cuModuleLoadDataEx);
    if (option_count > 0 && (options == NULL || values == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return load(module, image);
}

SIM_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatbin)
{
    SIM_ENTER(cuModuleLoadFatBinary);
    return load(module, fatbin);
}

static bool valid(const struct CUmod_st *module)
{
    return module != NULL && module->magic == SIM_MAGIC_MODULE && module->alive;
}

/** Frees globals; the lock is held. The memory of a context that ends goes with the context. */
static void end_module(struct CUmod_st *module, bool free_memory)
{
    module->alive = false;
    while (module->globals != NULL) {
        sim_global_t *global = module->globals;
        module->globals = global->next;
        if (free_memory) {
            pthread_rwlock_wrlock(&sim_mem);
            sim_alloc_t *alloc = sim_find(global->ptr);
            if (alloc != NULL && alloc->kind == SIM_GLOBAL) {
                sim_alloc_release(alloc);
            }
            pthread_rwlock_unlock(&sim_mem);
        }
        free(global);
    }
}

SIM_EXPORT CUresult cuModuleUnload(CUmodule module)
{
    SIM_ENTER(cuModuleUnload);
    CUresult result = sim_ctx_optional();
    if (result != CUDA_SUCCESS || !valid(module)) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_HANDLE;
    }
    sim_ctx_drain(module->ctx);
    pthread_mutex_lock(&lock);
    end_module(module, true);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

void sim_modules_drop_context(sim_ctx_t *ctx)
{
    pthread_mutex_lock(&lock);
    for (struct CUmod_st *module = modules; module != NULL; module = module->next) {
        if (module->alive && module->ctx == ctx) {
            end_module(module, false);
        }
    }
    pthread_mutex_unlock(&lock);
}

SIM_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    SIM_ENTER(cuModuleGetFunction);
    if (function == NULL || name == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!valid(module)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const grail_host_kernel_t *kernel = sim_kernel_find(name);
    if (kernel == NULL) {
        return CUDA_ERROR_NOT_FOUND;
    }
    pthread_mutex_lock(&lock);
    struct CUfunc_st *found = module->functions;
    while (found != NULL && found->kernel != kernel) {
        found = found->next;
    }
    if (found == NULL) {
        found = calloc(1, sizeof(*found));
        if (found != NULL) {
            *found = (struct CUfunc_st){module, kernel, module->functions};
            module->functions = found;
        }
    }
    pthread_mutex_unlock(&lock);
    if (found == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *function = found;
    return CUDA_SUCCESS;
}

/** A trailing _N in the name says how many bytes the variable has. */
static size_t global_bytes(const char *name)
{
    const char *digits = name + strlen(name);
    while (digits > name && isdigit((unsigned char)digits[-1])) {
        digits--;
    }
    size_t bytes = *digits != '\0' && digits > name && digits[-1] == '_' ? strtoul(digits, NULL, 10)
                                                                           : 0;
    return bytes != 0 ? bytes : GLOBAL_BYTES;
}

static sim_global_t *make_global(struct CUmod_st *module, const char *name)
{
    sim_global_t *global = calloc(1, sizeof(*global));
    if (global == NULL || strlen(name) >= sizeof(global->name)) {
        free(global);
        return NULL;
    }
    strcpy(global->name, name);
    global->bytes = global_bytes(name);
    sim_alloc_t *alloc;
    pthread_rwlock_wrlock(&sim_mem);
    CUresult result = sim_alloc_device(&alloc, SIM_GLOBAL, module, module->ctx->phys,
                                       global->bytes);
    if (result == CUDA_SUCCESS) {
        alloc->ctx = module->ctx;
        global->ptr = alloc->base;
    }
    pthread_rwlock_unlock(&sim_mem);
    if (result != CUDA_SUCCESS) {
        free(global);
        return NULL;
    }
    global->next = module->globals;
    module->globals = global;
    return global;
}

SIM_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *ptr, size_t *bytes, CUmodule module,
                                         const char *name)
{
    SIM_ENTER(cuModuleGetGlobal);
    SIM_CURRENT(ctx);
    (void)ctx;
    if (name == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!valid(module)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    pthread_mutex_lock(&lock);
    sim_global_t *global = module->globals;
    while (global != NULL && strcmp(global->name, name) != 0) {
        global = global->next;
    }
    if (global == NULL) {
        global = make_global(module, name);
    }
    pthread_mutex_unlock(&lock);
    if (global == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (ptr != NULL) {
        *ptr = global->ptr;
    }
    if (bytes != NULL) {
        *bytes = global->bytes;
    }
    return CUDA_SUCCESS;
}

/* ---- Functions ------------------------------------------------------------------------------- */

SIM_EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute,
                                       CUfunction function)
{
    SIM_ENTER(cuFuncGetAttribute);
    if (value == NULL || function == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = 1024;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = sim_config()->cc;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                                       int value)
{
    SIM_ENTER(cuFuncSetAttribute);
    if (function == NULL || value < 0 ||
        attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                                int block_threads,
                                                                size_t dynamic_shared_bytes)
{
    SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    (void)dynamic_shared_bytes;
    if (blocks == NULL || function == NULL || block_threads < 1 || block_threads > 1024) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int most = 2048 / block_threads;
    *blocks = most > 32 ? 32 : most;
    return CUDA_SUCCESS;
}

/** The argument block that params or extra give, or NULL. */
static const void *find_args(const grail_host_kernel_t *kernel, void **params, void **extra)
{
    if (params != NULL) {
        return params[0];
    }
    const void *args = NULL;
    size_t bytes = 0;
    for (void **at = extra; at != NULL && *at != CU_LAUNCH_PARAM_END; at += 2) {
        if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            args = at[1];
        } else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            bytes = *(size_t *)at[1];
        } else {
            return NULL;
        }
    }
    return bytes >= kernel->args_bytes ? args : NULL;
}

static CUresult launch(CUfunction function, const sim_launch_shape_t *shape, CUstream handle,
                       void **params, void **extra)
{
    sim_stream_t *stream;
    CUresult result = sim_stream_get(handle, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (function == NULL || !valid(function->module) || function->module->ctx != stream->ctx) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const void *args = find_args(function->kernel, params, extra);
    if (args == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return sim_kernel_submit(function->kernel, shape, stream, args);
}

SIM_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes,
                                   CUstream stream, void **params, void **extra)
{
    SIM_ENTER(cuLaunchKernel);
    if (shared_bytes > 49152) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const sim_launch_shape_t shape = {
        {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, false};
    return launch(function, &shape, stream, params, extra);
}

SIM_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x,
                                              unsigned int grid_y, unsigned int grid_z,
                                              unsigned int block_x, unsigned int block_y,
                                              unsigned int block_z, unsigned int shared_bytes,
                                              CUstream stream, void **params)
{
    SIM_ENTER(cuLaunchCooperativeKernel);
    if (shared_bytes > 49152) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const sim_launch_shape_t shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, true};
    return launch(function, &shape, stream, params, NULL);
}
