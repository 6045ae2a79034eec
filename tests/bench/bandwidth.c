/* SPDX-License-Identifier: BSD-3-Clause */
/* Bandwidth of windows of messages between two ranks, beside bare copies between their devices. */
#include "tests/bench/bandwidth.h"

#include <stdlib.h>

static void run_size(bench_t *b, const bench_report_t *report, bool both, size_t size)
{
    int iterations = bench_iterations(&b->options, size), window = b->options.window, n = 0;
    bench_window_result_t r = {.windows = iterations,
                               .warmup = bench_warmup(&b->options, size),
                               .each = calloc((size_t)iterations, sizeof(double))};
    unsigned long long errors = b->data_errors, all_errors;
    double values[BENCH_COLUMNS], cpu[2], megabytes;
    bench_layout_t layout;

    if (!r.each)
        bench_fail("no memory for %d times", iterations);
    bench_layout_make(&layout, &b->options, size);
    bench_window_run(b, &layout, both, &r);
    errors = b->data_errors - errors;
    MPI_Reduce(&errors, &all_errors, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, b->comm);
    MPI_Gather(&r.cpu, 1, MPI_DOUBLE, cpu, 1, MPI_DOUBLE, 0, b->comm);
    if (b->rank == 0) {
        megabytes = 1e-6 * (double)layout.payload * window * (both ? 2 : 1);
        values[n++] = megabytes * iterations / r.seconds;
        if (b->options.percentiles) {
            bench_spread_t s = bench_spread(r.each, iterations);

            values[n++] = megabytes / s.max;
            values[n++] = megabytes / s.p50;
            values[n++] = megabytes / s.min;
        }
        values[n++] = 1e6 * cpu[0] / iterations / window;
        values[n++] = 1e6 * cpu[1] / iterations / window;
        if (bench_peer_copy_wanted(b)) {
            double bare = bench_peer_copy_rate(b, layout.payload, window, iterations);

            values[n++] = bare;
            values[n++] = bare > 0 ? values[0] / bare / (both ? 2 : 1) : BENCH_NONE;
        }
    }
    bench_report_row(report, layout.payload, values, all_errors);
    bench_layout_free(&layout);
    free(r.each);
}

int bench_bandwidth_main(const bench_program_t *program, bool both, int argc, char **argv)
{
    bench_t b;
    bench_report_t report = {.bench = &b};

    bench_start(&b, program, argc, argv);
    if (bench_peer_copy_wanted(&b))
        bench_peer_copy_open(&b);
    bench_report_column(&report, "Bandwidth (MB/s)", "bandwidth_mbs");
    if (b.options.percentiles) {
        bench_report_column(&report, "Min (MB/s)", "min_mbs");
        bench_report_column(&report, "P50 (MB/s)", "p50_mbs");
        bench_report_column(&report, "Max (MB/s)", "max_mbs");
    }
    bench_report_column(&report, "CPU snd (us)", "cpu_sender_us");
    bench_report_column(&report, "CPU rcv (us)", "cpu_receiver_us");
    if (bench_peer_copy_wanted(&b)) {
        bench_report_column(&report, "Copy (MB/s)", "copy_mbs");
        bench_report_column(&report, "Ratio", "ratio");
    }
    bench_report_header(&report);
    for (size_t size = b.options.min_size; size <= b.options.max_size; size = bench_next_size(size))
        run_size(&b, &report, both, size);
    if (bench_peer_copy_wanted(&b))
        bench_peer_copy_close(&b);
    return bench_finish(&b);
}
