/* SPDX-License-Identifier: BSD-3-Clause */
/* Open MPI's datatype engine, for user memory that the CPU cannot touch. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pml/ompi_compat.h"     /* before any other header of Open MPI */

#include "cuda-aware/copy.h"
#include "cuda-aware/layout.h"
#include "opal/datatype/opal_datatype_checksum.h"
#include "pml/hooks.h"
#include "pml/layout.h"
#include "pml/pml_grail.h"
#include "runtime/log.h"

/*
 * All packing and unpacking in Open MPI goes through opal_convertor_pack() and
 * opal_convertor_unpack(), and all copies of user data within a process (sndrcv of collectives)
 * through opal_datatype_copy_content_same_ddt(). These three are replaced. The patcher overwrites
 * their first bytes, so nothing of them can be called any more; the first two are short and end in
 * a call of the convertor's own function (fAdvance), which stays what it was, and the third is a
 * walk over the description, which is done here.
 */

/* ---- running device operations ---- */

/* The layout of a datatype in use by a convertor, kept with it where that is an MPI datatype. */
static grail_status_t find_layout(const opal_datatype_t *type, grail_layout_t **layout)
{
    grail_status_t status;

    if (type->super.obj_class != OBJ_CLASS(ompi_datatype_t))
        return grail_layout_of_opal(type, layout);
    status = grail_pml_layout((ompi_datatype_t *)(uintptr_t)type, layout);
    if (status == GRAIL_OK)
        grail_layout_retain(*layout);
    return status;
}

/* ---- convertors ---- */

static inline bool touches_device(const opal_convertor_t *c, const struct iovec *iov)
{
    return grail_mem_is_device(c->pBaseBuf + c->pDesc->true_lb) ||
           (iov[0].iov_base != NULL && grail_mem_is_device(iov[0].iov_base));
}

/* Same representation on both sides: the packed bytes are the memory's bytes. */
static int32_t move_same(bool pack, opal_convertor_t *c, grail_layout_t *layout,
                         struct iovec *iov, uint32_t *pieces, size_t *moved)
{
    uint32_t i;

    *moved = 0;
    for (i = 0; i < *pieces && c->bConverted < c->local_size; i++) {
        size_t from = c->bConverted, length = c->local_size - from, to;
        grail_status_t status;

        if (length > iov[i].iov_len)
            length = iov[i].iov_len;
        status = pack ? grail_pack_sync(layout, c->count, c->pBaseBuf, from, length,
                                        iov[i].iov_base)
                      : grail_unpack_sync(layout, c->count, c->pBaseBuf, from, length,
                                          iov[i].iov_base);
        if (status != GRAIL_OK)
            return OPAL_ERROR;
        to = from + length;
        if (c->flags & CONVERTOR_NO_OP)
            c->bConverted = to;
        else
            opal_convertor_set_position(c, &to);
        /* a sending convertor does not stop inside a basic element */
        iov[i].iov_len = c->bConverted - from;
        *moved += iov[i].iov_len;
        if (iov[i].iov_len == 0)
            break;
    }
    *pieces = i;
    if (c->bConverted < c->local_size)
        return 0;
    c->flags |= CONVERTOR_COMPLETED;
    return 1;
}

/* Host memory in place of what is on a device while Open MPI's own conversion runs. */
typedef struct shadow {
    unsigned char *map;     /* of the elements' span */
    size_t bytes;
    ptrdiff_t low;
    char *packed;           /* the elements in packed order */
    struct iovec *iov;      /* pieces with host memory */
    char *pieces;
} shadow_t;

static void shadow_free(shadow_t *s)
{
    if (s->map != NULL && s->map != MAP_FAILED)
        munmap(s->map, s->bytes);
    free(s->packed);
    free(s->iov);
    free(s->pieces);
}

