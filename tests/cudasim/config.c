/* SPDX-License-Identifier: BSD-3-Clause */
/* What the environment says the simulated machine is like. Shared with the NVML stand-in. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "tests/cudasim/sim.h"

static sim_config_t config;

static long long number(const char *name, long long fallback, long long lo, long long hi)
{
    const char *text = getenv(name);
    if (text == NULL || *text == '\0') {
        return fallback;
    }
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 0);
    if (errno != 0 || *end != '\0' || value < lo || value > hi) {
        fprintf(stderr, "cudasim: %s=%s is not a number from %lld to %lld: %lld is used\n", name,
                text, lo, hi, fallback);
        return fallback;
    }
    return value;
}

static bool flag(const char *name)
{
    return number(name, 0, 0, 1) != 0;
}

/** "0-1,2-3" or "all": sets both directions of each pair to value. */
static void pairs(const char *name, bool table[SIM_MAX_DEVICES][SIM_MAX_DEVICES], bool value)
{
    const char *text = getenv(name);
    if (text == NULL || *text == '\0') {
        return;
    }
    if (strcmp(text, "all") == 0) {
        for (int i = 0; i < SIM_MAX_DEVICES; i++) {
            for (int j = 0; j < SIM_MAX_DEVICES; j++) {
                table[i][j] = i == j ? table[i][j] : value;
            }
        }
        return;
    }
    for (const char *at = text; *at != '\0';) {
        int a, b, used = 0;
        if (sscanf(at, "%d-%d%n", &a, &b, &used) != 2 || a < 0 || b < 0 || a >= SIM_MAX_DEVICES ||
            b >= SIM_MAX_DEVICES || (at[used] != '\0' && at[used] != ',')) {
            fprintf(stderr, "cudasim: %s=%s is not a list of pairs like 0-1,2-3\n", name, text);
            return;
        }
        table[a][b] = table[b][a] = value;
        at += used + (at[used] == ',');
    }
}

static uint64_t hash(const char *text)
{
    uint64_t h = 1469598103934665603u;
    for (; *text != '\0'; text++) {
        h = (h ^ (unsigned char)*text) * 1099511628211u;
    }
    return h;
}

/** The same in every process of a machine, different on each. */
static void make_uuids(void)
{
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    uint64_t h = hash(host);
    const char *node = getenv("CUDASIM_NODE");
    h ^= node != NULL ? hash(node) : 0;
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        memcpy(config.uuid[i], "SIM\0", 4);
        memcpy(config.uuid[i] + 4, &h, 8);
        config.uuid[i][15] = (unsigned char)i;
    }
}

static void format_uuid(const unsigned char *u, char out[48])
{
    snprintf(out, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
             u[14], u[15]);
}

void sim_uuid_string(int phys, char out[48])
{
    format_uuid(sim_config()->uuid[phys], out);
}

static int device_named(const char *word)
{
    if (isdigit((unsigned char)word[0])) {
        char *end;
        long index = strtol(word, &end, 10);
        return *end == '\0' && index < config.device_count ? (int)index : -1;
    }
    for (int i = 0; i < config.device_count && strlen(word) > 4; i++) {
        char text[48];
        format_uuid(config.uuid[i], text);
        if (strncasecmp(text, word, strlen(word)) == 0) {
            return i;
        }
    }
    return -1;
}

/** As the real driver: the list ends at the first entry that names no device. */
static void choose_visible(void)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    if (text == NULL) {
        for (int i = 0; i < config.device_count; i++) {
            config.visible[config.visible_count++] = i;
        }
        return;
    }
    char *copy = strdup(text), *rest = copy;
    for (char *word; copy != NULL && (word = strsep(&rest, ",")) != NULL;) {
        while (isspace((unsigned char)*word)) {
            word++;
        }
        int phys = device_named(word);
        for (int i = 0; i < config.visible_count; i++) {
            if (config.visible[i] == phys) { /* named twice: the real driver shows none */
                config.visible_count = 0;
                phys = -1;
            }
        }
        if (phys < 0) {
            break;
        }
        config.visible[config.visible_count++] = phys;
    }
    free(copy);
}

static void choose_ipc(void)
{
    const char *text = getenv("CUDASIM_IPC_FAIL");
    if (text == NULL || *text == '\0') {
        return;
    }
    bool all = strcmp(text, "all") == 0;
    config.ipc_get_fails = all || strcmp(text, "get") == 0;
    config.ipc_open_fails = all || strcmp(text, "open") == 0;
    if (!config.ipc_get_fails && !config.ipc_open_fails) {
        fprintf(stderr, "cudasim: CUDASIM_IPC_FAIL=%s is not get, open or all\n", text);
    }
}

static void choose_nvlink(void)
{
    const char *text = getenv("CUDASIM_NVLINK");
    if (text == NULL || *text == '\0') {
        config.nvlink = config.device_count > 2 ? SIM_NVLINK_SWITCH : SIM_NVLINK_DIRECT;
    } else if (strcmp(text, "direct") == 0) {
        config.nvlink = SIM_NVLINK_DIRECT;
    } else if (strcmp(text, "switch") == 0) {
        config.nvlink = SIM_NVLINK_SWITCH;
    } else if (strcmp(text, "none") != 0) {
        fprintf(stderr, "cudasim: CUDASIM_NVLINK=%s is not none, direct or switch\n", text);
    }
}

static void read_environment(void)
{
    config.device_count = (int)number("CUDASIM_DEVICES", 1, 0, SIM_MAX_DEVICES);
    config.cc = (int)number("CUDASIM_CC", 90, 10, 999);
    config.driver_version = (int)number("CUDASIM_DRIVER_VERSION", 13000, 1000, 99999);
    config.mem_bytes = (uint64_t)number("CUDASIM_MEM_MB", 512, 2, 1 << 20) << 20;
    config.mig = flag("CUDASIM_MIG");
    config.exclusive = flag("CUDASIM_EXCLUSIVE");
    config.no_memops = flag("CUDASIM_NO_MEMOPS");
    config.no_pools = flag("CUDASIM_NO_POOLS");
    config.no_vmm = flag("CUDASIM_NO_VMM");
    config.no_dmabuf = flag("CUDASIM_NO_DMABUF");
    config.no_managed = flag("CUDASIM_NO_MANAGED");
    config.masked_ipc_fails = flag("CUDASIM_MASKED_IPC_FAIL");
    config.no_kernels = flag("CUDASIM_NO_KERNELS");
    config.kernel_timeout = (unsigned int)number("CUDASIM_KERNEL_TIMEOUT_S", 0, 0, 86400);
    config.poison = flag("CUDASIM_POISON");
    config.strict_context = flag("CUDASIM_STRICT_CONTEXT");
    config.shutdown_early = flag("CUDASIM_SHUTDOWN_EARLY");
    config.hidden = getenv("CUDASIM_HIDE");
    config.report = getenv("CUDASIM_REPORT");
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        for (int j = 0; j < SIM_MAX_DEVICES; j++) {
            config.p2p[i][j] = i == j || !config.mig;
        }
    }
    pairs("CUDASIM_NO_P2P", config.p2p, false);
    pairs("CUDASIM_P2P_CORRUPT", config.corrupt, true);
    make_uuids();
    choose_visible();
    choose_ipc();
    choose_nvlink();
}

const sim_config_t *sim_config(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
    return &config;
}
