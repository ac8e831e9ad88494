/* test_reference.c - the oracle against numbers worked out by hand, against differences of its own
 * results, and with each of its faults. */
#include "harness.h"

#include <math.h>
#include <string.h>

#include "reference.h"
#include "value.h"

/* Two logits, [2, 0], from a hidden state of one element. */
static const float one[] = {1};
static const float two_zero[] = {2, 0};
static const lgh_const_matrix one_hidden = {one, 1, 1, 1, LGH_FP32};
static const lgh_const_matrix two_logits = {two_zero, 2, 1, 1, LGH_FP32};

static void two_logits_give_the_known_numbers(void **state) {
    (void)state;
    const int64_t target = 0;
    double logp, lse, entropy, at_one;
    reference_options options = REFERENCE_OPTIONS_INIT;
    options.temperature = 0.5;
    reference_outputs outputs = {&logp, &lse, &entropy, &at_one};
    reference_forward(&one_hidden, &two_logits, &target, &options, &outputs);
    lgh_assert_close(logp, -0.018149927917809740, 1e-15, "logp at T = 0.5");
    lgh_assert_close(lse, 4.018149927917809740, 1e-15, "lse at T = 0.5");
    lgh_assert_close(at_one, -0.126928011042972496, 1e-15, "logp at T = 1");
    double p = exp(logp);
    lgh_assert_close(entropy, -p * log(p) - (1 - p) * log(1 - p), 1e-15, "entropy");
}

static void rows_that_do_not_count_are_zero(void **state) {
    (void)state;
    const float hidden[] = {1, 1, 1, 1};
    const int32_t targets[] = {-100, 2, -1, 1};
    const double ones[] = {1, 1, 1, 1};
    const lgh_const_matrix h = {hidden, 4, 1, 1, LGH_FP32};
    double logp[4], lse[4], entropy[4], at_one[4], dhidden[4];
    reference_options options = REFERENCE_OPTIONS_INIT;
    options.targets_dtype = LGH_INT32;
    reference_outputs outputs = {logp, lse, entropy, at_one};
    reference_forward(&h, &two_logits, targets, &options, &outputs);
    reference_upstream upstream = {ones, ones, ones};
    reference_backward(&h, &two_logits, targets, &options, &upstream, dhidden, NULL);
    assert_true(logp[0] == 0 && lse[0] == 0 && entropy[0] == 0 && at_one[0] == 0);
    for (int i = 1; i < 3; i++) {
        assert_true(logp[i] == 0 && at_one[i] == 0);
        assert_true(lse[i] == lse[3] && entropy[i] == entropy[3]);
    }
    assert_true(dhidden[0] == 0 && dhidden[1] == 0 && dhidden[2] == 0 && dhidden[3] != 0);
}

enum { TOKENS = 3, HIDDEN = 4, VOCAB = 5 };

typedef struct small_problem {
    float hidden[TOKENS * HIDDEN];
    float weight[VOCAB * HIDDEN];
    int64_t targets[TOKENS];
    double upstream[3][TOKENS];
    reference_options options;
} small_problem;

static small_problem small(void) {
    lgh_random random = {11};
    small_problem p = {.targets = {4, 0, 2}, .options = REFERENCE_OPTIONS_INIT};
    p.options.temperature = 0.7;
    lgh_random_fill_fp32(&random, p.hidden, TOKENS * HIDDEN, 1);
    lgh_random_fill_fp32(&random, p.weight, VOCAB * HIDDEN, 1);
    for (int i = 0; i < 3 * TOKENS; i++)
        p.upstream[i / TOKENS][i % TOKENS] = lgh_random_normal(&random);
    return p;
}

static lgh_const_matrix hidden_of(const small_problem *p) {
    return (lgh_const_matrix){p->hidden, TOKENS, HIDDEN, HIDDEN, LGH_FP32};
}

static lgh_const_matrix weight_of(const small_problem *p) {
    return (lgh_const_matrix){p->weight, VOCAB, HIDDEN, HIDDEN, LGH_FP32};
}

static double loss(const small_problem *p) {
    double logp[TOKENS], lse[TOKENS], entropy[TOKENS], sum = 0;
    lgh_const_matrix hidden = hidden_of(p), weight = weight_of(p);
    reference_outputs outputs = {logp, lse, entropy, NULL};
    reference_forward(&hidden, &weight, p->targets, &p->options, &outputs);
    for (int i = 0; i < TOKENS; i++)
        sum += p->upstream[0][i] * logp[i] + p->upstream[1][i] * entropy[i] +
               p->upstream[2][i] * lse[i];
    return sum;
}

