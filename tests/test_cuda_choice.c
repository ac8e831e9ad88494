/* test_cuda_choice.c - which of cuBLASLt's algorithms a plan takes, on a fake that offers broken
 * ones: none that breaks the bitwise promise, and of the others the fastest. */
#include "cuda_problem.h"

#include <string.h>

/* Candidate 0 of every query is broken: the plan takes the next. */
static void check_next_candidate_is_taken(lgh_context *context, fake_breakage breakage) {
    char text[4096];
    lgh_plan *plan;
    problem p = problem_of(70, 16, 8200);
    problem_open(&p);
    fake_cublaslt_break(0, breakage);
    lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
    lgh_assert_success(lgh_plan_describe(plan, text, sizeof text, NULL));
    lgh_assert_contains(text, "\nlogits_algorithms = 1 1\n");
    lgh_assert_contains(text, "\ndhidden_algorithms = 1 1\n");
    if (breakage == FAKE_BREAKS_BY_RUN) /* a sum over tokens must only repeat itself */
        lgh_assert_contains(text, "\ndweight_algorithms = 1 1\n");
    fake_cublaslt_runs(0);
    fake_cublaslt_runs(1);
    problem_check_forward(&p, plan);
    assert_int_equal(fake_cublaslt_runs(0), 0);
    assert_true(fake_cublaslt_runs(1) > 0);
    problem_check_backward(&p, plan);
    fake_cublaslt_break(-1, FAKE_SOUND);
    lgh_plan_destroy(plan);
    problem_close(&p);
    assert_no_violations();
}

static void candidates_that_break_a_row_s_bits_are_passed_over(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    check_next_candidate_is_taken(context, FAKE_BREAKS_BY_LENGTH);
    check_next_candidate_is_taken(context, FAKE_BREAKS_BY_POSITION);
    check_next_candidate_is_taken(context, FAKE_BREAKS_BY_NEIGHBOURS);
    check_next_candidate_is_taken(context, FAKE_BREAKS_BY_RUN);
    close_fake_device(context);
}

static void candidates_that_split_k_are_never_run(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    lgh_plan *plan;
    problem p = problem_of(20, 16, 100);
    problem_open(&p);
    fake_cublaslt_break(0, FAKE_SPLITS_K);
    fake_cublaslt_runs(0);
    lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
    problem_check_forward(&p, plan);
    problem_check_backward(&p, plan);
    assert_int_equal(fake_cublaslt_runs(0), 0);
    fake_cublaslt_break(0, FAKE_SOUND);
    lgh_plan_destroy(plan);
    problem_close(&p);
    close_fake_device(context);
}

/* The sum of a chunk's part of dhidden with what is there must not depend on whether there was
 * anything. */
static void candidates_that_add_differently_are_passed_over(void **state) {
    (void)state;
    char text[4096];
    lgh_context *context = open_fake_device();
    lgh_plan *plan;
    problem p = problem_of(20, 16, 100);
    fake_cublaslt_break(0, FAKE_BREAKS_BY_ADDING);
    lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
    lgh_assert_success(lgh_plan_describe(plan, text, sizeof text, NULL));
    lgh_assert_contains(text, "\ndhidden_algorithms = 1 1\n");
    fake_cublaslt_break(0, FAKE_SOUND);
    lgh_plan_destroy(plan);
    close_fake_device(context);
}

static void assert_logits_algorithms(lgh_context *context, const char *algorithms) {
    char text[4096];
    lgh_plan *plan;
    problem p = problem_of(20, 16, 100);
    lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
    lgh_assert_success(lgh_plan_describe(plan, text, sizeof text, NULL));
    lgh_assert_contains(text, algorithms);
    lgh_plan_destroy(plan);
}

static void fastest_sound_candidate_is_taken(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    fake_cublaslt_cost(0, 3.0f);
    fake_cublaslt_cost(1, 0.1f);
    fake_cublaslt_break(1, FAKE_BREAKS_BY_RUN);
    fake_cublaslt_cost(2, 1.0f);
    fake_cublaslt_cost(3, 2.0f);
    assert_logits_algorithms(context, "\nlogits_algorithms = 2 2\n");
    close_fake_device(context);
}

/* Which candidate is faster may change from run to run: that must not change a result. */
static void clock_does_not_decide_about_bits(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    fake_cublaslt_break(1, FAKE_DIFFERS);
    fake_cublaslt_cost(1, 0.1f);
    fake_cublaslt_cost(2, 0.2f);
    assert_logits_algorithms(context, "\nlogits_algorithms = 2 2\n");
    close_fake_device(context);
}

static void plan_fails_where_every_candidate_is_broken(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    problem p = problem_of(70, 16, 100);
    for (int breakage = FAKE_BREAKS_BY_LENGTH; breakage < FAKE_BREAKAGES; ++breakage) {
        lgh_plan *plan;
        fake_cublaslt_break(-1, (fake_breakage)breakage);
        lgh_assert_status(lgh_plan_create(&plan, context, &p.options), LGH_ERROR_CUBLASLT);
        assert_null(plan);
        assert_true(strlen(lgh_last_error()) > 0);
        assert_int_equal(fake_cuda_count_live().bytes, 0);
    }
    fake_cublaslt_break(-1, FAKE_SOUND);
    close_fake_device(context);
}

static void plan_fails_where_nothing_is_offered(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    lgh_plan *plan;
    problem p = problem_of(20, 16, 100);
    fake_cuda_fail("cublasLtMatmulAlgoGetHeuristic", 1, 15);
    lgh_assert_status(lgh_plan_create(&plan, context, &p.options), LGH_ERROR_CUBLASLT);
    lgh_assert_contains(lgh_last_error(), "n=100");
    assert_null(plan);
    close_fake_device(context);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(candidates_that_break_a_row_s_bits_are_passed_over),
        cmocka_unit_test(candidates_that_split_k_are_never_run),
        cmocka_unit_test(candidates_that_add_differently_are_passed_over),
        cmocka_unit_test(fastest_sound_candidate_is_taken),
        cmocka_unit_test(clock_does_not_decide_about_bits),
        cmocka_unit_test(plan_fails_where_every_candidate_is_broken),
        cmocka_unit_test(plan_fails_where_nothing_is_offered),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
