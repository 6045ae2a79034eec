/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulated driver: memory and events between processes, links between devices. */
#include <signal.h>
#include <sys/socket.h>

#include "tests/cudasim/child.h"
#include "tests/cudasim/test_kernels.h"

typedef struct message {
    CUipcMemHandle handle[3];
    CUmemPoolPtrExportData pointer;
    CUipcEventHandle event;
} message_t;

typedef struct pair {
    channel_t to_importer, to_owner;
    int socket[2];
    int arg;
} pair_t;

static void tell(const channel_t *channel)
{
    channel_send(channel, "", 1);
}

static void await(const channel_t *channel)
{
    char token;
    channel_receive(channel, &token, 1);
}

static void run_pair(const char *owner_settings, child_fn_t owner, const char *importer_settings,
                     child_fn_t importer, int arg)
{
    pair_t pair = {.arg = arg};
    assert_int_equal(pipe(pair.to_importer.fd), 0);
    assert_int_equal(pipe(pair.to_owner.fd), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair.socket), 0);
    pid_t a = child_start(owner_settings, owner, &pair);
    pid_t b = child_start(importer_settings, importer, &pair);
    int a_result = child_wait(a), b_result = child_wait(b);
    for (int i = 0; i < 2; i++) {
        close(pair.to_importer.fd[i]);
        close(pair.to_owner.fd[i]);
        close(pair.socket[i]);
    }
    assert_int_equal(a_result, 0);
    assert_int_equal(b_result, 0);
}

static void fill(CUdeviceptr dst, int value, size_t bytes)
{
    OK(cuMemsetD8_v2(dst, (unsigned char)value, bytes));
    OK(cuCtxSynchronize());
}

static int first_byte(CUdeviceptr src)
{
    unsigned char byte;
    OK(cuMemcpyDtoH_v2(&byte, src, 1));
    return byte;
}

/* ---- Mapping and its life ------------------------------------------------------------------- */

enum { LARGE = 3 << 20, SMALL = 700 };

static void share_owner(void *arg)
{
    const pair_t *pair = arg;
    message_t m;
    CUdeviceptr large, small, small2, self;
    child_cuda();
    OK(cuMemAlloc_v2(&large, LARGE));
    OK(cuMemAlloc_v2(&small, SMALL));
    OK(cuMemAlloc_v2(&small2, SMALL));
    fill(large, 1, LARGE);
    fill(small, 2, SMALL);
    fill(small2, 3, SMALL);
    OK(cuIpcGetMemHandle(&m.handle[0], large + 5)); /* of an interior pointer: the allocation's */
    OK(cuIpcGetMemHandle(&m.handle[1], small));
    OK(cuIpcGetMemHandle(&m.handle[2], small2));
    CHECK_CU(CUDA_ERROR_INVALID_CONTEXT,
             cuIpcOpenMemHandle_v2(&self, m.handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    channel_send(&pair->to_importer, &m, sizeof(m));
    await(&pair->to_owner); /* the importer wrote */
    CHECK(first_byte(large) == 11 && first_byte(small2) == 13);
    OK(cuMemFree_v2(large));
    OK(cuMemFree_v2(small2));
    CUdeviceptr again;
    OK(cuMemAlloc_v2(&again, SMALL));
    CHECK(again == small2);
    fill(again, 4, SMALL);
    m.handle[0] = m.handle[2]; /* stale */
    OK(cuIpcGetMemHandle(&m.handle[1], again));
    CHECK(memcmp(&m.handle[1], &m.handle[2], sizeof(m.handle[1])) != 0);
    channel_send(&pair->to_importer, &m, sizeof(m));
    await(&pair->to_owner);
}

static void share_importer(void *arg)
{
    const pair_t *pair = arg;
    const unsigned int lazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    message_t m;
    CUdeviceptr large, small, small2, twice, base;
    size_t bytes;
    CUcontext ctx = child_cuda(), got_ctx;
    unsigned int capable;
    channel_receive(&pair->to_importer, &m, sizeof(m));
    OK(cuIpcOpenMemHandle_v2(&large, m.handle[0], lazy));
    OK(cuIpcOpenMemHandle_v2(&small, m.handle[1], lazy));
    OK(cuIpcOpenMemHandle_v2(&small2, m.handle[2], lazy));
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&twice, m.handle[0], 0));
    CHECK(cudasim_get("ipc_live") == 3 && cudasim_get("device_bytes.0") == 0);
    CHECK(first_byte(large) == 1 && first_byte(small) == 2 && first_byte(small2) == 3);
    OK(cuMemGetAddressRange_v2(&base, &bytes, small2 + SMALL - 1));
    CHECK(base == small2 && bytes == SMALL);
    OK(cuPointerGetAttribute(&got_ctx, CU_POINTER_ATTRIBUTE_CONTEXT, large));
    OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, large));
    CHECK(got_ctx == ctx && !capable);
    CUipcMemHandle again;
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&again, large));
    /* Opened twice: one mapping, two references. */
    OK(cuIpcOpenMemHandle_v2(&twice, m.handle[0], lazy));
    CHECK(twice == large && cudasim_get("ipc_live") == 3);
    OK(cuIpcCloseMemHandle(large));
    fill(large, 11, LARGE);
    fill(small2, 13, SMALL);
    tell(&pair->to_owner);
    channel_receive(&pair->to_importer, &m, sizeof(m));
    /* What the owner freed stays here until it is closed; a stale handle does not open. */
    CHECK(first_byte(large + LARGE - 1) == 11);
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&twice, m.handle[0], lazy));
    OK(cuIpcOpenMemHandle_v2(&twice, m.handle[1], lazy));
    CHECK(twice == small2 && first_byte(twice) == 4);
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(large));
    OK(cuIpcCloseMemHandle(large));
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(large));
    OK(cuIpcCloseMemHandle(small));
    OK(cuIpcCloseMemHandle(small2));
    OK(cuIpcCloseMemHandle(small2));
    CHECK(cudasim_get("ipc_live") == 0);
    tell(&pair->to_owner);
}

