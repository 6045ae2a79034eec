/* SPDX-License-Identifier: BSD-3-Clause */
/* Frame of the MPI tests (mpitest.h). */
#include "tests/common/mpitest.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "tests/common/pattern.h"

#define PAIRS_MAX 512
#define FAILURES_SHOWN 10
#define PIECE ((size_t)4 << 20) /* of a fill or a check */
#define EARLY_BYTES ((size_t)40 << 20)

int mt_rank, mt_size;
MPI_Comm mt_world = MPI_COMM_NULL, mt_side = MPI_COMM_NULL;
int mt_peer = -1;
bool mt_sending;
char mt_send_kind = 'H', mt_recv_kind = 'H';
int mt_factor = 1;

static const mt_program_t *program;
static struct {
    char send, recv;
} pairs[PAIRS_MAX];
static int pair_count;
static bool pairs_in_names;

static struct {
    char name[256];
    char skip[256];
    int failures;
    bool skipped, asked, ready;
} current;
static int cases, failed_cases;
static char watchdog_text[320];
static int case_limit = 60;

double mt_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void mt_sleep_ms(int milliseconds)
{
    struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000L};

    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

uint64_t mt_random(uint64_t *state)
{
    return pattern_word(0x6772, (*state)++);
}

size_t mt_resident(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long long pages = 0;

    if (f && fscanf(f, "%*s %llu", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

size_t mt_memory_available(void)
{
    FILE *f = fopen("/proc/meminfo", "r");
    unsigned long long kib = 0;
    char line[256];

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return (size_t)kib * 1024;
}

/* ---- Options --------------------------------------------------------------------------- */

static void usage(const char *wrong)
{
    fprintf(stderr, "%s: '%s': usage: %s [-k KINDS,...] [-n FACTOR] [ARGUMENT]...\n", program->name,
            wrong, program->name);
    exit(2);
}

static void add_pair(char send, char recv)
{
    if (pair_count == PAIRS_MAX)
        usage("too many pairs");
    pairs[pair_count].send = send;
    pairs[pair_count++].recv = recv;
}

static void parse_pairs(const char *text)
{
    if (strncmp(text, "all", 3) == 0 && (!text[3] || text[3] == '-')) {
        for (const char *s = GPU_KINDS; *s; s++)
            for (const char *r = GPU_KINDS; *r; r++)
                if (!strchr(text + 3, *s) && !strchr(text + 3, *r))
                    add_pair(*s, *r);
        return;
    }
    for (const char *p = text; *p; p += p[2] ? 3 : 2) {
        if (!gpu_kind_known(p[0]) || !gpu_kind_known(p[1]) || (p[2] && p[2] != ','))
            usage(text);
        add_pair(p[0], p[1]);
    }
}

static void parse_options(int *argc, char **argv)
{
    int kept = 1;

    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], "-k") == 0 && i + 1 < *argc) {
            parse_pairs(argv[++i]);
            pairs_in_names = true;
        } else if (strcmp(argv[i], "-n") == 0 && i + 1 < *argc) {
            mt_factor = atoi(argv[++i]);
            if (mt_factor < 1)
                usage(argv[i]);
        } else {
            argv[kept++] = argv[i];
        }
    }
    *argc = kept;
    argv[kept] = NULL;
    if (pair_count == 0)
        add_pair('H', 'H');
}

static bool kind_used(char kind)
{
    for (int i = 0; i < pair_count; i++)
        if (pairs[i].send == kind || pairs[i].recv == kind)
            return true;
    return false;
}

/* ---- Start and end --------------------------------------------------------------------- */

static void watchdog(int signal)
{
    ssize_t ignored = write(STDERR_FILENO, watchdog_text, strlen(watchdog_text));

    (void)ignored;
    (void)signal;
    _exit(124);
}

static void skip_program(const char *reason)
{
    if (mt_rank == 0) {
        printf("ok - %s # SKIP %s\n1..1\n", program->name, reason);
        fflush(stdout);
    }
    MPI_Finalize();
    exit(0);
}

