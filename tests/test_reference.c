/* test_reference.c - the oracle against numbers worked out by hand, against differences of its own
 * results, and with each of its faults. */
#include "harness.h"

#include <math.h>
#include <string.h>

#include "reference.h"

/* ---- Known numbers ------------------------------------------------------------------------- */

static lgh_plan_options plan_of(int64_t hidden_size, int64_t vocab_size) {
    lgh_plan_options options = LGH_PLAN_OPTIONS_INIT;
    options.hidden_size = hidden_size;
    options.vocab_size = vocab_size;
    options.hidden_dtype = options.weight_dtype = LGH_FP32;
    return options;
}

/* Arguments for tokens of one element, which is 1, so that the logits are the weight's rows. */
static const float ones[] = {1, 1, 1, 1};

static lgh_forward_args args_of(const float *logits, int64_t vocab_size, int64_t tokens,
                                const void *targets) {
    lgh_forward_args args = LGH_FORWARD_ARGS_INIT;
    args.hidden = (lgh_const_matrix){ones, tokens, 1, 1, LGH_FP32};
    args.weight = (lgh_const_matrix){logits, vocab_size, 1, 1, LGH_FP32};
    args.targets = targets;
    return args;
}

static void two_logits_give_the_known_numbers(void **state) {
    (void)state;
    const float logits[] = {2, 0};
    const int64_t target = 0;
    double logp, lse, entropy, at_one;
    int64_t best;
    const lgh_plan_options options = plan_of(1, 2);
    lgh_forward_args args = args_of(logits, 2, 1, &target);
    args.temperature.host = 0.5f;
    reference_outputs outputs = {&logp, &lse, &entropy, &at_one, &best, 0, 0};
    reference_forward(&options, &args, NULL, &outputs);
    lgh_assert_close(logp, -0.018149927917809740, 1e-15, "logp at T = 0.5");
    lgh_assert_close(lse, 4.018149927917809740, 1e-15, "lse at T = 0.5");
    lgh_assert_close(at_one, -0.126928011042972496, 1e-15, "logp at T = 1");
    double p = exp(logp);
    lgh_assert_close(entropy, -p * log(p) - (1 - p) * log(1 - p), 1e-15, "entropy");
    assert_int_equal(best, 0);
}

static void rows_that_do_not_count_are_zero(void **state) {
    (void)state;
    const float logits[] = {2, 0};
    const int32_t targets[] = {-100, 2, -1, 1};
    double logp[4], lse[4], entropy[4], at_one[4], dhidden[4];
    int64_t best[4];
    lgh_plan_options options = plan_of(1, 2);
    options.targets_dtype = LGH_INT32;
    lgh_forward_args args = args_of(logits, 2, 4, targets);
    reference_outputs outputs = {logp, lse, entropy, at_one, best, 0, 0};
    reference_forward(&options, &args, NULL, &outputs);
    assert_true(logp[0] == 0 && lse[0] == 0 && entropy[0] == 0 && at_one[0] == 0);
    assert_int_equal(best[0], -1);
    for (int i = 1; i < 3; i++) {
        assert_true(logp[i] == 0 && at_one[i] == 0);
        assert_true(lse[i] == lse[3] && entropy[i] == entropy[3] && best[i] == 0);
    }
    assert_int_equal(outputs.foreign_targets, 2);
    lgh_backward_args backward = LGH_BACKWARD_ARGS_INIT;
    backward.hidden = args.hidden;
    backward.weight = args.weight;
    backward.targets = targets;
    backward.grad_logp.host = backward.grad_entropy.host = backward.grad_lse.host = 1;
    reference_backward(&options, &backward, NULL, &(reference_gradients){dhidden, NULL, NULL});
    assert_true(dhidden[0] == 0 && dhidden[1] == 0 && dhidden[2] == 0 && dhidden[3] != 0);
    options.oov_policy = LGH_OOV_SOFTMAX;
    reference_backward(&options, &backward, NULL, &(reference_gradients){dhidden, NULL, NULL});
    assert_true(dhidden[0] == 0 && dhidden[1] != 0 && dhidden[2] == dhidden[1]);
}

