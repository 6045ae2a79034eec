/* SPDX-License-Identifier: BSD-3-Clause */
/* A growing slot array with generations and a free list threaded through it. */
#include "runtime/handle.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "runtime/log.h"

enum { FIRST_CAPACITY = 64, CAPACITY_MAX = 1 << 30 };

struct grail_handle_slot {
    void *object;           /* NULL: free */
    uint32_t generation;
    uint32_t next_free;     /* index + 1; 0 ends the list, so that a zeroed table is valid */
};

/* Generations start at a number that other processes and earlier tables do not share, so that a
 * handle of one of those is not taken for one of this table. */
static uint32_t first_generation(void)
{
    static uint32_t tables;
    struct timespec now;
    uint64_t x;

    clock_gettime(CLOCK_MONOTONIC, &now);
    x = (uint64_t)now.tv_nsec ^ ((uint64_t)now.tv_sec << 30) ^ ((uint64_t)getpid() << 40);
    x += __atomic_add_fetch(&tables, 1, __ATOMIC_RELAXED) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return (uint32_t)(x >> 32) | 1u;
}

static grail_status_t grow(grail_handle_table_t *table)
{
    uint32_t old = table->capacity;
    uint32_t capacity = old ? 2 * old : FIRST_CAPACITY;
    struct grail_handle_slot *slots;

    if (old >= CAPACITY_MAX) {
        grail_error("more than %u objects are in use at once; complete some before starting more",
                    (unsigned)CAPACITY_MAX);
        return GRAIL_ERR_NO_MEMORY;
    }
    slots = realloc(table->slots, capacity * sizeof(*slots));
    if (slots == NULL) {
        grail_error("out of memory for a table of %u handles", capacity);
        return GRAIL_ERR_NO_MEMORY;
    }
    uint32_t generation = old ? slots[0].generation : first_generation();
    for (uint32_t i = old; i < capacity; ++i) {
        slots[i].object = NULL;
        slots[i].generation = generation;
        slots[i].next_free = i + 1 < capacity ? i + 2 : table->free_head;
    }
    table->slots = slots;
    table->capacity = capacity;
    table->free_head = old + 1;
    return GRAIL_OK;
}

grail_status_t grail_handle_new(grail_handle_table_t *table, void *object, grail_handle_t *handle)
{
    if (object == NULL) {
        grail_error("internal: a handle was asked for no object");
        return GRAIL_ERR_INVALID;
    }
    if (table->free_head == 0) {
        grail_status_t status = grow(table);

        if (status != GRAIL_OK)
            return status;
    }
    uint32_t index = table->free_head - 1;
    struct grail_handle_slot *slot = &table->slots[index];

    table->free_head = slot->next_free;
    table->live++;
    slot->object = object;
    *handle = ((uint64_t)slot->generation << 32) | index;
    return GRAIL_OK;
}

static struct grail_handle_slot *find(const grail_handle_table_t *table, grail_handle_t handle)
{
    uint32_t index = (uint32_t)handle;

    if (index >= table->capacity || table->slots[index].generation != (uint32_t)(handle >> 32) ||
        table->slots[index].object == NULL)
        return NULL;
    return &table->slots[index];
}

void *grail_handle_get(const grail_handle_table_t *table, grail_handle_t handle)
{
    struct grail_handle_slot *slot = find(table, handle);

    return slot != NULL ? slot->object : NULL;
}

void grail_handle_free(grail_handle_table_t *table, grail_handle_t handle)
{
    struct grail_handle_slot *slot = find(table, handle);

    if (slot == NULL)
        return;
    slot->object = NULL;
    if (++slot->generation == 0)
        slot->generation = 1;
    slot->next_free = table->free_head;
    table->free_head = (uint32_t)handle + 1;
    table->live--;
}

void grail_handle_table_clear(grail_handle_table_t *table)
{
    free(table->slots);
    *table = (grail_handle_table_t){0};
}
