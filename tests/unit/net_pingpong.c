/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host messages over grail_net beside the same exchange over UCX tag matching, which is what Open
 * MPI's pml/ucx uses: two processes on cores 0 and 1, the ways taken in turns. Run by hand:
 *
 *     net_pingpong [-l] [-b] [-r ROUNDS] [-m MODES] [-c N] [SIZE...]
 *
 * -l latency only, -b window only. MODES is a comma-separated choice of tag, tag-fast, auto, fast,
 * eager and rndv. Sizes in bytes. Latency is half a round trip; the window test gives the time per
 * message of a window of 64 one way; both in microseconds, minimum and median over the rounds.
 * -c N runs N round trips of each mode once and exits, for counting instructions (valgrind
 * --tool=callgrind).
 *
 * Rounds are short: on a machine that does other work, too, the minimum is the figure to compare,
 * and real-time priority helps (chrt -f 10 net_pingpong ...).
 */
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

#include "runtime/init.h"
#include "runtime/net/net.h"

enum { WINDOW = 64, HEADER = 24, MODES = 6, ROUNDS_MAX = 5001, MESSAGE_ID = 0 };

/* "fast" is what a blocking send asks for: UCP_OP_ATTR_FLAG_FAST_CMPL, GRAIL_NET_SEND_FAST */
enum { TAG, TAG_FAST, AUTO, FAST, EAGER, RNDV };

static const char *const mode_names[MODES] = {"tag", "tag-fast", "auto", "fast", "eager", "rndv"};

static struct {
    int side;
    int socket;
    grail_net_t *net;
    grail_net_endpoint_t *endpoint;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    char *send_buffer;
    char *receive_buffer;
    unsigned arrived;       /* messages that are complete at the receiver */
    unsigned sends_open;
} self;

static void fail(const char *what)
{
    fprintf(stderr, "net_pingpong: %s failed\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* --- grail_net ------------------------------------------------------------------------------ */

static void fetched(void *arg, grail_status_t status, size_t length)
{
    (void)arg;
    (void)length;
    if (status != GRAIL_OK)
        fail("fetch");
    self.arrived++;
}

static void sent(void *arg, grail_status_t status, size_t length)
{
    (void)arg;
    (void)length;
    if (status != GRAIL_OK)
        fail("send");
    self.sends_open--;
}

static grail_net_verdict_t on_message(void *arg, grail_net_message_t *message)
{
    (void)arg;
    if (message->rndv) {
        grail_net_buffer_t buffer = {self.receive_buffer, message->length, NULL};
        grail_status_t status = grail_net_fetch(self.net, message->token, &buffer, fetched, NULL);

        if (status == GRAIL_OK)
            self.arrived++;
        else if (status != GRAIL_IN_PROGRESS)
            fail("fetch");
        return GRAIL_NET_KEEP;
    }
    memcpy(self.receive_buffer, message->data, message->length);
    self.arrived++;
    return GRAIL_NET_DONE;
}

static void net_send(int mode, size_t size)
{
    static const unsigned flags[MODES] = {
        [FAST] = GRAIL_NET_SEND_FAST,
        [EAGER] = GRAIL_NET_SEND_EAGER,
        [RNDV] = GRAIL_NET_SEND_RNDV,
    };
    static char header[HEADER];
    grail_net_buffer_t buffer = {self.send_buffer, size, NULL};
    grail_status_t status = grail_net_send(self.net, self.endpoint, MESSAGE_ID, header, HEADER,
                                           &buffer, flags[mode], sent, NULL);

    if (status == GRAIL_IN_PROGRESS)
        self.sends_open++;
    else if (status != GRAIL_OK)
        fail("send");
}

/* --- UCX tags ------------------------------------------------------------------------------- */

static void tag_sent(void *request, ucs_status_t status, void *user_data)
{
    (void)user_data;
    if (status != UCS_OK)
        fail("tag send");
    self.sends_open--;
    ucp_request_free(request);
}

static void tag_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                         void *user_data)
{
    (void)info;
    (void)user_data;
    if (status != UCS_OK)
        fail("tag receive");
    self.arrived++;
    ucp_request_free(request);
}

static void tag_send(int mode, size_t size)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        (mode == TAG_FAST ? UCP_OP_ATTR_FLAG_FAST_CMPL : 0),
        .cb.send = tag_sent,
    };
    ucs_status_ptr_t result = ucp_tag_send_nbx(self.ep, self.send_buffer, size, 7, &param);

    if (UCS_PTR_IS_ERR(result))
        fail("tag send");
    if (result != NULL)
        self.sends_open++;
}