/* (loss(x + d) - loss(x - d)) / 2d for one operand element, with the steps that floats can take. */
static double slope(const small_problem *p, float *element) {
    float before = *element;
    float above = before + 1e-3f, below = before - 1e-3f;
    *element = above;
    double rise = loss(p);
    *element = below;
    rise -= loss(p);
    *element = before;
    return rise / ((double)above - (double)below);
}

static void gradients_are_slopes_of_the_loss(void **state) {
    (void)state;
    small_problem p = small();
    double dhidden[TOKENS * HIDDEN], dweight[VOCAB * HIDDEN];
    lgh_const_matrix hidden = hidden_of(&p), weight = weight_of(&p);
    reference_upstream upstream = {p.upstream[0], p.upstream[1], p.upstream[2]};
    reference_backward(&hidden, &weight, p.targets, &p.options, &upstream, dhidden, dweight);
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        lgh_assert_close(dhidden[i], slope(&p, &p.hidden[i]), 2e-5, "dhidden");
    for (int i = 0; i < VOCAB * HIDDEN; i++)
        lgh_assert_close(dweight[i], slope(&p, &p.weight[i]), 2e-5, "dweight");
}

static void fp16_rounding_is_to_nearest_even(void **state) {
    (void)state;
    assert_true(reference_round_fp16(2049) == 2048);
    assert_true(reference_round_fp16(2051) == 2052);
    assert_true(reference_round_fp16(0.1) == 0.0999755859375);
    assert_true(reference_round_fp16(-65504) == -65504);
    assert_true(isinf(reference_round_fp16(65520)));
    assert_true(reference_round_fp16(0x1p-24) == 0x1p-24);
    assert_true(reference_round_fp16(0x1p-25) == 0);
    assert_true(reference_round_fp16(0) == 0);
}

/* lse of the small problem's token 0 with these options. */
static double lse_with(const small_problem *p, const reference_options *options) {
    double lse[TOKENS];
    lgh_const_matrix hidden = hidden_of(p), weight = weight_of(p);
    reference_outputs outputs = {NULL, lse, NULL, NULL};
    reference_forward(&hidden, &weight, p->targets, options, &outputs);
    return lse[0];
}

static void forward_faults_show(void **state) {
    (void)state;
    small_problem p = small();
    const double right = lse_with(&p, &p.options);
    reference_options options = p.options;
    options.faults.divided_weight = 1;
    const double divided = fabs(lse_with(&p, &options) - right);
    assert_true(divided > 1e-4 && divided < 0.1);
    options = p.options;
    options.faults.padded_columns = 3;
    lgh_assert_close(lse_with(&p, &options), log(exp(right) + 3), 1e-12, "padded columns");
    options = p.options;
    options.logits_rounding = REFERENCE_BF16;
    const double bf16 = fabs(lse_with(&p, &options) - right);
    options.logits_rounding = REFERENCE_FP16;
    const double fp16 = fabs(lse_with(&p, &options) - right);
    assert_true(bf16 > 1e-4 && bf16 < 0.1);
    assert_true(fp16 > 0 && fp16 < bf16);
    for (int k = 0; k < HIDDEN; k++) /* all logits -200 */
        p.hidden[k] = 1;
    for (int i = 0; i < VOCAB * HIDDEN; i++)
        p.weight[i] = -35;
    options = p.options;
    lgh_assert_close(lse_with(&p, &options), -200 + log(VOCAB), 1e-12, "all logits -200");
    options.faults.max_from_zero = 1;
    assert_true(isinf(lse_with(&p, &options)));
}

static void shared_gradient_shows(void **state) {
    (void)state;
    small_problem p = small();
    double right[TOKENS * HIDDEN], wrong[TOKENS * HIDDEN];
    lgh_const_matrix hidden = hidden_of(&p), weight = weight_of(&p);
    reference_upstream upstream = {p.upstream[0], NULL, NULL};
    reference_backward(&hidden, &weight, p.targets, &p.options, &upstream, right, NULL);
    p.options.faults.shared_gradient = 1;
    reference_backward(&hidden, &weight, p.targets, &p.options, &upstream, wrong, NULL);
    double ratio = p.upstream[0][0] / p.upstream[0][1];
    for (int k = 0; k < HIDDEN; k++) {
        assert_true(wrong[k] == right[k]);
        lgh_assert_close(wrong[HIDDEN + k], right[HIDDEN + k] * ratio, 1e-12, "token 1's dhidden");
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_logits_give_the_known_numbers),
                                       cmocka_unit_test(rows_that_do_not_count_are_zero),
                                       cmocka_unit_test(gradients_are_slopes_of_the_loss),
                                       cmocka_unit_test(fp16_rounding_is_to_nearest_even),
                                       cmocka_unit_test(forward_faults_show),
                                       cmocka_unit_test(shared_gradient_shows)};
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
