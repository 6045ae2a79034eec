/* SPDX-License-Identifier: BSD-3-Clause */
/* The component's state and its one lock. */
#ifndef GRAIL_PML_PML_GRAIL_H
#define GRAIL_PML_PML_GRAIL_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "pml/ompi_compat.h"
#include "runtime/handle.h"
#include "runtime/net/net.h"

struct grail_comm;
struct grail_msg;
struct grail_peer;
struct grail_recv_req;
struct grail_send_req;
struct grail_probe_wait;

TAILQ_HEAD(grail_msg_queue, grail_msg);
TAILQ_HEAD(grail_recv_queue, grail_recv_req);
TAILQ_HEAD(grail_send_queue, grail_send_req);
TAILQ_HEAD(grail_peer_list, grail_peer);
TAILQ_HEAD(grail_probe_queue, grail_probe_wait);
TAILQ_HEAD(grail_comm_list, grail_comm);

typedef struct grail_pml {
    mca_pml_base_module_t super;
    grail_net_t *net;
    bool threads;                   /* MPI_THREAD_MULTIPLE */
    bool enabled;                   /* this PML was selected */
    bool finalizing;                /* del_procs has begun: broken connections are no news */
    bool in_progress;               /* inside grail_net_progress() */
    /*
     * One recursive lock guards matching, requests, the net and the device protocols: a message
     * crosses all four, and two locks would be taken in both orders (handlers run inside the net).
     * Not taken at all unless `threads`.
     */
    pthread_mutex_t lock;
    grail_handle_table_t handles;   /* requests that peers can name */
    opal_free_list_t send_requests;
    opal_free_list_t recv_requests;
    struct grail_send_req *spare_send;      /* one at hand; NULL while it is in use */
    struct grail_recv_req *spare_recvs;     /* a chain of free ones in front of recv_requests */

    struct grail_comm **comms;      /* by communicator id */
    uint32_t comms_size;
    struct grail_comm_list comm_list;
    struct grail_msg_queue orphans; /* messages for communicators that do not exist here yet */

    struct grail_peer_list peers;
    struct grail_peer *self;

    /* What is under way, for the watcher and for peers that fail */
    struct grail_send_queue sends;  /* handed to the net or a device protocol, or not matched */
    struct grail_recv_queue moving; /* matched, data not complete */
    struct grail_probe_queue probes; /* blocked in MPI_Probe or MPI_Mprobe */
    unsigned posted;                /* receives in posted queues */
    unsigned ticks;                 /* progress calls since the watcher last looked at the clock */

    int type_keyval;                /* attribute that releases what we keep of a datatype */
    bool memory_hooks;
} grail_pml_t;

extern grail_pml_t grail_pml;
extern grail_ompi_pml_component_t mca_pml_grail_component;

static inline void grail_pml_lock(void)
{
    if (GRAIL_UNLIKELY(grail_pml.threads))
        pthread_mutex_lock(&grail_pml.lock);
}

static inline bool grail_pml_trylock(void)
{
    return GRAIL_LIKELY(!grail_pml.threads) || pthread_mutex_trylock(&grail_pml.lock) == 0;
}

static inline void grail_pml_unlock(void)
{
    if (GRAIL_UNLIKELY(grail_pml.threads))
        pthread_mutex_unlock(&grail_pml.lock);
}

/* Advances net and device protocols; returns the number of events. Registered with Open MPI; safe
 * to call from anywhere, does nothing inside itself. */
int grail_pml_progress(void);
unsigned grail_pml_progress_locked(void);

/* A status of libgrail as an MPI error class. */
int grail_pml_error(grail_status_t status);

/* The module's functions, one file for each group */
int grail_pml_add_procs(ompi_proc_t **procs, size_t count);
int grail_pml_del_procs(ompi_proc_t **procs, size_t count);
int grail_pml_enable(bool enable);
int grail_pml_add_comm(ompi_communicator_t *comm);
int grail_pml_del_comm(ompi_communicator_t *comm);
int grail_pml_dump(ompi_communicator_t *comm, int verbose);

int grail_pml_isend_init(const void *buffer, size_t count, ompi_datatype_t *type, int rank,
                         int tag, mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
                         ompi_request_t **request);
int grail_pml_isend(const void *buffer, size_t count, ompi_datatype_t *type, int rank, int tag,
                    mca_pml_base_send_mode_t mode, ompi_communicator_t *comm,
                    ompi_request_t **request);
int grail_pml_send(const void *buffer, size_t count, ompi_datatype_t *type, int rank, int tag,
                   mca_pml_base_send_mode_t mode, ompi_communicator_t *comm);

int grail_pml_irecv_init(void *buffer, size_t count, ompi_datatype_t *type, int rank, int tag,
                         ompi_communicator_t *comm, ompi_request_t **request);
int grail_pml_irecv(void *buffer, size_t count, ompi_datatype_t *type, int rank, int tag,
                    ompi_communicator_t *comm, ompi_request_t **request);
int grail_pml_recv(void *buffer, size_t count, ompi_datatype_t *type, int rank, int tag,
                   ompi_communicator_t *comm, ompi_status_public_t *status);
int grail_pml_start(size_t count, ompi_request_t **requests);

int grail_pml_iprobe(int rank, int tag, ompi_communicator_t *comm, int *matched,
                     ompi_status_public_t *status);
int grail_pml_probe(int rank, int tag, ompi_communicator_t *comm, ompi_status_public_t *status);
int grail_pml_improbe(int rank, int tag, ompi_communicator_t *comm, int *matched,
                      ompi_message_t **message, ompi_status_public_t *status);
int grail_pml_mprobe(int rank, int tag, ompi_communicator_t *comm, ompi_message_t **message,
                     ompi_status_public_t *status);
int grail_pml_imrecv(void *buffer, size_t count, ompi_datatype_t *type, ompi_message_t **message,
                     ompi_request_t **request);
int grail_pml_mrecv(void *buffer, size_t count, ompi_datatype_t *type, ompi_message_t **message,
                    ompi_status_public_t *status);

/* hooks.c: memory that leaves the process's address space */
void grail_hooks_open(void);
void grail_hooks_close(void);

/* A version string of a running Open MPI ("Open MPI v4.1.4, package: ...") against the one built
 * for. Logs one line and returns false when they do not fit. */
bool grail_pml_version_fits(const char *running);

#endif
