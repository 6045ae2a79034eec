/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared segments: seen by a peer, refused to others, gone with their users. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "runtime/log.h"
#include "runtime/shm.h"
#include "tests/unit/capture.h"

enum { SKIPPED = 77 };

static unsigned open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    unsigned count = 0;

    while (readdir(folder) != NULL)
        ++count;
    closedir(folder);
    return count;
}

/* Runs `test` in a child and returns its exit status. */
static int in_child(int (*test)(const grail_shm_ticket_t *), const grail_shm_ticket_t *ticket)
{
    int status;
    pid_t child = fork();

    if (child == 0)
        _exit(test(ticket));
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void created_zeroed_and_sealed(void **state)
{
    static const size_t sizes[] = {1, 4095, 4096, 4097, 1 << 20, 100 << 20};

    (void)state;
    unsigned before = open_files();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        grail_shm_t shm = {0};

        assert_int_equal(grail_shm_create(sizes[i], &shm), GRAIL_OK);
        assert_int_equal(shm.size, sizes[i]);
        assert_int_equal((uintptr_t)shm.base % 4096, 0);
        for (size_t j = 0; j < sizes[i]; j += 4093)
            assert_int_equal(((char *)shm.base)[j], 0);
        memset(shm.base, 0xff, sizes[i]);
        assert_int_not_equal(ftruncate(shm.fd, 0), 0);
        assert_int_not_equal(ftruncate(shm.fd, 1 << 30), 0);
        assert_true(fcntl(shm.fd, F_GETFD) & FD_CLOEXEC);
        grail_shm_detach(&shm);
        grail_shm_detach(&shm);
    }
    assert_int_equal(open_files(), before);
}

static int child_writes(const grail_shm_ticket_t *ticket)
{
    grail_shm_t shm = {0};
    const char *why = NULL;

    if (grail_shm_attach(ticket, &shm, &why) != GRAIL_OK)
        return 1;
    if (shm.size != ticket->size || shm.fd != -1 || strcmp(shm.base, "from the parent") != 0)
        return 2;
    strcpy((char *)shm.base + shm.size - 32, "from the child");
    grail_shm_detach(&shm);
    return 0;
}

static void seen_by_another_process(void **state)
{
    grail_shm_t shm = {0};

    (void)state;
    assert_int_equal(grail_shm_create(123456, &shm), GRAIL_OK);
    strcpy(shm.base, "from the parent");
    unsigned before = open_files();
    assert_int_equal(in_child(child_writes, &shm.ticket), 0);
    assert_string_equal((char *)shm.base + shm.size - 32, "from the child");
    assert_int_equal(open_files(), before);
    grail_shm_detach(&shm);
}

static void own_segment(void **state)
{
    grail_shm_t shm = {0}, again = {0};
    const char *why = NULL;

    (void)state;
    assert_int_equal(grail_shm_create(4096, &shm), GRAIL_OK);
    assert_int_equal(grail_shm_attach(&shm.ticket, &again, &why), GRAIL_OK);
    strcpy(again.base, "same");
    assert_string_equal(shm.base, "same");
    /* stays for the one who has it mapped when the owner has gone */
    grail_shm_detach(&shm);
    assert_string_equal(again.base, "same");
    grail_shm_detach(&again);
}

