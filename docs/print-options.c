/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints docs/options.md from the table of options. */
#include <stdio.h>
#include <string.h>

#include "runtime/options.h"

static const char *type_name(const grail_option_t *option)
{
    static const char *const names[] = {
        [GRAIL_OPTION_BOOL] = "yes, no",
        [GRAIL_OPTION_INT] = "number",
        [GRAIL_OPTION_SIZE] = "bytes",
        [GRAIL_OPTION_REAL] = "number",
        [GRAIL_OPTION_ENUM] = "",
    };
    return names[option->type];
}

static void print_values(const grail_option_t *option)
{
    if (option->type == GRAIL_OPTION_ENUM) {
        const char *sep = "";

        for (const char *at = option->names; *at != '\0';) {
            size_t length = strcspn(at, "|");
            printf("%s%.*s", sep, (int)length, at);
            sep = ", ";
            at += length + (at[length] == '|');
        }
        return;
    }
    printf("%s", type_name(option));
    if (option->unit[0] != '\0' && option->type != GRAIL_OPTION_SIZE)
        printf(" of %s", option->unit);
    if (option->type != GRAIL_OPTION_BOOL)
        printf(", %.10g to %.10g", option->min, option->max);
}

int main(void)
{
    size_t count;
    const grail_option_t *options = grail_options_table(&count);

    printf("# Options\n\n"
           "Generated from runtime/options.def by docs/print-options; `make check` compares.\n"
           "Each is the MCA variable `pml_grail_NAME` and the environment variable `GRAIL_NAME` "
           "(upper case).\n\n"
           "| name | default | values | what it does |\n|---|---|---|---|\n");
    for (size_t i = 0; i < count; i++) {
        printf("| `%s` | %s | ", options[i].name, options[i].def);
        print_values(&options[i]);
        printf(" | %s |\n", options[i].help);
    }
    return 0;
}
