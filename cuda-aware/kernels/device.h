/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How Grail's device kernels are written, so that one source is both CUDA code and host code that
 * the simulated driver (tests/cudasim) runs.
 *
 *     #include "cuda-aware/kernels/device.h"
 *     #include "cuda-aware/kernels/fill.h"              // grail_fill_args_t, shared with the host
 *
 *     GRAIL_KERNEL(grail_fill32, grail_fill_args_t, args)
 *     {
 *         for (uint64_t i = GRAIL_THREAD_ID; i < args.count; i += GRAIL_THREAD_COUNT) {
 *             GRAIL_ST(uint32_t, args.dst + 4 * i, args.value);
 *         }
 *     }
 *
 * Contract
 *  - A source file is written in what C11 and CUDA C++ have in common, or, if it is compiled as
 *    C++ on the host as well, in C++ without exceptions, RTTI and the standard library.
 *    Host mode is selected by the absence of nvcc.
 *  - A kernel takes exactly one struct, by value (at most 4 KiB; launch with params = {&struct}).
 *    The struct is trivially copyable and has the same layout on both sides: fixed-width types,
 *    addresses as grail_dptr_t.
 *  - Global memory is touched only through GRAIL_LD, GRAIL_ST and the functions below, never by
 *    dereferencing. Accesses of 1, 2, 4, 8 and 16 bytes must be aligned to their size, as on a
 *    GPU; in the simulator a misaligned or illegal access stops the kernel and breaks the context
 *    (CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS).
 *  - In the simulator the threads of a block run one after another, and so do the blocks, except
 *    those of a cooperative launch, which run at the same time. So a thread must not wait for a
 *    later thread of its own launch, unless the kernel is declared with GRAIL_KERNEL_BARRIER:
 *    then GRAIL_SYNC_BLOCK() may be used and GRAIL_SPIN() lets other threads of the block run.
 *    Blocks of such a kernel run at the same time as far as there is room, the first ones first, as
 *    on a GPU: a block may wait for an earlier one, and for a later one that has shown itself.
 *    Any kernel may wait for memory written by another stream, process or the host, if the waiting
 *    loop calls GRAIL_SPIN().
 */
#ifndef GRAIL_CUDA_AWARE_KERNELS_DEVICE_H
#define GRAIL_CUDA_AWARE_KERNELS_DEVICE_H

#include <stdint.h>

/** A device address (also of pinned, managed and peer memory). */
typedef uint64_t grail_dptr_t;

enum { GRAIL_SHARED_SLOTS = 16, GRAIL_SHARED_BYTES = 64 };

/** What a 16-byte load or store moves. */
#ifdef __CUDACC__
typedef struct __align__(16) grail_v16 {
    uint64_t lo, hi;
} grail_v16_t;
#else
typedef struct __attribute__((aligned(16))) grail_v16 {
    uint64_t lo, hi;
} grail_v16_t;
#endif

/* Position of the calling thread in a launch in one dimension, and the launch's size. */
#define GRAIL_THREAD_ID ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x)
#define GRAIL_THREAD_COUNT ((uint64_t)gridDim.x * blockDim.x)

#ifdef __CUDACC__

/* ---- Device mode ------------------------------------------------------------------------ */

#define GRAIL_KERNEL(name, args_type, args) extern "C" __global__ void name(const args_type args)
#define GRAIL_KERNEL_BARRIER(name, args_type, args) GRAIL_KERNEL(name, args_type, args)
#define GRAIL_DEVICE_FN static __device__ __forceinline__

#define GRAIL_LD(type, addr) (*(const type *)(addr))
#define GRAIL_ST(type, addr, value) (*(type *)(addr) = (value))
/* Volatile: never cached in a register, a whole aligned word at once (1 to 8 bytes). */
#define GRAIL_LD_VOLATILE(type, addr) (*(const volatile type *)(addr))
#define GRAIL_ST_VOLATILE(type, addr, value) (*(volatile type *)(addr) = (value))

