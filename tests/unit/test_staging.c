/* SPDX-License-Identifier: BSD-3-Clause */
/* Bounce memory: bounded, pinned, shared, and given back. */
#include "tests/unit/cuda_child.h"

#include "cuda-aware/copy.h"
#include "cuda-aware/staging.h"
#include "cuda-aware/staging_internal.h"
#include "runtime/options.h"
#include "tests/common/gpu.h"

static gpu_buf_t buffer;

static grail_gpu_t *use_gpu(int device)
{
    grail_gpu_t *gpu;
    grail_mem_t mem;

    if (gpu_driver() == NULL)
        CHILD_SKIP(gpu_why());
    CHECK(gpu_select(device) == GPU_OK);
    CHECK(gpu_buf_alloc(&buffer, 'D', 1 << 20, 0) == GPU_OK);
    CHECK_OK(grail_mem_query(buffer.ptr, &mem));
    CHECK_OK(grail_gpu_get(&mem, &gpu));
    return gpu;
}

static size_t pinned(void)
{
    size_t host, device;

    grail_staging_bytes(&host, &device);
    return host;
}

static size_t on_device(void)
{
    size_t host, device;

    grail_staging_bytes(&host, &device);
    return device;
}

static void nothing_left(void)
{
    grail_ipc_fini();
    grail_staging_fini();
    CHECK(pinned() == 0 && on_device() == 0);
    gpu_buf_free(&buffer);
    grail_gpu_fini();
    if (simulated()) {
        CHECK(sim_count_of("host_registered") == 0);
        CHECK(sim_count_of("allocs_live") == 0);
        CHECK(sim_count_of("ipc_live") == 0);
    }
}

static void copy_wait(grail_gpu_t *gpu, void *dst, const void *src, size_t length)
{
    grail_copy_t op;
    grail_status_t status;

    CHECK_OK(grail_copy_start(gpu, GRAIL_LANE_OUT, dst, src, length, &op));
    while ((status = grail_copy_test(&op)) == GRAIL_IN_PROGRESS)
        usleep(10);
    CHECK_OK(status);
}

/* ---- private chunks ---- */

static void chunks(void)
{
    grail_gpu_t *gpu = use_gpu(0);
    void *got[200], *again;
    size_t count = 0, limit = grail_staging_pool_limit() / grail_staging_stride();
    grail_status_t status;

    CHECK(pinned() == 0);                       /* nothing before the first use */
    while ((status = grail_staging_get(&got[count])) == GRAIL_OK) {
        memset(got[count], (int)count, grail_options.chunk);
        count++;
        CHECK(count <= limit);
    }
    CHECK(status == GRAIL_ERR_BUSY);
    CHECK(count == limit);
    CHECK(pinned() == count * grail_staging_stride() && pinned() <= grail_options.staging_max);
    for (size_t i = 0; i < count; ++i) {
        const unsigned char *c = got[i];

        CHECK(c[0] == i && c[grail_options.chunk - 1] == i);    /* all different */
    }
    gpu_set(&buffer, 0, 0x5a, grail_options.chunk);
    copy_wait(gpu, got[3], buffer.ptr, grail_options.chunk);
    CHECK(((unsigned char *)got[3])[grail_options.chunk - 1] == 0x5a);
    CHECK(grail_staging_get(&again) == GRAIL_ERR_BUSY);
    grail_staging_put(got[7]);
    CHECK_OK(grail_staging_get(&again));
    CHECK(again == got[7]);
    grail_staging_put(NULL);
    for (size_t i = 0; i < count; ++i)
        grail_staging_put(got[i]);
    CHECK(pinned() == count * grail_staging_stride());
    CHECK_OK(grail_staging_get(&again));
    nothing_left();
}

static void test_chunks(void **state)
{
    (void)state;
    in_child("GRAIL_STAGING_MAX=8M GRAIL_CHUNK=100000", chunks);
    assert_quiet();
    in_child("GRAIL_STAGING_MAX=8M GRAIL_CHUNK=64K GRAIL_SHM=off", chunks);
    assert_quiet();
}

