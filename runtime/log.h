/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages to the user: one line each, to stderr, prefixed "[grail host:rank] level: ". */
#ifndef GRAIL_RUNTIME_LOG_H
#define GRAIL_RUNTIME_LOG_H

#include <stdbool.h>

#include "runtime/api.h"

typedef enum grail_log_level {
    GRAIL_LOG_ERROR,
    GRAIL_LOG_WARN,
    GRAIL_LOG_INFO,
    GRAIL_LOG_DEBUG,
    GRAIL_LOG_TRACE
} grail_log_level_t;

/* Current threshold (option "verbose"); read without synchronisation. */
GRAIL_API extern grail_log_level_t grail_log_threshold;

/* Name this process in the prefix; rank < 0 means "no rank". Copies nothing but the number. */
GRAIL_API void grail_log_identify(int rank);

/* Thread-safe; one write(2) per line, so lines of several processes do not mix. */
GRAIL_API void grail_log_write(grail_log_level_t level, const char *format, ...) GRAIL_PRINTF(2, 3);

/* True the first time it is called with this key (a string literal or other lasting string). */
GRAIL_API bool grail_log_first_time(const char *key);

#define grail_log_enabled(level) GRAIL_UNLIKELY((level) <= grail_log_threshold)

#define grail_error(...) grail_log_write(GRAIL_LOG_ERROR, __VA_ARGS__)
#define grail_warn(...)  do { if (grail_log_enabled(GRAIL_LOG_WARN)) \
                                  grail_log_write(GRAIL_LOG_WARN, __VA_ARGS__); } while (0)
#define grail_info(...)  do { if (grail_log_enabled(GRAIL_LOG_INFO)) \
                                  grail_log_write(GRAIL_LOG_INFO, __VA_ARGS__); } while (0)
#define grail_debug(...) do { if (grail_log_enabled(GRAIL_LOG_DEBUG)) \
                                  grail_log_write(GRAIL_LOG_DEBUG, __VA_ARGS__); } while (0)
#define grail_trace(...) do { if (grail_log_enabled(GRAIL_LOG_TRACE)) \
                                  grail_log_write(GRAIL_LOG_TRACE, __VA_ARGS__); } while (0)
#define grail_warn_once(key, ...) \
    do { if (grail_log_first_time(key)) grail_warn(__VA_ARGS__); } while (0)

#endif
