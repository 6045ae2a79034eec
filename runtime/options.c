/* SPDX-License-Identifier: BSD-3-Clause */
/* The option table, parsing with units and ranges, and the environment. */
#include "runtime/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/init.h"
#include "runtime/log.h"

extern char **environ;

enum { NAME_MAX_BYTES = 64, TEXT_MAX_BYTES = 64 };

static const char env_prefix[] = "GRAIL_";

grail_options_t grail_options = {
#define GRAIL_OPT_BOOL(name, def, help)                 .name = def,
#define GRAIL_OPT_INT(name, def, min, max, unit, help)  .name = def,
#define GRAIL_OPT_SIZE(name, def, min, max, help)       .name = def,
#define GRAIL_OPT_REAL(name, def, min, max, unit, help) .name = def,
#define GRAIL_OPT_ENUM(name, def, names, help)          .name = def,
#include "runtime/options.def"
};

static const grail_options_t option_defaults = {
#define GRAIL_OPT_BOOL(name, def, help)                 .name = def,
#define GRAIL_OPT_INT(name, def, min, max, unit, help)  .name = def,
#define GRAIL_OPT_SIZE(name, def, min, max, help)       .name = def,
#define GRAIL_OPT_REAL(name, def, min, max, unit, help) .name = def,
#define GRAIL_OPT_ENUM(name, def, names, help)          .name = def,
#include "runtime/options.def"
};

