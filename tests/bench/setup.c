/* SPDX-License-Identifier: BSD-3-Clause */
/* From main() to the first message: MPI, pairs, GPUs, buffers; and the data checks. */
#include "tests/bench/bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/common/pattern.h"

/* With validation each message of a window has memory of its own, up to this much a side. */
#define SLOTS_MAX_BYTES ((size_t)1 << 30)
/* Wrong bytes reported one by one, per rank; all are counted. */
#define ERRORS_SHOWN 5

static const char *program_name = "bench";

void bench_fail(const char *format, ...)
{
    va_list args;
    char text[512];
    int started = 0, ended = 0;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "%s: error: %s\n", program_name, text);
    fflush(stderr);
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (started && !ended)
        MPI_Abort(MPI_COMM_WORLD, BENCH_EXIT_ERROR);
    exit(BENCH_EXIT_ERROR);
}

static double seconds(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_now(void)
{
    return seconds(CLOCK_MONOTONIC);
}

double bench_cpu_now(void)
{
    return seconds(CLOCK_PROCESS_CPUTIME_ID);
}

size_t bench_next_size(size_t size)
{
    return size ? size * 2 : 1;
}

int bench_iterations(const bench_options_t *o, size_t size)
{
    if (o->iterations >= 0)
        return o->iterations;
    return size > BENCH_LARGE ? o->program->iterations_large : o->program->iterations;
}

int bench_warmup(const bench_options_t *o, size_t size)
{
    if (o->warmup >= 0)
        return o->warmup;
    return size > BENCH_LARGE ? o->program->warmup_large : o->program->warmup;
}

/* ---- Set-up ---------------------------------------------------------------------------- */

/* Rank 0's word is everybody's: all leave together, one line is printed. */
static void all_or_nothing(bench_t *b, int failed, const char *reason)
{
    int mine = failed ? b->rank : b->size, first;

    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, b->comm);
    if (first == b->size)
        return;
    if (first == b->rank) {
        fprintf(stderr, "%s: error: rank %d: %s\n", program_name, b->rank, reason);
        fflush(stderr);
    }
    MPI_Finalize();
    exit(BENCH_EXIT_ERROR);
}

static void choose_pairs(bench_t *b)
{
    const bench_program_t *program = b->options.program;
    char text[128];
    int wanted = 2;

    if (program->pairs) {
        b->pairs = b->options.pairs ? b->options.pairs : b->size / 2;
        wanted = 2 * b->pairs;
        snprintf(text, sizeof(text), "want an even number of ranks, at least %d, not %d",
                 wanted > 2 ? wanted : 2, b->size);
        all_or_nothing(b, b->size < wanted || b->size < 2 || (!b->options.pairs && b->size % 2),
                       text);
    } else {
        b->pairs = 1;
        snprintf(text, sizeof(text), "want exactly 2 ranks, not %d", b->size);
        all_or_nothing(b, b->size != 2, text);
    }
    b->peer = -1;
    if (b->rank < b->pairs) {
        b->sender = true;
        b->peer = b->rank + b->pairs;
    } else if (b->rank < 2 * b->pairs) {
        b->peer = b->rank - b->pairs;
    }
}

/* Messages in flight that have memory of their own. */
static size_t count_slots(const bench_options_t *o, size_t slot_bytes)
{
    size_t slots = 1;

    if (o->validate && o->program->windowed) {
        slots = SLOTS_MAX_BYTES / slot_bytes;
        if (slots > (size_t)o->window)
            slots = (size_t)o->window;
        if (slots == 0)
            slots = 1;
    }
    return slots;
}

/* For buffers of kind B. The sizes of derived datatypes are not known yet: contiguous ones. */
static void reserve_early(const bench_options_t *o)
{
    size_t slot_bytes = (o->max_size + 255) / 256 * 256;

    if (slot_bytes == 0)
        slot_bytes = 256;
    gpu_reserve_early(2 * count_slots(o, slot_bytes) * slot_bytes);
}

static void allocate(bench_t *b)
{
    bench_options_t *o = &b->options;
    char kind = o->kind[b->sender ? 0 : 1];
    size_t largest = 1;
    int result;

    for (size_t size = o->min_size; size <= o->max_size; size = bench_next_size(size)) {
        bench_layout_t layout;

        bench_layout_make(&layout, o, size);
        if (layout.extent > largest)
            largest = layout.extent;
        bench_layout_free(&layout);
    }
    b->slot_bytes = (largest + 255) / 256 * 256;
    b->slots = count_slots(o, b->slot_bytes);
    result = b->peer < 0 ? GPU_OK : gpu_buf_alloc(&b->send, kind, b->slots * b->slot_bytes, 0);
    if (result == GPU_OK && b->peer >= 0)
        result = gpu_buf_alloc(&b->receive, kind, b->slots * b->slot_bytes, 0);
    all_or_nothing(b, result != GPU_OK, gpu_why());
    if (b->peer >= 0) { /* touch every page, and never time on zeros */
        gpu_set(&b->send, 0, 's', b->send.size);
        gpu_set(&b->receive, 0, 'r', b->receive.size);
    }
    if (o->validate) {
        b->scratch = malloc(b->slot_bytes);
        all_or_nothing(b, !b->scratch, "no host memory for validation");
    }
}

