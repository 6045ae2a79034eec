/* SPDX-License-Identifier: BSD-3-Clause */
/* Host side of the resident helper kernel. */
#include "cuda-aware/resident.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "cuda-aware/gpu_internal.h"
#include "cuda-aware/kernels/resident.h"
#include "cuda-aware/stream.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/options.h"

enum {
    PAGE = 4096,
    POLLS_PER_QUERY = 4096,
    STREAK = 4,                 /* copies that must follow each other before the first launch */
    USEFUL = 4,                 /* copies that a launch should serve */
    BACKOFF_MAX = 8,            /* the streak grows up to 4 << 8 */
    LIFE_LINGERS = 5            /* life of a helper that is never idle, in linger times: a program
                                   that synchronizes from another thread waits no longer */
};

/* Values of option `resident` */
enum { OFF, AUTO, ON };

/* Lives in the pinned page: command slots first, then the words, each in its own cache line. */
typedef struct shared_page {
    grail_resident_command_t commands[GRAIL_RESIDENT_SLOTS];
    _Alignas(64) volatile uint32_t done;
    _Alignas(64) volatile uint32_t ended;
} shared_page_t;

_Static_assert(sizeof(shared_page_t) <= PAGE, "one page is pinned");

struct grail_resident {
    grail_resident_t *next;
    grail_gpu_t *gpu;
    bool broken;                /* could not be set up: never tried again */
    grail_stream_t *stream;     /* NULL until the first launch */
    shared_page_t *page;
    CUdeviceptr page_device;
    CUfunction kernel;
    uint32_t number;            /* of the last command given */
    uint32_t launch;            /* of the last kernel started; 0: none yet */

    /* workers, for long copies */
    CUdeviceptr control;        /* 0 until the first launch with workers */
    unsigned blocks;            /* of the last launch; 0: it was told to end */
    bool long_seen;             /* a long copy came since the last launch: the next has workers */
    bool alone;                 /* no memory for `control`: never workers */

    /* policy of `auto` */
    uint64_t last_ns;           /* when the last copy began, by this way or another */
    unsigned streak;            /* copies that each began soon after the one before */
    unsigned served;            /* commands since the last launch */
    unsigned backoff;
    bool judged;                /* the last launch has been, by what it served */
};

static grail_resident_t *residents;

static bool has_ended(const grail_resident_t *r)
{
    return r->launch == 0 || r->page->ended == r->launch;
}

/* ---- whether to use one ---- */

static uint64_t linger_ns(void)
{
    return (uint64_t)(grail_options.resident_linger * 1000);
}

/* Its kernel, stream and memory come with the first launch. */
static grail_resident_t *find_or_create(grail_gpu_t *gpu)
{
    grail_resident_t *r;

    for (r = residents; r != NULL; r = r->next) {
        if (r->gpu == gpu)
            return r->broken ? NULL : r;
    }
    r = calloc(1, sizeof(*r));
    if (r == NULL)
        return NULL;
    r->gpu = gpu;
    r->next = residents;
    residents = r;
    return r;
}

/* A launch would be needed: do copies come so closely that it will serve several? */
static bool launch_pays(grail_resident_t *r, bool soon)
{
    if (!r->judged && r->launch != 0) {
        r->judged = true;
        r->streak = 0;
        if (r->served >= USEFUL) {
            r->backoff = 0;
            r->streak = STREAK;     /* it may have ended of age: the next one follows at once */
        } else if (r->backoff < BACKOFF_MAX) {
            r->backoff++;
        }
    }
    r->streak = soon ? r->streak + 1 : 0;
    return r->streak >= (unsigned)STREAK << r->backoff;
}

/* Workers pay for copies that take one block longer than a launch. At most half of the GPU. */
static unsigned blocks_allowed(const grail_gpu_t *gpu)
{
    unsigned most = (unsigned)grail_gpu_multiprocessors(gpu) / 2;
    unsigned asked = (unsigned)grail_options.resident_blocks;

    return asked <= most ? asked : most > 1 ? most : 1;
}

/* Between host and device the copy engine wins as soon as copies overlap: only on request. */
static bool suits(const grail_gpu_t *gpu, grail_lane_t lane, size_t length)
{
    if (grail_options.resident == OFF || length > grail_options.resident_max)
        return false;
    if (lane != GRAIL_LANE_PEER)
        return grail_options.resident == ON && length <= GRAIL_RESIDENT_ALONE;
    return length <= GRAIL_RESIDENT_ALONE || blocks_allowed(gpu) > 1;
}

