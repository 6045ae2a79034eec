/* SPDX-License-Identifier: BSD-3-Clause */
/* Host pack and unpack by Open MPI's convertor, in pieces of any length. */
#include "pml/walk.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"

/*
 * What Open MPI's convertor (4.1.4) does, and what is done about it here:
 * - Packing, it stops in front of a basic element that does not fit. The element is packed aside.
 * - Unpacking, it takes an element in parts, but through a buffer of 16 bytes that a long double
 *   complex overflows. Types with those are unpacked in whole elements.
 * - Its positioning goes wrong in nested loops (a crash or wild writes): so a walk only goes forward,
 *   or back to the beginning. Pieces that come out of turn wait for theirs.
 */
enum { REST_MAX = 64, SCRATCH = 4096 };     /* a rest is less than the largest element, 32 bytes */

/* A piece that waits for those before it. */
typedef struct early_piece {
    struct early_piece *next;
    size_t offset;
    size_t length;
    char bytes[];
} early_piece_t;

struct grail_walk {
    grail_walk_t *next_free;
    ompi_datatype_t *datatype;
    opal_convertor_t convertor;
    opal_convertor_t ruler;     /* unpack: packs in step to tell where elements end */
    bool measured;              /* the ruler is set up: the type has elements of 32 bytes */
    bool to_pack;
    size_t size;
    size_t count;
    void *buffer;
    size_t next;                /* offset of the piece whose turn it is */
    early_piece_t *early;       /* by offset */
    /* Pack: packed bytes that the last piece had no room for. Unpack: the part of an element that
     * the last piece had at its end. */
    size_t rest_length;
    unsigned char rest[REST_MAX];
};

static grail_walk_t *free_walks;

static void prepare_pack(const grail_walk_t *walk, opal_convertor_t *convertor)
{
    opal_convertor_copy_and_prepare_for_send(grail_ompi_convertor(), &walk->datatype->super,
                                             walk->count, walk->buffer, 0, convertor);
}

static void begin(grail_walk_t *walk)
{
    walk->next = 0;
    walk->rest_length = 0;
    walk->measured = false;
    if (walk->to_pack) {
        prepare_pack(walk, &walk->convertor);
        return;
    }
    opal_convertor_copy_and_prepare_for_recv(grail_ompi_convertor(), &walk->datatype->super,
                                             walk->count, walk->buffer, 0, &walk->convertor);
    if (grail_ompi_type_has_wide_elements(&walk->datatype->super)) {
        prepare_pack(walk, &walk->ruler);
        walk->measured = true;
    }
}

static void end(grail_walk_t *walk)
{
    while (walk->early != NULL) {
        early_piece_t *piece = walk->early;

        walk->early = piece->next;
        free(piece);
    }
    opal_convertor_cleanup(&walk->convertor);
    if (walk->measured)
        opal_convertor_cleanup(&walk->ruler);
}

grail_walk_t *grail_walk_new(ompi_datatype_t *datatype, const void *buffer, size_t count,
                             bool to_pack)
{
    grail_walk_t *walk = free_walks;

    if (walk != NULL) {
        free_walks = walk->next_free;
    } else {
        walk = malloc(sizeof(*walk));
        if (walk == NULL) {
            grail_error("out of host memory for a datatype's pack state");
            return NULL;
        }
        OBJ_CONSTRUCT(&walk->convertor, opal_convertor_t);
        OBJ_CONSTRUCT(&walk->ruler, opal_convertor_t);
    }
    OMPI_DATATYPE_RETAIN(datatype);
    walk->datatype = datatype;
    walk->count = count;
    walk->buffer = (void *)(uintptr_t)buffer;
    walk->to_pack = to_pack;
    walk->early = NULL;
    begin(walk);
    opal_convertor_get_packed_size(&walk->convertor, &walk->size);
    return walk;
}

void grail_walk_free(grail_walk_t *walk)
{
    end(walk);
    OMPI_DATATYPE_RELEASE(walk->datatype);
    walk->next_free = free_walks;
    free_walks = walk;
}

void grail_walks_fini(void)
{
    while (free_walks != NULL) {
        grail_walk_t *walk = free_walks;

        free_walks = walk->next_free;
        OBJ_DESTRUCT(&walk->convertor);
        OBJ_DESTRUCT(&walk->ruler);
        free(walk);
    }
}

size_t grail_walk_size(const grail_walk_t *walk)
{
    return walk->size;
}

/* ---- pack ---- */

