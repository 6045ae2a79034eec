/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels that copy, pack and unpack, and report their end themselves. */
#include "cuda-aware/kernels/bytes.h"

/*
 * All bytes are stored: the last block tells the host. One thread's release at system scope orders
 * the stores of the whole block, because the barrier orders them before it (causality order of the
 * PTX memory model is transitive), and those of the blocks that it has seen in the counter. The
 * counter works at the scope of the GPU: fences at system scope cost half a microsecond each.
 */
GRAIL_DEVICE_FN void grail_finish(const grail_done_t *done)
{
#ifdef __CUDACC__
    GRAIL_SYNC_BLOCK();
    if (threadIdx.x != 0)
        return;
#else
    /* the simulator runs a block's threads in their order: no need for one host thread each */
    if (threadIdx.x != blockDim.x - 1)
        return;
#endif
    if (gridDim.x > 1) {
        if (grail_add32_acq_rel_gpu(done->counter, 1) != gridDim.x - 1)
            return;
        GRAIL_ST_VOLATILE(uint32_t, done->counter, 0);
    }
    grail_st32_release(done->word, done->ticket);
}

/* ---- whole words, everything aligned to them ---- */

GRAIL_DEVICE_FN uint64_t grail_load(grail_dptr_t at, uint32_t unit)
{
    if (unit == 8)
        return GRAIL_LD(uint64_t, at);
    return GRAIL_LD(uint32_t, at);
}

GRAIL_DEVICE_FN void grail_store(grail_dptr_t at, uint64_t word, uint32_t unit)
{
    if (unit == 8)
        GRAIL_ST(uint64_t, at, word);
    else
        GRAIL_ST(uint32_t, at, (uint32_t)word);
}

/*
 * A tile is a batch of words for each thread of a block, a block's threads side by side, so that
 * neighbours in the packed order move together. No load may pass a store: all loads of a batch come
 * first, and the destination's addresses are worked out while they are under way.
 */
#define GRAIL_DEFINE_WORDS(name, word_t, batch, load, store)                                       \
    GRAIL_DEVICE_FN void name(const grail_move_args_t *args, int dst_how, int src_how)             \
    {                                                                                              \
        const uint32_t step = (uint32_t)blockDim.x * args->unit;                                   \
        const uint64_t tile_bytes = (uint64_t)step * batch;                                        \
        for (uint64_t x = blockIdx.x * tile_bytes; x < args->length;                               \
             x += gridDim.x * tile_bytes) {                                                        \
            uint64_t left = args->length - x;                                                      \
            uint32_t n = (uint32_t)(left < tile_bytes ? left : tile_bytes);                        \
            uint32_t d = (uint32_t)threadIdx.x * args->unit;                                       \
            grail_tile_t dst = grail_tile(&args->dst, dst_how, args->offset + x);                  \
            grail_tile_t src = grail_tile(&args->src, src_how, args->offset + x);                  \
            word_t word[batch];                                                                    \
            for (int i = 0; i < batch; i++) {                                                      \
                if (d + i * step < n)                                                              \
                    word[i] = load(grail_address(args, &args->src, src_how, &src, d + i * step));  \
            }                                                                                      \
            for (int i = 0; i < batch; i++) {                                                      \
                if (d + i * step < n)                                                              \
                    store(grail_address(args, &args->dst, dst_how, &dst, d + i * step), word[i]);  \
            }                                                                                      \
        }                                                                                          \
    }

#define GRAIL_LOAD_UNIT(at) grail_load(at, args->unit)
#define GRAIL_STORE_UNIT(at, word) grail_store(at, word, args->unit)
GRAIL_DEFINE_WORDS(grail_move_words, uint64_t, GRAIL_MOVE_BATCH, GRAIL_LOAD_UNIT, GRAIL_STORE_UNIT)
#define GRAIL_LOAD16(at) GRAIL_LD(grail_v16_t, at)
#define GRAIL_STORE16(at, word) GRAIL_ST(grail_v16_t, at, word)
GRAIL_DEFINE_WORDS(grail_move_words16, grail_v16_t, GRAIL_MOVE_BATCH16, GRAIL_LOAD16, GRAIL_STORE16)