void mt_start(int *argc, char ***argv, const mt_program_t *what)
{
    const char *limit = getenv("GRAIL_TEST_CASE_LIMIT");
    const char *undumpable = getenv("GRAIL_TEST_UNDUMPABLE"); /* "odd": every other rank */
    int local = gpu_local_rank_from_env(), provided;
    char text[128];
    MPI_Comm node;

    program = what;
    parse_options(argc, *argv);
    if (limit && atoi(limit) > 0)
        case_limit = atoi(limit);
    if (local >= 0)
        gpu_set_local_rank(local);
    if (kind_used('B') && gpu_driver()) /* without a driver each case says so */
        gpu_reserve_early(EARLY_BYTES);
    /* only the privileged may look into this process */
    if (undumpable && (strcmp(undumpable, "odd") != 0 || local % 2 == 1))
        prctl(PR_SET_DUMPABLE, 0);
    signal(SIGALRM, watchdog);
    snprintf(watchdog_text, sizeof(watchdog_text), "# %s: MPI_Init took over %d s\n", what->name,
             case_limit);
    alarm((unsigned int)case_limit);

    MPI_Init_thread(argc, argv, what->thread_level, &provided);
    mt_world = MPI_COMM_WORLD;
    MPI_Comm_rank(mt_world, &mt_rank);
    MPI_Comm_size(mt_world, &mt_size);
    if (mt_size < what->min_ranks) {
        snprintf(text, sizeof(text), "%s needs %d ranks", what->name, what->min_ranks);
        skip_program(text);
    }
    if (provided < what->thread_level)
        skip_program("this MPI lacks the thread level");
    MPI_Comm_dup(mt_world, &mt_side);
    MPI_Comm_split_type(mt_world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local);
    MPI_Comm_free(&node);
    gpu_set_local_rank(local);
    mt_peer = (mt_rank ^ 1) < mt_size ? mt_rank ^ 1 : -1;
    mt_sending = mt_rank % 2 == 0;
    if (!what->owns_errors)
        MPI_Comm_set_errhandler(mt_world, MPI_ERRORS_RETURN);
    alarm(0);
}

int mt_finish(void)
{
    int status = failed_cases ? 1 : 0;

    snprintf(watchdog_text, sizeof(watchdog_text), "# %s: rank %d: MPI_Finalize took over %d s\n",
             program->name, mt_rank, case_limit);
    alarm((unsigned int)case_limit);
    MPI_Comm_free(&mt_side);
    MPI_Finalize();
    alarm(0);
    /* after MPI_Finalize: a crash in it leaves the plan out */
    if (mt_rank == 0) {
        printf("1..%d\n", cases);
        fflush(stdout);
    }
    return status;
}

void mt_each_pair(void (*body)(void))
{
    for (int i = 0; i < pair_count; i++) {
        mt_send_kind = pairs[i].send;
        mt_recv_kind = pairs[i].recv;
        body();
    }
}

/* ---- Cases ----------------------------------------------------------------------------- */

void mt_case(const char *format, ...)
{
    va_list args;
    int n = snprintf(current.name, sizeof(current.name), "%s ", program->name);

    if (pairs_in_names)
        n += snprintf(current.name + n, sizeof(current.name) - (size_t)n, "%c%c: ", mt_send_kind,
                      mt_recv_kind);
    va_start(args, format);
    vsnprintf(current.name + n, sizeof(current.name) - (size_t)n, format, args);
    va_end(args);
    current.failures = 0;
    current.skipped = current.asked = false;
    snprintf(watchdog_text, sizeof(watchdog_text), "# rank %d: over %d s in: %s\n", mt_rank,
             case_limit, current.name);
    alarm((unsigned int)case_limit);
}

void mt_skip(const char *format, ...)
{
    va_list args;

    if (current.skipped)
        return;
    va_start(args, format);
    vsnprintf(current.skip, sizeof(current.skip), format, args);
    va_end(args);
    current.skipped = true;
}

bool mt_agree(bool mine)
{
    int in = mine, out = 0;

    MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_MIN, mt_side);
    return out;
}

bool mt_ready(void)
{
    if (!current.asked) {
        current.asked = true;
        current.ready = mt_agree(!current.skipped && current.failures == 0);
    }
    return current.ready;
}

void mt_end(void)
{
    int mine[2], all[2];

    /* the most failures; the lowest rank that skips */
    mine[0] = -current.failures;
    mine[1] = current.skipped ? mt_rank : mt_size;
    MPI_Allreduce(mine, all, 2, MPI_INT, MPI_MIN, mt_side);
    if (all[1] < mt_size)
        MPI_Bcast(current.skip, sizeof(current.skip), MPI_CHAR, all[1], mt_side);
    alarm(0);
    cases++;
    if (all[0] < 0)
        failed_cases++;
    if (mt_rank != 0)
        return;
    if (all[0] < 0)
        printf("not ok - %s\n", current.name);
    else if (all[1] < mt_size)
        printf("ok - %s # SKIP %s\n", current.name, current.skip);
    else
        printf("ok - %s\n", current.name);
    fflush(stdout);
}

void mt_failed(const char *file, int line, const char *format, ...)
{
    const char *slash = strrchr(file, '/');
    char text[512];
    va_list args;
    int n = __atomic_add_fetch(&current.failures, 1, __ATOMIC_RELAXED);

    if (n > FAILURES_SHOWN)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "# rank %d: %s:%d: %s: %s%s\n", mt_rank, slash ? slash + 1 : file, line,
            current.name, text, n == FAILURES_SHOWN ? " (no more are shown)" : "");
}

void mt_note(const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "# %s: %s\n", program->name, text);
}