/* Entries 10 .. 12 of a vocabulary of 12 entries: the last row is padding. */
static void a_shard_knows_its_entries(void **state) {
    (void)state;
    const float logits[] = {2, 2, 7};
    const int64_t targets[] = {11, 9, 12};
    double logp[3], lse[3], at_one[3];
    int64_t best[3];
    lgh_plan_options options = plan_of(1, 3);
    options.vocab_start = 10;
    options.vocab_valid = 12;
    lgh_forward_args args = args_of(logits, 3, 3, targets);
    args.temperature.host = 2;
    reference_outputs outputs = {logp, lse, NULL, at_one, best, 0, 0};
    reference_forward(&options, &args, NULL, &outputs);
    for (int i = 0; i < 3; i++) {
        lgh_assert_close(lse[i], 1 + log(2), 1e-15, "lse of two entries");
        assert_int_equal(best[i], 10);
    }
    lgh_assert_close(logp[0], -log(2), 1e-15, "this shard's target");
    lgh_assert_close(logp[1], -1 - log(2), 1e-15, "another shard's target");
    lgh_assert_close(at_one[1], -2 - log(2), 1e-15, "another shard's target at T = 1");
    assert_true(logp[2] == 0 && at_one[2] == 0);
    assert_int_equal(outputs.foreign_targets, 2);
}

static void an_empty_shard_knows_nothing(void **state) {
    (void)state;
    const float logits[] = {2, 2, 7};
    const int64_t targets[] = {11, 9};
    double logp[2], lse[2], entropy[2];
    int64_t best[2];
    lgh_plan_options options = plan_of(1, 3);
    options.vocab_start = options.vocab_valid = 12;
    lgh_forward_args args = args_of(logits, 3, 2, targets);
    reference_outputs outputs = {logp, lse, entropy, NULL, best, 0, 0};
    reference_forward(&options, &args, NULL, &outputs);
    for (int i = 0; i < 2; i++) {
        assert_true(isinf(lse[i]) && lse[i] < 0 && logp[i] == 0 && entropy[i] == 0);
        assert_int_equal(best[i], -1);
    }
}

static void rows_have_their_own_temperature_bias_and_softcap(void **state) {
    (void)state;
    const float logits[] = {1, 0}, bias[] = {1, 0}, temperatures[] = {0.5f, 9, 0, 9, 2};
    double lse[3];
    lgh_plan_options options = plan_of(1, 2);
    options.bias_dtype = LGH_FP32;
    options.softcap = 3;
    lgh_forward_args args = args_of(logits, 2, 3, NULL);
    args.bias = bias;
    args.temperature = (lgh_value){temperatures, 2, 0};
    reference_outputs outputs = {NULL, lse, NULL, NULL, NULL, 0, 0};
    reference_forward(&options, &args, NULL, &outputs);
    const double capped = 3 * tanh(2.0 / 3);
    lgh_assert_close(lse[0], log(1 + exp(2 * capped)), 1e-15, "T = 0.5");
    assert_true(isnan(lse[1]));
    lgh_assert_close(lse[2], log(1 + exp(capped / 2)), 1e-15, "T = 2");
    assert_int_equal(outputs.invalid_temperatures, 1);
}

static void numbers_round_to_nearest_even(void **state) {
    (void)state;
    assert_true(reference_round(2049, LGH_FP16) == 2048);
    assert_true(reference_round(2051, LGH_FP16) == 2052);
    assert_true(reference_round(0.1, LGH_FP16) == 0.0999755859375);
    assert_true(reference_round(-65504, LGH_FP16) == -65504);
    assert_true(reference_round(65519.99, LGH_FP16) == 65504);
    assert_true(isinf(reference_round(65520, LGH_FP16)));
    assert_true(reference_round(0x1p-24, LGH_FP16) == 0x1p-24);
    assert_true(reference_round(0x1p-25, LGH_FP16) == 0);
    assert_true(reference_round(0, LGH_FP16) == 0);
    assert_true(reference_round(257, LGH_BF16) == 256);
    assert_true(reference_round(259, LGH_BF16) == 260);
    assert_true(isinf(reference_round(0x1.ffp127, LGH_BF16)));
    assert_true(reference_round(0.1, LGH_FP32) == (double)0.1f);
    assert_true(reference_round(0x1.8p-149, LGH_FP32) == 0x1p-148);
    const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x7e00};
    const double values[] = {1, -2, 0x1p-24, 65504, INFINITY};
    for (int i = 0; i < 5; i++)
        assert_true(reference_element(halves, LGH_FP16, i) == values[i]);
    assert_true(isnan(reference_element(halves, LGH_FP16, 5)));
    const uint16_t brains[] = {0x3f80, 0xc049, 0x0001};
    assert_true(reference_element(brains, LGH_BF16, 0) == 1);
    assert_true(reference_element(brains, LGH_BF16, 1) == -3.140625);
    assert_true(reference_element(brains, LGH_BF16, 2) == 0x1p-133);
}

