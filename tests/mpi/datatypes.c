/* SPDX-License-Identifier: BSD-3-Clause */
/* Every datatype constructor, small and large, typed on either side or both. */
#include <stdlib.h>
#include <string.h>

#include "tests/mpi/image_lib.h"

typedef image_layout_t build_fn(int scale);

static image_layout_t layout(MPI_Datatype type, int count)
{
    MPI_Type_commit(&type);
    return (image_layout_t){type, count};
}

static void release(MPI_Datatype type)
{
    int integers, addresses, types, combiner;

    MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    if (combiner != MPI_COMBINER_NAMED)
        MPI_Type_free(&type);
}

/* scale is about the number of 8-byte pieces of data */

static image_layout_t contiguous(int scale)
{
    MPI_Datatype t;

    MPI_Type_contiguous(2 * scale, MPI_INT, &t);
    return layout(t, 1);
}

static image_layout_t vector(int scale)
{
    MPI_Datatype t;

    MPI_Type_vector(scale / 3 + 1, 3, 5, MPI_DOUBLE, &t);
    return layout(t, 1);
}

static image_layout_t vector_4_bytes(int scale)
{
    MPI_Datatype t;

    MPI_Type_vector(2 * scale, 1, 4, MPI_FLOAT, &t);
    return layout(t, 1);
}

static image_layout_t vector_4_kib(int scale)
{
    MPI_Datatype t;

    MPI_Type_vector(scale / 512 + 1, 512, 640, MPI_DOUBLE, &t);
    return layout(t, 1);
}

static image_layout_t vector_of_large_blocks(int scale)
{
    MPI_Datatype t;

    MPI_Type_vector(2, scale / 2 + 1, scale / 2 + 7, MPI_DOUBLE, &t);
    return layout(t, 1);
}

static image_layout_t vector_backwards(int scale)
{
    MPI_Datatype t;

    MPI_Type_vector(scale / 2 + 1, 2, -3, MPI_DOUBLE, &t);
    return layout(t, 1);
}

static image_layout_t hvector_unaligned(int scale)
{
    MPI_Datatype t;

    MPI_Type_create_hvector(scale, 7, 13, MPI_BYTE, &t);
    return layout(t, 1);
}

static image_layout_t hvector_backwards(int scale)
{
    MPI_Datatype t;

    MPI_Type_create_hvector(scale, 1, -24, MPI_DOUBLE, &t);
    return layout(t, 1);
}

static image_layout_t many_short_vectors(int scale)
{
    MPI_Datatype v, t;

    MPI_Type_vector(4, 1, 2, MPI_DOUBLE, &v);
    MPI_Type_create_resized(v, 0, 80, &t);
    MPI_Type_free(&v);
    return layout(t, scale / 4 + 1);
}

static image_layout_t indexed(int scale)
{
    int n = scale / 4 + 1, *lengths = malloc((size_t)n * sizeof(int)),
        *places = malloc((size_t)n * sizeof(int)), at = 0;
    uint64_t state = 5;
    MPI_Datatype t;

    for (int i = 0; i < n; i++) {
        lengths[i] = (int)(mt_random(&state) % 9); /* zero-size blocks among them */
        places[i] = at;
        at += lengths[i] + (int)(mt_random(&state) % 4);
    }
    MPI_Type_indexed(n, lengths, places, MPI_DOUBLE, &t);
    free(lengths);
    free(places);
    return layout(t, 1);
}

static image_layout_t indexed_blocks_shuffled(int scale)
{
    int n = scale / 2 + 1, *places = malloc((size_t)n * sizeof(int));
    uint64_t state = 6;
    MPI_Datatype t;

    for (int i = 0; i < n; i++)
        places[i] = 3 * i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(mt_random(&state) % (uint64_t)(i + 1)), was = places[i];

        places[i] = places[j];
        places[j] = was;
    }
    MPI_Type_create_indexed_block(n, 2, places, MPI_DOUBLE, &t);
    free(places);
    return layout(t, 1);
}

static image_layout_t hindexed_unaligned(int scale)
{
    int n = scale / 4 + 1, *lengths = malloc((size_t)n * sizeof(int));
    MPI_Aint *places = malloc((size_t)n * sizeof(MPI_Aint)), at = 1;
    uint64_t state = 7;
    MPI_Datatype t;

    for (int i = n - 1; i >= 0; i--) { /* last block first in memory */
        lengths[i] = (int)(mt_random(&state) % 64);
        places[i] = at;
        at += lengths[i] + (MPI_Aint)(mt_random(&state) % 5);
    }
    MPI_Type_create_hindexed(n, lengths, places, MPI_BYTE, &t);
    free(lengths);
    free(places);
    return layout(t, 1);
}

