/* test_cases.c - log-probs and their gradients on inputs that broke other implementations: padded
 * vocabularies, logits far from 0, sums over a large vocabulary, tokens that do not count. */
#include "case_oracle.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "promises.h"
#include "value.h"

/* ---- Padded vocabulary ----------------------------------------------------------------------
 * Columns past the vocabulary, counted as logits of 0, outweigh every real logit of -50. Seen in
 * verl. */

/* Every logit of token 0 is -50, every logit of token 1 is 0. */
static case_problem equal_logits(lgh_dtype dtype, int64_t hidden_size, int64_t vocab_size) {
    case_problem p = case_of(2, hidden_size, vocab_size);
    case_set_operands(&p, dtype);
    case_open(&p);
    case_set_hidden(&p, 0, 0, 1);
    for (int64_t v = 0; v < vocab_size; v++)
        case_set_weight(&p, v, 0, -50);
    p.targets[1] = vocab_size - 1;
    p.grad_logp.form = CASE_HOST;
    return p;
}

/* p = 1 / V; the gradients of the weight are those of token 0, whose hidden state is not 0. */
static case_expected expect_equal_logits(const case_problem *p) {
    case_expected e = case_expected_create(p, 50);
    const double vocab_size = (double)p->options.vocab_size, t = (double)p->temperature;
    for (int64_t i = 0; i < 2; i++) {
        e.logp[i] = e.logp_at_one[i] = -log(vocab_size);
        e.entropy[i] = log(vocab_size);
        e.lse[i] = (i == 0 ? -50 / t : 0) + log(vocab_size);
    }
    for (int64_t v = 0; v < p->options.vocab_size; v++)
        e.dweight[v * p->options.hidden_size] = ((v == p->targets[0]) - 1 / vocab_size) / t;
    return e;
}

static case_expected expect_padding(const case_problem *p, int with_gradients) {
    const reference_faults faults = {.padded_columns = 128};
    return with_gradients ? case_expect(p, &faults) : case_expect_outputs(p, &faults);
}

static void check_equal_logits(int64_t hidden_size, int64_t vocab_size, float temperature) {
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        case_problem p = equal_logits(*dtype, hidden_size, vocab_size);
        p.temperature = temperature;
        p.options.dhidden_dtype = p.options.dweight_dtype = LGH_DTYPE_NONE;
        case_plan(&p);
        case_upload(&p);
        case_forward(&p);
        case_expected right = expect_equal_logits(&p), faulty = expect_padding(&p, 0);
        case_assert_outputs(&p, &right);
        const double tolerance = promise_outputs(50 / (double)temperature, hidden_size, *dtype);
        for (int i = 0; i < 2; i++)
            assert_true(fabs((double)p.logp[i] - faulty.logp[i]) > tolerance);
        case_assert_outputs_outside(&p, &faulty, LGH_OUTPUT_ALL);
        case_expected_destroy(&right);
        case_expected_destroy(&faulty);
        case_close(&p);
    }
}

static void padded_columns_do_not_count(void **state) {
    (void)state;
    check_equal_logits(128, 151936, 1.0f);
}

/* Vocabularies at, before and after the ends of vectors, tiles and vocabulary chunks. */
static void padded_columns_do_not_count_at_any_vocabulary(void **state) {
    (void)state;
    static const int64_t vocabularies[] = {1, 2, 7, 127, 4095, 6145, 8193};
    for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies; i++) {
        check_equal_logits(8, vocabularies[i], 1.0f);
        check_equal_logits(8, vocabularies[i], 0.7f);
    }
}

static void padded_columns_take_no_gradient(void **state) {
    (void)state;
    static const int64_t vocabularies[] = {127, 8193, 151936};
    for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies; i++)
        for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
            case_problem p = equal_logits(*dtype, 8, vocabularies[i]);
            case_run(&p);
            case_expected right = expect_equal_logits(&p), faulty = expect_padding(&p, 1);
            case_assert_gradients(&p, &right, CASE_DWEIGHT);
            case_assert_gradients_outside(&p, &faulty, CASE_OTHER_ROWS);
            case_expected_destroy(&right);
            case_expected_destroy(&faulty);
            case_close(&p);
        }
}

