/* SPDX-License-Identifier: BSD-3-Clause */
/* Every option of Grail, from one table (options.def): values, ranges, defaults and help. */
#ifndef GRAIL_RUNTIME_OPTIONS_H
#define GRAIL_RUNTIME_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/api.h"
#include "runtime/status.h"

typedef enum grail_option_type {
    GRAIL_OPTION_BOOL,   /* bool:   yes/no, on/off, true/false, 1/0 */
    GRAIL_OPTION_INT,    /* int */
    GRAIL_OPTION_SIZE,   /* size_t: bytes; suffixes K, M, G (powers of 1024) */
    GRAIL_OPTION_REAL,   /* double */
    GRAIL_OPTION_ENUM    /* int: index into the '|'-separated names */
} grail_option_type_t;

/* The values in force; field names are the option names. Written before communication starts. */
typedef struct grail_options {
#define GRAIL_OPT_BOOL(name, def, help)                      bool name;
#define GRAIL_OPT_INT(name, def, min, max, unit, help)       int name;
#define GRAIL_OPT_SIZE(name, def, min, max, help)            size_t name;
#define GRAIL_OPT_REAL(name, def, min, max, unit, help)      double name;
#define GRAIL_OPT_ENUM(name, def, names, help)               int name;
#include "runtime/options.def"
} grail_options_t;

GRAIL_API extern grail_options_t grail_options;

/* One row of the table, for MCA registration, help texts and the manual page. */
typedef struct grail_option {
    const char *name;
    grail_option_type_t type;
    void *value;            /* into grail_options */
    const char *def;        /* default as the user would write it */
    double min, max;        /* inclusive range; unused for bool and enum */
    const char *unit;       /* "bytes", "us", "GB/s", "s", "" */
    const char *names;      /* enum only: "auto|ipc|ring|host" */
    const char *help;       /* one sentence */
} grail_option_t;

GRAIL_API const grail_option_t *grail_options_table(size_t *count);
GRAIL_API const grail_option_t *grail_option_find(const char *name);

/*
 * Parse and check `value`. On error logs one line that names the option, the value, where it came
 * from (`source`, e.g. "environment variable GRAIL_CHUNK") and the allowed range, changes nothing
 * and returns GRAIL_ERR_INVALID.
 */
GRAIL_API grail_status_t grail_option_set(const char *name, const char *value, const char *source);

/* Print the current value as the user would write it. Returns what snprintf would. */
GRAIL_API int grail_option_print(const grail_option_t *option, char *text, size_t size);

/* Print what is allowed: "yes or no", "one of auto, ipc", "4K to 64M bytes". */
GRAIL_API void grail_option_print_range(const grail_option_t *option, char *text, size_t size);

/*
 * Reset to defaults, then read every GRAIL_<NAME> environment variable (upper case). A variable
 * GRAIL_* that is a slip of an option's name is an error too, with the right name as a hint; other
 * names (a module file's GRAIL_ROOT) are left alone, and an empty one counts as not set. Returns the
 * first error; all are logged. Called once, by the first grail_runtime_init(), before the values of
 * MCA parameters are applied: these win.
 */
GRAIL_API grail_status_t grail_options_load_environment(void);

#endif
