/* SPDX-License-Identifier: BSD-3-Clause */
/* Sealed memfds, and how a peer finds, checks and maps them. */
#include "runtime/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/log.h"

#define SHM_MAGIC UINT64_C(0x3130534c49415247)  /* "GRAILS01" */

enum { SHM_SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

/* At the start of the first page, written once before the ticket is handed out. */
typedef struct shm_header {
    uint64_t magic;
    uint64_t size;
    uint8_t cookie[16];
} shm_header_t;

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* 0 when the sum overflows. */
static size_t mapping_size(size_t size)
{
    size_t page = page_size();

    return size > SIZE_MAX / 2 ? 0 : ((size + page - 1) & ~(page - 1)) + page;
}

static grail_status_t fault(const char *what, size_t size, int error)
{
    bool memory = error == ENOMEM || error == ENOSPC || error == EFBIG;

    grail_error("a shared segment of %zu bytes: %s failed: %s%s", size, what, strerror(error),
                memory ? "; free host memory, or raise the job's memory limit (cgroup, ulimit -v)"
                : error == EMFILE || error == ENFILE ? "; raise the limit of open files (ulimit -n)"
                : "");
    return memory ? GRAIL_ERR_NO_MEMORY : GRAIL_ERR_IO;
}

grail_status_t grail_shm_create(size_t size, grail_shm_t *shm)
{
    size_t total = mapping_size(size);
    grail_shm_t made = {.size = size};
    shm_header_t *header;
    grail_status_t status;
    struct stat st;

    if (size == 0 || total == 0) {
        grail_error("internal: a shared segment of %zu bytes was asked for", size);
        return GRAIL_ERR_INVALID;
    }
    made.fd = memfd_create("grail", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made.fd < 0)
        return fault("memfd_create", size, errno);
    if (ftruncate(made.fd, (off_t)total) != 0) {
        status = fault("ftruncate", size, errno);
        goto close_fd;
    }
    if (fcntl(made.fd, F_ADD_SEALS, SHM_SEALS) != 0) {
        status = fault("sealing", size, errno);
        goto close_fd;
    }
    made.map = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd, 0);
    if (made.map == MAP_FAILED) {
        status = fault("mmap", size, errno);
        goto close_fd;
    }
    if (fstat(made.fd, &st) != 0) {
        status = fault("fstat", size, errno);
        goto unmap;
    }
    if (getrandom(made.ticket.cookie, sizeof(made.ticket.cookie), 0) !=
        (ssize_t)sizeof(made.ticket.cookie)) {
        status = fault("getrandom", size, errno);
        goto unmap;
    }
    made.base = (char *)made.map + page_size();
    made.ticket.pid = (int32_t)getpid();
    made.ticket.fd = made.fd;
    made.ticket.inode = (uint64_t)st.st_ino;
    made.ticket.size = size;
    made.ticket.uid = (uint32_t)geteuid();
    header = made.map;
    header->magic = SHM_MAGIC;
    header->size = size;
    memcpy(header->cookie, made.ticket.cookie, sizeof(header->cookie));
    *shm = made;
    return GRAIL_OK;

unmap:
    munmap(made.map, total);
close_fd:
    close(made.fd);
    return status;
}

static const char *open_reason(int error)
{
    switch (error) {
    case ENOENT:
        return "the peer's process is not visible here (another PID namespace or container, or it"
               " has ended); run the ranks of a node in one PID namespace";
    case EACCES:
    case EPERM:
        return "the peer's /proc entry is closed to this process (another user, hidepid, or a"
               " process that may not be traced)";
    case EMFILE:
    case ENFILE:
        return "too many open files; raise ulimit -n";
    default:
        return "the peer's segment cannot be opened through /proc";
    }
}

/* Is the file behind `fd` the segment that the ticket means? Checked before it is mapped. */
static const char *check_file(int fd, const grail_shm_ticket_t *ticket, size_t total)
{
    static const char other[] = "the process of that number is not the peer (another PID"
                                " namespace); run the ranks of a node in one PID namespace";
    struct stat st;

    if (fstat(fd, &st) != 0)
        return "the peer's segment cannot be examined";
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_ino != ticket->inode ||
        st.st_size != (off_t)total)
        return other;
    if (st.st_uid != geteuid() || ticket->uid != (uint32_t)geteuid())
        return "the peer's segment belongs to another user";
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SHM_SEALS) != SHM_SEALS)
        return other;
    return NULL;
}

static bool header_is_right(const shm_header_t *header, const grail_shm_ticket_t *ticket)
{
    return header->magic == SHM_MAGIC && header->size == ticket->size &&
           memcmp(header->cookie, ticket->cookie, sizeof(header->cookie)) == 0;
}

grail_status_t grail_shm_attach(const grail_shm_ticket_t *ticket, grail_shm_t *shm,
                                const char **why)
{
    size_t total = ticket->size <= SIZE_MAX ? mapping_size((size_t)ticket->size) : 0;
    const char *reason = NULL;
    void *map = MAP_FAILED;
    char path[64];
    int fd = -1;

    if (ticket->pid <= 0 || ticket->fd < 0 || ticket->size == 0 || total == 0) {
        reason = "the peer's ticket is damaged";
        goto refuse;
    }
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)ticket->pid, (int)ticket->fd);
    /* what is behind the number may be anything, if it is another process: do not wait for it,
     * nor let it become the controlling terminal */
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        reason = open_reason(errno);
        goto refuse;
    }
    reason = check_file(fd, ticket, total);
    if (reason != NULL)
        goto refuse;
    map = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        reason = errno == ENOMEM ? "no address space or memory left to map the peer's segment"
                                 : "the peer's segment cannot be mapped";
        goto refuse;
    }
    if (!header_is_right(map, ticket)) {
        reason = "the segment found is not the peer's (another PID namespace)";
        munmap(map, total);
        goto refuse;
    }
    close(fd);
    *shm = (grail_shm_t){
        .base = (char *)map + page_size(),
        .size = (size_t)ticket->size,
        .fd = -1,
        .map = map,
        .ticket = *ticket,
    };
    return GRAIL_OK;

refuse:
    if (fd >= 0)
        close(fd);
    grail_debug("shared segment of process %d: %s", (int)ticket->pid, reason);
    if (why != NULL)
        *why = reason;
    return GRAIL_ERR_UNSUPPORTED;
}

void grail_shm_detach(grail_shm_t *shm)
{
    if (shm->map == NULL)
        return;
    munmap(shm->map, mapping_size(shm->size));
    if (shm->fd >= 0)
        close(shm->fd);
    *shm = (grail_shm_t){.fd = -1};
}
