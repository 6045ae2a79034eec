/* SPDX-License-Identifier: BSD-3-Clause */
/* Start and end of libgrail's use in a process. */
#ifndef GRAIL_RUNTIME_INIT_H
#define GRAIL_RUNTIME_INIT_H

#include "runtime/api.h"
#include "runtime/status.h"

/*
 * Counted: every user (each MPI component, a test, the launcher) calls init before anything else of
 * libgrail and fini when done. The first init of a process loads the options from the environment;
 * later ones keep the values in force, so that MCA variables set in between are not lost. Returns
 * GRAIL_ERR_INVALID (logged) for a wrong GRAIL_* variable; then the call is not counted.
 * Thread-safe.
 */
GRAIL_API grail_status_t grail_runtime_init(void);

/* A fini without an init is ignored. */
GRAIL_API void grail_runtime_fini(void);

/* Puts the values in grail_options that other parts keep a copy of (the log threshold) into force;
 * for callers that write grail_options directly. grail_option_set() does it by itself. */
GRAIL_API void grail_runtime_apply_options(void);

#endif
