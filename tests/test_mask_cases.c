/* test_mask_cases.c - tokens that do not count: ignored targets, targets outside the vocabulary, no
 * tokens at all. NaNs from an average over nothing were seen in Automodel and torchtune. */
#include "case_oracle.h"
#include "harness.h"

#include <stdlib.h>
#include <string.h>

enum { TOKENS = 21, WIDTH = 16, VOCAB = 301 };

/* Zeros of either sign, NaN not among them. */
static void assert_zeros(const float *values, int64_t count, const char *what) {
    for (int64_t i = 0; i < count; i++)
        if (!(values[i] == 0))
            fail_msg("%s: element %lld is %g, not 0", what, (long long)i, (double)values[i]);
}

static case_problem random_problem(lgh_dtype operands, lgh_dtype results) {
    case_problem p = case_of(TOKENS, WIDTH, VOCAB);
    case_set_operands(&p, operands);
    case_set_results(&p, results);
    p.temperature = 0.7f;
    case_open(&p);
    case_fill(&p, 23, 1.0, 0.5);
    return p;
}

/* ---- Ignored -------------------------------------------------------------------------------- */

/* The oracle that does not know the ignore index: it takes the target as it is. */
static case_expected expect_ignorant(const case_problem *p) {
    case_problem ignorant = *p;
    ignorant.options.ignore_index = INT64_MIN;
    return case_expect(&ignorant, NULL);
}

static void check_every_token_ignored(lgh_dtype operands, lgh_dtype results, int64_t ignore_index,
                                      lgh_dtype targets) {
    case_problem p = random_problem(operands, results);
    p.options.ignore_index = ignore_index;
    p.options.targets_dtype = targets;
    for (int i = 0; i < TOKENS; i++)
        p.targets[i] = ignore_index;
    case_run(&p);
    assert_zeros(p.logp, TOKENS, "logp");
    assert_zeros(p.lse, TOKENS, "lse");
    assert_zeros(p.entropy, TOKENS, "entropy");
    assert_zeros(p.logp_at_one, TOKENS, "logp_at_one");
    assert_zeros(p.dhidden, TOKENS * WIDTH, "dhidden");
    assert_zeros(p.dweight, VOCAB * WIDTH, "dweight");
    case_expected faulty = expect_ignorant(&p);
    case_assert_outputs_outside(&p, &faulty, LGH_OUTPUT_LSE | LGH_OUTPUT_ENTROPY);
    if (ignore_index >= 0) {
        case_assert_outputs_outside(&p, &faulty, LGH_OUTPUT_ALL);
        case_assert_gradients_outside(&p, &faulty, CASE_DHIDDEN | CASE_OTHER_ROWS);
    }
    case_expected_destroy(&faulty);
    case_close(&p);
}

static void every_token_ignored_gives_zeros(void **state) {
    (void)state;
    static const int64_t ignored[] = {-100, 0, 7, VOCAB - 1};
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
            check_every_token_ignored(*dtype, LGH_FP32, ignored[i], LGH_INT64);
            check_every_token_ignored(*dtype, LGH_BF16, ignored[i], LGH_INT32);
        }
}

/* ---- Some of each --------------------------------------------------------------------------- */

static int counts(const case_problem *p, int64_t token) {
    const int64_t target = p->targets[token];
    return target != p->options.ignore_index && target >= 0 && target < VOCAB;
}

/* The oracle for targets cut to 32 bits: 2^32 + 3 would be entry 3. */
static void check_narrow_targets_show(case_problem *p) {
    int64_t kept[TOKENS];
    memcpy(kept, p->targets, sizeof kept);
    for (int i = 0; i < TOKENS; i++)
        p->targets[i] = (int64_t)(int32_t)(uint32_t)kept[i];
    case_expected faulty = case_expect(p, NULL);
    case_assert_outputs_outside(p, &faulty, LGH_OUTPUT_LOGP | LGH_OUTPUT_LOGP_AT_ONE);
    case_assert_gradients_outside(p, &faulty, CASE_DHIDDEN | CASE_TARGET_ROWS);
    case_expected_destroy(&faulty);
    memcpy(p->targets, kept, sizeof kept);
}

