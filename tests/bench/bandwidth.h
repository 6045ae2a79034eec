/* SPDX-License-Identifier: BSD-3-Clause */
/* bw and bibw: one program but for the direction. */
#ifndef GRAIL_TESTS_BENCH_BANDWIDTH_H
#define GRAIL_TESTS_BENCH_BANDWIDTH_H

#include "tests/bench/bench.h"

/** The whole program; returns the exit status. */
int bench_bandwidth_main(const bench_program_t *program, bool both, int argc, char **argv);

#endif