static void tag_post(size_t size)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv = tag_received,
    };

    if (UCS_PTR_IS_ERR(ucp_tag_recv_nbx(self.worker, self.receive_buffer, size, 7, ~0ull, &param)))
        fail("tag receive");
}

/* --- both ----------------------------------------------------------------------------------- */

static void progress(int mode)
{
    if (mode <= TAG_FAST)
        ucp_worker_progress(self.worker);
    else
        grail_net_progress(self.net);
}

static void send_one(int mode, size_t size)
{
    if (mode <= TAG_FAST)
        tag_send(mode, size);
    else
        net_send(mode, size);
}

static void wait_for(int mode, unsigned arrived)
{
    while (self.arrived < arrived || self.sends_open > 0)
        progress(mode);
}

static void ping_pong(int mode, size_t size, int count)
{
    self.arrived = 0;
    for (int i = 0; i < count; ++i) {
        if (mode <= TAG_FAST)
            tag_post(size);
        if (self.side == 0)
            send_one(mode, size);
        wait_for(mode, (unsigned)i + 1);
        if (self.side == 1)
            send_one(mode, size);
    }
    wait_for(mode, 0);
}

static void window(int mode, size_t size, int count)
{
    for (int i = 0; i < count; ++i) {
        self.arrived = 0;
        if (self.side == 0) {
            if (mode <= TAG_FAST)
                tag_post(0);
            for (int j = 0; j < WINDOW; ++j)
                send_one(mode, size);
            wait_for(mode, 1);
        } else {
            for (int j = 0; j < WINDOW && mode <= TAG_FAST; ++j)
                tag_post(size);
            wait_for(mode, WINDOW);
            send_one(mode == RNDV ? EAGER : mode, 0);
        }
    }
    wait_for(mode, 0);
}

static void barrier(void)
{
    char c = 0;

    if (write(self.socket, &c, 1) != 1 || read(self.socket, &c, 1) != 1)
        exit(1);
}

/* --- set-up --------------------------------------------------------------------------------- */

static void swap(const void *mine, size_t length, void **theirs, size_t *their_length)
{
    if (write(self.socket, &length, sizeof(length)) != (ssize_t)sizeof(length) ||
        write(self.socket, mine, length) != (ssize_t)length ||
        read(self.socket, their_length, sizeof(*their_length)) != (ssize_t)sizeof(length))
        fail("address exchange");
    *theirs = malloc(*their_length);
    for (size_t got = 0; got < *their_length;) {
        ssize_t n = read(self.socket, (char *)*theirs + got, *their_length - got);

        if (n <= 0)
            fail("address exchange");
        got += (size_t)n;
    }
}

static void open_all(void)
{
    grail_net_params_t params = {.handlers = {on_message}};
    ucp_params_t context_params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG,
    };
    ucp_worker_params_t worker_params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE,
    };
    const void *address;
    ucp_config_t *config;
    ucp_address_t *ucp_address;
    void *peer;
    size_t length, peer_length;

    if (grail_runtime_init() != GRAIL_OK || grail_net_open(&params, &self.net) != GRAIL_OK ||
        grail_net_address(self.net, &address, &length) != GRAIL_OK)
        exit(1);
    swap(address, length, &peer, &peer_length);
    if (grail_net_connect(self.net, peer, peer_length, NULL, &self.endpoint) != GRAIL_OK)
        exit(1);
    free(peer);

    if (ucp_config_read("MPI", NULL, &config) != UCS_OK ||
        ucp_init(&context_params, config, &self.context) != UCS_OK ||
        ucp_worker_create(self.context, &worker_params, &self.worker) != UCS_OK ||
        ucp_worker_get_address(self.worker, &ucp_address, &length) != UCS_OK)
        fail("opening UCX");
    ucp_config_release(config);
    swap(ucp_address, length, &peer, &peer_length);
    ucp_ep_params_t ep_params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = peer,
    };
    if (ucp_ep_create(self.worker, &ep_params, &self.ep) != UCS_OK)
        fail("connecting by UCX");
    ucp_worker_release_address(self.worker, ucp_address);
    free(peer);
}

static void close_all(void)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t request;
    bool closed = false;

    barrier();
    grail_net_disconnect(self.net, self.endpoint, false, &closed);
    while (!closed)
        grail_net_progress(self.net);
    request = ucp_ep_close_nbx(self.ep, &param);
    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS)
        ucp_worker_progress(self.worker);
    if (UCS_PTR_IS_PTR(request))
        ucp_request_free(request);
    barrier();
    grail_net_close(self.net);
    ucp_worker_destroy(self.worker);
    ucp_cleanup(self.context);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Microseconds per round trip or per window over the rounds of each mode: minimum, median. */
