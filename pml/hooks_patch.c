/* SPDX-License-Identifier: BSD-3-Clause */
/* Replaces functions of Open MPI in memory through its own patcher, and puts them back. */
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pml/hooks.h"
#include "pml/ompi_compat.h"
#include "opal/mca/patcher/base/base.h"
#include "runtime/log.h"

/* Bytes that the patcher writes over the start of a function; 0: not known for this machine. */
#if defined(__x86_64__)
enum { PATCH_BYTES = 13, FUNCTION_ALIGNMENT = 16 };
#elif defined(__aarch64__)
enum { PATCH_BYTES = 20, FUNCTION_ALIGNMENT = 4 };
#else
enum { PATCH_BYTES = 0, FUNCTION_ALIGNMENT = 1 };
#endif

enum { PATCHES_MAX = 8 };

static mca_patcher_base_patch_t *patches[PATCHES_MAX];
static int patch_count;
static bool framework_opened;

static bool open_patcher(void)
{
    if (framework_opened)
        return true;
    if (mca_base_framework_open(&opal_patcher_base_framework, 0) != OPAL_SUCCESS)
        return false;
    framework_opened = true;
    /* the memory hooks have selected one already, usually */
    if (opal_patcher->patch_address == NULL)
        (void)opal_patcher_base_select();
    return true;
}

/* The next function must not be hit. A function that begins at a multiple of the compiler's
 * alignment is followed by padding up to the next multiple. */
static bool has_room(void *address)
{
    const ElfW(Sym) *symbol = NULL;
    Dl_info info;
    size_t room;

    if (PATCH_BYTES == 0 ||
        dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) == 0 || symbol == NULL)
        return false;
    room = symbol->st_size;
    if ((uintptr_t)address % FUNCTION_ALIGNMENT == 0)
        room = (room + FUNCTION_ALIGNMENT - 1) / FUNCTION_ALIGNMENT * FUNCTION_ALIGNMENT;
    return room >= PATCH_BYTES;
}

/* A kernel that forbids writable code would make the patcher's write a crash: try first. */
static bool can_write(void *address)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)address & ~(page - 1);
    uintptr_t end = ((uintptr_t)address + PATCH_BYTES + page - 1) & ~(page - 1);

    return mprotect((void *)first, end - first, PROT_READ | PROT_WRITE | PROT_EXEC) == 0;
}

bool grail_patch_install(const char *name, void *address, void *replacement)
{
    mca_patcher_base_patch_t *patch;
    const char *why = NULL;

    if (address == NULL)
        why = "it is not there";
    else if (patch_count == PATCHES_MAX || !open_patcher() || opal_patcher->patch_address == NULL)
        why = "Open MPI has no patcher for this";
    else if (!has_room(address))
        why = "the function is too short";
    else if (!can_write(address))
        why = "the system forbids to change code in memory";
    else if (opal_patcher->patch_address((uintptr_t)address, (uintptr_t)replacement) !=
             OPAL_SUCCESS)
        why = "Open MPI's patcher refused";
    if (why != NULL) {
        grail_info("%s cannot be replaced: %s", name, why);
        return false;
    }
    OPAL_LIST_FOREACH(patch, &opal_patcher->patch_list, mca_patcher_base_patch_t)
    {
        if (patch->patch_value == (uintptr_t)replacement)
            patches[patch_count++] = patch;
    }
    return true;
}

void grail_patch_remove_all(void)
{
    while (patch_count > 0) {
        mca_patcher_base_patch_t *patch = patches[--patch_count];

        patch->patch_restore(patch);
        opal_list_remove_item(&opal_patcher->patch_list, &patch->super);
        OBJ_RELEASE(patch);
    }
    if (framework_opened)
        (void)mca_base_framework_close(&opal_patcher_base_framework);
    framework_opened = false;
}