static void refused(const grail_shm_ticket_t *ticket, const char *reason)
{
    grail_shm_t shm = {.size = 42};
    const char *why = NULL;
    unsigned before = open_files();

    capture_start();
    grail_status_t status = grail_shm_attach(ticket, &shm, &why);
    assert_string_equal(capture_stop(), "");    /* a slower path will do: no warning from here */
    assert_int_equal(status, GRAIL_ERR_UNSUPPORTED);
    assert_int_equal(shm.size, 42);
    assert_non_null(why);
    if (strstr(why, reason) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", why, reason);
    assert_int_equal(open_files(), before);
    assert_int_equal(grail_shm_attach(ticket, &shm, NULL), GRAIL_ERR_UNSUPPORTED);
}

static void wrong_tickets(void **state)
{
    grail_shm_t shm = {0}, other = {0};
    grail_shm_ticket_t ticket;

    (void)state;
    assert_int_equal(grail_shm_create(8192, &shm), GRAIL_OK);
    assert_int_equal(grail_shm_create(8192, &other), GRAIL_OK);

    memset(&ticket, 0, sizeof(ticket));
    refused(&ticket, "damaged");
    ticket = shm.ticket;
    ticket.size = UINT64_MAX;
    refused(&ticket, "damaged");
    ticket.size = 4096;
    refused(&ticket, "not the peer");
    ticket = shm.ticket;
    ticket.cookie[15] ^= 1;
    refused(&ticket, "not the peer's");
    ticket = shm.ticket;
    ticket.inode++;
    refused(&ticket, "not the peer");
    ticket = shm.ticket;
    ticket.fd = other.fd;                   /* another segment of the same size */
    refused(&ticket, "not the peer");
    ticket = shm.ticket;
    ticket.uid++;
    refused(&ticket, "another user");
    ticket = shm.ticket;
    ticket.fd = 9999;
    refused(&ticket, "not visible");
    ticket = shm.ticket;
    ticket.pid = 0x7ffffff0;
    refused(&ticket, "not visible");
    grail_shm_detach(&shm);
    grail_shm_detach(&other);
}

/* What stands behind the number in another PID namespace can be any file. */
static void other_kinds_of_file(void **state)
{
    grail_shm_t shm = {0};
    grail_shm_ticket_t ticket;
    int ends[2];

    (void)state;
    assert_int_equal(grail_shm_create(4096, &shm), GRAIL_OK);
    assert_int_equal(pipe(ends), 0);
    ticket = shm.ticket;
    ticket.fd = ends[0];
    refused(&ticket, "not the peer");
    /* a memfd of the right size that is not sealed could shrink under its reader */
    int loose = memfd_create("loose", MFD_CLOEXEC);
    struct stat st;
    assert_int_equal(ftruncate(loose, 8192), 0);
    assert_int_equal(fstat(loose, &st), 0);
    ticket.fd = loose;
    ticket.inode = st.st_ino;
    refused(&ticket, "not the peer");
    close(loose);
    close(ends[0]);
    close(ends[1]);
    grail_shm_detach(&shm);
}

static int other_user(const grail_shm_ticket_t *ticket)
{
    grail_shm_t shm = {0};
    const char *why = NULL;

    if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0)
        return SKIPPED;
    if (grail_shm_attach(ticket, &shm, &why) != GRAIL_ERR_UNSUPPORTED || why == NULL)
        return 1;
    return strstr(why, "another user") != NULL ? 0 : 2;
}

static void not_for_other_users(void **state)
{
    grail_shm_t shm = {0};

    (void)state;
    assert_int_equal(grail_shm_create(4096, &shm), GRAIL_OK);
    int result = in_child(other_user, &shm.ticket);
    grail_shm_detach(&shm);
    if (result == SKIPPED)
        skip();
    assert_int_equal(result, 0);
}

/* In a new PID namespace with its own /proc the owner's number means nobody, or somebody else. */
static int other_namespace(const grail_shm_ticket_t *ticket)
{
    int status;

    if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0)
        return SKIPPED;
    pid_t child = fork();
    if (child == 0) {
        grail_shm_ticket_t first = *ticket;
        grail_shm_t shm = {0};
        const char *why = NULL;

        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("proc", "/proc", "proc", 0, NULL) != 0)
            _exit(SKIPPED);
        if (grail_shm_attach(ticket, &shm, &why) != GRAIL_ERR_UNSUPPORTED ||
            strstr(why, "PID namespace") == NULL)
            _exit(1);
        /* process 1 here is this child, with the same descriptors: give it other ones */
        grail_shm_t own = {0};
        if (grail_shm_create(ticket->size, &own) != GRAIL_OK)
            _exit(2);
        first.pid = 1;
        first.fd = own.fd;
        if (grail_shm_attach(&first, &shm, &why) != GRAIL_ERR_UNSUPPORTED ||
            strstr(why, "PID namespace") == NULL)
            _exit(3);
        _exit(0);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}

