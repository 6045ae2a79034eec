/* SPDX-License-Identifier: BSD-3-Clause */
/* Host messaging when things go wrong: killed peers, wrong addresses, no transport, no room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dlfcn.h>
#include <sched.h>
#include <sys/mount.h>

#include <cmocka.h>

#include "runtime/init.h"
#include "runtime/log.h"
#include "tests/unit/capture.h"
#include "tests/unit/net_pair.h"

enum { BIG = 64 << 20, DETECTION_S = 10 };

static char *memory;
static unsigned arrived;
static void *token;

static grail_net_verdict_t hold(void *arg, grail_net_message_t *message)
{
    (void)arg;
    arrived++;
    if (!message->rndv)
        return GRAIL_NET_DONE;
    token = message->token;
    return GRAIL_NET_KEEP;
}

static grail_status_t send_bytes(size_t length, unsigned flags)
{
    static uint64_t header;
    grail_net_buffer_t buffer = {memory, length, NULL};

    return grail_net_send(pair.net, pair.endpoint, 0, &header, sizeof(header), &buffer, flags,
                          pair_done, NULL);
}

static void killed(void)
{
    int status;

    CHECK(kill(pair.child, SIGKILL) == 0);
    CHECK(waitpid(pair.child, &status, 0) == pair.child);
}

/* The child lives until it is killed. */
static void open_and_leave_child(void (*child)(void))
{
    arrived = 0;
    token = NULL;
    memory = malloc(BIG);
    CHECK(memory != NULL);
    memset(memory, 1, BIG);
    pair_open(hold);
    if (pair.side == 1) {
        pair_barrier();
        if (child != NULL)
            child();
        for (;;)
            pause();
    }
    pair_barrier();
}

/* After the peer has been killed: `in_flight` sends fail, once; what follows is refused; the end
 * does not hang. */
static void expect_failure(unsigned in_flight)
{
    bool closed = false;

    CHECK(pair_wait_for(&pair.errors, 1, DETECTION_S));
    CHECK(pair.reason[0] != '\0');
    CHECK(pair.done == in_flight);
    CHECK(in_flight == 0 || pair.done_status == GRAIL_ERR_PEER);
    CHECK(send_bytes(8, 0) == GRAIL_ERR_PEER);
    CHECK(send_bytes(100000, GRAIL_NET_SEND_RNDV) == GRAIL_ERR_PEER);
    for (double end = pair_seconds() + 0.2; pair_seconds() < end;)
        grail_net_progress(pair.net);
    CHECK(pair.errors == 1);
    CHECK(grail_net_disconnect(pair.net, pair.endpoint, false, &closed) == GRAIL_OK);
    CHECK(closed);
    grail_net_close(pair.net);
    CHECK(pair.done == in_flight);
    close(pair.socket);
    free(memory);
    alarm(0);
}

static void killed_while_idle(void **state)
{
    (void)state;
    capture_start();
    open_and_leave_child(NULL);
    CHECK(send_bytes(8, 0) >= 0);
    killed();
    expect_failure(0);
    assert_string_equal(capture_stop(), "");
}

static void killed_during_rendezvous(void **state)
{
    (void)state;
    capture_start();
    open_and_leave_child(NULL);
    for (int i = 0; i < 20; ++i)
        CHECK(send_bytes(1 << 20, GRAIL_NET_SEND_RNDV) == GRAIL_IN_PROGRESS);
    killed();
    expect_failure(20);
    assert_string_equal(capture_stop(), "");
}

/* A stopped receiver's queue is full, and UCX has sends waiting for room in it. */
static void killed_with_a_full_queue(void **state)
{
    static const unsigned flags[] = {0, GRAIL_NET_SEND_EAGER, GRAIL_NET_SEND_FAST};

    (void)state;
    for (unsigned i = 0; i < 3; ++i) {
        unsigned in_flight = 0;

        capture_start();
        open_and_leave_child(NULL);
        for (int j = 0; j < 3000; ++j) {
            grail_status_t status = send_bytes(i == 0 ? 64 : 60000, flags[i]);

            CHECK(status == GRAIL_OK || status == GRAIL_IN_PROGRESS);
            in_flight += status == GRAIL_IN_PROGRESS;
        }
        CHECK(in_flight > 100);
        killed();
        expect_failure(in_flight);
        assert_string_equal(capture_stop(), "");
    }
}

