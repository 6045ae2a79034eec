/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies and fills. Who waits for what follows the driver's documented rules: copies to pageable
 * host memory return when done; small ones from pageable memory when the source was staged; between
 * pinned or device memory the Async forms return at once, and so do even the plain forms when both
 * sides are device memory. (facts.txt: so does a real driver.)
 */
#include <stdlib.h>
#include <string.h>

#include "tests/cudasim/sim.h"

#define DAMAGE_STEP 64
#define STAGED_BYTES 65536 /* up to this much of a pageable source is staged, more is waited for */

CUresult sim_place(sim_place_t *out, const sim_ctx_t *ctx, uint64_t addr, uint64_t bytes,
                   bool dying_too)
{
    const sim_alloc_t *alloc = dying_too ? sim_find_any(addr) : sim_find(addr);
    memset(out, 0, sizeof(*out));
    if (alloc == NULL) {
        if (sim_in_arena(addr)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *out = (sim_place_t){.cpu = (void *)(uintptr_t)addr, .phys = -1, .pageable = true};
        return CUDA_SUCCESS;
    }
    if (bytes > 0 && !sim_range_live(addr, bytes, dying_too)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (alloc->kind == SIM_VMM) {
        for (uint64_t at = addr; at < addr + (bytes > 0 ? bytes : 1);) {
            const sim_alloc_t *part = sim_find_any(at);
            if (!(part->access & (1u << ctx->phys))) {
                return CUDA_ERROR_INVALID_VALUE; /* cuMemSetAccess was not called */
            }
            at = part->base + part->bytes;
        }
    }
    out->cpu = (void *)(uintptr_t)(addr + (uint64_t)alloc->delta);
    out->phys = alloc->phys;
    out->known = true;
    out->managed = alloc->kind == SIM_MANAGED;
    return CUDA_SUCCESS;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/** Copies of depth slices of height rows; a plain copy has one row. */
typedef struct shape {
    uint64_t dst, src;
    size_t width, height, depth;
    size_t dst_pitch, src_pitch;
    size_t dst_slice, src_slice;
} shape_t;

typedef struct copy_op {
    sim_op_t op;
    shape_t shape;
    void *staged; /* copy of a pageable source */
    bool dst_pageable, src_pageable;
    bool fill;
    uint32_t value;
    unsigned int value_bytes;
} copy_op_t;

static size_t span(size_t width, size_t height, size_t depth, size_t pitch, size_t slice)
{
    if (width == 0 || height == 0 || depth == 0) {
        return 0;
    }
    return (depth - 1) * slice + (height - 1) * pitch + width;
}

static size_t dst_span(const shape_t *s)
{
    return span(s->width, s->height, s->depth, s->dst_pitch, s->dst_slice);
}

static size_t src_span(const shape_t *s)
{
    return span(s->width, s->height, s->depth, s->src_pitch, s->src_slice);
}

static void damage(char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i += DAMAGE_STEP) {
        bytes[i] ^= 0x55;
    }
}

static void move_rows(const shape_t *s, char *dst, const char *src, bool corrupt)
{
    for (size_t z = 0; z < s->depth; z++) {
        for (size_t y = 0; y < s->height; y++) {
            char *to = dst + z * s->dst_slice + y * s->dst_pitch;
            memmove(to, src + z * s->src_slice + y * s->src_pitch, s->width);
            if (corrupt) {
                damage(to, s->width);
            }
        }
    }
}

static void fill_rows(const copy_op_t *op, char *dst)
{
    const shape_t *s = &op->shape;
    for (size_t z = 0; z < s->depth; z++) {
        for (size_t y = 0; y < s->height; y++) {
            char *to = dst + z * s->dst_slice + y * s->dst_pitch;
            if (op->value_bytes == 1) {
                memset(to, (int)(op->value & 0xff), s->width);
                continue;
            }
            for (size_t i = 0; i < s->width; i += sizeof(uint32_t)) {
                memcpy(to + i, &op->value, sizeof(uint32_t));
            }
        }
    }
}

static CUresult run_copy(sim_op_t *base)
{
    copy_op_t *op = (copy_op_t *)base;
    sim_place_t dst = {.cpu = (void *)(uintptr_t)op->shape.dst, .phys = -1};
    sim_place_t src = {.cpu = (void *)(uintptr_t)op->shape.src, .phys = -1};
    CUresult result = CUDA_SUCCESS;
    /* Everything is looked up again: memory may have been freed since it was queued. */
    pthread_rwlock_rdlock(&sim_mem);
    if (!op->dst_pageable) {
        result = sim_place(&dst, base->stream->ctx, op->shape.dst, dst_span(&op->shape), true);
        result = result == CUDA_SUCCESS && dst.pageable ? CUDA_ERROR_ILLEGAL_ADDRESS : result;
    }
    if (op->staged != NULL) {
        src.cpu = op->staged;
    } else if (!op->src_pageable && !op->fill && result == CUDA_SUCCESS) {
        result = sim_place(&src, base->stream->ctx, op->shape.src, src_span(&op->shape), true);
        result = result == CUDA_SUCCESS && src.pageable ? CUDA_ERROR_ILLEGAL_ADDRESS : result;
    }
    if (result == CUDA_SUCCESS && op->fill) {
        fill_rows(op, dst.cpu);
    } else if (result == CUDA_SUCCESS) {
        bool peers = dst.phys >= 0 && src.phys >= 0 && dst.phys != src.phys;
        move_rows(&op->shape, dst.cpu, src.cpu,
                  peers && sim_config()->corrupt[dst.phys][src.phys]);
    }
    pthread_rwlock_unlock(&sim_mem);
    return result == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void drop_copy(sim_op_t *base)
{
    free(((copy_op_t *)base)->staged);
}

static void count_copy(const sim_place_t *dst, const sim_place_t *src, const shape_t *shape)
{
    sim_counter_t kind = SIM_COPIES_HTOH;
    if (dst->phys >= 0 && src->phys >= 0) {
        kind = dst->phys == src->phys ? SIM_COPIES_DTOD : SIM_COPIES_PEER;
    } else if (dst->phys >= 0) {
        kind = SIM_COPIES_HTOD;
    } else if (src->phys >= 0) {
        kind = SIM_COPIES_DTOH;
    }
    sim_count(kind, 1);
    sim_count(SIM_COPIES, 1);
    sim_count(SIM_COPY_BYTES, (long long)(shape->width * shape->height * shape->depth));
}

/* What a side of a copy must be. The driver takes device memory for a host side, too. */
enum { SIDE_ANY, SIDE_CUDA };

static bool fits(const sim_place_t *place, int side)
{
    return side == SIDE_ANY || place->known;
}

/** A pageable source is copied here and now; the queued part reads the copy. */
static CUresult stage(copy_op_t *op)
{
    op->staged = malloc(src_span(&op->shape));
    if (op->staged == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(op->staged, (void *)(uintptr_t)op->shape.src, src_span(&op->shape));
    return CUDA_SUCCESS;
}

static CUresult copy(const shape_t *shape, int dst_side, int src_side, CUstream handle, bool async)
{
    sim_stream_t *stream;
    CUresult result = sim_stream_get(handle, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    sim_place_t dst, src;
    pthread_rwlock_rdlock(&sim_mem);
    result = sim_place(&dst, stream->ctx, shape->dst, dst_span(shape), false);
    if (result == CUDA_SUCCESS) {
        result = sim_place(&src, stream->ctx, shape->src, src_span(shape), false);
    }
    pthread_rwlock_unlock(&sim_mem);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (dst_span(shape) == 0) {
        return CUDA_SUCCESS;
    }
    if (!fits(&dst, dst_side) || !fits(&src, src_side)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    copy_op_t *op = sim_op_new(sizeof(*op), run_copy);
    if (op == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    op->op.drop = drop_copy;
    op->shape = *shape;
    op->dst_pageable = dst.pageable;
    op->src_pageable = src.pageable;
    /* Device to device never makes the caller wait; into pageable memory always does. */
    bool wait = dst.pageable || (!async && (dst.phys < 0 || src.phys < 0)) ||
                (src.pageable && src_span(shape) > STAGED_BYTES);
    if (src.pageable && !wait && (result = stage(op)) != CUDA_SUCCESS) {
        free(op);
        return result;
    }
    count_copy(&dst, &src, shape);
    uint64_t seq;
    result = sim_submit(stream, &op->op, &seq);
    if (result == CUDA_SUCCESS && wait) {
        sim_stream_ref(stream);
        sim_stream_wait(stream, seq);
        sim_stream_unref(stream);
        result = (CUresult)atomic_load(&stream->ctx->error);
    }
    return result;
}

static CUresult plain(uint64_t dst, int dst_side, uint64_t src, int src_side, size_t bytes,
                      CUstream stream, bool async)
{
    const shape_t shape = {.dst = dst, .src = src, .width = bytes, .height = 1, .depth = 1};
    return copy(&shape, dst_side, src_side, stream, async);
}

SIM_EXPORT CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    SIM_ENTER(cuMemcpy);
    return plain(dst, SIDE_ANY, src, SIDE_ANY, bytes, NULL, false);
}

SIM_EXPORT CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    SIM_ENTER(cuMemcpyAsync);
    return plain(dst, SIDE_ANY, src, SIDE_ANY, bytes, stream, true);
}

SIM_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t bytes)
{
    SIM_ENTER(cuMemcpyHtoD);
    return plain(dst, SIDE_CUDA, (uint64_t)(uintptr_t)src, SIDE_ANY, bytes, NULL, false);
}

SIM_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes,
                                         CUstream stream)
{
    SIM_ENTER(cuMemcpyHtoDAsync);
    return plain(dst, SIDE_CUDA, (uint64_t)(uintptr_t)src, SIDE_ANY, bytes, stream, true);
}

SIM_EXPORT CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)
{
    SIM_ENTER(cuMemcpyDtoH);
    return plain((uint64_t)(uintptr_t)dst, SIDE_ANY, src, SIDE_CUDA, bytes, NULL, false);
}

SIM_EXPORT CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    SIM_ENTER(cuMemcpyDtoHAsync);
    return plain((uint64_t)(uintptr_t)dst, SIDE_ANY, src, SIDE_CUDA, bytes, stream, true);
}

SIM_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    SIM_ENTER(cuMemcpyDtoD);
    return plain(dst, SIDE_CUDA, src, SIDE_CUDA, bytes, NULL, false);
}

