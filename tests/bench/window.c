/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows of messages: the loop of bw, bibw and mbw_mr. */
#include "tests/bench/bench.h"

#include <stdlib.h>

enum { TAG_DATA = 100, TAG_ACK = 101 };

typedef struct window {
    bench_t *bench;
    const bench_layout_t *layout;
    MPI_Request *requests;
    bool send, receive;
} window_t;

static void prepare(const window_t *w, uint64_t seed)
{
    bench_t *b = w->bench;

    for (size_t slot = 0; slot < b->slots; slot++) {
        if (w->send)
            bench_fill(b, w->layout, slot, seed + (b->sender ? 0 : 1));
        if (w->receive)
            bench_clear(b, w->layout, slot);
    }
}

static void check(const window_t *w, uint64_t seed)
{
    bench_t *b = w->bench;

    for (size_t slot = 0; w->receive && slot < b->slots; slot++)
        bench_check(b, w->layout, slot, seed + (b->sender ? 1 : 0));
}

/* One window each way that this rank takes part in, closed by an acknowledgement: of one direction
 * by the receiver's; of both by one each way, so that neither side runs ahead. */
static void exchange(const window_t *w)
{
    bench_t *b = w->bench;
    const bench_layout_t *l = w->layout;
    int n = 0, size = b->options.window;
    char ack = 0, got;

    for (int i = 0; w->receive && i < size; i++)
        MPI_Irecv(bench_receive_slot(b, (size_t)i), l->type_count, l->type, b->peer, TAG_DATA,
                  b->comm, &w->requests[n++]);
    for (int i = 0; w->send && i < size; i++)
        MPI_Isend(bench_send_slot(b, (size_t)i), l->type_count, l->type, b->peer, TAG_DATA, b->comm,
                  &w->requests[n++]);
    MPI_Waitall(n, w->requests, MPI_STATUSES_IGNORE);
    if (w->send && w->receive)
        MPI_Sendrecv(&ack, 1, MPI_CHAR, b->peer, TAG_ACK, &got, 1, MPI_CHAR, b->peer, TAG_ACK,
                     b->comm, MPI_STATUS_IGNORE);
    else if (w->send)
        MPI_Recv(&got, 1, MPI_CHAR, b->peer, TAG_ACK, b->comm, MPI_STATUS_IGNORE);
    else
        MPI_Send(&ack, 1, MPI_CHAR, b->peer, TAG_ACK, b->comm);
}

void bench_window_run(bench_t *b, const bench_layout_t *layout, bool both,
                      bench_window_result_t *result)
{
    static uint64_t seed;
    bool checked = b->options.validate;
    int iterations = result->windows, warmup = result->warmup;
    window_t w = {.bench = b, .layout = layout, .send = both || b->sender,
                  .receive = both || !b->sender};
    double start = 0, now, last = 0, cpu = 0;

    w.requests = malloc(2 * (size_t)b->options.window * sizeof(MPI_Request));
    if (!w.requests)
        bench_fail("no memory for %d requests", 2 * b->options.window);
    result->seconds = result->cpu = 0;
    MPI_Barrier(b->comm);
    for (int i = -warmup; i < iterations && b->peer >= 0; i++) {
        seed += 2;
        if (checked) {
            char ready = 0, other;

            prepare(&w, seed);
            MPI_Sendrecv(&ready, 1, MPI_CHAR, b->peer, TAG_ACK, &other, 1, MPI_CHAR, b->peer,
                         TAG_ACK, b->comm, MPI_STATUS_IGNORE);
        }
        if (i == 0 || checked) {
            cpu = bench_cpu_now();
            last = bench_now();
            start = i == 0 ? last : start;
        }
        exchange(&w);
        if (i < 0) {
            if (checked)
                check(&w, seed);
            continue;
        }
        if (checked || b->options.percentiles || i == iterations - 1) {
            now = bench_now();
            result->each[i] = now - last;
            last = now;
        }
        if (checked) {
            result->seconds += result->each[i];
            result->cpu += bench_cpu_now() - cpu;
            check(&w, seed);
        }
    }
    if (!checked && b->peer >= 0) {
        result->seconds = last - start;
        result->cpu = bench_cpu_now() - cpu;
    }
    free(w.requests);
    MPI_Barrier(b->comm);
}
