/* SPDX-License-Identifier: BSD-3-Clause */
/* Layouts kept with their datatypes. */
#include "pml/layout.h"

#include "pml/datatype.h"

grail_status_t grail_pml_layout(ompi_datatype_t *datatype, grail_layout_t **layout)
{
    grail_pml_type_t *type = grail_pml_type(datatype);

    if (type == NULL)
        return GRAIL_ERR_NO_MEMORY;
    if (GRAIL_UNLIKELY(type->layout == NULL)) {
        grail_status_t status = grail_layout_of_opal(&datatype->super, &type->layout);

        if (status != GRAIL_OK)
            return status;
    }
    *layout = type->layout;
    return GRAIL_OK;
}
