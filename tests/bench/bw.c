/* SPDX-License-Identifier: BSD-3-Clause */
/* Bandwidth in one direction. */
#include "tests/bench/bandwidth.h"

static const bench_program_t program = {
    .name = "bw",
    .title = "MPI Bandwidth Test",
    .doc = "Bandwidth of windows of MPI_Isend from one rank to another.",
    .iterations = 100,
    .iterations_large = 20,
    .warmup = 10,
    .warmup_large = 2,
    .windowed = true,
    .peer_copy = true,
};

int main(int argc, char **argv)
{
    return bench_bandwidth_main(&program, false, argc, argv);
}
