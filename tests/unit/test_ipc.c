/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of another process: mapped, cached, given back, and refused with a reason. */
#include "tests/unit/cuda_child.h"

#include "cuda-aware/copy.h"
#include "cuda-aware/ipc.h"
#include "cuda-aware/ipc_internal.h"
#include "runtime/options.h"
#include "tests/common/gpu.h"

static const gpu_driver_t *driver_on(int device)
{
    const gpu_driver_t *d = gpu_driver();

    if (d == NULL)
        CHILD_SKIP(gpu_why());
    CHECK(gpu_select(device) == GPU_OK);
    return d;
}

static grail_mem_t query(const void *p)
{
    grail_mem_t mem;

    CHECK_OK(grail_mem_query(p, &mem));
    return mem;
}

static grail_gpu_t *gpu_of(const void *p)
{
    grail_mem_t mem = query(p);
    grail_gpu_t *gpu;

    CHECK_OK(grail_gpu_get(&mem, &gpu));
    return gpu;
}

/* ---- the other process: owns memory, does as it is told ---- */

enum { BUFFERS = 64 };

typedef struct order {
    char what;          /* A: allocate, F: free, P: probe key, S: sweep; answered by an answer_t */
    int index;
    size_t size;
    unsigned char value;
} order_t;

typedef struct answer {
    grail_status_t status;
    grail_ipc_key_t key;
    int stale;          /* reports by grail_ipc_on_stale() since the last answer */
    uint64_t stale_base, stale_id;
} answer_t;

static answer_t reply;

static void on_stale(uint64_t base, uint64_t buffer_id)
{
    reply.stale++;
    reply.stale_base = base;
    reply.stale_id = buffer_id;
}

static void serve(int in, int out)
{
    static CUdeviceptr buffers[BUFFERS];
    const char *device = getenv("OWNER_DEVICE");
    const gpu_driver_t *d = driver_on(device != NULL ? atoi(device) : 0);
    const char *why = NULL;
    order_t order;

    grail_ipc_on_stale(on_stale);
    while (read(in, &order, sizeof(order)) == (ssize_t)sizeof(order)) {
        CUdeviceptr *p = &buffers[order.index];

        reply = (answer_t){.status = GRAIL_OK};
        if (order.what == 'A') {
            CHECK(d->cuMemAlloc_v2(p, order.size) == CUDA_SUCCESS);
            CHECK(d->cuMemsetD8_v2(*p, order.value, order.size) == CUDA_SUCCESS);
            CHECK(d->cuCtxSynchronize() == CUDA_SUCCESS);
            grail_mem_t mem = query((void *)(uintptr_t)(*p + order.size - 1));

            reply.status = grail_ipc_export(&mem, &reply.key, &why);
        } else if (order.what == 'F') {
            CHECK(d->cuMemFree_v2(*p) == CUDA_SUCCESS);
        } else if (order.what == 'P') {
            CUdeviceptr any;

            CHECK(d->cuMemAlloc_v2(&any, 64) == CUDA_SUCCESS);
            reply.status = grail_p2p_probe_key(gpu_of((void *)(uintptr_t)any), &reply.key);
            CHECK(d->cuMemFree_v2(any) == CUDA_SUCCESS);
        } else if (order.what == 'S') {
            grail_ipc_sweep();
        }
        send_bytes(out, &reply, sizeof(reply));
    }
    grail_ipc_fini();
    grail_gpu_fini();
}

static answer_t tell(pipes_t *p, char what, int index, size_t size, unsigned char value)
{
    order_t order = {what, index, size, value};
    answer_t answer;

    send_bytes(p->to_peer[1], &order, sizeof(order));
    get_bytes(p->from_peer[0], &answer, sizeof(answer));
    return answer;
}

static grail_ipc_key_t allocate(pipes_t *p, int index, size_t size, unsigned char value)
{
    answer_t answer = tell(p, 'A', index, size, value);

    CHECK_OK(answer.status);
    return answer.key;
}