static grail_status_t shadow_make(shadow_t *s, const opal_convertor_t *c,
                                  const grail_layout_t *layout, const struct iovec *iov,
                                  uint32_t pieces)
{
    ptrdiff_t high;
    size_t total = 0;

    memset(s, 0, sizeof(*s));
    grail_layout_span(layout, c->count, &s->low, &high);
    s->bytes = (size_t)(high - s->low);
    for (uint32_t i = 0; i < pieces; i++)
        total += iov[i].iov_len;
    s->map = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    s->packed = malloc(c->local_size);
    s->iov = malloc(pieces * sizeof(*iov));
    s->pieces = malloc(total + 1);
    if (s->map == MAP_FAILED || s->packed == NULL || s->iov == NULL || s->pieces == NULL) {
        grail_error("out of host memory to convert %zu bytes of device memory", c->local_size);
        shadow_free(s);
        return GRAIL_ERR_NO_MEMORY;
    }
    total = 0;
    for (uint32_t i = 0; i < pieces; i++) {
        s->iov[i].iov_base = s->pieces + total;
        s->iov[i].iov_len = iov[i].iov_len;
        total += iov[i].iov_len;
    }
    return GRAIL_OK;
}

/* The bytes of the message itself, wherever they are: a layout of one block. */
static grail_status_t move_bytes(void *dst, const void *src, size_t length)
{
    grail_layout_builder_t *builder = grail_layout_begin();
    grail_layout_t *bytes;
    grail_status_t status;

    if (builder == NULL)
        return GRAIL_ERR_NO_MEMORY;
    grail_layout_add(builder, 0, length);
    status = grail_layout_end(builder, (ptrdiff_t)length, &bytes);
    if (status != GRAIL_OK)
        return status;
    status = grail_pack_sync(bytes, 1, src, 0, length, dst);
    grail_layout_release(bytes);
    return status;
}

/* Another representation (external32) or a checksum: Open MPI converts, on host memory. */
static int32_t move_converted(bool pack, opal_convertor_t *c, grail_layout_t *layout,
                              struct iovec *iov, uint32_t *pieces, size_t *moved)
{
    unsigned char *user = c->pBaseBuf;
    uint32_t given = *pieces;
    grail_status_t status;
    shadow_t s;
    int32_t rc = OPAL_ERROR;

    status = shadow_make(&s, c, layout, iov, given);
    if (status != GRAIL_OK)
        return OPAL_ERROR;
    /* unpacking needs the memory's contents, too: what this piece leaves out is written back */
    status = grail_pack_sync(layout, c->count, user, 0, c->local_size, s.packed);
    for (uint32_t i = 0; i < given && !pack && status == GRAIL_OK; i++)
        status = move_bytes(s.iov[i].iov_base, iov[i].iov_base, iov[i].iov_len);
    if (status != GRAIL_OK)
        goto free_shadow;
    grail_layout_unpack_host(layout, c->count, s.map - s.low, 0, c->local_size, s.packed);
    c->pBaseBuf = s.map - s.low;
    rc = c->fAdvance(c, s.iov, pieces, moved);
    c->pBaseBuf = user;
    if (rc < 0)
        goto free_shadow;
    if (!pack) {
        grail_layout_pack_host(layout, c->count, s.map - s.low, 0, c->local_size, s.packed);
        status = grail_unpack_sync(layout, c->count, user, 0, c->local_size, s.packed);
    }
    for (uint32_t i = 0; i < given && status == GRAIL_OK; i++) {
        iov[i].iov_len = s.iov[i].iov_len;
        if (pack && i < *pieces)
            status = move_bytes(iov[i].iov_base, s.iov[i].iov_base, iov[i].iov_len);
    }
    if (status != GRAIL_OK)
        rc = OPAL_ERROR;
free_shadow:
    shadow_free(&s);
    return rc;
}

static int32_t convert_device(bool pack, opal_convertor_t *c, struct iovec *iov,
                              uint32_t *pieces, size_t *moved)
{
    bool same = (c->flags & CONVERTOR_HOMOGENEOUS) != 0 ||
                (pack && !(c->flags & CONVERTOR_SEND_CONVERSION));
    grail_layout_t *layout;
    int32_t rc = OPAL_ERROR;

    grail_pml_lock();
    if (find_layout(c->pDesc, &layout) == GRAIL_OK) {
        rc = same && !(c->flags & CONVERTOR_WITH_CHECKSUM)
                 ? move_same(pack, c, layout, iov, pieces, moved)
                 : move_converted(pack, c, layout, iov, pieces, moved);
        grail_layout_release(layout);
    }
    grail_pml_unlock();
    if (rc < 0) {
        *pieces = 0;
        *moved = 0;
    }
    return rc;
}