bool mt_mpi_ok(int result, const char *call, const char *file, int line)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;

    if (result == MPI_SUCCESS)
        return true;
    MPI_Error_string(result, text, &length);
    mt_failed(file, line, "%.200s: %s", call, text);
    return false;
}

bool mt_mpi_fails(int result, int wanted, const char *call, const char *file, int line)
{
    int class = MPI_SUCCESS;

    if (result != MPI_SUCCESS)
        MPI_Error_class(result, &class);
    if (class == wanted)
        return true;
    mt_failed(file, line, "%.200s returned error class %d, not %d", call, class, wanted);
    return false;
}

/* ---- Buffers --------------------------------------------------------------------------- */

static __thread unsigned char *piece;

static unsigned char *scratch(void)
{
    if (!piece)
        piece = malloc(PIECE);
    if (!piece)
        abort();
    return piece;
}

bool mt_alloc(gpu_buf_t *buf, char kind, size_t size)
{
    int result = gpu_buf_alloc(buf, kind, size, MT_GUARD);

    if (result == GPU_OK) {
        mt_clear(buf);
        return true;
    }
    memset(buf, 0, sizeof(*buf));
    if (result == GPU_UNSUPPORTED)
        mt_skip("%s", gpu_why());
    else
        mt_failed(__FILE__, __LINE__, "no buffer of %zu bytes: %s", size, gpu_why());
    return false;
}

void mt_free(gpu_buf_t *buf)
{
    gpu_buf_free(buf);
}

void mt_clear(const gpu_buf_t *buf)
{
    gpu_set(buf, -(ptrdiff_t)buf->guard, PATTERN_GUARD, buf->size + 2 * buf->guard);
}

void mt_fill(const gpu_buf_t *buf, uint64_t seed, size_t offset, size_t n)
{
    for (size_t done = 0; done < n; done += PIECE) {
        size_t bytes = n - done < PIECE ? n - done : PIECE;

        pattern_fill(scratch(), seed, done, bytes);
        gpu_write(buf, (ptrdiff_t)(offset + done), scratch(), bytes);
    }
}

bool mt_expect(const gpu_buf_t *buf, uint64_t seed, size_t offset, size_t n)
{
    for (size_t done = 0; done < n; done += PIECE) {
        size_t bytes = n - done < PIECE ? n - done : PIECE, at;

        gpu_read(buf, (ptrdiff_t)(offset + done), scratch(), bytes);
        at = pattern_differs(scratch(), seed, done, bytes);
        if (at < bytes) {
            mt_failed(__FILE__, __LINE__, "byte %zu of %zu is %02x, not %02x", done + at, n,
                      scratch()[at], pattern_byte(seed, done + at));
            return false;
        }
    }
    return true;
}

bool mt_expect_untouched(const gpu_buf_t *buf, ptrdiff_t offset, size_t n)
{
    for (size_t done = 0; done < n; done += PIECE) {
        size_t bytes = n - done < PIECE ? n - done : PIECE, at;

        gpu_read(buf, offset + (ptrdiff_t)done, scratch(), bytes);
        at = pattern_not_all(scratch(), PATTERN_GUARD, bytes);
        if (at < bytes) {
            mt_failed(__FILE__, __LINE__, "byte %td of a buffer of %zu was overwritten with %02x",
                      offset + (ptrdiff_t)(done + at), buf->size, scratch()[at]);
            return false;
        }
    }
    return true;
}

bool mt_expect_message(const gpu_buf_t *buf, uint64_t seed, size_t n)
{
    bool before = mt_expect_untouched(buf, -(ptrdiff_t)buf->guard, buf->guard);
    bool data = mt_expect(buf, seed, 0, n);
    bool after = mt_expect_untouched(buf, (ptrdiff_t)n, buf->size + buf->guard - n);

    return before && data && after;
}

bool mt_expect_status(const MPI_Status *status, int source, int tag, size_t bytes)
{
    MPI_Count count = -1;

    MPI_Get_elements_x(status, MPI_BYTE, &count);
    if (status->MPI_SOURCE == source && status->MPI_TAG == tag && count == (MPI_Count)bytes)
        return true;
    mt_failed(__FILE__, __LINE__,
              "status says source %d, tag %d, %lld bytes, not source %d, tag %d, %zu bytes",
              status->MPI_SOURCE, status->MPI_TAG, (long long)count, source, tag, bytes);
    return false;
}

/* ---- The peer -------------------------------------------------------------------------- */

int mt_exchange_peer(int mine)
{
    int theirs = 0;

    if (mt_peer >= 0)
        MPI_Sendrecv(&mine, 1, MPI_INT, mt_peer, 32000, &theirs, 1, MPI_INT, mt_peer, 32000,
                     mt_side, MPI_STATUS_IGNORE);
    return theirs;
}

void mt_sync_peer(void)
{
    mt_exchange_peer(0);
}
