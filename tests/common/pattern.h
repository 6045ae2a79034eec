/* SPDX-License-Identifier: BSD-3-Clause */
/* Byte patterns for data checks: cheap, dependent on seed and position, never periodic. */
#ifndef GRAIL_TESTS_COMMON_PATTERN_H
#define GRAIL_TESTS_COMMON_PATTERN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/** What memory around and between the payload holds, and must still hold afterwards. */
#define PATTERN_GUARD 0xA5

/* splitmix64's finaliser (Steele, Lea, Flood 2014): every word differs in about half its bits. */
static inline uint64_t pattern_word(uint64_t seed, uint64_t index)
{
    uint64_t x = seed * 0x9E3779B97F4A7C15ull + index + 1;

    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

/** The pattern's byte at position pos. */
static inline unsigned char pattern_byte(uint64_t seed, size_t pos)
{
    return (unsigned char)(pattern_word(seed, pos / 8) >> (8 * (pos % 8)));
}

/** Write bytes [pos, pos + n) of the pattern to dst. */
static inline void pattern_fill(void *dst, uint64_t seed, size_t pos, size_t n)
{
    unsigned char *d = dst;

    while (n > 0 && pos % 8 != 0) {
        *d++ = pattern_byte(seed, pos++);
        n--;
    }
    for (; n >= 8; n -= 8, pos += 8, d += 8) {
        uint64_t w = pattern_word(seed, pos / 8);
        memcpy(d, &w, 8);
    }
    while (n-- > 0)
        *d++ = pattern_byte(seed, pos++);
}

/** Index (from 0) of the first byte of src that differs from the pattern at pos; n if none does. */
static inline size_t pattern_differs(const void *src, uint64_t seed, size_t pos, size_t n)
{
    const unsigned char *s = src;
    size_t i = 0;

    while (i < n && (pos + i) % 8 != 0) {
        if (s[i] != pattern_byte(seed, pos + i))
            return i;
        i++;
    }
    while (n - i >= 8) {
        uint64_t have, want = pattern_word(seed, (pos + i) / 8);
        memcpy(&have, s + i, 8);
        if (have != want)
            break;
        i += 8;
    }
    for (; i < n; i++)
        if (s[i] != pattern_byte(seed, pos + i))
            return i;
    return n;
}

/** Index of the first of n bytes that is not value; n if all are. */
static inline size_t pattern_not_all(const void *src, unsigned char value, size_t n)
{
    const unsigned char *s = src;
    const uint64_t want = 0x0101010101010101ull * value;
    size_t i = 0;

    for (uint64_t have; n - i >= 8; i += 8) {
        memcpy(&have, s + i, 8);
        if (have != want)
            break;
    }
    while (i < n && s[i] == value)
        i++;
    return i;
}

#endif
