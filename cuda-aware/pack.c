/* SPDX-License-Identifier: BSD-3-Clause */
/* Launches the kernels that pack, unpack and copy. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda-aware/kernels/move.h"
#include "cuda-aware/layout_internal.h"
#include "cuda-aware/stream.h"
#include "runtime/log.h"
#include "runtime/options.h"

enum {
    /* One block serves short pieces: it needs no counter, whose round trips to memory cost 2 us,
     * more than other blocks save. */
    ONE_BLOCK = 32768,
    /* Tables in the arguments are served by the constant cache, one address of a warp after the
     * other: fine for a short piece, but a long one pays for an upload. */
    INLINE_TABLE_PIECE = 65536,
    TABLE_MIN = 4096,               /* bytes of the smallest device table */
    TABLES_KEPT = 16 << 20          /* device memory of freed layouts that waits to be reused */
};

/* ---- trees in device memory ---- */

/* A piece of device memory that holds a layout's tree, or (owner NULL) waits for the next one. */
struct grail_layout_copy {
    struct grail_layout_copy *next;     /* of all */
    struct grail_layout_copy *sibling;  /* of the owner */
    grail_layout_t *owner;
    grail_gpu_t *gpu;
    CUdeviceptr table;
    size_t room;
    grail_stream_t *stream;             /* that uploads; other streams wait for `uploaded` */
    CUevent uploaded;                   /* NULL once it is known to be done */
};

/* Guards the lists: layouts are released by any thread. */
static pthread_mutex_t tables_lock = PTHREAD_MUTEX_INITIALIZER;
static struct grail_layout_copy *tables;

static void end_upload(struct grail_layout_copy *copy)
{
    if (copy->uploaded != NULL)
        (void)grail_cuda.EventDestroy(copy->uploaded);
    copy->uploaded = NULL;
    copy->stream = NULL;
}

/* Memory is freed later: cuMemFree() waits for the whole device. */
void grail_layout_drop_copies(struct grail_layout_copy *copies)
{
    pthread_mutex_lock(&tables_lock);
    for (struct grail_layout_copy *copy = copies; copy != NULL; copy = copy->sibling)
        copy->owner = NULL;
    pthread_mutex_unlock(&tables_lock);
}

static void free_table(struct grail_layout_copy *copy)
{
    if (!grail_cuda_gone() && grail_gpu_enter(copy->gpu) == CUDA_SUCCESS) {
        end_upload(copy);
        (void)grail_cuda.MemFree(copy->table);
        grail_gpu_leave(copy->gpu);
    }
    free(copy);
}

/* Free unused tables until at most `keep` bytes of them are left. Lock held. */
static void trim_tables(size_t keep)
{
    size_t unused = 0;

    for (struct grail_layout_copy **link = &tables, *copy; (copy = *link) != NULL;) {
        bool dead = !grail_gpu_alive(copy->gpu);

        if (copy->owner == NULL && (dead || unused + copy->room > keep)) {
            *link = copy->next;
            free_table(copy);
            continue;
        }
        if (copy->owner == NULL)
            unused += copy->room;
        link = &copy->next;
    }
}

void grail_pack_fini(void)
{
    pthread_mutex_lock(&tables_lock);
    while (tables != NULL) {
        struct grail_layout_copy *copy = tables;

        tables = copy->next;
        if (copy->owner != NULL)
            copy->owner->copies = NULL;
        free_table(copy);
    }
    pthread_mutex_unlock(&tables_lock);
}

/* The best unused table; lock held. */
static struct grail_layout_copy *reuse_table(grail_gpu_t *gpu, size_t size)
{
    struct grail_layout_copy *best = NULL;

    for (struct grail_layout_copy *copy = tables; copy != NULL; copy = copy->next) {
        if (copy->owner == NULL && copy->gpu == gpu && copy->room >= size &&
            copy->room / 4 <= size && (best == NULL || copy->room < best->room))
            best = copy;
    }
    return best;
}