static image_layout_t hindexed_block(int scale)
{
    int n = scale / 4 + 1;
    MPI_Aint *places = malloc((size_t)n * sizeof(MPI_Aint));
    MPI_Datatype t;

    for (int i = 0; i < n; i++)
        places[i] = 40 * (MPI_Aint)i;
    MPI_Type_create_hindexed_block(n, 4, places, MPI_DOUBLE, &t);
    free(places);
    return layout(t, 1);
}

static image_layout_t structure(int scale)
{
    int lengths[] = {1, 1, 3};
    MPI_Aint places[] = {0, 8, 16};
    MPI_Datatype types[] = {MPI_CHAR, MPI_DOUBLE, MPI_INT}, s, t;

    MPI_Type_create_struct(3, lengths, places, types, &s);
    MPI_Type_create_resized(s, 0, 32, &t);
    MPI_Type_free(&s);
    return layout(t, scale / 3 + 1);
}

static image_layout_t structure_of_arrays(int scale)
{
    int lengths[] = {scale / 3 + 1, 0, scale / 3 + 1, scale / 3 + 1};
    MPI_Aint places[] = {0, 4, 16 * (MPI_Aint)(scale + 8), 40 * (MPI_Aint)(scale + 8)};
    MPI_Datatype types[] = {MPI_DOUBLE, MPI_INT, MPI_FLOAT, MPI_DOUBLE}, t;

    MPI_Type_create_struct(4, lengths, places, types, &t);
    return layout(t, 1);
}

static int cube_root(int scale)
{
    int n = 1;

    while ((n + 1) * (n + 1) * (n + 1) <= scale)
        n++;
    return n;
}

static image_layout_t face(int scale, int axis, int order)
{
    int n = 2, sizes[3], part[3], start[3] = {1, 1, 1};
    MPI_Datatype t;

    while ((n + 1) * (n + 1) <= scale)
        n++;
    for (int i = 0; i < 3; i++) {
        sizes[i] = i == axis ? 4 : n + 2;
        part[i] = i == axis ? 1 : n;
    }
    MPI_Type_create_subarray(3, sizes, part, start, order, MPI_DOUBLE, &t);
    return layout(t, 1);
}

static image_layout_t face_0(int scale)
{
    return face(scale, 0, MPI_ORDER_C);
}

static image_layout_t face_1(int scale)
{
    return face(scale, 1, MPI_ORDER_C);
}

static image_layout_t face_2(int scale)
{
    return face(scale, 2, MPI_ORDER_C);
}

static image_layout_t fortran_box(int scale)
{
    int n = cube_root(scale) + 1, sizes[] = {n + 3, n + 1, n + 2}, part[] = {n, n, n},
        start[] = {2, 1, 0};
    MPI_Datatype t;

    MPI_Type_create_subarray(3, sizes, part, start, MPI_ORDER_FORTRAN, MPI_DOUBLE, &t);
    return layout(t, 1);
}

static image_layout_t darray(int scale)
{
    int n = cube_root(scale) + 2, sizes[] = {4 * n, n, n};
    int spread[] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_NONE};
    int args[] = {2, MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG}, grid[] = {2, 2, 1};
    MPI_Datatype t;

    MPI_Type_create_darray(4, 1, 3, sizes, spread, args, grid, MPI_ORDER_C, MPI_DOUBLE, &t);
    return layout(t, 1);
}

static image_layout_t resized(int scale)
{
    MPI_Datatype t;

    MPI_Type_create_resized(MPI_DOUBLE, 0, 24, &t);
    return layout(t, scale);
}

static image_layout_t resized_negative_bound(int scale)
{
    MPI_Datatype v, t;

    MPI_Type_vector(3, 1, 2, MPI_INT, &v);
    MPI_Type_create_resized(v, -16, 48, &t);
    MPI_Type_free(&v);
    return layout(t, scale / 2 + 1);
}

/* Rows of a matrix by columns: element i of each row, for every i. */
static image_layout_t columns(int scale)
{
    int n = 2;
    MPI_Datatype column, t;

    while ((n + 1) * (n + 1) <= scale)
        n++;
    MPI_Type_vector(n, 1, n, MPI_DOUBLE, &column);
    MPI_Type_create_resized(column, 0, 8, &t);
    MPI_Type_free(&column);
    return layout(t, n);
}

