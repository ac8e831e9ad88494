/* test_feature_cases.c - what may be done to a logit before the softmax: a bias, a softcap, a
 * rounding to 16 bits; and the vocabulary entry with the largest one. */
#include "case_oracle.h"
#include "harness.h"

#include <math.h>

#include "promises.h"
#include "value.h"

enum { STATISTICS = LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE | LGH_OUTPUT_ENTROPY };

static const lgh_dtype bias_dtypes[] = {LGH_FP32, LGH_BF16, LGH_FP16};

static void check_results(const case_problem *p) {
    case_expected right = case_expect(p, NULL);
    case_assert_outputs(p, &right);
    case_assert_best(p, &right);
    case_assert_gradients(p, &right, CASE_ALL_GRADIENTS);
    case_expected_destroy(&right);
}

/* ---- Rows without a softmax ---------------------------------------------------------------- */

/* A mask that takes out every entry leaves no probabilities, and no NaN either. */
static void check_masked(lgh_dtype operands) {
    case_problem p = case_of(5, 24, 9001);
    case_set_operands(&p, operands);
    case_set_bias_dtype(&p, LGH_FP32);
    case_open(&p);
    case_fill(&p, 21, 1.0, 0.3);
    for (int64_t v = 0; v < 9001; v++)
        case_set_bias(&p, v, -(double)INFINITY);
    case_run(&p);
    for (int64_t i = 0; i < p.tokens; i++) {
        assert_true(isinf(p.lse[i]) && p.lse[i] < 0);
        assert_true(p.logp[i] == 0 && p.entropy[i] == 0 && p.logp_at_one[i] == 0);
        assert_int_equal(p.best[i], -1);
    }
    for (int64_t k = 0; k < p.tokens * 24; k++)
        assert_true(p.dhidden[k] == 0);
    for (int64_t k = 0; k < 9001 * 24; k++)
        assert_true(p.dweight[k] == 0);
    case_set_bias(&p, 4, 0);
    case_run(&p);
    assert_true(isfinite(p.lse[0]) && p.best[0] == 4);
    case_close(&p);
}

static void masks_may_take_out_every_entry(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        check_masked(*dtype);
}

/* ---- Bias -----------------------------------------------------------------------------------
 * A bias that was left out, or that lifted log-probs above 0. Seen in CCE. */

static case_problem biased(lgh_dtype operands, lgh_dtype bias, int64_t vocab_size) {
    case_problem p = case_of(21, 24, vocab_size);
    case_set_operands(&p, operands);
    case_set_bias_dtype(&p, bias);
    p.temperature = 0.7f;
    case_open(&p);
    case_fill(&p, 15, 1.0, 0.3);
    case_fill_bias(&p, 16, 10);
    return p;
}

static void assert_no_logp_above_zero(const case_problem *p) {
    for (int64_t i = 0; i < p->tokens; i++)
        assert_true(p->logp[i] <= 0 && p->logp_at_one[i] <= 0);
}

static void check_bias(lgh_dtype operands, lgh_dtype bias, int64_t vocab_size) {
    case_problem p = biased(operands, bias, vocab_size);
    case_run(&p);
    check_results(&p);
    assert_no_logp_above_zero(&p);
    case_problem without = p;
    without.options.bias_dtype = LGH_DTYPE_NONE;
    without.bias = NULL;
    case_expected faulty = case_expect(&without, NULL);
    case_assert_outputs_outside(&p, &faulty, STATISTICS | LGH_OUTPUT_LOGP_AT_ONE);
    case_assert_gradients_outside(&p, &faulty, CASE_ALL_GRADIENTS);
    case_expected_destroy(&faulty);
    case_close(&p);
}

static void bias_is_part_of_every_logit(void **state) {
    (void)state;
    static const int64_t vocabularies[] = {129, 301, 9001};
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        for (int i = 0; i < 3; i++)
            check_bias(*dtype, bias_dtypes[i], vocabularies[i]);
    check_bias(LGH_BF16, LGH_BF16, 301);
    check_bias(LGH_FP16, LGH_FP32, 9001);
}