static void measure(void (*test)(int, size_t, int), size_t size, int count, int rounds,
                    const bool *modes, double result[MODES][2])
{
    static double samples[MODES][ROUNDS_MAX];

    for (int round = -1; round < rounds; ++round) {
        for (int mode = 0; mode < MODES; ++mode) {
            if (!modes[mode])
                continue;
            barrier();
            double start = now();
            test(mode, size, count);
            if (round >= 0)
                samples[mode][round] = (now() - start) / count;
        }
    }
    for (int mode = 0; mode < MODES; ++mode) {
        if (!modes[mode])
            continue;
        qsort(samples[mode], (size_t)rounds, sizeof(double), by_value);
        result[mode][0] = samples[mode][0];
        result[mode][1] = samples[mode][rounds / 2];
    }
}

static void report(bool latency, size_t size, const bool *modes,
                   double result[MODES][2])
{
    printf("%-8s %9zu", latency ? "latency" : "window", size);
    for (int mode = 0; mode < MODES; ++mode) {
        if (!modes[mode])
            continue;
        if (latency)
            printf("  %9.3f %9.3f", result[mode][0] / 2, result[mode][1] / 2);
        else
            printf("  %9.3f %9.3f", result[mode][0] / WINDOW, result[mode][1] / WINDOW);
    }
    printf("\n");
    fflush(stdout);
}

static void run_size(size_t size, bool latency, bool windows, int rounds, const bool *modes)
{
    double result[MODES][2];
    int count = size < 4096 ? 200 : size < 65536 ? 50 : size < 1 << 20 ? 10 : 3;

    self.send_buffer = aligned_alloc(4096, (size + 8191) & ~(size_t)4095);
    self.receive_buffer = aligned_alloc(4096, (size + 8191) & ~(size_t)4095);
    if (self.send_buffer == NULL || self.receive_buffer == NULL)
        fail("allocating buffers");
    memset(self.send_buffer, 1, size + 1);
    memset(self.receive_buffer, 2, size + 1);
    if (latency) {
        measure(ping_pong, size, count, rounds, modes, result);
        if (self.side == 0)
            report(true, size, modes, result);
    }
    if (windows) {
        measure(window, size, count / 16 + 1, rounds, modes, result);
        if (self.side == 0)
            report(false, size, modes, result);
    }
    free(self.send_buffer);
    free(self.receive_buffer);
}

static void parse_modes(char *text, bool *modes)
{
    memset(modes, 0, MODES * sizeof(*modes));
    for (char *name = strtok(text, ","); name != NULL; name = strtok(NULL, ","))
        for (int mode = 0; mode < MODES; ++mode)
            modes[mode] |= strcmp(name, mode_names[mode]) == 0;
}

static void pin(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

int main(int argc, char **argv)
{
    static const size_t defaults[] = {0,     8,     64,    128,    512,    1024,    4096,   8192,
                                      16384, 32768, 65536, 131072, 262144, 1048576, 4194304};
    bool latency = true, windows = true, modes[MODES] = {true, true, true, true, true, true};
    int rounds = 201, option, sockets[2], counted = 0, status = 0;

    while ((option = getopt(argc, argv, "lbr:m:c:")) != -1) {
        switch (option) {
        case 'l': windows = false; break;
        case 'b': latency = false; break;
        case 'r': rounds = atoi(optarg); break;
        case 'm': parse_modes(optarg, modes); break;
        case 'c': counted = atoi(optarg); break;
        default: return 2;
        }
    }
    if (rounds < 1 || rounds > ROUNDS_MAX || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
        return 2;
    pid_t child = fork();
    self.side = child == 0;
    self.socket = sockets[self.side];
    pin(self.side);
    open_all();
    if (self.side == 0 && counted == 0) {
        printf("%-8s %9s", "# test", "bytes");
        for (int mode = 0; mode < MODES; ++mode)
            if (modes[mode])
                printf("  %9s %9s", mode_names[mode], "median");
        printf("   (%s)\n", grail_net_provider(self.net));
    }
    size_t count = optind < argc ? (size_t)(argc - optind) : sizeof(defaults) / sizeof(*defaults);
    for (size_t i = 0; i < count; ++i) {
        size_t size = optind < argc ? strtoull(argv[(size_t)optind + i], NULL, 10) : defaults[i];

        if (counted > 0) {
            self.send_buffer = calloc(1, size + 1);
            self.receive_buffer = calloc(1, size + 1);
            for (int mode = 0; mode < MODES; ++mode)
                if (modes[mode])
                    ping_pong(mode, size, counted);
            free(self.send_buffer);
            free(self.receive_buffer);
        } else {
            run_size(size, latency, windows, rounds, modes);
        }
    }
    close_all();
    grail_runtime_fini();
    if (self.side == 1)
        _exit(0);
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
