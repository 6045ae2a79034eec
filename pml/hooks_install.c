/* SPDX-License-Identifier: BSD-3-Clause */
/* Installs and removes all that reaches beyond the PML. */
#include "pml/hooks.h"
#include "runtime/options.h"

static bool installed;

void grail_hooks_install(void)
{
    /* Without CUDA every pointer is host memory, and Open MPI stays as it is. */
    if (installed || !grail_options.cuda)
        return;
    installed = true;
    grail_hooks_convertor_install();
    grail_hooks_query_install();
    grail_hooks_window_install();
    grail_hooks_file_install();
}

void grail_hooks_remove(void)
{
    if (!installed)
        return;
    installed = false;
    grail_hooks_file_remove();
    grail_hooks_window_remove();
    grail_patch_remove_all();
}
