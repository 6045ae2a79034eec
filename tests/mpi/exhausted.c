/* SPDX-License-Identifier: BSD-3-Clause */
/* All GPU memory is taken by the program: messages still arrive, or end in an error; and they work
 * again when there is memory. */
#include <stdlib.h>

#include "tests/common/mpitest.h"

static const size_t sizes[] = {8, 4096, 65537, (size_t)1 << 20, (size_t)8 << 20};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST ((size_t)8 << 20)
#define EATEN_MOST 4096

static gpu_buf_t buffer;
static CUdeviceptr eaten[EATEN_MOST];
static int eaten_count;

static void eat(void)
{
    const gpu_driver_t *cu = gpu_driver();
    CUcontext popped;

    GPU_TRY(cu->cuCtxPushCurrent_v2(gpu_context()));
    for (size_t piece = (size_t)16 << 30; piece >= 4096; piece /= 2)
        while (eaten_count < EATEN_MOST &&
               cu->cuMemAlloc_v2(&eaten[eaten_count], piece) == CUDA_SUCCESS)
            eaten_count++;
    GPU_TRY(cu->cuCtxPopCurrent_v2(&popped));
}

static void give_back(void)
{
    const gpu_driver_t *cu = gpu_driver();
    CUcontext popped;

    GPU_TRY(cu->cuCtxPushCurrent_v2(gpu_context()));
    while (eaten_count > 0)
        GPU_TRY(cu->cuMemFree_v2(eaten[--eaten_count]));
    GPU_TRY(cu->cuCtxPopCurrent_v2(&popped));
}

static int messages(bool must_work)
{
    int refused = 0;

    for (size_t i = 0; i < 2 * SIZES; i++) {
        size_t n = sizes[i / 2];
        int result;

        if (mt_sending == (i % 2 == 0)) {
            mt_fill(&buffer, i, 0, n);
            result = MPI_Send(buffer.ptr, (int)n, MPI_BYTE, mt_peer, 1, mt_world);
        } else {
            mt_clear(&buffer);
            result = MPI_Recv(buffer.ptr, (int)n, MPI_BYTE, mt_peer, 1, mt_world,
                              MPI_STATUS_IGNORE);
            if (result == MPI_SUCCESS)
                mt_expect_message(&buffer, i, n);
        }
        if (must_work)
            CHECK(result == MPI_SUCCESS, "a message of %zu bytes failed with memory there", n);
        refused += result != MPI_SUCCESS;
    }
    return refused;
}

static void pair(void)
{
    int refused = 0;

    mt_case("messages while all GPU memory is taken, and afterwards");
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, LARGEST);
    if (gpu_selected() < 0)
        mt_skip("no device is used by this rank");
    if (mt_ready() && mt_peer >= 0) {
        eat();
        mt_sync_peer();
        refused = messages(false);
        mt_sync_peer();
        give_back();
        mt_sync_peer();
        messages(true);
        mt_note("rank %d: %d of %zu messages were refused", mt_rank, refused, 2 * SIZES);
    }
    mt_free(&buffer);
    mt_end();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "exhausted", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
