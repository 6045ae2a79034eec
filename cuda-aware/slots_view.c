/* SPDX-License-Identifier: BSD-3-Clause */
/* Slots of peers, as this process sees them. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "cuda-aware/gpu_internal.h"
#include "cuda-aware/staging_internal.h"
#include "runtime/log.h"
#include "runtime/options.h"

enum { IDLE_VIEWS_MAX = 64 };

struct grail_slots_view {
    struct grail_slots_view *next;      /* attached last first */
    grail_slots_ticket_t ticket;
    int users;
    bool doomed;                        /* close at the last detach */
    const char *base;
    grail_shm_t shm;
    grail_gpu_t *gpu;                   /* SHM: who pinned it, NULL: nobody; RING: who maps it */
    grail_ipc_map_t *map;               /* RING: while there are users */
};

static grail_slots_view_t *views;

static bool same_slots(const grail_slots_ticket_t *a, const grail_slots_ticket_t *b)
{
    if (a->where != b->where || a->count != b->count || a->slot_size != b->slot_size)
        return false;
    if (a->where == GRAIL_SLOTS_SHM)
        return a->u.shm.inode == b->u.shm.inode && a->u.shm.pid == b->u.shm.pid &&
               memcmp(a->u.shm.cookie, b->u.shm.cookie, sizeof(a->u.shm.cookie)) == 0;
    return a->u.ring.owner == b->u.ring.owner && a->u.ring.base == b->u.ring.base &&
           a->u.ring.buffer_id == b->u.ring.buffer_id;
}

static void unlink_view(grail_slots_view_t *view)
{
    grail_slots_view_t **link = &views;

    while (*link != view)
        link = &(*link)->next;
    *link = view->next;
}

static void close_view(grail_slots_view_t *view)
{
    unlink_view(view);
    if (view->map != NULL)
        grail_ipc_release(view->map);
    if (view->ticket.where == GRAIL_SLOTS_SHM) {
        if (view->gpu != NULL) {
            grail_gpu_unpin(view->gpu, view->shm.base);
            grail_staging_pinned -= view->shm.size;
        }
        grail_shm_detach(&view->shm);
    }
    free(view);
}

/* Before a new view: idle ones of processes that ended, then the longest unused beyond the limit.
 * A dead owner's segment would keep its memory (and its pinning) for as long as we map it. */
static void close_idle(void)
{
    int idle = 0;

    for (grail_slots_view_t *view = views, *next; view != NULL; view = next) {
        next = view->next;
        if (view->users > 0)
            continue;
        if (++idle > IDLE_VIEWS_MAX ||
            (view->ticket.where == GRAIL_SLOTS_SHM && kill(view->ticket.u.shm.pid, 0) != 0 &&
             errno == ESRCH))
            close_view(view);
    }
}

static bool sane(const grail_slots_ticket_t *ticket)
{
    uint64_t size;

    if (ticket->where != GRAIL_SLOTS_SHM && ticket->where != GRAIL_SLOTS_RING)
        return false;
    size = ticket->where == GRAIL_SLOTS_SHM ? ticket->u.shm.size : ticket->u.ring.size;
    return ticket->count > 0 && ticket->slot_size > 0 &&
           ticket->slot_size <= size / ticket->count;
}

static grail_status_t pin_view(grail_slots_view_t *view, grail_gpu_t *gpu, const char **why)
{
    grail_status_t status;

    if (gpu == NULL || view->gpu != NULL)
        return GRAIL_OK;
    status = grail_staging_pin(gpu, view->shm.base, view->shm.size, why);
    if (status != GRAIL_OK)
        return GRAIL_ERR_UNSUPPORTED;
    view->gpu = gpu;
    return GRAIL_OK;
}

