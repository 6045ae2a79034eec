/* SPDX-License-Identifier: BSD-3-Clause */
/* The MCA side: variables from the table of options, version check, opening and closing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pml/comm.h"
#include "pml/datatype.h"
#include "pml/device.h"
#include "pml/hooks.h"
#include "pml/pml_grail.h"
#include "runtime/init.h"
#include "runtime/log.h"
#include "runtime/options.h"

static int component_register(void);
static int component_close(void);
static mca_pml_base_module_t *component_init(int *priority, bool progress_threads,
                                             bool mpi_threads);
static int component_finalize(void);

__attribute__((visibility("default")))
grail_ompi_pml_component_t mca_pml_grail_component = {
    .pmlm_version = {
        GRAIL_OMPI_PML_VERSION,
        .mca_component_name = "grail",
        .mca_close_component = component_close,
        .mca_register_component_params = component_register
    },
    .pmlm_data = {MCA_BASE_METADATA_PARAM_NONE},
    .pmlm_init = component_init,
    .pmlm_finalize = component_finalize
};

/* ---- variables ---- */

/* Text of every option as MCA holds it, in the order of the table, and its index there. */
static char **variables;
static int *variable_index;
static int variable_priority;

static int variables_register(void)
{
    const mca_base_component_t *component = &mca_pml_grail_component.pmlm_version;
    size_t count;
    const grail_option_t *table = grail_options_table(&count);

    /* Fetched again by every registration: ompi_info unloads and loads components. */
    free(variables);
    free(variable_index);
    variables = calloc(count, sizeof(*variables));
    variable_index = calloc(count, sizeof(*variable_index));
    if (variables == NULL || variable_index == NULL)
        return OMPI_ERR_OUT_OF_RESOURCE;
    for (size_t i = 0; i < count; i++) {
        char help[512];
        const char *unit = table[i].unit != NULL ? table[i].unit : "";

        snprintf(help, sizeof(help), "%s%s%s%s%s%s", table[i].help,
                 unit[0] != '\0' ? " [" : "", unit, unit[0] != '\0' ? "]" : "",
                 table[i].names != NULL ? ": " : "", table[i].names != NULL ? table[i].names : "");
        variables[i] = (char *)(uintptr_t)table[i].def;
        variable_index[i] = mca_base_component_var_register(
            component, table[i].name, help, MCA_BASE_VAR_TYPE_STRING, NULL, 0, 0, OPAL_INFO_LVL_4,
            MCA_BASE_VAR_SCOPE_READONLY, &variables[i]);
    }
    /* Low: `pml = grail` must be said, and then there is no other to compare with. */
    variable_priority = 5;
    mca_base_component_var_register(component, "priority", "Priority of pml/grail",
                                    MCA_BASE_VAR_TYPE_INT, NULL, 0, 0, OPAL_INFO_LVL_9,
                                    MCA_BASE_VAR_SCOPE_READONLY, &variable_priority);
    return OMPI_SUCCESS;
}

/* What was set for MCA (command line, environment, files) wins over GRAIL_* variables. */
static grail_status_t variables_apply(void)
{
    size_t count;
    const grail_option_t *table = grail_options_table(&count);
    grail_status_t result = GRAIL_OK;

    for (size_t i = 0; i < count; i++) {
        const mca_base_var_t *variable;
        char source[80];
        grail_status_t status;

        if (variable_index[i] < 0 ||
            mca_base_var_get(variable_index[i], &variable) != OPAL_SUCCESS ||
            variable->mbv_source == MCA_BASE_VAR_SOURCE_DEFAULT || variables[i] == NULL)
            continue;
        snprintf(source, sizeof(source), "MCA variable pml_grail_%s", table[i].name);
        status = grail_option_set(table[i].name, variables[i], source);
        if (status != GRAIL_OK)
            result = status;
    }
    return result;
}

bool grail_pml_version_fits(const char *running)
{
    if (strncmp(running, GRAIL_OMPI_SERIES, strlen(GRAIL_OMPI_SERIES)) == 0)
        return true;
    grail_error("this pml/grail was built for Open MPI %s and cannot run in %.*s: rebuild Grail "
                "with the mpicc of this Open MPI", GRAIL_OMPI_VERSION,
                (int)strcspn(running, ",\n"), running);
    return false;
}

