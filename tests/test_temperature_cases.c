/* test_temperature_cases.c - the softmax temperature: two of them in one pass, none of it in the
 * weight, and results equal to those of the unfused path logits.float() / T. */
#include "case_oracle.h"
#include "harness.h"

#include <math.h>

#include "promises.h"

/* ---- Two temperatures -----------------------------------------------------------------------
 * A trainer that took the log-prob at another temperature than the sampler. Seen in trl. */

/* Logits [2, 0], target 0: logp = -ln(1 + exp(-2 / T)). The weight holds the unit vectors, so that
 * dhidden is dlogp/dx. */
static case_problem two_logits(lgh_dtype dtype, float temperature) {
    case_problem p = case_of(1, 8, 2);
    case_set_operands(&p, dtype);
    p.temperature = temperature;
    case_open(&p);
    case_set_hidden(&p, 0, 0, 2);
    case_set_weight(&p, 0, 0, 1);
    case_set_weight(&p, 1, 1, 1);
    p.grad_logp.form = CASE_HOST;
    return p;
}

static case_expected expect_two_logits(const case_problem *p, double temperature) {
    case_expected e = case_expected_create(p, 2);
    const double logp = -log1p(exp(-2 / temperature)), rest = -expm1(logp);
    e.logp[0] = logp;
    e.lse[0] = 2 / temperature - logp;
    e.entropy[0] = -exp(logp) * logp - rest * (logp - 2 / temperature);
    e.logp_at_one[0] = -log1p(exp(-2.0));
    e.dhidden[0] = rest / temperature;
    e.dhidden[1] = -rest / temperature;
    e.dweight[0] = 2 * rest / temperature;
    e.dweight[8] = -2 * rest / temperature;
    return e;
}

static void check_two_logits(lgh_dtype dtype, float temperature) {
    case_problem p = two_logits(dtype, temperature);
    case_run(&p);
    case_expected right = expect_two_logits(&p, (double)temperature);
    case_assert_outputs(&p, &right);
    if (temperature >= 0.5f) /* below, 1 - p is less than an FP32 lse can tell from 0 */
        case_assert_gradients(&p, &right, CASE_GRADIENTS);
    if (temperature != 1.0f) {
        case_expected faulty = expect_two_logits(&p, 1.0);
        case_assert_outputs_outside(&p, &faulty,
                                    LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE | LGH_OUTPUT_ENTROPY);
        case_assert_gradients_outside(&p, &faulty, CASE_GRADIENTS);
        faulty.logp_at_one[0] = right.logp[0];
        case_assert_outputs_outside(&p, &faulty, LGH_OUTPUT_LOGP_AT_ONE);
        case_expected_destroy(&faulty);
    }
    case_expected_destroy(&right);
    case_close(&p);
}

static void one_pass_gives_both_temperatures(void **state) {
    (void)state;
    static const float temperatures[] = {0.5f, 1.0f, 0.7f, 0.1f, 1.3f, 2.0f, 10.0f, 100.0f};
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        for (size_t i = 0; i < sizeof temperatures / sizeof *temperatures; i++)
            check_two_logits(*dtype, temperatures[i]);
}

static void known_numbers_at_half_the_temperature(void **state) {
    (void)state;
    case_problem p = two_logits(LGH_BF16, 0.5f);
    case_run(&p);
    const double tolerance = promise_outputs(4, 8, LGH_BF16);
    lgh_assert_close((double)p.logp_at_one[0], -0.126928, tolerance, "logp at T = 1");
    lgh_assert_close((double)p.logp[0], -0.018150, tolerance, "logp at T = 0.5");
    case_close(&p);
}

/* ---- A weight that is never divided ---------------------------------------------------------
 * W / T in BF16 rounds the weight a second time. Seen in SkyRL. */

/* Logits of a standard deviation of 6: the largest are about 25. */
static void check_temperature(int64_t tokens, int64_t hidden_size, int64_t vocab_size,
                              float temperature) {
    case_problem p = case_of(tokens, hidden_size, vocab_size);
    p.temperature = temperature;
    case_open(&p);
    case_fill(&p, 10, 1.0, 6 / sqrt((double)hidden_size));
    p.grad_entropy.form = p.grad_lse.form = CASE_ABSENT;
    case_run(&p);
    device_buffer_assert_same(&p.device.weight, p.weight, "the weight");
    case_expected right = case_expect(&p, NULL), faulty = case_expect_divided_weight(&p, LGH_BF16);
    case_assert_outputs(&p, &right);
    case_assert_gradients(&p, &right, CASE_GRADIENTS);
    case_assert_outputs_outside(&p, &faulty, LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE | LGH_OUTPUT_ENTROPY);
    case_assert_gradients_outside(&p, &faulty, CASE_OTHER_ROWS);
    case_expected_destroy(&right);
    case_expected_destroy(&faulty);
    case_close(&p);
}