/* ---- our side ---- */

static gpu_buf_t mine;

static grail_gpu_t *start(pipes_t *p)
{
    const char *device = getenv("MY_DEVICE");

    start_peer(p, serve);
    driver_on(device != NULL ? atoi(device) : 0);
    CHECK(gpu_buf_alloc(&mine, 'D', 4 << 20, 0) == GPU_OK);
    return gpu_of(mine.ptr);
}

static void stop(pipes_t *p)
{
    grail_ipc_fini();
    if (simulated())
        CHECK(sim_count_of("ipc_live") == 0);
    gpu_buf_free(&mine);
    end_peer(p);
    grail_gpu_fini();
}

static grail_ipc_map_t *map(grail_gpu_t *gpu, const grail_ipc_key_t *key)
{
    const char *why = NULL;
    grail_ipc_map_t *m = NULL;
    grail_status_t status = grail_ipc_map(gpu, key, &m, &why);

    if (status != GRAIL_OK)
        fprintf(stderr, "# not mapped: %s\n", why);
    CHECK_OK(status);
    return m;
}

static void check_byte(grail_gpu_t *gpu, grail_ipc_map_t *m, size_t at, unsigned char value)
{
    unsigned char got[64];
    grail_copy_t op;
    grail_status_t status;

    CHECK_OK(grail_copy_start(gpu, GRAIL_LANE_PEER, mine.ptr, (char *)m->address + at, 64, &op));
    while ((status = grail_copy_test(&op)) == GRAIL_IN_PROGRESS)
        usleep(10);
    CHECK_OK(status);
    gpu_read(&mine, 0, got, sizeof(got));
    for (size_t i = 0; i < sizeof(got); ++i)
        CHECK(got[i] == value);
}

static void map_and_cache(void)
{
    pipes_t p;
    grail_gpu_t *gpu = start(&p);
    grail_ipc_key_t large = allocate(&p, 0, 8 << 20, 0x41);
    grail_ipc_key_t small = allocate(&p, 1, 1000, 0x42);
    grail_ipc_key_t neighbour = allocate(&p, 2, 1000, 0x43);
    grail_ipc_map_t *a, *b, *c;

    CHECK(large.size == 8 << 20 && large.owner != grail_ipc_owner());
    CHECK(small.owner == large.owner && small.buffer_id != neighbour.buffer_id);
    a = map(gpu, &large);
    check_byte(gpu, a, 0, 0x41);
    check_byte(gpu, a, (8 << 20) - 64, 0x41);
    b = map(gpu, &small);
    c = map(gpu, &neighbour);
    check_byte(gpu, b, 900, 0x42);
    check_byte(gpu, c, 0, 0x43);
    CHECK(query(a->address).kind == GRAIL_MEM_IMPORTED);
    CHECK(!query(a->address).exportable);
    CHECK(grail_ipc_is_mapping((CUdeviceptr)(uintptr_t)a->address));
    CHECK(!grail_ipc_is_mapping((CUdeviceptr)(uintptr_t)mine.ptr));
    grail_ipc_release(a);
    if (simulated()) {
        long long opens = sim_count_of("ipc_opens");

        for (int i = 0; i < 100; ++i) {
            grail_ipc_map_t *again = map(gpu, &large);

            CHECK(again == a);
            grail_ipc_release(again);
        }
        CHECK(sim_count_of("ipc_opens") == opens);
    }
    grail_ipc_release(b);
    grail_ipc_release(c);
    stop(&p);
}

static void test_map_and_cache(void **state)
{
    (void)state;
    in_child("", map_and_cache);
    assert_quiet();
    in_child("CUDASIM_DEVICES=2 OWNER_DEVICE=1", map_and_cache);
    assert_quiet();
}

