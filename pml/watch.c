/* SPDX-License-Identifier: BSD-3-Clause */
/* The watcher: connects to silent sources so that their end is noticed, and reports long waits. */
#include "pml/watch.h"

#include <stdint.h>
#include <stdio.h>

#include "pml/comm.h"
#include "pml/probe.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/options.h"

enum { INTERVAL_MS = 500 };

static uint32_t now_ms;

static const char *comm_name(const ompi_communicator_t *comm)
{
    return comm->c_name[0] != '\0' ? comm->c_name : "a communicator";
}

/* True when it is time to report; doubles the interval. */
static bool due(uint32_t *watched, uint32_t *next)
{
    uint32_t period = (uint32_t)grail_options.watchdog * 1000;

    if (*watched == 0) {
        *watched = now_ms;
        *next = period;
    }
    if (now_ms - *watched < *next)
        return false;
    *next *= 2;
    return true;
}

static void report(const char *what, const ompi_communicator_t *comm, const char *whom, int tag,
                   size_t bytes, uint32_t since)
{
    char tag_text[24];

    if (tag == MPI_ANY_TAG)
        snprintf(tag_text, sizeof(tag_text), "any");
    else
        snprintf(tag_text, sizeof(tag_text), "%d", tag);
    grail_log_write(GRAIL_LOG_WARN, "watchdog: waiting for %u s: %s %s (%s, tag %s, %zu bytes)",
                    (now_ms - since) / 1000, what, whom, comm_name(comm), tag_text, bytes);
}

static void watch_recv(grail_recv_req_t *recv, const char *what)
{
    grail_req_t *req = &recv->req;

    if (due(&req->watched, &req->watch_next))
        report(what, req->comm, req->peer != NULL ? grail_peer_string(req->peer) : "any source",
               req->tag, req->bytes, req->watched);
}

static void watchdog(void)
{
    grail_comm_t *state;
    grail_send_req_t *send;
    grail_recv_req_t *recv;
    grail_probe_wait_t *probe;

    TAILQ_FOREACH(state, &grail_pml.comm_list, list) {
        TAILQ_FOREACH(recv, &state->wild, posted)
            watch_recv(recv, "receive from");
        for (int rank = 0; rank < state->size; rank++) {
            if (state->ranks[rank] == NULL)
                continue;
            TAILQ_FOREACH(recv, &state->ranks[rank]->posted, posted)
                watch_recv(recv, "receive from");
        }
    }
    TAILQ_FOREACH(recv, &grail_pml.moving, posted)
        watch_recv(recv, "data of a matched receive from");
    TAILQ_FOREACH(send, &grail_pml.sends, list) {
        grail_req_t *req = &send->req;

        if (due(&req->watched, &req->watch_next))
            report(send->sent ? "match of a synchronous send to" : "send to", req->comm,
                   grail_peer_string(req->peer), req->tag, req->bytes, req->watched);
    }
    TAILQ_FOREACH(probe, &grail_pml.probes, list) {
        grail_comm_rank_t *source = NULL;

        if (!due(&probe->watched, &probe->watch_next))
            continue;
        if (probe->rank != MPI_ANY_SOURCE)
            source = grail_comm_rank(grail_comm_state(probe->comm), probe->rank);
        report("probe of", probe->comm,
               source != NULL ? grail_peer_string(source->peer) : "any source", probe->tag, 0,
               probe->watched);
    }
}

void grail_watch(void)
{
    static uint32_t last_ms;

    grail_peer_end_broken();
    now_ms = (uint32_t)grail_clock_coarse_ms();
    if (now_ms == 0)
        now_ms = 1;
    if (now_ms - last_ms < INTERVAL_MS)
        return;
    last_ms = now_ms;
    if (grail_pml.posted != 0 || !TAILQ_EMPTY(&grail_pml.probes))
        grail_peer_watch_sources();
    if (grail_options.watchdog > 0)
        watchdog();
}
