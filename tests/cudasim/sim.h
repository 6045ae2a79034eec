/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulated driver's own declarations: what its source files share.
 *
 * Locks, outermost first: sim_lock (contexts, devices, pools), a context's lock (its streams and
 * submission order), a stream's lock (its queue), sim_mem (address ranges). No lock is held while
 * an operation runs, except sim_mem for reading during a copy.
 */
#ifndef GRAIL_TESTS_CUDASIM_SIM_H
#define GRAIL_TESTS_CUDASIM_SIM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cuda-aware/cuda_abi.h"
#include "tests/cudasim/cudasim.h"

#define SIM_EXPORT __attribute__((visibility("default")))
#define SIM_MAX_DEVICES 16
#define SIM_PAGE ((uint64_t)2 << 20)      /* granularity of addresses and of physical memory */
#define SIM_GRAIN 512                     /* granularity of small allocations in a page */
#define SIM_SMALL ((uint64_t)1 << 20)     /* from this size on an allocation has pages of its own */
#define SIM_TAIL 65536                    /* bytes after the data of every memfd: sim_tail_t */

/* ---- Configuration (config.c) ---------------------------------------------------------------- */

enum { SIM_NVLINK_NONE, SIM_NVLINK_DIRECT, SIM_NVLINK_SWITCH };

typedef struct sim_config {
    int device_count;                                 /* physical devices */
    int visible_count;                                /* after CUDA_VISIBLE_DEVICES */
    int visible[SIM_MAX_DEVICES];                     /* ordinal -> physical index */
    bool p2p[SIM_MAX_DEVICES][SIM_MAX_DEVICES];       /* by physical index */
    bool corrupt[SIM_MAX_DEVICES][SIM_MAX_DEVICES];
    unsigned char uuid[SIM_MAX_DEVICES][16];
    int nvlink;
    int cc;                                           /* 90: compute capability 9.0 */
    int driver_version;
    uint64_t mem_bytes;                               /* per device */
    bool ipc_get_fails, ipc_open_fails, masked_ipc_fails;
    bool mig, exclusive;
    bool no_memops, no_pools, no_vmm, no_dmabuf, no_managed;
    bool poison;
    bool no_kernels;
    unsigned int kernel_timeout; /* seconds a kernel may spin, 0: for ever */
    bool strict_context;                              /* even with an explicit stream */
    bool shutdown_early;
    const char *hidden;                               /* names cuGetProcAddress does not know */
    const char *report;
} sim_config_t;

/** Read from the environment at the first call; never changes after. */
const sim_config_t *sim_config(void);
/** "GPU-xxxxxxxx-xxxx-..." of a physical device, as nvidia-smi shows it. */
void sim_uuid_string(int phys, char out[48]);

extern atomic_uint sim_delay_us;

/* ---- Entry of every API function, faults, counters (fault.c, counters.c) --------------------- */

typedef struct sim_api {
    const char *name; /* without version suffix */
    atomic_llong calls;
    atomic_bool listed;
    struct sim_api *next;
} sim_api_t;

CUresult sim_enter(sim_api_t *api, bool needs_init);
/** The error that an injected fault wants the operation being submitted to end with. */
CUresult sim_take_async_fault(void);
bool sim_error_is_sticky(CUresult error);
CUresult sim_error_by_name(const char *name, CUresult *error);
/** What CUDASIM_FAIL and the like said; reports a bad one on stderr. */
void sim_faults_init(void);
sim_api_t *sim_api_list(void);

