/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Pack, MPI_Unpack, MPI_Pack_external and MPI_Sendrecv_replace on any memory. */
#include <stdlib.h>
#include <string.h>

#include "tests/mpi/image_lib.h"

/* mt_send_kind is the typed side, mt_recv_kind the packed one. */
static gpu_buf_t typed, packed;

static const int scales[] = {1, 500, 150000};
#define SCALES 3

static image_layout_t strided(int scale)
{
    MPI_Datatype t;

    MPI_Type_vector(scale, 3, 5, MPI_INT, &t);
    MPI_Type_commit(&t);
    return (image_layout_t){t, 1};
}

static image_layout_t contiguous(int scale)
{
    return (image_layout_t){MPI_INT, 3 * scale};
}

static bool begin(size_t typed_bytes, size_t packed_bytes)
{
    if (mt_alloc(&typed, mt_send_kind, typed_bytes))
        mt_alloc(&packed, mt_recv_kind, packed_bytes);
    return mt_ready();
}

static void end(void)
{
    mt_free(&typed);
    mt_free(&packed);
    mt_end();
}

static void expect_bytes(const gpu_buf_t *buf, const unsigned char *want, size_t n,
                         const char *what)
{
    unsigned char *have = malloc(n ? n : 1);

    gpu_read(buf, 0, have, n);
    for (size_t i = 0; i < n; i++)
        if (have[i] != want[i]) {
            mt_failed(__FILE__, __LINE__, "%s: byte %zu of %zu is %02x, not %02x", what, i, n,
                      have[i], want[i]);
            break;
        }
    mt_expect_untouched(buf, -(ptrdiff_t)MT_GUARD, MT_GUARD);
    mt_expect_untouched(buf, (ptrdiff_t)n, MT_GUARD);
    free(have);
}

static size_t span_of(image_layout_t l)
{
    ptrdiff_t low;
    size_t bytes;

    image_span(l, &low, &bytes);
    return bytes;
}

static void pack(bool external)
{
    mt_case("%s", external ? "MPI_Pack_external, MPI_Unpack_external" : "MPI_Pack, MPI_Unpack");
    begin((size_t)4 << 20, (size_t)2 << 20);
    for (int i = 0; mt_ready() && i < 2 * SCALES; i++) {
        image_layout_t l = i % 2 ? contiguous(scales[i / 2]) : strided(scales[i / 2]);
        size_t span = span_of(l), n = image_data(l);
        unsigned char *source = image_source(l, (uint64_t)i), *bytes = image_pack(l, source);
        unsigned char *want = image_unpack(l, bytes), *reference = malloc(n);
        MPI_Aint at = 0;
        int position = 0;

        /* the reference is made on the host, by the same library */
        if (external)
            MPI_OK(MPI_Pack_external("external32", source, l.count, l.type, reference, (MPI_Aint)n,
                                     &at));
        else
            MPI_OK(MPI_Pack(source, l.count, l.type, reference, (int)n, &position, mt_world));

        mt_clear(&packed);
        gpu_write(&typed, 0, source, span);
        position = 0;
        at = 0;
        if (external)
            MPI_OK(MPI_Pack_external("external32", typed.ptr, l.count, l.type, packed.ptr,
                                     (MPI_Aint)packed.size, &at));
        else
            MPI_OK(MPI_Pack(typed.ptr, l.count, l.type, packed.ptr, (int)packed.size, &position,
                            mt_world));
        CHECK((external ? (size_t)at : (size_t)position) == n, "the position is %td",
              external ? (ptrdiff_t)at : (ptrdiff_t)position);
        expect_bytes(&packed, reference, n, "packed");

        mt_clear(&typed);
        position = 0;
        at = 0;
        if (external)
            MPI_OK(MPI_Unpack_external("external32", packed.ptr, (MPI_Aint)n, &at, typed.ptr,
                                       l.count, l.type));
        else
            MPI_OK(MPI_Unpack(packed.ptr, (int)n, &position, typed.ptr, l.count, l.type, mt_world));
        expect_bytes(&typed, want, span, "unpacked");
        free(source);
        free(bytes);
        free(reference);
        free(want);
        if (i % 2 == 0)
            MPI_Type_free(&l.type);
    }
    end();
}

