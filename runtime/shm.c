/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared segments as sealed memfds, opened by peers through /proc. */
#include "runtime/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/log.h"

enum { HEADER = 4096, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/* The first page: proves to a peer that it has opened the right segment. */
typedef struct header {
    uint8_t cookie[16];
    uint64_t size;
} header_t;

static grail_status_t fail(const char *step, size_t size)
{
    int reason = errno;

    grail_error("%s for a shared segment of %zu bytes failed: %s", step, size, strerror(reason));
    return reason == ENOMEM || reason == EMFILE || reason == ENFILE ? GRAIL_ERR_NO_MEMORY
                                                                   : GRAIL_ERR_IO;
}

grail_status_t grail_shm_create(size_t size, grail_shm_t *shm)
{
    grail_shm_ticket_t ticket = {.pid = getpid(), .uid = geteuid(), .size = size};
    struct stat info;
    grail_status_t status;
    header_t *header;
    void *map;
    int fd = memfd_create("grail", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return fail("memfd_create", size);
    if (ftruncate(fd, (off_t)(HEADER + size)) != 0 || fchmod(fd, S_IRUSR | S_IWUSR) != 0 ||
        fcntl(fd, F_ADD_SEALS, SEALS) != 0 || fstat(fd, &info) != 0 ||
        getrandom(ticket.cookie, sizeof(ticket.cookie), 0) != sizeof(ticket.cookie)) {
        status = fail("preparing memory", size);
        goto close_fd;
    }
    map = mmap(NULL, HEADER + size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        status = fail("mmap", size);
        goto close_fd;
    }
    header = map;
    header->size = size;
    memcpy(header->cookie, ticket.cookie, sizeof(header->cookie));
    ticket.fd = fd;
    ticket.inode = info.st_ino;
    *shm = (grail_shm_t){
        .base = (char *)map + HEADER, .size = size, .fd = fd, .map = map, .ticket = ticket};
    return GRAIL_OK;

close_fd:
    close(fd);
    return status;
}

static const char *open_reason(int error)
{
    switch (error) {
    case ENOENT:
        return "the peer's /proc entry is not visible here: run both processes in one PID "
               "namespace (one container, or --pid=host)";
    case EACCES:
    case EPERM:
        return "the kernel refuses access to the peer's /proc entry: run both processes as one "
               "user, in one user namespace, without hidepid";
    default:
        return "the peer's shared segment cannot be opened through /proc";
    }
}

grail_status_t grail_shm_attach(const grail_shm_ticket_t *ticket, grail_shm_t *shm,
                                const char **why)
{
    static const char *const other =
        "another process answers under the peer's PID: run both processes in one PID namespace "
        "(one container, or --pid=host)";
    char path[64];
    struct stat info;
    const header_t *header;
    void *map;
    int fd, seals;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)ticket->pid, (int)ticket->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        *why = open_reason(errno);
        grail_debug("%s: %s", path, strerror(errno));
        return GRAIL_ERR_UNSUPPORTED;
    }
    /* Whatever else is behind that number: it must be the sealed memfd of this user. */
    seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &info) != 0 || info.st_ino != ticket->inode || info.st_uid != ticket->uid ||
        seals < 0 || (seals & SEALS) != SEALS || (uint64_t)info.st_size != HEADER + ticket->size) {
        close(fd);
        *why = other;
        return GRAIL_ERR_UNSUPPORTED;
    }
    map = mmap(NULL, HEADER + ticket->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) {
        *why = "no address space for the peer's shared segment";
        return GRAIL_ERR_UNSUPPORTED;
    }
    header = map;
    if (header->size != ticket->size ||
        memcmp(header->cookie, ticket->cookie, sizeof(header->cookie)) != 0) {
        munmap(map, HEADER + ticket->size);
        *why = other;
        return GRAIL_ERR_UNSUPPORTED;
    }
    *shm = (grail_shm_t){.base = (char *)map + HEADER,
                         .size = ticket->size,
                         .fd = -1,
                         .map = map,
                         .ticket = *ticket};
    return GRAIL_OK;
}

void grail_shm_detach(grail_shm_t *shm)
{
    if (shm->map == NULL)
        return;
    munmap(shm->map, HEADER + shm->size);
    if (shm->fd >= 0)
        close(shm->fd);
    memset(shm, 0, sizeof(*shm));
    shm->fd = -1;
}