SIM_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                         CUstream stream)
{
    SIM_ENTER(cuMemcpyDtoDAsync);
    return plain(dst, SIDE_CUDA, src, SIDE_CUDA, bytes, stream, true);
}

static bool peer_contexts_valid(CUcontext a, CUcontext b)
{
    return sim_ctx_valid(a) && sim_ctx_valid(b);
}

SIM_EXPORT CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                                 CUcontext src_context, size_t bytes)
{
    SIM_ENTER(cuMemcpyPeer);
    if (!peer_contexts_valid(dst_context, src_context)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return plain(dst, SIDE_CUDA, src, SIDE_CUDA, bytes, NULL, false);
}

SIM_EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                                      CUcontext src_context, size_t bytes, CUstream stream)
{
    SIM_ENTER(cuMemcpyPeerAsync);
    if (!peer_contexts_valid(dst_context, src_context)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return plain(dst, SIDE_CUDA, src, SIDE_CUDA, bytes, stream, true);
}

/* ---- 2D and 3D ------------------------------------------------------------------------------- */

static CUresult side_of(CUmemorytype type, const void *host, CUdeviceptr device, uint64_t *addr,
                        int *side)
{
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        *addr = (uint64_t)(uintptr_t)host;
        *side = SIDE_ANY;
        return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
        *addr = device;
        *side = SIDE_CUDA;
        return CUDA_SUCCESS;
    case CU_MEMORYTYPE_UNIFIED:
        *addr = device;
        *side = SIDE_ANY;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED; /* arrays are not simulated */
    }
}

