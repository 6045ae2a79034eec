/* SPDX-License-Identifier: BSD-3-Clause */
/* Time since some moment in the past, for measuring intervals. */
#ifndef GRAIL_RUNTIME_CLOCK_H
#define GRAIL_RUNTIME_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds; costs some 25 ns. */
static inline uint64_t grail_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Milliseconds, of the kernel's last tick (1-10 ms old); costs some 5 ns. */
static inline uint64_t grail_clock_coarse_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

#endif