static void weight_is_not_divided_by_the_temperature(void **state) {
    (void)state;
    check_temperature(24, 256, 2000, 0.7f);
    check_temperature(24, 256, 2000, 1.3f);
    check_temperature(5, 64, 9001, 0.6f);
}

static void weight_is_not_divided_at_large_hidden_sizes(void **state) {
    (void)state;
    check_temperature(6, 4096, 700, 0.7f);
    check_temperature(6, 896, 700, 0.7f);
}

/* ---- The unfused path -----------------------------------------------------------------------
 * Operands of small multiples of 1/8, so that every sum of products is exact in FP32 in any order
 * and its BF16 rounding is one number. */

enum { TOKENS = 72, WIDTH = 128, VOCAB = 9001 };

static double eighths(lgh_random *random) {
    return (double)(lgh_random_below(random, 17) - 8) / 8;
}

static case_problem exact_logits(lgh_dtype dtype, int64_t token_block) {
    case_problem p = case_of(TOKENS, WIDTH, VOCAB);
    lgh_random random = {37};
    case_set_operands(&p, dtype);
    p.options.logits_rounding = LGH_BF16;
    p.options.token_block = token_block;
    p.temperature = 0.7f;
    case_open(&p);
    case_fill(&p, 38, 1.0, 1.0);
    for (int64_t i = 0; i < TOKENS * WIDTH; i++)
        case_set_hidden(&p, i / WIDTH, i % WIDTH, eighths(&random));
    for (int64_t i = 0; i < VOCAB * WIDTH; i++)
        case_set_weight(&p, i / WIDTH, i % WIDTH, eighths(&random));
    return p;
}

static void check_unfused_outputs(const case_problem *p, const case_expected *right,
                                  const case_expected *faulty) {
    const double tolerance = promise_unfused(right->max_abs_x / (double)p->temperature);
    const size_t tokens = (size_t)p->tokens;
    double logp_error = 0, entropy_error = 0;
    lgh_assert_array_close(p->logp, right->logp, tokens, tolerance, "logp");
    lgh_assert_array_close(p->entropy, right->entropy, tokens, tolerance, "entropy");
    lgh_assert_array_close(p->lse, right->lse, tokens, tolerance, "lse");
    for (size_t i = 0; i < tokens; i++) {
        logp_error = fmax(logp_error, fabs((double)p->logp[i] - faulty->logp[i]));
        entropy_error = fmax(entropy_error, fabs((double)p->entropy[i] - faulty->entropy[i]));
    }
    assert_true(logp_error > PROMISE_DIVIDED_WEIGHT_SHOWS);
    assert_true(entropy_error > PROMISE_DIVIDED_WEIGHT_SHOWS);
}

static void check_unfused(int64_t token_block) {
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        case_problem p = exact_logits(*dtype, token_block);
        case_run(&p);
        case_expected right = case_expect(&p, NULL),
                      faulty = case_expect_divided_weight(&p, LGH_BF16);
        assert_in_range((int)right.max_abs_x, 15, 60);
        check_unfused_outputs(&p, &right, &faulty);
        case_assert_gradients(&p, &right, CASE_GRADIENTS);
        case_assert_gradients_outside(&p, &faulty, CASE_DHIDDEN | CASE_OTHER_ROWS);
        case_expected_destroy(&right);
        case_expected_destroy(&faulty);
        case_close(&p);
    }
}

static void results_equal_the_unfused_path(void **state) {
    (void)state;
    check_unfused(0);
}

static void results_equal_the_unfused_path_in_token_blocks(void **state) {
    (void)state;
    check_unfused(16);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_pass_gives_both_temperatures),
        cmocka_unit_test(known_numbers_at_half_the_temperature),
        cmocka_unit_test(weight_is_not_divided_by_the_temperature),
        cmocka_unit_test(weight_is_not_divided_at_large_hidden_sizes),
        cmocka_unit_test(results_equal_the_unfused_path),
        cmocka_unit_test(results_equal_the_unfused_path_in_token_blocks),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