/* The owner frees and allocates again at the same address: never the old contents. */
static void reallocated(void)
{
    pipes_t p;
    grail_gpu_t *gpu = start(&p);
    grail_ipc_key_t before = {0};
    int same = 0;

    for (int i = 0; i < 10; ++i) {
        grail_ipc_key_t key = allocate(&p, 0, 4 << 20, (unsigned char)(0x60 + i));
        grail_ipc_map_t *m = map(gpu, &key);

        check_byte(gpu, m, 1 << 20, (unsigned char)(0x60 + i));
        same += i > 0 && before.base == key.base;
        CHECK(i == 0 || before.buffer_id != key.buffer_id);
        if (simulated() && before.base == key.base)
            CHECK(sim_count_of("ipc_live") == 1);
        grail_ipc_release(m);
        before = key;
        tell(&p, 'F', 0, 0, 0);
    }
    if (simulated())
        CHECK(same > 0);
    stop(&p);
}

static void test_reallocated(void **state)
{
    (void)state;
    in_child("", reallocated);
    assert_quiet();
}

/* A mapping in use outlives the news that its owner freed it, until it is released. */
static void forgotten_in_use(void)
{
    pipes_t p;
    grail_gpu_t *gpu = start(&p);
    grail_ipc_key_t first = allocate(&p, 0, 4 << 20, 1);
    grail_ipc_key_t second = allocate(&p, 1, 4 << 20, 2);
    grail_ipc_map_t *a = map(gpu, &first), *b = map(gpu, &second), *again;

    if (!simulated())
        CHILD_SKIP("only the simulated driver counts");
    grail_ipc_forget(first.owner, first.base, first.buffer_id + 1);     /* another */
    grail_ipc_forget(first.owner + 1, first.base, first.buffer_id);
    CHECK(sim_count_of("ipc_live") == 2);
    grail_ipc_forget(first.owner, first.base, first.buffer_id);
    CHECK(sim_count_of("ipc_live") == 2);
    check_byte(gpu, a, 0, 1);
    again = map(gpu, &first);           /* a late message of the same buffer: opened anew */
    CHECK(again != a);
    grail_ipc_release(a);
    check_byte(gpu, again, 0, 1);
    grail_ipc_forget(first.owner, 0, 0);
    check_byte(gpu, b, 0, 2);
    grail_ipc_release(again);
    grail_ipc_release(b);
    CHECK(sim_count_of("ipc_live") == 0);
    stop(&p);
}

static void test_forgotten_in_use(void **state)
{
    (void)state;
    in_child("", forgotten_in_use);
    assert_quiet();
}

static void bounded(void)
{
    pipes_t p;
    grail_gpu_t *gpu = start(&p);
    grail_ipc_key_t keys[12];
    grail_ipc_map_t *used, *m;

    if (!simulated())
        CHILD_SKIP("only the simulated driver counts");
    for (int i = 0; i < 12; ++i)
        keys[i] = allocate(&p, i, 2 << 20, (unsigned char)i);
    used = map(gpu, &keys[0]);
    for (int i = 1; i < 12; ++i) {
        m = map(gpu, &keys[i]);
        grail_ipc_release(m);
        CHECK(sim_count_of("ipc_live") <= 4);
    }
    CHECK(sim_count_of("ipc_live") == 4);
    check_byte(gpu, used, 0, 0);                /* never closed under its user */
    long long opens = sim_count_of("ipc_opens");

    grail_ipc_release(map(gpu, &keys[11]));     /* the last used are kept */
    grail_ipc_release(map(gpu, &keys[10]));
    CHECK(sim_count_of("ipc_opens") == opens);
    grail_options.ipc_cache_bytes = 5 << 20;
    grail_ipc_release(map(gpu, &keys[1]));
    CHECK(sim_count_of("ipc_live") == 2);       /* the one in use, and the last one */
    grail_options.ipc_cache_bytes = 1 << 20;
    m = map(gpu, &keys[2]);
    check_byte(gpu, m, 0, 2);
    grail_ipc_release(m);
    CHECK(sim_count_of("ipc_live") == 1);
    grail_ipc_release(used);
    CHECK(sim_count_of("ipc_live") == 0);
    stop(&p);
}

