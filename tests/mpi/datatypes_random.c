/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random datatypes, nested up to four deep, against MPI_Pack and MPI_Unpack of host memory.
 * Arguments: number of types (150) and first seed (1). A failure names its seed.
 */
#include <stdlib.h>

#include "tests/mpi/image_lib.h"

#define BYTES_MAX ((size_t)4 << 20) /* span of a message */
#define CHILD_MAX ((size_t)1 << 19)

static uint64_t state;

static int pick(int n)
{
    return (int)(mt_random(&state) % (uint64_t)n);
}

static MPI_Datatype basic(void)
{
    static const MPI_Datatype types[] = {MPI_BYTE,  MPI_CHAR,   MPI_SHORT,      MPI_INT,
                                         MPI_FLOAT, MPI_DOUBLE, MPI_DOUBLE_INT, MPI_LONG_LONG,
                                         MPI_C_DOUBLE_COMPLEX};

    return types[pick((int)(sizeof(types) / sizeof(types[0])))];
}

static void extent_of(MPI_Datatype t, MPI_Aint *extent, MPI_Aint *true_lb, MPI_Aint *true_extent)
{
    MPI_Aint lb;

    MPI_Type_get_extent(t, &lb, extent);
    MPI_Type_get_true_extent(t, true_lb, true_extent);
}

/* Distance from one child to the next that keeps them apart. */
static MPI_Aint apart(MPI_Datatype child)
{
    MPI_Aint extent, true_lb, true_extent;

    extent_of(child, &extent, &true_lb, &true_extent);
    return true_extent > 0 ? true_extent : 1;
}

static MPI_Datatype strided(MPI_Datatype child)
{
    MPI_Aint step = apart(child), room = (MPI_Aint)CHILD_MAX / step + 1;
    int count = 1 + pick(room > 40 ? 40 : (int)room);
    MPI_Aint stride = step + pick(3) * pick(20);
    MPI_Datatype t;

    MPI_Type_create_hvector(count, 1, pick(4) == 0 ? -stride : stride, child, &t);
    return t;
}

/* Blocks of several children are only apart if the child's extent keeps them so. */
static MPI_Datatype padded(MPI_Datatype child)
{
    MPI_Aint extent, true_lb, true_extent;
    MPI_Datatype t;

    extent_of(child, &extent, &true_lb, &true_extent);
    MPI_Type_create_resized(child, pick(2) ? 0 : true_lb - pick(9), true_extent + pick(17), &t);
    return t;
}

static MPI_Datatype scattered(MPI_Datatype child)
{
    MPI_Datatype wide = padded(child), t;
    MPI_Aint extent, true_lb, true_extent, at = pick(50) - 25;
    int count = 1 + pick(12), lengths[12];
    MPI_Aint places[12];

    extent_of(wide, &extent, &true_lb, &true_extent);
    for (int i = 0; i < count; i++) {
        lengths[i] = extent * 4 > (MPI_Aint)CHILD_MAX / 16 ? 1 : pick(5); /* also none */
        places[i] = at;
        at += lengths[i] * extent + true_extent + pick(30);
    }
    for (int i = count - 1; i > 0; i--) { /* in any order */
        int j = pick(i + 1), length = lengths[i];
        MPI_Aint place = places[i];

        lengths[i] = lengths[j];
        lengths[j] = length;
        places[i] = places[j];
        places[j] = place;
    }
    MPI_Type_create_hindexed(count, lengths, places, wide, &t);
    MPI_Type_free(&wide);
    return t;
}