/* One block of memory in the same representation: there is no fAdvance for it. */
static int32_t convert_block(bool pack, opal_convertor_t *c, struct iovec *iov, uint32_t *pieces,
                             size_t *moved)
{
    size_t left = c->local_size - c->bConverted;
    unsigned char *at;
    uint32_t i;

    opal_convertor_get_current_pointer(c, (void **)&at);
    *moved = left;
    for (i = 0; i < *pieces; i++) {
        if (iov[i].iov_len > left)
            iov[i].iov_len = left;
        if (!pack)
            memcpy(at, iov[i].iov_base, iov[i].iov_len);
        else if (iov[i].iov_base == NULL)
            iov[i].iov_base = at;       /* the caller wants to know where it is */
        else
            memcpy(iov[i].iov_base, at, iov[i].iov_len);
        at += iov[i].iov_len;
        left -= iov[i].iov_len;
        if (left == 0) {
            *pieces = i + 1;
            c->bConverted = c->local_size;
            c->flags |= CONVERTOR_COMPLETED;
            return 1;
        }
    }
    *moved -= left;
    c->bConverted += *moved;
    return 0;
}

static inline int32_t convert(bool pack, opal_convertor_t *c, struct iovec *iov, uint32_t *pieces,
                              size_t *moved)
{
    if (GRAIL_UNLIKELY(c->flags & CONVERTOR_COMPLETED)) {
        iov[0].iov_len = 0;
        *pieces = 0;
        *moved = 0;
        return 1;
    }
    c->checksum = OPAL_CSUM_ZERO;
    c->csum_ui1 = 0;
    c->csum_ui2 = 0;
    /* where no address is given the caller gets one, and nothing is touched */
    if (GRAIL_UNLIKELY(!(pack && iov[0].iov_base == NULL) && touches_device(c, iov)))
        return convert_device(pack, c, iov, pieces, moved);
    if (c->flags & CONVERTOR_NO_OP)
        return convert_block(pack, c, iov, pieces, moved);
    return c->fAdvance(c, iov, pieces, moved);
}

static int32_t convertor_pack(opal_convertor_t *c, struct iovec *iov, uint32_t *pieces,
                              size_t *moved)
{
    return convert(true, c, iov, pieces, moved);
}

static int32_t convertor_unpack(opal_convertor_t *c, struct iovec *iov, uint32_t *pieces,
                                size_t *moved)
{
    return convert(false, c, iov, pieces, moved);
}

/* ---- copies within a process ---- */

typedef void *(*copy_fn)(void *dst, const void *src, size_t length);

static void copy_strided(copy_fn copy, char *dst, char *src, size_t length, size_t count,
                         ptrdiff_t stride)
{
    for (size_t i = 0; i < count; i++) {
        copy(dst, src, length);
        dst += stride;
        src += stride;
    }
}

/* Entries up to the end of the loop (or of the description) that `entry` is in. */
static const dt_elem_desc_t *copy_entries(copy_fn copy, const dt_elem_desc_t *entry,
                                          const dt_elem_desc_t *end, char *dst, char *src)
{
    while (entry < end && entry->elem.common.type != OPAL_DATATYPE_END_LOOP) {
        const ddt_loop_desc_t *loop = &entry->loop;

        if (entry->elem.common.flags & OPAL_DATATYPE_FLAG_DATA) {
            const ddt_elem_desc_t *data = &entry->elem;
            size_t length = data->blocklen * opal_datatype_basicDatatypes[data->common.type]->size;

            copy_strided(copy, dst + data->disp, src + data->disp, length, data->count,
                         data->extent);
            entry++;
            continue;
        }
        if (loop->common.flags & OPAL_DATATYPE_FLAG_CONTIGUOUS) {
            const ddt_endloop_desc_t *last = &entry[loop->items].end_loop;

            copy_strided(copy, dst + last->first_elem_disp, src + last->first_elem_disp,
                         last->size, loop->loops, loop->extent);
        } else {
            for (uint32_t i = 0; i < loop->loops; i++)
                copy_entries(copy, entry + 1, end, dst + i * loop->extent,
                             src + i * loop->extent);
        }
        entry += loop->items + 1;
    }
    return entry;
}

static void copy_host(copy_fn copy, const opal_datatype_t *type, size_t count, char *dst,
                      char *src)
{
    const dt_type_desc_t *description =
        type->opt_desc.desc != NULL ? &type->opt_desc : &type->desc;
    ptrdiff_t extent = type->ub - type->lb;

    if (!(type->flags & OPAL_DATATYPE_FLAG_CONTIGUOUS)) {
        for (size_t i = 0; i < count; i++, dst += extent, src += extent)
            copy_entries(copy, description->desc, description->desc + description->used, dst, src);
        return;
    }
    dst += type->true_lb;
    src += type->true_lb;
    if ((ptrdiff_t)type->size == extent)
        copy(dst, src, count * type->size);
    else
        copy_strided(copy, dst, src, type->size, count, extent);
}