static void test_bounded(void **state)
{
    (void)state;
    in_child("GRAIL_IPC_CACHE=4", bounded);
    assert_quiet();
}

/* Fini with mappings in use, which are released after it. */
static void fini_in_use(void)
{
    pipes_t p;
    grail_gpu_t *gpu = start(&p);
    grail_ipc_key_t key = allocate(&p, 0, 4 << 20, 1);
    grail_ipc_map_t *a = map(gpu, &key), *b;

    grail_ipc_fini();
    if (simulated())
        CHECK(sim_count_of("ipc_live") == 0);
    grail_ipc_release(a);
    b = map(gpu, &key);
    check_byte(gpu, b, 0, 1);
    grail_ipc_release(b);
    stop(&p);
}

static void test_fini_in_use(void **state)
{
    (void)state;
    in_child("", fini_in_use);
    assert_quiet();
}

/* The owner dies; its memory stays mapped until we are told, and closing works. */
static void owner_dies(void)
{
    pipes_t p;
    grail_gpu_t *gpu = start(&p);
    grail_ipc_key_t key = allocate(&p, 0, 4 << 20, 9);
    grail_ipc_map_t *m = map(gpu, &key);
    int status;

    kill(p.peer, SIGKILL);
    CHECK(waitpid(p.peer, &status, 0) == p.peer);
    grail_ipc_forget(key.owner, 0, 0);
    grail_ipc_release(m);
    if (simulated())
        CHECK(sim_count_of("ipc_live") == 0);
    grail_ipc_fini();
    grail_gpu_fini();
}

static void test_owner_dies(void **state)
{
    (void)state;
    in_child("", owner_dies);
    assert_quiet();
}

/* ---- what the owner is told ---- */

static void stale_reports(void)
{
    pipes_t p;
    grail_ipc_key_t a, b;
    answer_t answer;

    start(&p);
    a = allocate(&p, 0, 4 << 20, 1);
    b = allocate(&p, 1, 4 << 20, 2);
    answer = tell(&p, 'S', 0, 0, 0);
    CHECK(answer.stale == 0);
    tell(&p, 'F', 0, 0, 0);
    answer = tell(&p, 'S', 0, 0, 0);
    CHECK(answer.stale == 1 && answer.stale_base == a.base && answer.stale_id == a.buffer_id);
    answer = tell(&p, 'S', 0, 0, 0);
    CHECK(answer.stale == 0);
    tell(&p, 'F', 1, 0, 0);
    answer = tell(&p, 'A', 2, 1 << 20, 3);      /* a new export finds it, too */
    CHECK(answer.stale == 1 && answer.stale_base == b.base && answer.stale_id == b.buffer_id);
    for (int i = 3; i < BUFFERS; ++i)
        allocate(&p, i, 4096, 0);
    for (int i = 2; i < BUFFERS; ++i)
        tell(&p, 'F', i, 0, 0);
    answer = tell(&p, 'S', 0, 0, 0);
    CHECK(answer.stale == BUFFERS - 2);
    stop(&p);
}

static void test_stale_reports(void **state)
{
    (void)state;
    in_child("", stale_reports);
    assert_quiet();
}

static void exports_once(void)
{
    gpu_buf_t buf;
    grail_ipc_key_t key, again;
    const char *why = NULL;
    grail_mem_t mem;

    driver_on(0);
    if (!simulated())
        CHILD_SKIP("only the simulated driver counts");
    CHECK(gpu_buf_alloc(&buf, 'D', 1 << 20, 0) == GPU_OK);
    mem = query(buf.ptr + 77);
    CHECK_OK(grail_ipc_export(&mem, &key, &why));
    for (int i = 0; i < 10; ++i) {
        CHECK_OK(grail_ipc_export(&mem, &again, &why));
        CHECK(memcmp(&key, &again, sizeof(key)) == 0);
    }
    CHECK(sim_count_of("calls.cuIpcGetMemHandle") == 1);
    grail_ipc_fini();
    grail_gpu_fini();
}

