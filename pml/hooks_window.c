/* SPDX-License-Identifier: BSD-3-Clause */
/* Refuses one-sided communication on device memory with an error instead of a crash. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "pml/ompi_compat.h"     /* before any other header of Open MPI */

#include "ompi/mca/coll/coll.h"
#include "ompi/mca/osc/base/base.h"
#include "ompi/mca/osc/osc.h"
#include "ompi/win/win.h"
#include "pml/hooks.h"
#include "runtime/log.h"

/*
 * A component of our own stands first among Open MPI's one-sided components. It looks at the memory
 * of a new window, on all ranks together (creation is collective: a rank that alone went back with
 * an error would leave the others waiting), then hands the window to the component that would have
 * got it. The functions of the window's module that take a buffer are replaced by ours, which look
 * at the buffer and call on. Modules are copied for each window, so only windows made meanwhile
 * are touched.
 */

enum { MODULES_MAX = 16 };

/* Modules as they were, each once; found again by a function that we do not replace. */
static ompi_osc_base_module_t modules[MODULES_MAX];
static int module_count;

static const ompi_osc_base_module_t *original(const ompi_win_t *win)
{
    const ompi_osc_base_module_t *own = win->w_osc_module;
    const ompi_osc_base_module_t *found = &modules[0];

    for (int i = 0; i < module_count; i++) {
        if (modules[i].osc_fence == own->osc_fence && modules[i].osc_free == own->osc_free)
            found = &modules[i];
    }
    return found;
}

static int refuse(const char *call, const char *what)
{
    if (grail_log_first_time(call))
        grail_error("%s: the %s is device memory, and one-sided communication on device memory is "
                    "not supported; copy it to host memory first, or use send and receive", call,
                    what);
    return MPI_ERR_UNSUPPORTED_OPERATION;
}

/* For a window's memory, or a buffer of basic elements: no displacement to look at. */
static bool is_device(const void *address)
{
    return address != NULL && grail_mem_is_device(address);
}

/* ---- functions of windows ---- */

#define WRAP(member) original(win)->member

static int win_put(const void *origin, int count, ompi_datatype_t *type, int target,
                   ptrdiff_t at, int target_count, ompi_datatype_t *target_type, ompi_win_t *win)
{
    if (GRAIL_UNLIKELY(grail_hooks_on_device(origin, (size_t)count, type)))
        return refuse("MPI_Put", "origin buffer");
    return WRAP(osc_put)(origin, count, type, target, at, target_count, target_type, win);
}

static int win_get(void *origin, int count, ompi_datatype_t *type, int target, ptrdiff_t at,
                   int target_count, ompi_datatype_t *target_type, ompi_win_t *win)
{
    if (GRAIL_UNLIKELY(grail_hooks_on_device(origin, (size_t)count, type)))
        return refuse("MPI_Get", "origin buffer");
    return WRAP(osc_get)(origin, count, type, target, at, target_count, target_type, win);
}

static int win_accumulate(const void *origin, int count, ompi_datatype_t *type, int target,
                          ptrdiff_t at, int target_count, ompi_datatype_t *target_type,
                          struct ompi_op_t *op, ompi_win_t *win)
{
    if (GRAIL_UNLIKELY(grail_hooks_on_device(origin, (size_t)count, type)))
        return refuse("MPI_Accumulate", "origin buffer");
    return WRAP(osc_accumulate)(origin, count, type, target, at, target_count, target_type, op,
                                win);
}

static int win_compare_and_swap(const void *origin, const void *compare, void *result,
                                ompi_datatype_t *type, int target, ptrdiff_t at, ompi_win_t *win)
{
    if (GRAIL_UNLIKELY(is_device(origin) || is_device(compare) || is_device(result)))
        return refuse("MPI_Compare_and_swap", "origin, compare or result buffer");
    return WRAP(osc_compare_and_swap)(origin, compare, result, type, target, at, win);
}

static int win_fetch_and_op(const void *origin, void *result, ompi_datatype_t *type, int target,
                            ptrdiff_t at, struct ompi_op_t *op, ompi_win_t *win)
{
    if (GRAIL_UNLIKELY(is_device(origin) || is_device(result)))
        return refuse("MPI_Fetch_and_op", "origin or result buffer");
    return WRAP(osc_fetch_and_op)(origin, result, type, target, at, op, win);
}