#define SIM_ENTER_ANY(api_name, needs_init)                                                        \
    do {                                                                                           \
        static sim_api_t api_ = {.name = #api_name};                                               \
        CUresult entered_ = sim_enter(&api_, needs_init);                                          \
        if (entered_ != CUDA_SUCCESS) {                                                            \
            return entered_;                                                                       \
        }                                                                                          \
    } while (0)
#define SIM_ENTER(api_name) SIM_ENTER_ANY(api_name, true)

/** In an API function: the current context, usable, or the function returns the error. */
#define SIM_CURRENT(var)                                                                           \
    sim_ctx_t *var;                                                                                \
    do {                                                                                           \
        CUresult current_ = sim_ctx_usable(&var);                                                  \
        if (current_ != CUDA_SUCCESS) {                                                            \
            return current_;                                                                       \
        }                                                                                          \
    } while (0)

typedef enum sim_counter {
    SIM_CONTEXTS_CREATED,
    SIM_CONTEXTS_LIVE,
    SIM_STREAMS_CREATED,
    SIM_STREAMS_LIVE,
    SIM_EVENTS_CREATED,
    SIM_EVENTS_LIVE,
    SIM_ALLOCS,
    SIM_FREES,
    SIM_ALLOCS_LIVE,
    SIM_BYTES_LIVE,
    SIM_HOST_ALLOCS_LIVE,
    SIM_HOST_REGISTERED,
    SIM_COPIES,
    SIM_COPIES_HTOD,
    SIM_COPIES_DTOH,
    SIM_COPIES_DTOD,
    SIM_COPIES_PEER,
    SIM_COPIES_HTOH,
    SIM_COPY_BYTES,
    SIM_MEMSETS,
    SIM_WRITE_VALUES,
    SIM_LAUNCHES,
    SIM_MODULES_LOADED,
    SIM_IPC_OPENS,
    SIM_IPC_LIVE,
    SIM_IPC_EXPORTS,
    SIM_VMM_MAPS_LIVE,
    SIM_VMM_HANDLES_LIVE,
    SIM_DMABUF_EXPORTS,
    SIM_OPS_FAILED,
    SIM_THREADS_STARTED,
    SIM_COUNTERS
} sim_counter_t;

extern atomic_llong sim_counters[SIM_COUNTERS];
extern atomic_llong sim_device_bytes[SIM_MAX_DEVICES]; /* live bytes of this process */
static inline void sim_count(sim_counter_t counter, long long by)
{
    atomic_fetch_add_explicit(&sim_counters[counter], by, memory_order_relaxed);
}
void sim_report_at_exit(void);

/* ---- Contexts (context.c) -------------------------------------------------------------------- */

typedef struct CUstream_st sim_stream_t;

#define SIM_MAGIC_CTX 0x43747830u
#define SIM_MAGIC_STREAM 0x53747230u
#define SIM_MAGIC_EVENT 0x45766e30u
#define SIM_MAGIC_POOL 0x506f6f30u
#define SIM_MAGIC_MODULE 0x4d6f6430u

/** Never freed, so that stale handles are recognised. */
typedef struct CUctx_st {
    uint32_t magic;
    int ordinal; /* CUdevice */
    int phys;
    bool primary;
    bool alive;
    unsigned int flags;
    unsigned long long id;
    int retained; /* primary only */
    atomic_int error; /* sticky CUresult */
    atomic_uint peers; /* bit per physical device whose memory kernels may touch */
    pthread_mutex_t lock;
    struct CUstream_st *streams; /* all live ones, the default streams too */
    struct CUstream_st *legacy;
    struct CUctx_st *next; /* all contexts ever */
} sim_ctx_t;

extern pthread_mutex_t sim_lock;

CUresult sim_ctx_usable(sim_ctx_t **ctx);
/** For functions that do without a current context: its error if there is one and it is broken. */
CUresult sim_ctx_optional(void);
/** The current context of this thread or NULL, however broken it is. */
sim_ctx_t *sim_ctx_current(void);
bool sim_ctx_valid(CUcontext ctx);
void sim_ctx_fail(sim_ctx_t *ctx, CUresult error);
/** Waits for all work submitted to the context; its sticky error or success. */
CUresult sim_ctx_drain(sim_ctx_t *ctx);
/** Drains all contexts of the device with this physical index. */
void sim_device_drain(int phys);
bool sim_device_valid(CUdevice device);
int sim_ordinal_of(int phys); /* -1: not visible */

/* ---- Memory: physical, addresses, allocations (arena.c) -------------------------------------- */

typedef enum sim_kind {
    SIM_DEVICE,     /* cuMemAlloc */
    SIM_POOL,       /* cuMemAllocAsync */
    SIM_VMM,        /* one cuMemMap */
    SIM_IMPORT,     /* cuIpcOpenMemHandle */
    SIM_POOL_IMPORT,
    SIM_GLOBAL,     /* a module's variable */
    SIM_MANAGED,
    SIM_PINNED,     /* cuMemHostAlloc */
    SIM_REGISTERED  /* cuMemHostRegister */
} sim_kind_t;

/** At the end of every memfd: says to whoever maps it what it is. */
typedef struct sim_tail {
    uint32_t magic;
    int32_t phys;
    uint64_t bytes; /* of data */
    uint64_t owner_id;
    CUmemAllocationProp prop; /* VMM only */
    _Atomic uint64_t live[SIM_PAGE / SIM_GRAIN]; /* buffer id by first grain; large: [0] */
} sim_tail_t;
_Static_assert(sizeof(sim_tail_t) <= SIM_TAIL, "the tail must fit");

/** Physical memory: a memfd. Reference counted; the last reference gives the bytes back. */
typedef struct sim_phys {
    int fd;
    int phys; /* device, or -1 for host memory */
    bool imported;
    uint64_t bytes;
    ino_t inode;
    sim_tail_t *tail; /* read-only if imported */
    int refs;
    CUmemAllocationProp prop;
    unsigned long long handle; /* VMM: its handle value, else 0 */
    int handle_refs;
    struct sim_phys *next; /* VMM handles */
} sim_phys_t;

struct sim_alloc;

/** A run of pages in the arena that belong together. */
typedef struct sim_region {
    enum { SIM_REGION_LARGE, SIM_REGION_SMALL, SIM_REGION_RESERVED } type;
    uint64_t va, bytes;
    sim_phys_t *mem;             /* LARGE, SMALL */
    struct sim_alloc *large;     /* LARGE */
    struct sim_alloc **slots;    /* SMALL: by grain; RESERVED: by page */
    int live;                    /* allocations in it */
    void *owner;                 /* whose small allocations: a context, a pool, a module */
    sim_kind_t kind;
    uint16_t lifo[64];           /* SMALL: grains freed last */
    int lifo_count;
    struct sim_region *next;     /* SMALL regions of all owners */
} sim_region_t;

typedef struct sim_alloc {
    sim_kind_t kind;
    uint64_t base, bytes; /* bytes as asked for */
    uint64_t room;        /* bytes taken */
    uint64_t id;          /* buffer id */
    int phys;             /* device that has the memory, -1: host */
    int ordinal;          /* device to report */
    sim_ctx_t *ctx;       /* NULL: none (VMM, pools) */
    sim_phys_t *mem;      /* NULL: host memory */
    uint64_t mem_offset;
    sim_region_t *region;
    struct CUmemPoolHandle_st *pool;
    bool sync_memops;
    unsigned int flags;   /* pinned, registered, managed: as given */
    unsigned int access;  /* VMM: bit per physical device; bit 31: the host */
    bool dying;           /* freed in stream order, the free has not run yet */
    uint64_t dying_token;
    const struct CUstream_st *dying_stream;
    int opens;            /* imports: reference count */
    uint64_t remote_id;   /* imports: the owner's buffer id, and process */
    pid_t owner_pid;
    int64_t delta;        /* alias = address + delta */
    struct sim_alloc *next, *prev; /* all live ones */
} sim_alloc_t;

extern pthread_rwlock_t sim_mem;

/** Reserves the address space; idempotent. */
CUresult sim_arena_init(void);
bool sim_in_arena(uint64_t addr);
int64_t sim_arena_delta(void);

CUresult sim_phys_create(sim_phys_t **out, int phys, uint64_t bytes,
                         const CUmemAllocationProp *prop);
/** From a file descriptor that it takes over on success. */
CUresult sim_phys_import(sim_phys_t **out, int fd);
void sim_phys_unref(sim_phys_t *mem);

/* The following need sim_mem held for writing. */
uint64_t sim_va_take(uint64_t bytes, uint64_t alignment, uint64_t wanted); /* 0: none left */
void sim_va_give(uint64_t va, uint64_t bytes);
void sim_pages_set(uint64_t va, uint64_t bytes, sim_region_t *region);
CUresult sim_alias_map(uint64_t va, uint64_t bytes, const sim_phys_t *mem, uint64_t offset);
void sim_alias_unmap(uint64_t va, uint64_t bytes);
/** What the application sees at va (managed memory, host memory by VMM): accessible, or not. */
CUresult sim_host_view_map(uint64_t va, uint64_t bytes, const sim_phys_t *mem, uint64_t offset);
void sim_host_view_unmap(uint64_t va, uint64_t bytes);
/** A run of addresses for all of mem, whose reference it takes over on success. */
CUresult sim_region_create(sim_region_t **out, sim_phys_t *mem);
void sim_region_destroy(sim_region_t *region);
void sim_alloc_link(sim_alloc_t *alloc);
void sim_alloc_unlink(sim_alloc_t *alloc);
sim_alloc_t *sim_alloc_first(void);
CUresult sim_alloc_device(sim_alloc_t **out, sim_kind_t kind, void *owner, int phys,
                          uint64_t bytes);
/** Unlinks and frees any device-side allocation made by sim_alloc_device. */
void sim_alloc_release(sim_alloc_t *alloc);
uint64_t sim_next_id(void);
void sim_ranges_changed(void);

/* These need it held for reading. */
sim_alloc_t *sim_find(uint64_t addr); /* NULL: not memory that CUDA knows, or dying */
sim_alloc_t *sim_find_any(uint64_t addr); /* also dying */
sim_region_t *sim_region_at(uint64_t addr); /* NULL: a free address, or outside the arena */
/** True if all of [addr, addr + bytes) is live: in one allocation, or in adjacent VMM mappings. */
bool sim_range_live(uint64_t addr, uint64_t bytes, bool dying_too);

/** Host ranges (pinned, registered) in the table of sim_find; sim_mem held for writing. */
CUresult sim_host_insert(sim_alloc_t *alloc);
void sim_host_remove(sim_alloc_t *alloc);

/** Frees all that a context owns; it must be drained. */
void sim_memory_drop_context(sim_ctx_t *ctx);

/* Memory per device over all processes of the job (job.c). */
bool sim_job_reserve(int phys, uint64_t bytes);
void sim_job_release(int phys, uint64_t bytes);
uint64_t sim_job_used(int phys);
uint64_t sim_process_start_time(pid_t pid); /* in clock ticks since boot; 0: no such process */

/* ---- Streams (stream.c) ---------------------------------------------------------------------- */

struct sim_op;
typedef CUresult (*sim_op_fn_t)(struct sim_op *op);

typedef struct sim_dep {
    struct CUstream_st *stream;
    uint64_t seq;
} sim_dep_t;

typedef struct sim_op {
    struct sim_op *next;
    sim_op_fn_t run;
    void (*drop)(struct sim_op *op); /* frees what the op holds, run or not; may be NULL */
    uint64_t seq;
    struct CUstream_st *stream;
    CUresult fault; /* injected: the result instead of running */
    bool always;    /* runs even in a broken context (bookkeeping) */
    int dep_count;
    sim_dep_t *deps;
    sim_dep_t extra_dep; /* given by the maker, with a reference; stream NULL: none */
} sim_op_t;

struct CUstream_st {
    uint32_t magic;
    sim_ctx_t *ctx;
    unsigned int flags;
    int priority;
    unsigned long long id;
    bool legacy, per_thread;
    pthread_t maker;
    atomic_int refs;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    sim_op_t *head, **tail;
    uint64_t submitted;
    atomic_ullong completed;
    bool running; /* has a thread */
    bool alive;
    struct CUstream_st *next;
};

/** Resolves NULL and the constants; checks the handle. Borrowed. */
CUresult sim_stream_get(CUstream handle, sim_stream_t **stream);
/** Makes an op of a derived struct that starts with sim_op_t. */
void *sim_op_new(size_t bytes, sim_op_fn_t run);
CUresult sim_op_nothing(sim_op_t *op);
/** Queues op (taken over, even on failure); *seq, if wanted, is its number in the stream. */
CUresult sim_submit(sim_stream_t *stream, sim_op_t *op, uint64_t *seq);
void sim_stream_wait(sim_stream_t *stream, uint64_t seq);
static inline bool sim_stream_done(sim_stream_t *stream, uint64_t seq)
{
    return atomic_load_explicit(&stream->completed, memory_order_acquire) >= seq;
}
void sim_stream_ref(sim_stream_t *stream);
void sim_stream_unref(sim_stream_t *stream);
void sim_streams_destroy_all(sim_ctx_t *ctx);
CUresult sim_stream_new(sim_stream_t **out, sim_ctx_t *ctx, unsigned int flags, int priority);
/** True while the calling thread runs a host function of a stream. */
extern __thread bool sim_in_host_function;

/* ---- Copies (copy.c), kernels (kernel.c), modules (module.c), pools (pool.c) ----------------- */

/** A place of memory as copies and kernels see it. */
typedef struct sim_place {
    void *cpu;
    int phys;      /* device, -1: host */
    bool pageable; /* host memory CUDA knows nothing of */
    bool known;    /* memory that CUDA knows */
    bool managed;
} sim_place_t;

/** Resolves for use by a context's device; sim_mem held for reading. */
CUresult sim_place(sim_place_t *out, const sim_ctx_t *ctx, uint64_t addr, uint64_t bytes,
                   bool dying_too);

struct grail_host_kernel;
const struct grail_host_kernel *sim_kernel_find(const char *name);
typedef struct sim_launch_shape {
    uint32_t grid[3], block[3];
    bool cooperative;
} sim_launch_shape_t;
/** Queues a launch; args is copied. */
CUresult sim_kernel_submit(const struct grail_host_kernel *kernel, const sim_launch_shape_t *shape,
                           sim_stream_t *stream, const void *args);
void sim_modules_drop_context(sim_ctx_t *ctx);
void sim_pool_freed(const sim_alloc_t *alloc); /* bookkeeping of a SIM_POOL allocation's pool */
/** May kernels of the device touch it, as far as its pool's access goes? */
bool sim_pool_accessible(const sim_alloc_t *alloc, int phys);

#endif /* GRAIL_TESTS_CUDASIM_SIM_H */
