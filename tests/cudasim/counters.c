/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters that tests read, in the process or from a report at its end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/cudasim/sim.h"

atomic_llong sim_counters[SIM_COUNTERS];
atomic_llong sim_device_bytes[SIM_MAX_DEVICES];

static const char *const names[SIM_COUNTERS] = {
    [SIM_CONTEXTS_CREATED] = "contexts_created",
    [SIM_CONTEXTS_LIVE] = "contexts_live",
    [SIM_STREAMS_CREATED] = "streams_created",
    [SIM_STREAMS_LIVE] = "streams_live",
    [SIM_EVENTS_CREATED] = "events_created",
    [SIM_EVENTS_LIVE] = "events_live",
    [SIM_ALLOCS] = "allocs",
    [SIM_FREES] = "frees",
    [SIM_ALLOCS_LIVE] = "allocs_live",
    [SIM_BYTES_LIVE] = "bytes_live",
    [SIM_HOST_ALLOCS_LIVE] = "host_allocs_live",
    [SIM_HOST_REGISTERED] = "host_registered",
    [SIM_COPIES] = "copies",
    [SIM_COPIES_HTOD] = "copies_htod",
    [SIM_COPIES_DTOH] = "copies_dtoh",
    [SIM_COPIES_DTOD] = "copies_dtod",
    [SIM_COPIES_PEER] = "copies_peer",
    [SIM_COPIES_HTOH] = "copies_htoh",
    [SIM_COPY_BYTES] = "copy_bytes",
    [SIM_MEMSETS] = "memsets",
    [SIM_WRITE_VALUES] = "write_values",
    [SIM_LAUNCHES] = "launches",
    [SIM_MODULES_LOADED] = "modules_loaded",
    [SIM_IPC_OPENS] = "ipc_opens",
    [SIM_IPC_LIVE] = "ipc_live",
    [SIM_IPC_EXPORTS] = "ipc_exports",
    [SIM_VMM_MAPS_LIVE] = "vmm_maps_live",
    [SIM_VMM_HANDLES_LIVE] = "vmm_handles_live",
    [SIM_DMABUF_EXPORTS] = "dmabuf_exports",
    [SIM_OPS_FAILED] = "ops_failed",
    [SIM_THREADS_STARTED] = "threads_started",
};

static long long calls(const char *api)
{
    long long sum = 0;
    for (sim_api_t *at = sim_api_list(); at != NULL; at = at->next) {
        if (api == NULL || strcmp(at->name, api) == 0) {
            sum += atomic_load(&at->calls);
        }
    }
    return sum;
}

SIM_EXPORT long long cudasim_get(const char *name)
{
    int phys;
    char rest;
    for (int i = 0; i < SIM_COUNTERS; i++) {
        if (strcmp(names[i], name) == 0) {
            return atomic_load(&sim_counters[i]);
        }
    }
    if (strcmp(name, "calls") == 0) {
        return calls(NULL);
    }
    if (strncmp(name, "calls.", 6) == 0) {
        return calls(name + 6);
    }
    if (sscanf(name, "device_bytes.%d%c", &phys, &rest) == 1 && phys >= 0 &&
        phys < SIM_MAX_DEVICES) {
        return atomic_load(&sim_device_bytes[phys]);
    }
    return -1;
}

void sim_report_at_exit(void)
{
    const char *report = sim_config()->report;
    if (report == NULL || *report == '\0') {
        return;
    }
    char path[512];
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    snprintf(path, sizeof(path), "%s.%s", report, rank != NULL ? rank : "0");
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        fprintf(stderr, "cudasim: cannot write the report %s\n", path);
        return;
    }
    fprintf(file, "calls %lld\n", calls(NULL));
    for (int i = 0; i < SIM_COUNTERS; i++) {
        fprintf(file, "%s %lld\n", names[i], (long long)atomic_load(&sim_counters[i]));
    }
    for (int i = 0; i < sim_config()->device_count; i++) {
        fprintf(file, "device_bytes.%d %lld\n", i, (long long)atomic_load(&sim_device_bytes[i]));
    }
    for (sim_api_t *at = sim_api_list(); at != NULL; at = at->next) {
        fprintf(file, "calls.%s %lld\n", at->name, (long long)atomic_load(&at->calls));
    }
    fclose(file);
}
