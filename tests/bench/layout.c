/* SPDX-License-Identifier: BSD-3-Clause */
/* Message layouts: the MPI datatype and the same blocks as plain numbers for the data check. */
#include "tests/bench/bench.h"

#include <limits.h>
#include <string.h>

/* A face's array is a cube while it fits in this; beyond it is made thinner across the face. */
#define FACE_ARRAY_MAX ((size_t)512 << 20)

/* A type of size bytes made of the largest usual number that fits: what programs send. */
static MPI_Datatype element_type(size_t size, bool *owned)
{
    MPI_Datatype basic = size % 8 == 0 ? MPI_DOUBLE : size % 4 == 0 ? MPI_FLOAT : MPI_BYTE;
    size_t basic_size = size % 8 == 0 ? 8 : size % 4 == 0 ? 4 : 1;
    MPI_Datatype type;

    *owned = size != basic_size;
    if (!*owned)
        return basic;
    MPI_Type_contiguous((int)(size / basic_size), basic, &type);
    return type;
}

static void make_contig(bench_layout_t *l, size_t size)
{
    const size_t piece = (size_t)1 << 20;

    l->payload = l->extent = l->block = l->stride = size;
    l->count = 1;
    if (size <= INT_MAX) {
        l->type = MPI_BYTE;
        l->type_count = (int)size;
        return;
    }
    l->payload = l->extent = l->block = l->stride = size / piece * piece;
    MPI_Type_contiguous((int)piece, MPI_BYTE, &l->type);
    MPI_Type_commit(&l->type);
    l->type_count = (int)(size / piece);
    l->owned = true;
}

static void make_vector(bench_layout_t *l, size_t size, size_t block, size_t stride)
{
    MPI_Datatype element;
    bool owned;

    if (size < block) {
        make_contig(l, size);
        return;
    }
    l->count = size / block;
    l->block = block;
    l->stride = stride;
    l->payload = l->count * block;
    l->extent = (l->count - 1) * stride + block;
    element = element_type(block, &owned);
    MPI_Type_create_hvector((int)l->count, 1, (MPI_Aint)stride, element, &l->type);
    MPI_Type_commit(&l->type);
    if (owned)
        MPI_Type_free(&element);
    l->type_count = 1;
    l->owned = true;
}

static size_t square_root(size_t n)
{
    size_t root = 0;

    for (size_t bit = (size_t)1 << 31; bit; bit >>= 1)
        if ((root + bit) * (root + bit) <= n)
            root += bit;
    return root;
}

/* The plane in the middle of a side x side x depth array, depth being the extent along axis. */
static void make_face(bench_layout_t *l, size_t size, int axis, size_t bytes)
{
    size_t side = square_root(size / bytes);
    size_t depth = side;
    int dims[3], sub[3], start[3] = {0, 0, 0};
    MPI_Datatype element;
    bool owned;

    if (side == 0) {
        make_contig(l, size);
        return;
    }
    if (side * side * depth * bytes > FACE_ARRAY_MAX)
        depth = FACE_ARRAY_MAX / (side * side * bytes);
    if (depth < 3)
        depth = 3;
    for (int i = 0; i < 3; i++) {
        dims[i] = (int)(i == axis ? depth : side);
        sub[i] = i == axis ? 1 : (int)side;
    }
    start[axis] = (int)(depth / 2);

    l->block = axis == 0 ? side * side * bytes : axis == 1 ? side * bytes : bytes;
    l->count = axis == 0 ? 1 : axis == 1 ? side : side * side;
    l->stride = axis == 0 ? l->block : axis == 1 ? depth * side * bytes : depth * bytes;
    l->first = depth / 2 * (axis == 0 ? side * side : axis == 1 ? side : 1) * bytes;
    l->payload = l->block * l->count;
    l->extent = side * side * depth * bytes;
    element = element_type(bytes, &owned);
    MPI_Type_create_subarray(3, dims, sub, start, MPI_ORDER_C, element, &l->type);
    MPI_Type_commit(&l->type);
    if (owned)
        MPI_Type_free(&element);
    l->type_count = 1;
    l->owned = true;
}

void bench_layout_make(bench_layout_t *layout, const bench_options_t *options, size_t size)
{
    memset(layout, 0, sizeof(*layout));
    if (options->type == BENCH_VECTOR)
        make_vector(layout, size, options->type_block, options->type_stride);
    else if (options->type == BENCH_FACE)
        make_face(layout, size, options->type_axis, options->type_block);
    else
        make_contig(layout, size);
}

void bench_layout_free(bench_layout_t *layout)
{
    if (layout->owned)
        MPI_Type_free(&layout->type);
    layout->owned = false;
}
