/* SPDX-License-Identifier: BSD-3-Clause */
/* For unit tests: what is written to standard error, as a string. */
#ifndef GRAIL_TESTS_UNIT_CAPTURE_H
#define GRAIL_TESTS_UNIT_CAPTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int capture_saved = -1;
static FILE *capture_file;
static char capture_text[65536];

static inline void capture_start(void)
{
    capture_file = tmpfile();
    capture_saved = dup(STDERR_FILENO);
    if (capture_file == NULL || capture_saved < 0 ||
        dup2(fileno(capture_file), STDERR_FILENO) < 0)
        abort();
}

static inline const char *capture_stop(void)
{
    size_t n;

    fflush(stderr);
    dup2(capture_saved, STDERR_FILENO);
    close(capture_saved);
    rewind(capture_file);
    n = fread(capture_text, 1, sizeof(capture_text) - 1, capture_file);
    capture_text[n] = '\0';
    fclose(capture_file);
    return capture_text;
}

static inline unsigned capture_lines(const char *text)
{
    unsigned lines = 0;

    for (; *text != '\0'; ++text)
        lines += *text == '\n';
    return lines;
}

#endif
