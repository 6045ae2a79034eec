/* SPDX-License-Identifier: BSD-3-Clause */
/* Ping-pong: half of a round trip. */
#include <stdlib.h>

#include "tests/bench/bench.h"

enum { TAG = 1 };

static const bench_program_t program = {
    .name = "latency",
    .title = "MPI Latency Test",
    .doc = "Latency of MPI_Send and MPI_Recv between two ranks: half of a round trip.",
    .iterations = 10000,
    .iterations_large = 1000,
    .warmup = 200,
    .warmup_large = 10,
};

typedef struct result {
    double seconds, cpu;
} result_t;

static void ping_pong(bench_t *b, const bench_layout_t *l)
{
    if (b->sender) {
        MPI_Send(b->send.ptr, l->type_count, l->type, b->peer, TAG, b->comm);
        MPI_Recv(b->receive.ptr, l->type_count, l->type, b->peer, TAG, b->comm, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(b->receive.ptr, l->type_count, l->type, b->peer, TAG, b->comm, MPI_STATUS_IGNORE);
        MPI_Send(b->send.ptr, l->type_count, l->type, b->peer, TAG, b->comm);
    }
}

/* Each round trip is timed by itself: the data are made and checked between. */
static result_t measure_checked(bench_t *b, const bench_layout_t *l, double *each, int iterations,
                                int warmup)
{
    static uint64_t seed;
    result_t r = {0, 0};

    for (int i = -warmup; i < iterations; i++) {
        double start, cpu;

        seed += 2;
        bench_fill(b, l, 0, seed + (b->sender ? 0 : 1));
        bench_clear(b, l, 0);
        MPI_Barrier(b->comm);
        cpu = bench_cpu_now();
        start = bench_now();
        ping_pong(b, l);
        if (i >= 0) {
            each[i] = bench_now() - start;
            r.seconds += each[i];
            r.cpu += bench_cpu_now() - cpu;
        }
        bench_check(b, l, 0, seed + (b->sender ? 1 : 0));
    }
    return r;
}

static result_t measure(bench_t *b, const bench_layout_t *l, double *each, int iterations,
                        int warmup)
{
    bool stamps = b->options.percentiles && b->sender;
    double start, last, now, cpu;

    for (int i = 0; i < warmup; i++)
        ping_pong(b, l);
    cpu = bench_cpu_now();
    start = last = bench_now();
    for (int i = 0; i < iterations; i++) {
        ping_pong(b, l);
        if (stamps) {
            now = bench_now();
            each[i] = now - last;
            last = now;
        }
    }
    now = bench_now();
    return (result_t){now - start, bench_cpu_now() - cpu};
}

static void run_size(bench_t *b, const bench_report_t *report, size_t size)
{
    int iterations = bench_iterations(&b->options, size);
    int warmup = bench_warmup(&b->options, size);
    double *each = malloc((size_t)iterations * sizeof(double)), values[BENCH_COLUMNS], cpu;
    unsigned long long errors = b->data_errors, all_errors;
    bench_layout_t layout;
    result_t r;
    int n = 0;

    if (!each)
        bench_fail("no memory for %d times", iterations);
    bench_layout_make(&layout, &b->options, size);
    MPI_Barrier(b->comm);
    r = b->options.validate ? measure_checked(b, &layout, each, iterations, warmup)
                            : measure(b, &layout, each, iterations, warmup);
    errors = b->data_errors - errors;
    MPI_Reduce(&errors, &all_errors, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, b->comm);
    MPI_Reduce(&r.cpu, &cpu, 1, MPI_DOUBLE, MPI_MAX, 0, b->comm);

    values[n++] = 1e6 * r.seconds / iterations / 2;
    if (b->rank == 0 && b->options.percentiles) {
        bench_spread_t s = bench_spread(each, iterations);

        values[n++] = 1e6 * s.min / 2;
        values[n++] = 1e6 * s.p50 / 2;
        values[n++] = 1e6 * s.p99 / 2;
        values[n++] = 1e6 * s.p999 / 2;
        values[n++] = 1e6 * s.max / 2;
    }
    values[n++] = 1e6 * cpu / iterations / 2;
    bench_report_row(report, layout.payload, values, all_errors);
    bench_layout_free(&layout);
    free(each);
}

int main(int argc, char **argv)
{
    bench_t b;
    bench_report_t report = {.bench = &b};

    bench_start(&b, &program, argc, argv);
    bench_report_column(&report, "Latency (us)", "latency_us");
    if (b.options.percentiles) {
        bench_report_column(&report, "Min (us)", "min_us");
        bench_report_column(&report, "P50 (us)", "p50_us");
        bench_report_column(&report, "P99 (us)", "p99_us");
        bench_report_column(&report, "P99.9 (us)", "p999_us");
        bench_report_column(&report, "Max (us)", "max_us");
    }
    bench_report_column(&report, "CPU (us)", "cpu_us");
    bench_report_header(&report);
    for (size_t size = b.options.min_size; size <= b.options.max_size; size = bench_next_size(size))
        run_size(&b, &report, size);
    return bench_finish(&b);
}