/* Two chunks can be had however small the limit. */
static void tiny(void)
{
    void *chunk, *second, *third;
    grail_slots_t *slots;

    use_gpu(0);
    CHECK_OK(grail_staging_get(&chunk));
    CHECK_OK(grail_staging_get(&second));
    CHECK(grail_staging_get(&third) == GRAIL_ERR_BUSY);
    CHECK(grail_slots_open(GRAIL_SLOTS_SHM, NULL, &slots) == GRAIL_ERR_UNSUPPORTED);
    CHECK(grail_slots_open(GRAIL_SLOTS_SHM, NULL, &slots) == GRAIL_ERR_UNSUPPORTED);
    nothing_left();
}

static void test_tiny(void **state)
{
    (void)state;
    in_child("GRAIL_STAGING_MAX=1M GRAIL_CHUNK=1M GRAIL_VERBOSE=info", tiny);
    assert_logged("GRAIL_STAGING_MAX", 1);
}

static void pin_fails(void)
{
    void *chunk, *second, *other;

    use_gpu(0);
    sim_faults("cuMemHostRegister:1:CUDA_ERROR_OUT_OF_MEMORY");     /* a smaller group works */
    CHECK_OK(grail_staging_get(&chunk));
    CHECK(pinned() == grail_staging_stride());
    sim_faults("cuMemHostRegister:*:CUDA_ERROR_OUT_OF_MEMORY");
    CHECK_OK(grail_staging_get(&second));                           /* not pinned */
    CHECK(pinned() == grail_staging_stride());
    CHECK(grail_staging_get(&other) == GRAIL_ERR_BUSY);             /* wait for the first */
    grail_staging_put(second);
    sim_faults("");
    grail_staging_put(chunk);
    nothing_left();
}

static void nothing_pins(void)
{
    void *chunk, *second, *other;

    use_gpu(0);
    sim_faults("cuMemHostRegister:*:CUDA_ERROR_OUT_OF_MEMORY");
    CHECK_OK(grail_staging_get_to_send(&chunk));
    CHECK(pinned() == 0);
    CHECK(grail_staging_get_to_send(&other) == GRAIL_ERR_BUSY);     /* the last one is for receives */
    CHECK_OK(grail_staging_get(&second));
    CHECK(grail_staging_get(&other) == GRAIL_ERR_BUSY);
    memset(chunk, 1, grail_options.chunk);
    memset(second, 2, grail_options.chunk);
    grail_staging_put(second);
    grail_staging_put(chunk);
    sim_faults("");
    nothing_left();
}

static void test_pin_fails(void **state)
{
    (void)state;
    in_child("", pin_fails);
    assert_logged("] warning: device messages through the host are slow", 1);
    in_child("", nothing_pins);
    assert_logged("] warning: device messages through the host are slow", 1);
}

/* A rank with host buffers only takes chunks before any GPU is in use. */
static void before_gpu(void)
{
    void *early, *late;

    CHECK_OK(grail_staging_get(&early));
    CHECK(pinned() == 0);
    use_gpu(0);
    CHECK_OK(grail_staging_get(&late));
    CHECK(pinned() > 0);
    if (simulated())
        CHECK(sim_count_of("host_registered") == 2);    /* completion words, and this group */
    nothing_left();
}

static void test_before_gpu(void **state)
{
    (void)state;
    in_child("", before_gpu);
    assert_quiet();
}