/* Several items into one buffer, one after the other. */
static void piecewise(void)
{
    mt_case("several items packed into one buffer");
    begin(65536, 65536);
    if (mt_ready()) {
        int position = 0, host[4] = {1, 2, 3, 4}, back[4] = {0};

        mt_fill(&typed, 9, 0, 40000);
        MPI_OK(MPI_Pack(host, 4, MPI_INT, packed.ptr, 65536, &position, mt_world));
        MPI_OK(MPI_Pack(typed.ptr, 40000, MPI_BYTE, packed.ptr, 65536, &position, mt_world));
        MPI_OK(MPI_Pack(host, 4, MPI_INT, packed.ptr, 65536, &position, mt_world));
        CHECK(position == 40032, "the position is %d", position);
        mt_clear(&typed);
        position = 0;
        MPI_OK(MPI_Unpack(packed.ptr, 40032, &position, back, 4, MPI_INT, mt_world));
        CHECK(memcmp(host, back, sizeof(host)) == 0, "the first item is wrong");
        MPI_OK(MPI_Unpack(packed.ptr, 40032, &position, typed.ptr, 40000, MPI_BYTE, mt_world));
        mt_expect_message(&typed, 9, 40000);
        memset(back, 0, sizeof(back));
        MPI_OK(MPI_Unpack(packed.ptr, 40032, &position, back, 4, MPI_INT, mt_world));
        CHECK(memcmp(host, back, sizeof(host)) == 0, "the last item is wrong");
    }
    end();
}

static void no_room(void)
{
    mt_case("packing without room fails with MPI_ERR_TRUNCATE");
    begin(4096, 4096);
    if (mt_ready()) {
        int position = 4000;

        MPI_FAILS(MPI_Pack(typed.ptr, 4000, MPI_BYTE, packed.ptr, 4096, &position, mt_world),
                  MPI_ERR_TRUNCATE);
        mt_expect_untouched(&packed, 0, 4096 + MT_GUARD);
    }
    end();
}

static void replace(void)
{
    static const size_t bytes[] = {0, 8, 5000, 65537, (size_t)2 << 20};

    mt_case("MPI_Sendrecv_replace");
    begin((size_t)4 << 20, 64);
    for (size_t i = 0; mt_ready() && mt_peer >= 0 && i < 5; i++) {
        MPI_Status status;

        mt_clear(&typed);
        mt_fill(&typed, 10 * i + (uint64_t)mt_rank, 0, bytes[i]);
        MPI_OK(MPI_Sendrecv_replace(typed.ptr, (int)bytes[i], MPI_BYTE, mt_peer, 3, mt_peer, 3,
                                    mt_world, &status));
        mt_expect_status(&status, mt_peer, 3, bytes[i]);
        mt_expect_message(&typed, 10 * i + (uint64_t)mt_peer, bytes[i]);
        /* with itself */
        MPI_OK(MPI_Sendrecv_replace(typed.ptr, (int)bytes[i], MPI_BYTE, mt_rank, 3, mt_rank, 3,
                                    mt_world, &status));
        mt_expect_message(&typed, 10 * i + (uint64_t)mt_peer, bytes[i]);
    }
    end();
}

static void replace_strided(void)
{
    mt_case("MPI_Sendrecv_replace of a strided type");
    begin((size_t)4 << 20, 64);
    for (int i = 0; mt_ready() && mt_peer >= 0 && i < SCALES; i++) {
        image_layout_t l = strided(scales[i]);
        size_t span = span_of(l);
        unsigned char *mine = image_source(l, (uint64_t)(20 * i + mt_rank));
        unsigned char *theirs = image_source(l, (uint64_t)(20 * i + mt_peer));
        unsigned char *moved = image_pack(l, theirs);
        int position = 0;

        gpu_set(&typed, -(ptrdiff_t)MT_GUARD, 0xA5, span + 2 * MT_GUARD);
        gpu_write(&typed, 0, mine, span);
        MPI_OK(MPI_Sendrecv_replace(typed.ptr, l.count, l.type, mt_peer, 3, mt_peer, 3, mt_world,
                                    MPI_STATUS_IGNORE));
        /* the gaps stay as they were */
        MPI_OK(MPI_Unpack(moved, (int)image_data(l), &position, mine, l.count, l.type, mt_side));
        expect_bytes(&typed, mine, span, "replaced");
        MPI_Type_free(&l.type);
        free(mine);
        free(theirs);
        free(moved);
    }
    end();
}

static void pair(void)
{
    pack(false);
    pack(true);
    piecewise();
    no_room();
    replace();
    replace_strided();
}

int main(int argc, char **argv)
{
    static const mt_program_t program = {.name = "pack_unpack", .min_ranks = 2};

    mt_start(&argc, &argv, &program);
    mt_each_pair(pair);
    return mt_finish();
}