grail_resident_t *grail_resident_pick(grail_gpu_t *gpu, grail_lane_t lane, size_t length)
{
    grail_resident_t *r;
    uint64_t now;
    bool soon;

    if (!suits(gpu, lane, length))
        return NULL;
    r = find_or_create(gpu);
    if (r == NULL)
        return NULL;
    if (length > GRAIL_RESIDENT_ALONE) {
        if (r->alone)
            return NULL;
        r->long_seen = true;
    }
    now = grail_clock_ns();
    soon = now - r->last_ns < linger_ns();
    r->last_ns = now;
    /* The helper copies one after the other; a long copy is there earlier by a launch of its own. */
    if (length > GRAIL_RESIDENT_ALONE && r->page != NULL && r->number != r->page->done)
        return NULL;
    return !has_ended(r) || grail_options.resident == ON || launch_pays(r, soon) ? r : NULL;
}

/* ---- commands ---- */

static grail_status_t map_page(grail_resident_t *r)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    CUresult result;

    if (page == MAP_FAILED)
        return GRAIL_ERR_NO_MEMORY;
    if (grail_gpu_pin(r->gpu, page, PAGE) != CUDA_SUCCESS) {
        munmap(page, PAGE);
        return GRAIL_ERR_UNSUPPORTED;
    }
    result = grail_gpu_enter(r->gpu);
    if (result == CUDA_SUCCESS) {
        result = grail_cuda.MemHostGetDevicePointer(&r->page_device, page, 0);
        grail_gpu_leave(r->gpu);
    }
    if (result != CUDA_SUCCESS) {
        grail_gpu_unpin(r->gpu, page);
        munmap(page, PAGE);
        return GRAIL_ERR_UNSUPPORTED;
    }
    r->page = page;
    return GRAIL_OK;
}

static bool prepare(grail_resident_t *r)
{
    grail_stream_t *stream = NULL;

    if (GRAIL_LIKELY(r->stream != NULL))
        return true;
    r->kernel = grail_gpu_kernel(r->gpu, "grail_resident");
    if (r->kernel != NULL)
        stream = grail_stream_pick(r->gpu, GRAIL_LANE_RESIDENT);
    if (stream == NULL || map_page(r) != GRAIL_OK) {
        r->broken = true;
        grail_info("the resident helper is not available on %s: small copies are launched one by "
                   "one",
                   grail_gpu_name(r->gpu));
        return false;
    }
    stream->resident = r;
    r->stream = stream;
    return true;
}

/* A thread for each 128 bytes of the largest copy by one block: 64 KiB by 512 threads take 4.7 us
 * (H200), and fewer threads meet sooner where only small copies are asked for. */
static unsigned block_threads(void)
{
    size_t threads = (grail_options.resident_max / 128 + 31) & ~(size_t)31;

    if (threads < GRAIL_RESIDENT_THREADS_MIN)
        return GRAIL_RESIDENT_THREADS_MIN;
    return threads < GRAIL_RESIDENT_THREADS ? (unsigned)threads : GRAIL_RESIDENT_THREADS;
}

/* Context entered by the caller. */
static bool have_control(grail_resident_t *r)
{
    CUresult result;

    if (r->control != 0)
        return true;
    if (r->alone)
        return false;
    result = grail_cuda.MemAlloc(&r->control, sizeof(grail_resident_control_t));
    if (result == CUDA_SUCCESS) {
        result = grail_cuda.MemsetD8Async(r->control, 0, sizeof(grail_resident_control_t),
                                          r->stream->handle);
        if (result == CUDA_SUCCESS)
            return true;
        (void)grail_cuda.MemFree(r->control);
    }
    r->control = 0;
    r->alone = true;
    grail_info("no device memory for the workers of the resident helper on %s: copies of more than "
               "%d bytes are launched one by one", grail_gpu_name(r->gpu), GRAIL_RESIDENT_ALONE);
    return false;
}

/* Starts a helper that takes up at the first command that is not done. Workers come along only where
 * long copies do: they would occupy SMs for nothing. */
