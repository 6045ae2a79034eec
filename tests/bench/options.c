/* SPDX-License-Identifier: BSD-3-Clause */
/* The benchmarks' command line. It is read before MPI starts: every rank sees the same one, and
 * only the first complains. */
#include "tests/bench/bench.h"

#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef BENCH_VERSION   /* built by hand */
#define BENCH_VERSION "unknown"
#endif

enum { KEY_TYPE = 256, KEY_FORMAT, KEY_PEER_COPY, KEY_NO_PEER_COPY, KEY_NO_PERCENTILES,
       KEY_GPU };

static const struct argp_option options_all[] = {
    {"buffers", 'd', "KINDS", 0, "Buffer kinds of sender and receiver, e.g. DD, D,H or M", 0},
    {"message-size", 'm', "[MIN:]MAX", 0, "Message sizes in bytes (k, M, G)", 0},
    {"iterations", 'i', "N", 0, "Measured iterations for every size", 0},
    {"warmup", 'x', "N", 0, "Iterations before measuring, for every size", 0},
    {"validate", 'v', NULL, 0, "Check the data of every message, outside of the timed part", 0},
    {NULL, 'c', NULL, OPTION_ALIAS, NULL, 0},
    {"type", KEY_TYPE, "TYPE", 0,
     "contig, vector:BLOCK:STRIDE (bytes) or face:AXIS[:ELEMENT] (of a 3-D array of "
     "ELEMENT-byte elements, 8 by default)", 0},
    {"gpu", KEY_GPU, NULL, 0, "Use a GPU and exchange a device buffer first, whatever the buffers are: "
     "what host messages cost a GPU program", 0},
    {"format", KEY_FORMAT, "FORMAT", 0, "table or csv", 0},
    {"no-percentiles", KEY_NO_PERCENTILES, NULL, 0, "Read the clock only at start and end", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};
static const struct argp_option options_window[] = {
    {"window-size", 'W', "N", 0, "Messages in flight (64)", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};
static const struct argp_option options_pairs[] = {
    {"pairs", 'p', "N", 0, "Pairs of ranks (half of the ranks)", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};
static const struct argp_option options_peer_copy[] = {
    {"peercopy", KEY_PEER_COPY, NULL, 0, "Insist on the column of bare copies", 0},
    {"no-peercopy", KEY_NO_PEER_COPY, NULL, 0, "Leave out the column of bare copies", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

/* Whether this process is the one that speaks. */
static bool first_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);

        if (value)
            return strcmp(value, "0") == 0;
    }
    return true;
}

/* One answer is enough: the other ranks leave as well as the first, for the launcher's sake. */
static void leave_if_asked(int argc, char **argv)
{
    static const char *const questions[] = {"-?", "--help", "--usage", "-V", "--version"};

    for (int i = 1; i < argc; i++) {
        for (size_t k = 0; k < sizeof(questions) / sizeof(questions[0]); k++) {
            if (strcmp(argv[i], questions[k]) == 0)
                exit(BENCH_EXIT_OK);
        }
    }
}

static error_t bad(struct argp_state *state, const char *option, const char *given,
                   const char *wanted)
{
    if (!(state->flags & ARGP_NO_ERRS))
        fprintf(stderr, "%s: %s '%s': want %s\n", state->name, option, given, wanted);
    exit(BENCH_EXIT_ERROR);
}

static bool parse_bytes(const char *text, size_t length, size_t *bytes)
{
    char copy[32], *end;
    unsigned long long n;
    int shift = 0;

    if (length == 0 || length >= sizeof(copy) || text[0] < '0' || text[0] > '9')
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    errno = 0;
    n = strtoull(copy, &end, 10);
    if (*end == 'k' || *end == 'K')
        shift = 10;
    else if (*end == 'm' || *end == 'M')
        shift = 20;
    else if (*end == 'g' || *end == 'G')
        shift = 30;
    if (shift)
        end++;
    if (errno || *end || n > (1ull << 42) >> shift)
        return false;
    *bytes = (size_t)n << shift;
    return true;
}

static bool parse_sizes(const char *text, bench_options_t *o)
{
    const char *colon = strchr(text, ':');
    size_t low = o->min_size, high = o->max_size;

    if (colon) {
        if (!parse_bytes(text, (size_t)(colon - text), &low))
            return false;
        text = colon + 1;
    }
    if ((!colon || *text) && !parse_bytes(text, strlen(text), &high))
        return false;
    if (!colon && low > high)
        low = high;
    if (low > high)
        return false;
    o->min_size = low;
    o->max_size = high;
    return true;
}

static bool parse_number(const char *text, int low, int *value)
{
    char *end;
    long n;

    errno = 0;
    n = strtol(text, &end, 10);
    if (errno || end == text || *end || n < low || n > 1000000000)
        return false;
    *value = (int)n;
    return true;
}

static bool parse_kinds(const char *text, bench_options_t *o)
{
    char first = text[0], second;

    if (!first)
        return false;
    if (text[1] == ',' || text[1] == ':') {
        second = text[2];
        if (!second || text[3])
            return false;
    } else {
        second = text[1] ? text[1] : first;
        if (text[1] && text[2])
            return false;
    }
    if (!gpu_kind_known(first) || !gpu_kind_known(second))
        return false;
    o->kind[0] = first;
    o->kind[1] = second;
    return true;
}

static bool parse_type(const char *text, bench_options_t *o)
{
    const char *rest = strchr(text, ':'), *colon;

    if (strcmp(text, "contig") == 0) {
        o->type = BENCH_CONTIG;
        return true;
    }
    if (!rest)
        return false;
    rest++;
    colon = strchr(rest, ':');
    if (strncmp(text, "vector:", 7) == 0) {
        o->type = BENCH_VECTOR;
        return colon && parse_bytes(rest, (size_t)(colon - rest), &o->type_block) &&
               parse_bytes(colon + 1, strlen(colon + 1), &o->type_stride) && o->type_block > 0 &&
               o->type_block <= INT_MAX && o->type_stride >= o->type_block;
    }
    if (strncmp(text, "face:", 5) == 0) {
        o->type = BENCH_FACE;
        o->type_block = 8;
        if (rest[0] < '0' || rest[0] > '2' || (rest[1] && rest[1] != ':'))
            return false;
        o->type_axis = rest[0] - '0';
        return !colon || (parse_bytes(colon + 1, strlen(colon + 1), &o->type_block) &&
                          o->type_block > 0 && o->type_block <= 1 << 20);
    }
    return false;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    bench_options_t *o = state->input;

    switch (key) {
    case 'd':
        if (!parse_kinds(arg, o))
            return bad(state, "buffers", arg, "one or two of " GPU_KINDS ", e.g. DD or D,H");
        return 0;
    case 'm':
        if (!parse_sizes(arg, o))
            return bad(state, "message size", arg, "[MIN:]MAX in bytes, MIN at most MAX");
        return 0;
    case 'i':
        if (!parse_number(arg, 1, &o->iterations))
            return bad(state, "iterations", arg, "a number from 1 on");
        return 0;
    case 'x':
        if (!parse_number(arg, 0, &o->warmup))
            return bad(state, "warm-up", arg, "a number from 0 on");
        return 0;
    case 'W':
        if (!parse_number(arg, 1, &o->window))
            return bad(state, "window size", arg, "a number from 1 on");
        return 0;
    case 'p':
        if (!parse_number(arg, 1, &o->pairs))
            return bad(state, "pairs", arg, "a number from 1 on");
        return 0;
    case 'v':
    case 'c':
        o->validate = true;
        return 0;
    case KEY_TYPE:
        if (!parse_type(arg, o))
            return bad(state, "type", arg,
                       "contig, vector:BLOCK:STRIDE (STRIDE not below BLOCK), face:0..2[:ELEMENT]");
        return 0;
    case KEY_FORMAT:
        if (strcmp(arg, "csv") != 0 && strcmp(arg, "table") != 0)
            return bad(state, "format", arg, "csv or table");
        o->csv = arg[0] == 'c';
        return 0;
    case KEY_GPU:
        o->gpu = true;
        return 0;
    case KEY_PEER_COPY:
        o->peer_copy = 1;
        return 0;
    case KEY_NO_PEER_COPY:
        o->peer_copy = 0;
        return 0;
    case KEY_NO_PERCENTILES:
        o->percentiles = false;
        return 0;
    case ARGP_KEY_ARG: {
        char kind = arg[0];

        if (!kind || arg[1] || !gpu_kind_known(kind))
            return bad(state, "buffer kind", arg, "one letter of " GPU_KINDS);
        if (state->arg_num > 1)
            return bad(state, "argument", arg, "at most two buffer kinds: SENDER RECEIVER");
        if (state->arg_num == 0)
            o->kind[0] = o->kind[1] = kind;
        else
            o->kind[1] = kind;
        return 0;
    }
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const char kinds_help[] =
    "\vBuffer kinds: H host, P pinned host, R registered host, D device, M managed (host side), "
    "G managed (device side), A async pool, V VMM, W VMM of several chunks, X VMM that cannot be "
    "exported, I interior device pointer, S __device__ symbol, C second context, T device memory "
    "of a thread without a current context, O another device, B device memory from before "
    "MPI_Init.\n\n"
    "Ranks take the GPUs of their node in turn. Exit status: 0 success, 1 usage or set-up error, "
    "2 wrong data.";

void bench_options_parse(bench_options_t *o, const bench_program_t *program, int argc, char **argv)
{
    struct argp_option list[24];
    const struct argp_option *groups[] = {options_all, program->windowed ? options_window : NULL,
                                          program->pairs ? options_pairs : NULL,
                                          program->peer_copy ? options_peer_copy : NULL};
    static char version[64];
    char doc[2048];
    struct argp argp = {.options = list, .parser = parse, .args_doc = "[SENDER RECEIVER]",
                        .doc = doc};
    unsigned int flags = first_rank() ? 0 : ARGP_NO_ERRS | ARGP_NO_HELP;
    size_t n = 0;

    for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++)
        for (const struct argp_option *p = groups[g]; p && (p->name || p->key); p++)
            list[n++] = *p;
    memset(&list[n], 0, sizeof(list[n]));
    snprintf(doc, sizeof(doc), "%s%s", program->doc, kinds_help);

    *o = (bench_options_t){.program = program, .kind = {'H', 'H'}, .min_size = 1,
                           .max_size = 4 << 20, .iterations = -1, .warmup = -1, .window = 64,
                           .percentiles = true, .peer_copy = -1, .type = BENCH_CONTIG};
    snprintf(version, sizeof(version), "%s of Grail %s", program->name, BENCH_VERSION);
    argp_program_version = version;
    argp_err_exit_status = BENCH_EXIT_ERROR;
    if (!first_rank())
        leave_if_asked(argc, argv);
    if (argp_parse(&argp, argc, argv, flags, NULL, o) != 0)
        exit(BENCH_EXIT_ERROR);
    if (o->peer_copy == 1 && !(gpu_kind_on_device(o->kind[0]) && gpu_kind_on_device(o->kind[1]))) {
        if (first_rank())
            fprintf(stderr, "%s: --peercopy: want device buffers on both sides\n", program->name);
        exit(BENCH_EXIT_ERROR);
    }
}