static void offer_and_stop(void)
{
    CHECK(send_bytes(BIG, GRAIL_NET_SEND_RNDV) == GRAIL_IN_PROGRESS);
    for (;;)
        grail_net_progress(pair.net);
}

/* The payload's owner is gone when it is fetched. */
static void killed_before_the_fetch(void **state)
{
    (void)state;
    capture_start();
    open_and_leave_child(offer_and_stop);
    pair_wait(arrived, 1);
    CHECK(token != NULL);
    killed();
    grail_net_buffer_t buffer = {memory, BIG, NULL};
    grail_status_t status = grail_net_fetch(pair.net, token, &buffer, pair_done, NULL);
    CHECK(status == GRAIL_IN_PROGRESS || grail_status_is_error(status));
    CHECK(pair_wait_for(&pair.errors, 1, DETECTION_S));
    if (status == GRAIL_IN_PROGRESS && pair.done == 0) {
        /* not reported by UCX: by the end of the net at the latest */
        grail_net_close(pair.net);
        CHECK(pair.done == 1);
        CHECK(pair.done_status == GRAIL_ERR_CANCELLED);
    } else {
        CHECK(status != GRAIL_IN_PROGRESS || grail_status_is_error(pair.done_status));
        grail_net_close(pair.net);
    }
    close(pair.socket);
    free(memory);
    alarm(0);
    capture_stop();     /* UCX may name the failed copy */
}

/* The receiver dies somewhere in the middle of its copying. */
static void fetch_for_ever(void)
{
    for (;;) {
        grail_net_progress(pair.net);
        if (token != NULL) {
            grail_net_buffer_t buffer = {memory, BIG, NULL};

            grail_net_fetch(pair.net, token, &buffer, pair_done, NULL);
            token = NULL;
        }
    }
}

static void killed_in_the_middle(void **state)
{
    (void)state;
    for (int delay = 0; delay < 8; ++delay) {
        unsigned in_flight = 0;

        capture_start();
        open_and_leave_child(fetch_for_ever);
        for (int i = 0; i < 50; ++i)
            in_flight += send_bytes(BIG, GRAIL_NET_SEND_RNDV) == GRAIL_IN_PROGRESS;
        for (double end = pair_seconds() + delay * 0.01; pair_seconds() < end;)
            grail_net_progress(pair.net);
        killed();
        unsigned complete = pair.done;
        CHECK(pair_wait_for(&pair.errors, 1, DETECTION_S));
        CHECK(complete <= in_flight && pair.done == in_flight);
        expect_failure(in_flight);
        capture_stop();
    }
}

static void killed_and_closed_at_once(void **state)
{
    (void)state;
    for (int manner = 0; manner < 3; ++manner) {
        bool closed = false;
        unsigned in_flight = 0;

        capture_start();
        open_and_leave_child(NULL);
        for (int i = 0; i < 200; ++i)
            in_flight += send_bytes(60000, i % 2 ? GRAIL_NET_SEND_RNDV : GRAIL_NET_SEND_EAGER) ==
                         GRAIL_IN_PROGRESS;
        killed();
        if (manner == 1)
            CHECK(grail_net_disconnect(pair.net, pair.endpoint, true, &closed) == GRAIL_OK &&
                  closed && pair.done == in_flight);
        if (manner == 2)    /* waits for a flush that cannot end */
            CHECK(grail_net_disconnect(pair.net, pair.endpoint, false, &closed) == GRAIL_OK);
        grail_net_close(pair.net);
        CHECK(manner == 0 || closed);
        CHECK(pair.done == in_flight);
        CHECK(pair.done_status == GRAIL_ERR_CANCELLED);
        CHECK(pair.errors == 0);
        close(pair.socket);
        free(memory);
        alarm(0);
        assert_string_equal(capture_stop(), "");
    }
}

