/* SPDX-License-Identifier: BSD-3-Clause */
/* Bandwidth in both directions at once. */
#include "tests/bench/bandwidth.h"

static const bench_program_t program = {
    .name = "bibw",
    .title = "MPI Bi-Directional Bandwidth Test",
    .doc = "Bandwidth of windows of MPI_Isend between two ranks, both ways at once; the column of "
           "bare copies is of one way, Ratio is of half of the bandwidth.",
    .iterations = 100,
    .iterations_large = 20,
    .warmup = 10,
    .warmup_large = 2,
    .windowed = true,
    .peer_copy = true,
};

int main(int argc, char **argv)
{
    return bench_bandwidth_main(&program, true, argc, argv);
}
