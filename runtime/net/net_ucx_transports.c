/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX provider: which of UCX's transports are left out, and why. */
#include "runtime/net/net_ucx.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/log.h"

/* Bytes of a list of transports that are left out, and of the user's part of it. */
enum { EXCLUDE_MAX = 512, USER_EXCLUDE_MAX = EXCLUDE_MAX - 64 };

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

/* Does the user's choice leave the rest open ("all", or "^" and what is left out)? `exclude` gets the
 * list, with a comma at its start, empty for "all". */
static bool is_open_choice(const char *value, char exclude[EXCLUDE_MAX])
{
    exclude[0] = '\0';
    if (value[0] != '^' || strlen(value) > USER_EXCLUDE_MAX)
        return strcmp(value, "all") == 0;
    sprintf(exclude, ",%s", value + 1);
    return true;
}

/* Is the name in a list of UCX_TLS? There, "\" in front stands for exactly this one, and ":aux"
 * behind for one that helps others. */
static bool is_named(const char *list, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = list; *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
        const char *word = at + (*at == '\\');

        if (strncmp(word, name, length) == 0 && strchr(",:", word[length]) != NULL)
            return true;
    }
    return false;
}

/* Does the choice leave a transport that has queues in shared memory? */
static bool has_queues(const char *value, bool posix)
{
    bool left_out = value[0] == '^';
    const char *list = value + left_out;
    bool group = is_named(list, "mm") || is_named(list, "sm") || is_named(list, "shm");

    if (is_named(list, "all"))
        return !left_out;
    return (posix && (group || is_named(list, "posix")) != left_out) ||
           (group || is_named(list, "sysv")) != left_out ||
           (access("/dev/xpmem", R_OK) == 0 && (group || is_named(list, "xpmem")) != left_out);
}

/* Is one of `names` (each with a comma before and behind) in the list? */
static bool is_excluded(const char *exclude, const char *const names[], size_t count)
{
    char list[EXCLUDE_MAX + 1];

    snprintf(list, sizeof(list), "%s,", exclude);
    for (size_t i = 0; i < count; i++) {
        if (strstr(list, names[i]) != NULL)
            return true;
    }
    return false;
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
 * UCX warns about a transport in UCX_TLS that it was built without, so one is only left out where
 * it is there: as a module beside UCX's libraries, or in UCX_MODULE_DIR.
 */
static bool has_module(const char *name)
{
    static const char *const endings[] = {".so.0", ".so"};
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
            snprintf(path, sizeof(path), "%s/libuct_%s%s", folders[i], name, endings[j]);
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
    transports->posix_error = statvfs(transports->posix_folder, &fs) == 0 ? 0 : errno;
    if (transports->posix_error != 0)
        return false;
    transports->posix_free = (size_t)fs.f_bavail * fs.f_frsize;
    return transports->posix_free >= (size_t)UCX_POSIX_NEED;
}

/* Both sides of a pair must have cma for UCX to use it, so each rank answers for itself alone. */
static bool cma_works(const grail_net_params_t *params)
{
    static bool asked, works;
    const char *reason, *cure;

    if (asked)
        return works;
    asked = true;
    works = grail_ucx_may_copy(params->processes_on_node, &reason, &cure);
    if (works)
        return true;
    grail_log_level_t level = params->first_on_node && params->processes_on_node != 1
                                  ? GRAIL_LOG_WARN : GRAIL_LOG_INFO;
    if (grail_log_enabled(level))
        grail_log_write(level, "no permission to copy between the processes of this node, so large"
                        " host messages take two copies instead of one: %s; %s, or accept it with"
                        " UCX_TLS=^cma", reason, cure);
    return false;
}

/* Says why UCX's default for shared memory is not used. True: it has to be left out. Where its folder
 * is missing UCX does that by itself, and would warn of the name in UCX_TLS. */
static bool without_posix(const ucx_transports_t *transports)
{
    if (transports->posix_error == 0) {
        grail_warn_once("ucx-posix", "%s has %zu KiB left, too little for UCX's shared memory (%d"
                        " KiB per process); System V shared memory is used instead; enlarge it"
                        " (mount -o remount,size=1g %s, or docker run --shm-size=1g)",
                        transports->posix_folder, transports->posix_free >> 10,
                        UCX_POSIX_NEED >> 10, transports->posix_folder);
        return true;
    }
    grail_warn_once("ucx-posix", "%s cannot be used for UCX's shared memory: %s; System V shared"
                    " memory is used instead; make the folder, or %s", transports->posix_folder,
                    strerror(transports->posix_error), getenv("UCX_POSIX_DIR") != NULL
                    ? "correct UCX_POSIX_DIR" : "set UCX_POSIX_DIR to another");
    return false;
}

/* Adds to the list of those that are left out, with a comma at its start. */
static void leave_out(char exclude[EXCLUDE_MAX], const grail_net_params_t *params,
                      ucx_transports_t *transports)
{
    /* with the names of groups that they belong to */
    static const char *const cma[] = {",cma,", ",sm,", ",shm,"};
    static const char *const posix[] = {",posix,", ",mm,", ",sm,", ",shm,"};

    if (has_module("cuda"))
        strcat(exclude, ",cuda");
    if (has_module("cma") && !is_excluded(exclude, cma, sizeof(cma) / sizeof(cma[0])) &&
        !cma_works(params))
        strcat(exclude, ",cma");
    if (is_excluded(exclude, posix, sizeof(posix) / sizeof(posix[0]))) {
        transports->posix = false;
    } else if (!grail_ucx_posix_has_room(transports) || transports->no_posix) {
        transports->posix = false;
        if (without_posix(transports))
            strcat(exclude, ",posix");
    }
}

void grail_ucx_choose_transports(ucp_config_t *config, const grail_net_params_t *params,
                                 ucx_transports_t *transports)
{
    char *value = config_value(config, "TLS");
    char exclude[EXCLUDE_MAX];
    size_t users;
    ucs_status_t status;

    transports->posix = true;
    (void)grail_ucx_posix_has_room(transports);
    transports->queues = value == NULL || has_queues(value, transports->posix_error == 0);
    transports->ours = value != NULL && is_open_choice(value, exclude);
    free(value);
    read_thresholds(config, transports);
    if (!transports->ours)
        return;
    users = strlen(exclude);
    leave_out(exclude, params, transports);
    if (exclude[0] != '\0')
        exclude[0] = '^';
    transports->queues = has_queues(exclude[0] != '\0' ? exclude : "all", transports->posix);
    if (exclude[users] == '\0')
        return;
    status = ucp_config_modify(config, "TLS", exclude);
    if (status != UCS_OK)
        grail_debug("UCX does not take UCX_TLS=%s: %s", exclude, ucs_status_string(status));
}