/* dbias by itself, and added to what is there. */
static void check_dbias(lgh_dtype dtype, int with_dweight) {
    case_problem p = biased(dtype, LGH_FP32, 301);
    lgh_random random = {17};
    lgh_random_fill_fp32(&random, p.dbias_start, 301, 3.0);
    p.options.dhidden_dtype = LGH_DTYPE_NONE;
    p.options.dweight_dtype = with_dweight ? LGH_FP32 : LGH_DTYPE_NONE;
    p.options.token_block = 16;
    case_run(&p);
    case_expected right = case_expect(&p, NULL);
    case_assert_gradients(&p, &right, CASE_DBIAS);
    p.accumulate_dbias = 1;
    case_backward(&p);
    case_assert_gradients_outside(&p, &right, CASE_DBIAS);
    for (int v = 0; v < 301; v++)
        p.dbias[v] = (float)((double)p.dbias[v] - (double)p.dbias_start[v]);
    case_assert_gradients(&p, &right, CASE_DBIAS);
    case_expected_destroy(&right);
    case_close(&p);
}

static void dbias_adds_to_what_is_there(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_dbias(*dtype, 0);
        check_dbias(*dtype, 1);
    }
}

/* How many log-probs z - lse would lift above 0, if z and lse were FP32. */
static int64_t count_lifted(const case_problem *p) {
    case_expected e = case_expect_outputs(p, NULL);
    int64_t lifted = 0;
    for (int64_t i = 0; i < p->tokens; i++) {
        const float x = (float)case_logit(p, i, p->targets[i]);
        lifted += x * (1.0f / p->temperature) - (float)e.lse[i] > 0;
    }
    case_expected_destroy(&e);
    return lifted;
}

static void no_logp_is_above_zero_where_it_is_almost_certain(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        case_problem p = biased(*dtype, LGH_FP32, 301);
        p.temperature = 0.03f;
        for (int64_t i = 0; i < p.tokens; i++)
            for (int64_t v = 0; v < 301; v++)
                if (case_logit(&p, i, v) > case_logit(&p, i, p.targets[i]))
                    p.targets[i] = v;
        case_run(&p);
        assert_no_logp_above_zero(&p);
        assert_true(count_lifted(&p) > 0);
        case_close(&p);
    }
}

/* ---- Softcap -------------------------------------------------------------------------------- */

/* c tanh(x / T / c) is what a weight divided by T gives. */
static void check_softcap(lgh_dtype dtype, float cap, double scale, float temperature) {
    const reference_faults flat = {.flat_softcap = 1};
    case_problem p = case_of(21, 24, 301);
    case_set_operands(&p, dtype);
    p.options.softcap = cap;
    p.temperature = temperature;
    case_open(&p);
    case_fill(&p, 19, 1.0, scale / sqrt(24));
    case_run(&p);
    check_results(&p);
    case_expected faulty = case_expect_divided_weight(&p, LGH_FP32),
                  flat_slope = case_expect(&p, &flat);
    case_assert_outputs_outside(&p, &faulty, STATISTICS);
    case_assert_gradients_outside(&p, &faulty, CASE_GRADIENTS);
    case_assert_gradients_outside(&p, &flat_slope, CASE_GRADIENTS);
    case_expected_destroy(&faulty);
    case_expected_destroy(&flat_slope);
    case_close(&p);
}

static void softcap_comes_before_the_temperature(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_softcap(*dtype, 5, 2, 0.7f);
        check_softcap(*dtype, 30, 8, 1.3f);
    }
}

/* Every other entry, and none that is a target, has its logits where tanh is within 1e-4 of 1:
 * their small gradients, by themselves, are right. */
static void check_flat_softcap(lgh_dtype dtype, int rest) {
    enum { TOKENS = 300, WIDTH = 24, VOCAB = 300 };
    case_problem p = case_of(TOKENS, WIDTH, VOCAB);
    case_set_operands(&p, dtype);
    p.options.softcap = 1;
    case_open(&p);
    case_fill(&p, 22, 1.0, 0.05);
    for (int64_t i = 0; i < TOKENS; i++) {
        case_set_hidden(&p, i, 0, 1);
        p.targets[i] = p.targets[i] / 2 * 2 + 1 - rest;
    }
    for (int64_t v = 0; v < VOCAB; v++)
        case_set_weight(&p, v, 0, v % 2 == rest ? 6 : 0);
    case_run(&p);
    case_expected right = case_expect(&p, NULL);
    case_assert_gradients(&p, &right, CASE_GRADIENTS);
    double square = 0, error = 0;
    for (int64_t v = rest; v < VOCAB; v += 2)
        for (int64_t k = 0; k < WIDTH; k++) {
            const double wanted = right.dweight[v * WIDTH + k];
            square += wanted * wanted;
            error += pow((double)p.dweight[v * WIDTH + k] - wanted, 2);
        }
    print_message("flat entries: relative error %.1e\n", sqrt(error / square));
    assert_true(square > 0 && sqrt(error / square) <= (dtype == LGH_FP32 ? 1e-5 : 2.5e-3));
    case_expected_destroy(&right);
    case_close(&p);
}

