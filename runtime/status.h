/* SPDX-License-Identifier: BSD-3-Clause */
/* The one status type of libgrail. */
#ifndef GRAIL_RUNTIME_STATUS_H
#define GRAIL_RUNTIME_STATUS_H

#include "runtime/api.h"

/*
 * Convention: the first function that detects a fault logs it (runtime/log.h); callers pass the
 * status on without logging again. Outputs are written only when GRAIL_OK (or, where a header says
 * so, GRAIL_IN_PROGRESS) is returned.
 */
typedef enum grail_status {
    GRAIL_OK = 0,
    GRAIL_IN_PROGRESS = 1,          /* started; completion will be reported later */
    GRAIL_ERR_INVALID = -1,         /* bad argument or option value */
    GRAIL_ERR_NO_MEMORY = -2,       /* host memory exhausted */
    GRAIL_ERR_NO_DEVICE_MEMORY = -3, /* GPU memory exhausted */
    GRAIL_ERR_UNSUPPORTED = -4,     /* not possible here; another path may be */
    GRAIL_ERR_NOT_FOUND = -5,
    GRAIL_ERR_CUDA = -6,            /* a CUDA call or an asynchronous GPU operation failed */
    GRAIL_ERR_TRUNCATED = -7,       /* the message is longer than the receive buffer */
    GRAIL_ERR_CANCELLED = -8,
    GRAIL_ERR_PEER = -9,            /* the peer process is gone or its connection broke */
    GRAIL_ERR_TIMEOUT = -10,
    GRAIL_ERR_IO = -11,             /* an operating-system call failed */
    GRAIL_ERR_CORRUPT = -12,        /* data arrived damaged */
    GRAIL_ERR_BUSY = -13,           /* a bounded resource is used up; try again after progress */
    GRAIL_ERR_STALE = -14           /* a handle names memory that has been freed meanwhile */
} grail_status_t;

/* A short English phrase in static storage, never NULL. */
GRAIL_API const char *grail_status_string(grail_status_t status);

static inline int grail_status_is_error(grail_status_t s)
{
    return s < 0;
}

#endif
