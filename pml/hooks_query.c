/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers the question whether MPI takes device buffers. */
#include <dlfcn.h>
#include <string.h>

#include "pml/ompi_compat.h"     /* before any other header of Open MPI */

#include "cuda-aware/driver.h"
#include "opal/runtime/opal_params.h"
#include "pml/hooks.h"
#include "runtime/options.h"

/*
 * 1: device buffers may be passed to MPI, and there is a GPU for them. The program asks because it
 * is about to use CUDA: loading the driver and counting devices creates no context.
 */
static int query_cuda_support(void)
{
    static int known = -1;      /* all threads that find out find the same */
    int answer = __atomic_load_n(&known, __ATOMIC_RELAXED), count = 0;

    if (answer < 0) {
        answer = grail_cuda_load() == GRAIL_OK &&
                 grail_cuda.DeviceGetCount(&count) == CUDA_SUCCESS && count > 0;
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer;
}

void grail_hooks_query_install(void)
{
    void *stock = dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");

    if (stock != NULL)
        grail_patch_install("MPIX_Query_cuda_support", stock, (void *)query_cuda_support);
}

/* Does the user's configuration select pml/grail, by name? */
static bool is_selected(void)
{
    const char **value = NULL;
    int index = mca_base_var_find("ompi", "pml", NULL, NULL);

    if (index < 0 || mca_base_var_get_value(index, &value, NULL, NULL) != OPAL_SUCCESS ||
        value == NULL || *value == NULL || **value == '^')
        return false;
    for (const char *name = *value; name != NULL; name = strchr(name, ',')) {
        name += *name == ',';
        if (strncmp(name, "grail", 5) == 0 && (name[5] == '\0' || name[5] == ','))
            return true;
    }
    return false;
}

/*
 * What ompi_info shows (it registers components and goes no further). In Open MPI 4.1 nothing else
 * looks at the two variables unless Open MPI itself was built with CUDA: btl/smcuda and pml/ob1 do
 * so inside of #if OPAL_CUDA_SUPPORT, and the check of cuda_support against built_with_cuda_support
 * comes before components are registered.
 */
void grail_hooks_register(void)
{
    if (!is_selected())
        return;
    opal_built_with_cuda_support = true;
    opal_cuda_support = true;
}
