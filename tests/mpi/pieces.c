/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages whose pieces end inside basic elements: 12, 17 and 34 bytes fit no power of two, and a
 * library that packs or unpacks piece by piece must neither lose the bytes of a cut element nor
 * write past it. To the peer and to itself, from some KiB to some MiB.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/mpi/image_lib.h"

enum { TYPES = 4, SELF_TAG = 5 };

#define MOST_DATA ((size_t)2 << 20)
#define MOST_SPAN ((size_t)12 << 20)

static const char *const names[TYPES] = {"int and double", "char and double complex",
                                         "short and long double complex", "long double complex"};
static MPI_Datatype types[TYPES];

static void types_make(void)
{
    const MPI_Datatype parts[TYPES][2] = {{MPI_INT, MPI_DOUBLE},
                                          {MPI_CHAR, MPI_C_DOUBLE_COMPLEX},
                                          {MPI_SHORT, MPI_C_LONG_DOUBLE_COMPLEX},
                                          {MPI_C_LONG_DOUBLE_COMPLEX, MPI_C_LONG_DOUBLE_COMPLEX}};
    const int lengths[2] = {1, 1};

    for (int i = 0; i < TYPES; i++) {
        const MPI_Aint places[2] = {0, i == 3 ? 48 : 16};
        MPI_Datatype pair;

        MPI_Type_create_struct(i == 3 ? 1 : 2, lengths, places, parts[i], &pair);
        MPI_Type_create_resized(pair, 0, 64, &types[i]);
        MPI_Type_commit(&types[i]);
        MPI_Type_free(&pair);
    }
}

static image_layout_t elements(int type, size_t bytes)
{
    int size;

    MPI_Type_size(types[type], &size);
    return (image_layout_t){types[type], (int)(bytes / (size_t)size)};
}

static void to_peer(void)
{
    for (int type = 0; type < TYPES; type++) {
        uint64_t seed = (uint64_t)type * 1000;

        mt_case("elements of %s", names[type]);
        image_begin(MOST_SPAN);
        for (size_t n = 2000; mt_ready() && n < MOST_DATA; n = n * 23 / 6) {
            image_layout_t typed = elements(type, n);
            image_layout_t packed = image_packed(image_data(typed));

            for (int way = 0; way < IMAGE_WAYS; way++) {
                bool ok = image_transfer(typed, typed, seed++, (image_way_t)way);

                ok = image_transfer(typed, packed, seed++, (image_way_t)way) && ok;
                ok = image_transfer(packed, typed, seed++, (image_way_t)way) && ok;
                if (!ok)
                    mt_note("that was way %d", way);
            }
        }
        image_end();
        mt_end();
    }
}

/* Between two buffers of this rank; `posted`: the receive first. */
static void self_transfer(gpu_buf_t *source, gpu_buf_t *target, image_layout_t from,
                          image_layout_t to, uint64_t seed, bool posted)
{
    unsigned char *data = image_source(from, seed), *packed = image_pack(from, data);
    unsigned char *want = image_unpack(to, packed);
    MPI_Request send, receive;
    size_t from_span, to_span;
    ptrdiff_t low;
    char what[64];

    image_span(from, &low, &from_span);
    image_span(to, &low, &to_span);
    gpu_write(source, 0, data, from_span);
    mt_clear(target);
    if (posted)
        MPI_OK(MPI_Irecv(target->ptr, to.count, to.type, 0, SELF_TAG, MPI_COMM_SELF, &receive));
    MPI_OK(MPI_Isend(source->ptr, from.count, from.type, 0, SELF_TAG, MPI_COMM_SELF, &send));
    if (!posted)
        MPI_OK(MPI_Irecv(target->ptr, to.count, to.type, 0, SELF_TAG, MPI_COMM_SELF, &receive));
    MPI_OK(MPI_Wait(&receive, MPI_STATUS_IGNORE));
    MPI_OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
    snprintf(what, sizeof(what), "to itself, %zu bytes", image_data(from));
    image_compare(target, want, to_span, what);
    free(data);
    free(packed);
    free(want);
}

static void to_itself(void)
{
    for (int type = 0; type < TYPES; type++) {
        gpu_buf_t source = {0}, target = {0};

        mt_case("to itself, elements of %s", names[type]);
        if (mt_alloc(&source, mt_send_kind, MOST_SPAN))
            mt_alloc(&target, mt_recv_kind, MOST_SPAN);
        for (size_t n = 2000; mt_ready() && n < MOST_DATA; n = n * 23 / 6) {
            image_layout_t typed = elements(type, n);
            image_layout_t packed = image_packed(image_data(typed));

            for (int posted = 0; posted < 2; posted++) {
                self_transfer(&source, &target, typed, typed, n, posted);
                self_transfer(&source, &target, typed, packed, n + 1, posted);
                self_transfer(&source, &target, packed, typed, n + 2, posted);
            }
        }
        mt_free(&source);
        mt_free(&target);
        mt_end();
    }
}

static void pair(void)
{
    to_peer();
    to_itself();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "pieces", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    types_make();
    mt_each_pair(pair);
    for (int i = 0; i < TYPES; i++)
        MPI_Type_free(&types[i]);
    return mt_finish();
}
