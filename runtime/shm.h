/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory shared by processes of one node, private to the user, gone when its last user is gone. */
#ifndef GRAIL_RUNTIME_SHM_H
#define GRAIL_RUNTIME_SHM_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/api.h"
#include "runtime/status.h"

/*
 * A segment is a sealed memfd (F_SEAL_SHRINK | F_SEAL_GROW): it has no name in any file system, is
 * not limited by the size of /dev/shm, cannot shrink under a reader and disappears with its last
 * mapping even after SIGKILL. A peer opens it through /proc/<pid>/fd/<n>, which the kernel allows
 * to the same user only, and then proves by inode, owner and a 128-bit cookie in the segment's
 * first page that it got the segment that was meant (another PID namespace may know another process
 * by the same number).
 */
typedef struct grail_shm_ticket {   /* 48 bytes, position independent; sent to the peer */
    int32_t pid;
    int32_t fd;
    uint64_t inode;
    uint64_t size;                  /* usable bytes, without the header page */
    uint8_t cookie[16];
    uint32_t uid;
    uint32_t reserved;
} grail_shm_ticket_t;

typedef struct grail_shm {
    void *base;                     /* first usable byte, page aligned */
    size_t size;
    int fd;                         /* owner only, else -1 */
    void *map;                      /* whole mapping with its header page */
    grail_shm_ticket_t ticket;
} grail_shm_t;

/* All zero-filled. Errors: GRAIL_ERR_NO_MEMORY, GRAIL_ERR_IO (logged). */
GRAIL_API grail_status_t grail_shm_create(size_t size, grail_shm_t *shm);

/* GRAIL_ERR_UNSUPPORTED (not logged above debug level) when the peer's memory cannot be reached
 * from here: other user, PID namespace, hidepid, no /proc; `why` gets a lasting reason. */
GRAIL_API grail_status_t grail_shm_attach(const grail_shm_ticket_t *ticket, grail_shm_t *shm,
                                          const char **why);

/* Unmaps; the owner's descriptor is closed. Safe on a zeroed structure. */
GRAIL_API void grail_shm_detach(grail_shm_t *shm);

#endif
