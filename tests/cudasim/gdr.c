/* SPDX-License-Identifier: BSD-3-Clause */
/* A stand-in for gdrcopy over the simulated driver: CPU mappings of device memory. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda-aware/gdr_abi.h"
#include "tests/cudasim/cudasim.h"

#define GDR_EXPORT __attribute__((visibility("default")))
#define PAGE GRAIL_GDR_PAGE_SIZE

GDR_EXPORT int gdr_get_info(gdr_t gdr, gdr_mh_t handle, gdr_info_v2_t *info);

typedef struct pin {
    uint64_t va, bytes, offset;
    uint64_t id; /* buffer id of the memory that was pinned */
    uint64_t anchor; /* an address of that memory */
    int fd;
    void *mapped;
    size_t mapped_bytes;
    struct pin *next;
} pin_t;

struct gdr {
    pthread_mutex_t lock;
    pin_t *pins;
    int (*fd)(uint64_t ptr, uint64_t *offset);
    uint64_t (*buffer_id)(uint64_t ptr);
};

/** CUDASIM_GDR_FAIL: a list of open, pin, map, all. */
static bool fails(const char *step)
{
    const char *list = getenv("CUDASIM_GDR_FAIL");
    size_t length = strlen(step);
    for (const char *at = list; at != NULL && *at != '\0';) {
        size_t word = strcspn(at, ",");
        if ((word == length && strncmp(at, step, length) == 0) ||
            (word == 3 && strncmp(at, "all", 3) == 0)) {
            return true;
        }
        at += word + (at[word] == ',');
    }
    return false;
}

GDR_EXPORT gdr_t gdr_open(void)
{
    if (fails("open")) {
        return NULL;
    }
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == NULL) {
        driver = dlopen("libcuda.so.1", RTLD_LAZY);
    }
    struct gdr *gdr = calloc(1, sizeof(*gdr));
    if (driver == NULL || gdr == NULL) {
        free(gdr);
        return NULL;
    }
    *(void **)&gdr->fd = dlsym(driver, "cudasim_fd");
    *(void **)&gdr->buffer_id = dlsym(driver, "cudasim_buffer_id");
    if (gdr->fd == NULL || gdr->buffer_id == NULL) {
        fprintf(stderr, "cudasim: this libgdrapi works with the simulated driver only\n");
        free(gdr);
        return NULL;
    }
    pthread_mutex_init(&gdr->lock, NULL);
    return gdr;
}

static void drop_pin(struct gdr *gdr, pin_t *pin)
{
    for (pin_t **link = &gdr->pins; *link != NULL; link = &(*link)->next) {
        if (*link == pin) {
            *link = pin->next;
            break;
        }
    }
    if (pin->mapped != NULL) {
        munmap(pin->mapped, pin->mapped_bytes);
    }
    free(pin);
}

GDR_EXPORT int gdr_close(gdr_t gdr)
{
    if (gdr == NULL) {
        return EINVAL;
    }
    while (gdr->pins != NULL) {
        drop_pin(gdr, gdr->pins);
    }
    pthread_mutex_destroy(&gdr->lock);
    free(gdr);
    return 0;
}

GDR_EXPORT int gdr_pin_buffer(gdr_t gdr, unsigned long addr, size_t size, uint64_t p2p_token,
                              uint32_t va_space, gdr_mh_t *handle)
{
    (void)p2p_token;
    (void)va_space;
    if (gdr == NULL || handle == NULL || size == 0) {
        return EINVAL;
    }
    if (fails("pin")) {
        return ENOMEM;
    }
    /* The address must be a page's; the size is rounded up by the library. */
    uint64_t va = addr, bytes = (size + PAGE - 1) / PAGE * PAGE, offset = 0, anchor = 0;
    if (addr % PAGE != 0) {
        return EINVAL;
    }
    int fd = -1;
    for (uint64_t at = va; fd < 0 && at < va + bytes; at += 512) {
        fd = gdr->fd(at, &offset); /* what is asked for may begin in a gap between allocations */
        anchor = at;
    }
    if (fd < 0) {
        return EINVAL;
    }
    pin_t *pin = calloc(1, sizeof(*pin));
    if (pin == NULL) {
        return ENOMEM;
    }
    *pin = (pin_t){.va = va,
                   .bytes = bytes,
                   .offset = offset - (anchor - va),
                   .id = gdr->buffer_id(anchor),
                   .anchor = anchor,
                   .fd = fd};
    pthread_mutex_lock(&gdr->lock);
    pin->next = gdr->pins;
    gdr->pins = pin;
    pthread_mutex_unlock(&gdr->lock);
    handle->h = (unsigned long)(uintptr_t)pin;
    return 0;
}

