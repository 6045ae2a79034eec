/* SPDX-License-Identifier: BSD-3-Clause */
/* Everything that depends on the series of Open MPI: headers, types, names. Now: 4.1. */
#ifndef GRAIL_PML_OMPI_COMPAT_H
#define GRAIL_PML_OMPI_COMPAT_H

#include "grail_config.h"

#include "ompi_config.h"

#include "ompi/attribute/attribute.h"
#include "ompi/communicator/communicator.h"
#include "ompi/constants.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/datatype/ompi_datatype_internal.h"
#include "ompi/mca/pml/base/base.h"
#include "ompi/mca/pml/base/pml_base_bsend.h"
#include "ompi/mca/pml/pml.h"
#include "ompi/message/message.h"
#include "ompi/proc/proc.h"
#include "ompi/request/request.h"
#include "ompi/runtime/mpiruntime.h"
#include "ompi/runtime/params.h"
#include "ompi/version.h"
#include "opal/class/opal_free_list.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/mca/base/mca_base_var.h"
#include "opal/mca/memory/base/base.h"
#include "opal/mca/pmix/pmix.h"
#include "opal/memoryhooks/memory.h"
#include "opal/memoryhooks/memory_internal.h"
#include "opal/runtime/opal_progress.h"
#include "opal/util/proc.h"

#if OMPI_MAJOR_VERSION != 4 || OMPI_MINOR_VERSION != 1
#error "this version of Grail is for Open MPI 4.1"
#endif

/* The component's structure and its interface version */
#define GRAIL_OMPI_PML_VERSION MCA_PML_BASE_VERSION_2_0_0
typedef mca_pml_base_component_2_0_0_t grail_ompi_pml_component_t;

/* The beginning of MPI_Get_library_version() that all releases of the series share */
#define GRAIL_OMPI_SERIES "Open MPI v4.1."

/* Largest communicator id that the wire and our table of communicators carry */
enum { GRAIL_OMPI_MAX_CONTEXT = 0x00ffffff, GRAIL_OMPI_MAX_TAG = 0x7fffffff };

static inline uint32_t grail_ompi_cid(const ompi_communicator_t *comm)
{
    return comm->c_contextid;
}

/* Number of processes that a rank argument can name: the remote group's. */
static inline int grail_ompi_peer_count(const ompi_communicator_t *comm)
{
    return comm->c_remote_group->grp_proc_count;
}

/* Data of our own published for every process, and read by full process name. The copy that
 * receive returns is the caller's (free). */
static inline int grail_ompi_modex_send(const mca_base_component_t *component, void *data,
                                        size_t length)
{
    int rc;
    OPAL_MODEX_SEND(rc, OPAL_PMIX_GLOBAL, component, data, length);
    return rc;
}

static inline int grail_ompi_modex_recv(const mca_base_component_t *component,
                                        const opal_process_name_t *name, void **data,
                                        size_t *length)
{
    int rc;
    OPAL_MODEX_RECV(rc, component, name, data, length);
    return rc;
}

/* Starts a barrier of the job among the processes' daemons; `done` runs in another thread. NULL
 * when the runtime has none. */
typedef void (*grail_ompi_fence_fn)(int status, void *arg);

static inline int grail_ompi_fence_start(grail_ompi_fence_fn done, void *arg)
{
    if (opal_pmix.fence_nb == NULL)
        return OMPI_ERR_NOT_SUPPORTED;
    return opal_pmix.fence_nb(NULL, 0, done, arg);
}

/* Room in the buffer that MPI_Buffer_attach gave. NULL: none attached, or it is full. */
static inline void *grail_ompi_bsend_alloc(ompi_communicator_t *comm, size_t length)
{
    (void)comm;
    return mca_pml_base_bsend_request_alloc_buf(length);
}

static inline void grail_ompi_bsend_free(ompi_communicator_t *comm, void *buffer)
{
    (void)comm;
    mca_pml_base_bsend_request_free(buffer);
}

/* A word of the datatype that Open MPI reserves for the selected PML. */
static inline void *grail_ompi_type_data(const ompi_datatype_t *type)
{
    return (void *)(uintptr_t)type->pml_data;
}

static inline void grail_ompi_type_set_data(ompi_datatype_t *type, void *data)
{
    type->pml_data = (uint64_t)(uintptr_t)data;
}

/* Are there basic elements of more than 16 bytes, or something that looks like them? */
static inline bool grail_ompi_type_has_wide_elements(const opal_datatype_t *type)
{
    return (type->bdt_used & (UINT32_C(1) << OPAL_DATATYPE_LONG_DOUBLE_COMPLEX)) != 0;
}

/* The convertor of this process's own representation: all processes of a job share it. */
static inline const opal_convertor_t *grail_ompi_convertor(void)
{
    return ompi_proc_local_proc->super.proc_convertor;
}

static inline bool grail_ompi_local_node(const ompi_proc_t *proc)
{
    return OPAL_PROC_ON_LOCAL_NODE(proc->super.proc_flags);
}

static inline bool grail_ompi_same_name(opal_process_name_t a, opal_process_name_t b)
{
    return a.jobid == b.jobid && a.vpid == b.vpid;
}

#endif