#define GRAIL_SYNC_BLOCK() __syncthreads()
#define GRAIL_SPIN() ((void)0)

GRAIL_DEVICE_FN grail_v16_t grail_ld16_volatile(grail_dptr_t addr)
{
    grail_v16_t v;
    asm volatile("ld.volatile.global.v2.u64 {%0,%1}, [%2];"
                 : "=l"(v.lo), "=l"(v.hi) : "l"(addr) : "memory");
    return v;
}

GRAIL_DEVICE_FN void grail_st16_volatile(grail_dptr_t addr, grail_v16_t v)
{
    asm volatile("st.volatile.global.v2.u64 [%0], {%1,%2};"
                 :: "l"(addr), "l"(v.lo), "l"(v.hi) : "memory");
}

GRAIL_DEVICE_FN uint32_t grail_ld32_acquire(grail_dptr_t addr)
{
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(addr) : "memory");
    return v;
}

GRAIL_DEVICE_FN uint64_t grail_ld64_acquire(grail_dptr_t addr)
{
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(addr) : "memory");
    return v;
}

GRAIL_DEVICE_FN void grail_st32_release(grail_dptr_t addr, uint32_t v)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(addr), "r"(v) : "memory");
}

GRAIL_DEVICE_FN void grail_st64_release(grail_dptr_t addr, uint64_t v)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" :: "l"(addr), "l"(v) : "memory");
}

GRAIL_DEVICE_FN uint32_t grail_add32(grail_dptr_t addr, uint32_t v)
{
    return atomicAdd_system((unsigned int *)addr, v);
}

/* Acquires and releases among the blocks of this GPU; `addr` is memory of this GPU. */
GRAIL_DEVICE_FN uint32_t grail_add32_acq_rel_gpu(grail_dptr_t addr, uint32_t v)
{
    uint32_t old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(old) : "l"(addr), "r"(v) : "memory");
    return old;
}

/* Releases only, and nobody waits for the sum. */
GRAIL_DEVICE_FN void grail_add32_release_gpu(grail_dptr_t addr, uint32_t v)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" :: "l"(addr), "r"(v) : "memory");
}

GRAIL_DEVICE_FN uint64_t grail_add64(grail_dptr_t addr, uint64_t v)
{
    return atomicAdd_system((unsigned long long *)addr, (unsigned long long)v);
}

GRAIL_DEVICE_FN void grail_fence_system(void)
{
    __threadfence_system();
}

/* After a load has seen a flag: what this thread and, behind a barrier, its block load from now on is
 * at least as new as the flag (an SM's L1 forgets what it holds). */
GRAIL_DEVICE_FN void grail_fence_acquire(void)
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