/* Through host memory in packed order: right for overlaps, several GPUs and all kinds. */
static grail_status_t copy_through_host(grail_layout_t *layout, size_t count, void *dst,
                                        const void *src)
{
    size_t length = count * grail_layout_size(layout);
    char *packed = malloc(length);
    grail_status_t status;

    if (packed == NULL) {
        grail_error("out of host memory for a copy of %zu bytes of device memory", length);
        return GRAIL_ERR_NO_MEMORY;
    }
    status = grail_pack_sync(layout, count, src, 0, length, packed);
    if (status == GRAIL_OK)
        status = grail_unpack_sync(layout, count, dst, 0, length, packed);
    free(packed);
    return status;
}

/* One kernel or copy, where both ends are in one context and apart. */
static grail_status_t copy_in_context(grail_layout_t *layout, size_t count, void *dst,
                                      const void *src, const void *dst_first,
                                      const void *src_first)
{
    size_t length = count * grail_layout_size(layout);
    grail_mem_t to, from;
    grail_gpu_t *gpu;
    grail_copy_t op;
    grail_status_t status = grail_mem_query(dst_first, &to);

    if (status == GRAIL_OK)
        status = grail_mem_query(src_first, &from);
    if (status == GRAIL_OK && (to.context == NULL || to.context != from.context))
        status = GRAIL_ERR_UNSUPPORTED;
    if (status == GRAIL_OK)
        status = grail_gpu_get(&to, &gpu);
    if (status == GRAIL_OK)
        status = grail_repack_start(gpu, GRAIL_LANE_PEER, layout, count, src, layout, count, dst,
                                    length, &op);
    if (status != GRAIL_OK)
        return status;
    while ((status = grail_copy_test(&op)) == GRAIL_IN_PROGRESS)
        ;
    return status;
}

static int32_t copy_device(const opal_datatype_t *type, size_t count, char *dst, char *src,
                           bool overlap)
{
    grail_status_t status = GRAIL_ERR_UNSUPPORTED;
    grail_layout_t *layout;

    grail_pml_lock();
    if (find_layout(type, &layout) != GRAIL_OK) {
        grail_pml_unlock();
        return OPAL_ERROR;
    }
    if (!overlap)
        status = copy_in_context(layout, count, dst, src, dst + type->true_lb,
                                 src + type->true_lb);
    if (status == GRAIL_ERR_UNSUPPORTED)
        status = copy_through_host(layout, count, dst, src);
    grail_layout_release(layout);
    grail_pml_unlock();
    return status == GRAIL_OK ? 0 : OPAL_ERROR;
}

static int32_t copy_content(const opal_datatype_t *type, int32_t count, char *dst, char *src)
{
    ptrdiff_t reach;
    bool overlap;

    if (count == 0)
        return 1;
    reach = type->true_ub - type->true_lb + (count - 1) * (type->ub - type->lb);
    overlap = dst < src ? dst + reach > src : src + reach > dst;
    if (type->size == 0)
        return 0;
    if (GRAIL_UNLIKELY(grail_mem_is_device(dst + type->true_lb) ||
                       grail_mem_is_device(src + type->true_lb)))
        return copy_device(type, (size_t)count, dst, src, overlap);
    copy_host(overlap ? memmove : memcpy, type, (size_t)count, dst, src);
    return 0;
}

void grail_hooks_convertor_install(void)
{
    bool pack = grail_patch_install("opal_convertor_pack", (void *)opal_convertor_pack,
                                    (void *)convertor_pack);
    bool unpack = grail_patch_install("opal_convertor_unpack", (void *)opal_convertor_unpack,
                                      (void *)convertor_unpack);
    bool copy = grail_patch_install("opal_datatype_copy_content_same_ddt",
                                    (void *)opal_datatype_copy_content_same_ddt,
                                    (void *)copy_content);

    if (!pack || !unpack || !copy)
        grail_info("MPI_Pack, MPI_Unpack and MPI_Sendrecv_replace do not take device memory here");
}
