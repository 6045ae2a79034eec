/* SPDX-License-Identifier: BSD-3-Clause */
/* Open MPI's memory hooks: caches of addresses must learn what leaves the address space. */
#include "cuda-aware/memory.h"
#include "pml/pml_grail.h"
#include "runtime/log.h"

/* Runs inside munmap, in any thread: only calls that are safe there. */
static void memory_released(void *buffer, size_t length, void *data, bool from_alloc)
{
    (void)data;
    (void)from_alloc;
    grail_mem_unmapped(buffer, length);
    grail_net_memory_released(buffer, length);
}

void grail_hooks_open(void)
{
    const int wanted = OPAL_MEMORY_FREE_SUPPORT | OPAL_MEMORY_MUNMAP_SUPPORT;

    if (mca_base_framework_open(&opal_memory_base_framework, 0) != OPAL_SUCCESS ||
        (opal_mem_hooks_support_level() & wanted) != wanted) {
        grail_debug("Open MPI has no memory hooks here: pointers are looked up every time");
        return;
    }
    grail_net_external_hooks();
    opal_mem_hooks_register_release(memory_released, NULL);
    grail_mem_hooks_available(true);
    grail_pml.memory_hooks = true;
}

void grail_hooks_close(void)
{
    if (!grail_pml.memory_hooks)
        return;
    grail_pml.memory_hooks = false;
    grail_mem_hooks_available(false);
    opal_mem_hooks_unregister_release(memory_released);
}