static void check_mixed_targets(lgh_dtype operands, lgh_dtype results, lgh_dtype targets) {
    static const int64_t wide[] = {
        -100, -1, VOCAB, ((int64_t)1 << 32) + 3, -((int64_t)1 << 32), INT64_MAX, INT64_MIN};
    static const int64_t narrow[] = {-100, -1, VOCAB, INT32_MAX, INT32_MIN, VOCAB + 3, -99};
    case_problem p = random_problem(operands, results);
    p.options.targets_dtype = targets;
    for (int i = 0; i < 7; i++)
        p.targets[3 * i + 1] = targets == LGH_INT64 ? wide[i] : narrow[i];
    case_run(&p);
    case_expected right = case_expect(&p, NULL), faulty = expect_ignorant(&p);
    case_assert_outputs(&p, &right);
    case_assert_gradients(&p, &right, CASE_GRADIENTS);
    case_assert_outputs_outside(&p, &faulty, LGH_OUTPUT_LSE | LGH_OUTPUT_ENTROPY);
    for (int i = 0; i < TOKENS; i++) {
        if (counts(&p, i))
            continue;
        assert_zeros(p.logp + i, 1, "logp");
        assert_zeros(p.logp_at_one + i, 1, "logp_at_one");
        assert_zeros(p.dhidden + i * WIDTH, WIDTH, "dhidden");
    }
    if (targets == LGH_INT64)
        check_narrow_targets_show(&p);
    case_expected_destroy(&right);
    case_expected_destroy(&faulty);
    case_close(&p);
}

static void targets_outside_the_vocabulary_have_no_logp_and_no_gradient(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_mixed_targets(*dtype, LGH_FP32, LGH_INT64);
        check_mixed_targets(*dtype, LGH_BF16, LGH_INT64);
        check_mixed_targets(*dtype, LGH_FP32, LGH_INT32);
    }
}

/* The rows that count are what they are without the others. */
static void ignored_tokens_change_no_other(void **state) {
    (void)state;
    case_problem p = random_problem(LGH_BF16, LGH_FP32);
    float logp[TOKENS], dhidden[TOKENS * WIDTH];
    case_run(&p);
    memcpy(logp, p.logp, sizeof logp);
    memcpy(dhidden, p.dhidden, sizeof dhidden);
    for (int i = 0; i < TOKENS; i += 2)
        p.targets[i] = -100;
    case_upload(&p);
    case_forward(&p);
    case_backward(&p);
    for (int i = 1; i < TOKENS; i += 2) {
        lgh_assert_same_bytes(p.logp + i, logp + i, sizeof *logp, "logp");
        lgh_assert_same_bytes(p.dhidden + i * WIDTH, dhidden + i * WIDTH, WIDTH * sizeof *dhidden,
                              "dhidden");
    }
    assert_true(logp[0] != 0 && p.logp[0] == 0);
    case_close(&p);
}

/* ---- No tokens ------------------------------------------------------------------------------ */

static void check_no_tokens(lgh_dtype operands, lgh_dtype results, int64_t max_tokens) {
    case_problem p = case_of(0, WIDTH, VOCAB);
    case_set_operands(&p, operands);
    p.options.max_tokens = max_tokens;
    case_set_results(&p, results);
    case_open(&p);
    case_fill(&p, 5, 1.0, 1.0);
    lgh_random random = {6};
    lgh_random_fill_fp32(&random, p.dweight_start, VOCAB * WIDTH, 1.0);
    case_run(&p);
    assert_zeros(p.dweight, VOCAB * WIDTH, "dweight");
    if (results == LGH_FP32) {
        p.accumulate = 1;
        case_backward(&p);
        lgh_assert_same_bytes(p.dweight, p.dweight_start, VOCAB * WIDTH * sizeof(float),
                              "dweight added to");
    }
    case_close(&p);
}

static void no_tokens_write_zeros_to_an_overwritten_dweight(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        for (int64_t max_tokens = 0; max_tokens <= 5; max_tokens += 5) {
            check_no_tokens(*dtype, LGH_FP32, max_tokens);
            check_no_tokens(*dtype, LGH_BF16, max_tokens);
        }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_ignored_gives_zeros),
        cmocka_unit_test(targets_outside_the_vocabulary_have_no_logp_and_no_gradient),
        cmocka_unit_test(ignored_tokens_change_no_other),
        cmocka_unit_test(no_tokens_write_zeros_to_an_overwritten_dweight),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
