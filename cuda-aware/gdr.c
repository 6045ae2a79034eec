/* SPDX-License-Identifier: BSD-3-Clause */
/* gdrcopy, loaded at run time: a small cache of CPU mappings of device memory. */
#include "cuda-aware/gdr.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda-aware/driver.h"
#include "cuda-aware/gdr_abi.h"
#include "runtime/log.h"
#include "runtime/options.h"

/*
 * What is mapped is not the allocation but a window of it: the BAR that mappings live in may be as
 * small as 256 MiB, and is shared by all processes. 32 windows of 1 MiB cost at most 32 MiB of it.
 */
enum { WINDOW = 1 << 20, WINDOWS_MAX = 32 };

struct window {
    uint64_t start;             /* device address, a multiple of the page size */
    size_t size;                /* 0: free */
    CUdeviceptr base;           /* of the allocation, with its id: a window is good for no other */
    uint64_t buffer_id;
    uint64_t used;              /* time of last use */
    gdr_mh_t handle;
    void *map;                  /* of all pages pinned */
    char *cpu;                  /* of `start` */
};

static struct {
    enum { UNTRIED, THERE, ABSENT } state;
    void *library;
    gdr_t gdr;
    __typeof__(gdr_open) *open;
    __typeof__(gdr_close) *close;
    __typeof__(gdr_pin_buffer) *pin;
    __typeof__(gdr_unpin_buffer) *unpin;
    __typeof__(gdr_get_info_v2) *info;
    __typeof__(gdr_get_callback_flag) *freed;
    __typeof__(gdr_map) *map;
    __typeof__(gdr_unmap) *unmap;
    __typeof__(gdr_copy_to_mapping) *to;
    __typeof__(gdr_copy_from_mapping) *from;
} lib;

static struct window windows[WINDOWS_MAX];
static uint64_t now;            /* counts uses */
static uint64_t refused_id;     /* the allocation that could not be pinned last */

/* ---- the library ---- */

static bool load_names(void)
{
    static const struct {
        const char *name;
        size_t offset;
    } names[] = {
        {"gdr_open", offsetof(__typeof__(lib), open)},
        {"gdr_close", offsetof(__typeof__(lib), close)},
        {"gdr_pin_buffer", offsetof(__typeof__(lib), pin)},
        {"gdr_unpin_buffer", offsetof(__typeof__(lib), unpin)},
        {"gdr_get_info_v2", offsetof(__typeof__(lib), info)},
        {"gdr_get_callback_flag", offsetof(__typeof__(lib), freed)},
        {"gdr_map", offsetof(__typeof__(lib), map)},
        {"gdr_unmap", offsetof(__typeof__(lib), unmap)},
        {"gdr_copy_to_mapping", offsetof(__typeof__(lib), to)},
        {"gdr_copy_from_mapping", offsetof(__typeof__(lib), from)},
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        void *function = dlsym(lib.library, names[i].name);

        if (function == NULL) {
            grail_info("gdrcopy is not used: its library lacks %s; version 2.0 or later is needed",
                       names[i].name);
            return false;
        }
        memcpy((char *)&lib + names[i].offset, &function, sizeof(function));
    }
    return true;
}

static bool load(void)
{
    lib.library = dlopen("libgdrapi.so.2", RTLD_NOW | RTLD_LOCAL);
    if (lib.library == NULL) {
        grail_debug("gdrcopy is not installed");
        return false;
    }
    if (!load_names())
        goto unload;
    lib.gdr = lib.open();
    if (lib.gdr == NULL) {
        grail_info("gdrcopy is not used: its library is there, its kernel driver is not (load the "
                   "module gdrdrv; in a container, give it /dev/gdrdrv)");
        goto unload;
    }
    grail_debug("gdrcopy serves small messages");
    return true;
unload:
    dlclose(lib.library);
    lib.library = NULL;
    return false;
}

bool grail_gdr_available(void)
{
    if (GRAIL_LIKELY(lib.state == THERE))
        return grail_options.gdrcopy;
    if (lib.state == ABSENT || !grail_options.gdrcopy || !grail_cuda_ready())
        return false;
    lib.state = load() ? THERE : ABSENT;
    return lib.state == THERE;
}

/* ---- windows ---- */

static void close_window(struct window *window)
{
    if (window->size == 0)
        return;
    (void)lib.unmap(lib.gdr, window->handle, window->map, window->size);
    (void)lib.unpin(lib.gdr, window->handle);
    window->size = 0;
}

/* A window of the same allocation that covers the range; stale ones of its base are closed. */
static struct window *find(const grail_mem_t *mem, uint64_t start, size_t length)
{
    for (int i = 0; i < WINDOWS_MAX; ++i) {
        struct window *window = &windows[i];

        if (window->size == 0 || window->base != mem->base)
            continue;
        if (window->buffer_id != mem->buffer_id)
            close_window(window);
        else if (start >= window->start && start + length <= window->start + window->size)
            return window;
    }
    return NULL;
}