static image_layout_t nested(int scale)
{
    MPI_Datatype inner, padded, middle, t;
    int lengths[] = {2, 1};
    MPI_Aint places[] = {0, 320};
    MPI_Datatype types[2];

    MPI_Type_vector(3, 2, 3, MPI_INT, &inner);
    MPI_Type_create_resized(inner, 0, 44, &padded);
    MPI_Type_create_hvector(2, 3, 150, padded, &middle);
    types[0] = padded;
    types[1] = middle;
    MPI_Type_create_struct(2, lengths, places, types, &t);
    MPI_Type_free(&inner);
    MPI_Type_free(&padded);
    MPI_Type_free(&middle);
    return layout(t, scale / 20 + 1);
}

static image_layout_t pairs_with_gaps(int scale)
{
    return (image_layout_t){MPI_DOUBLE_INT, scale / 2 + 1};
}

static image_layout_t small_pairs(int scale)
{
    return (image_layout_t){MPI_SHORT_INT, scale};
}

static image_layout_t complex_numbers(int scale)
{
    MPI_Datatype t;

    MPI_Type_vector(scale / 2 + 1, 1, 2, MPI_C_DOUBLE_COMPLEX, &t);
    return layout(t, 1);
}

static image_layout_t one_block_inside(int scale)
{
    int length = 8 * scale;
    MPI_Aint place = 37;
    MPI_Datatype t;

    MPI_Type_create_hindexed(1, &length, &place, MPI_BYTE, &t);
    return layout(t, 1);
}

static const struct {
    const char *name;
    build_fn *build;
} types[] = {{"contiguous", contiguous},
             {"vector", vector},
             {"vector of 4-byte blocks", vector_4_bytes},
             {"vector of 4-KiB blocks", vector_4_kib},
             {"vector of two large blocks", vector_of_large_blocks},
             {"vector, negative stride", vector_backwards},
             {"hvector, 7 of 13 bytes", hvector_unaligned},
             {"hvector, negative stride", hvector_backwards},
             {"many short vectors", many_short_vectors},
             {"indexed", indexed},
             {"indexed blocks, shuffled", indexed_blocks_shuffled},
             {"hindexed, odd addresses, backwards", hindexed_unaligned},
             {"hindexed block", hindexed_block},
             {"struct", structure},
             {"struct of arrays", structure_of_arrays},
             {"face 0 of a 3-D array", face_0},
             {"face 1 of a 3-D array", face_1},
             {"face 2 of a 3-D array", face_2},
             {"box in Fortran order", fortran_box},
             {"darray", darray},
             {"resized", resized},
             {"resized, negative lower bound", resized_negative_bound},
             {"columns of a matrix", columns},
             {"nested", nested},
             {"MPI_DOUBLE_INT", pairs_with_gaps},
             {"MPI_SHORT_INT", small_pairs},
             {"complex", complex_numbers},
             {"one block inside", one_block_inside}};
#define TYPES (sizeof(types) / sizeof(types[0]))

static size_t span_of(image_layout_t l)
{
    ptrdiff_t low;
    size_t bytes;

    image_span(l, &low, &bytes);
    return bytes;
}

static int largest_scale = 200000;

static void each_type(void)
{
    const int scales[] = {1, 30, 9000, largest_scale};

    for (size_t i = 0; i < TYPES; i++) {
        size_t most = 0;

        mt_case("%s", types[i].name);
        for (int s = 0; s < 4; s++) {
            image_layout_t l = types[i].build(scales[s]);

            if (span_of(l) > most)
                most = span_of(l);
            release(l.type);
        }
        image_begin(most + 64);
        for (int s = 0; mt_ready() && s < 4; s++) {
            image_layout_t l = types[i].build(scales[s]), p = image_packed(image_data(l));
            image_way_t way = (image_way_t)((i + (size_t)s) % IMAGE_WAYS);
            uint64_t seed = 100 * i + (uint64_t)s;

            image_transfer(l, l, seed, way);
            image_transfer(l, p, seed + 10, (way + 1) % IMAGE_WAYS);
            image_transfer(p, l, seed + 20, (way + 2) % IMAGE_WAYS);
            release(l.type);
        }
        image_end();
        mt_end();
    }
}

/* A send may name the same memory twice. */
static void overlapping_send(void)
{
    int lengths[] = {4, 6, 4, 100}, places[] = {0, 2, 0, 1};
    image_layout_t from, to;
    MPI_Datatype t;

    mt_case("overlapping blocks on the send side");
    MPI_Type_indexed(4, lengths, places, MPI_DOUBLE, &t);
    from = layout(t, 200);
    MPI_Type_contiguous(114, MPI_DOUBLE, &t);
    to = layout(t, 200);
    if (image_begin(span_of(to) + 64))
        for (image_way_t way = 0; way < IMAGE_WAYS; way++)
            image_transfer(from, to, 77 + way, way);
    image_end();
    release(from.type);
    release(to.type);
    mt_end();
}