#ifdef __CUDACC__
#define GRAIL_MOVE_KERNEL(name, args_type, args)                                                   \
    extern "C" __global__ void __launch_bounds__(GRAIL_MOVE_THREADS) name(const args_type args)
#else
#define GRAIL_MOVE_KERNEL GRAIL_KERNEL
#endif

/* two walks in flight need twice the registers, and their code is the largest */
GRAIL_DEFINE_WORDS(grail_move_few, uint64_t, GRAIL_REPACK_BATCH, GRAIL_LOAD_UNIT, GRAIL_STORE_UNIT)
GRAIL_DEFINE_WORDS(grail_move_few16, grail_v16_t, GRAIL_REPACK_BATCH, GRAIL_LOAD16, GRAIL_STORE16)

#define GRAIL_DEFINE_MOVE(name, dst_how, src_how)                                                  \
    GRAIL_MOVE_KERNEL(name, grail_move_args_t, args)                                               \
    {                                                                                              \
        if (args.unit == 16)                                                                       \
            grail_move_words16(&args, dst_how, src_how);                                           \
        else                                                                                       \
            grail_move_words(&args, dst_how, src_how);                                             \
        grail_finish(&args.done);                                                                  \
    }

GRAIL_DEFINE_MOVE(grail_pack, GRAIL_CONTIGUOUS, GRAIL_CODE_INLINE)
GRAIL_DEFINE_MOVE(grail_pack_table, GRAIL_CONTIGUOUS, GRAIL_CODE_ANYWHERE)
GRAIL_DEFINE_MOVE(grail_unpack, GRAIL_CODE_INLINE, GRAIL_CONTIGUOUS)
GRAIL_DEFINE_MOVE(grail_unpack_table, GRAIL_CODE_ANYWHERE, GRAIL_CONTIGUOUS)

GRAIL_MOVE_KERNEL(grail_repack, grail_move_args_t, args)
{
    if (args.unit == 16)
        grail_move_few16(&args, GRAIL_CODE_ANYWHERE, GRAIL_CODE_ANYWHERE);
    else
        grail_move_few(&args, GRAIL_CODE_ANYWHERE, GRAIL_CODE_ANYWHERE);
    grail_finish(&args.done);
}

/* ---- any alignment ---- */

/* Bytes [x, x + n) of the packed order, wherever they are on a side. */
GRAIL_DEVICE_FN grail_v16_t grail_gather(const grail_move_args_t *args, const grail_side_t *side,
                                         uint64_t x, uint32_t n)
{
    grail_v16_t v = {0, 0};
    uint32_t got = 0;

    while (got < n) {
        grail_spot_t spot = grail_locate(args, side, x + got);
        uint32_t part = spot.left < n - got ? (uint32_t)spot.left : n - got;

        grail_insert(&v, got, grail_fetch(spot, part));
        got += part;
    }
    return v;
}

/*
 * Each thread owns those destination units (16 aligned bytes, or what a block has of them at its
 * ends) that begin in its 16 bytes of the packed order. Stores are whole wherever a block is.
 */
GRAIL_MOVE_KERNEL(grail_move_any, grail_move_args_t, args)
{
    const uint64_t end_of_all = args.offset + args.length;

    for (uint64_t c = GRAIL_THREAD_ID * 16; c < args.length; c += GRAIL_THREAD_COUNT * 16) {
        uint64_t x = args.offset + c;
        uint64_t end = end_of_all - x < 16 ? end_of_all : x + 16;

        while (x < end) {
            grail_spot_t spot = grail_locate(&args, &args.dst, x);
            uint32_t unit = 16 - ((uint32_t)spot.at & 15);

            if (unit > spot.left)
                unit = (uint32_t)spot.left;
            /* otherwise the unit began before these 16 bytes: another thread's */
            if (spot.into == 0 || (spot.at & 15) == 0)
                grail_put(spot.at, grail_gather(&args, &args.src, x, unit), unit);
            x += unit;
        }
    }
    grail_finish(&args.done);
}

/* ---- contiguous copy ---- */

GRAIL_MOVE_KERNEL(grail_copy, grail_copy_args_t, args)
{
    grail_copy_bytes(args.dst, args.src, args.length, GRAIL_THREAD_ID, GRAIL_THREAD_COUNT);
    grail_finish(&args.done);
}