/* ---- Slopes -------------------------------------------------------------------------------- */

enum { TOKENS = 3, HIDDEN = 4, VOCAB = 5 };

typedef struct small_problem {
    float hidden[TOKENS * HIDDEN];
    float weight[VOCAB * HIDDEN];
    float bias[VOCAB];
    float temperatures[TOKENS];
    float upstream[3][TOKENS];
    int64_t targets[TOKENS];
    lgh_plan_options options;
} small_problem;

/* Everything at once: bias, softcap, a temperature per token, a target of another shard and, last,
 * a row of padding. */
static small_problem small(void) {
    lgh_random random = {11};
    small_problem p = {.temperatures = {0.7f, 1.5f, 0.4f},
                       .targets = {103, 100, 7},
                       .options = plan_of(HIDDEN, VOCAB)};
    p.options.bias_dtype = LGH_FP32;
    p.options.softcap = 2;
    p.options.vocab_start = 100;
    p.options.vocab_valid = 104;
    lgh_random_fill_fp32(&random, p.hidden, TOKENS * HIDDEN, 1);
    lgh_random_fill_fp32(&random, p.weight, VOCAB * HIDDEN, 1);
    lgh_random_fill_fp32(&random, p.bias, VOCAB, 1);
    lgh_random_fill_fp32(&random, p.upstream[0], 3 * TOKENS, 1);
    return p;
}

static lgh_forward_args forward_of(const small_problem *p) {
    lgh_forward_args args = LGH_FORWARD_ARGS_INIT;
    args.hidden = (lgh_const_matrix){p->hidden, TOKENS, HIDDEN, HIDDEN, LGH_FP32};
    args.weight = (lgh_const_matrix){p->weight, VOCAB, HIDDEN, HIDDEN, LGH_FP32};
    args.targets = p->targets;
    args.temperature = (lgh_value){p->temperatures, 1, 0};
    args.bias = p->bias;
    return args;
}

static lgh_backward_args backward_of(const small_problem *p) {
    const lgh_forward_args forward = forward_of(p);
    lgh_backward_args args = LGH_BACKWARD_ARGS_INIT;
    args.hidden = forward.hidden;
    args.weight = forward.weight;
    args.targets = forward.targets;
    args.temperature = forward.temperature;
    args.bias = forward.bias;
    args.grad_logp = (lgh_value){p->upstream[0], 1, 0};
    args.grad_entropy = (lgh_value){p->upstream[1], 1, 0};
    args.grad_lse = (lgh_value){p->upstream[2], 1, 0};
    return args;
}

static double loss(const small_problem *p) {
    double logp[TOKENS], lse[TOKENS], entropy[TOKENS], sum = 0;
    const lgh_forward_args args = forward_of(p);
    reference_outputs outputs = {logp, lse, entropy, NULL, NULL, 0, 0};
    reference_forward(&p->options, &args, NULL, &outputs);
    for (int i = 0; i < TOKENS; i++)
        sum += (double)p->upstream[0][i] * logp[i] + (double)p->upstream[1][i] * entropy[i] +
               (double)p->upstream[2][i] * lse[i];
    return sum;
}

/* (loss(x + d) - loss(x - d)) / 2d for one operand element, with the steps that floats can take. */
static double slope_over(const small_problem *p, float *element, float step) {
    const float before = *element;
    const float above = before + step, below = before - step;
    *element = above;
    double rise = loss(p);
    *element = below;
    rise -= loss(p);
    *element = before;
    return rise / ((double)above - (double)below);
}