/* Context entered, lock held. */
static grail_status_t make_table(grail_gpu_t *gpu, size_t size, struct grail_layout_copy **out)
{
    struct grail_layout_copy *copy = calloc(1, sizeof(*copy));
    size_t room = TABLE_MIN;
    CUresult result;
    char what[200];

    if (copy == NULL) {
        grail_error("no memory to upload a datatype to %s", grail_gpu_name(gpu));
        return GRAIL_ERR_NO_MEMORY;
    }
    while (room < size)
        room *= 2;
    trim_tables(TABLES_KEPT);
    result = grail_cuda.MemAlloc(&copy->table, room);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        trim_tables(0);
        room = size;
        result = grail_cuda.MemAlloc(&copy->table, room);
    }
    if (result != CUDA_SUCCESS) {
        free(copy);
        snprintf(what, sizeof(what), "allocating %zu bytes for the table of a datatype on %s", room,
                 grail_gpu_name(gpu));
        return grail_cuda_fail(result, what);
    }
    copy->gpu = gpu;
    copy->room = room;
    copy->next = tables;
    tables = copy;
    *out = copy;
    return GRAIL_OK;
}

/* Context entered, lock held. */
static CUresult upload(struct grail_layout_copy *copy, const grail_layout_t *layout,
                       grail_stream_t *stream)
{
    CUresult result;

    end_upload(copy);
    /* from pageable memory: the driver has taken its own copy when the call returns */
    result = grail_cuda.MemcpyHtoDAsync(copy->table, layout->code,
                                        layout->words * sizeof(*layout->code), stream->handle);
    if (result == CUDA_SUCCESS)
        result = grail_cuda.EventCreate(&copy->uploaded, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = grail_cuda.EventRecord(copy->uploaded, stream->handle);
    copy->stream = stream;
    return result;
}

/* The upload is before anything that `stream` does from now on. Context entered, lock held. */
static CUresult order_after_upload(struct grail_layout_copy *copy, grail_stream_t *stream)
{
    CUresult result;

    if (copy->uploaded == NULL || copy->stream == stream)
        return CUDA_SUCCESS;
    result = grail_cuda.EventQuery(copy->uploaded);
    if (result == CUDA_ERROR_NOT_READY)
        return grail_cuda.StreamWaitEvent(stream->handle, copy->uploaded, 0);
    if (result == CUDA_SUCCESS)
        end_upload(copy);
    return result;
}

static grail_status_t table_locked(grail_layout_t *layout, grail_stream_t *stream,
                                   CUdeviceptr *table)
{
    struct grail_layout_copy *copy = layout->copies;
    grail_gpu_t *gpu = stream->gpu;
    CUresult result;
    char what[200];

    while (copy != NULL && copy->gpu != gpu)
        copy = copy->sibling;
    if (copy != NULL) {
        result = order_after_upload(copy, stream);
    } else {
        size_t size = layout->words * sizeof(*layout->code);

        copy = reuse_table(gpu, size);
        if (copy == NULL) {
            grail_status_t status = make_table(gpu, size, &copy);

            if (status != GRAIL_OK)
                return status;
        }
        result = upload(copy, layout, stream);
        if (result == CUDA_SUCCESS) {
            copy->owner = layout;
            copy->sibling = layout->copies;
            layout->copies = copy;
        }
    }
    if (result != CUDA_SUCCESS) {
        snprintf(what, sizeof(what), "uploading the table of a datatype to %s",
                 grail_gpu_name(gpu));
        return grail_cuda_fail(result, what);
    }
    *table = copy->table;
    return GRAIL_OK;
}

/* Address of the layout's tree for kernels on `stream`. Context entered by the caller. */
static grail_status_t device_table(grail_layout_t *layout, grail_stream_t *stream,
                                   CUdeviceptr *table)
{
    grail_status_t status;

    pthread_mutex_lock(&tables_lock);
    status = table_locked(layout, stream, table);
    pthread_mutex_unlock(&tables_lock);
    return status;
}

/* ---- launching ---- */

static grail_status_t need_counter(grail_stream_t *stream)
{
    char what[200];
    CUresult result;

    if (GRAIL_LIKELY(stream->counter != 0))
        return GRAIL_OK;
    result = grail_cuda.MemAlloc(&stream->counter, sizeof(uint32_t));
    if (result == CUDA_SUCCESS) {
        result = grail_cuda.MemsetD8Async(stream->counter, 0, sizeof(uint32_t), stream->handle);
        if (result == CUDA_SUCCESS)
            return GRAIL_OK;
        (void)grail_cuda.MemFree(stream->counter);
    }
    stream->counter = 0;
    snprintf(what, sizeof(what), "making a counter for kernels on %s",
             grail_gpu_name(stream->gpu));
    return grail_cuda_fail(result, what);
}

/* Half of the SMs serve what the memory of an H200 can deliver to strided words; the program's own
 * kernels keep the others. */
static uint64_t max_blocks(const grail_stream_t *stream)
{
    int half = (grail_gpu_multiprocessors(stream->gpu) + 1) / 2;

    if (grail_options.pack_blocks > 0)
        return (uint64_t)grail_options.pack_blocks;
    return half > 0 ? (uint64_t)half : 1;
}

/* `done` lies in `args`. Context entered by the caller. */
static grail_status_t launch(grail_stream_t *stream, CUfunction function, const char *name,
                             uint64_t blocks, unsigned threads, void *args, grail_done_t *done,
                             grail_copy_t *op)
{
    void *params[] = {args};
    char what[200];
    CUresult result;

    if (blocks > max_blocks(stream))
        blocks = max_blocks(stream);
    if (blocks > 1) {
        grail_status_t status = need_counter(stream);

        if (status != GRAIL_OK)
            return status;
    }
    grail_stream_ticket(stream, op);
    done->word = stream->word_device;
    done->counter = stream->counter;
    done->ticket = op->ticket;
    done->reserved = 0;
    result = grail_cuda.LaunchKernel(function, (unsigned)blocks, 1, 1, threads, 1, 1, 0,
                                     stream->handle, params, NULL);
    if (result != CUDA_SUCCESS) {
        snprintf(what, sizeof(what), "launching %s (%s) on %s", name, stream->lane,
                 grail_gpu_name(stream->gpu));
        return grail_cuda_fail(result, what);
    }
    return grail_stream_launched(stream, op);
}

static unsigned round_to_warps(uint64_t threads, unsigned most)
{
    return threads >= most ? most : (unsigned)(threads + 31) & ~31u;
}

grail_status_t grail_copy_kernel_start(grail_stream_t *stream, void *dst, const void *src,
                                       size_t length, grail_copy_t *op)
{
    CUfunction function = grail_gpu_kernel(stream->gpu, "grail_copy");
    grail_copy_args_t args = {.dst = (uintptr_t)dst, .src = (uintptr_t)src, .length = length};

    if (function == NULL)
        return GRAIL_ERR_UNSUPPORTED;
    return launch(stream, function, "grail_copy",
                  (length + ONE_BLOCK - 1) / ONE_BLOCK,
                  round_to_warps(length / 16 + 1, GRAIL_MOVE_THREADS), &args, &args.done, op);
}

/* ---- sides ---- */

static void contiguous_side(grail_side_t *side, const void *packed, size_t offset)
{
    memset(side, 0, sizeof(*side));
    side->base = (uintptr_t)packed - offset;
}

/*
 * What the kernel sees as elements are the elements, or, where these are one loop (the usual
 * vector), the loop's repetitions: one level less to walk, and a narrow one.
 */
static void layout_side(grail_side_t *side, const grail_layout_t *layout, size_t count,
                        const void *elements)
{
    grail_divisor_t d;

    memset(side, 0, sizeof(*side));
    side->base = (uintptr_t)elements + (uint64_t)layout->first;
    side->size = layout->size;
    side->extent = layout->extent;
    side->root = layout->root;
    if (layout->root != 0) {
        const uint64_t *node = layout->code + layout->root;
        int64_t stride = (int64_t)node[GRAIL_NODE_STRIDE];

        if (GRAIL_NODE_KIND(node[GRAIL_NODE_HEAD]) == GRAIL_NODE_LOOP &&
            (count == 1 || layout->extent == (int64_t)node[GRAIL_NODE_COUNT] * stride)) {
            side->size = node[GRAIL_NODE_UNIT];
            side->extent = stride;
            side->root = GRAIL_NODE_CHILD(node[GRAIL_NODE_HEAD]);
        }
    }
    d = grail_divisor(side->size, true);
    side->wide_magic = d.magic;
    side->wide_shift = d.shift;
    if (side->size <= GRAIL_LAYOUT_NARROW) {
        d = grail_divisor(side->size, false);
        side->magic = d.magic;
        side->shift = d.shift;
    }
}

/* Bits that displacements of this side may have, buffer address included. */
static uint64_t layout_bits(const grail_layout_t *layout, size_t count, const void *elements)
{
    return layout->alignment | (uintptr_t)elements | (count > 1 ? (uint64_t)layout->extent : 0);
}

typedef struct move {
    grail_move_args_t args;
    unsigned code_used;         /* words of args.code */
    bool table;                 /* some tree is in device memory */
} move_t;

/* Put the side's tree where the kernel finds it. */
static grail_status_t place_tree(move_t *m, grail_side_t *side, grail_layout_t *layout,
                                 grail_stream_t *stream)
{
    bool tables = layout->runs > 1;
    grail_status_t status;
    CUdeviceptr table = 0;

    if (side->root == 0)
        return GRAIL_OK;
    if (layout->words <= GRAIL_MOVE_CODE_WORDS - m->code_used &&
        (!tables || m->args.length <= INLINE_TABLE_PIECE)) {
        memcpy(m->args.code + m->code_used, layout->code, layout->words * sizeof(*layout->code));
        side->first = m->code_used;
        m->code_used += layout->words;
        return GRAIL_OK;
    }
    m->table = true;
    status = device_table(layout, stream, &table);
    if (status == GRAIL_OK)
        side->code = table;
    return status;
}

static const char *choose_kernel(const move_t *m, bool narrow, uint64_t bits, uint32_t *unit)
{
    bool pack = m->args.dst.size == 0, unpack = m->args.src.size == 0;

    *unit = bits == 0 ? 16 : (uint32_t)(bits & -bits) & 31;
    if (*unit == 0 || *unit > 16)
        *unit = 16;
    if (!narrow || *unit < 4)
        return "grail_move_any";
    if (pack)
        return m->table ? "grail_pack_table" : "grail_pack";
    if (unpack)
        return m->table ? "grail_unpack_table" : "grail_unpack";
    return "grail_repack";
}

static grail_status_t launch_move(move_t *m, grail_stream_t *stream, uint64_t bits,
                                  grail_copy_t *op)
{
    uint64_t length = m->args.length, blocks, per_block;
    bool narrow =
        m->args.dst.size <= GRAIL_LAYOUT_NARROW && m->args.src.size <= GRAIL_LAYOUT_NARROW;
    uint32_t unit, batch;
    const char *name = choose_kernel(m, narrow, bits | m->args.offset | length, &unit);
    CUfunction function = grail_gpu_kernel(stream->gpu, name);
    unsigned threads;

    if (function == NULL)
        return GRAIL_ERR_UNSUPPORTED;
    if (strcmp(name, "grail_move_any") == 0) {
        unit = 16;
        batch = 1;
    } else {
        m->args.unit = unit;
        batch = unit == 16 ? GRAIL_MOVE_BATCH16 : GRAIL_MOVE_BATCH;
    }
    threads = round_to_warps(length / unit + 1, GRAIL_MOVE_THREADS);
    per_block = (uint64_t)threads * unit;
    /* short pieces: few words for each of many threads rather than many words for few */
    if (length >= max_blocks(stream) * per_block * 2)
        per_block *= batch;
    blocks = length <= ONE_BLOCK ? 1 : (length + per_block - 1) / per_block;
    return launch(stream, function, name, blocks, threads, &m->args, &m->args.done, op);
}

/* A kernel that touches pageable memory, or memory of another context, ends its context. */
static bool out_of_reach(const grail_gpu_t *gpu, const void *address)
{
    grail_mem_t mem;

    if (grail_mem_query(address, &mem) != GRAIL_OK || mem.kind == GRAIL_MEM_HOST)
        return true;
    return (mem.kind == GRAIL_MEM_DEVICE || mem.kind == GRAIL_MEM_IMPORTED) &&
           mem.context != grail_gpu_context(gpu);
}

/* A side given by the caller: elements of a layout, or (layout NULL) packed memory. */
typedef struct end {
    grail_layout_t *layout;
    size_t count;
    const void *memory;
} end_t;

static grail_status_t place_end(move_t *m, grail_side_t *side, const end_t *end,
                                grail_stream_t *stream, uint64_t *bits)
{
    if (end->layout == NULL) {
        contiguous_side(side, end->memory, m->args.offset);
        *bits |= (uintptr_t)end->memory;
        return GRAIL_OK;
    }
    layout_side(side, end->layout, end->count, end->memory);
    *bits |= layout_bits(end->layout, end->count, end->memory);
    return place_tree(m, side, end->layout, stream);
}

static grail_status_t start(grail_gpu_t *gpu, grail_lane_t lane, const end_t *dst,
                            const end_t *src, size_t offset, size_t length, grail_copy_t *op)
{
    grail_stream_t *stream;
    grail_status_t status;
    uint64_t bits = 0;
    CUresult result;
    move_t m;

    /* asks for any kernel, so that nothing is uploaded where there are none */
    if (!grail_options.pack_kernels || grail_gpu_kernel(gpu, "grail_move_any") == NULL ||
        (dst->layout == NULL && out_of_reach(gpu, dst->memory)) ||
        (src->layout == NULL && out_of_reach(gpu, src->memory)))
        return GRAIL_ERR_UNSUPPORTED;
    stream = grail_stream_pick(gpu, lane);
    if (stream == NULL)
        return GRAIL_ERR_CUDA;
    result = grail_gpu_enter(gpu);
    if (result != CUDA_SUCCESS)
        return grail_cuda_fail(result, "entering the context of a strided buffer");
    m.args.offset = offset;
    m.args.length = length;
    m.args.unit = m.args.reserved = 0;
    m.code_used = 0;
    m.table = false;
    status = place_end(&m, &m.args.dst, dst, stream, &bits);
    if (status == GRAIL_OK)
        status = place_end(&m, &m.args.src, src, stream, &bits);
    if (status == GRAIL_OK)
        status = launch_move(&m, stream, bits, op);
    grail_gpu_leave(gpu);
    return status;
}

/* One block of memory: an ordinary copy is faster. */
static bool is_block(const end_t *end, ptrdiff_t *first)
{
    *first = 0;
    return end->layout == NULL || grail_layout_contiguous(end->layout, end->count, first);
}

static grail_status_t move(grail_gpu_t *gpu, grail_lane_t lane, const end_t *dst, const end_t *src,
                           size_t offset, size_t length, grail_copy_t *op)
{
    ptrdiff_t to, from;

    if (length == 0) {
        memset(op, 0, sizeof(*op));     /* done */
        return GRAIL_OK;
    }
    if (is_block(dst, &to) && is_block(src, &from)) {
        to += dst->layout == NULL ? 0 : (ptrdiff_t)offset;
        from += src->layout == NULL ? 0 : (ptrdiff_t)offset;
        return grail_copy_start(gpu, lane, (char *)dst->memory + to,
                                (const char *)src->memory + from, length, op);
    }
    return start(gpu, lane, dst, src, offset, length, op);
}

grail_status_t grail_pack_start(grail_gpu_t *gpu, grail_lane_t lane, grail_layout_t *layout,
                                size_t count, const void *elements, size_t offset, size_t length,
                                void *packed, grail_copy_t *op)
{
    end_t dst = {.memory = packed}, src = {.layout = layout, .count = count, .memory = elements};

    return move(gpu, lane, &dst, &src, offset, length, op);
}

grail_status_t grail_unpack_start(grail_gpu_t *gpu, grail_lane_t lane, grail_layout_t *layout,
                                  size_t count, void *elements, size_t offset, size_t length,
                                  const void *packed, grail_copy_t *op)
{
    end_t dst = {.layout = layout, .count = count, .memory = elements}, src = {.memory = packed};

    return move(gpu, lane, &dst, &src, offset, length, op);
}

grail_status_t grail_repack_start(grail_gpu_t *gpu, grail_lane_t lane, grail_layout_t *from,
                                  size_t from_count, const void *src, grail_layout_t *to,
                                  size_t to_count, void *dst, size_t length, grail_copy_t *op)
{
    end_t d = {.layout = to, .count = to_count, .memory = dst};
    end_t s = {.layout = from, .count = from_count, .memory = src};

    return move(gpu, lane, &d, &s, 0, length, op);
}