static struct window *least_used(void)
{
    struct window *oldest = &windows[0];

    for (int i = 0; i < WINDOWS_MAX; ++i) {
        if (windows[i].size == 0)
            return &windows[i];
        if (windows[i].used < oldest->used)
            oldest = &windows[i];
    }
    close_window(oldest);
    return oldest;
}

static bool open_window(struct window *window, const grail_mem_t *mem, uint64_t start,
                        uint64_t end)
{
    gdr_info_v2_t info;

    if (lib.pin(lib.gdr, start, end - start, 0, 0, &window->handle) != 0)
        return false;
    if (lib.map(lib.gdr, window->handle, &window->map, end - start) != 0)
        goto unpin;
    if (lib.info(lib.gdr, window->handle, &info) != 0 || info.va > start)
        goto unmap;
    window->start = start;
    window->size = end - start;
    window->base = mem->base;
    window->buffer_id = mem->buffer_id;
    window->cpu = (char *)window->map + (start - info.va);
    return true;
unmap:
    (void)lib.unmap(lib.gdr, window->handle, window->map, end - start);
unpin:
    (void)lib.unpin(lib.gdr, window->handle);
    return false;
}

static uint64_t round_down(uint64_t x, uint64_t unit)
{
    return x & ~(unit - 1);
}

static struct window *make(const grail_mem_t *mem, uint64_t start, size_t length)
{
    uint64_t page = GRAIL_GDR_PAGE_SIZE;
    uint64_t low = round_down(mem->base, page);
    uint64_t high = round_down(mem->base + mem->size + page - 1, page);
    uint64_t from = round_down(start, WINDOW);
    uint64_t to = round_down(start + length + WINDOW - 1, WINDOW);
    struct window *window = least_used();

    from = from > low ? from : low;
    to = to < high ? to : high;
    if (open_window(window, mem, from, to))
        return window;
    /* The BAR may be full of our own windows. */
    for (int i = 0; i < WINDOWS_MAX; ++i)
        close_window(&windows[i]);
    if (open_window(window, mem, from, to))
        return window;
    refused_id = mem->buffer_id;
    if (grail_log_first_time("gdrcopy does not pin"))
        grail_info("gdrcopy cannot map device memory (its BAR is full, or the driver refuses): "
                   "small messages take another way");
    return NULL;
}

/* The CPU address of [address, address + length), or NULL. */
static struct window *window_of(const grail_mem_t *mem, const void *address, size_t length)
{
    uint64_t start = (uint64_t)(uintptr_t)address;
    struct window *window;
    int freed = 0;

    if (mem->kind != GRAIL_MEM_DEVICE || !mem->exportable || mem->buffer_id == 0 ||
        length > WINDOW || mem->buffer_id == refused_id || start < mem->base ||
        start + length > mem->base + mem->size || !grail_gdr_available())
        return NULL;
    window = find(mem, start, length);
    /* Freed and given out again under another base in the same pages: the pinning is dead. */
    if (window != NULL && (lib.freed(lib.gdr, window->handle, &freed) != 0 || freed)) {
        close_window(window);
        window = NULL;
    }
    if (window == NULL)
        window = make(mem, start, length);
    if (window != NULL)
        window->used = ++now;
    return window;
}

grail_status_t grail_gdr_write(const grail_mem_t *mem, void *device_dst, const void *src,
                               size_t length)
{
    struct window *window = length <= grail_options.gdrcopy_write_max
                                ? window_of(mem, device_dst, length)
                                : NULL;

    if (window == NULL ||
        lib.to(window->handle, window->cpu + ((uint64_t)(uintptr_t)device_dst - window->start),
               src, length) != 0)
        return GRAIL_ERR_UNSUPPORTED;
    return GRAIL_OK;
}

grail_status_t grail_gdr_read(const grail_mem_t *mem, void *dst, const void *device_src,
                              size_t length)
{
    struct window *window = length <= grail_options.gdrcopy_read_max
                                ? window_of(mem, device_src, length)
                                : NULL;

    if (window == NULL ||
        lib.from(window->handle, dst,
                 window->cpu + ((uint64_t)(uintptr_t)device_src - window->start), length) != 0)
        return GRAIL_ERR_UNSUPPORTED;
    return GRAIL_OK;
}

void grail_gdr_fini(void)
{
    if (lib.state == THERE) {
        for (int i = 0; i < WINDOWS_MAX; ++i)
            close_window(&windows[i]);
        (void)lib.close(lib.gdr);
        dlclose(lib.library);
    }
    memset(&lib, 0, sizeof(lib));
    refused_id = 0;
}