static int win_get_accumulate(const void *origin, int count, ompi_datatype_t *type, void *result,
                              int result_count, ompi_datatype_t *result_type, int target,
                              ptrdiff_t at, int target_count, ompi_datatype_t *target_type,
                              struct ompi_op_t *op, ompi_win_t *win)
{
    if (GRAIL_UNLIKELY(grail_hooks_on_device(origin, (size_t)count, type) ||
                       grail_hooks_on_device(result, (size_t)result_count, result_type)))
        return refuse("MPI_Get_accumulate", "origin or result buffer");
    return WRAP(osc_get_accumulate)(origin, count, type, result, result_count, result_type, target,
                                    at, target_count, target_type, op, win);
}

static int win_rput(const void *origin, int count, ompi_datatype_t *type, int target,
                    ptrdiff_t at, int target_count, ompi_datatype_t *target_type, ompi_win_t *win,
                    ompi_request_t **request)
{
    if (GRAIL_UNLIKELY(grail_hooks_on_device(origin, (size_t)count, type)))
        return refuse("MPI_Rput", "origin buffer");
    return WRAP(osc_rput)(origin, count, type, target, at, target_count, target_type, win,
                          request);
}

static int win_rget(void *origin, int count, ompi_datatype_t *type, int target, ptrdiff_t at,
                    int target_count, ompi_datatype_t *target_type, ompi_win_t *win,
                    ompi_request_t **request)
{
    if (GRAIL_UNLIKELY(grail_hooks_on_device(origin, (size_t)count, type)))
        return refuse("MPI_Rget", "origin buffer");
    return WRAP(osc_rget)(origin, count, type, target, at, target_count, target_type, win,
                          request);
}

static int win_raccumulate(const void *origin, int count, ompi_datatype_t *type, int target,
                           ptrdiff_t at, int target_count, ompi_datatype_t *target_type,
                           struct ompi_op_t *op, ompi_win_t *win, ompi_request_t **request)
{
    if (GRAIL_UNLIKELY(grail_hooks_on_device(origin, (size_t)count, type)))
        return refuse("MPI_Raccumulate", "origin buffer");
    return WRAP(osc_raccumulate)(origin, count, type, target, at, target_count, target_type, op,
                                 win, request);
}

static int win_rget_accumulate(const void *origin, int count, ompi_datatype_t *type, void *result,
                               int result_count, ompi_datatype_t *result_type, int target,
                               ptrdiff_t at, int target_count, ompi_datatype_t *target_type,
                               struct ompi_op_t *op, ompi_win_t *win, ompi_request_t **request)
{
    if (GRAIL_UNLIKELY(grail_hooks_on_device(origin, (size_t)count, type) ||
                       grail_hooks_on_device(result, (size_t)result_count, result_type)))
        return refuse("MPI_Rget_accumulate", "origin or result buffer");
    return WRAP(osc_rget_accumulate)(origin, count, type, result, result_count, result_type,
                                     target, at, target_count, target_type, op, win, request);
}

static int win_attach(ompi_win_t *win, void *base, size_t size)
{
    if (GRAIL_UNLIKELY(size > 0 && is_device(base)))
        return refuse("MPI_Win_attach", "memory");
    return WRAP(osc_win_attach)(win, base, size);
}

/* ---- windows ---- */

/* Remember the module as it is. False: it cannot be told from another one. */
static bool remember(const ompi_osc_base_module_t *module)
{
    for (int i = 0; i < module_count; i++) {
        if (memcmp(&modules[i], module, sizeof(*module)) == 0)
            return true;
        if (modules[i].osc_fence == module->osc_fence && modules[i].osc_free == module->osc_free)
            return false;
    }
    if (module_count == MODULES_MAX)
        return false;
    modules[module_count++] = *module;
    return true;
}

static void wrap_window(ompi_win_t *win)
{
    ompi_osc_base_module_t *module = win->w_osc_module;

    if (module == NULL || !remember(module)) {
        grail_debug("a window's operations are not checked for device memory");
        return;
    }
    module->osc_put = win_put;
    module->osc_get = win_get;
    module->osc_accumulate = win_accumulate;
    module->osc_compare_and_swap = win_compare_and_swap;
    module->osc_fetch_and_op = win_fetch_and_op;
    module->osc_get_accumulate = win_get_accumulate;
    module->osc_rput = win_rput;
    module->osc_rget = win_rget;
    module->osc_raccumulate = win_raccumulate;
    module->osc_rget_accumulate = win_rget_accumulate;
    if (module->osc_win_attach != NULL)
        module->osc_win_attach = win_attach;
}

