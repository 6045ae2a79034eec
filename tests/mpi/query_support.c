/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPIX_Query_cuda_support() tells the truth. Argument: what it must say, 0 or 1; with "device" it
 * must be the same after a device message has gone through.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/common/mpitest.h"

static int expected;

static void pair(void)
{
    int (*query)(void);
    gpu_buf_t buffer;

    mt_case("MPIX_Query_cuda_support() is %d", expected);
    query = (int (*)(void))dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
    if (!query)
        mt_skip("this MPI has no MPIX_Query_cuda_support");
    if (mt_ready()) {
        int said = query();

        CHECK(said == expected, "it says %d", said);
    }
    mt_end();

    mt_case("its word holds after messages");
    if (!query)
        mt_skip("this MPI has no MPIX_Query_cuda_support");
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, 65537);
    if (mt_ready() && mt_peer >= 0 && mt_sending) {
        mt_fill(&buffer, 1, 0, 65537);
        MPI_OK(MPI_Send(buffer.ptr, 65537, MPI_BYTE, mt_peer, 1, mt_world));
    } else if (mt_ready() && mt_peer >= 0) {
        MPI_OK(MPI_Recv(buffer.ptr, 65537, MPI_BYTE, mt_peer, 1, mt_world, MPI_STATUS_IGNORE));
        mt_expect_message(&buffer, 1, 65537);
    }
    if (mt_ready())
        CHECK(query() == expected, "it says %d afterwards", query());
    mt_free(&buffer);
    mt_end();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "query_support", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    expected = argc > 1 ? atoi(argv[1]) : 1;
    mt_each_pair(pair);
    return mt_finish();
}