/* ---- Logits far from 0 ----------------------------------------------------------------------
 * A running maximum that starts at 0 leaves a sum of nothing when every logit is -200. Seen in
 * SkyRL. */

/* Token 0: all logits -200. Token 1: all 200. Tokens 2 and 3: 0 at `peak`, -200 elsewhere, and the
 * target there or elsewhere. */
static case_problem far_logits(lgh_dtype dtype, int64_t vocab_size, int64_t peak) {
    case_problem p = case_of(4, 8, vocab_size);
    case_set_operands(&p, dtype);
    case_open(&p);
    for (int64_t v = 0; v < vocab_size; v++)
        case_set_weight(&p, v, 0, 200);
    case_set_weight(&p, peak, 1, 200);
    for (int64_t i = 0; i < 4; i++)
        case_set_hidden(&p, i, 0, i == 1 ? 1 : -1);
    case_set_hidden(&p, 2, 1, 1);
    case_set_hidden(&p, 3, 1, 1);
    const int64_t targets[] = {1, 2, peak, 3};
    memcpy(p.targets, targets, sizeof targets);
    p.grad_logp.form = CASE_VECTOR;
    p.grad_logp.values[1] = -1; /* so that no sum over tokens cancels */
    return p;
}

static case_expected expect_far_logits(const case_problem *p) {
    case_expected e = case_expected_create(p, 200);
    const double log_v = log((double)p->options.vocab_size), low = -200 / (double)p->temperature;
    e.logp[0] = e.logp[1] = e.logp_at_one[0] = e.logp_at_one[1] = -log_v;
    e.entropy[0] = e.entropy[1] = log_v;
    e.lse[0] = low + log_v;
    e.lse[1] = -low + log_v;
    e.logp[3] = low; /* all else of tokens 2 and 3 is 0 to within exp(-200) V */
    e.logp_at_one[3] = -200;
    return e;
}

static case_expected expect_maximum_from_zero(const case_problem *p) {
    const reference_faults faults = {.max_from_zero = 1};
    return case_expect(p, &faults);
}

static void check_far_logits(lgh_dtype dtype, int64_t vocab_size, int64_t peak, float temperature) {
    case_problem p = far_logits(dtype, vocab_size, peak);
    p.temperature = temperature;
    case_plan(&p);
    case_upload(&p);
    case_forward(&p);
    case_expected right = expect_far_logits(&p), faulty = expect_maximum_from_zero(&p);
    case_assert_outputs(&p, &right);
    case_assert_outputs_outside(&p, &faulty,
                                LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE | LGH_OUTPUT_LOGP_AT_ONE);
    case_expected_destroy(&right);
    case_expected_destroy(&faulty);
    case_close(&p);
}

/* The peak alone in the first or the last chunk, the others of which are merged with it. */
static void logits_far_from_zero_keep_their_sum(void **state) {
    (void)state;
    static const int64_t vocabularies[] = {4096, 6145, 12289};
    static const float temperatures[] = {1.0f, 0.7f, 0.25f};
    for (size_t i = 0; i < 3; i++)
        for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
            check_far_logits(*dtype, vocabularies[i], 0, temperatures[i]);
            check_far_logits(*dtype, vocabularies[i], vocabularies[i] - 1, temperatures[i]);
        }
}

static void logits_far_from_zero_have_finite_gradients(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        case_problem p = far_logits(*dtype, 12289, 12288);
        case_run(&p);
        case_expected right = case_expect(&p, NULL), faulty = expect_maximum_from_zero(&p);
        for (int64_t i = 0; i < 4 * 8; i++)
            assert_true(isfinite(p.dhidden[i]));
        case_assert_gradients(&p, &right, CASE_DWEIGHT);
        case_assert_gradients_outside(&p, &faulty, CASE_DWEIGHT);
        case_expected_destroy(&right);
        case_expected_destroy(&faulty);
        case_close(&p);
    }
}