static void touching_importer(void *arg)
{
    const pair_t *pair = arg;
    message_t m;
    CUdeviceptr large;
    child_cuda();
    channel_receive(&pair->to_importer, &m, sizeof(m));
    OK(cuIpcOpenMemHandle_v2(&large, m.handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    /* The CPU must not touch it: the kernel says so without a crash. */
    CHECK(write(pair->to_owner.fd[1], (void *)(uintptr_t)large, 1) == -1);
    tell(&pair->to_owner);
}

static void waiting_owner(void *arg)
{
    const pair_t *pair = arg;
    message_t m;
    CUdeviceptr large;
    child_cuda();
    OK(cuMemAlloc_v2(&large, LARGE));
    fill(large, 1, LARGE);
    OK(cuIpcGetMemHandle(&m.handle[0], large));
    channel_send(&pair->to_importer, &m, sizeof(m));
    await(&pair->to_owner);
}

static void test_share(void **state)
{
    (void)state;
    run_pair(NULL, share_owner, NULL, share_importer, 0);
    run_pair(NULL, waiting_owner, NULL, touching_importer, 0);
}

static void dying_owner(void *arg)
{
    const pair_t *pair = arg;
    message_t m;
    CUdeviceptr large;
    child_cuda();
    OK(cuMemAlloc_v2(&large, LARGE));
    fill(large, 9, LARGE);
    OK(cuIpcGetMemHandle(&m.handle[0], large));
    channel_send(&pair->to_importer, &m, sizeof(m));
    await(&pair->to_owner);
    _exit(0);
}

static void outliving_importer(void *arg)
{
    const pair_t *pair = arg;
    message_t m;
    CUdeviceptr large, again;
    child_cuda();
    channel_receive(&pair->to_importer, &m, sizeof(m));
    OK(cuIpcOpenMemHandle_v2(&large, m.handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    /* One device's memory of one process is for one context per device. */
    CUcontext other;
    OK(cuCtxCreate_v2(&other, 0, 0));
    CHECK_CU(CUDA_ERROR_INVALID_HANDLE,
             cuIpcOpenMemHandle_v2(&again, m.handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuCtxDestroy_v2(other));
    tell(&pair->to_owner);
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < 500 && result == CUDA_SUCCESS; i++) {
        usleep(10000);
        result = cuIpcOpenMemHandle_v2(&again, m.handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    }
    CHECK(result == CUDA_ERROR_INVALID_VALUE);
    CHECK(first_byte(large) == 9);
}

static void test_owner_dies(void **state)
{
    (void)state;
    run_pair(NULL, dying_owner, NULL, outliving_importer, 0);
}

/* ---- What cannot be shared, and where ------------------------------------------------------- */

static void incapable(void *arg)
{
    (void)arg;
    CUipcMemHandle handle;
    CUdeviceptr pool, managed;
    void *pinned;
    child_cuda();
    OK(cuMemAllocAsync(&pool, 4096, NULL));
    OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemHostAlloc(&pinned, 4096, 0));
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, pool));
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, managed));
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, (CUdeviceptr)(uintptr_t)pinned));
}

