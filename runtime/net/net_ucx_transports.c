/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX provider: which of UCX's transports are left out, and why. */
#include "runtime/net/net_ucx.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/log.h"

enum { EXCLUDE_MAX = 64 };

/* The value in force of UCX_<name>, wherever it was set (environment with or without the prefix,
 * ucx.conf); to be freed. */
static char *config_value(const ucp_config_t *config, const char *name)
{
    char *text = NULL, *found = NULL, *end;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);

    if (memory == NULL)
        return NULL;
    ucp_config_print(config, memory, NULL, UCS_CONFIG_PRINT_CONFIG);
    if (fclose(memory) == 0) {
        for (char *line = strtok_r(text, "\n", &end); line != NULL && found == NULL;
             line = strtok_r(NULL, "\n", &end)) {
            char *value = strstr(line, name);

            if (value != NULL && value - line >= 4 && strncmp(value - 4, "UCX_", 4) == 0 &&
                value[strlen(name)] == '=')
                found = strdup(value + strlen(name) + 1);
        }
    }
    free(text);
    return found;
}

static bool is_open_choice(const ucp_config_t *config)
{
    char *value = config_value(config, "TLS");
    bool open = value != NULL && strcmp(value, "all") == 0;

    free(value);
    return open;
}

/* "256K"; 0 for anything but a number ("auto", "inf", newer syntax) */
static size_t parse_units(const char *text)
{
    char *end;
    unsigned long long n;

    if (text == NULL || *text < '0' || *text > '9')
        return 0;
    n = strtoull(text, &end, 10);
    switch (*end) {
    case 'K': return (size_t)n << 10;
    case 'M': return (size_t)n << 20;
    case 'G': return (size_t)n << 30;
    default: return *end == '\0' || *end == 'B' || *end == ',' ? (size_t)n : 0;
    }
}

/* UCX_RNDV_THRESH goes for all sends when it is set; left to UCX, those with FAST_CMPL have their
 * own. Later releases write it as "intra:auto,inter:auto". */
static size_t fast_rndv_threshold(const char *all, const char *fast, const char *where)
{
    const char *value = all != NULL ? strstr(all, where) : NULL;

    value = value != NULL ? value + strlen(where) : all;
    if (value != NULL && strncmp(value, "auto", 4) == 0)
        value = fast;
    return parse_units(value);
}

static void read_thresholds(const ucp_config_t *config, ucx_transports_t *transports)
{
    char *all = config_value(config, "RNDV_THRESH");
    char *fast = config_value(config, "RNDV_SEND_NBR_THRESH");

    transports->fast_rndv_node = fast_rndv_threshold(all, fast, "intra:");
    transports->fast_rndv_remote = fast_rndv_threshold(all, fast, "inter:");
    free(all);
    free(fast);
}

/*
 * UCX warns about a transport in UCX_TLS that it was built without, so CUDA is only left out where
 * it is there: as a module beside UCX's libraries, or in UCX_MODULE_DIR.
 */
static bool has_cuda(void)
{
    static const char *const names[] = {"libuct_cuda.so.0", "libuct_cuda.so"};
    const char *folders[2] = {getenv("UCX_MODULE_DIR"), NULL};
    char beside[PATH_MAX], path[PATH_MAX + 32];
    Dl_info info;
    char *slash;

    if (dladdr((void *)(uintptr_t)ucp_get_version, &info) != 0 && info.dli_fname != NULL &&
        strlen(info.dli_fname) + sizeof("/ucx") < sizeof(beside)) {
        strcpy(beside, info.dli_fname);
        slash = strrchr(beside, '/');
        if (slash != NULL) {
            strcpy(slash, "/ucx");
            folders[1] = beside;
        }
    }
    for (unsigned i = 0; i < 2; ++i) {
        for (unsigned j = 0; j < 2 && folders[i] != NULL; ++j) {
            snprintf(path, sizeof(path), "%s/%s", folders[i], names[j]);
            if (access(path, R_OK) == 0)
                return true;
        }
    }
    return false;
}

bool grail_ucx_posix_has_room(ucx_transports_t *transports)
{
    const char *folder = getenv("UCX_POSIX_DIR");
    struct statvfs fs;

    transports->posix_folder = folder != NULL && *folder != '\0' ? folder : "/dev/shm";
    transports->posix_free = 0;
    if (statvfs(transports->posix_folder, &fs) != 0)
        return false;
    transports->posix_free = (size_t)fs.f_bavail * fs.f_frsize;
    return transports->posix_free >= (size_t)UCX_POSIX_NEED;
}

void grail_ucx_choose_transports(ucp_config_t *config, ucx_transports_t *transports)
{
    char exclude[EXCLUDE_MAX] = "";
    ucs_status_t status;

    transports->posix = true;
    transports->ours = is_open_choice(config);
    read_thresholds(config, transports);
    if (!transports->ours)
        return;
    if (has_cuda())
        strcat(exclude, ",cuda");
    if (!grail_ucx_posix_has_room(transports)) {
        transports->posix = false;
        strcat(exclude, ",posix");
        grail_warn_once("ucx-posix", "%s has %zu KiB left, too little for UCX's shared memory (%d"
                        " KiB per process); System V shared memory is used instead; enlarge it"
                        " (mount -o remount,size=1g %s, or docker run --shm-size=1g)",
                        transports->posix_folder, transports->posix_free >> 10,
                        UCX_POSIX_NEED >> 10, transports->posix_folder);
    }
    if (exclude[0] == '\0')
        return;
    exclude[0] = '^';
    status = ucp_config_modify(config, "TLS", exclude);
    if (status != UCS_OK)
        grail_debug("UCX does not take UCX_TLS=%s: %s", exclude, ucs_status_string(status));
}
