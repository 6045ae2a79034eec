/* SPDX-License-Identifier: BSD-3-Clause */
/* Typed messages checked byte by byte (image_lib.h). */
#include "tests/mpi/image_lib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/common/pattern.h"

enum { TAG = 21 };

static gpu_buf_t buffer;

static void *need(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);

    if (!p)
        abort();
    return p;
}

void image_span(image_layout_t l, ptrdiff_t *low, size_t *bytes)
{
    MPI_Aint lb, extent, true_lb, true_extent, first, last;

    MPI_Type_get_extent(l.type, &lb, &extent);
    MPI_Type_get_true_extent(l.type, &true_lb, &true_extent);
    /* the true bounds of a type without data are meaningless */
    if (image_data(l) == 0) {
        *low = 0;
        *bytes = 0;
        return;
    }
    first = true_lb;
    last = true_lb + (l.count - 1) * extent;
    *low = first < last ? first : last;
    *bytes = (size_t)((first < last ? last : first) + true_extent - *low);
}

size_t image_data(image_layout_t l)
{
    MPI_Count size;

    MPI_Type_size_x(l.type, &size);
    return (size_t)size * (size_t)l.count;
}

image_layout_t image_packed(size_t n)
{
    return (image_layout_t){MPI_PACKED, (int)n};
}

unsigned char *image_source(image_layout_t l, uint64_t seed)
{
    ptrdiff_t low;
    size_t bytes;
    unsigned char *image;

    image_span(l, &low, &bytes);
    image = need(bytes);
    pattern_fill(image, seed, 0, bytes);
    return image;
}

/* MPI_Pack of packed data is refused by some libraries; it is the data. */
unsigned char *image_pack(image_layout_t l, const unsigned char *source)
{
    size_t n = image_data(l), span;
    unsigned char *packed = need(n);
    ptrdiff_t low;
    int position = 0;

    if (l.type == MPI_PACKED) {
        memcpy(packed, source, n);
        return packed;
    }
    image_span(l, &low, &span);
    MPI_OK(MPI_Pack(source - low, l.count, l.type, packed, (int)n, &position, mt_side));
    CHECK((size_t)position == n, "MPI_Pack wrote %d bytes, not %zu", position, n);
    return packed;
}

unsigned char *image_unpack(image_layout_t l, const unsigned char *packed)
{
    size_t n = image_data(l), span;
    unsigned char *image;
    ptrdiff_t low;
    int position = 0;

    image_span(l, &low, &span);
    image = need(span);
    if (l.type == MPI_PACKED) {
        memcpy(image, packed, n);
        return image;
    }
    memset(image, PATTERN_GUARD, span);
    MPI_OK(MPI_Unpack(packed, (int)n, &position, image - low, l.count, l.type, mt_side));
    return image;
}

bool image_begin(size_t most_bytes)
{
    mt_alloc(&buffer, mt_sending ? mt_send_kind : mt_recv_kind, most_bytes);
    return mt_ready();
}

void image_end(void)
{
    mt_free(&buffer);
}

static void send(image_layout_t from, uint64_t seed, image_way_t way)
{
    unsigned char *source = image_source(from, seed);
    MPI_Request request = MPI_REQUEST_NULL;
    ptrdiff_t low;
    size_t span;

    image_span(from, &low, &span);
    CHECK(span <= buffer.size, "a layout spans %zu bytes", span);
    gpu_write(&buffer, 0, source, span);
    if (way == IMAGE_POSTED)
        mt_sync_peer();
    if (way == IMAGE_NONBLOCKING)
        MPI_OK(MPI_Isend(buffer.ptr - low, from.count, from.type, mt_peer, TAG, mt_world,
                         &request));
    else if (way == IMAGE_SYNCHRONOUS)
        MPI_OK(MPI_Issend(buffer.ptr - low, from.count, from.type, mt_peer, TAG, mt_world,
                          &request));
    else
        MPI_OK(MPI_Send(buffer.ptr - low, from.count, from.type, mt_peer, TAG, mt_world));
    MPI_OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    free(source);
}

bool image_compare(const gpu_buf_t *have, const unsigned char *want, size_t span, const char *what)
{
    unsigned char *bytes = need(span);
    size_t at = 0;

    gpu_read(have, 0, bytes, span);
    while (at < span && bytes[at] == want[at])
        at++;
    if (at < span)
        mt_failed(__FILE__, __LINE__, "%s: byte %zu of %zu is %02x, not %02x", what, at, span,
                  bytes[at], want[at]);
    free(bytes);
    return at == span && mt_expect_untouched(have, -(ptrdiff_t)MT_GUARD, MT_GUARD) &&
           mt_expect_untouched(have, (ptrdiff_t)span, MT_GUARD);
}

static bool receive(image_layout_t from, image_layout_t to, uint64_t seed, image_way_t way)
{
    unsigned char *source = image_source(from, seed);
    unsigned char *packed = image_pack(from, source);
    unsigned char *want = image_unpack(to, packed);
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    char types[64];
    ptrdiff_t low;
    size_t span;
    bool ok;

    image_span(to, &low, &span);
    CHECK(span <= buffer.size, "a layout spans %zu bytes", span);
    gpu_set(&buffer, -(ptrdiff_t)MT_GUARD, PATTERN_GUARD, span + 2 * MT_GUARD);
    switch (way) {
    case IMAGE_POSTED:
        MPI_OK(MPI_Irecv(buffer.ptr - low, to.count, to.type, mt_peer, TAG, mt_world, &request));
        mt_sync_peer();
        MPI_OK(MPI_Wait(&request, &status));
        break;
    case IMAGE_PROBED:
        MPI_OK(MPI_Mprobe(mt_peer, TAG, mt_world, &message, &status));
        MPI_OK(MPI_Mrecv(buffer.ptr - low, to.count, to.type, &message, &status));
        break;
    default:
        MPI_OK(MPI_Recv(buffer.ptr - low, to.count, to.type, mt_peer, TAG, mt_world, &status));
    }
    snprintf(types, sizeof(types), "%s to %s, %zu bytes",
             from.type == MPI_PACKED ? "packed" : "typed",
             to.type == MPI_PACKED ? "packed" : "typed", image_data(from));
    ok = image_compare(&buffer, want, span, types) &&
         mt_expect_status(&status, mt_peer, TAG, image_data(from));
    free(source);
    free(packed);
    free(want);
    return ok;
}

bool image_transfer(image_layout_t from, image_layout_t to, uint64_t seed, image_way_t way)
{
    if (mt_peer < 0)
        return true;
    if (mt_sending) {
        send(from, seed, way);
        return true;
    }
    return receive(from, to, seed, way);
}