static mca_base_component_list_item_t *list_item;

/*
 * This thread is choosing the component behind us. A component that stands before another one, as
 * osc/monitoring does, chooses again: it must not find us again.
 */
static _Thread_local bool choosing;

static int component_init(bool progress_threads, bool mpi_threads)
{
    (void)progress_threads;
    (void)mpi_threads;
    return OMPI_SUCCESS;
}

/* Open MPI empties its list when it finalizes one-sided communication, before the PML. */
static int component_finalize(void)
{
    list_item = NULL;
    return OMPI_SUCCESS;
}

static int component_query(ompi_win_t *win, void **base, size_t size, int unit,
                           ompi_communicator_t *comm, opal_info_t *info, int flavor)
{
    (void)win;
    (void)base;
    (void)size;
    (void)unit;
    (void)comm;
    (void)info;
    (void)flavor;
    return choosing ? -1 : INT_MAX;
}

static int component_select(ompi_win_t *win, void **base, size_t size, int unit,
                            ompi_communicator_t *comm, opal_info_t *info, int flavor, int *model);

static ompi_osc_base_component_t window_component = {
    .osc_version = {
        OMPI_OSC_BASE_VERSION_3_0_0,
        .mca_component_name = "grail"
    },
    .osc_data = {MCA_BASE_METADATA_PARAM_NONE},
    .osc_init = component_init,
    .osc_query = component_query,
    .osc_select = component_select,
    .osc_finalize = component_finalize
};

/* The component that Open MPI would choose without us. */
static ompi_osc_base_component_t *next_best(ompi_win_t *win, void **base, size_t size, int unit,
                                            ompi_communicator_t *comm, opal_info_t *info,
                                            int flavor)
{
    ompi_osc_base_component_t *best = NULL;
    mca_base_component_list_item_t *item;
    int best_priority = -1;

    OPAL_LIST_FOREACH(item, &ompi_osc_base_framework.framework_components,
                      mca_base_component_list_item_t)
    {
        ompi_osc_base_component_t *component =
            (ompi_osc_base_component_t *)(uintptr_t)item->cli_component;
        int priority;

        if (component == &window_component)
            continue;
        priority = component->osc_query(win, base, size, unit, comm, info, flavor);
        if (priority > best_priority) {
            best = component;
            best_priority = priority;
        }
    }
    return best;
}

static int component_select(ompi_win_t *win, void **base, size_t size, int unit,
                            ompi_communicator_t *comm, opal_info_t *info, int flavor, int *model)
{
    int mine = flavor == MPI_WIN_FLAVOR_CREATE && size > 0 && is_device(*base), any = 0, rc;
    ompi_osc_base_component_t *best;

    if (flavor == MPI_WIN_FLAVOR_CREATE) {
        rc = comm->c_coll->coll_allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, comm,
                                          comm->c_coll->coll_allreduce_module);
        if (rc != OMPI_SUCCESS)
            return rc;
        if (mine)
            return refuse("MPI_Win_create", "window's memory");
        if (any) {
            grail_error("MPI_Win_create: another process passed device memory, and windows of "
                        "device memory are not supported");
            return MPI_ERR_UNSUPPORTED_OPERATION;
        }
    }
    choosing = true;
    best = next_best(win, base, size, unit, comm, info, flavor);
    rc = best == NULL ? OMPI_ERR_NOT_SUPPORTED
                      : best->osc_select(win, base, size, unit, comm, info, flavor, model);
    choosing = false;
    if (rc == OMPI_SUCCESS)
        wrap_window(win);
    return rc;
}

void grail_hooks_window_install(void)
{
    if (opal_list_get_size(&ompi_osc_base_framework.framework_components) == 0)
        return;     /* no one-sided communication at all: Open MPI says so itself */
    list_item = OBJ_NEW(mca_base_component_list_item_t);
    if (list_item == NULL)
        return;
    list_item->cli_component = &window_component.osc_version;
    opal_list_append(&ompi_osc_base_framework.framework_components, &list_item->super);
}

void grail_hooks_window_remove(void)
{
    if (list_item == NULL)
        return;
    opal_list_remove_item(&ompi_osc_base_framework.framework_components, &list_item->super);
    OBJ_RELEASE(list_item);
    list_item = NULL;
}
