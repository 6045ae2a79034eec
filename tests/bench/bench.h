/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the benchmarks share: options, message layouts, buffers, measuring and printing.
 *
 * They use MPI's public interface and the CUDA driver alone, so that the same source measures any
 * MPI. All functions are called by every rank unless they say otherwise, and end the job with one
 * error line where there is nothing to go on with.
 */
#ifndef GRAIL_TESTS_BENCH_BENCH_H
#define GRAIL_TESTS_BENCH_BENCH_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/common/gpu.h"

/** Above this many bytes a message counts as large: fewer iterations and warm-ups (as OSU's). */
#define BENCH_LARGE 8192

enum bench_exit { BENCH_EXIT_OK = 0, BENCH_EXIT_ERROR = 1, BENCH_EXIT_DATA = 2 };

/** What one program is; its defaults. */
typedef struct bench_program {
    const char *name;  /* "latency" */
    const char *title; /* "MPI Latency Test" */
    const char *doc;   /* one sentence for --help */
    int iterations, iterations_large;
    int warmup, warmup_large;
    bool windowed;  /* has -W */
    bool pairs;     /* any even number of ranks, has -p */
    bool peer_copy; /* has --peercopy */
} bench_program_t;

enum bench_type { BENCH_CONTIG, BENCH_VECTOR, BENCH_FACE };

typedef struct bench_options {
    const bench_program_t *program;
    char kind[2]; /* sender's and receiver's buffer kind */
    size_t min_size, max_size;
    int iterations, warmup; /* -1: the program's defaults */
    int window;
    int pairs; /* 0: as many as there are */
    bool validate;
    bool csv;
    bool gpu;        /* use a GPU although the buffers need none */
    bool percentiles;
    int peer_copy; /* -1: where it makes sense */
    enum bench_type type;
    size_t type_block, type_stride; /* vector: bytes; face: bytes of an element, unused */
    int type_axis;                  /* face */
} bench_options_t;

/** A message of payload bytes: count blocks of block bytes, one every stride bytes, from first. */
typedef struct bench_layout {
    size_t payload; /* bytes that travel */
    size_t extent;  /* bytes of memory from the buffer's start to the end of the last block */
    size_t first, count, block, stride;
    MPI_Datatype type;
    int type_count; /* what MPI_Send gets */
    bool owned;     /* type is to be freed */
} bench_layout_t;

typedef struct bench {
    bench_options_t options;
    MPI_Comm comm; /* MPI_COMM_WORLD */
    int rank, size;
    int pairs;     /* measuring pairs; ranks from 2 * pairs on only wait */
    int peer;      /* rank of the partner, -1 for an idle rank */
    bool sender;   /* this rank is the first of its pair */
    bool one_node; /* all ranks on one node */
    gpu_buf_t send, receive;
    gpu_buf_t first_use; /* with --gpu */
    size_t slots; /* messages in flight that have memory of their own (validation) */
    size_t slot_bytes;
    uint64_t data_errors;
    unsigned char *scratch; /* host copy for validation, one slot */
} bench_t;

/** Parse the command line (exits on an error or --help), start MPI, choose GPUs, allocate. */
void bench_start(bench_t *bench, const bench_program_t *program, int argc, char **argv);
/** Report data errors of any rank, free, end MPI; returns the exit status. */
int bench_finish(bench_t *bench);
/** End the job with one line on stderr. */
void bench_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/** options.c: fills *options or exits. */
void bench_options_parse(bench_options_t *options, const bench_program_t *program, int argc,
                         char **argv);

/** Next size after size (0 -> 1 -> 2 -> 4 ...). */
size_t bench_next_size(size_t size);
int bench_iterations(const bench_options_t *options, size_t size);
int bench_warmup(const bench_options_t *options, size_t size);

/** layout.c: local, no communication. */
void bench_layout_make(bench_layout_t *layout, const bench_options_t *options, size_t size);
void bench_layout_free(bench_layout_t *layout);

/** Validation, outside of any timed part; slot selects one of the messages of a window. The seed
 *  must differ between messages. fill writes the payload pattern to the send buffer; clear
 *  overwrites the receive buffer; check counts and reports wrong bytes, in the gaps as well. */
void bench_fill(bench_t *bench, const bench_layout_t *layout, size_t slot, uint64_t seed);
void bench_clear(bench_t *bench, const bench_layout_t *layout, size_t slot);
void bench_check(bench_t *bench, const bench_layout_t *layout, size_t slot, uint64_t seed);
/** Address of a slot in the send or receive buffer. */
void *bench_send_slot(const bench_t *bench, size_t slot);
void *bench_receive_slot(const bench_t *bench, size_t slot);

/** Seconds: monotonic wall clock; processor time of all threads of this process. */
double bench_now(void);
double bench_cpu_now(void);

/** peercopy.c: MB/s of bare copies between the pair's devices, window copies of bytes a time; a
 *  negative number where it cannot be had (bench_peer_copy_open() says why, once). Open and close
 *  are called by both ranks of the pair, rate by the sender alone. */
void bench_peer_copy_open(bench_t *bench);
double bench_peer_copy_rate(bench_t *bench, size_t bytes, int window, int iterations);
void bench_peer_copy_close(bench_t *bench);
bool bench_peer_copy_wanted(const bench_t *bench);

/** report.c. A column's value of BENCH_NONE prints as "-". Only rank 0 prints. */
#define BENCH_NONE (-1.0)
#define BENCH_COLUMNS 12
typedef struct bench_report {
    const bench_t *bench;
    int columns;
    const char *name[BENCH_COLUMNS]; /* as OSU names it: "Latency (us)" */
    const char *csv[BENCH_COLUMNS];  /* "latency_us" */
} bench_report_t;
void bench_report_column(bench_report_t *report, const char *name, const char *csv);
void bench_report_header(const bench_report_t *report);
/** errors: data errors so far of this size, printed where validation is on. */
void bench_report_row(const bench_report_t *report, size_t size, const double *values,
                      uint64_t errors);

/** Values sorted in place; min, P50, P99, P99.9, max by nearest rank. n > 0. */
typedef struct bench_spread {
    double min, p50, p99, p999, max;
} bench_spread_t;
bench_spread_t bench_spread(double *values, int n);

/** window.c: run one size of a windowed test on this rank's pair. Both directions if both. */
typedef struct bench_window_result {
    int windows, warmup; /* set by the caller: to measure, and before */
    double *each;        /* the caller's array of windows doubles: seconds of each */
    double seconds;      /* of all measured windows */
    double cpu;          /* processor seconds in them */
} bench_window_result_t;
void bench_window_run(bench_t *bench, const bench_layout_t *layout, bool both,
                      bench_window_result_t *result);

#endif
