/* SPDX-License-Identifier: BSD-3-Clause */
/* Per-datatype objects, and the net's view of data that is not contiguous. */
#include "pml/datatype.h"

#include <stdlib.h>

#include "cuda-aware/layout.h"
#include "pml/pml_grail.h"
#include "pml/walk.h"
#include "runtime/log.h"

static grail_pml_type_t *predefined;

/* Released datatypes' objects that wait for a thread that holds the PML's lock. */
static grail_pml_type_t *released;

/* ---- the net's walk over elements in host memory ---- */

static void *walk_start_pack(void *context, const void *buffer, size_t count)
{
    return grail_walk_new(context, buffer, count, true);
}

static void *walk_start_unpack(void *context, void *buffer, size_t count)
{
    return grail_walk_new(context, buffer, count, false);
}

static size_t walk_packed_size(void *state)
{
    return grail_walk_size(state);
}

static size_t walk_pack(void *state, size_t offset, void *dst, size_t max)
{
    return grail_walk_pack(state, offset, dst, max);
}

static grail_status_t walk_unpack(void *state, size_t offset, const void *src, size_t length)
{
    return grail_walk_unpack(state, offset, src, length);
}

static void walk_finish(void *state)
{
    grail_walk_free(state);
}

/* ---- what is kept with a datatype ---- */

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
    grail_walks_fini();
}