static void test_exports_once(void **state)
{
    (void)state;
    in_child("", exports_once);
    assert_quiet();
}

/* ---- what cannot be exported ---- */

static void not_exportable(void)
{
    static const struct {
        char kind;
        const char *says;
    } cases[] = {
        {'A', "cudaMallocAsync"}, {'V', "cuMemCreate"}, {'W', "cuMemCreate"}, {'X', "cuMemCreate"},
        {'M', "managed"}, {'S', "__device__"},
    };

    driver_on(0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        grail_ipc_key_t key;
        gpu_buf_t buf;
        const char *why = NULL;
        grail_mem_t mem;

        if (gpu_buf_alloc(&buf, cases[i].kind, 1024, 0) != GPU_OK)
            continue;
        mem = query(buf.ptr);
        CHECK(grail_ipc_export(&mem, &key, &why) == GRAIL_ERR_UNSUPPORTED);
        CHECK(why != NULL && strstr(why, cases[i].says) != NULL);
        gpu_buf_free(&buf);
    }
    grail_gpu_fini();
}

static void test_not_exportable(void **state)
{
    (void)state;
    in_child("", not_exportable);
    assert_quiet();
}

static void get_fails(void)
{
    gpu_buf_t buf;
    grail_ipc_key_t key;
    const char *why = NULL;
    grail_mem_t mem;

    driver_on(0);
    if (!simulated())
        CHILD_SKIP("only the simulated driver can refuse");
    CHECK(gpu_buf_alloc(&buf, 'D', 1 << 20, 0) == GPU_OK);
    mem = query(buf.ptr);
    for (int i = 0; i < 5; ++i) {
        CHECK(grail_ipc_export(&mem, &key, &why) == GRAIL_ERR_UNSUPPORTED);
        CHECK(why != NULL);
    }
    CHECK(sim_count_of("calls.cuIpcGetMemHandle") <= 1);        /* an answer is an answer */
    grail_ipc_fini();
    grail_gpu_fini();
}

static void test_get_fails(void **state)
{
    (void)state;
    in_child("CUDASIM_IPC_FAIL=get", get_fails);
    assert_quiet();
}

/* ---- what cannot be mapped ---- */

static const char *refused(const char *says)
{
    pipes_t p;
    grail_gpu_t *gpu = start(&p);
    grail_ipc_key_t key = allocate(&p, 0, 4 << 20, 1);
    grail_ipc_map_t *m = NULL;
    const char *why = NULL;
    long long opens;

    if (!simulated())
        CHILD_SKIP("only the simulated driver can refuse");
    for (int i = 0; i < 10; ++i) {
        CHECK(grail_ipc_map(gpu, &key, &m, &why) == GRAIL_ERR_UNSUPPORTED);
        CHECK(m == NULL && why != NULL);
    }
    if (strstr(why, says) == NULL)
        fprintf(stderr, "# says: %s\n", why);
    CHECK(strstr(why, says) != NULL);
    opens = sim_count_of("calls.cuIpcOpenMemHandle");
    CHECK(opens <= 4);                                  /* given up */
    grail_ipc_forget(key.owner, 0, 0);                  /* that process: not its successor */
    CHECK(grail_ipc_map(gpu, &key, &m, &why) == GRAIL_ERR_UNSUPPORTED);
    stop(&p);
    return why;
}

static void no_p2p(void)
{
    refused("have no peer-to-peer access");
    CHECK(sim_count_of("calls.cuIpcOpenMemHandle") == 0);
}

static void open_fails(void)
{
    refused("--ipc=host");
}