static void softcap_keeps_its_slope_where_it_is_flat(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_flat_softcap(*dtype, 0);
        check_flat_softcap(*dtype, 1);
    }
}

static void softcap_includes_the_bias(void **state) {
    (void)state;
    const reference_faults outside = {.bias_after_softcap = 1};
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        case_problem p = biased(*dtype, LGH_BF16, 301);
        p.options.softcap = 8;
        case_run(&p);
        check_results(&p);
        case_expected faulty = case_expect(&p, &outside);
        case_assert_outputs_outside(&p, &faulty, STATISTICS | LGH_OUTPUT_LOGP_AT_ONE);
        case_assert_gradients_outside(&p, &faulty, CASE_ALL_GRADIENTS);
        case_expected_destroy(&faulty);
        case_close(&p);
    }
}

/* ---- Rounding -------------------------------------------------------------------------------
 * A bias of -1e4 on every other entry makes the log-sum-exp at T = 1 the one logit that is left. */

enum { ROUNDED_TOKENS = 64, ROUNDED_VOCAB = 300 };

static void isolate(case_problem *p, int64_t entry) {
    for (int64_t v = 0; v < ROUNDED_VOCAB; v++)
        case_set_bias(p, v, v == entry ? 0 : -1e4);
    case_upload(p);
    case_forward(p);
}

/* The distance of the dtype's numbers near this one. */
static double last_place(double value, lgh_dtype dtype) {
    int exponent;
    frexp(value, &exponent);
    return ldexp(1, exponent - 1 - (dtype == LGH_BF16 ? 7 : 10));
}

/* One last place; or what the FP32 sum may err by, where products that cancel leave so little that
 * a place of it is finer than that. */
static double rounding_tolerance(const case_problem *p, double exact, lgh_dtype dtype) {
    const double place = last_place(reference_round(exact, dtype), dtype);
    const double sum = promise_outputs(fabs(exact), p->options.hidden_size, case_product_dtype(p));
    return fmax(PROMISE_ROUNDED_ULPS * place, sum);
}

/* Logits that are no numbers of the dtype, or not the nearest. */
typedef struct rounding_count {
    int64_t strangers, not_nearest, of;
} rounding_count;

static void check_isolated(const case_problem *p, int64_t entry, lgh_dtype dtype,
                           rounding_count *count) {
    for (int64_t i = 0; i < ROUNDED_TOKENS; i++) {
        const double exact = case_logit(p, i, entry), nearest = reference_round(exact, dtype);
        const double actual = (double)p->lse[i];
        lgh_assert_close(actual, nearest, rounding_tolerance(p, exact, dtype), "a rounded logit");
        count->strangers += reference_round(actual, dtype) != actual;
        count->not_nearest += actual != nearest;
        count->of++;
    }
}

static rounding_count check_rounding(lgh_dtype operands, lgh_dtype rounding, lgh_dtype wanted) {
    static const int64_t entries[] = {0, 7, 128, ROUNDED_VOCAB - 1};
    rounding_count count = {0, 0, 0};
    case_problem p = case_of(ROUNDED_TOKENS, 200, ROUNDED_VOCAB);
    case_set_operands(&p, operands);
    p.options.bias_dtype = LGH_FP32;
    p.options.dhidden_dtype = p.options.dweight_dtype = LGH_DTYPE_NONE;
    p.options.logits_rounding = rounding;
    case_open(&p);
    case_fill(&p, 38, 1.0, 0.5);
    case_plan(&p);
    for (int i = 0; i < 4; i++) {
        isolate(&p, entries[i]);
        check_isolated(&p, entries[i], wanted, &count);
    }
    case_close(&p);
    return count;
}

/* FP32 sums err by far less than a place of 16 bits, so that few are rounded the other way;
 * cutting off in place of rounding would miss the nearest in half of all cases. */
