/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the simulated CUDA driver (a test double, see README.md) offers to tests beyond the driver
 * API. A test that also runs on a real driver looks these up with dlsym and skips without them.
 * All are safe from any thread.
 */
#ifndef GRAIL_TESTS_CUDASIM_H
#define GRAIL_TESTS_CUDASIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** CPU address of the device byte at ptr, or NULL if ptr is not live device memory. Valid to the
 *  end of the allocation and until it is freed. Pinned and managed pointers give themselves. */
void *cudasim_alias(uint64_t ptr);

/** A counter of this process by name, or -1 if there is none of that name. README.md lists them;
 *  "calls" is the number of driver calls, "calls.cuMemAlloc" that of one function. */
long long cudasim_get(const char *name);

/** A memfd of the allocation that ptr lies in (borrowed: do not close) and the file offset of ptr,
 *  or -1. For code that maps device memory as a device driver would (gdrcopy, RDMA). */
int cudasim_fd(uint64_t ptr, uint64_t *offset);

/** The allocation's buffer id (as CU_POINTER_ATTRIBUTE_BUFFER_ID), or 0 if ptr is not live. */
uint64_t cudasim_buffer_id(uint64_t ptr);

/** Replaces the injected faults by those in spec (as CUDASIM_FAIL; NULL or "" for none) and starts
 *  counting calls anew. Returns 0, or -1 and changes nothing if spec cannot be parsed. */
int cudasim_set_faults(const char *spec);

/** Delays every queued operation by microseconds from now on (as CUDASIM_DELAY_US). */
void cudasim_set_delay(unsigned int microseconds);

/** From now on every call gives CUDA_ERROR_DEINITIALIZED, as when the driver has shut down. */
void cudasim_shutdown(void);

#ifdef __cplusplus
}
#endif

#endif /* GRAIL_TESTS_CUDASIM_H */