static CUresult copy_3d(const CUDA_MEMCPY3D *c, CUstream stream, bool async)
{
    shape_t shape = {.width = c->WidthInBytes, .height = c->Height, .depth = c->Depth};
    int dst_side, src_side;
    CUresult result = side_of(c->dstMemoryType, c->dstHost, c->dstDevice, &shape.dst, &dst_side);
    if (result == CUDA_SUCCESS) {
        result = side_of(c->srcMemoryType, c->srcHost, c->srcDevice, &shape.src, &src_side);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    shape.dst_pitch = c->dstPitch != 0 ? c->dstPitch : c->WidthInBytes + c->dstXInBytes;
    shape.src_pitch = c->srcPitch != 0 ? c->srcPitch : c->WidthInBytes + c->srcXInBytes;
    if (c->WidthInBytes + c->dstXInBytes > shape.dst_pitch ||
        c->WidthInBytes + c->srcXInBytes > shape.src_pitch || c->dstLOD != 0 || c->srcLOD != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    shape.dst_slice = shape.dst_pitch * (c->dstHeight != 0 ? c->dstHeight : c->Height + c->dstY);
    shape.src_slice = shape.src_pitch * (c->srcHeight != 0 ? c->srcHeight : c->Height + c->srcY);
    shape.dst += c->dstZ * shape.dst_slice + c->dstY * shape.dst_pitch + c->dstXInBytes;
    shape.src += c->srcZ * shape.src_slice + c->srcY * shape.src_pitch + c->srcXInBytes;
    return copy(&shape, dst_side, src_side, stream, async);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *c, CUstream stream, bool async)
{
    const CUDA_MEMCPY3D all = {.srcXInBytes = c->srcXInBytes,
                               .srcY = c->srcY,
                               .srcMemoryType = c->srcMemoryType,
                               .srcHost = c->srcHost,
                               .srcDevice = c->srcDevice,
                               .srcPitch = c->srcPitch,
                               .dstXInBytes = c->dstXInBytes,
                               .dstY = c->dstY,
                               .dstMemoryType = c->dstMemoryType,
                               .dstHost = c->dstHost,
                               .dstDevice = c->dstDevice,
                               .dstPitch = c->dstPitch,
                               .WidthInBytes = c->WidthInBytes,
                               .Height = c->Height,
                               .Depth = 1};
    return copy_3d(&all, stream, async);
}

SIM_EXPORT CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *c)
{
    SIM_ENTER(cuMemcpy2D);
    return c != NULL ? copy_2d(c, NULL, false) : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *c)
{
    SIM_ENTER(cuMemcpy2DUnaligned);
    return c != NULL ? copy_2d(c, NULL, false) : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream stream)
{
    SIM_ENTER(cuMemcpy2DAsync);
    return c != NULL ? copy_2d(c, stream, true) : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *c)
{
    SIM_ENTER(cuMemcpy3D);
    return c != NULL ? copy_3d(c, NULL, false) : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *c, CUstream stream)
{
    SIM_ENTER(cuMemcpy3DAsync);
    return c != NULL ? copy_3d(c, stream, true) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- Fills ----------------------------------------------------------------------------------- */

static CUresult fill(CUdeviceptr dst, uint32_t value, unsigned int value_bytes, size_t count,
                     CUstream handle, bool async)
{
    sim_stream_t *stream;
    CUresult result = sim_stream_get(handle, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    sim_place_t place;
    pthread_rwlock_rdlock(&sim_mem);
    result = sim_place(&place, stream->ctx, dst, count * value_bytes, false);
    pthread_rwlock_unlock(&sim_mem);
    if (result != CUDA_SUCCESS || !place.known || dst % value_bytes != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (count == 0) {
        return CUDA_SUCCESS;
    }
    copy_op_t *op = sim_op_new(sizeof(*op), run_copy);
    if (op == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    op->shape = (shape_t){.dst = dst, .width = count * value_bytes, .height = 1, .depth = 1};
    op->fill = true;
    op->value = value;
    op->value_bytes = value_bytes;
    sim_count(SIM_MEMSETS, 1);
    uint64_t seq;
    result = sim_submit(stream, &op->op, &seq);
    if (result == CUDA_SUCCESS && !async && place.phys < 0) {
        sim_stream_wait(stream, seq); /* only host memory is filled before the call returns */
        result = (CUresult)atomic_load(&stream->ctx->error);
    }
    return result;
}

SIM_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t count)
{
    SIM_ENTER(cuMemsetD8);
    return fill(dst, value, 1, count, NULL, false);
}

SIM_EXPORT CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count,
                                    CUstream stream)
{
    SIM_ENTER(cuMemsetD8Async);
    return fill(dst, value, 1, count, stream, true);
}

SIM_EXPORT CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned int value, size_t count)
{
    SIM_ENTER(cuMemsetD32);
    return fill(dst, value, 4, count, NULL, false);
}

SIM_EXPORT CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t count,
                                     CUstream stream)
{
    SIM_ENTER(cuMemsetD32Async);
    return fill(dst, value, 4, count, stream, true);
}