/* A message from device to device, so that the MPI library sees a GPU program; the buffer stays. */
static void use_gpu(bench_t *b)
{
    int result = b->peer < 0 ? GPU_OK : gpu_buf_alloc(&b->first_use, 'D', 4096, 0);

    all_or_nothing(b, result != GPU_OK, gpu_why());
    if (b->sender)
        MPI_Send(b->first_use.ptr, 4096, MPI_BYTE, b->peer, 0, b->comm);
    else if (b->peer >= 0)
        MPI_Recv(b->first_use.ptr, 4096, MPI_BYTE, b->peer, 0, b->comm, MPI_STATUS_IGNORE);
}

void bench_start(bench_t *b, const bench_program_t *program, int argc, char **argv)
{
    MPI_Comm node;
    int local, nodes, result = GPU_OK, early;

    memset(b, 0, sizeof(*b));
    program_name = program->name;
    bench_options_parse(&b->options, program, argc, argv);

    /* Some MPI libraries look for a device in MPI_Init: give it to them where the launcher says
     * which one. A rank whose own side is host memory takes none. */
    early = gpu_local_rank_from_env();
    if (early >= 0)
        gpu_set_local_rank(early);
    if (early >= 0 && b->options.kind[0] != 'H' && b->options.kind[1] != 'H')
        gpu_select(early);
    if (early >= 0 && (b->options.kind[0] == 'B' || b->options.kind[1] == 'B'))
        reserve_early(&b->options);

    MPI_Init(&argc, &argv);
    b->comm = MPI_COMM_WORLD;
    MPI_Comm_rank(b->comm, &b->rank);
    MPI_Comm_size(b->comm, &b->size);
    MPI_Comm_split_type(b->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local);
    MPI_Comm_size(node, &nodes);
    b->one_node = nodes == b->size;
    MPI_Comm_free(&node);
    choose_pairs(b);
    gpu_set_local_rank(local);
    if (b->peer >= 0 && (b->options.gpu || b->options.kind[b->sender ? 0 : 1] != 'H'))
        result = gpu_select(local);
    all_or_nothing(b, result != GPU_OK, gpu_why());
    if (b->options.gpu)
        use_gpu(b);
    allocate(b);
}

int bench_finish(bench_t *b)
{
    unsigned long long mine = b->data_errors, all;
    int status = BENCH_EXIT_OK;

    MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, b->comm);
    if (all) {
        if (b->rank == 0)
            fprintf(stderr, "%s: error: %llu messages carried wrong data\n", program_name, all);
        status = BENCH_EXIT_DATA;
    }
    gpu_buf_free(&b->first_use);
    gpu_buf_free(&b->send);
    gpu_buf_free(&b->receive);
    free(b->scratch);
    MPI_Finalize();
    return status;
}

/* ---- Data checks ----------------------------------------------------------------------- */

void *bench_send_slot(const bench_t *b, size_t slot)
{
    return b->send.ptr + slot % b->slots * b->slot_bytes;
}

void *bench_receive_slot(const bench_t *b, size_t slot)
{
    return b->receive.ptr + slot % b->slots * b->slot_bytes;
}

static ptrdiff_t slot_offset(const bench_t *b, size_t slot)
{
    return (ptrdiff_t)(slot % b->slots * b->slot_bytes);
}

/* Messages that share a slot must carry the same data. */
static uint64_t slot_seed(const bench_t *b, uint64_t seed, size_t slot)
{
    return seed * 4096 + slot % b->slots;
}

void bench_fill(bench_t *b, const bench_layout_t *l, size_t slot, uint64_t seed)
{
    seed = slot_seed(b, seed, slot);
    memset(b->scratch, PATTERN_GUARD ^ 0xff, l->extent);
    for (size_t i = 0; i < l->count; i++)
        pattern_fill(b->scratch + l->first + i * l->stride, seed, i * l->block, l->block);
    gpu_write(&b->send, slot_offset(b, slot), b->scratch, l->extent);
}

void bench_clear(bench_t *b, const bench_layout_t *l, size_t slot)
{
    gpu_set(&b->receive, slot_offset(b, slot), PATTERN_GUARD, l->extent);
}

/* Position of the first wrong byte of the slot in scratch, extent if none. */
static size_t first_wrong(const bench_t *b, const bench_layout_t *l, uint64_t seed)
{
    size_t end = 0;

    for (size_t i = 0; i <= l->count; i++) {
        size_t start = i < l->count ? l->first + i * l->stride : l->extent;
        size_t at = pattern_not_all(b->scratch + end, PATTERN_GUARD, start - end);

        if (at < start - end)
            return end + at;
        if (i == l->count)
            break;
        at = pattern_differs(b->scratch + start, seed, i * l->block, l->block);
        if (at < l->block)
            return start + at;
        end = start + l->block;
    }
    return l->extent;
}

void bench_check(bench_t *b, const bench_layout_t *l, size_t slot, uint64_t seed)
{
    size_t at;

    gpu_read(&b->receive, slot_offset(b, slot), b->scratch, l->extent);
    at = first_wrong(b, l, slot_seed(b, seed, slot));
    if (at == l->extent)
        return;
    if (b->data_errors++ < ERRORS_SHOWN)
        fprintf(stderr, "%s: rank %d: message of %zu bytes, slot %zu: wrong byte at %zu\n",
                program_name, b->rank, l->payload, slot, at);
}
