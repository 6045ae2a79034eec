/* SPDX-License-Identifier: BSD-3-Clause */
/* Flattens Open MPI's description of a datatype. */
#include "pml/layout.h"

#include "runtime/log.h"

/*
 * The description is what the convertor walks: data entries (`count` blocks of `blocklen` basic
 * elements, `extent` apart), and loops around the entries between a LOOP and its END_LOOP. The
 * displacements of entries in a loop count from the loop's current repetition. A loop whose body is
 * one block is copied as such by the convertor, whatever its entries say.
 */
static grail_status_t add_entries(const dt_type_desc_t *description,
                                  grail_layout_builder_t *builder)
{
    const dt_elem_desc_t *entry = description->desc;
    const dt_elem_desc_t *end = entry + description->used;

    while (entry < end) {
        if (entry->elem.common.flags & OPAL_DATATYPE_FLAG_DATA) {
            const ddt_elem_desc_t *data = &entry->elem;
            size_t unit = opal_datatype_basicDatatypes[data->common.type]->size;

            grail_layout_add_strided(builder, data->disp, data->blocklen * unit, data->count,
                                     data->extent);
            entry++;
        } else if (entry->elem.common.type == OPAL_DATATYPE_LOOP) {
            const ddt_loop_desc_t *loop = &entry->loop;

            if (loop->common.flags & OPAL_DATATYPE_FLAG_CONTIGUOUS) {
                const ddt_endloop_desc_t *last = &entry[loop->items].end_loop;

                grail_layout_add_strided(builder, last->first_elem_disp, last->size, loop->loops,
                                         loop->extent);
                entry += loop->items + 1;
            } else {
                grail_layout_loop(builder, loop->loops, loop->extent);
                entry++;
            }
        } else if (entry->elem.common.type == OPAL_DATATYPE_END_LOOP) {
            grail_layout_loop_end(builder);
            entry++;
        } else {
            grail_error("a datatype has an entry of unknown kind %u: was Grail built for another "
                        "release of Open MPI?", entry->elem.common.type);
            return GRAIL_ERR_UNSUPPORTED;
        }
    }
    return GRAIL_OK;
}

grail_status_t grail_layout_of_opal(const opal_datatype_t *datatype, grail_layout_t **layout)
{
    grail_layout_builder_t *builder = grail_layout_begin();
    grail_status_t status = GRAIL_OK, ended;
    grail_layout_t *made;

    if (builder == NULL)
        return GRAIL_ERR_NO_MEMORY;
    if (datatype->flags & OPAL_DATATYPE_FLAG_CONTIGUOUS)
        grail_layout_add(builder, datatype->true_lb, datatype->size);
    else if (datatype->size != 0)
        status = add_entries(datatype->opt_desc.desc != NULL ? &datatype->opt_desc
                                                             : &datatype->desc, builder);
    ended = grail_layout_end(builder, datatype->ub - datatype->lb, &made);
    if (ended != GRAIL_OK)
        return ended;
    if (status == GRAIL_OK && grail_layout_size(made) != datatype->size) {
        grail_error("datatype %s was flattened to %zu bytes and has %zu: was Grail built for "
                    "another release of Open MPI?", datatype->name, grail_layout_size(made),
                    datatype->size);
        status = GRAIL_ERR_UNSUPPORTED;
    }
    if (status != GRAIL_OK) {
        grail_layout_release(made);
        return status;
    }
    *layout = made;
    return GRAIL_OK;
}