static grail_status_t launch(grail_resident_t *r)
{
    unsigned blocks = r->long_seen ? blocks_allowed(r->gpu) : 1;

    /* `done` after `ended`: a copy that is done must not be done again */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    grail_resident_args_t args = {
        .commands = r->page_device,
        .done = r->page_device + offsetof(shared_page_t, done),
        .ended = r->page_device + offsetof(shared_page_t, ended),
        .linger_ns = linger_ns(),
        .life_ns = LIFE_LINGERS * linger_ns(),
        .first = r->page->done + 1,
        .launch = r->launch + 1
    };
    void *params[] = {&args};
    CUresult result = grail_gpu_enter(r->gpu);

    if (args.launch == 0)       /* 0 means "never launched" */
        args.launch = 1;
    if (result == CUDA_SUCCESS) {
        if (blocks > 1 && !have_control(r))
            blocks = 1;
        args.control = r->control;
        result = grail_cuda.LaunchKernel(r->kernel, blocks, 1, 1, block_threads(), 1, 1, 0,
                                         r->stream->handle, params, NULL);
        grail_gpu_leave(r->gpu);
    }
    if (result != CUDA_SUCCESS) {
        r->broken = true;
        r->stream->failed = result;
        return grail_cuda_fail(result, "launching the resident helper kernel");
    }
    r->launch = args.launch;
    r->blocks = blocks;
    r->long_seen = false;
    r->served = 0;
    r->judged = false;
    return GRAIL_OK;
}

static bool fits(const void *address)
{
    return (uint64_t)(uintptr_t)address >> 48 == 0;
}

static void give(grail_resident_t *r, uint64_t dst, uint64_t src, size_t length)
{
    volatile grail_resident_command_t *command;
    uint64_t tag;

    /* before the helper sees the command: what the CPU wrote to the source, pinned memory */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    r->number++;
    tag = (uint64_t)(r->number & 0xffff) << 48;
    command = &r->page->commands[r->number % GRAIL_RESIDENT_SLOTS];
    command->dst = dst | tag;
    command->src = src | tag;
    command->length = length | tag;
}

grail_status_t grail_resident_start(grail_resident_t *r, void *dst, const void *src, size_t length,
                                    grail_copy_t *op)
{
    bool replace;

    if (!fits(dst) || !fits(src) || !prepare(r) || r->stream->failed != CUDA_SUCCESS)
        return GRAIL_ERR_UNSUPPORTED;
    /* A leader without workers is there: it makes room, and the copy's test launches the next. */
    replace = length > GRAIL_RESIDENT_ALONE && r->blocks == 1 && !r->alone && !has_ended(r);
    if (r->number - r->page->done + replace >= GRAIL_RESIDENT_SLOTS)
        return GRAIL_ERR_UNSUPPORTED;
    if (replace) {
        give(r, r->launch, 0, 0);
        r->blocks = 0;
    }
    give(r, (uint64_t)(uintptr_t)dst, (uint64_t)(uintptr_t)src, length);
    /* The command before the look at `ended`: a block that ends without having seen it has said so
     * by the time the test looks. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (has_ended(r) && launch(r) != GRAIL_OK) {
        r->number--;
        return GRAIL_ERR_UNSUPPORTED;
    }
    r->served++;
    op->word = &r->page->done;
    op->ticket = r->number;
    op->polls = 0;
    op->stream = r->stream;
    return GRAIL_OK;
}

grail_status_t grail_resident_test(grail_copy_t *op)
{
    grail_resident_t *r = op->stream->resident;
    CUresult result;

    if (op->stream->failed != CUDA_SUCCESS)
        return GRAIL_ERR_CUDA;
    if (has_ended(r)) {
        __atomic_thread_fence(__ATOMIC_ACQUIRE);    /* `ended` before the look at what is done */
        if ((int32_t)(r->page->done - op->ticket) >= 0)
            return GRAIL_OK;
        return launch(r) == GRAIL_OK ? GRAIL_IN_PROGRESS : GRAIL_ERR_CUDA;
    }
    if (++op->polls % POLLS_PER_QUERY != 0)
        return GRAIL_IN_PROGRESS;
    result = grail_gpu_enter(r->gpu);
    if (result == CUDA_SUCCESS) {
        result = grail_cuda.StreamQuery(r->stream->handle);
        grail_gpu_leave(r->gpu);
    }
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
        return GRAIL_IN_PROGRESS;
    op->stream->failed = result;
    return grail_cuda_fail(result, "a copy by the resident helper kernel");
}

void grail_resident_fini(grail_gpu_t *gpu, bool usable)
{
    grail_resident_t **link = &residents, *r;

    while ((r = *link) != NULL) {
        if (r->gpu != gpu) {
            link = &r->next;
            continue;
        }
        *link = r->next;
        /* Of a context that is gone a kernel may still write: its page stays. */
        if (r->page != NULL && usable) {
            (void)grail_cuda.StreamSynchronize(r->stream->handle);
            if (r->control != 0)
                (void)grail_cuda.MemFree(r->control);
            (void)grail_cuda.MemHostUnregister(r->page);
            munmap(r->page, PAGE);
        }
        free(r);
    }
}