/** The pin of a handle, checked; the lock is held. */
static pin_t *find(const struct gdr *gdr, gdr_mh_t handle)
{
    pin_t *pin = gdr->pins;
    while (pin != NULL && (unsigned long)(uintptr_t)pin != handle.h) {
        pin = pin->next;
    }
    return pin;
}

GDR_EXPORT int gdr_unpin_buffer(gdr_t gdr, gdr_mh_t handle)
{
    if (gdr == NULL) {
        return EINVAL;
    }
    pthread_mutex_lock(&gdr->lock);
    pin_t *pin = find(gdr, handle);
    if (pin != NULL) {
        drop_pin(gdr, pin);
    }
    pthread_mutex_unlock(&gdr->lock);
    return pin != NULL ? 0 : EINVAL;
}

GDR_EXPORT int gdr_get_callback_flag(gdr_t gdr, gdr_mh_t handle, int *flag)
{
    if (gdr == NULL || flag == NULL) {
        return EINVAL;
    }
    pthread_mutex_lock(&gdr->lock);
    const pin_t *pin = find(gdr, handle);
    if (pin != NULL) {
        *flag = gdr->buffer_id(pin->anchor) != pin->id;
    }
    pthread_mutex_unlock(&gdr->lock);
    return pin != NULL ? 0 : EINVAL;
}

GDR_EXPORT int gdr_get_info_v2(gdr_t gdr, gdr_mh_t handle, gdr_info_v2_t *info)
{
    if (gdr == NULL || info == NULL) {
        return EINVAL;
    }
    pthread_mutex_lock(&gdr->lock);
    const pin_t *pin = find(gdr, handle);
    if (pin != NULL) {
        memset(info, 0, sizeof(*info));
        info->va = pin->va;
        info->mapped_size = pin->bytes;
        info->page_size = PAGE;
        info->mapped = pin->mapped != NULL;
        info->wc_mapping = pin->mapped != NULL;
        info->mapping_type = pin->mapped != NULL ? GDR_MAPPING_TYPE_WC : GDR_MAPPING_TYPE_NONE;
    }
    pthread_mutex_unlock(&gdr->lock);
    return pin != NULL ? 0 : EINVAL;
}

/** The older entry point; its structure ends before mapping_type. */
GDR_EXPORT int gdr_get_info(gdr_t gdr, gdr_mh_t handle, gdr_info_v2_t *info)
{
    gdr_info_v2_t all;
    int result = gdr_get_info_v2(gdr, handle, &all);
    if (result == 0 && info != NULL) {
        memcpy(info, &all, offsetof(gdr_info_v2_t, mapping_type));
    }
    return result;
}

GDR_EXPORT int gdr_map(gdr_t gdr, gdr_mh_t handle, void **va, size_t size)
{
    if (gdr == NULL || va == NULL || size == 0) {
        return EINVAL;
    }
    if (fails("map")) {
        return EAGAIN;
    }
    int result = EINVAL;
    pthread_mutex_lock(&gdr->lock);
    pin_t *pin = find(gdr, handle);
    size_t bytes = (size + PAGE - 1) / PAGE * PAGE;
    if (pin != NULL && pin->mapped == NULL && bytes <= pin->bytes &&
        gdr->buffer_id(pin->anchor) == pin->id) {
        void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pin->fd,
                        (off_t)pin->offset);
        result = at != MAP_FAILED ? 0 : errno;
        if (at != MAP_FAILED) {
            pin->mapped = at;
            pin->mapped_bytes = bytes;
            *va = at;
        }
    }
    pthread_mutex_unlock(&gdr->lock);
    return result;
}

GDR_EXPORT int gdr_unmap(gdr_t gdr, gdr_mh_t handle, void *va, size_t size)
{
    (void)size;
    if (gdr == NULL) {
        return EINVAL;
    }
    int result = EINVAL;
    pthread_mutex_lock(&gdr->lock);
    pin_t *pin = find(gdr, handle);
    if (pin != NULL && pin->mapped != NULL && pin->mapped == va) {
        munmap(pin->mapped, pin->mapped_bytes);
        pin->mapped = NULL;
        result = 0;
    }
    pthread_mutex_unlock(&gdr->lock);
    return result;
}

GDR_EXPORT int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size)
{
    (void)handle;
    memcpy(map_d_ptr, h_ptr, size);
    __sync_synchronize();
    return 0;
}

GDR_EXPORT int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr,
                                     size_t size)
{
    (void)handle;
    memcpy(h_ptr, map_d_ptr, size);
    return 0;
}

GDR_EXPORT void gdr_runtime_get_version(int *major, int *minor)
{
    *major = 2;
    *minor = 5;
}

GDR_EXPORT int gdr_driver_get_version(gdr_t gdr, int *major, int *minor)
{
    if (gdr == NULL) {
        return EINVAL;
    }
    gdr_runtime_get_version(major, minor);
    return 0;
}
