/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX provider: may the processes of this node copy from each other's memory? */
#include "runtime/net/net_ucx.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/log.h"

/*
 * UCX's cma transport reads a peer's memory with process_vm_readv(), which the kernel allows to
 * those who may trace the peer. UCX tries it on itself only, where it is always allowed, and a
 * message fails half-way when the peer refuses. So the question is put beforehand: a child with our
 * rights stands for the peers. It has memory of its own, because the kernel asks nobody who shares
 * it.
 */

enum { CHILD_STACK = 32 << 10, ANCESTORS_MAX = 64, TWIN_TRIES = 10, TWIN_WAIT_US = 10000 };

static const char yama_file[] = "/proc/sys/kernel/yama/ptrace_scope";

typedef struct question {
    pid_t parent;
    uint64_t word;      /* what the child reads */
} question_t;

static int yama_scope(void)
{
    FILE *file = fopen(yama_file, "re");
    int scope = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%d", &scope) != 1)
        scope = 0;
    fclose(file);
    return scope;
}

/* In the child: its status is the error, 0 if it was allowed. */
static int ask(void *arg)
{
    question_t *question = arg;
    uint64_t copy = 0;
    struct iovec local = {.iov_base = &copy, .iov_len = sizeof(copy)};
    struct iovec remote = {.iov_base = &question->word, .iov_len = sizeof(question->word)};

    if (process_vm_readv(question->parent, &local, 1, &remote, 1, 0) == (ssize_t)sizeof(copy))
        return 0;
    return errno & 0xff;
}

/* 0, or the error with which a process like this one is refused. */
static int ask_by_child(void)
{
    char stack[CHILD_STACK] __attribute__((aligned(64)));
    question_t question = {.parent = getpid(), .word = 1};
    int status = 0, error;
    sigset_t all, before;
    pid_t child;

    /* as UCX does for its own sake where Yama lets processes give this permission */
    if (yama_scope() == 1)
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* not fork(): nobody's fork handlers should run, and its end is no signal to the program */
    child = clone(ask, stack + sizeof(stack), 0, &question);
    error = errno;
    while (child > 0 && waitpid(child, &status, __WCLONE) < 0) {
        if (errno != EINTR) {
            error = errno;
            child = -1;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (child < 0 || !WIFEXITED(status)) {
        grail_debug("no child could ask about copies between processes: %s",
                    child < 0 ? strerror(error) : "it was killed");
        return 0;
    }
    return WEXITSTATUS(status);
}

/* ---- user namespaces ---- */

static bool is_launcher(const char *command)
{
    static const char *const names[] = {"mpirun", "mpiexec", "orterun", "orted", "prterun",
                                        "prted", "slurmstepd"};

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        if (strncmp(command, names[i], strlen(names[i])) == 0)
            return true;
    }
    return false;
}

static bool read_parent(pid_t pid, char *command, pid_t *parent)
{
    char path[64];
    FILE *file;
    int n, number = 0;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    /* at most 15 characters; a closing parenthesis in a name only makes it unknown */
    n = fscanf(file, "%*d (%15[^)]) %*c %d", command, &number);
    fclose(file);
    *parent = (pid_t)number;
    return n == 2;
}

/* What /proc/<pid>/<name> leads to; only those who may trace the process are told. */
static bool same_thing(pid_t a, pid_t b, const char *name)
{
    struct stat first, second;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)a, name);
    if (stat(path, &first) != 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)b, name);
    return stat(path, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* Has `parent` another child that runs the same program in the same namespace? */
static bool has_twin(pid_t pid, pid_t parent)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    bool found = false;
    char command[16];

    while (proc != NULL && !found && (entry = readdir(proc)) != NULL) {
        pid_t other = (pid_t)atoi(entry->d_name), its_parent;

        found = other > 0 && other != pid && read_parent(other, command, &its_parent) &&
                its_parent == parent && same_thing(pid, other, "ns/user") &&
                same_thing(pid, other, "exe");
    }
    if (proc != NULL)
        closedir(proc);
    return found;
}

/*
 * Processes of different user namespaces cannot trace each other, and a container runtime without
 * privileges may make one for each rank. Where the launcher is in our namespace, so are the ranks
 * beside this one. Where the namespace begins below the launcher, it has been made either for this
 * rank or for all of the node, which then can be seen there (they may still be starting). Processes
 * of the initial namespace need not look: the others do.
 */
static bool own_user_namespace(unsigned processes_on_node)
{
    enum { INITIAL = 0xEFFFFFFDu };     /* the kernel's PROC_USER_INIT_INO */
    pid_t top = getpid(), parent = getppid(), next;
    char command[16];
    struct stat ours;

    if (stat("/proc/self/ns/user", &ours) != 0 || ours.st_ino == (ino_t)(unsigned)INITIAL)
        return false;
    for (unsigned i = 0; same_thing(getpid(), parent, "ns/user"); ++i) {
        if (i == ANCESTORS_MAX || !read_parent(parent, command, &next) || is_launcher(command))
            return false;
        top = parent;
        parent = next;
    }
    if (parent == 0)
        return false;                   /* all that this PID namespace shows */
    for (unsigned i = 0; i < TWIN_TRIES && processes_on_node != 1; ++i) {
        if (has_twin(top, parent))
            return false;
        usleep(TWIN_WAIT_US);
    }
    return true;
}

/* ---- the answer ---- */

static void explain(int error, const char **reason, const char **cure)
{
    *cure = "give the ranks the capability SYS_PTRACE (docker run --cap-add=SYS_PTRACE)";
    if (prctl(PR_GET_DUMPABLE) != 1) {
        *reason = "the program may not be traced: it is setuid, has file capabilities, cannot be"
                  " read by its user, or called prctl(PR_SET_DUMPABLE)";
        *cure = "make it an ordinary readable program, or give the ranks the capability SYS_PTRACE";
    } else if (yama_scope() >= 2) {
        *reason = "/proc/sys/kernel/yama/ptrace_scope is 2 or 3";
        *cure = "set it to 0 or 1 (sysctl kernel.yama.ptrace_scope=1), or, if it is 2, give the"
                " ranks the capability SYS_PTRACE";
    } else if (error == ENOSYS) {
        *reason = "process_vm_readv() is not allowed, as by a container's seccomp profile";
    } else {
        *reason = "the kernel refuses process_vm_readv(), as by a container's seccomp profile or"
                  " SELinux (deny_ptrace)";
    }
}

bool grail_ucx_may_copy(unsigned processes_on_node, const char **reason, const char **cure)
{
    int error;

    if (own_user_namespace(processes_on_node)) {
        *reason = "each rank has a user namespace of its own, as in containers without privileges";
        *cure = "start the ranks of a node in one container (mpirun inside of it), or run the"
                " containers in one user namespace";
        return false;
    }
    error = ask_by_child();
    if (error == 0)
        return true;
    explain(error, reason, cure);
    return false;
}
