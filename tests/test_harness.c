/* test_harness.c - the assertions fail where they should, and the numbers are what they claim. */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "value.h"

/* ---- Cases that end badly, each run in a process of its own -------------------------------- */

static const float numbers[] = {1.0f, 2.5f, NAN};
static const double expected_numbers[] = {1.0, 2.0, 3.0};

static void close_far_apart(void **state) {
    (void)state;
    lgh_assert_close(1.0, 1.1, 0.05, "x");
}

static void close_nan(void **state) {
    (void)state;
    lgh_assert_close((double)NAN, 1.0, (double)INFINITY, "x");
}

static void array_far_apart(void **state) {
    (void)state;
    lgh_assert_array_close(numbers, expected_numbers, 2, 0.4, "x");
}

static void array_nan(void **state) {
    (void)state;
    lgh_assert_array_close(numbers, expected_numbers, 3, (double)INFINITY, "x");
}

static void l2_far_apart(void **state) {
    (void)state;
    lgh_assert_relative_l2(numbers, expected_numbers, 2, 0.2, "x");
}

static void l2_of_zeros(void **state) {
    (void)state;
    const double zeros[2] = {0.0, 0.0};
    lgh_assert_relative_l2(numbers, zeros, 2, 1.0, "x");
}

static void bytes_differ(void **state) {
    (void)state;
    lgh_assert_same_bytes("abc", "abd", 3, "x");
}

static void status_differs(void **state) {
    (void)state;
    lgh_assert_status(LGH_ERROR_WORKSPACE, LGH_SUCCESS);
}

static void part_is_missing(void **state) {
    (void)state;
    lgh_assert_contains("a text", "another");
}

static void skips(void **state) {
    (void)state;
    lgh_test_skip("%s", "a reason");
}

static void skips_for_want_of_a_gpu(void **state) {
    (void)state;
    lgh_test_skip_gpu("%s", "a reason");
}

static void passes(void **state) {
    (void)state;
}

static const struct CMUnitTest inner_tests[] = {
    cmocka_unit_test(close_far_apart), cmocka_unit_test(close_nan),
    cmocka_unit_test(array_far_apart), cmocka_unit_test(array_nan),
    cmocka_unit_test(l2_far_apart),    cmocka_unit_test(l2_of_zeros),
    cmocka_unit_test(bytes_differ),    cmocka_unit_test(status_differs),
    cmocka_unit_test(part_is_missing), cmocka_unit_test(skips),
    cmocka_unit_test(passes),          cmocka_unit_test(skips_for_want_of_a_gpu),
};
enum { FAILING = 9, INNER = sizeof inner_tests / sizeof inner_tests[0] };

