/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding out whether CUDA is in use, and refusing what cannot work. */
#include "tests/unit/cuda_child.h"

#include "cuda-aware/driver.h"
#include "runtime/options.h"

static void *load_library(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    if (library == NULL)
        CHILD_SKIP("there is no CUDA driver, not even the simulated one");
    return library;
}

static void initialise(void *library)
{
    CUresult (*init)(unsigned) = NULL;
    void *symbol = dlsym(library, "cuInit");

    memcpy(&init, &symbol, sizeof(symbol));
    CHECK(init(0) == CUDA_SUCCESS);
}

static void unused(void)
{
    char text[200];

    for (int i = 0; i < 3; ++i)
        CHECK(!grail_cuda_ready());
    CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) == NULL);
    CHECK(!grail_cuda_gone());
    CHECK(grail_cuda_driver_version() == 0);
    grail_cuda_describe(text, sizeof(text));
    CHECK(strstr(text, "not in use") != NULL);
}

static void test_unused(void **state)
{
    (void)state;
    in_child("", unused);
    assert_string_equal(child_log, "");
}

static void loaded(void)
{
    char text[200];
    int device;

    CHECK(!grail_cuda_ready());
    void *library = load_library();

    CHECK(!grail_cuda_ready());
    if (simulated())
        CHECK(sim_count_of("calls.cuInit") == 0);
    grail_cuda_describe(text, sizeof(text));
    CHECK(strstr(text, "not initialised") != NULL);
    initialise(library);
    CHECK(grail_cuda_ready());
    CHECK(grail_cuda_ready());
    CHECK(grail_cuda_driver_version() >= 11040);
    CHECK(grail_cuda.DeviceGet(&device, 0) == CUDA_SUCCESS);
    if (simulated()) {
        CHECK(sim_count_of("contexts_created") == 0);
        CHECK(sim_count_of("calls.cuInit") == 1);
    }
    grail_cuda_describe(text, sizeof(text));
    CHECK(strstr(text, "GPU") != NULL);
    CHECK(!grail_cuda_gone());
}

static void test_loaded_then_initialised(void **state)
{
    (void)state;
    in_child("", loaded);
    assert_string_equal(child_log, "");
}

static void option_off(void)
{
    char text[200];

    initialise(load_library());
    CHECK(!grail_cuda_ready());
    CHECK(grail_cuda_load() == GRAIL_ERR_UNSUPPORTED);
    grail_cuda_describe(text, sizeof(text));
    CHECK(strstr(text, "option cuda is off") != NULL);
}

static void test_option_off(void **state)
{
    (void)state;
    in_child("GRAIL_CUDA=off", option_off);
    assert_string_equal(child_log, "");
}

static void too_old(void)
{
    char text[200];

    initialise(load_library());
    if (!simulated())
        CHILD_SKIP("only the simulated driver can be made old");
    for (int i = 0; i < 3; ++i)
        CHECK(!grail_cuda_ready());
    CHECK(grail_cuda_load() == GRAIL_ERR_UNSUPPORTED);
    grail_cuda_describe(text, sizeof(text));
    CHECK(strstr(text, "11.2") != NULL && strstr(text, "11.4") != NULL);
}

static void test_too_old(void **state)
{
    (void)state;
    in_child("CUDASIM_DRIVER_VERSION=11020", too_old);
    assert_logged("the CUDA driver is version 11.2, and at least 11.4 is needed", 1);
}

static void load(void)
{
    grail_status_t status = grail_cuda_load();

    if (status == GRAIL_ERR_UNSUPPORTED)
        CHILD_SKIP("there is no CUDA driver, not even the simulated one");
    CHECK_OK(status);
    CHECK(grail_cuda_ready());
    CHECK_OK(grail_cuda_load());
}

static void test_load(void **state)
{
    (void)state;
    in_child("", load);
    assert_quiet();
}

static void no_device(void)
{
    CHECK(grail_cuda_load() == GRAIL_ERR_UNSUPPORTED);
    CHECK(!grail_cuda_ready());
}

static void test_no_device(void **state)
{
    (void)state;
    in_child("CUDA_VISIBLE_DEVICES= CUDASIM_DEVICES=0 GRAIL_VERBOSE=info", no_device);
    assert_quiet();
}

static void init_fails(void)
{
    load_library();
    if (!simulated())
        CHILD_SKIP("faults can be injected into the simulated driver only");
    CHECK(grail_cuda_load() == GRAIL_ERR_CUDA);
    CHECK(!grail_cuda_ready());
}

static void test_init_fails(void **state)
{
    (void)state;
    in_child("CUDASIM_FAIL=cuInit:*:CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", init_fails);
    assert_logged("cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", 1);
}

static void failures(void)
{
    CHECK_OK(grail_cuda_load());
    CHECK(grail_cuda_fail(CUDA_ERROR_OUT_OF_MEMORY, "one") == GRAIL_ERR_NO_DEVICE_MEMORY);
    CHECK(grail_cuda_fail(CUDA_ERROR_ILLEGAL_ADDRESS, "two") == GRAIL_ERR_CUDA);
    CHECK(grail_cuda_fail((CUresult)54321, "three") == GRAIL_ERR_CUDA);
    CHECK(!grail_cuda_gone());
    CHECK(grail_cuda_fail(CUDA_ERROR_DEINITIALIZED, "four") == GRAIL_ERR_CUDA);
    CHECK(grail_cuda_gone());
    CHECK(!grail_cuda_ready());
}

static void test_failures(void **state)
{
    (void)state;
    in_child("", failures);
    assert_logged("one failed: CUDA_ERROR_OUT_OF_MEMORY", 1);
    assert_logged("two failed: CUDA_ERROR_ILLEGAL_ADDRESS", 1);
    assert_logged("three failed: ", 1);
    assert_logged("four", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unused),
        cmocka_unit_test(test_loaded_then_initialised),
        cmocka_unit_test(test_option_off),
        cmocka_unit_test(test_too_old),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_no_device),
        cmocka_unit_test(test_init_fails),
        cmocka_unit_test(test_failures),
    };

    return cmocka_run_group_tests_name("driver", tests, NULL, NULL);
}
