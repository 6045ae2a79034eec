/* SPDX-License-Identifier: BSD-3-Clause */
/* The wording of every status. */
#include "runtime/status.h"

const char *grail_status_string(grail_status_t status)
{
    switch (status) {
    case GRAIL_OK:
        return "success";
    case GRAIL_IN_PROGRESS:
        return "in progress";
    case GRAIL_ERR_INVALID:
        return "invalid argument";
    case GRAIL_ERR_NO_MEMORY:
        return "out of host memory";
    case GRAIL_ERR_NO_DEVICE_MEMORY:
        return "out of GPU memory";
    case GRAIL_ERR_UNSUPPORTED:
        return "not supported here";
    case GRAIL_ERR_NOT_FOUND:
        return "not found";
    case GRAIL_ERR_CUDA:
        return "a CUDA operation failed";
    case GRAIL_ERR_TRUNCATED:
        return "message longer than the receive buffer";
    case GRAIL_ERR_CANCELLED:
        return "cancelled";
    case GRAIL_ERR_PEER:
        return "peer process gone or unreachable";
    case GRAIL_ERR_TIMEOUT:
        return "timed out";
    case GRAIL_ERR_IO:
        return "an operating-system call failed";
    case GRAIL_ERR_CORRUPT:
        return "data arrived damaged";
    case GRAIL_ERR_BUSY:
        return "resource in use, try again";
    case GRAIL_ERR_STALE:
        return "memory freed while in use";
    }
    return "unknown status";
}