static grail_option_t option_table[] = {
#define GRAIL_OPT_BOOL(name, def, help) \
    {#name, GRAIL_OPTION_BOOL, &grail_options.name, NULL, 0, 0, "", NULL, help},
#define GRAIL_OPT_INT(name, def, min, max, unit, help) \
    {#name, GRAIL_OPTION_INT, &grail_options.name, NULL, min, max, unit, NULL, help},
#define GRAIL_OPT_SIZE(name, def, min, max, help) \
    {#name, GRAIL_OPTION_SIZE, &grail_options.name, NULL, min, max, "bytes", NULL, help},
#define GRAIL_OPT_REAL(name, def, min, max, unit, help) \
    {#name, GRAIL_OPTION_REAL, &grail_options.name, NULL, min, max, unit, NULL, help},
#define GRAIL_OPT_ENUM(name, def, names, help) \
    {#name, GRAIL_OPTION_ENUM, &grail_options.name, NULL, 0, 0, "", names, help},
#include "runtime/options.def"
};

enum { OPTION_COUNT = sizeof(option_table) / sizeof(option_table[0]) };

static char default_text[OPTION_COUNT][TEXT_MAX_BYTES];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static const struct {
    const char *suffix;
    const char *unit;       /* of the option that it may be written for */
    double factor;          /* to that unit */
} unit_suffixes[] = {
    {"ns", "us", 1e-3},  {"us", "us", 1},       {"ms", "us", 1e3},  {"s", "us", 1e6},
    {"us", "s", 1e-6},   {"ms", "s", 1e-3},     {"s", "s", 1},      {"sec", "s", 1},
    {"min", "s", 60},    {"h", "s", 3600},      {"MB/s", "GB/s", 1e-3},
    {"GB/s", "GB/s", 1}, {"TB/s", "GB/s", 1e3},
};

/* --- printing ------------------------------------------------------------------------------- */

static int print_size(uint64_t value, char *text, size_t size)
{
    static const char suffixes[] = {'\0', 'K', 'M', 'G', 'T'};
    unsigned i = 0;

    while (i + 1 < sizeof(suffixes) && value != 0 && value % 1024 == 0) {
        value /= 1024;
        ++i;
    }
    if (i == 0)
        return snprintf(text, size, "%" PRIu64, value);
    return snprintf(text, size, "%" PRIu64 "%c", value, suffixes[i]);
}

static int print_value(const grail_option_t *option, const void *value, char *text, size_t size)
{
    switch (option->type) {
    case GRAIL_OPTION_BOOL:
        return snprintf(text, size, "%s", *(const bool *)value ? "yes" : "no");
    case GRAIL_OPTION_INT:
        return snprintf(text, size, "%d", *(const int *)value);
    case GRAIL_OPTION_SIZE:
        return print_size(*(const size_t *)value, text, size);
    case GRAIL_OPTION_REAL:
        return snprintf(text, size, "%.10g", *(const double *)value);
    case GRAIL_OPTION_ENUM: {
        const char *name = option->names;

        for (int i = *(const int *)value; i > 0; --i) {
            name += strcspn(name, "|");
            name += *name == '|';
        }
        return snprintf(text, size, "%.*s", (int)strcspn(name, "|"), name);
    }
    }
    return snprintf(text, size, "?");
}

int grail_option_print(const grail_option_t *option, char *text, size_t size)
{
    return print_value(option, option->value, text, size);
}

static void fill_defaults(void)
{
    for (size_t i = 0; i < OPTION_COUNT; ++i) {
        size_t offset = (size_t)((char *)option_table[i].value - (char *)&grail_options);

        print_value(&option_table[i], (const char *)&option_defaults + offset, default_text[i],
                    sizeof(default_text[i]));
        option_table[i].def = default_text[i];
    }
}

void grail_option_print_range(const grail_option_t *option, char *text, size_t size)
{
    char low[TEXT_MAX_BYTES], high[TEXT_MAX_BYTES];
    size_t length;

    switch (option->type) {
    case GRAIL_OPTION_BOOL:
        snprintf(text, size, "yes or no");
        return;
    case GRAIL_OPTION_ENUM:
        length = (size_t)snprintf(text, size, "one of ");
        for (const char *p = option->names; *p != '\0' && length + 3 < size; ++p) {
            text[length++] = *p == '|' ? ',' : *p;
            if (*p == '|')
                text[length++] = ' ';
        }
        text[length] = '\0';
        return;
    case GRAIL_OPTION_SIZE:
        print_size((uint64_t)option->min, low, sizeof(low));
        print_size((uint64_t)option->max, high, sizeof(high));
        break;
    case GRAIL_OPTION_INT:
    case GRAIL_OPTION_REAL:
        snprintf(low, sizeof(low), "%.10g", option->min);
        snprintf(high, sizeof(high), "%.10g", option->max);
        break;
    }
    snprintf(text, size, "%s to %s%s%s", low, high, *option->unit ? " " : "", option->unit);
}

/* --- the table ------------------------------------------------------------------------------ */

const grail_option_t *grail_options_table(size_t *count)
{
    pthread_once(&table_once, fill_defaults);
    *count = OPTION_COUNT;
    return option_table;
}

const grail_option_t *grail_option_find(const char *name)
{
    size_t count;
    const grail_option_t *table = grail_options_table(&count);

    for (size_t i = 0; i < count; ++i) {
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    }
    return NULL;
}

/* Edit distance without regard to case; names are short. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[NAME_MAX_BYTES + 1];
    size_t n = strnlen(b, NAME_MAX_BYTES);

    for (size_t j = 0; j <= n; ++j)
        row[j] = (unsigned)j;
    for (size_t i = 0; a[i] != '\0' && i < NAME_MAX_BYTES; ++i) {
        unsigned diagonal = row[0];

        row[0] = (unsigned)i + 1;
        for (size_t j = 1; j <= n; ++j) {
            int differ = tolower((unsigned char)a[i]) != tolower((unsigned char)b[j - 1]);
            unsigned best = diagonal + (unsigned)differ;

            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[n];
}

/* NULL when nothing is near enough to be what was meant. */
static const char *nearest_name(const char *name)
{
    size_t length = strlen(name);
    unsigned best_distance = length < 6 ? 2 : (unsigned)(length / 3) + 1;
    const char *best = NULL;

    for (size_t i = 0; i < OPTION_COUNT; ++i) {
        const char *known = option_table[i].name;
        unsigned d = distance(name, known);

        if (d < best_distance || (d == best_distance && best == NULL && d < strlen(known))) {
            best_distance = d;
            best = known;
        }
    }
    for (size_t i = 0; i < OPTION_COUNT && best == NULL; ++i) {
        const char *known = option_table[i].name;
        size_t shorter = strlen(known) < length ? strlen(known) : length;

        if (shorter >= 3 && strncasecmp(name, known, shorter) == 0)
            best = known;
    }
    return best;
}

/* --- parsing -------------------------------------------------------------------------------- */

static bool parse_bool(const char *text, bool *value)
{
    static const char *const yes[] = {"yes", "on", "true", "1", "y"};
    static const char *const no[] = {"no", "off", "false", "0", "n"};

    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); ++i) {
        if (strcasecmp(text, yes[i]) == 0) {
            *value = true;
            return true;
        }
        if (strcasecmp(text, no[i]) == 0) {
            *value = false;
            return true;
        }
    }
    return false;
}

static bool parse_enum(const char *text, const char *names, int *value)
{
    size_t length = strlen(text);
    int index = 0;

    for (const char *p = names;; ++p, ++index) {
        size_t n = strcspn(p, "|");

        if (n == length && strncasecmp(p, text, n) == 0) {
            *value = index;
            return true;
        }
        p += n;
        if (*p == '\0')
            return false;
    }
}

static bool parse_size(const char *text, size_t *value)
{
    static const char letters[] = "KMGT";
    const char *letter;
    unsigned shift = 0;
    char *end;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno != 0)
        return false;
    while (*end == ' ')
        ++end;
    if (*end != '\0' && (letter = strchr(letters, toupper((unsigned char)*end))) != NULL) {
        shift = 10 * (unsigned)(letter - letters + 1);
        ++end;
        if (*end == 'i')
            ++end;
    }
    if (*end == 'B' || *end == 'b')
        ++end;
    if (*end != '\0' || n > (SIZE_MAX >> shift))
        return false;
    *value = (size_t)n << shift;
    return true;
}

static bool parse_real(const char *text, const char *unit, double *value)
{
    char *end;

    if (!isdigit((unsigned char)*text) && *text != '-' && *text != '+' && *text != '.')
        return false;
    errno = 0;
    double x = strtod(text, &end);
    if (errno != 0 || !isfinite(x) || end == text)
        return false;
    while (*end == ' ')
        ++end;
    if (*end == '\0') {
        *value = x;
        return true;
    }
    for (size_t i = 0; i < sizeof(unit_suffixes) / sizeof(unit_suffixes[0]); ++i) {
        if (strcmp(unit_suffixes[i].unit, unit) == 0 && strcmp(unit_suffixes[i].suffix, end) == 0) {
            *value = x * unit_suffixes[i].factor;
            return true;
        }
    }
    return false;
}

static bool in_range(const grail_option_t *option, double x)
{
    return x >= option->min && x <= option->max;
}

/* False: the text is not a value of the option's type and range, and nothing was changed. */
static bool parse_into(const grail_option_t *option, const char *text)
{
    size_t size;
    double real;
    bool flag;
    int index;

    switch (option->type) {
    case GRAIL_OPTION_BOOL:
        if (!parse_bool(text, &flag))
            return false;
        *(bool *)option->value = flag;
        return true;
    case GRAIL_OPTION_ENUM:
        if (!parse_enum(text, option->names, &index))
            return false;
        *(int *)option->value = index;
        return true;
    case GRAIL_OPTION_SIZE:
        if (!parse_size(text, &size) || !in_range(option, (double)size))
            return false;
        *(size_t *)option->value = size;
        return true;
    case GRAIL_OPTION_INT:
        if (!parse_real(text, option->unit, &real) || real != floor(real) ||
            !in_range(option, real))
            return false;
        *(int *)option->value = (int)real;
        return true;
    case GRAIL_OPTION_REAL:
        if (!parse_real(text, option->unit, &real) || !in_range(option, real))
            return false;
        *(double *)option->value = real;
        return true;
    }
    return false;
}

grail_status_t grail_option_set(const char *name, const char *value, const char *source)
{
    const grail_option_t *option = grail_option_find(name);
    char trimmed[4 * TEXT_MAX_BYTES], range[4 * TEXT_MAX_BYTES];

    if (option == NULL) {
        const char *hint = nearest_name(name);

        grail_error("there is no option \"%s\" (from %s)%s%s%s", name, source,
                    hint ? "; did you mean \"" : "", hint ? hint : "", hint ? "\"?" : "");
        return GRAIL_ERR_INVALID;
    }
    value += strspn(value, " \t");
    size_t length = strlen(value);
    while (length > 0 && isspace((unsigned char)value[length - 1]))
        --length;
    if (length < sizeof(trimmed)) {
        memcpy(trimmed, value, length);
        trimmed[length] = '\0';
        if (parse_into(option, trimmed)) {
            if (option->value == (void *)&grail_options.verbose)
                grail_runtime_apply_options();
            return GRAIL_OK;
        }
    }
    grail_option_print_range(option, range, sizeof(range));
    grail_error("option %s: \"%.*s\" from %s is not allowed; it must be %s (default %s)",
                option->name, (int)(length < 200 ? length : 200), value, source, range,
                option->def);
    return GRAIL_ERR_INVALID;
}

/* --- environment ---------------------------------------------------------------------------- */

static void upper_case(const char *from, char *to, size_t size)
{
    size_t i;

    for (i = 0; from[i] != '\0' && i + 1 < size; ++i)
        to[i] = (char)toupper((unsigned char)from[i]);
    to[i] = '\0';
}

/* Names that are not taken for slips of an option's: those that environment modules give to an
 * installed package, and those of this project's own build and tests. */
static bool is_foreign(const char *name)
{
    static const char *const names[] = {
        "BASE",    "BIN",    "BINDIR", "DIR",     "HOME",     "INC",    "INCLUDE", "INSTALL",
        "LIB",     "LIBDIR", "LIBRARY", "MODULE", "PREFIX",   "ROOT",   "VERSION", "BUILDDIR",
        "SRCDIR",  "CC",     "MPICC",  "MPIRUN",  "PKG_CONFIG",
    };
    static const char *const prefixes[] = {"TEST_", "OMPI_"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); ++i) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    }
    return false;
}

