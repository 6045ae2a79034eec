/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints docs/options.md from the table of options. */
#include <stdio.h>

#include "runtime/options.h"

int main(void)
{
    size_t count;
    const grail_option_t *options = grail_options_table(&count);
    char range[256];

    printf("# Options\n\n"
           "Generated from runtime/options.def by docs/print-options; `make check` compares.\n"
           "Each is the MCA variable `pml_grail_NAME` and the environment variable `GRAIL_NAME` "
           "(upper case).\n\n"
           "| name | default | values | what it does |\n|---|---|---|---|\n");
    for (size_t i = 0; i < count; i++) {
        grail_option_print_range(&options[i], range, sizeof(range));
        printf("| `%s` | %s | %s | %s |\n", options[i].name, options[i].def, range,
               options[i].help);
    }
    return 0;
}
