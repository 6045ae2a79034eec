/* SPDX-License-Identifier: BSD-3-Clause */
/* Refuses file I/O on device memory with an error: Open MPI's own would lose the data silently. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "pml/ompi_compat.h"     /* before any other header of Open MPI */

#include "ompi/file/file.h"
#include "ompi/mca/io/base/base.h"
#include "ompi/mca/io/io.h"
#include "pml/hooks.h"
#include "runtime/log.h"

/*
 * An io component hands out one static table of functions, which is copied into every file that is
 * opened. The functions in it that take a buffer are replaced by ours, which look at the buffer and
 * call on. The io framework is opened by the first MPI_File_open, and nothing of ours is called
 * then but the constructor of the file object, whose entry in Open MPI's table of classes we
 * replace: no code is patched, and files stay as fast as they are.
 */

OBJ_CLASS_DECLARATION(ompi_file_t);     /* exported, but in no header */

typedef mca_io_base_module_2_0_0_t io_module_t;
typedef mca_io_base_component_2_0_0_t io_component_t;

enum { COMPONENTS_MAX = 8 };

static struct wrapped {
    mca_io_base_component_file_query_2_0_0_fn_t query;  /* identifies the component */
    io_module_t *table;         /* the component's own */
    io_module_t original;
} wrapped[COMPONENTS_MAX];
static int wrapped_count;
static pthread_mutex_t wrapped_lock = PTHREAD_MUTEX_INITIALIZER;

static const io_module_t *original(const ompi_file_t *file)
{
    int i = __atomic_load_n(&wrapped_count, __ATOMIC_ACQUIRE) - 1;

    while (i > 0 && wrapped[i].query != file->f_io_selected_component.v2_0_0.io_file_query)
        i--;
    return &wrapped[i].original;
}

static int refuse(const char *call)
{
    if (grail_log_first_time(call))
        grail_error("%s: the buffer is device memory, and file I/O on device memory is not "
                    "supported; copy it to host memory first", call);
    return MPI_ERR_UNSUPPORTED_OPERATION;
}

#define IS_DEVICE GRAIL_UNLIKELY(grail_hooks_on_device(buffer, (size_t)count, type))

/* Independent operations: refused at once. */
#define BLOCKING(name, call, constness)                                                            \
    static int file_##name(ompi_file_t *file, constness void *buffer, int count,                   \
                           ompi_datatype_t *type, ompi_status_public_t *status)                    \
    {                                                                                              \
        if (IS_DEVICE)                                                                             \
            return refuse(call);                                                                   \
        return original(file)->io_module_file_##name(file, buffer, count, type, status);           \
    }
#define BLOCKING_AT(name, call, constness)                                                         \
    static int file_##name(ompi_file_t *file, MPI_Offset at, constness void *buffer, int count,    \
                           ompi_datatype_t *type, ompi_status_public_t *status)                    \
    {                                                                                              \
        if (IS_DEVICE)                                                                             \
            return refuse(call);                                                                   \
        return original(file)->io_module_file_##name(file, at, buffer, count, type, status);       \
    }
#define NONBLOCKING(name, call, constness)                                                         \
    static int file_##name(ompi_file_t *file, constness void *buffer, int count,                   \
                           ompi_datatype_t *type, ompi_request_t **request)                        \
    {                                                                                              \
        if (IS_DEVICE)                                                                             \
            return refuse(call);                                                                   \
        return original(file)->io_module_file_##name(file, buffer, count, type, request);          \
    }
#define NONBLOCKING_AT(name, call, constness)                                                      \
    static int file_##name(ompi_file_t *file, MPI_Offset at, constness void *buffer, int count,    \
                           ompi_datatype_t *type, ompi_request_t **request)                        \
    {                                                                                              \
        if (IS_DEVICE)                                                                             \
            return refuse(call);                                                                   \
        return original(file)->io_module_file_##name(file, at, buffer, count, type, request);      \
    }

/*
 * Collective operations: the other ranks wait for this one, and files do not abort the job by
 * default. So it takes part with no data, and then returns the error.
 */
#define COLLECTIVE(name, call, constness)                                                          \
    static int file_##name(ompi_file_t *file, constness void *buffer, int count,                   \
                           ompi_datatype_t *type, ompi_status_public_t *status)                    \
    {                                                                                              \
        const io_module_t *io = original(file);                                                    \
        if (IS_DEVICE) {                                                                           \
            char nothing;                                                                          \
            (void)io->io_module_file_##name(file, &nothing, 0, MPI_BYTE, MPI_STATUS_IGNORE);       \
            return refuse(call);                                                                   \
        }                                                                                          \
        return io->io_module_file_##name(file, buffer, count, type, status);                       \
    }