static void other_pid_namespace(void **state)
{
    grail_shm_t shm = {0};

    (void)state;
    assert_int_equal(grail_shm_create(4096, &shm), GRAIL_OK);
    int result = in_child(other_namespace, &shm.ticket);
    grail_shm_detach(&shm);
    if (result == SKIPPED)
        skip();
    assert_int_equal(result, 0);
}

static void owner_killed(void **state)
{
    grail_shm_ticket_t ticket;
    grail_shm_t shm = {0};
    const char *why = NULL;
    int ends[2], status;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        grail_shm_t own = {0};

        if (grail_shm_create(4096, &own) != GRAIL_OK)
            _exit(1);
        strcpy(own.base, "last words");
        if (write(ends[1], &own.ticket, sizeof(own.ticket)) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ends[0], &ticket, sizeof(ticket)), sizeof(ticket));
    assert_int_equal(grail_shm_attach(&ticket, &shm, &why), GRAIL_OK);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_string_equal(shm.base, "last words");
    grail_shm_detach(&shm);
    refused(&ticket, "has ended");
    close(ends[0]);
    close(ends[1]);
}

static int no_descriptors(const grail_shm_ticket_t *ticket)
{
    struct rlimit limit = {3, 3};
    grail_shm_t shm = {.size = 42};
    const char *why = NULL;

    setrlimit(RLIMIT_NOFILE, &limit);
    if (grail_shm_attach(ticket, &shm, &why) != GRAIL_ERR_UNSUPPORTED ||
        strstr(why, "ulimit -n") == NULL)
        return 1;
    return grail_shm_create(4096, &shm) == GRAIL_ERR_IO && shm.size == 42 ? 0 : 2;
}

#if !defined(__SANITIZE_ADDRESS__)
static int no_address_space(const grail_shm_ticket_t *ticket)
{
    struct rlimit limit = {1 << 20, 1 << 20};
    grail_shm_t shm = {.size = 42};
    const char *why = NULL;

    setrlimit(RLIMIT_AS, &limit);
    if (grail_shm_create(100 << 20, &shm) != GRAIL_ERR_NO_MEMORY || shm.size != 42)
        return 1;
    return grail_shm_attach(ticket, &shm, &why) == GRAIL_ERR_UNSUPPORTED && why != NULL ? 0 : 2;
}
#endif

static void limits(void **state)
{
    grail_shm_t shm = {0};

    (void)state;
    assert_int_equal(grail_shm_create(100 << 20, &shm), GRAIL_OK);
    capture_start();
    int result = in_child(no_descriptors, &shm.ticket);
    const char *text = capture_stop();
    assert_int_equal(result, 0);
    assert_int_equal(capture_lines(text), 1);
    assert_non_null(strstr(text, "ulimit -n"));
#if !defined(__SANITIZE_ADDRESS__)
    capture_start();
    result = in_child(no_address_space, &shm.ticket);
    text = capture_stop();
    assert_int_equal(result, 0);
    assert_int_equal(capture_lines(text), 1);
    assert_non_null(strstr(text, "104857600 bytes"));
#endif
    grail_shm_detach(&shm);

    capture_start();
    assert_int_equal(grail_shm_create(0, &shm), GRAIL_ERR_INVALID);
    assert_int_equal(grail_shm_create(SIZE_MAX, &shm), GRAIL_ERR_INVALID);
    assert_int_equal(capture_lines(capture_stop()), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(created_zeroed_and_sealed),
        cmocka_unit_test(seen_by_another_process),
        cmocka_unit_test(own_segment),
        cmocka_unit_test(wrong_tickets),
        cmocka_unit_test(other_kinds_of_file),
        cmocka_unit_test(not_for_other_users),
        cmocka_unit_test(other_pid_namespace),
        cmocka_unit_test(owner_killed),
        cmocka_unit_test(limits),
    };

    return cmocka_run_group_tests_name("shm", tests, NULL, NULL);
}
