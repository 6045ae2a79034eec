/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers that stand for local objects in messages: a stale or forged one is recognised. */
#ifndef GRAIL_RUNTIME_HANDLE_H
#define GRAIL_RUNTIME_HANDLE_H

#include <stdint.h>

#include "runtime/api.h"
#include "runtime/status.h"

/* index in the low 32 bits, generation (never 0) in the high 32; 0 is no handle */
typedef uint64_t grail_handle_t;

typedef struct grail_handle_table {
    struct grail_handle_slot *slots;
    uint32_t capacity;
    uint32_t free_head;
    uint32_t live;
} grail_handle_table_t;

/* Not thread-safe: the owner's lock. A zeroed table is valid and empty. */
GRAIL_API grail_status_t grail_handle_new(grail_handle_table_t *table, void *object,
                                          grail_handle_t *handle);
GRAIL_API void *grail_handle_get(const grail_handle_table_t *table, grail_handle_t handle);
GRAIL_API void grail_handle_free(grail_handle_table_t *table, grail_handle_t handle);
GRAIL_API void grail_handle_table_clear(grail_handle_table_t *table);

#endif