/* The exit code of this program with these arguments and LGH_REQUIRE_GPU; its output is dropped. */
static int run_inner(const char *require_gpu, const char *first, const char *second) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("LGH_REQUIRE_GPU", require_gpu, 1);
        setenv("LGH_TEST_INNER", "1", 1);
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
            _exit(126);
        execl("/proc/self/exe", "test_harness", first, second, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- The cases ----------------------------------------------------------------------------- */

static void every_assertion_can_fail(void **state) {
    (void)state;
    for (size_t i = 0; i < FAILING; i++) {
        print_message("%s\n", inner_tests[i].name);
        assert_int_equal(run_inner("0", inner_tests[i].name, NULL), 1);
    }
}

static void exit_code_tells_pass_skip_and_fail(void **state) {
    (void)state;
    assert_int_equal(run_inner("0", "passes", NULL), 0);
    assert_int_equal(run_inner("0", "skips", NULL), 77);
    assert_int_equal(run_inner("0", "skips", "passes"), 0);
    assert_int_equal(run_inner("0", "passes", "bytes_differ"), 1);
    assert_int_equal(run_inner("0", "no_such_case", NULL), 1);
    assert_int_equal(run_inner("0", NULL, NULL), 1);
    assert_int_equal(run_inner("0", "--list", NULL), 0);
    assert_int_equal(run_inner("0", "--device", "tpu"), 1);
}

static void required_gpu_turns_its_skip_into_a_failure(void **state) {
    (void)state;
    assert_int_equal(run_inner("0", "skips_for_want_of_a_gpu", NULL), 77);
    assert_int_equal(run_inner("1", "skips_for_want_of_a_gpu", NULL), 1);
    assert_int_equal(run_inner("1", "skips", NULL), 77);
}

static void assertions_pass_within_tolerance(void **state) {
    (void)state;
    lgh_assert_close(1.0, 1.1, 0.11, "x");
    lgh_assert_close((double)INFINITY, (double)INFINITY, 0.0, "infinities");
    lgh_assert_close(-(double)INFINITY, -(double)INFINITY, 0.0, "negative infinities");
    lgh_assert_array_close(numbers, expected_numbers, 2, 0.5, "x");
    lgh_assert_relative_l2(numbers, expected_numbers, 2, 0.23, "x"); /* 0.5 / sqrt 5 = 0.2236 */
    lgh_assert_same_bytes("abc", "abc", 3, "x");
    lgh_assert_success(LGH_SUCCESS);
    lgh_assert_contains("a text", "tex");
}

static void device_defaults_to_the_cpu(void **state) {
    (void)state;
    assert_int_equal(lgh_test_device(), LGH_DEVICE_CPU);
}

/* The first three numbers of splitmix64 with seed 0, as its authors' code gives them. */
static void random_bits_are_splitmix64(void **state) {
    (void)state;
    lgh_random random = {0};
    assert_true(lgh_random_bits(&random) == 0xe220a8397b1dcdafu);
    assert_true(lgh_random_bits(&random) == 0x6e789e6aa1b965f4u);
    assert_true(lgh_random_bits(&random) == 0x06c45d188009454fu);
}

static void random_numbers_have_their_moments(void **state) {
    (void)state;
    enum { COUNT = 100000 };
    lgh_random random = {7};
    double uniform = 0.0, mean = 0.0, square = 0.0;
    for (int i = 0; i < COUNT; i++) {
        double u = lgh_random_uniform(&random);
        double n = lgh_random_normal(&random);
        int64_t below = lgh_random_below(&random, 3);
        assert_true(u >= 0.0 && u < 1.0 && below >= 0 && below < 3);
        uniform += u / COUNT;
        mean += n / COUNT;
        square += n * n / COUNT;
    }
    /* Standard errors: 0.0009, 0.003 and 0.0045. */
    lgh_assert_close(uniform, 0.5, 0.005, "mean of uniform numbers");
    lgh_assert_close(mean, 0.0, 0.016, "mean of normal numbers");
    lgh_assert_close(square, 1.0, 0.023, "variance of normal numbers");
}

static void filled_arrays_hold_what_they_widen_to(void **state) {
    (void)state;
    enum { COUNT = 64 };
    lgh_random one = {3}, two = {3};
    float fp32[COUNT];
    uint16_t bf16[COUNT];
    double wide[COUNT], rounded[COUNT];
    lgh_random_fill_fp32(&one, fp32, COUNT, 2.0);
    lgh_random_fill_bf16(&two, bf16, COUNT, 2.0);
    lgh_widen_fp32(wide, fp32, COUNT);
    lgh_widen_bf16(rounded, bf16, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(wide[i] == (double)fp32[i]);
        assert_true(lgh__bf16_from_float((float)rounded[i]) == bf16[i]);
        lgh_assert_close(rounded[i], wide[i], fabs(wide[i]) * 0x1p-8, "rounded to bf16");
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_assertion_can_fail),
        cmocka_unit_test(exit_code_tells_pass_skip_and_fail),
        cmocka_unit_test(required_gpu_turns_its_skip_into_a_failure),
        cmocka_unit_test(assertions_pass_within_tolerance),
        cmocka_unit_test(device_defaults_to_the_cpu),
        cmocka_unit_test(random_bits_are_splitmix64),
        cmocka_unit_test(random_numbers_have_their_moments),
        cmocka_unit_test(filled_arrays_hold_what_they_widen_to),
    };
    if (getenv("LGH_TEST_INNER"))
        return lgh_test_main(argc, argv, inner_tests, INNER);
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
