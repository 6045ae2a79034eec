/* SPDX-License-Identifier: BSD-3-Clause */
/* By hand, on a real GPU: what each step of a device message costs the CPU. Prints a table. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cuda-aware/copy.h"
#include "cuda-aware/ipc.h"
#include "cuda-aware/memory.h"
#include "cuda-aware/staging.h"
#include "runtime/init.h"
#include "runtime/options.h"

enum { ROUNDS = 2000, OFF = 0, ON = 2 };

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof(values[0]), by_value);
    return values[ROUNDS / 2];
}

/* Median of single rounds for what waits for the GPU, mean for what is too short to time alone. */
#define TIME_MEAN(label, statement)                                                                \
    do {                                                                                           \
        double start = now_us();                                                                   \
        for (int i = 0; i < ROUNDS; i++) {                                                         \
            statement;                                                                             \
        }                                                                                          \
        printf("%-46s %8.3f\n", label, (now_us() - start) / ROUNDS);                               \
    } while (0)

static void time_copy(grail_gpu_t *gpu, void *dst, const void *src, size_t length,
                      const char *label)
{
    static double queued[ROUNDS], done[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        grail_copy_t op;
        double start = now_us();

        if (grail_copy_start(gpu, GRAIL_LANE_PEER, dst, src, length, &op) != GRAIL_OK)
            exit(1);
        queued[i] = now_us() - start;
        while (grail_copy_test(&op) == GRAIL_IN_PROGRESS)
            ;
        done[i] = now_us() - start;
    }
    printf("%-30s %8zu bytes  %8.3f queued %8.3f done\n", label, length, median(queued),
           median(done));
}

/* Median microseconds of a copy by the helper once it runs, with workers if `blocks` > 1. */
static double time_helper(grail_gpu_t *gpu, void *dst, const void *src, size_t length, int blocks)
{
    static double done[ROUNDS];
    size_t prelude = blocks > 1 ? 1 << 17 : 8;  /* a long copy brings the workers */

    grail_options.resident = ON;
    grail_options.resident_blocks = blocks;
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);    /* the one before has ended */
    for (int i = -ROUNDS / 10; i < ROUNDS; i++) {
        grail_copy_t op;
        double start = now_us();

        if (grail_copy_peer_start(gpu, dst, src, i < 0 ? prelude : length, &op) != GRAIL_OK)
            exit(1);
        while (grail_copy_test(&op) == GRAIL_IN_PROGRESS)
            ;
        if (i >= 0)
            done[i] = now_us() - start;
    }
    return median(done);
}

/* The helper against a launch for each copy. With one block it takes up to 64 KiB: the rest of that
 * column are launches as well. */
static void compare_helper(grail_gpu_t *gpu, void *dst, const void *src)
{
    static const int blocks[] = {1, 4, 8, 16};
    static const size_t lengths[] = {8, 16 << 10, 64 << 10, 65 << 10, 128 << 10, 256 << 10,
                                     512 << 10, 1 << 20};

    grail_options.kernel_copy_max = 4 << 20;
    printf("\n%-12s %10s", "helper, bytes", "launched");
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
        printf(" %3d blocks", blocks[i]);
    printf("\n");
    for (size_t n = 0; n < sizeof(lengths) / sizeof(lengths[0]); n++) {
        static double done[ROUNDS];

        grail_options.resident = OFF;
        for (int i = 0; i < ROUNDS; i++) {
            grail_copy_t op;
            double start = now_us();

            if (grail_copy_peer_start(gpu, dst, src, lengths[n], &op) != GRAIL_OK)
                exit(1);
            while (grail_copy_test(&op) == GRAIL_IN_PROGRESS)
                ;
            done[i] = now_us() - start;
        }
        printf("%13zu %10.3f", lengths[n], median(done));
        for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
            printf(" %10.3f", time_helper(gpu, dst, src, lengths[n], blocks[i]));
        printf("\n");
    }
}

int main(void)
{
    CUdeviceptr a, b;
    CUcontext context;
    CUdevice device;
    grail_mem_t mem;
    grail_gpu_t *gpu;
    grail_ipc_key_t key;
    const char *why = NULL;
    char *host = malloc(1 << 20);
    void *pinned = NULL;

    if (grail_runtime_init() != GRAIL_OK || grail_cuda_load() != GRAIL_OK ||
        grail_cuda.DeviceGet(&device, 0) != CUDA_SUCCESS ||
        grail_cuda.DevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
        grail_cuda.CtxSetCurrent(context) != CUDA_SUCCESS ||
        grail_cuda.MemAlloc(&a, 4 << 20) != CUDA_SUCCESS ||
        grail_cuda.MemAlloc(&b, 4 << 20) != CUDA_SUCCESS || host == NULL) {
        printf("no GPU here: nothing to measure\n");
        return 77;
    }
    grail_mem_hooks_available(true);
    if (grail_mem_query((void *)(uintptr_t)a, &mem) != GRAIL_OK ||
        grail_gpu_get(&mem, &gpu) != GRAIL_OK || grail_staging_get(&pinned) != GRAIL_OK)
        return 1;
    printf("microseconds, means of %d rounds (copies: medians)\n", ROUNDS);
    volatile bool sink;
    TIME_MEAN("is it device? host, known", sink = grail_mem_is_device(host));
    TIME_MEAN("is it device? host, asked", sink = grail_mem_ask_device(host));
    TIME_MEAN("is it device? device", sink = grail_mem_is_device((void *)(uintptr_t)a));
    (void)sink;
    TIME_MEAN("what memory? device", (void)grail_mem_query((void *)(uintptr_t)a, &mem));
    TIME_MEAN("still valid?", (void)grail_mem_still_valid(&mem));
    TIME_MEAN("find the context's state", (void)grail_gpu_get(&mem, &gpu));
    TIME_MEAN("enter and leave the context", if (grail_gpu_enter(gpu) == CUDA_SUCCESS)
              grail_gpu_leave(gpu));
    TIME_MEAN("export, cached", (void)grail_ipc_export(&mem, &key, &why));
    grail_options.resident = OFF;
    for (size_t length = 8; length <= 4 << 20; length *= length < 65536 ? 32 : 2) {
        grail_options.kernel_copy_max = 4 << 20;
        time_copy(gpu, (void *)(uintptr_t)b, (void *)(uintptr_t)a, length, "by a kernel");
        grail_options.kernel_copy_max = 0;
        time_copy(gpu, (void *)(uintptr_t)b, (void *)(uintptr_t)a, length, "by a copy engine");
    }
    for (size_t length = 8; length <= 1 << 20; length *= 32)
        time_copy(gpu, pinned, (void *)(uintptr_t)a, length, "device to pinned");
    compare_helper(gpu, (void *)(uintptr_t)b, (void *)(uintptr_t)a);
    return 0;
}