#define COLLECTIVE_AT(name, call, constness)                                                       \
    static int file_##name(ompi_file_t *file, MPI_Offset at, constness void *buffer, int count,    \
                           ompi_datatype_t *type, ompi_status_public_t *status)                    \
    {                                                                                              \
        const io_module_t *io = original(file);                                                    \
        if (IS_DEVICE) {                                                                           \
            char nothing;                                                                          \
            (void)io->io_module_file_##name(file, at, &nothing, 0, MPI_BYTE, MPI_STATUS_IGNORE);   \
            return refuse(call);                                                                   \
        }                                                                                          \
        return io->io_module_file_##name(file, at, buffer, count, type, status);                   \
    }

/* Waiting inside a nonblocking call is no deadlock: in Open MPI 4.1 these calls are carried out by
 * each rank alone. A request that is only left behind makes MPI_File_close() of this rank fail. */
#define NONBLOCKING_COLLECTIVE(name, call, constness)                                              \
    static int file_##name(ompi_file_t *file, constness void *buffer, int count,                   \
                           ompi_datatype_t *type, ompi_request_t **request)                        \
    {                                                                                              \
        const io_module_t *io = original(file);                                                    \
        if (IS_DEVICE) {                                                                           \
            static char nothing;                                                                   \
            ompi_request_t *left;                                                                  \
            if (io->io_module_file_##name(file, &nothing, 0, MPI_BYTE, &left) == MPI_SUCCESS)      \
                (void)ompi_request_wait(&left, MPI_STATUS_IGNORE);                                 \
            return refuse(call);                                                                   \
        }                                                                                          \
        return io->io_module_file_##name(file, buffer, count, type, request);                      \
    }
#define NONBLOCKING_COLLECTIVE_AT(name, call, constness)                                           \
    static int file_##name(ompi_file_t *file, MPI_Offset at, constness void *buffer, int count,    \
                           ompi_datatype_t *type, ompi_request_t **request)                        \
    {                                                                                              \
        const io_module_t *io = original(file);                                                    \
        if (IS_DEVICE) {                                                                           \
            static char nothing;                                                                   \
            ompi_request_t *left;                                                                  \
            if (io->io_module_file_##name(file, at, &nothing, 0, MPI_BYTE, &left) == MPI_SUCCESS)  \
                (void)ompi_request_wait(&left, MPI_STATUS_IGNORE);                                 \
            return refuse(call);                                                                   \
        }                                                                                          \
        return io->io_module_file_##name(file, at, buffer, count, type, request);                  \
    }

/* Split collectives: begun and ended with no data. */
#define SPLIT(name, call, constness)                                                               \
    static int file_##name##_begin(ompi_file_t *file, constness void *buffer, int count,           \
                                   ompi_datatype_t *type)                                          \
    {                                                                                              \
        const io_module_t *io = original(file);                                                    \
        if (IS_DEVICE) {                                                                           \
            char nothing;                                                                          \
            if (io->io_module_file_##name##_begin(file, &nothing, 0, MPI_BYTE) == MPI_SUCCESS)     \
                (void)io->io_module_file_##name##_end(file, &nothing, MPI_STATUS_IGNORE);          \
            return refuse(call);                                                                   \
        }                                                                                          \
        return io->io_module_file_##name##_begin(file, buffer, count, type);                       \
    }
#define SPLIT_AT(name, call, constness)                                                            \
    static int file_##name##_begin(ompi_file_t *file, MPI_Offset at, constness void *buffer,       \
                                   int count, ompi_datatype_t *type)                               \
    {                                                                                              \
        const io_module_t *io = original(file);                                                    \
        if (IS_DEVICE) {                                                                           \
            char nothing;                                                                          \
            if (io->io_module_file_##name##_begin(file, at, &nothing, 0, MPI_BYTE) == MPI_SUCCESS) \
                (void)io->io_module_file_##name##_end(file, &nothing, MPI_STATUS_IGNORE);          \
            return refuse(call);                                                                   \
        }                                                                                          \
        return io->io_module_file_##name##_begin(file, at, buffer, count, type);                   \
    }

#define MUTABLE /* not const */

/* X(form, member, MPI name, const or not) */
#define FILE_OPERATIONS(X)                                                                         \
    X(BLOCKING_AT, read_at, "MPI_File_read_at", MUTABLE)                                           \
    X(BLOCKING_AT, write_at, "MPI_File_write_at", const)                                           \
    X(COLLECTIVE_AT, read_at_all, "MPI_File_read_at_all", MUTABLE)                                 \
    X(COLLECTIVE_AT, write_at_all, "MPI_File_write_at_all", const)                                 \
    X(NONBLOCKING_AT, iread_at, "MPI_File_iread_at", MUTABLE)                                      \
    X(NONBLOCKING_AT, iwrite_at, "MPI_File_iwrite_at", const)                                      \
    X(NONBLOCKING_COLLECTIVE_AT, iread_at_all, "MPI_File_iread_at_all", MUTABLE)                   \
    X(NONBLOCKING_COLLECTIVE_AT, iwrite_at_all, "MPI_File_iwrite_at_all", const)                   \
    X(BLOCKING, read, "MPI_File_read", MUTABLE)                                                    \
    X(BLOCKING, write, "MPI_File_write", const)                                                    \
    X(COLLECTIVE, read_all, "MPI_File_read_all", MUTABLE)                                          \
    X(COLLECTIVE, write_all, "MPI_File_write_all", const)                                          \
    X(NONBLOCKING, iread, "MPI_File_iread", MUTABLE)                                               \
    X(NONBLOCKING, iwrite, "MPI_File_iwrite", const)                                               \
    X(NONBLOCKING_COLLECTIVE, iread_all, "MPI_File_iread_all", MUTABLE)                            \
    X(NONBLOCKING_COLLECTIVE, iwrite_all, "MPI_File_iwrite_all", const)                            \
    X(BLOCKING, read_shared, "MPI_File_read_shared", MUTABLE)                                      \
    X(BLOCKING, write_shared, "MPI_File_write_shared", const)                                      \
    X(NONBLOCKING, iread_shared, "MPI_File_iread_shared", MUTABLE)                                 \
    X(NONBLOCKING, iwrite_shared, "MPI_File_iwrite_shared", const)                                 \
    X(COLLECTIVE, read_ordered, "MPI_File_read_ordered", MUTABLE)                                  \
    X(COLLECTIVE, write_ordered, "MPI_File_write_ordered", const)
#define SPLIT_OPERATIONS(X)                                                                        \
    X(SPLIT_AT, read_at_all, "MPI_File_read_at_all_begin", MUTABLE)                                \
    X(SPLIT_AT, write_at_all, "MPI_File_write_at_all_begin", const)                                \
    X(SPLIT, read_all, "MPI_File_read_all_begin", MUTABLE)                                         \
    X(SPLIT, write_all, "MPI_File_write_all_begin", const)                                         \
    X(SPLIT, read_ordered, "MPI_File_read_ordered_begin", MUTABLE)                                 \
    X(SPLIT, write_ordered, "MPI_File_write_ordered_begin", const)

#define DEFINE(form, name, call, constness) form(name, call, constness)
FILE_OPERATIONS(DEFINE)
SPLIT_OPERATIONS(DEFINE)

/* ---- installing ---- */

static void wrap_table(io_module_t *table)
{
#define REPLACE(form, name, call, constness)                                                       \
    if (table->io_module_file_##name != NULL)                                                      \
        table->io_module_file_##name = file_##name;
#define REPLACE_SPLIT(form, name, call, constness)                                                 \
    if (table->io_module_file_##name##_begin != NULL)                                              \
        table->io_module_file_##name##_begin = file_##name##_begin;
    FILE_OPERATIONS(REPLACE)
    SPLIT_OPERATIONS(REPLACE_SPLIT)
}

static void wrap_component(const io_component_t *component, ompi_file_t *file)
{
    struct mca_io_base_file_t *data = NULL;
    io_module_t *table;
    int priority = -1;

    for (int i = 0; i < wrapped_count; i++) {
        if (wrapped[i].query == component->io_file_query)
            return;
    }
    if (wrapped_count == COMPONENTS_MAX)
        return;
    /* The only way to learn where the table is. The query allocates, the unquery frees. */
    table = (io_module_t *)(uintptr_t)component->io_file_query(file, &data, &priority);
    if (table == NULL)
        return;
    if (component->io_file_unquery != NULL)
        (void)component->io_file_unquery(file, data);
    wrapped[wrapped_count].query = component->io_file_query;
    wrapped[wrapped_count].table = table;
    wrapped[wrapped_count].original = *table;
    __atomic_store_n(&wrapped_count, wrapped_count + 1, __ATOMIC_RELEASE);
    wrap_table(table);
}

static opal_construct_t *constructor_entry, stock_constructor;

/* Runs for every new file object, after the framework was opened and before a component is
 * selected. */
static void construct_file(opal_object_t *object)
{
    ompi_file_t *file = (ompi_file_t *)object;
    mca_base_component_list_item_t *item;

    stock_constructor(object);
    pthread_mutex_lock(&wrapped_lock);
    OPAL_LIST_FOREACH(item, &ompi_io_base_framework.framework_components,
                      mca_base_component_list_item_t)
    {
        if (item->cli_component->mca_type_major_version == 2)
            wrap_component((const io_component_t *)item->cli_component, file);
    }
    pthread_mutex_unlock(&wrapped_lock);
}

void grail_hooks_file_install(void)
{
    opal_construct_t *entry;

    opal_class_initialize(OBJ_CLASS(ompi_file_t));
    stock_constructor = OBJ_CLASS(ompi_file_t)->cls_construct;
    for (entry = OBJ_CLASS(ompi_file_t)->cls_construct_array; *entry != NULL; entry++) {
        if (*entry == stock_constructor) {
            constructor_entry = entry;
            *entry = construct_file;
            return;
        }
    }
    grail_info("file I/O on device memory is not checked: Open MPI's file objects have an unknown "
               "form");
}

void grail_hooks_file_remove(void)
{
    if (constructor_entry != NULL)
        *constructor_entry = stock_constructor;
    constructor_entry = NULL;
    for (int i = 0; i < wrapped_count; i++)
        *wrapped[i].table = wrapped[i].original;
    wrapped_count = 0;
}