static void masked(void)
{
    pipes_t p;

    /* the owner sees both GPUs and uses the second, we see the first */
    start_peer(&p, serve);
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    driver_on(0);
    CHECK(gpu_buf_alloc(&mine, 'D', 4096, 0) == GPU_OK);
    grail_gpu_t *gpu = gpu_of(mine.ptr);
    grail_ipc_key_t key = allocate(&p, 0, 4 << 20, 1);
    grail_ipc_map_t *m;
    const char *why = NULL;

    if (!simulated())
        CHILD_SKIP("only the simulated driver can refuse");
    CHECK(grail_ipc_map(gpu, &key, &m, &why) == GRAIL_ERR_UNSUPPORTED);
    CHECK(strstr(why, "CUDA_VISIBLE_DEVICES") != NULL && strstr(why, "--gpus-per-task") != NULL);
    stop(&p);
}

static void masked_but_works(void)
{
    pipes_t p;
    grail_ipc_key_t key;
    grail_ipc_map_t *m;

    start_peer(&p, serve);
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    driver_on(0);
    CHECK(gpu_buf_alloc(&mine, 'D', 4096, 0) == GPU_OK);
    key = allocate(&p, 0, 4 << 20, 7);
    m = map(gpu_of(mine.ptr), &key);
    check_byte(gpu_of(mine.ptr), m, 0, 7);
    grail_ipc_release(m);
    stop(&p);
}

static void test_refused(void **state)
{
    (void)state;
    in_child("CUDASIM_DEVICES=2 OWNER_DEVICE=1 CUDASIM_NO_P2P=0-1", no_p2p);
    assert_quiet();
    in_child("CUDASIM_IPC_FAIL=open", open_fails);
    assert_quiet();
    in_child("CUDASIM_DEVICES=2 OWNER_DEVICE=1 CUDASIM_MASKED_IPC_FAIL=1", masked);
    assert_quiet();
    in_child("CUDASIM_DEVICES=2 OWNER_DEVICE=1", masked_but_works);
    assert_quiet();
}

static void option_off(void)
{
    pipes_t p;
    grail_gpu_t *gpu = start(&p);
    grail_ipc_key_t key = {.owner = 1, .base = 4096, .size = 1};
    grail_ipc_map_t *m;
    const char *why = NULL;

    CHECK(tell(&p, 'A', 0, 4096, 0).status == GRAIL_ERR_UNSUPPORTED);
    CHECK(grail_ipc_map(gpu, &key, &m, &why) == GRAIL_ERR_UNSUPPORTED);
    CHECK(strstr(why, "option ipc is off") != NULL);
    stop(&p);
}

static void test_option_off(void **state)
{
    (void)state;
    in_child("GRAIL_IPC=off", option_off);
    assert_quiet();
}

/* No room: what nobody uses is closed, and the open tried again. */
static void no_room(void)
{
    pipes_t p;
    grail_gpu_t *gpu = start(&p);
    grail_ipc_key_t a = allocate(&p, 0, 4 << 20, 1), b = allocate(&p, 1, 4 << 20, 2);
    grail_ipc_map_t *m;
    const char *why = NULL;

    grail_ipc_release(map(gpu, &a));
    sim_faults("cuIpcOpenMemHandle:1:CUDA_ERROR_OUT_OF_MEMORY");
    m = map(gpu, &b);
    check_byte(gpu, m, 0, 2);
    CHECK(sim_count_of("ipc_live") == 1);
    sim_faults("cuIpcOpenMemHandle:*:CUDA_ERROR_OUT_OF_MEMORY");
    for (int i = 0; i < 10; ++i) {
        grail_ipc_map_t *none;

        CHECK(grail_ipc_map(gpu, &a, &none, &why) == GRAIL_ERR_UNSUPPORTED);
        CHECK(strstr(why, "GRAIL_IPC_CACHE_BYTES") != NULL);
    }
    sim_faults("");                             /* and it is not held against the peer */
    grail_ipc_release(m);
    m = map(gpu, &a);
    check_byte(gpu, m, 0, 1);
    grail_ipc_release(m);
    stop(&p);
}

static void test_no_room(void **state)
{
    (void)state;
    in_child("", no_room);
    assert_quiet();
}

