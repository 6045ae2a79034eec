/* SPDX-License-Identifier: BSD-3-Clause */
/* Counted initialisation: options once per process. */
#include "runtime/init.h"

#include <pthread.h>
#include <stdbool.h>

#include "runtime/log.h"
#include "runtime/options.h"

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned init_count;
static bool options_loaded;

void grail_runtime_apply_options(void)
{
    grail_log_threshold = (grail_log_level_t)grail_options.verbose;
}

grail_status_t grail_runtime_init(void)
{
    grail_status_t status = GRAIL_OK;

    pthread_mutex_lock(&init_lock);
    if (!options_loaded) {
        status = grail_options_load_environment();
        options_loaded = status == GRAIL_OK;
    }
    if (status == GRAIL_OK) {
        grail_runtime_apply_options();
        init_count++;
    }
    pthread_mutex_unlock(&init_lock);
    return status;
}

void grail_runtime_fini(void)
{
    pthread_mutex_lock(&init_lock);
    if (init_count > 0)
        init_count--;
    pthread_mutex_unlock(&init_lock);
}
