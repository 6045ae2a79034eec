/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters per path and peer class, the reasons for slower paths, and the table at the end. */
#include "runtime/stats.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"

enum { REASONS_MAX = 64, WIDTH_MAX = 32 };

grail_stats_cell_t grail_stats_cells[2][GRAIL_PATH_COUNT][GRAIL_PEER_CLASS_COUNT];

static struct {
    grail_path_t wanted;
    const char *reason;
    uint64_t times;
    bool warned;
} stats_reasons[REASONS_MAX];
static unsigned stats_reason_count;
static uint64_t stats_reasons_lost;     /* beyond REASONS_MAX different ones */

static const char *const path_names[GRAIL_PATH_COUNT] = {
    [GRAIL_PATH_NET_EAGER] = "net-eager",       [GRAIL_PATH_NET_RNDV] = "net-rendezvous",
    [GRAIL_PATH_DEVICE_EAGER] = "device-eager", [GRAIL_PATH_IPC] = "ipc",
    [GRAIL_PATH_RING] = "ring",                 [GRAIL_PATH_HOST_SHM] = "host-shm",
    [GRAIL_PATH_HOST_NET] = "host-net",
};

static const char *const peer_names[GRAIL_PEER_CLASS_COUNT] = {
    [GRAIL_PEER_SELF] = "self",
    [GRAIL_PEER_NODE] = "node",
    [GRAIL_PEER_REMOTE] = "remote",
};

const char *grail_path_name(grail_path_t path)
{
    return (unsigned)path < GRAIL_PATH_COUNT ? path_names[path] : "unknown";
}

void grail_stats_fallback(grail_path_t wanted, const char *reason, int warn)
{
    unsigned i;

    for (i = 0; i < stats_reason_count; ++i) {
        if (stats_reasons[i].wanted == wanted && strcmp(stats_reasons[i].reason, reason) == 0)
            break;
    }
    if (i == REASONS_MAX) {
        stats_reasons_lost++;
        return;
    }
    if (i == stats_reason_count) {
        stats_reasons[i].wanted = wanted;
        stats_reasons[i].reason = reason;
        stats_reasons[i].times = 0;
        stats_reasons[i].warned = false;
        stats_reason_count++;
    }
    stats_reasons[i].times++;
    if (warn && !stats_reasons[i].warned) {
        stats_reasons[i].warned = true;
        grail_warn("the %s path is not used: %s", grail_path_name(wanted), reason);
    }
}

/* "0 B", "17.4 KiB", "3.00 GiB": three digits */
static void human_bytes(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double x = (double)bytes;
    unsigned unit = 0;

    while (x >= 999.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        x /= 1024;
        ++unit;
    }
    if (unit == 0)
        snprintf(text, size, "%" PRIu64 " B", bytes);
    else
        snprintf(text, size, "%.*f %s", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x, units[unit]);
}

static bool anything_counted(void)
{
    const grail_stats_cell_t *cell = &grail_stats_cells[0][0][0];
    size_t count = sizeof(grail_stats_cells) / sizeof(*cell);

    for (size_t i = 0; i < count; ++i) {
        if (cell[i].messages != 0)
            return true;
    }
    return stats_reason_count != 0;
}

static void print_rows(FILE *to)
{
    static const char *const directions[2] = {"sent", "received"};
    char bytes[WIDTH_MAX], mean[WIDTH_MAX];

    fprintf(to, "  %-8s  %-14s  %-6s  %14s  %10s  %10s\n", "", "path", "peer", "messages", "bytes",
            "mean");
    for (int d = 0; d < 2; ++d) {
        for (int path = 0; path < GRAIL_PATH_COUNT; ++path) {
            for (int peer = 0; peer < GRAIL_PEER_CLASS_COUNT; ++peer) {
                const grail_stats_cell_t *cell = &grail_stats_cells[d][path][peer];

                if (cell->messages == 0)
                    continue;
                human_bytes(cell->bytes, bytes, sizeof(bytes));
                human_bytes(cell->bytes / cell->messages, mean, sizeof(mean));
                fprintf(to, "  %-8s  %-14s  %-6s  %14" PRIu64 "  %10s  %10s\n", directions[d],
                        path_names[path], peer_names[peer], cell->messages, bytes, mean);
            }
        }
    }
}

static void print_reasons(FILE *to)
{
    for (unsigned i = 0; i < stats_reason_count; ++i)
        fprintf(to, "  %s not used %" PRIu64 " time%s: %s\n",
                grail_path_name(stats_reasons[i].wanted), stats_reasons[i].times,
                stats_reasons[i].times == 1 ? "" : "s", stats_reasons[i].reason);
    if (stats_reasons_lost != 0)
        fprintf(to, "  %" PRIu64 " more for other reasons\n", stats_reasons_lost);
}

void grail_stats_print(FILE *to, int rank, int always)
{
    size_t length = 0;
    char *text = NULL;
    bool any = anything_counted();

    if (!any && !always)
        return;
    /* composed in memory and written at once, so that the tables of several ranks do not mix */
    FILE *memory = open_memstream(&text, &length);
    if (memory == NULL) {
        grail_error("out of memory for the table of statistics");
        return;
    }
    if (rank >= 0)
        fprintf(memory, "[grail] rank %d: messages by path\n", rank);
    else
        fprintf(memory, "[grail] messages by path\n");
    if (any)
        print_rows(memory);
    else
        fprintf(memory, "  none\n");
    print_reasons(memory);
    if (fclose(memory) == 0) {
        fwrite(text, 1, length, to);
        fflush(to);
    }
    free(text);
}

void grail_stats_reset(void)
{
    memset(grail_stats_cells, 0, sizeof(grail_stats_cells));
    memset(stats_reasons, 0, sizeof(stats_reasons));
    stats_reason_count = 0;
    stats_reasons_lost = 0;
}
