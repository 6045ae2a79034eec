/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frame of the MPI tests: options, cases, TAP, buffers of every kind with guard bytes.
 *
 * A program is a row of cases. Every rank calls the functions marked (all) in the same order; a
 * case is ok when no rank's CHECK failed in it. Rank 0 prints "ok - NAME", "not ok - NAME" or
 * "ok - NAME # SKIP REASON", and the plan at the end; ranks print what went wrong to stderr as
 * "# rank N: ...". A case that takes longer than GRAIL_TEST_CASE_LIMIT seconds (60) ends the
 * process with status 124 and the case's name.
 *
 * Options that every program takes:
 *    -k PAIRS   buffer kinds of sender and receiver, e.g. -k HH,DH,AV (HH); "all" is every kind
 *               with every kind, "all-CO" without those two
 *    -n FACTOR  multiply the iterations of loops that say so (1)
 */
#ifndef GRAIL_TESTS_COMMON_MPITEST_H
#define GRAIL_TESTS_COMMON_MPITEST_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/common/gpu.h"

/** Guard bytes before and after each buffer. */
#define MT_GUARD ((size_t)256)

typedef struct mt_program {
    const char *name;
    int min_ranks;    /* fewer: the whole program is skipped */
    int thread_level; /* MPI_THREAD_SINGLE by default (0 is that in every MPI in use) */
    bool owns_errors; /* keep MPI_ERRORS_ARE_FATAL; else MPI_COMM_WORLD returns errors */
} mt_program_t;

extern int mt_rank, mt_size;
extern MPI_Comm mt_world; /* MPI_COMM_WORLD */
extern MPI_Comm mt_side;  /* a duplicate, for the frame's and the tests' own coordination */

/* Ranks work in pairs, rank 2i with rank 2i + 1; the last of an odd number is idle. */
extern int mt_peer;     /* rank in MPI_COMM_WORLD, -1 if idle */
extern bool mt_sending; /* the even one */

/** Buffer kinds of the pair in work: of the sender's and of the receiver's buffers. */
extern char mt_send_kind, mt_recv_kind;
extern int mt_factor;

/** (all) Options, MPI_Init, everything. Arguments that are not options stay in argv from 1 on.
 *  Does not return if the program is to be skipped. */
void mt_start(int *argc, char ***argv, const mt_program_t *program);
/** (all) Print the plan, end MPI; returns the exit status for main(). */
int mt_finish(void);
/** Run body once for each pair of kinds, mt_send_kind and mt_recv_kind set. */
void mt_each_pair(void (*body)(void));

/** (all) Begin a case; its name gets the pair of kinds before it. */
void mt_case(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** (all) End it. */
void mt_end(void);
/** This rank cannot run the case. */
void mt_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** True if no rank skips the case or failed in it so far: it can be run. (all) at the first call in
 *  a case; later ones repeat the answer, so that it can stand in any condition. */
bool mt_ready(void);
/** (all) True if mine is true on every rank. */
bool mt_agree(bool mine);
/** Record a failure; prints the first ten of a case. */
void mt_failed(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Lines "# ..." on stderr. */
void mt_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define CHECK(condition, ...)                                                                      \
    ((condition) ? true : (mt_failed(__FILE__, __LINE__, __VA_ARGS__), false))
/** The MPI call succeeds. */
#define MPI_OK(call) mt_mpi_ok((call), #call, __FILE__, __LINE__)
bool mt_mpi_ok(int result, const char *call, const char *file, int line);
/** The MPI call returns an error of this class. */
#define MPI_FAILS(call, wanted) mt_mpi_fails((call), (wanted), #call, __FILE__, __LINE__)
bool mt_mpi_fails(int result, int wanted, const char *call, const char *file, int line);

/** Allocate with guards, everything set to the guard value. A kind this machine lacks skips the
 *  case, a failure fails it; false either way. */
bool mt_alloc(gpu_buf_t *buf, char kind, size_t size);
void mt_free(gpu_buf_t *buf);
/** Write bytes [0, n) of the pattern to buf at offset. */
void mt_fill(const gpu_buf_t *buf, uint64_t seed, size_t offset, size_t n);
/** Set the whole buffer and its guards to the guard value. */
void mt_clear(const gpu_buf_t *buf);
/** Check bytes [0, n) of the pattern at offset. Says which byte is wrong. */
bool mt_expect(const gpu_buf_t *buf, uint64_t seed, size_t offset, size_t n);
/** Check that bytes from offset on (may be negative) still hold the guard value. */
bool mt_expect_untouched(const gpu_buf_t *buf, ptrdiff_t offset, size_t n);
/** Check the pattern in [0, n), and everything else untouched, guards included. */
bool mt_expect_message(const gpu_buf_t *buf, uint64_t seed, size_t n);
/** Check source, tag and byte count of a received message. */
bool mt_expect_status(const MPI_Status *status, int source, int tag, size_t bytes);

/** Wait for the peer (zero bytes each way on mt_side); idle ranks return at once. */
void mt_sync_peer(void);
/** Tell the peer a number, and hear one. */
int mt_exchange_peer(int mine);
/** Seconds of a monotonic clock; sleep. */
double mt_now(void);
void mt_sleep_ms(int milliseconds);
/** A 64-bit pseudo-random number; *state is any number and advances. */
uint64_t mt_random(uint64_t *state);
/** Pages in use by this process, in bytes. */
size_t mt_resident(void);
/** Bytes that the machine has available, 0 if unknown. */
size_t mt_memory_available(void);

#endif