static grail_status_t set_from_variable(const char *variable, size_t name_length)
{
    const char *suffix = variable + sizeof(env_prefix) - 1;
    size_t suffix_length = name_length - (sizeof(env_prefix) - 1);
    char name[NAME_MAX_BYTES], upper[NAME_MAX_BYTES], source[128];

    if (suffix_length < sizeof(name)) {
        memcpy(name, suffix, suffix_length);
        name[suffix_length] = '\0';
        if (is_foreign(name))
            return GRAIL_OK;
        for (size_t i = 0; i < OPTION_COUNT; ++i) {
            upper_case(option_table[i].name, upper, sizeof(upper));
            if (strcmp(upper, name) == 0) {
                snprintf(source, sizeof(source), "environment variable %s%s", env_prefix, upper);
                return grail_option_set(option_table[i].name, variable + name_length + 1, source);
            }
        }
        const char *hint = nearest_name(name);
        if (hint != NULL) {
            upper_case(hint, upper, sizeof(upper));
            grail_error("environment variable %.*s names no option; did you mean %s%s?",
                        (int)name_length, variable, env_prefix, upper);
            return GRAIL_ERR_INVALID;
        }
    }
    /* Not ours, and not a slip of one of ours: sites set GRAIL_ROOT and the like in modules. */
    grail_debug("environment variable %.*s names no option",
                (int)(name_length < 200 ? name_length : 200), variable);
    return GRAIL_OK;
}

grail_status_t grail_options_load_environment(void)
{
    grail_status_t first = GRAIL_OK;
    size_t count;

    (void)grail_options_table(&count);
    grail_options = option_defaults;
    for (char **entry = environ; entry != NULL && *entry != NULL; ++entry) {
        const char *equals = strchr(*entry, '=');

        if (equals == NULL || strncmp(*entry, env_prefix, sizeof(env_prefix) - 1) != 0)
            continue;
        if (equals[1] == '\0')      /* a script's way to unset */
            continue;
        grail_status_t status = set_from_variable(*entry, (size_t)(equals - *entry));
        if (first == GRAIL_OK)
            first = status;
    }
    grail_runtime_apply_options();
    return first;
}