static void get_fails(void *arg)
{
    (void)arg;
    CUipcMemHandle handle;
    CUdeviceptr ptr;
    child_cuda();
    OK(cuMemAlloc_v2(&ptr, 4096));
    CHECK_CU(CUDA_ERROR_NOT_SUPPORTED, cuIpcGetMemHandle(&handle, ptr));
}

static void expecting_importer(void *arg)
{
    const pair_t *pair = arg;
    message_t m;
    CUdeviceptr ptr;
    child_cuda();
    channel_receive(&pair->to_importer, &m, sizeof(m));
    CHECK_CU((CUresult)pair->arg,
             cuIpcOpenMemHandle_v2(&ptr, m.handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    tell(&pair->to_owner);
}

static void test_limits(void **state)
{
    (void)state;
    const char *on_0 = "CUDASIM_DEVICES=3 CUDA_VISIBLE_DEVICES=0";
    assert_int_equal(child_run(NULL, incapable), 0);
    assert_int_equal(child_run("CUDASIM_IPC_FAIL=get", get_fails), 0);
    assert_int_equal(child_run("CUDASIM_MIG=1", get_fails), 0);
    run_pair(on_0, waiting_owner, "CUDASIM_DEVICES=3 CUDA_VISIBLE_DEVICES=2", expecting_importer,
             CUDA_SUCCESS);
    run_pair(on_0, waiting_owner, "CUDASIM_IPC_FAIL=open CUDASIM_DEVICES=3", expecting_importer,
             CUDA_ERROR_INVALID_CONTEXT);
    run_pair(on_0, waiting_owner,
             "CUDASIM_DEVICES=3 CUDA_VISIBLE_DEVICES=2 CUDASIM_NO_P2P=0-2,0-1", expecting_importer,
             CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    run_pair(on_0, waiting_owner, "CUDASIM_DEVICES=3 CUDA_VISIBLE_DEVICES=1 CUDASIM_NO_P2P=all",
             expecting_importer, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    run_pair(on_0, waiting_owner, "CUDASIM_DEVICES=3 CUDASIM_NO_P2P=all", expecting_importer,
             CUDA_SUCCESS); /* one device */
    run_pair(on_0, waiting_owner,
             "CUDASIM_DEVICES=3 CUDA_VISIBLE_DEVICES=1 CUDASIM_MASKED_IPC_FAIL=1",
             expecting_importer, CUDA_ERROR_INVALID_CONTEXT);
}

/* ---- Links that damage data ----------------------------------------------------------------- */

static void damaged_importer(void *arg)
{
    const pair_t *pair = arg;
    message_t m;
    CUdeviceptr far, near;
    child_cuda();
    channel_receive(&pair->to_importer, &m, sizeof(m));
    OK(cuIpcOpenMemHandle_v2(&far, m.handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuMemAlloc_v2(&near, 4096));
    OK(cuMemcpyDtoD_v2(near, far, 4096));
    OK(cuCtxSynchronize());
    int wrong = 0;
    for (int i = 0; i < 4096; i++) {
        wrong += ((unsigned char *)cudasim_alias(near))[i] != 1;
    }
    CHECK((wrong > 0) == (pair->arg != 0) && wrong < 4096);
    CHECK(cudasim_get("copies_peer") == 1);
    /* A kernel's access goes over the same link. */
    CUmodule module;
    CUfunction function;
    OK(cuModuleLoadData(&module, "any image"));
    OK(cuModuleGetFunction(&function, module, "cudasim_test_copy16"));
    cudasim_test_args_t args = {near, far, 256, 0, 0};
    void *params[] = {&args};
    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
    OK(cuCtxSynchronize());
    CHECK((*(unsigned char *)cudasim_alias(near) != 1) == (pair->arg != 0));
    tell(&pair->to_owner);
}

static void test_damage(void **state)
{
    (void)state;
    const char *on_0 = "CUDASIM_DEVICES=2 CUDA_VISIBLE_DEVICES=0";
    run_pair(on_0, waiting_owner, "CUDASIM_DEVICES=2 CUDA_VISIBLE_DEVICES=1", damaged_importer, 0);
    run_pair(on_0, waiting_owner,
             "CUDASIM_DEVICES=2 CUDA_VISIBLE_DEVICES=1 CUDASIM_P2P_CORRUPT=0-1", damaged_importer,
             1);
}

/* ---- File descriptors: VMM, pools; events --------------------------------------------------- */

static void send_fd(int socket, int fd)
{
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
                         .msg_controllen = sizeof(control)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(int));
    CHECK(sendmsg(socket, &msg, 0) == 1);
}

static int receive_fd(int socket)
{
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
                         .msg_controllen = sizeof(control)};
    int fd;
    CHECK(recvmsg(socket, &msg, 0) == 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
    return fd;
}

static const CUmemAllocationProp shareable = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static CUdeviceptr map(CUmemGenericAllocationHandle handle)
{
    CUdeviceptr ptr;
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemAddressReserve(&ptr, 2 << 20, 0, 0, 0));
    OK(cuMemMap(ptr, 2 << 20, 0, handle, 0));
    OK(cuMemSetAccess(ptr, 2 << 20, &access, 1));
    return ptr;
}

static void fd_owner(void *arg)
{
    const pair_t *pair = arg;
    message_t m;
    CUmemGenericAllocationHandle handle;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemoryPool pool;
    CUdeviceptr vmm, in_pool, gate;
    CUevent event;
    int fd;
    child_cuda();
    OK(cuMemCreate(&handle, 2 << 20, &shareable, 0));
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_fd(pair->socket[0], fd);
    close(fd);
    vmm = map(handle);
    OK(cuMemRelease(handle));
    fill(vmm, 21, 2 << 20);
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemAllocFromPoolAsync(&in_pool, 5000, pool, NULL));
    fill(in_pool, 22, 5000);
    OK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_fd(pair->socket[0], fd);
    close(fd);
    OK(cuMemPoolExportPointer(&m.pointer, in_pool));
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuIpcGetEventHandle(&m.event, event));
    OK(cuMemAlloc_v2(&gate, 4));
    OK(cuMemsetD32_v2(gate, 0, 1));
    OK(cuStreamWaitValue32_v2(NULL, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuEventRecord(event, NULL));
    channel_send(&pair->to_importer, &m, sizeof(m));
    await(&pair->to_owner);
    __atomic_store_n((uint32_t *)cudasim_alias(gate), 1, __ATOMIC_RELEASE);
    await(&pair->to_owner);
}

static void fd_importer(void *arg)
{
    const pair_t *pair = arg;
    message_t m;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    CUmemoryPool pool;
    CUdeviceptr vmm, in_pool;
    CUevent event;
    child_cuda();
    int fd = receive_fd(pair->socket[1]), pool_fd = receive_fd(pair->socket[1]);
    channel_receive(&pair->to_importer, &m, sizeof(m));
    OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    OK(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
    CHECK(prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop.location.id == 0);
    vmm = map(handle);
    CHECK(first_byte(vmm) == 21);
    OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)pool_fd,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemPoolImportPointer(&in_pool, pool, &m.pointer));
    CHECK(first_byte(in_pool + 4999) == 22);
    CUdeviceptr none;
    CHECK_CU(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&none, 16, pool, NULL));
    OK(cuIpcOpenEventHandle(&event, m.event));
    CHECK_CU(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    OK(cuStreamWaitEvent(NULL, event, 0));
    usleep(20000);
    CHECK_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    tell(&pair->to_owner);
    OK(cuStreamSynchronize(NULL));
    OK(cuEventQuery(event));
    OK(cuMemFreeAsync(in_pool, NULL));
    OK(cuCtxSynchronize());
    CHECK(cudasim_buffer_id(in_pool) == 0);
    tell(&pair->to_owner);
}

static void test_descriptors(void **state)
{
    (void)state;
    run_pair(NULL, fd_owner, NULL, fd_importer, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share),  cmocka_unit_test(test_owner_dies),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_descriptors),
    };
    return cmocka_run_group_tests_name("simulated driver: processes", tests, NULL, NULL);
}
