/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of gdrcopy's binary interface (libgdrapi.so.2) that Grail and its tests use: a CPU
 * mapping of pinned device memory. Grail loads the library at run time and looks the names up;
 * the functions are declared for their types only. Nothing is declared if <gdrapi.h> was included
 * before.
 *
 * All return 0 or an errno value (gdr_open: NULL on failure). Pages are 64 KiB of device address:
 * addr and size given to gdr_pin_buffer must be multiples of GRAIL_GDR_PAGE_SIZE, and the mapping
 * that gdr_map returns starts at gdr_info_v2_t.va. The copy functions order their own stores
 * before they return.
 */
#ifndef GRAIL_CUDA_AWARE_GDR_ABI_H
#define GRAIL_CUDA_AWARE_GDR_ABI_H

#define GRAIL_GDR_PAGE_SIZE 65536UL

#ifndef __GDRAPI_H__

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gdr *gdr_t;

typedef struct gdr_mh_s {
    unsigned long h;
} gdr_mh_t;

typedef enum gdr_mapping_type {
    GDR_MAPPING_TYPE_NONE = 0,
    GDR_MAPPING_TYPE_WC = 1,
    GDR_MAPPING_TYPE_CACHING = 2,
    GDR_MAPPING_TYPE_DEVICE = 3
} gdr_mapping_type_t;

typedef struct gdr_info_v2 {
    uint64_t va;
    uint64_t mapped_size;
    uint32_t page_size;
    uint64_t tm_cycles;
    uint32_t cycles_per_ms;
    unsigned mapped : 1;
    unsigned wc_mapping : 1;
    gdr_mapping_type_t mapping_type;
} gdr_info_v2_t;

gdr_t gdr_open(void);
int gdr_close(gdr_t gdr);
int gdr_pin_buffer(gdr_t gdr, unsigned long addr, size_t size, uint64_t p2p_token,
                   uint32_t va_space, gdr_mh_t *handle);
int gdr_unpin_buffer(gdr_t gdr, gdr_mh_t handle);
/** flag becomes 1 once the memory was freed under the pin (the mapping is then dead). */
int gdr_get_callback_flag(gdr_t gdr, gdr_mh_t handle, int *flag);
int gdr_get_info_v2(gdr_t gdr, gdr_mh_t handle, gdr_info_v2_t *info);
int gdr_map(gdr_t gdr, gdr_mh_t handle, void **va, size_t size);
int gdr_unmap(gdr_t gdr, gdr_mh_t handle, void *va, size_t size);
int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size);
int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size);
void gdr_runtime_get_version(int *major, int *minor);
int gdr_driver_get_version(gdr_t gdr, int *major, int *minor);

#ifdef __cplusplus
}
#endif

#endif /* <gdrapi.h> was not included */

#endif /* GRAIL_CUDA_AWARE_GDR_ABI_H */
