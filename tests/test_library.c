/* test_library.c - run-time libraries that are missing, wrong or too old: the text says which file,
 * and what to do. Each case must find the driver not yet loaded, so a process of its own is best.
 */
#include "harness.h"

#include "fakes/fakes.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static lgh_status create_context(lgh_context **context) {
    lgh_context_options options = LGH_CONTEXT_OPTIONS_INIT;
    options.type = LGH_DEVICE_CUDA;
    *context = (lgh_context *)context; /* to see that a failure sets it to null */
    return lgh_context_create(context, &options);
}

/* For cases that watch how the driver is loaded. */
static void skip_where_driver_is_loaded(const char *first_call, lgh_context *context) {
    if (fake_cuda_calls(first_call) > 0)
        return;
    lgh_context_destroy(context);
    lgh_test_skip("another case of this process has loaded the driver");
}

static void assert_not_found(const char *part, const char *another_part) {
    lgh_context *context;
    lgh_assert_status(create_context(&context), LGH_ERROR_LIBRARY_NOT_FOUND);
    assert_null(context);
    lgh_assert_contains(lgh_last_error(), part);
    lgh_assert_contains(lgh_last_error(), another_part);
    lgh_assert_contains(lgh_last_error(), "install");
    assert_int_equal(fake_cuda_count_live().retained, 0);
    assert_int_equal(fake_cuda_depth(), 0);
}

static void missing_driver_is_named_with_a_remedy(void **state) {
    (void)state;
    setenv("LGH_CUDA_PATH", "/nowhere/libcuda.so.1", 1);
    assert_not_found("/nowhere/libcuda.so.1", "LGH_CUDA_PATH");
    lgh_assert_contains(lgh_last_error(), "driver");
}

static void file_that_is_no_library_is_named(void **state) {
    (void)state;
    char path[] = "/tmp/lgh-no-library-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, "not ELF\n", 8), 8);
    close(file);
    setenv("LGH_CUDA_PATH", path, 1);
    assert_not_found(path, "LGH_CUDA_PATH");
    unlink(path);
}

static void library_without_the_entry_point_is_refused(void **state) {
    (void)state;
    Dl_info info;
    double (*const function)(double) = cos;
    const void *symbol;
    memcpy(&symbol, &function, sizeof symbol);
    assert_true(dladdr(symbol, &info));
    setenv("LGH_CUDA_PATH", info.dli_fname, 1);
    assert_not_found("cuGetProcAddress_v2", "too old");
}

static void missing_cublaslt_is_named_with_a_remedy(void **state) {
    (void)state;
    assert_true(fake_cublaslt_install());
    setenv("LGH_CUBLASLT_PATH", "/nowhere/libcublasLt.so", 1);
    assert_not_found("/nowhere/libcublasLt.so", "LGH_CUBLASLT_PATH");
}

/* Every driver function that a driver may lack; afterwards the driver is tried again. */
static void driver_without_a_function_is_named_and_tried_again(void **state) {
    (void)state;
    lgh_context *context;
    enum { NOT_FOUND = 500, MOST = 100 };
    int failures = 0;
    assert_true(fake_cublaslt_install());
    for (int k = 1; k < MOST; ++k) {
        fake_cuda_reset();
        fake_cuda_fail("cuGetProcAddress", k, NOT_FOUND);
        lgh_status status = create_context(&context);
        skip_where_driver_is_loaded("cuGetProcAddress", context);
        if (status == LGH_SUCCESS)
            break;
        ++failures;
        assert_null(context);
        lgh_assert_contains(lgh_last_error(), "LGH_ERROR_LIBRARY_NOT_FOUND");
        lgh_assert_contains(lgh_last_error(), "lacks cu");
        lgh_assert_contains(lgh_last_error(), "install");
    }
    assert_in_range(failures, 20, MOST - 2);
    assert_non_null(context);
    lgh_context_destroy(context);
    assert_int_equal(fake_cuda_count_live().retained, 0);
}

static void driver_that_does_not_start_is_reported(void **state) {
    (void)state;
    lgh_context *context;
    enum { NO_DEVICE = 100, UNKNOWN = 999 };
    assert_true(fake_cublaslt_install());
    fake_cuda_reset();
    fake_cuda_fail("cuInit", 1, NO_DEVICE);
    lgh_status status = create_context(&context);
    skip_where_driver_is_loaded("cuInit", context);
    lgh_assert_status(status, LGH_ERROR_NO_DEVICE);
    fake_cuda_fail("cuInit", 1, UNKNOWN);
    lgh_assert_status(create_context(&context), LGH_ERROR_DEVICE);
    lgh_assert_contains(lgh_last_error(), "cuInit");
    lgh_assert_success(create_context(&context));
    lgh_context_destroy(context);
}

/* An empty folder for kernels and no compiler. */
static void missing_nvrtc_is_named_with_a_remedy(void **state) {
    (void)state;
    char folder[] = "/tmp/lgh-no-kernels-XXXXXX";
    lgh_context *context;
    lgh_plan *plan;
    lgh_plan_options options = LGH_PLAN_OPTIONS_INIT;
    options.hidden_size = options.vocab_size = options.max_tokens = 8;
    assert_non_null(mkdtemp(folder));
    setenv("LGH_CACHE_DIR", folder, 1);
    setenv("LGH_NVRTC_PATH", "/nowhere/libnvrtc.so", 1);
    assert_true(fake_cublaslt_install());
    lgh_assert_success(create_context(&context));
    lgh_assert_status(lgh_plan_create(&plan, context, &options), LGH_ERROR_LIBRARY_NOT_FOUND);
    assert_null(plan);
    lgh_assert_contains(lgh_last_error(), "/nowhere/libnvrtc.so");
    lgh_assert_contains(lgh_last_error(), "LGH_NVRTC_PATH");
    lgh_assert_contains(lgh_last_error(), "install");
    lgh_context_destroy(context);
    rmdir(folder);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_driver_is_named_with_a_remedy),
        cmocka_unit_test(file_that_is_no_library_is_named),
        cmocka_unit_test(library_without_the_entry_point_is_refused),
        cmocka_unit_test(missing_cublaslt_is_named_with_a_remedy),
        cmocka_unit_test(driver_without_a_function_is_named_and_tried_again),
        cmocka_unit_test(driver_that_does_not_start_is_reported),
        cmocka_unit_test(missing_nvrtc_is_named_with_a_remedy),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
