/* SPDX-License-Identifier: BSD-3-Clause */
/* Per-datatype objects and the host pack/unpack that the net walks non-contiguous data with. */
#include "pml/datatype.h"

#include <stdlib.h>

#include "cuda-aware/layout.h"
#include "pml/pml_grail.h"
#include "runtime/log.h"

static grail_pml_type_t *predefined;

/* Released datatypes' objects that wait for a thread that holds the PML's lock. */
static grail_pml_type_t *released;

/* One transfer's walk over elements in host memory. */
typedef struct grail_walk {
    struct grail_walk *next_free;
    ompi_datatype_t *datatype;
    opal_convertor_t convertor;
    size_t count;
    void *buffer;
} grail_walk_t;

static grail_walk_t *free_walks;

static grail_walk_t *walk_new(ompi_datatype_t *datatype, void *buffer, size_t count)
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
    }
    OMPI_DATATYPE_RETAIN(datatype);
    walk->datatype = datatype;
    walk->count = count;
    walk->buffer = buffer;
    return walk;
}

static void *walk_start_pack(void *context, const void *buffer, size_t count)
{
    ompi_datatype_t *datatype = context;
    grail_walk_t *walk = walk_new(datatype, (void *)(uintptr_t)buffer, count);

    if (walk != NULL)
        opal_convertor_copy_and_prepare_for_send(grail_ompi_convertor(), &datatype->super, count,
                                                 buffer, 0, &walk->convertor);
    return walk;
}

static void *walk_start_unpack(void *context, void *buffer, size_t count)
{
    ompi_datatype_t *datatype = context;
    grail_walk_t *walk = walk_new(datatype, buffer, count);

    if (walk != NULL)
        opal_convertor_copy_and_prepare_for_recv(grail_ompi_convertor(), &datatype->super, count,
                                                 buffer, 0, &walk->convertor);
    return walk;
}

static size_t walk_packed_size(void *state)
{
    grail_walk_t *walk = state;
    size_t size;

    opal_convertor_get_packed_size(&walk->convertor, &size);
    return size;
}

static size_t walk_pack(void *state, size_t offset, void *dst, size_t max)
{
    grail_walk_t *walk = state;
    struct iovec iov = {.iov_base = dst, .iov_len = max};
    uint32_t pieces = 1;
    size_t length = max;

    opal_convertor_set_position(&walk->convertor, &offset);
    opal_convertor_pack(&walk->convertor, &iov, &pieces, &length);
    return length;
}

static grail_status_t walk_unpack(void *state, size_t offset, const void *src, size_t length)
{
    grail_walk_t *walk = state;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)src, .iov_len = length};
    uint32_t pieces = 1;

    if (offset == walk->convertor.bConverted) {
        opal_convertor_unpack(&walk->convertor, &iov, &pieces, &length);
    } else {
        /* The convertor keeps a basic element that a piece has cut in two; a jump would mix it with
         * other bytes. A separate one serves pieces that come out of turn. */
        opal_convertor_t other;

        OBJ_CONSTRUCT(&other, opal_convertor_t);
        opal_convertor_copy_and_prepare_for_recv(grail_ompi_convertor(), &walk->datatype->super,
                                                 walk->count, walk->buffer, 0, &other);
        opal_convertor_set_position(&other, &offset);
        opal_convertor_unpack(&other, &iov, &pieces, &length);
        opal_convertor_cleanup(&other);
        OBJ_DESTRUCT(&other);
    }
    return GRAIL_OK;
}

static void walk_finish(void *state)
{
    grail_walk_t *walk = state;

    opal_convertor_cleanup(&walk->convertor);
    OMPI_DATATYPE_RELEASE(walk->datatype);
    walk->next_free = free_walks;
    free_walks = walk;
}

static void type_free(grail_pml_type_t *type)
{
    if (type->net_type != NULL)
        grail_net_type_free(type->net_type);
    if (type->layout != NULL)
        grail_layout_release(type->layout);
    free(type);
}

