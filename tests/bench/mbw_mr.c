/* SPDX-License-Identifier: BSD-3-Clause */
/* Bandwidth and message rate over several pairs of ranks at once. */
#include <stdlib.h>

#include "tests/bench/bench.h"

static const bench_program_t program = {
    .name = "mbw_mr",
    .title = "MPI Multiple Bandwidth / Message Rate Test",
    .doc = "Bandwidth and message rate of windows of MPI_Isend over pairs of ranks: rank i sends "
           "to rank i + pairs.",
    .iterations = 100,
    .iterations_large = 20,
    .warmup = 10,
    .warmup_large = 2,
    .windowed = true,
    .pairs = true,
};

static void run_size(bench_t *b, const bench_report_t *report, size_t size)
{
    int iterations = bench_iterations(&b->options, size), window = b->options.window;
    bench_window_result_t r = {.windows = iterations,
                               .warmup = bench_warmup(&b->options, size),
                               .each = calloc((size_t)iterations, sizeof(double))};
    unsigned long long errors = b->data_errors, all_errors;
    double values[BENCH_COLUMNS], mine[3] = {0, 0, 0}, sum[3], messages;
    bench_layout_t layout;
    int n = 0;

    if (!r.each)
        bench_fail("no memory for %d times", iterations);
    bench_layout_make(&layout, &b->options, size);
    bench_window_run(b, &layout, false, &r);
    errors = b->data_errors - errors;
    MPI_Reduce(&errors, &all_errors, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, b->comm);
    if (b->peer >= 0) {
        mine[0] = b->sender ? r.seconds : 0;
        mine[1] = b->sender ? r.cpu : 0;
        mine[2] = b->sender ? 0 : r.cpu;
    }
    MPI_Reduce(mine, sum, 3, MPI_DOUBLE, MPI_SUM, 0, b->comm);
    if (b->rank == 0) {
        messages = (double)window * iterations * b->pairs;
        /* All pairs in the mean time of the senders, as OSU's. */
        values[n++] = 1e-6 * (double)layout.payload * messages / (sum[0] / b->pairs);
        values[n++] = messages / (sum[0] / b->pairs);
        values[n++] = 1e6 * sum[1] / messages;
        values[n++] = 1e6 * sum[2] / messages;
    }
    bench_report_row(report, layout.payload, values, all_errors);
    bench_layout_free(&layout);
    free(r.each);
}

int main(int argc, char **argv)
{
    bench_t b;
    bench_report_t report = {.bench = &b};

    bench_start(&b, &program, argc, argv);
    bench_report_column(&report, "MB/s", "bandwidth_mbs");
    bench_report_column(&report, "Messages/s", "messages_s");
    bench_report_column(&report, "CPU snd (us)", "cpu_sender_us");
    bench_report_column(&report, "CPU rcv (us)", "cpu_receiver_us");
    bench_report_header(&report);
    for (size_t size = b.options.min_size; size <= b.options.max_size; size = bench_next_size(size))
        run_size(&b, &report, size);
    return bench_finish(&b);
}