/* The context that pinned the chunks is destroyed: they are still there. */
static void context_destroyed(void)
{
    const gpu_driver_t *d = gpu_driver();
    CUcontext context, popped;
    CUdeviceptr p;
    grail_mem_t mem;
    grail_gpu_t *gpu;
    void *chunk;

    if (d == NULL)
        CHILD_SKIP(gpu_why());
    CHECK(d->cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    CHECK(d->cuMemAlloc_v2(&p, 4096) == CUDA_SUCCESS);
    CHECK_OK(grail_mem_query((void *)(uintptr_t)p, &mem));
    CHECK_OK(grail_gpu_get(&mem, &gpu));
    CHECK_OK(grail_staging_get(&chunk));
    CHECK(d->cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS);
    CHECK(d->cuCtxDestroy_v2(context) == CUDA_SUCCESS);
    memset(chunk, 1, grail_options.chunk);
    gpu = use_gpu(0);
    gpu_set(&buffer, 0, 0x66, buffer.size);
    copy_wait(gpu, chunk, buffer.ptr, 4096);
    CHECK(((unsigned char *)chunk)[4095] == 0x66);
    grail_staging_put(chunk);
    nothing_left();
}

static void test_context_destroyed(void **state)
{
    (void)state;
    in_child("", context_destroyed);
    assert_quiet();
}

/* ---- slots ---- */

static void check_slots(grail_slots_where_t where)
{
    grail_gpu_t *gpu = use_gpu(0);
    grail_slots_t *slots, *same;
    void *addresses[300];
    uint32_t indices[300], index, count = 0;
    void *address;

    CHECK(pinned() == 0 && on_device() == 0);
    CHECK_OK(grail_slots_open(where, gpu, &slots));
    CHECK_OK(grail_slots_open(where, gpu, &same));
    CHECK(slots == same);
    CHECK(grail_slots_size(slots) >=
          (where == GRAIL_SLOTS_RING ? grail_options.ring_chunk : grail_options.chunk));
    while (grail_slots_get(slots, &indices[count], &addresses[count]) == GRAIL_OK) {
        for (uint32_t i = 0; i < count; ++i)
            CHECK(indices[i] != indices[count] && addresses[i] != addresses[count]);
        count++;
    }
    CHECK(grail_slots_get(slots, &index, &address) == GRAIL_ERR_BUSY);
    CHECK(count == (uint32_t)(where == GRAIL_SLOTS_RING ? grail_options.ring_chunks
                                                        : grail_options.chunks));
    CHECK((where == GRAIL_SLOTS_RING ? on_device() : pinned()) ==
          count * grail_slots_size(slots));
    grail_slots_put(slots, indices[1]);
    CHECK_OK(grail_slots_get(slots, &index, &address));
    CHECK(index == indices[1] && address == addresses[1]);
    for (uint32_t i = 0; i < count; ++i)
        grail_slots_put(slots, indices[i]);
    nothing_left();
}

static void shm_slots(void)
{
    check_slots(GRAIL_SLOTS_SHM);
}

static void ring_slots(void)
{
    check_slots(GRAIL_SLOTS_RING);
}

static void test_slots(void **state)
{
    (void)state;
    in_child("", shm_slots);
    assert_quiet();
    in_child("GRAIL_RING_CHUNK=100000 GRAIL_RING_CHUNKS=5", ring_slots);
    assert_quiet();
}

static void ring_without_memory(void)
{
    grail_gpu_t *gpu = use_gpu(0);
    grail_slots_t *slots;
    uint32_t index;
    void *address;

    sim_faults("cuMemAlloc:*:CUDA_ERROR_OUT_OF_MEMORY");
    for (int i = 0; i < 5; ++i)
        CHECK(grail_slots_open(GRAIL_SLOTS_RING, gpu, &slots) == GRAIL_ERR_NO_DEVICE_MEMORY);
    CHECK(on_device() == 0);
    sleep(2);
    sim_faults("cuMemAlloc:1:CUDA_ERROR_OUT_OF_MEMORY");
    CHECK_OK(grail_slots_open(GRAIL_SLOTS_RING, gpu, &slots));      /* half of it */
    CHECK(on_device() == 2 * grail_slots_size(slots));
    CHECK_OK(grail_slots_get(slots, &index, &address));
    CHECK_OK(grail_slots_get(slots, &index, &address));
    CHECK(grail_slots_get(slots, &index, &address) == GRAIL_ERR_BUSY);
    sim_faults("");
    nothing_left();
}

static void ring_not_exported(void)
{
    grail_gpu_t *gpu = use_gpu(0);
    grail_slots_t *slots;

    for (int i = 0; i < 3; ++i)
        CHECK(grail_slots_open(GRAIL_SLOTS_RING, gpu, &slots) == GRAIL_ERR_UNSUPPORTED);
    if (simulated())
        CHECK(sim_count_of("allocs") == 2);     /* tried once, and given back */
    nothing_left();
}

static void options_off(void)
{
    grail_gpu_t *gpu = use_gpu(0);
    grail_slots_t *slots;

    CHECK(grail_slots_open(GRAIL_SLOTS_RING, gpu, &slots) == GRAIL_ERR_UNSUPPORTED);
    CHECK(grail_slots_open(GRAIL_SLOTS_SHM, gpu, &slots) == GRAIL_ERR_UNSUPPORTED);
    nothing_left();
}

static void test_no_slots(void **state)
{
    (void)state;
    in_child("GRAIL_VERBOSE=info GRAIL_RING_CHUNK=64K", ring_without_memory);
    assert_logged("has no room for a staging ring", 1);
    assert_quiet();
    in_child("GRAIL_VERBOSE=info CUDASIM_IPC_FAIL=get", ring_not_exported);
    assert_logged("the device staging ring is not used", 1);
    assert_quiet();
    in_child("GRAIL_RING=off GRAIL_SHM=off", options_off);
    assert_quiet();
}

static void shm_not_pinned(void)
{
    grail_gpu_t *gpu = use_gpu(0);
    grail_slots_t *slots;

    sim_faults("cuMemHostRegister:*:CUDA_ERROR_NOT_SUPPORTED");
    for (int i = 0; i < 3; ++i)
        CHECK(grail_slots_open(GRAIL_SLOTS_SHM, gpu, &slots) == GRAIL_ERR_UNSUPPORTED);
    CHECK(pinned() == 0);
    sim_faults("");
    nothing_left();
}

static void test_shm_not_pinned(void **state)
{
    (void)state;
    in_child("GRAIL_VERBOSE=info", shm_not_pinned);
    assert_logged("the shared segment is not used", 1);
}

/* ---- a peer's slots ---- */

typedef struct offer {
    grail_slots_ticket_t ticket;
    uint32_t index;
    size_t length;
} offer_t;

/* Fills a slot with its number for every order (`where`), which the other side then reads. */
static void serve(int in, int out)
{
    const char *host_only = getenv("OWNER_ON_HOST");
    grail_gpu_t *gpu = host_only != NULL ? NULL : use_gpu(0);
    grail_slots_where_t where;

    while (read(in, &where, sizeof(where)) == (ssize_t)sizeof(where)) {
        grail_slots_t *slots;
        offer_t offer = {0};
        void *address;

        CHECK_OK(grail_slots_open(where, gpu, &slots));
        CHECK_OK(grail_slots_get(slots, &offer.index, &address));
        CHECK_OK(grail_slots_ticket(slots, &offer.ticket));
        offer.length = grail_slots_size(slots);
        if (where == GRAIL_SLOTS_RING) {
            gpu_set(&buffer, 0, (unsigned char)(offer.index + 1), buffer.size);
            for (size_t at = 0; at < offer.length; at += buffer.size)
                copy_wait(gpu, (char *)address + at, buffer.ptr,
                          offer.length - at < buffer.size ? offer.length - at : buffer.size);
        } else if (gpu != NULL) {
            gpu_set(&buffer, 0, (unsigned char)(offer.index + 1), buffer.size);
            copy_wait(gpu, address, buffer.ptr, offer.length);
        } else {
            memset(address, (int)offer.index + 1, offer.length);
        }
        send_bytes(out, &offer, sizeof(offer));
    }
    if (gpu != NULL)
        nothing_left();
    else
        grail_staging_fini();
}

static offer_t ask(pipes_t *p, grail_slots_where_t where)
{
    offer_t offer;

    send_bytes(p->to_peer[1], &where, sizeof(where));
    get_bytes(p->from_peer[0], &offer, sizeof(offer));
    return offer;
}

static void read_slot(grail_gpu_t *gpu, const offer_t *offer)
{
    grail_slots_view_t *view;
    const char *why = NULL;
    unsigned char got[64];
    const char *at;
    grail_status_t status = grail_slots_attach(&offer->ticket, gpu, &view, &why);

    if (status != GRAIL_OK)
        fprintf(stderr, "# not attached: %s\n", why);
    CHECK_OK(status);
    at = grail_slots_at(view, offer->index);
    if (gpu != NULL) {
        copy_wait(gpu, buffer.ptr, at + offer->length - sizeof(got), sizeof(got));
        gpu_read(&buffer, 0, got, sizeof(got));
    } else {
        memcpy(got, at + offer->length - sizeof(got), sizeof(got));
    }
    CHECK(got[0] == offer->index + 1 && got[63] == offer->index + 1);
    CHECK(grail_slots_at(view, offer->ticket.count) == NULL);
    grail_slots_detach(view);
}

static void views(void)
{
    pipes_t p;
    grail_gpu_t *gpu;
    offer_t offer;

    start_peer(&p, serve);
    gpu = use_gpu(0);
    for (int i = 0; i < 3; ++i) {
        offer = ask(&p, GRAIL_SLOTS_SHM);
        read_slot(i == 0 ? NULL : gpu, &offer);         /* pinned when a GPU wants it */
        CHECK((pinned() > 0) == (i > 0));
    }
    if (simulated())
        CHECK(sim_count_of("host_registered") == 2);    /* completion words, and the segment: once */
    grail_slots_close_peer(&offer.ticket);
    CHECK(pinned() == 0);
    if (getenv("OWNER_ON_HOST") == NULL) {
        for (int i = 0; i < 3; ++i) {
            offer = ask(&p, GRAIL_SLOTS_RING);
            read_slot(gpu, &offer);
        }
        if (simulated())
            CHECK(sim_count_of("ipc_opens") == 1);
    }
    nothing_left();
    end_peer(&p);
}

static void test_views(void **state)
{
    (void)state;
    in_child("", views);
    /* the last slot index of another's area is an error of that peer, and is logged */
    assert_logged("a peer named slot", 6);
    in_child("OWNER_ON_HOST=1", views);
    in_child("GRAIL_KERNEL_COPY_MAX=0 GRAIL_CHUNK=100000", views);
}

static void close_in_use(void)
{
    pipes_t p;
    grail_gpu_t *gpu;
    offer_t offer;
    grail_slots_view_t *view, *other;
    const char *why;
    int status;

    start_peer(&p, serve);
    gpu = use_gpu(0);
    offer = ask(&p, GRAIL_SLOTS_SHM);
    CHECK_OK(grail_slots_attach(&offer.ticket, gpu, &view, &why));
    CHECK_OK(grail_slots_attach(&offer.ticket, gpu, &other, &why));
    CHECK(view == other);
    grail_slots_detach(other);
    grail_slots_close_peer(&offer.ticket);
    CHECK(*(const unsigned char *)grail_slots_at(view, offer.index) == offer.index + 1);
    kill(p.peer, SIGKILL);
    CHECK(waitpid(p.peer, &status, 0) == p.peer);
    CHECK(*(const unsigned char *)grail_slots_at(view, offer.index) == offer.index + 1);
    CHECK(pinned() > 0);
    grail_slots_detach(view);
    CHECK(pinned() == 0);
    CHECK(grail_slots_attach(&offer.ticket, gpu, &view, &why) != GRAIL_OK);     /* it is gone */
    nothing_left();
}

static void test_close_in_use(void **state)
{
    (void)state;
    in_child("", close_in_use);
    assert_quiet();
}

/* What a peer sends is checked before it is used. */
static void nonsense(void)
{
    grail_slots_ticket_t ticket = {.where = GRAIL_SLOTS_SHM, .count = 8, .slot_size = 1 << 20};
    grail_slots_view_t *view;
    const char *why = NULL;
    grail_gpu_t *gpu = use_gpu(0);

    ticket.u.shm.size = (8 << 20) - 1;
    CHECK(grail_slots_attach(&ticket, gpu, &view, &why) == GRAIL_ERR_INVALID);
    ticket.count = 0;
    CHECK(grail_slots_attach(&ticket, gpu, &view, &why) == GRAIL_ERR_INVALID);
    ticket.count = 0xffffffffu;
    ticket.slot_size = (uint64_t)1 << 40;
    CHECK(grail_slots_attach(&ticket, gpu, &view, &why) == GRAIL_ERR_INVALID);
    ticket = (grail_slots_ticket_t){.where = 7, .count = 1, .slot_size = 1};
    CHECK(grail_slots_attach(&ticket, gpu, &view, &why) == GRAIL_ERR_INVALID);
    CHECK(why != NULL);
    nothing_left();
}

static void test_nonsense(void **state)
{
    (void)state;
    in_child("", nonsense);
    assert_logged("a peer described its staging area wrongly", 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_tiny),
        cmocka_unit_test(test_pin_fails),
        cmocka_unit_test(test_before_gpu),
        cmocka_unit_test(test_context_destroyed),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_no_slots),
        cmocka_unit_test(test_shm_not_pinned),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_close_in_use),
        cmocka_unit_test(test_nonsense),
    };

    return cmocka_run_group_tests_name("staging", tests, NULL, NULL);
}