/* Two steps, of which Richardson's extrapolation leaves an error of their fourth power. */
static double slope(const small_problem *p, float *element) {
    return (4 * slope_over(p, element, 0x1p-8f) - slope_over(p, element, 0x1p-7f)) / 3;
}

static void check_slopes(small_problem *p, float *elements, const double *gradients, int count,
                         const char *what) {
    for (int i = 0; i < count; i++)
        lgh_assert_close(gradients[i], slope(p, &elements[i]), 1e-6 * (1 + fabs(gradients[i])),
                         what);
}

static void gradients_are_slopes_of_the_loss(void **state) {
    (void)state;
    small_problem p = small();
    double dhidden[TOKENS * HIDDEN], dweight[VOCAB * HIDDEN], dbias[VOCAB];
    const lgh_backward_args args = backward_of(&p);
    const reference_gradients gradients = {dhidden, dweight, dbias};
    reference_backward(&p.options, &args, NULL, &gradients);
    check_slopes(&p, p.hidden, dhidden, TOKENS * HIDDEN, "dhidden");
    check_slopes(&p, p.weight, dweight, VOCAB * HIDDEN, "dweight");
    check_slopes(&p, p.bias, dbias, VOCAB, "dbias");
    assert_true(dbias[3] != 0 && dbias[4] == 0); /* the last row is padding */
}

/* Each of g, e and l by itself: the others' gradients must not hide an error. */
static void each_upstream_gradient_has_its_slope(void **state) {
    (void)state;
    for (int kept = 0; kept < 3; kept++) {
        small_problem p = small();
        for (int i = 0; i < 3; i++)
            if (i != kept)
                memset(p.upstream[i], 0, sizeof p.upstream[i]);
        double dhidden[TOKENS * HIDDEN];
        const lgh_backward_args args = backward_of(&p);
        reference_backward(&p.options, &args, NULL, &(reference_gradients){dhidden, NULL, NULL});
        check_slopes(&p, p.hidden, dhidden, TOKENS * HIDDEN, "dhidden");
    }
}

/* ---- Faults -------------------------------------------------------------------------------- */

/* A number of the small problem's results, with a fault. */
typedef double (*result)(const small_problem *p, const reference_faults *faults);

static double lse_of(const small_problem *p, const reference_faults *faults) {
    double lse[TOKENS];
    const lgh_forward_args args = forward_of(p);
    reference_outputs outputs = {NULL, lse, NULL, NULL, NULL, 0, 0};
    reference_forward(&p->options, &args, faults, &outputs);
    return lse[1];
}

static double logp_of_last(const small_problem *p, const reference_faults *faults) {
    double logp[TOKENS];
    const lgh_forward_args args = forward_of(p);
    reference_outputs outputs = {logp, NULL, NULL, NULL, NULL, 0, 0};
    reference_forward(&p->options, &args, faults, &outputs);
    return logp[2];
}

static double best_of(const small_problem *p, const reference_faults *faults) {
    int64_t best[TOKENS];
    const lgh_forward_args args = forward_of(p);
    reference_outputs outputs = {NULL, NULL, NULL, NULL, best, 0, 0};
    reference_forward(&p->options, &args, faults, &outputs);
    return (double)best[0];
}

static double dbias_of(const small_problem *p, const reference_faults *faults) {
    double dbias[VOCAB];
    const lgh_backward_args args = backward_of(p);
    reference_backward(&p->options, &args, faults, &(reference_gradients){NULL, NULL, dbias});
    return dbias[0];
}

