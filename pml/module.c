/* SPDX-License-Identifier: BSD-3-Clause */
/* The PML's module: processes, progress, start report, end of the job. */
#include "pml/hooks.h"
#include "pml/pml_grail.h"

#include <string.h>

#include "pml/comm.h"
#include "pml/datatype.h"
#include "pml/device.h"
#include "pml/watch.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/options.h"
#include "runtime/stats.h"

/* Calls of progress between two looks at the clock. */
enum { WATCH_TICKS = 4096 };

grail_pml_t grail_pml = {
    .super = {
        .pml_add_procs = grail_pml_add_procs,
        .pml_del_procs = grail_pml_del_procs,
        .pml_enable = grail_pml_enable,
        .pml_progress = NULL,       /* registered by enable */
        .pml_add_comm = grail_pml_add_comm,
        .pml_del_comm = grail_pml_del_comm,
        .pml_irecv_init = grail_pml_irecv_init,
        .pml_irecv = grail_pml_irecv,
        .pml_recv = grail_pml_recv,
        .pml_isend_init = grail_pml_isend_init,
        .pml_isend = grail_pml_isend,
        .pml_send = grail_pml_send,
        .pml_iprobe = grail_pml_iprobe,
        .pml_probe = grail_pml_probe,
        .pml_start = grail_pml_start,
        .pml_improbe = grail_pml_improbe,
        .pml_mprobe = grail_pml_mprobe,
        .pml_imrecv = grail_pml_imrecv,
        .pml_mrecv = grail_pml_mrecv,
        .pml_dump = grail_pml_dump,
        .pml_ft_event = NULL,
        .pml_max_contextid = GRAIL_OMPI_MAX_CONTEXT,
        .pml_max_tag = GRAIL_OMPI_MAX_TAG,
        .pml_flags = 0
    },
    .type_keyval = MPI_KEYVAL_INVALID
};

int grail_pml_error(grail_status_t status)
{
    switch (status) {
    case GRAIL_OK:
    case GRAIL_IN_PROGRESS:
    case GRAIL_ERR_CANCELLED:
        return MPI_SUCCESS;
    case GRAIL_ERR_INVALID:
        return MPI_ERR_ARG;
    case GRAIL_ERR_TRUNCATED:
        return MPI_ERR_TRUNCATE;
    case GRAIL_ERR_NO_MEMORY:
    case GRAIL_ERR_NO_DEVICE_MEMORY:
        return MPI_ERR_NO_MEM;
    case GRAIL_ERR_UNSUPPORTED:
        return MPI_ERR_UNSUPPORTED_OPERATION;
    case GRAIL_ERR_STALE:
        return MPI_ERR_BUFFER;
    default:
        return MPI_ERR_OTHER;
    }
}

unsigned grail_pml_progress_locked(void)
{
    unsigned events;

    /* Handlers may call into MPI, which progresses again: the net must not be entered twice. */
    if (GRAIL_UNLIKELY(grail_pml.in_progress))
        return 0;
    grail_pml.in_progress = true;
    events = grail_net_progress(grail_pml.net);
    if (GRAIL_UNLIKELY(grail_device_active != 0))
        events += grail_device_progress();
    if (GRAIL_UNLIKELY(++grail_pml.ticks >= WATCH_TICKS)) {
        grail_pml.ticks = 0;
        grail_watch();
    }
    grail_pml.in_progress = false;
    return events;
}

int grail_pml_progress(void)
{
    unsigned events;

    if (!grail_pml_trylock())
        return 0;
    events = grail_pml_progress_locked();
    grail_pml_unlock();
    return (int)events;
}

int grail_pml_enable(bool enable)
{
    int rc;

    if (!enable || grail_pml.enabled)
        return OMPI_SUCCESS;
    rc = grail_requests_init();
    if (rc == OMPI_SUCCESS)
        rc = grail_types_init();
    if (rc != OMPI_SUCCESS)
        return rc;
    mca_pml_base_bsend_init(grail_pml.threads);
    opal_progress_register(grail_pml_progress);
    grail_pml.enabled = true;
    grail_hooks_install();
    return OMPI_SUCCESS;
}

static void report_start(void)
{
    char device[256] = "";

    if (ompi_proc_local()->super.proc_name.vpid != 0)
        return;
    grail_device_describe(device, sizeof(device));
    grail_log_write(GRAIL_LOG_INFO, "Grail %s for Open MPI %s, %d processes, %s, %s", GRAIL_VERSION,
                    GRAIL_OMPI_VERSION, ompi_proc_world_size(), grail_net_provider(grail_pml.net),
                    device);
}

int grail_pml_add_procs(ompi_proc_t **procs, size_t count)
{
    static bool first = true;
    int rc = mca_pml_base_pml_check_selected("grail", procs, count);

    if (rc != OMPI_SUCCESS) {
        grail_error("not all processes use pml/grail: set --mca pml grail for every part of the "
                    "job");
        return rc;
    }
    if (first) {
        first = false;
        grail_log_identify((int)ompi_proc_local()->super.proc_name.vpid);
        /* "start" or "all" */
        if (grail_options.report == 1 || grail_options.report == 3)
            report_start();
    }
    return OMPI_SUCCESS;
}

/* ---- end ---- */

static void fence_done(int status, void *arg)
{
    (void)status;
    __atomic_store_n((bool *)arg, true, __ATOMIC_RELEASE);
}

/*
 * All processes have flushed what they sent before any of them closes the net. Bounded, because a
 * process that died may never come: the runtime ends the job then, but need not be quick.
 */
static void fence(void)
{
    /* static: the runtime may answer after we have given up */
    static bool done;
    uint64_t end;

    done = false;
    if (ompi_proc_world_size() == 1 || grail_ompi_fence_start(fence_done, &done) != OMPI_SUCCESS)
        return;
    end = grail_clock_ns() + (uint64_t)((2 * grail_options.peer_timeout + 1) * 1e9);
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
        for (int i = 0; i < 100; i++)
            grail_pml_progress();
        opal_progress();
        if (grail_clock_ns() > end) {
            grail_warn("not all processes of the job came to its end within %g s",
                       2 * grail_options.peer_timeout);
            return;
        }
    }
}

int grail_pml_del_procs(ompi_proc_t **procs, size_t count)
{
    (void)procs;
    (void)count;
    /* 4.1 calls this once, in MPI_Finalize, after a barrier of the whole job. */
    if (grail_pml.finalizing)
        return OMPI_SUCCESS;
    grail_pml_lock();
    grail_pml.finalizing = true;
    grail_peer_disconnect_all();
    grail_pml_unlock();
    fence();
    if (grail_options.report >= 2)
        grail_stats_print(stderr, (int)ompi_proc_local()->super.proc_name.vpid, 1);
    return OMPI_SUCCESS;
}
