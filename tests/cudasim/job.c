/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much memory of each device is in use. The processes of a job (CUDASIM_JOB, else the MPI job
 * that the launcher names) share a small file of counters, one slot per process, so that they run
 * out of memory together; slots of dead processes do not count, and the last process removes the
 * file. Without a job each process has the devices' memory for itself.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cudasim/sim.h"

#define SLOTS 128

typedef struct slot {
    int64_t pid; /* 0: free */
    uint64_t start_time;
    uint64_t used[SIM_MAX_DEVICES];
} slot_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static slot_t alone; /* without a job */
static slot_t *slots; /* shared, or &alone */
static int slot_count, lock_fd = -1;
static slot_t *mine;
static char path[256];
static pid_t owner;

uint64_t sim_process_start_time(pid_t pid)
{
    char name[64], text[1024];
    snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    if (n <= 0) {
        return 0;
    }
    text[n] = '\0';
    /* The command's name, in parentheses, may hold anything; the start time is field 22. */
    const char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

static void file_lock(int how)
{
    while (lock_fd >= 0 && flock(lock_fd, how) != 0 && errno == EINTR) {
    }
}

static bool dead(const slot_t *slot)
{
    return slot->pid == 0 || sim_process_start_time((pid_t)slot->pid) != slot->start_time;
}

static void leave_job(void)
{
    if (owner != getpid() || slots == &alone) {
        return;
    }
    bool last = true;
    file_lock(LOCK_EX);
    memset(mine, 0, sizeof(*mine));
    for (int i = 0; i < slot_count && last; i++) {
        last = dead(&slots[i]);
    }
    if (last) {
        unlink(path);
    }
    file_lock(LOCK_UN);
}

static const char *job_name(void)
{
    const char *name = getenv("CUDASIM_JOB");
    if (name == NULL || *name == '\0') {
        name = getenv("PMIX_NAMESPACE");
    }
    return name != NULL && *name != '\0' && strchr(name, '/') == NULL ? name : NULL;
}

/** Opens the file so that it is not one that its last user has just removed. */
static int open_job_file(void)
{
    for (int tries = 0; tries < 100; tries++) {
        struct stat opened, named;
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0) {
            return -1;
        }
        while (flock(fd, LOCK_EX) != 0 && errno == EINTR) {
        }
        if (fstat(fd, &opened) == 0 && stat(path, &named) == 0 && opened.st_ino == named.st_ino &&
            opened.st_uid == getuid()) {
            return fd;
        }
        close(fd);
    }
    return -1;
}

static slot_t *take_slot(void)
{
    for (int i = 0; i < slot_count; i++) {
        if (dead(&slots[i])) {
            memset(&slots[i], 0, sizeof(slots[i]));
            return &slots[i];
        }
    }
    return NULL;
}

/** Removes files of jobs that were killed before their last process could. */
static void sweep(const char *dir, const char *prefix)
{
    DIR *handle = opendir(dir);
    for (struct dirent *entry; handle != NULL && (entry = readdir(handle)) != NULL;) {
        char name[512];
        slot_t slot;
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0) {
            continue;
        }
        snprintf(name, sizeof(name), "%s/%s", dir, entry->d_name);
        int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) {
            continue;
        }
        bool unused = flock(fd, LOCK_EX | LOCK_NB) == 0;
        while (unused && read(fd, &slot, sizeof(slot)) == (ssize_t)sizeof(slot)) {
            unused = dead(&slot);
        }
        if (unused) {
            unlink(name);
        }
        close(fd);
    }
    if (handle != NULL) {
        closedir(handle);
    }
}

/** Called with the lock held, at the first use. */
static void join_job(void)
{
    const char *name = job_name();
    const char *dir = getenv("TMPDIR");
    slots = &alone;
    slot_count = 1;
    mine = &alone;
    owner = getpid();
    if (name == NULL) {
        return;
    }
    char prefix[64];
    dir = dir != NULL && *dir != '\0' ? dir : "/tmp";
    snprintf(prefix, sizeof(prefix), "cudasim-%u-", (unsigned int)getuid());
    sweep(dir, prefix);
    snprintf(path, sizeof(path), "%s/%s%s", dir, prefix, name);
    int fd = open_job_file();
    if (fd < 0) {
        return;
    }
    void *at = MAP_FAILED;
    if (ftruncate(fd, SLOTS * sizeof(slot_t)) == 0) {
        at = mmap(NULL, SLOTS * sizeof(slot_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (at != MAP_FAILED) {
        slots = at;
        slot_count = SLOTS;
        slot_t *slot = take_slot();
        if (slot != NULL) {
            slot->pid = owner;
            slot->start_time = sim_process_start_time(owner);
            mine = slot;
            lock_fd = fd;
            atexit(leave_job);
            file_lock(LOCK_UN);
            return;
        }
        munmap(at, SLOTS * sizeof(slot_t));
        slots = &alone;
        slot_count = 1;
    }
    close(fd);
}

static uint64_t used(int phys)
{
    uint64_t sum = 0;
    for (int i = 0; i < slot_count; i++) {
        if (&slots[i] == mine || (slots[i].used[phys] > 0 && !dead(&slots[i]))) {
            sum += slots[i].used[phys];
        }
    }
    return sum;
}

static void begin(void)
{
    pthread_mutex_lock(&lock);
    if (slots == NULL) {
        join_job();
    }
    file_lock(LOCK_EX);
}

static void end(void)
{
    file_lock(LOCK_UN);
    pthread_mutex_unlock(&lock);
}

bool sim_job_reserve(int phys, uint64_t bytes)
{
    begin();
    uint64_t total = sim_config()->mem_bytes, now = used(phys);
    bool fits = bytes <= total && now <= total - bytes;
    if (fits) {
        mine->used[phys] += bytes;
    }
    end();
    return fits;
}

void sim_job_release(int phys, uint64_t bytes)
{
    begin();
    mine->used[phys] -= bytes;
    end();
}

uint64_t sim_job_used(int phys)
{
    begin();
    uint64_t sum = used(phys);
    end();
    return sum;
}
