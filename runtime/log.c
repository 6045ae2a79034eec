/* SPDX-License-Identifier: BSD-3-Clause */
/* One write(2) per line of log, and the memory of what was said once already. */
#include "runtime/log.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 2048, RANK_UNKNOWN = -2 };

grail_log_level_t grail_log_threshold = GRAIL_LOG_WARN;

static atomic_int log_rank = RANK_UNKNOWN;
static char log_host[HOST_NAME_MAX + 1];
static pthread_once_t log_once = PTHREAD_ONCE_INIT;

static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER;
static const char **seen_keys;
static size_t seen_count;
static size_t seen_capacity;

static int rank_from_launcher(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        const char *text = getenv(names[i]);
        char *end;

        if (text == NULL || *text == '\0')
            continue;
        errno = 0;
        long rank = strtol(text, &end, 10);
        if (errno == 0 && *end == '\0' && rank >= 0 && rank <= INT_MAX)
            return (int)rank;
    }
    return -1;
}

static void find_origin(void)
{
    int unknown = RANK_UNKNOWN;

    if (gethostname(log_host, sizeof(log_host)) != 0)
        strcpy(log_host, "unknown");
    log_host[sizeof(log_host) - 1] = '\0';
    char *dot = strchr(log_host, '.');
    if (dot != NULL && dot != log_host)
        *dot = '\0';
    atomic_compare_exchange_strong(&log_rank, &unknown, rank_from_launcher());
}

void grail_log_identify(int rank)
{
    atomic_store(&log_rank, rank < 0 ? -1 : rank);
}

static void write_all(const char *text, size_t length)
{
    while (length > 0) {
        ssize_t n = write(STDERR_FILENO, text, length);

        if (n < 0) {
            if (errno == EINTR)
                continue;
            return;
        }
        text += n;
        length -= (size_t)n;
    }
}

void grail_log_write(grail_log_level_t level, const char *format, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug", "trace"};
    char line[LINE_MAX_BYTES];
    const size_t room = sizeof(line) - 1;   /* the newline is added last */
    int saved_errno = errno;
    size_t length;
    va_list args;
    int n;

    if ((unsigned)level >= sizeof(names) / sizeof(names[0]))
        level = GRAIL_LOG_TRACE;
    pthread_once(&log_once, find_origin);
    int rank = atomic_load(&log_rank);
    if (rank >= 0)
        n = snprintf(line, room, "[grail %s:%d] %s: ", log_host, rank, names[level]);
    else
        n = snprintf(line, room, "[grail %s] %s: ", log_host, names[level]);
    length = (size_t)n;

    va_start(args, format);
    errno = saved_errno;    /* for %m */
    n = vsnprintf(line + length, room - length, format, args);
    va_end(args);
    if (n < 0) {
        n = 0;
    } else if ((size_t)n >= room - length) {
        n = (int)(room - length - 1);
        memcpy(line + length + n - 3, "...", 3);
    }
    for (char *p = line + length; p < line + length + n; ++p) {
        if (*p == '\n' || *p == '\r')
            *p = ' ';
    }
    length += (size_t)n;
    while (length > 0 && line[length - 1] == ' ')
        --length;
    line[length++] = '\n';
    write_all(line, length);
    errno = saved_errno;
}

bool grail_log_first_time(const char *key)
{
    bool first = true;

    pthread_mutex_lock(&seen_lock);
    for (size_t i = 0; i < seen_count && first; ++i)
        first = strcmp(seen_keys[i], key) != 0;
    if (first) {
        if (seen_count == seen_capacity) {
            size_t capacity = seen_capacity ? 2 * seen_capacity : 32;
            const char **keys = realloc(seen_keys, capacity * sizeof(*keys));

            if (keys != NULL) {
                seen_keys = keys;
                seen_capacity = capacity;
            }
        }
        /* without memory the line may be said twice, which beats not at all */
        if (seen_count < seen_capacity)
            seen_keys[seen_count++] = key;
    }
    pthread_mutex_unlock(&seen_lock);
    return first;
}
