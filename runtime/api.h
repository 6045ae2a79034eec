/* SPDX-License-Identifier: BSD-3-Clause */
/* Visibility of libgrail's entry points: everything else in the library is hidden. */
#ifndef GRAIL_RUNTIME_API_H
#define GRAIL_RUNTIME_API_H

#define GRAIL_API __attribute__((visibility("default")))

#define GRAIL_LIKELY(x)   __builtin_expect(!!(x), 1)
#define GRAIL_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define GRAIL_PRINTF(f, a) __attribute__((format(printf, f, a)))

#define GRAIL_CONTAINER_OF(ptr, type, member) \
    ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

#endif
