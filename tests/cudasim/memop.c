/* SPDX-License-Identifier: BSD-3-Clause */
/* Stream memory operations (write a value, wait for a value) and host functions. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/cudasim/sim.h"

#define WAIT_STEP_US 20

typedef struct value_op {
    sim_op_t op;
    uint64_t addr, value;
    unsigned int bytes, flags;
} value_op_t;

static CUresult place_value(const value_op_t *op, sim_place_t *place)
{
    CUresult result = sim_place(place, op->op.stream->ctx, op->addr, op->bytes, true);
    return result == CUDA_SUCCESS && place->known ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static CUresult run_write(sim_op_t *base)
{
    const value_op_t *op = (value_op_t *)base;
    sim_place_t place;
    pthread_rwlock_rdlock(&sim_mem);
    CUresult result = place_value(op, &place);
    if (result == CUDA_SUCCESS && op->bytes == 4) {
        __atomic_store_n((uint32_t *)place.cpu, (uint32_t)op->value, __ATOMIC_RELEASE);
    } else if (result == CUDA_SUCCESS) {
        __atomic_store_n((uint64_t *)place.cpu, op->value, __ATOMIC_RELEASE);
    }
    pthread_rwlock_unlock(&sim_mem);
    return result;
}

static bool met(const value_op_t *op, uint64_t now)
{
    switch (op->flags & 3u) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return op->bytes == 4 ? (int32_t)((uint32_t)now - (uint32_t)op->value) >= 0
                              : (int64_t)(now - op->value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == op->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & op->value) != 0;
    default: {
        uint64_t nor = ~(now | op->value);
        return (op->bytes == 4 ? nor & UINT32_MAX : nor) != 0;
    }
    }
}

static CUresult run_wait(sim_op_t *base)
{
    const value_op_t *op = (value_op_t *)base;
    sim_ctx_t *ctx = base->stream->ctx;
    for (;;) {
        sim_place_t place;
        uint64_t now = 0;
        pthread_rwlock_rdlock(&sim_mem);
        CUresult result = place_value(op, &place);
        if (result == CUDA_SUCCESS) {
            now = op->bytes == 4 ? __atomic_load_n((uint32_t *)place.cpu, __ATOMIC_ACQUIRE)
                                 : __atomic_load_n((uint64_t *)place.cpu, __ATOMIC_ACQUIRE);
        }
        pthread_rwlock_unlock(&sim_mem);
        if (result != CUDA_SUCCESS || met(op, now)) {
            return result;
        }
        if (!ctx->alive || atomic_load(&ctx->error) != CUDA_SUCCESS) {
            return CUDA_SUCCESS;
        }
        usleep(WAIT_STEP_US);
    }
}

static CUresult submit(CUstream handle, sim_op_fn_t run, CUdeviceptr addr, uint64_t value,
                       unsigned int bytes, unsigned int flags, unsigned int flags_allowed)
{
    if (sim_config()->no_memops) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    sim_stream_t *stream;
    CUresult result = sim_stream_get(handle, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    sim_place_t place;
    pthread_rwlock_rdlock(&sim_mem);
    result = sim_place(&place, stream->ctx, addr, bytes, false);
    pthread_rwlock_unlock(&sim_mem);
    if (result != CUDA_SUCCESS || !place.known || addr % bytes != 0 || (flags & ~flags_allowed)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    value_op_t *op = sim_op_new(sizeof(*op), run);
    if (op == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    op->addr = addr;
    op->value = value;
    op->bytes = bytes;
    op->flags = flags;
    return sim_submit(stream, &op->op, NULL);
}

static CUresult write_value(CUstream stream, CUdeviceptr addr, uint64_t value, unsigned int bytes,
                            unsigned int flags)
{
    sim_count(SIM_WRITE_VALUES, 1);
    return submit(stream, run_write, addr, value, bytes, flags,
                  CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
}

static CUresult wait_value(CUstream stream, CUdeviceptr addr, uint64_t value, unsigned int bytes,
                           unsigned int flags)
{
    return submit(stream, run_wait, addr, value, bytes, flags,
                  3u | (unsigned int)CU_STREAM_WAIT_VALUE_FLUSH);
}

SIM_EXPORT CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                            unsigned int flags)
{
    SIM_ENTER(cuStreamWriteValue32);
    return write_value(stream, addr, value, 4, flags);
}

SIM_EXPORT CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                            unsigned int flags)
{
    SIM_ENTER(cuStreamWriteValue64);
    return write_value(stream, addr, value, 8, flags);
}

SIM_EXPORT CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                           unsigned int flags)
{
    SIM_ENTER(cuStreamWaitValue32);
    return wait_value(stream, addr, value, 4, flags);
}

SIM_EXPORT CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                           unsigned int flags)
{
    SIM_ENTER(cuStreamWaitValue64);
    return wait_value(stream, addr, value, 8, flags);
}

SIM_EXPORT CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                               CUflushGPUDirectRDMAWritesScope scope)
{
    SIM_ENTER(cuFlushGPUDirectRDMAWrites);
    SIM_CURRENT(ctx);
    (void)ctx;
    if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX ||
        (scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER &&
         scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    __sync_synchronize();
    return CUDA_SUCCESS;
}

/* ---- Host functions -------------------------------------------------------------------------- */

typedef struct host_op {
    sim_op_t op;
    CUhostFn function;
    void *user_data;
} host_op_t;

static CUresult run_host(sim_op_t *base)
{
    const host_op_t *op = (host_op_t *)base;
    sim_in_host_function = true;
    op->function(op->user_data);
    sim_in_host_function = false;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *user_data)
{
    SIM_ENTER(cuLaunchHostFunc);
    if (function == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_stream_t *stream;
    CUresult result = sim_stream_get(handle, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    host_op_t *op = sim_op_new(sizeof(*op), run_host);
    if (op == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    op->function = function;
    op->user_data = user_data;
    return sim_submit(stream, &op->op, NULL);
}