/* The same numbers laid out differently on the two sides. */
static void different_types(void)
{
    static const int n = 180;
    image_layout_t rows = {MPI_DOUBLE, n * n}, matrix = columns(n * n);
    MPI_Datatype v;
    image_layout_t scattered;

    mt_case("other layouts on the two sides");
    MPI_Type_vector(n * n / 4, 4, 7, MPI_DOUBLE, &v);
    scattered = layout(v, 1);
    if (image_begin(span_of(scattered) + 64)) {
        image_transfer(rows, matrix, 1, IMAGE_BLOCKING);
        image_transfer(matrix, rows, 2, IMAGE_POSTED);
        image_transfer(scattered, matrix, 3, IMAGE_PROBED);
        image_transfer(matrix, scattered, 4, IMAGE_BLOCKING);
    }
    image_end();
    release(matrix.type);
    release(scattered.type);
    mt_end();
}

/* Absolute addresses: two separate allocations as one message from MPI_BOTTOM. */
static void bottom(bool buffered)
{
    const size_t n = 70000;
    void *attached = malloc(2 * n + MPI_BSEND_OVERHEAD);
    int attached_size = (int)(2 * n + MPI_BSEND_OVERHEAD);
    char kind = mt_sending ? mt_send_kind : mt_recv_kind;
    gpu_buf_t a, b;

    mt_case("absolute addresses, MPI_BOTTOM%s", buffered ? ", buffered" : "");
    if (mt_alloc(&a, kind, n))
        mt_alloc(&b, kind, n);
    if (mt_ready() && mt_peer >= 0) {
        int lengths[] = {(int)n, (int)n - 5};
        MPI_Aint places[2];
        MPI_Datatype t;

        MPI_Get_address(a.ptr, &places[0]);
        MPI_Get_address(b.ptr + 3, &places[1]);
        MPI_Type_create_hindexed(2, lengths, places, MPI_BYTE, &t);
        MPI_Type_commit(&t);
        if (mt_sending) {
            mt_fill(&a, 1, 0, n);
            mt_fill(&b, 2, 3, n - 5);
            MPI_OK(MPI_Buffer_attach(attached, attached_size));
            MPI_OK((buffered ? MPI_Bsend : MPI_Send)(MPI_BOTTOM, 1, t, mt_peer, 3, mt_world));
            MPI_OK(MPI_Buffer_detach(&attached, &attached_size));
        } else {
            MPI_OK(MPI_Recv(MPI_BOTTOM, 1, t, mt_peer, 3, mt_world, MPI_STATUS_IGNORE));
            mt_expect_message(&a, 1, n);
            mt_expect(&b, 2, 3, n - 5);
            mt_expect_untouched(&b, -(ptrdiff_t)MT_GUARD, MT_GUARD + 3);
            mt_expect_untouched(&b, (ptrdiff_t)n - 2, 2 + MT_GUARD);
        }
        MPI_Type_free(&t);
    }
    mt_free(&a);
    mt_free(&b);
    free(attached);
    mt_end();
}

/* A type freed while its message is on the way, and a new one at its handle. */
static void freed_type(void)
{
    mt_case("a type is freed with its message on the way");
    image_begin((size_t)4 << 20);
    for (int i = 0; mt_ready() && mt_peer >= 0 && i < 20; i++) {
        image_layout_t l = i % 2 ? vector(20000) : hvector_unaligned(20000);
        unsigned char *source = image_source(l, (uint64_t)i), *packed, *want;
        size_t span = span_of(l);
        gpu_buf_t b;
        MPI_Request request;

        if (mt_alloc(&b, mt_sending ? mt_send_kind : mt_recv_kind, span)) {
            if (mt_sending) {
                gpu_write(&b, 0, source, span);
                MPI_OK(MPI_Isend(b.ptr, 1, l.type, mt_peer, 3, mt_world, &request));
                release(l.type);
                MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            } else {
                unsigned char *have = malloc(span);

                packed = image_pack(l, source);
                want = image_unpack(l, packed);
                MPI_OK(MPI_Irecv(b.ptr, 1, l.type, mt_peer, 3, mt_world, &request));
                release(l.type);
                MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
                gpu_read(&b, 0, have, span);
                CHECK(memcmp(have, want, span) == 0, "round %d: wrong data", i);
                free(packed);
                free(want);
                free(have);
            }
            mt_free(&b);
        }
        free(source);
    }
    image_end();
    mt_end();
}

static void pair(void)
{
    each_type();
    overlapping_send();
    different_types();
    bottom(false);
    bottom(true);
    freed_type();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "datatypes", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    if (argc > 1)
        largest_scale = atoi(argv[1]);
    mt_each_pair(pair);
    return mt_finish();
}