/* The flush of a disconnect ends when the death of the peer is noticed. */
static void killed_while_disconnecting(void **state)
{
    bool closed = false;
    unsigned in_flight = 0;

    (void)state;
    capture_start();
    open_and_leave_child(NULL);
    for (int i = 0; i < 200; ++i)
        in_flight += send_bytes(60000, GRAIL_NET_SEND_EAGER) == GRAIL_IN_PROGRESS;
    CHECK(grail_net_disconnect(pair.net, pair.endpoint, false, &closed) == GRAIL_OK);
    CHECK(!closed);
    killed();
    for (double end = pair_seconds() + DETECTION_S; !closed; CHECK(pair_seconds() < end))
        grail_net_progress(pair.net);
    CHECK(pair.done == in_flight);
    grail_net_close(pair.net);
    close(pair.socket);
    free(memory);
    alarm(0);
    assert_string_equal(capture_stop(), "");
}

/* --- opening and connecting ------------------------------------------------------------------ */

static const grail_net_params_t params = {.handlers = {hold}};

static void wrong_addresses(void **state)
{
    static char junk[4096];
    grail_net_endpoint_t *endpoint = NULL;
    const void *address;
    grail_net_t *net;
    size_t length;

    (void)state;
    assert_int_equal(grail_net_open(&params, &net), GRAIL_OK);
    assert_int_equal(grail_net_address(net, &address, &length), GRAIL_OK);
    for (int i = 0; i < 3; ++i) {
        capture_start();
        grail_status_t status = i == 0 ? grail_net_connect(net, junk, 4096, NULL, &endpoint)
                              : i == 1 ? grail_net_connect(net, address, 8, NULL, &endpoint)
                                       : grail_net_connect(net, address, 0, NULL, &endpoint);
        const char *text = capture_stop();
        assert_int_equal(status, GRAIL_ERR_INVALID);
        assert_null(endpoint);
        assert_int_equal(capture_lines(text), 1);
        assert_non_null(strstr(text, "error: "));
    }
    grail_net_close(net);
}

/* Two processes of a node that would address each other's queues with different sizes. */
static void other_slots(void **state)
{
    grail_net_endpoint_t *endpoint = NULL;
    const void *address;
    grail_net_t *net, *other;
    size_t length;

    (void)state;
    assert_int_equal(grail_net_open(&params, &net), GRAIL_OK);
    setenv("UCX_MM_FIFO_ELEM_SIZE", "256", 1);
    assert_int_equal(grail_net_open(&params, &other), GRAIL_OK);
    unsetenv("UCX_MM_FIFO_ELEM_SIZE");
    assert_int_equal(grail_net_address(other, &address, &length), GRAIL_OK);
    capture_start();
    grail_status_t status = grail_net_connect(net, address, length, NULL, &endpoint);
    const char *text = capture_stop();
    assert_int_equal(status, GRAIL_ERR_INVALID);
    assert_null(endpoint);
    assert_int_equal(capture_lines(text), 1);
    assert_non_null(strstr(text, "UCX_MM_FIFO_ELEM_SIZE"));
    grail_net_close(other);
    grail_net_close(net);
}

