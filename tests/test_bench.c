/* test_bench.c - `loggerhead bench` as it is typed: what it runs on the CPU and on the
 * stand-in for a GPU of fakes/fakes.h, what it refuses. */
#include "harness.h"

#include "../tools/arguments.h"
#include "../tools/bench.h"
#include "../tools/bench_dtype.h"
#include "fakes/fakes.h"
#include "nvrtc_compiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The exit status of the command with these arguments, separated by blanks. */
static int bench(const char *line) {
    char name[] = "bench", text[256], *argv[24] = {name};
    int argc = 1;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word && argc < 24; word = strtok(NULL, " "))
        argv[argc++] = word;
    return lgh_tool_bench(argc, argv);
}

static void run_in_every_dtype(const char *rest) {
    static const char *const dtypes[LGH_TOOL_DTYPE_CHOICES] = {"bf16", "fp16", "fp32", "mixed"};
    char line[200];
    for (int i = 0; i < LGH_TOOL_DTYPE_CHOICES; ++i) {
        snprintf(line, sizeof line, "--device cpu --rounds 1 --dtype %s %s", dtypes[i], rest);
        if (bench(line) != EXIT_SUCCESS)
            fail_msg("bench %s", line);
    }
}

static void shapes_are_measured_in_every_dtype(void **state) {
    (void)state;
    run_in_every_dtype("--shape 64x128x1000,1x7x2,33x129x257");
    run_in_every_dtype("--tokens 5 --hidden 6 --vocab 7 --token-block 2 --budget 1");
}

static void features_are_measured_in_every_dtype(void **state) {
    (void)state;
    run_in_every_dtype("--features --shape 1x128x1000");
    run_in_every_dtype("--features --shape 33x100x257 --no-check");
}

static void open_fake_gpu(void) {
    char identity[64];
    if (lgh__nvrtc_identity(identity, sizeof identity) != LGH_SUCCESS)
        lgh_test_skip("%s", lgh_last_error());
    assert_true(fake_cublaslt_install());
    fake_cuda_reset();
}

static void a_gpu_is_measured_against_products(void **state) {
    (void)state;
    open_fake_gpu();
    assert_int_equal(bench("--rounds 1 --quick --shape 40x72x600"), EXIT_SUCCESS);
    assert_int_equal(bench("--rounds 1 --quick --shape 40x72x600 --dtype mixed"), EXIT_SUCCESS);
    assert_int_equal(fake_cuda_count_live().allocations, 0);
    assert_int_equal(fake_cuda_count_live().cublaslt_handles, 0);
    assert_string_equal(fake_cuda_violations(), "");
}

static void features_of_a_gpu_are_measured(void **state) {
    (void)state;
    open_fake_gpu();
    assert_int_equal(bench("--rounds 1 --features --shape 40x72x600 --dtype fp32"), EXIT_SUCCESS);
    assert_int_equal(fake_cuda_count_live().allocations, 0);
    assert_int_equal(fake_cuda_count_live().cublaslt_handles, 0);
    assert_string_equal(fake_cuda_violations(), "");
}

static void wrong_arguments_are_refused(void **state) {
    static const char *const wrong[] = {
        "--shape nothing", "--shape 8x8x1",
        "--dtype int8",    "--rounds 0",
        "--rounds 102",    "--budget 0",
        "--hidden 4",      "--tokens 3 --hidden 4 --vocab 1",
        "--features=1",    "--shape 8x8x8 --tokens 3 --hidden 4 --vocab 5",
        "--device tpu",    "extra"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i)
        if (bench(wrong[i]) != LGH_TOOL_EXIT_USAGE)
            fail_msg("bench %s", wrong[i]);
    assert_int_equal(bench("--help"), EXIT_SUCCESS);
}

static void shapes_that_do_not_fit_fail(void **state) {
    (void)state;
    assert_int_equal(bench("--device cpu --shape 268435456x268435456x2"), EXIT_FAILURE);
    lgh_assert_contains(lgh_last_error(), "no memory");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_measured_in_every_dtype),
        cmocka_unit_test(features_are_measured_in_every_dtype),
        cmocka_unit_test(a_gpu_is_measured_against_products),
        cmocka_unit_test(features_of_a_gpu_are_measured),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(shapes_that_do_not_fit_fail),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