static MPI_Datatype subarray(MPI_Datatype child)
{
    MPI_Datatype wide, t;
    MPI_Aint extent, true_lb, true_extent;
    int dims = 1 + pick(3), sizes[3], part[3], start[3];

    extent_of(child, &extent, &true_lb, &true_extent);
    MPI_Type_create_resized(child, true_lb, true_extent > 0 ? true_extent : 1, &wide);
    for (int i = 0; i < dims; i++) {
        sizes[i] = 1 + pick(true_extent > 4096 ? 2 : true_extent > 256 ? 4 : 9);
        part[i] = 1 + pick(sizes[i]);
        start[i] = pick(sizes[i] - part[i] + 1);
    }
    MPI_Type_create_subarray(dims, sizes, part, start, pick(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN,
                             wide, &t);
    MPI_Type_free(&wide);
    return t;
}

static MPI_Datatype make(int depth);

static MPI_Datatype structure(int depth)
{
    int count = 1 + pick(4), lengths[4];
    MPI_Aint places[4], at = 0;
    MPI_Datatype children[4], t;

    for (int i = 0; i < count; i++) {
        MPI_Aint extent, true_lb, true_extent;

        children[i] = make(depth - 1);
        extent_of(children[i], &extent, &true_lb, &true_extent);
        lengths[i] = pick(6) ? 1 : 0;
        places[i] = at - true_lb;
        at += true_extent + pick(20);
    }
    MPI_Type_create_struct(count, lengths, places, children, &t);
    for (int i = 0; i < count; i++)
        MPI_Type_free(&children[i]);
    return t;
}

/* A derived type that the caller frees, no two of whose bytes share a place. */
static MPI_Datatype make(int depth)
{
    MPI_Aint extent, true_lb, true_extent;
    MPI_Datatype child, t;

    if (depth == 0) {
        MPI_Type_contiguous(1 + pick(6), basic(), &t);
        return t;
    }
    if (pick(4) == 0)
        return structure(depth);
    child = make(depth - 1);
    extent_of(child, &extent, &true_lb, &true_extent);
    if (true_extent > (MPI_Aint)CHILD_MAX / 8)
        return child;
    switch (pick(3)) {
    case 0:
        t = strided(child);
        break;
    case 1:
        t = scattered(child);
        break;
    default:
        t = subarray(child);
    }
    MPI_Type_free(&child);
    return t;
}

/* As many elements as keep apart and fit. */
static image_layout_t message(uint64_t seed)
{
    MPI_Aint extent, true_lb, true_extent;
    image_layout_t l;
    MPI_Datatype t;
    ptrdiff_t low;
    size_t bytes;

    state = seed * 1000003;
    t = make(pick(5));
    extent_of(t, &extent, &true_lb, &true_extent);
    MPI_Type_create_resized(t, true_lb, true_extent + pick(3) * pick(9), &l.type);
    MPI_Type_free(&t);
    MPI_Type_commit(&l.type);
    l.count = 1 + (pick(2) ? pick(300) : 0);
    for (image_span(l, &low, &bytes); bytes > BYTES_MAX && l.count > 1; l.count /= 2)
        image_span(l, &low, &bytes);
    return l;
}

static int types = 150;
static uint64_t first_seed = 1;

static void pair(void)
{
    mt_case("%d random types from seed %llu on", types, (unsigned long long)first_seed);
    image_begin(2 * BYTES_MAX);
    for (int i = 0; mt_ready() && mt_peer >= 0 && i < types; i++) {
        uint64_t seed = first_seed + (uint64_t)i;
        image_layout_t l = message(seed), p = image_packed(image_data(l));
        bool ok = image_transfer(l, l, seed, seed % IMAGE_WAYS);

        ok = image_transfer(l, p, seed + 7, (seed + 1) % IMAGE_WAYS) && ok;
        ok = image_transfer(p, l, seed + 9, (seed + 2) % IMAGE_WAYS) && ok;
        if (!ok)
            mt_note("that was seed %llu", (unsigned long long)seed);
        MPI_Type_free(&l.type);
    }
    image_end();
    mt_end();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "datatypes_random", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    if (argc > 1)
        types = atoi(argv[1]);
    if (argc > 2)
        first_seed = strtoull(argv[2], NULL, 10);
    mt_each_pair(pair);
    return mt_finish();
}
