/* SPDX-License-Identifier: BSD-3-Clause */
/* Device functions that read and write bytes of any alignment, whole words wherever possible. */
#ifndef GRAIL_CUDA_AWARE_KERNELS_BYTES_H
#define GRAIL_CUDA_AWARE_KERNELS_BYTES_H

#include "cuda-aware/kernels/walk.h"

/* Up to 16 bytes in the low end of two words. */
GRAIL_DEVICE_FN void grail_insert(grail_v16_t *to, uint32_t at, grail_v16_t bytes)
{
    uint32_t shift = 8 * (at & 7);

    if (at >= 8) {
        to->hi |= bytes.lo << shift;
        return;
    }
    to->lo |= bytes.lo << shift;
    to->hi |= bytes.hi << shift;
    if (shift != 0)
        to->hi |= bytes.lo >> (64 - shift);
}

GRAIL_DEVICE_FN uint64_t grail_low_bytes(uint64_t word, uint32_t n)
{
    return n >= 8 ? word : word & (((uint64_t)1 << (8 * n)) - 1);
}

/* Widest access at `at` for at most n bytes: 1, 2, 4 or 8. */
GRAIL_DEVICE_FN uint32_t grail_width(grail_dptr_t at, uint32_t n)
{
    uint32_t width = 8;

    while (width > n || (at & (width - 1)) != 0)
        width >>= 1;
    return width;
}

/* The n <= 16 bytes at a place, of a block of which at least n are left. */
GRAIL_DEVICE_FN grail_v16_t grail_fetch(grail_spot_t spot, uint32_t n)
{
    uint32_t skew = (uint32_t)spot.at & 7, done = 0;
    grail_v16_t v = {0, 0};

    if (n == 16 && (spot.at & 15) == 0)
        return GRAIL_LD(grail_v16_t, spot.at);
    /* whole words around, if they belong to the block: others must not be touched */
    if (n > 1 && spot.into >= skew && spot.left + skew >= ((n + skew + 7u) & ~7u)) {
        grail_dptr_t at = spot.at - skew;
        uint64_t first = GRAIL_LD(uint64_t, at);
        uint64_t second = n + skew > 8 ? GRAIL_LD(uint64_t, at + 8) : 0;
        uint64_t third = n + skew > 16 ? GRAIL_LD(uint64_t, at + 16) : 0;

        v.lo = first >> (8 * skew);
        v.hi = second >> (8 * skew);
        if (skew != 0) {
            v.lo |= second << (64 - 8 * skew);
            v.hi |= third << (64 - 8 * skew);
        }
        v.lo = grail_low_bytes(v.lo, n);
        v.hi = n <= 8 ? 0 : grail_low_bytes(v.hi, n - 8);
        return v;
    }
    while (done < n) {
        uint32_t width = grail_width(spot.at + done, n - done);
        grail_v16_t piece = {0, 0};

        if (width == 8)
            piece.lo = GRAIL_LD(uint64_t, spot.at + done);
        else if (width == 4)
            piece.lo = GRAIL_LD(uint32_t, spot.at + done);
        else if (width == 2)
            piece.lo = GRAIL_LD(uint16_t, spot.at + done);
        else
            piece.lo = GRAIL_LD(uint8_t, spot.at + done);
        grail_insert(&v, done, piece);
        done += width;
    }
    return v;
}

GRAIL_DEVICE_FN void grail_put(grail_dptr_t at, grail_v16_t v, uint32_t n)
{
    if (n == 16 && (at & 15) == 0) {
        GRAIL_ST(grail_v16_t, at, v);
        return;
    }
    while (n > 0) {
        uint32_t width = grail_width(at, n);

        if (width == 8) {
            GRAIL_ST(uint64_t, at, v.lo);
            v.lo = v.hi;
            v.hi = 0;
        } else {
            if (width == 4)
                GRAIL_ST(uint32_t, at, (uint32_t)v.lo);
            else if (width == 2)
                GRAIL_ST(uint16_t, at, (uint16_t)v.lo);
            else
                GRAIL_ST(uint8_t, at, (uint8_t)v.lo);
            v.lo = v.lo >> (8 * width) | v.hi << (64 - 8 * width);
            v.hi >>= 8 * width;
        }
        at += width;
        n -= width;
    }
}

/* Contiguous bytes, any alignment, by thread `id` of `count` (at least 16) that all call this. */
GRAIL_DEVICE_FN void grail_copy_bytes(grail_dptr_t dst, grail_dptr_t src, uint64_t length,
                                      uint64_t id, uint64_t count)
{
    const uint64_t stride = count * 16;

    if (((dst | src) & 15) == 0) {
        uint64_t whole = length & ~(uint64_t)15, x = id * 16;

        for (; x + 3 * stride < whole; x += 4 * stride) {
            grail_v16_t a = GRAIL_LD(grail_v16_t, src + x);
            grail_v16_t b = GRAIL_LD(grail_v16_t, src + x + stride);
            grail_v16_t c = GRAIL_LD(grail_v16_t, src + x + 2 * stride);
            grail_v16_t d = GRAIL_LD(grail_v16_t, src + x + 3 * stride);

            GRAIL_ST(grail_v16_t, dst + x, a);
            GRAIL_ST(grail_v16_t, dst + x + stride, b);
            GRAIL_ST(grail_v16_t, dst + x + 2 * stride, c);
            GRAIL_ST(grail_v16_t, dst + x + 3 * stride, d);
        }
        if (x < whole) {    /* up to three more, under way together as well */
            int two = x + stride < whole, three = x + 2 * stride < whole;
            grail_v16_t a = GRAIL_LD(grail_v16_t, src + x), b = a, c = a;

            if (two)
                b = GRAIL_LD(grail_v16_t, src + x + stride);
            if (three)
                c = GRAIL_LD(grail_v16_t, src + x + 2 * stride);
            GRAIL_ST(grail_v16_t, dst + x, a);
            if (two)
                GRAIL_ST(grail_v16_t, dst + x + stride, b);
            if (three)
                GRAIL_ST(grail_v16_t, dst + x + 2 * stride, c);
        }
        x = whole + id;
        if (x < length)
            GRAIL_ST(uint8_t, dst + x, GRAIL_LD(uint8_t, src + x));
    } else {
        /* units of 16 aligned destination bytes; the first may be short */
        uint32_t skew = (uint32_t)dst & 15;

        for (uint64_t x = id * 16; x < length + skew; x += stride) {
            uint64_t from = x < skew ? 0 : x - skew;
            uint64_t to = x + 16 - skew < length ? x + 16 - skew : length;
            grail_spot_t spot;

            spot.at = src + from;
            spot.into = from;
            spot.left = length - from;
            if (to > from)
                grail_put(dst + from, grail_fetch(spot, (uint32_t)(to - from)),
                          (uint32_t)(to - from));
        }
    }
}

#endif