static void types_free_released(void)
{
    grail_pml_type_t *type = __atomic_exchange_n(&released, NULL, __ATOMIC_ACQUIRE);

    while (type != NULL) {
        grail_pml_type_t *next = type->next;

        type_free(type);
        type = next;
    }
}

/* Open MPI holds its lock of attributes here, and we hold the PML's when we set one: taking the
 * PML's here could deadlock two threads. */
static int type_attribute_deleted(ompi_datatype_t *datatype, int keyval, void *value, void *extra)
{
    grail_pml_type_t *type = value;

    (void)keyval;
    (void)extra;
    grail_ompi_type_set_data(datatype, NULL);
    if (!grail_pml.threads) {
        type_free(type);
        return OMPI_SUCCESS;
    }
    type->next = __atomic_load_n(&released, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&released, &type->next, type, true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED))
        ;
    return OMPI_SUCCESS;
}

grail_pml_type_t *grail_pml_type(ompi_datatype_t *datatype)
{
    grail_pml_type_t *type = grail_ompi_type_data(datatype);

    if (GRAIL_LIKELY(type != NULL))
        return type;
    types_free_released();
    type = calloc(1, sizeof(*type));
    if (type == NULL) {
        grail_error("out of host memory for datatype %s", datatype->name);
        return NULL;
    }
    type->datatype = datatype;
    if (ompi_datatype_is_predefined(datatype)) {
        type->next = predefined;
        predefined = type;
    } else if (ompi_attr_set_c(TYPE_ATTR, datatype, &datatype->d_keyhash, grail_pml.type_keyval,
                               type, false) != OMPI_SUCCESS) {
        grail_error("cannot attach an attribute to datatype %s", datatype->name);
        free(type);
        return NULL;
    }
    grail_ompi_type_set_data(datatype, type);
    return type;
}

grail_status_t grail_pml_net_type(ompi_datatype_t *datatype, const grail_net_type_t **net_type)
{
    grail_pml_type_t *type = grail_pml_type(datatype);

    if (type == NULL)
        return GRAIL_ERR_NO_MEMORY;
    if (type->net_type == NULL) {
        const grail_net_layout_t layout = {
            .start_pack = walk_start_pack,
            .start_unpack = walk_start_unpack,
            .packed_size = walk_packed_size,
            .pack = walk_pack,
            .unpack = walk_unpack,
            .finish = walk_finish,
            .context = datatype,
        };
        grail_status_t status = grail_net_type_create(grail_pml.net, &layout, &type->net_type);

        if (status != GRAIL_OK)
            return status;
    }
    *net_type = type->net_type;
    return GRAIL_OK;
}

int grail_types_init(void)
{
    ompi_attribute_fn_ptr_union_t copy;
    ompi_attribute_fn_ptr_union_t deleted;
    int rc;

    grail_pml.type_keyval = MPI_KEYVAL_INVALID;
    /* Open MPI passes one argument more than its own null function takes, everywhere. */
    copy.attr_datatype_copy_fn =
        (MPI_Type_internal_copy_attr_function *)(void (*)(void))MPI_TYPE_NULL_COPY_FN;
    deleted.attr_datatype_delete_fn = type_attribute_deleted;
    rc = ompi_attr_create_keyval(TYPE_ATTR, copy, deleted, &grail_pml.type_keyval, NULL, 0, NULL);
    if (rc != OMPI_SUCCESS)
        grail_error("cannot create the attribute for datatypes (error %d)", rc);
    return rc;
}

void grail_types_fini(void)
{
    if (grail_pml.type_keyval != MPI_KEYVAL_INVALID)
        ompi_attr_free_keyval(TYPE_ATTR, &grail_pml.type_keyval, false);
    while (predefined != NULL) {
        grail_pml_type_t *type = predefined;

        predefined = type->next;
        grail_ompi_type_set_data(type->datatype, NULL);
        type_free(type);
    }
    types_free_released();
    while (free_walks != NULL) {
        grail_walk_t *walk = free_walks;

        free_walks = walk->next_free;
        OBJ_DESTRUCT(&walk->convertor);
        free(walk);
    }
}