/* ---- Sums over a large vocabulary -----------------------------------------------------------
 * A sum of 2^18 equal terms stops growing where its format runs out of digits. Seen in Megatron. */

enum { LARGE = 262144, LARGE_TOKENS = 3, LARGE_WIDTH = 16 };

/* Uniform logits between -3 and 0, exact in FP32: every row of the weight is the same. */
static case_problem uniform_logits(lgh_dtype dtype) {
    case_problem p = case_of(LARGE_TOKENS, LARGE_WIDTH, LARGE);
    case_set_operands(&p, dtype);
    case_open(&p);
    for (int64_t i = 0; i < LARGE_TOKENS * LARGE_WIDTH; i++)
        case_set_hidden(&p, i / LARGE_WIDTH, i % LARGE_WIDTH, (double)(1 + i % 5) / 8);
    for (int64_t i = 0; i < LARGE * LARGE_WIDTH; i++)
        case_set_weight(&p, i / LARGE_WIDTH, i % LARGE_WIDTH, -0.25);
    for (int64_t i = 0; i < LARGE_TOKENS; i++)
        p.targets[i] = i * (LARGE / 2) - (i == 2);
    p.grad_logp.form = CASE_HOST;
    return p;
}

/* The largest |column sum| of a gradient of the weight, against the sum of its magnitudes. */
static double worst_column_sum(const case_problem *p, const double *dweight) {
    double worst = 0;
    for (int64_t k = 0; k < LARGE_WIDTH; k++) {
        double sum = 0, size = 0;
        for (int64_t v = 0; v < LARGE; v++) {
            const int64_t i = v * LARGE_WIDTH + k;
            sum += (double)p->dweight[i] - (dweight ? dweight[i] : 0);
            size += fabs((double)p->dweight[i]);
        }
        worst = fmax(worst, fabs(sum) / size);
    }
    return worst;
}

static double count_in_bf16(int64_t count) {
    uint16_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum = lgh__bf16_from_float(lgh__float_from_bf16(sum) + 1.0f);
    return (double)lgh__float_from_bf16(sum);
}

static void large_vocabulary_sums_to_one(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        case_problem p = uniform_logits(*dtype);
        case_run(&p);
        const reference_faults padded = {.padded_columns = 256};
        case_expected faulty = case_expect(&p, &padded);
        for (int i = 0; i < LARGE_TOKENS; i++) {
            lgh_assert_close((double)p.logp[i], -log(LARGE), PROMISE_UNIFORM_LOGP, "logp");
            lgh_assert_close((double)p.entropy[i], log(LARGE), PROMISE_UNIFORM_LOGP, "entropy");
            assert_true(fabs((double)p.logp[i] - faulty.logp[i]) > PROMISE_UNIFORM_LOGP);
            assert_true(fabs((double)p.logp[i] + log(count_in_bf16(LARGE))) > PROMISE_UNIFORM_LOGP);
        }
        const double sum = worst_column_sum(&p, NULL);
        assert_true(sum <= PROMISE_COLUMN_SUM);
        assert_true(worst_column_sum(&p, faulty.dweight) > PROMISE_COLUMN_SUM);
        case_expected right = case_expect(&p, NULL);
        case_assert_gradients(&p, &right, CASE_DWEIGHT);
        case_expected_destroy(&right);
        case_expected_destroy(&faulty);
        case_close(&p);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(padded_columns_do_not_count),
        cmocka_unit_test(padded_columns_do_not_count_at_any_vocabulary),
        cmocka_unit_test(padded_columns_take_no_gradient),
        cmocka_unit_test(logits_far_from_zero_keep_their_sum),
        cmocka_unit_test(logits_far_from_zero_have_finite_gradients),
        cmocka_unit_test(large_vocabulary_sums_to_one),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