/* Runs in a child, because UCX reads its environment once per process. */
static int open_in_child(const char *variable, const char *value, bool tiny_shm, char *said)
{
    int status;

    capture_start();
    pid_t child = fork();
    if (child == 0) {
        grail_net_t *net = NULL;

        setenv(variable, value, 1);
        if (tiny_shm &&
            (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
             mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") != 0))
            _exit(77);
        grail_status_t result = grail_net_open(&params, &net);
        if (result == GRAIL_OK)
            grail_net_close(net);
        _exit(result == GRAIL_OK ? 0 : net == NULL ? 1 : 2);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    strncpy(said, capture_stop(), 4095);
    said[4095] = '\0';
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

static unsigned own_lines(const char *text)
{
    unsigned lines = 0;

    while ((text = strstr(text, "[grail ")) != NULL) {
        ++lines;
        ++text;
    }
    return lines;
}

static void no_transport(void **state)
{
    char said[4096];

    (void)state;
    assert_int_equal(open_in_child("UCX_TLS", "carrier_pigeon", false, said), 1);
    assert_int_equal(own_lines(said), 1);
    assert_non_null(strstr(said, "no usable transport"));
    assert_non_null(strstr(said, "UCX_TLS"));
}

static void little_room_in_dev_shm(void **state)
{
    char said[4096];
    int result = open_in_child("NOTHING", "", true, said);

    (void)state;
    if (result == 77)
        skip();
    /* without posix; UCX itself says nothing */
    assert_int_equal(result, 0);
    assert_int_equal(capture_lines(said), 1);
    assert_non_null(strstr(said, "warning: /dev/shm has "));
    assert_non_null(strstr(said, "remount"));

    /* unless the user wants just that (later releases of UCX than 1.13 can do with less) */
    if (open_in_child("UCX_TLS", "posix,self", true, said) == 0)
        return;
    assert_int_equal(own_lines(said), 1);
    assert_non_null(strstr(said, "error: "));
    assert_non_null(strstr(said, "/dev/shm has "));
    assert_non_null(strstr(said, "remount"));
}

static void memory_hooks(void **state)
{
    grail_net_t *net;
    char block[64];

    (void)state;
    grail_net_external_hooks();
    grail_net_memory_released(block, sizeof(block));
    assert_int_equal(grail_net_open(&params, &net), GRAIL_OK);
    grail_net_memory_released(block, sizeof(block));
    grail_net_close(net);
    grail_net_memory_released(block, sizeof(block));
}

/* The library that is loaded can be another than the one built with. */
static bool pretend_version;
static unsigned pretended[3];
static unsigned built_with[3];

static void (*real_version)(unsigned *, unsigned *, unsigned *);

void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release);
void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release)
{
    if (real_version == NULL)
        *(void **)&real_version = dlsym(RTLD_NEXT, "ucp_get_version");
    real_version(major, minor, release);
    built_with[0] = *major;
    if (pretend_version) {
        *major = pretended[0];
        *minor = pretended[1];
        *release = pretended[2];
    }
}

static void too_old(void **state)
{
    static const unsigned old[][3] = {{1, 12, 1}, {1, 8, 0}, {0, 99, 0}};
    grail_net_t *net = NULL;

    (void)state;
    pretend_version = true;
    for (int i = 0; i < 3; ++i) {
        char version[32];

        memcpy(pretended, old[i], sizeof(pretended));
        snprintf(version, sizeof(version), "is %u.%u.%u", old[i][0], old[i][1], old[i][2]);
        capture_start();
        grail_status_t status = grail_net_open(&params, &net);
        const char *text = capture_stop();
        assert_int_equal(status, GRAIL_ERR_UNSUPPORTED);
        assert_null(net);
        assert_int_equal(capture_lines(text), 1);
        assert_non_null(strstr(text, version));
        assert_non_null(strstr(text, "1.13"));
    }
    pretend_version = false;
    assert_int_equal(grail_net_open(&params, &net), GRAIL_OK);
    assert_int_equal(built_with[0], 1);
    grail_net_close(net);
}

static int setup(void **state)
{
    (void)state;
    return grail_runtime_init() == GRAIL_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_while_idle),
        cmocka_unit_test(killed_during_rendezvous),
        cmocka_unit_test(killed_with_a_full_queue),
        cmocka_unit_test(killed_before_the_fetch),
        cmocka_unit_test(killed_in_the_middle),
        cmocka_unit_test(killed_and_closed_at_once),
        cmocka_unit_test(killed_while_disconnecting),
        cmocka_unit_test(wrong_addresses),
        cmocka_unit_test(other_slots),
        cmocka_unit_test(no_transport),
        cmocka_unit_test(little_room_in_dev_shm),
        cmocka_unit_test(memory_hooks),
        cmocka_unit_test(too_old),
    };

    return cmocka_run_group_tests_name("net_faults", tests, setup, NULL);
}