/* Memory of this very process needs no handle, whatever its kind. */
static void local(void)
{
    gpu_buf_t buf;
    grail_mem_t mem;
    grail_ipc_map_t *m;
    grail_ipc_key_t key;

    driver_on(0);
    CHECK(gpu_buf_alloc(&buf, 'D', 4096, 0) == GPU_OK);
    mem = query(buf.ptr);
    key = (grail_ipc_key_t){.owner = grail_ipc_owner(), .base = mem.base, .size = mem.size};
    m = map(gpu_of(buf.ptr), &key);
    CHECK(m->address == (void *)(uintptr_t)mem.base);
    grail_ipc_release(m);
    if (simulated())
        CHECK(sim_count_of("calls.cuIpcOpenMemHandle") == 0);
    CHECK(grail_ipc_owner() == key.owner && key.owner != 0);
    grail_gpu_fini();
}

static void test_local(void **state)
{
    (void)state;
    in_child("", local);
    assert_quiet();
}

/* The context that mapped it is destroyed by the program. */
static void context_destroyed(void)
{
    pipes_t p;
    CUcontext context, popped;
    CUdeviceptr any;
    grail_ipc_key_t key;
    const gpu_driver_t *d;

    start(&p);
    d = gpu_driver();
    key = allocate(&p, 0, 4 << 20, 1);
    CHECK(d->cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    CHECK(d->cuMemAlloc_v2(&any, 64) == CUDA_SUCCESS);
    grail_gpu_t *gpu = gpu_of((void *)(uintptr_t)any);
    grail_ipc_map_t *m = map(gpu, &key);

    CHECK(d->cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS);
    CHECK(d->cuCtxDestroy_v2(context) == CUDA_SUCCESS);
    grail_ipc_release(m);
    m = map(gpu_of(mine.ptr), &key);
    check_byte(gpu_of(mine.ptr), m, 0, 1);
    grail_ipc_release(m);
    stop(&p);
}

static void test_context_destroyed(void **state)
{
    (void)state;
    in_child("", context_destroyed);
    assert_quiet();
}

/* ---- proof by data ---- */

static void prove(grail_p2p_state_t expected, const char *says)
{
    pipes_t p;
    grail_gpu_t *gpu = start(&p);
    answer_t answer = tell(&p, 'P', 0, 0, 0), again = tell(&p, 'P', 0, 0, 0);
    const char *why = NULL;
    grail_p2p_state_t state;

    if (!simulated() && expected == GRAIL_P2P_BAD)
        CHILD_SKIP("only the simulated driver can damage data");
    CHECK_OK(answer.status);
    CHECK(memcmp(&answer.key, &again.key, sizeof(answer.key)) == 0);
    state = grail_p2p_state(gpu, &answer.key.gpu, &why);
    CHECK(state == GRAIL_P2P_UNKNOWN || state == expected);
    for (int i = 0; i < 3; ++i) {
        why = NULL;
        state = grail_p2p_prove(gpu, &answer.key, &why);
        if (state != expected)
            fprintf(stderr, "# state %d: %s\n", (int)state, why != NULL ? why : "");
        CHECK(state == expected);
        CHECK((why != NULL) == (expected == GRAIL_P2P_BAD));
        if (says != NULL)
            CHECK(strstr(why, says) != NULL);
        CHECK(grail_p2p_state(gpu, &answer.key.gpu, &why) == expected);
    }
    stop(&p);
    if (simulated())
        CHECK(sim_count_of("allocs_live") == 0);
}

static void good(void)
{
    prove(GRAIL_P2P_GOOD, NULL);
}

static void damaged(void)
{
    prove(GRAIL_P2P_BAD, "disable ACS");
}

static void unreachable(void)
{
    prove(GRAIL_P2P_BAD, "have no peer-to-peer access");
}

/* A refusal to open says something about this owner, not about the pair of GPUs. */
static void not_opened(void)
{
    pipes_t p;
    grail_gpu_t *gpu = start(&p);
    answer_t answer = tell(&p, 'P', 0, 0, 0);
    grail_p2p_state_t state = GRAIL_P2P_UNKNOWN;
    const char *why = NULL;

    CHECK_OK(answer.status);
    for (int i = 0; i < 3; ++i) {
        state = grail_p2p_prove(gpu, &answer.key, &why);
        CHECK(why != NULL && strstr(why, "cannot open the peer's memory") != NULL);
        CHECK(grail_p2p_state(gpu, &answer.key.gpu, &why) == GRAIL_P2P_UNKNOWN);
    }
    CHECK(state == GRAIL_P2P_BAD);
    CHECK(grail_ipc_blocked(gpu, answer.key.owner, &answer.key.gpu) == why);
    CHECK(grail_ipc_blocked(gpu, answer.key.owner + 1, &answer.key.gpu) == NULL);
    grail_ipc_forget(answer.key.owner, 0, 0);
    CHECK(grail_ipc_blocked(gpu, answer.key.owner, &answer.key.gpu) == NULL);
    stop(&p);
}

static void test_proof(void **state)
{
    (void)state;
    in_child("", good);
    assert_quiet();
    in_child("CUDASIM_DEVICES=2 OWNER_DEVICE=1", good);
    assert_quiet();
    in_child("GRAIL_P2P_CHECK=off", good);
    assert_quiet();
    in_child("CUDASIM_DEVICES=2 OWNER_DEVICE=1 CUDASIM_P2P_CORRUPT=0-1", damaged);
    assert_quiet();
    in_child("CUDASIM_DEVICES=2 OWNER_DEVICE=1 CUDASIM_NO_P2P=0-1", unreachable);
    assert_quiet();
    in_child("CUDASIM_IPC_FAIL=open", not_opened);
    assert_quiet();
}

/* No device memory for the check, or what may pass: no verdict, another try later. */
static void no_memory_for_proof(void)
{
    pipes_t p;
    grail_gpu_t *gpu = start(&p);
    answer_t answer = tell(&p, 'P', 0, 0, 0);
    const char *why = NULL;

    CHECK_OK(answer.status);
    /* no room to map it, and a peer that goes away just then */
    sim_faults("cuIpcOpenMemHandle:*:CUDA_ERROR_OUT_OF_MEMORY");
    CHECK(grail_p2p_prove(gpu, &answer.key, &why) == GRAIL_P2P_UNKNOWN);
    sim_faults("cuIpcOpenMemHandle:*:CUDA_ERROR_INVALID_VALUE");
    CHECK(grail_p2p_prove(gpu, &answer.key, &why) == GRAIL_P2P_UNKNOWN);
    sim_faults("cuMemAlloc:*:CUDA_ERROR_OUT_OF_MEMORY");
    CHECK(grail_p2p_prove(gpu, &answer.key, &why) == GRAIL_P2P_UNKNOWN);
    CHECK(why != NULL);
    sim_faults("");
    CHECK(grail_p2p_prove(gpu, &answer.key, &why) == GRAIL_P2P_GOOD);
    stop(&p);
}

static void test_no_memory_for_proof(void **state)
{
    (void)state;
    in_child("", no_memory_for_proof);
    assert_quiet();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map_and_cache),
        cmocka_unit_test(test_reallocated),
        cmocka_unit_test(test_forgotten_in_use),
        cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_fini_in_use),
        cmocka_unit_test(test_owner_dies),
        cmocka_unit_test(test_stale_reports),
        cmocka_unit_test(test_exports_once),
        cmocka_unit_test(test_not_exportable),
        cmocka_unit_test(test_get_fails),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_option_off),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_local),
        cmocka_unit_test(test_context_destroyed),
        cmocka_unit_test(test_proof),
        cmocka_unit_test(test_no_memory_for_proof),
    };

    return cmocka_run_group_tests_name("ipc", tests, NULL, NULL);
}