/* Whole basic elements, as many as fit. */
static size_t pack_whole(opal_convertor_t *convertor, void *packed, size_t max)
{
    struct iovec iov = {.iov_base = packed, .iov_len = max};
    uint32_t pieces = 1;
    size_t length = max;

    if (max == 0)
        return 0;
    opal_convertor_pack(convertor, &iov, &pieces, &length);
    return length;
}

static size_t pack_rest(grail_walk_t *walk, void *packed, size_t max)
{
    size_t length = walk->rest_length < max ? walk->rest_length : max;

    memcpy(packed, walk->rest, length);
    walk->rest_length -= length;
    memmove(walk->rest, walk->rest + length, walk->rest_length);
    return length;
}

size_t grail_walk_pack(grail_walk_t *walk, size_t offset, void *packed, size_t max)
{
    char *to = packed;
    size_t done;

    if (offset != walk->next) {
        if (offset != 0)
            return 0;
        end(walk);
        begin(walk);
    }
    done = walk->rest_length > 0 ? pack_rest(walk, to, max) : 0;
    done += pack_whole(&walk->convertor, to + done, max - done);
    if (GRAIL_UNLIKELY(done < max && offset + done < walk->size)) {
        walk->rest_length = pack_whole(&walk->convertor, walk->rest, REST_MAX);
        done += pack_rest(walk, to + done, max - done);
    }
    walk->next = offset + done;
    return done;
}

/* ---- unpack ---- */

static void unpack_here(grail_walk_t *walk, const void *packed, size_t length)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)packed, .iov_len = length};
    uint32_t pieces = 1;

    if (length > 0)
        opal_convertor_unpack(&walk->convertor, &iov, &pieces, &length);
}

/* Of the next `length` bytes, those that are whole elements. */
static size_t measure(grail_walk_t *walk, size_t length)
{
    unsigned char scratch[SCRATCH];
    size_t whole = 0, step;

    do {
        step = pack_whole(&walk->ruler, scratch,
                          length - whole < sizeof(scratch) ? length - whole : sizeof(scratch));
        whole += step;
    } while (step > 0 && whole < length);
    return whole;
}

/* Completes the element that the piece before has cut. Returns how many bytes that took. */
static size_t unpack_rest(grail_walk_t *walk, const char *packed, size_t length)
{
    size_t before = walk->rest_length;
    size_t room = REST_MAX - before;
    size_t have = before + (length < room ? length : room);
    size_t whole;

    memcpy(walk->rest + before, packed, have - before);
    whole = measure(walk, have);
    if (whole == 0) {
        walk->rest_length = have;
        return have - before;
    }
    unpack_here(walk, walk->rest, whole);
    walk->rest_length = 0;
    return whole - before;
}

static void unpack_next(grail_walk_t *walk, const char *packed, size_t length)
{
    size_t taken = 0, whole;

    walk->next += length;
    if (GRAIL_LIKELY(!walk->measured)) {
        unpack_here(walk, packed, length);
        return;
    }
    if (walk->rest_length > 0)
        taken = unpack_rest(walk, packed, length);
    if (taken == length)
        return;
    whole = measure(walk, length - taken);
    unpack_here(walk, packed + taken, whole);
    walk->rest_length = length - taken - whole;
    memcpy(walk->rest, packed + taken + whole, walk->rest_length);
}

static grail_status_t keep(grail_walk_t *walk, size_t offset, const void *packed, size_t length)
{
    early_piece_t **place = &walk->early;
    early_piece_t *piece = malloc(sizeof(*piece) + length);

    if (piece == NULL) {
        grail_error("out of host memory for a piece of %zu bytes", length);
        return GRAIL_ERR_NO_MEMORY;
    }
    piece->offset = offset;
    piece->length = length;
    memcpy(piece->bytes, packed, length);
    while (*place != NULL && (*place)->offset < offset)
        place = &(*place)->next;
    piece->next = *place;
    *place = piece;
    return GRAIL_OK;
}

grail_status_t grail_walk_unpack(grail_walk_t *walk, size_t offset, const void *packed,
                                 size_t length)
{
    if (offset > walk->next)
        return keep(walk, offset, packed, length);
    if (offset < walk->next) {
        if (offset != 0)
            return GRAIL_ERR_INVALID;
        end(walk);
        begin(walk);
    }
    unpack_next(walk, packed, length);
    while (walk->early != NULL && walk->early->offset == walk->next) {
        early_piece_t *piece = walk->early;

        walk->early = piece->next;
        unpack_next(walk, piece->bytes, piece->length);
        free(piece);
    }
    return GRAIL_OK;
}