static void rounded_logits_are_the_nearest_of_16_bits(void **state) {
    (void)state;
    static const lgh_dtype roundings[] = {LGH_BF16, LGH_FP16};
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        for (int i = 0; i < 2; i++) {
            const rounding_count rounded = check_rounding(*dtype, roundings[i], roundings[i]);
            const rounding_count exact = check_rounding(*dtype, LGH_DTYPE_NONE, roundings[i]);
            assert_true(rounded.strangers == 0);
            assert_true(10 * rounded.not_nearest < rounded.of);
            assert_true(2 * exact.strangers > exact.of);
        }
}

/* ---- Best ----------------------------------------------------------------------------------- */

enum { BEST_TOKENS = 40, BEST_WIDTH = 8, BEST_VOCAB = 9001, BEST_START = 1000, PADDING = 500 };

/* Each token reads one column of a weight of so many different numbers, most of them negative: the
 * largest is there many times. The padding's numbers are larger. */
static case_problem with_ties(lgh_dtype dtype, int64_t levels) {
    case_problem p = case_of(BEST_TOKENS, BEST_WIDTH, BEST_VOCAB);
    lgh_random random = {29};
    case_set_operands(&p, dtype);
    p.options.vocab_start = BEST_START;
    p.options.vocab_valid = BEST_START + BEST_VOCAB - PADDING;
    p.options.dhidden_dtype = p.options.dweight_dtype = LGH_DTYPE_NONE;
    case_open(&p);
    for (int64_t i = 0; i < BEST_TOKENS; i++) {
        case_set_hidden(&p, i, i % BEST_WIDTH, i % 3 == 0 ? -1 : 1);
        p.targets[i] = i == 5 ? p.options.ignore_index : BEST_START + i;
    }
    for (int64_t i = 0; i < BEST_VOCAB * BEST_WIDTH; i++) {
        const int is_padding = i / BEST_WIDTH >= BEST_VOCAB - PADDING;
        const double level = (double)lgh_random_below(&random, levels);
        case_set_weight(&p, i / BEST_WIDTH, i % BEST_WIDTH,
                        is_padding ? 3 : level / (double)levels - 2);
    }
    return p;
}

static int64_t count_other_best(const case_problem *p, const reference_faults *faults) {
    case_expected e = case_expect_outputs(p, faults);
    int64_t others = 0;
    for (int64_t i = 0; i < p->tokens; i++)
        others += p->best[i] != e.best[i];
    case_expected_destroy(&e);
    return others;
}

static void best_is_the_lowest_of_equal_entries(void **state) {
    (void)state;
    const reference_faults faults[] = {
        {.highest_best = 1}, {.local_best = 1}, {.padding_left_in = 1}};
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        case_problem p = with_ties(*dtype, 16);
        case_plan(&p);
        case_upload(&p);
        case_forward(&p);
        assert_int_equal(p.best[5], -1);
        assert_int_equal(count_other_best(&p, NULL), 0);
        for (int i = 0; i < 3; i++)
            assert_true(count_other_best(&p, &faults[i]) > BEST_TOKENS / 2);
        case_close(&p);
    }
}

/* 64 numbers in [-2, -1), of which BF16 tells 64 and three bits less of a sum of two only 16. */
static void best_is_the_lowest_of_entries_that_rounding_makes_equal(void **state) {
    (void)state;
    const reference_faults exact = {.exact_logits = 1};
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        case_problem p = with_ties(*dtype, 64);
        p.options.logits_rounding = LGH_BF16;
        for (int64_t i = 0; i < BEST_TOKENS; i++)
            case_set_hidden(&p, i, (i + 1) % BEST_WIDTH, 0.03125);
        case_plan(&p);
        case_upload(&p);
        case_forward(&p);
        assert_int_equal(count_other_best(&p, NULL), 0);
        assert_true(count_other_best(&p, &exact) > BEST_TOKENS / 2);
        case_close(&p);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bias_is_part_of_every_logit),
        cmocka_unit_test(dbias_adds_to_what_is_there),
        cmocka_unit_test(no_logp_is_above_zero_where_it_is_almost_certain),
        cmocka_unit_test(softcap_comes_before_the_temperature),
        cmocka_unit_test(softcap_keeps_its_slope_where_it_is_flat),
        cmocka_unit_test(softcap_includes_the_bias),
        cmocka_unit_test(masks_may_take_out_every_entry),
        cmocka_unit_test(rounded_logits_are_the_nearest_of_16_bits),
        cmocka_unit_test(best_is_the_lowest_of_equal_entries),
        cmocka_unit_test(best_is_the_lowest_of_entries_that_rounding_makes_equal),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