static int component_register(void)
{
    mca_base_component_t *own = &mca_pml_grail_component.pmlm_version;
    char running[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;

    /* First of all: in another series, structures that follow have another shape. */
    if (MPI_Get_library_version(running, &length) != MPI_SUCCESS ||
        !grail_pml_version_fits(running))
        return OMPI_ERR_NOT_SUPPORTED;
    sscanf(GRAIL_VERSION, "%d.%d.%d", &own->mca_component_major_version,
           &own->mca_component_minor_version, &own->mca_component_release_version);
    grail_hooks_register();
    return variables_register();
}

static int component_close(void)
{
    /* MCA has its own copies of values that were set; the defaults are the table's. */
    free(variable_index);
    variable_index = NULL;
    return OMPI_SUCCESS;
}

/* ---- start and end ---- */

static void net_error(void *arg, void *peer, grail_status_t status, const char *reason)
{
    (void)arg;
    grail_peer_fail(peer, status, reason);
}

static int lock_init(void)
{
    pthread_mutexattr_t attributes;
    int rc;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    rc = pthread_mutex_init(&grail_pml.lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return rc;
}

static mca_pml_base_module_t *component_init(int *priority, bool progress_threads,
                                             bool mpi_threads)
{
    grail_net_params_t params = {
        .handlers = {
            [GRAIL_MSG_MATCH] = grail_match_handler,
            [GRAIL_MSG_CONTROL] = grail_control_handler,
            [GRAIL_MSG_CHUNK] = grail_chunk_handler
        },
        .short_handler = grail_brief_handler,
        .on_error = net_error,
        .threads = mpi_threads,
        .processes = (unsigned)ompi_proc_world_size(),
        .processes_on_node = opal_process_info.num_local_peers + 1,
        .first_on_node = opal_process_info.my_local_rank == 0
    };

    (void)progress_threads;
    grail_log_identify((int)OPAL_PROC_MY_NAME.vpid);
    if (grail_runtime_init() != GRAIL_OK || variables_apply() != GRAIL_OK)
        return NULL;
    grail_runtime_apply_options();
    grail_pml.threads = mpi_threads;
    TAILQ_INIT(&grail_pml.comm_list);
    TAILQ_INIT(&grail_pml.orphans);
    TAILQ_INIT(&grail_pml.peers);
    TAILQ_INIT(&grail_pml.sends);
    TAILQ_INIT(&grail_pml.moving);
    TAILQ_INIT(&grail_pml.probes);
    if (lock_init() != 0)
        goto fini_runtime;
    grail_hooks_open();
    if (grail_net_open(&params, &grail_pml.net) != GRAIL_OK)
        goto close_hooks;
    if (grail_peer_publish() != GRAIL_OK)
        goto close_net;
    *priority = variable_priority;
    return &grail_pml.super;

close_net:
    grail_net_close(grail_pml.net);
    grail_pml.net = NULL;
close_hooks:
    grail_hooks_close();
    pthread_mutex_destroy(&grail_pml.lock);
fini_runtime:
    grail_runtime_fini();
    return NULL;
}

static int component_finalize(void)
{
    grail_msg_t *msg;

    if (grail_pml.net == NULL)
        return OMPI_SUCCESS;
    grail_hooks_remove();
    if (grail_pml.enabled)
        opal_progress_unregister(grail_pml_progress);
    grail_device_leave();
    while ((msg = TAILQ_FIRST(&grail_pml.orphans)) != NULL) {
        TAILQ_REMOVE(&grail_pml.orphans, msg, by_source);
        grail_msg_free(msg);
    }
    grail_match_fini();
    if (grail_pml.enabled)
        grail_types_fini();
    grail_net_close(grail_pml.net);
    grail_pml.net = NULL;
    grail_device_fini();
    grail_peer_fini();
    if (grail_pml.enabled)
        grail_requests_fini();
    free(grail_pml.comms);
    grail_pml.comms = NULL;
    grail_pml.comms_size = 0;
    grail_hooks_close();
    pthread_mutex_destroy(&grail_pml.lock);
    grail_runtime_fini();
    grail_pml.enabled = false;
    return OMPI_SUCCESS;
}
