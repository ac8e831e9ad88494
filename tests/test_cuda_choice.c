/* test_cuda_choice.c - which of cuBLASLt's algorithms a plan takes, on a fake that offers broken
 * ones: none that breaks the bitwise promise, and of the others the fastest. */
#include "cuda_problem.h"

#include <string.h>

/* Candidate 0 of every query is broken: the plan takes the next. */
static void check_next_candidate_is_taken(lgh_context *context, fake_breakage breakage) {
    lgh_plan *plan;
    problem p = problem_of(70, 16, 8200);
    problem_open(&p);
    fake_cublaslt_break(0, breakage);
    lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
    assert_int_equal(chosen_candidate(plan, "forward_logits"), 1);
    assert_int_equal(chosen_candidate(plan, "backward_logits"), 1);
    assert_int_equal(chosen_candidate(plan, "dhidden_product"), 1);
    assert_int_equal(chosen_candidate(plan, "dhidden_last"), 1);
    if (breakage == FAKE_BREAKS_BY_RUN) { /* a sum over tokens must only repeat itself */
        assert_int_equal(chosen_candidate(plan, "dweight_product"), 1);
        assert_int_equal(chosen_candidate(plan, "dweight_last"), 1);
    }
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
    lgh_context *context = open_fake_device();
    lgh_plan *plan;
    problem p = problem_of(20, 16, 100);
    fake_cublaslt_break(0, FAKE_BREAKS_BY_ADDING);
    lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
    assert_int_equal(chosen_candidate(plan, "forward_logits"), 0);
    assert_int_equal(chosen_candidate(plan, "dhidden_product"), 1);
    fake_cublaslt_break(0, FAKE_SOUND);
    lgh_plan_destroy(plan);
    close_fake_device(context);
}

static void assert_logits_candidate(lgh_context *context, int candidate) {
    lgh_plan *plan;
    problem p = problem_of(20, 16, 100);
    lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
    assert_int_equal(chosen_candidate(plan, "forward_logits"), candidate);
    assert_int_equal(chosen_candidate(plan, "backward_logits"), candidate);
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
    assert_logits_candidate(context, 2);
    close_fake_device(context);
}

/* Which candidate is faster may change from run to run: that must not change a result. */
static void clock_does_not_decide_about_bits(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    fake_cublaslt_break(1, FAKE_DIFFERS);
    fake_cublaslt_cost(1, 0.1f);
    fake_cublaslt_cost(2, 0.2f);
    assert_logits_candidate(context, 2);
    close_fake_device(context);
}

/* Candidate 0 would do for the wider chunks of the backward pass, but has other bits than candidate
 * 1, which the forward pass has to take. */
static void both_passes_see_the_same_logits(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    lgh_plan *plan;
    problem p = problem_of(70, 8, 9000);
    fake_cublaslt_break(0, FAKE_BREAKS_BY_LENGTH);
    fake_cublaslt_break_only(0, 6144);
    fake_cublaslt_break(1, FAKE_DIFFERS);
    lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
    assert_int_equal(chosen_candidate(plan, "forward_logits"), 1);
    assert_int_equal(chosen_candidate(plan, "backward_logits"), 1);
    assert_int_equal(chosen_candidate(plan, "dhidden_product"), 0);
    lgh_plan_destroy(plan);
    fake_cublaslt_break(-1, FAKE_SOUND);
    close_fake_device(context);
}

/* Where no candidate of the backward pass has the forward pass's bits, there is no plan. */
static void plan_fails_where_the_passes_would_differ(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    lgh_plan *plan;
    problem p = problem_of(70, 8, 9000);
    fake_cublaslt_break(-1, FAKE_DIFFERS);
    for (int i = 0; i < 8; ++i)
        fake_cublaslt_break_only(i, 6144);
    lgh_assert_status(lgh_plan_create(&plan, context, &p.options), LGH_ERROR_CUBLASLT);
    lgh_assert_contains(lgh_last_error(), "n=8192");
    fake_cublaslt_break(-1, FAKE_SOUND);
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

/* ---- The trial's memory -------------------------------------------------------------------- */

/* A hidden size at which a BF16 dweight makes the backward chunk narrower than the forward one. */
static void wide_hidden_rows_stay_inside_trial_memory(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    lgh_plan *plan;
    problem p = problem_of(16, 7168, 5000);
    fake_cublaslt_offer(1);
    p.options.dweight_dtype = LGH_BF16;
    lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
    lgh_plan_destroy(plan);
    close_fake_device(context);
}

/* Matrices of every proportion, of every dtype: a product that reads or writes past the scratch of
 * the trial is a violation. */
static void trials_stay_inside_their_memory(void **state) {
    (void)state;
    static const int64_t widths[] = {1, 6, 60, 200}, vocabularies[] = {1, 40, 8193};
    static const lgh_dtype dtypes[] = {LGH_BF16, LGH_FP16, LGH_FP32};
    static const int32_t alignments[] = {0, 2, 4, 8, 16};
    lgh_context *context = open_fake_device();
    fake_cublaslt_offer(1);
    for (int i = 0; i < 36; ++i) {
        lgh_plan *plan;
        problem p = problem_of(i % 2 ? 1 : 66, widths[i / 3 % 4], vocabularies[i / 12]);
        p.options.hidden_dtype = p.options.weight_dtype = dtypes[i % 3];
        p.options.bias_dtype = i % 4 < 2 ? LGH_FP32 : LGH_DTYPE_NONE;
        p.options.row_alignment = alignments[i % 5];
        p.options.dweight_dtype = i / 2 % 2 ? LGH_FP32 : dtypes[i % 3];
        assert_call_succeeds(lgh_plan_create(&plan, context, &p.options));
        lgh_plan_destroy(plan);
    }
    close_fake_device(context);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(candidates_that_break_a_row_s_bits_are_passed_over),
        cmocka_unit_test(candidates_that_split_k_are_never_run),
        cmocka_unit_test(candidates_that_add_differently_are_passed_over),
        cmocka_unit_test(fastest_sound_candidate_is_taken),
        cmocka_unit_test(clock_does_not_decide_about_bits),
        cmocka_unit_test(both_passes_see_the_same_logits),
        cmocka_unit_test(plan_fails_where_the_passes_would_differ),
        cmocka_unit_test(plan_fails_where_every_candidate_is_broken),
        cmocka_unit_test(plan_fails_where_nothing_is_offered),
        cmocka_unit_test(wide_hidden_rows_stay_inside_trial_memory),
        cmocka_unit_test(trials_stay_inside_their_memory),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
