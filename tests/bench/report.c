/* SPDX-License-Identifier: BSD-3-Clause */
/* Printing: OSU's table (size first, the main figure second) or comma-separated values. */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_COLUMN 12
#define VALUE_WIDTH 16

void bench_report_column(bench_report_t *report, const char *name, const char *csv)
{
    if (report->columns >= BENCH_COLUMNS)
        bench_fail("more than %d columns", BENCH_COLUMNS);
    report->name[report->columns] = name;
    report->csv[report->columns++] = csv;
}

static void print_type(const bench_options_t *o)
{
    if (o->type == BENCH_VECTOR)
        printf("# Datatype: vector of %zu-byte blocks every %zu bytes\n", o->type_block,
               o->type_stride);
    else if (o->type == BENCH_FACE)
        printf("# Datatype: face across axis %d of a 3-D array of %zu-byte elements\n",
               o->type_axis, o->type_block);
}

static void print_gpu(void)
{
    const gpu_driver_t *cu = gpu_driver_if_open();
    CUdevice device;
    char name[128];

    if (!cu || gpu_selected() < 0 || !cu->cuDeviceGetName ||
        cu->cuDeviceGet(&device, gpu_selected()) != CUDA_SUCCESS ||
        cu->cuDeviceGetName(name, sizeof(name), device) != CUDA_SUCCESS)
        return;
    printf("# Devices: %d x %s\n", cu->devices, name);
}

void bench_report_header(const bench_report_t *report)
{
    const bench_t *b = report->bench;
    const bench_options_t *o = &b->options;

    if (b->rank != 0)
        return;
    if (o->csv) {
        printf("test,sender,receiver,size");
        for (int i = 0; i < report->columns; i++)
            printf(",%s", report->csv[i]);
        printf("%s\n", o->validate ? ",validation" : "");
        return;
    }
    printf("# Grail %s\n", o->program->title);
    printf("# Buffers: %c %c (%s to %s)\n", o->kind[0], o->kind[1], gpu_kind_name(o->kind[0]),
           gpu_kind_name(o->kind[1]));
    print_type(o);
    print_gpu();
    if (o->program->windowed)
        printf("# Window: %d\n", o->window);
    if (o->program->pairs)
        printf("# Pairs: %d\n", b->pairs);
    printf("%-*s", SIZE_COLUMN, "# Size");
    for (int i = 0; i < report->columns; i++)
        printf("%*s", VALUE_WIDTH, report->name[i]);
    printf("%s\n", o->validate ? "      Validation" : "");
    fflush(stdout);
}

void bench_report_row(const bench_report_t *report, size_t size, const double *values,
                      uint64_t errors)
{
    const bench_t *b = report->bench;
    const bench_options_t *o = &b->options;
    const char *verdict = errors ? "Fail" : "Pass";

    if (b->rank != 0)
        return;
    if (o->csv)
        printf("%s,%c,%c,%zu", o->program->name, o->kind[0], o->kind[1], size);
    else
        printf("%-*zu", SIZE_COLUMN, size);
    for (int i = 0; i < report->columns; i++) {
        char text[32] = "-";

        if (values[i] >= 0)
            snprintf(text, sizeof(text), o->csv ? "%.4f" : "%.2f", values[i]);
        if (o->csv)
            printf(",%s", values[i] >= 0 ? text : "");
        else
            printf("%*s", VALUE_WIDTH, text);
    }
    if (o->validate && o->csv)
        printf(",%s", verdict);
    else if (o->validate)
        printf("%16s", verdict);
    printf("\n");
    fflush(stdout);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double nearest_rank(const double *sorted, int n, double percent)
{
    int rank = (int)(percent / 100.0 * n + 0.9999999);

    if (rank < 1)
        rank = 1;
    return sorted[(rank > n ? n : rank) - 1];
}

bench_spread_t bench_spread(double *values, int n)
{
    bench_spread_t s;

    qsort(values, (size_t)n, sizeof(values[0]), compare);
    s.min = values[0];
    s.p50 = nearest_rank(values, n, 50);
    s.p99 = nearest_rank(values, n, 99);
    s.p999 = nearest_rank(values, n, 99.9);
    s.max = values[n - 1];
    return s;
}