/* The same towards other blocks of this GPU: cheaper. */
GRAIL_DEVICE_FN void grail_fence_acquire_gpu(void)
{
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

/* `type *name`: one object for all threads of a block. Only in GRAIL_KERNEL_BARRIER kernels; at most
 * GRAIL_SHARED_BYTES; each of a kernel's objects has its own slot below GRAIL_SHARED_SLOTS. */
#define GRAIL_SHARED(type, name, slot)                                                             \
    __shared__ type name##_shared;                                                                 \
    type *const name = &name##_shared

/* Nanoseconds of a clock that all blocks share; steps of up to 1 us. */
GRAIL_DEVICE_FN uint64_t grail_timer_ns(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

#else /* ---- Host mode: the simulator's side is tests/cudasim/kernel.c ----------------------- */

#include <stddef.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct grail_host_dim3 {
    uint32_t x, y, z;
} grail_host_dim3_t;

typedef struct grail_host_index {
    grail_host_dim3_t grid, block, block_id, thread_id;
} grail_host_index_t;

/** A live range of addresses that the calling thread used lately; alias = address + delta. */
typedef struct grail_host_range {
    uint64_t lo, hi; /* hi == 0: empty */
    int64_t delta;
    uint64_t generation;
} grail_host_range_t;

#define GRAIL_HOST_RANGES 16

typedef struct grail_host_kernel {
    const char *name;
    void (*thread)(const void *args); /* runs one thread; its place is in grail_host_index */
    size_t args_bytes;
    int barrier;
    struct grail_host_kernel *next;
} grail_host_kernel_t;

#pragma GCC visibility push(hidden)
extern __thread grail_host_index_t grail_host_index __attribute__((tls_model("initial-exec")));
extern __thread grail_host_range_t grail_host_ranges[GRAIL_HOST_RANGES]
    __attribute__((tls_model("initial-exec")));
extern uint64_t grail_host_generation; /* grows whenever a range dies */

void grail_host_kernel_register(grail_host_kernel_t *kernel);
/** Slow path of grail_host_ptr; does not return if the access is illegal. */
void *grail_host_ptr_lookup(grail_dptr_t addr, size_t bytes, int write);
void grail_host_sync_block(void);
void *grail_host_shared(unsigned int slot);
void grail_host_spin(void);
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#define gridDim (grail_host_index.grid)
#define blockDim (grail_host_index.block)
#define blockIdx (grail_host_index.block_id)
#define threadIdx (grail_host_index.thread_id)

#define GRAIL_HOST_KERNEL(name, args_type, args, with_barrier)                                     \
    static void name##_host_body(const args_type args);                                            \
    static void name##_host(const void *args_)                                                     \
    {                                                                                              \
        name##_host_body(*(const args_type *)args_);                                               \
    }                                                                                              \
    static grail_host_kernel_t name##_host_entry = {#name, name##_host, sizeof(args_type),         \
                                                    with_barrier, NULL};                           \
    __attribute__((constructor)) static void name##_host_register(void)                            \
    {                                                                                              \
        grail_host_kernel_register(&name##_host_entry);                                            \
    }                                                                                              \
    static void name##_host_body(const args_type args)

#define GRAIL_KERNEL(name, args_type, args) GRAIL_HOST_KERNEL(name, args_type, args, 0)
#define GRAIL_KERNEL_BARRIER(name, args_type, args) GRAIL_HOST_KERNEL(name, args_type, args, 1)
#define GRAIL_DEVICE_FN static inline __attribute__((unused))

static inline void *grail_host_ptr(grail_dptr_t addr, size_t bytes, int write)
{
    const grail_host_range_t *r = &grail_host_ranges[(addr >> 16) % GRAIL_HOST_RANGES];
    if (addr >= r->lo && addr + bytes <= r->hi && (addr & (bytes - 1)) == 0 &&
        r->generation == __atomic_load_n(&grail_host_generation, __ATOMIC_RELAXED)) {
        return (void *)(uintptr_t)(addr + (uint64_t)r->delta);
    }
    return grail_host_ptr_lookup(addr, bytes, write);
}

/* memcpy, because one buffer is read with many types; it becomes one move. */
#define GRAIL_LD(type, addr)                                                                       \
    (__extension__({                                                                               \
        type grail_v_;                                                                             \
        __builtin_memcpy(&grail_v_, grail_host_ptr((addr), sizeof(type), 0), sizeof(type));        \
        grail_v_;                                                                                  \
    }))
#define GRAIL_ST(type, addr, value)                                                                \
    (__extension__({                                                                               \
        type grail_v_ = (value);                                                                   \
        __builtin_memcpy(grail_host_ptr((addr), sizeof(type), 1), &grail_v_, sizeof(type));        \
    }))
/* Integers only; may_alias for the same reason. */
#define GRAIL_LD_VOLATILE(type, addr)                                                              \
    (__extension__({                                                                               \
        typedef type __attribute__((__may_alias__)) grail_t_;                                      \
        __atomic_load_n((const grail_t_ *)grail_host_ptr((addr), sizeof(type), 0),                 \
                        __ATOMIC_RELAXED);                                                         \
    }))
#define GRAIL_ST_VOLATILE(type, addr, value)                                                       \
    (__extension__({                                                                               \
        typedef type __attribute__((__may_alias__)) grail_t_;                                      \
        __atomic_store_n((grail_t_ *)grail_host_ptr((addr), sizeof(type), 1), (value),             \
                         __ATOMIC_RELAXED);                                                        \
    }))

#define GRAIL_SYNC_BLOCK() grail_host_sync_block()
#define GRAIL_SPIN() grail_host_spin()

/* Two 8-byte halves, each of them whole, as the LL protocol needs; the order is the GPU's: any. */
GRAIL_DEVICE_FN grail_v16_t grail_ld16_volatile(grail_dptr_t addr)
{
    const uint64_t *p = (const uint64_t *)grail_host_ptr(addr, sizeof(grail_v16_t), 0);
    grail_v16_t v;
    v.lo = __atomic_load_n(p, __ATOMIC_RELAXED);
    v.hi = __atomic_load_n(p + 1, __ATOMIC_RELAXED);
    return v;
}

GRAIL_DEVICE_FN void grail_st16_volatile(grail_dptr_t addr, grail_v16_t v)
{
    uint64_t *p = (uint64_t *)grail_host_ptr(addr, sizeof(grail_v16_t), 1);
    __atomic_store_n(p, v.lo, __ATOMIC_RELAXED);
    __atomic_store_n(p + 1, v.hi, __ATOMIC_RELAXED);
}

GRAIL_DEVICE_FN uint32_t grail_ld32_acquire(grail_dptr_t addr)
{
    return __atomic_load_n((const uint32_t *)grail_host_ptr(addr, 4, 0), __ATOMIC_ACQUIRE);
}

GRAIL_DEVICE_FN uint64_t grail_ld64_acquire(grail_dptr_t addr)
{
    return __atomic_load_n((const uint64_t *)grail_host_ptr(addr, 8, 0), __ATOMIC_ACQUIRE);
}

GRAIL_DEVICE_FN void grail_st32_release(grail_dptr_t addr, uint32_t v)
{
    __atomic_store_n((uint32_t *)grail_host_ptr(addr, 4, 1), v, __ATOMIC_RELEASE);
}

GRAIL_DEVICE_FN void grail_st64_release(grail_dptr_t addr, uint64_t v)
{
    __atomic_store_n((uint64_t *)grail_host_ptr(addr, 8, 1), v, __ATOMIC_RELEASE);
}

GRAIL_DEVICE_FN uint32_t grail_add32(grail_dptr_t addr, uint32_t v)
{
    return __atomic_fetch_add((uint32_t *)grail_host_ptr(addr, 4, 1), v, __ATOMIC_ACQ_REL);
}

GRAIL_DEVICE_FN uint32_t grail_add32_acq_rel_gpu(grail_dptr_t addr, uint32_t v)
{
    return grail_add32(addr, v);
}

GRAIL_DEVICE_FN void grail_add32_release_gpu(grail_dptr_t addr, uint32_t v)
{
    (void)grail_add32(addr, v);
}

GRAIL_DEVICE_FN uint64_t grail_add64(grail_dptr_t addr, uint64_t v)
{
    return __atomic_fetch_add((uint64_t *)grail_host_ptr(addr, 8, 1), v, __ATOMIC_ACQ_REL);
}

GRAIL_DEVICE_FN void grail_fence_system(void)
{
    __sync_synchronize();
}

GRAIL_DEVICE_FN void grail_fence_acquire(void)
{
    __sync_synchronize();
}

GRAIL_DEVICE_FN void grail_fence_acquire_gpu(void)
{
    __sync_synchronize();
}

#define GRAIL_SHARED(type, name, slot) type *const name = (type *)grail_host_shared(slot)

GRAIL_DEVICE_FN uint64_t grail_timer_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif /* host mode */

#endif /* GRAIL_CUDA_AWARE_KERNELS_DEVICE_H */