static void each_fault_shows(void **state) {
    (void)state;
    const struct {
        const char *name;
        reference_faults faults;
        result result;
        double least; /* how far off it is */
        double most;
    } cases[] = {
        {"shared_temperature", {.shared_temperature = 1}, lse_of, 1e-2, 10},
        {"padded_columns", {.padded_columns = 3}, lse_of, 1e-2, 10},
        {"padding_left_in", {.padding_left_in = 1}, lse_of, 1e-3, 10},
        {"exact_logits", {.exact_logits = 1}, lse_of, 1e-5, 0.1},
        {"rounded_after_softcap", {.rounded_after_softcap = 1}, lse_of, 1e-6, 0.1},
        {"bias_after_softcap", {.bias_after_softcap = 1}, lse_of, 1e-3, 10},
        {"highest_best", {.highest_best = 1}, best_of, 1, 1},
        {"local_best", {.local_best = 1}, best_of, 100, 100},
        {"first_entry_for_foreign", {.first_entry_for_foreign = 1}, logp_of_last, 1e-3, 20},
        {"remote_as_unknown", {.remote_as_unknown = 1}, logp_of_last, 1e-3, 20},
        {"shared_gradient", {.shared_gradient = 1}, dbias_of, 1e-3, 10},
        {"flat_softcap", {.flat_softcap = 1}, dbias_of, 1e-3, 10},
        {"rounded_gradients", {.rounded_gradients = LGH_BF16}, dbias_of, 1e-6, 1e-2},
    };
    small_problem p = small();
    p.options.logits_rounding = LGH_BF16;
    p.options.softcap = 8;
    for (int k = 0; k < HIDDEN; k++) /* entries 100 and 101 tie */
        p.weight[HIDDEN + k] = p.weight[k];
    p.bias[0] = p.bias[1] = 7;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const double error =
            fabs(cases[i].result(&p, &cases[i].faults) - cases[i].result(&p, NULL));
        if (!(error >= cases[i].least && error <= cases[i].most))
            fail_msg("%s makes a difference of %g", cases[i].name, error);
    }
}

static void a_divided_weight_is_a_little_wrong(void **state) {
    (void)state;
    small_problem p = small();
    memset(p.bias, 0, sizeof p.bias);
    p.options.softcap = 0;
    const reference_faults divided = {.divided_weight = 1};
    const double error = fabs(lse_of(&p, &divided) - lse_of(&p, NULL));
    assert_true(error > 1e-4 && error < 0.05);
}

static void a_maximum_from_zero_overflows(void **state) {
    (void)state;
    const float logits[] = {-200, -200};
    double lse;
    const lgh_plan_options options = plan_of(1, 2);
    const lgh_forward_args args = args_of(logits, 2, 1, NULL);
    reference_outputs outputs = {NULL, &lse, NULL, NULL, NULL, 0, 0};
    reference_forward(&options, &args, NULL, &outputs);
    lgh_assert_close(lse, -200 + log(2), 1e-12, "all logits -200");
    reference_forward(&options, &args, &(reference_faults){.max_from_zero = 1}, &outputs);
    assert_true(isinf(lse));
}

static void the_live_list_leaves_rows_out(void **state) {
    (void)state;
    small_problem p = small();
    const int32_t list[] = {2, 7, 0}, count = 2;
    double lse[TOKENS];
    lgh_forward_args args = forward_of(&p);
    reference_outputs outputs = {NULL, lse, NULL, NULL, NULL, 0, 0};
    args.live = (lgh_live){list, 3, &count};
    reference_forward(&p.options, &args, NULL, &outputs);
    assert_true(lse[0] == 0 && lse[1] == 0 && lse[2] != 0);
    assert_int_equal(outputs.foreign_targets, 1);
    reference_forward(&p.options, &args, &(reference_faults){.every_row = 1}, &outputs);
    assert_true(lse[0] != 0 && lse[1] != 0 && lse[2] != 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_logits_give_the_known_numbers),
        cmocka_unit_test(rows_that_do_not_count_are_zero),
        cmocka_unit_test(a_shard_knows_its_entries),
        cmocka_unit_test(an_empty_shard_knows_nothing),
        cmocka_unit_test(rows_have_their_own_temperature_bias_and_softcap),
        cmocka_unit_test(numbers_round_to_nearest_even),
        cmocka_unit_test(gradients_are_slopes_of_the_loss),
        cmocka_unit_test(each_upstream_gradient_has_its_slope),
        cmocka_unit_test(each_fault_shows),
        cmocka_unit_test(a_divided_weight_is_a_little_wrong),
        cmocka_unit_test(a_maximum_from_zero_overflows),
        cmocka_unit_test(the_live_list_leaves_rows_out)};
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