static grail_status_t use_view(grail_slots_view_t *view, grail_gpu_t *gpu, const char **why)
{
    grail_status_t status;

    if (view->ticket.where == GRAIL_SLOTS_SHM) {
        status = pin_view(view, gpu, why);
        if (status != GRAIL_OK)
            return status;
        view->base = view->shm.base;
    } else if (view->map == NULL) {
        status = grail_ipc_map(gpu, &view->ticket.u.ring, &view->map, why);
        if (status != GRAIL_OK)
            return status;
        view->base = view->map->address;
    }
    view->users++;
    return GRAIL_OK;
}

static grail_status_t new_view(const grail_slots_ticket_t *ticket, grail_gpu_t *gpu,
                               grail_slots_view_t **result, const char **why)
{
    grail_slots_view_t *view;
    grail_status_t status;

    close_idle();
    view = calloc(1, sizeof(*view));
    if (view == NULL) {
        grail_error("out of memory for the view of a peer's staging area");
        *why = "out of host memory";
        return GRAIL_ERR_NO_MEMORY;
    }
    view->ticket = *ticket;
    if (ticket->where == GRAIL_SLOTS_SHM) {
        status = grail_shm_attach(&ticket->u.shm, &view->shm, why);
        if (status != GRAIL_OK) {
            free(view);
            return status;
        }
    } else {
        view->gpu = gpu;
    }
    view->next = views;
    views = view;
    *result = view;
    return GRAIL_OK;
}

grail_status_t grail_slots_attach(const grail_slots_ticket_t *ticket, grail_gpu_t *gpu,
                                  grail_slots_view_t **result, const char **why)
{
    grail_slots_view_t *view;
    grail_status_t status;

    if (!sane(ticket)) {
        grail_error("a peer described its staging area wrongly (%u slots of %llu bytes)",
                    ticket->count, (unsigned long long)ticket->slot_size);
        *why = "the peer's staging area is not one";
        return GRAIL_ERR_INVALID;
    }
    if (ticket->where == GRAIL_SLOTS_RING && gpu == NULL) {
        *why = "a device staging ring can be read by a GPU only";
        return GRAIL_ERR_UNSUPPORTED;
    }
    for (view = views; view != NULL; view = view->next) {
        if (!view->doomed && same_slots(&view->ticket, ticket) &&
            (ticket->where == GRAIL_SLOTS_SHM || view->gpu == gpu))
            break;
    }
    if (view == NULL) {
        status = new_view(ticket, gpu, &view, why);
        if (status != GRAIL_OK)
            return status;
    } else if (view != views) {
        unlink_view(view);
        view->next = views;
        views = view;
    }
    status = use_view(view, gpu, why);
    if (status != GRAIL_OK) {
        if (view->users == 0)
            close_view(view);
        return status;
    }
    *result = view;
    return GRAIL_OK;
}

const void *grail_slots_at(const grail_slots_view_t *view, uint32_t index)
{
    if (index >= view->ticket.count) {
        grail_error("a peer named slot %u of its %u", index, view->ticket.count);
        return NULL;
    }
    return view->base + (size_t)index * view->ticket.slot_size;
}

void grail_slots_detach(grail_slots_view_t *view)
{
    if (--view->users > 0)
        return;
    if (view->doomed) {
        close_view(view);
        return;
    }
    if (view->map != NULL) {
        grail_ipc_release(view->map);   /* the cache of mappings keeps it open as long as it can */
        view->map = NULL;
    }
}

static void retire_view(grail_slots_view_t *view)
{
    if (view->users == 0)
        close_view(view);
    else
        view->doomed = true;
}

void grail_slots_close_peer(const grail_slots_ticket_t *ticket)
{
    for (grail_slots_view_t *view = views, *next; view != NULL; view = next) {
        next = view->next;
        if (same_slots(&view->ticket, ticket))
            retire_view(view);
    }
}

void grail_slots_close_rings(uint64_t owner)
{
    for (grail_slots_view_t *view = views, *next; view != NULL; view = next) {
        next = view->next;
        if (view->ticket.where == GRAIL_SLOTS_RING && view->ticket.u.ring.owner == owner)
            retire_view(view);
    }
}

void grail_slots_views_fini(void)
{
    while (views != NULL)
        close_view(views);
}
