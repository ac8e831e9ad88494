/* test_cpu_mathematics.c - what the CPU device makes of a logit: operands, bias, rounding, softcap
 * and temperature, each against the oracle and against the oracle with a fault. */
#include "harness.h"

#include <math.h>
#include <string.h>

#include "cpu_problem.h"

/* A vocabulary of three tiles, the last one with a rest. */
enum { TOKENS = 13, HIDDEN = 20, VOCAB = 150 };

static cpu_problem small(void) {
    return cpu_problem_of(TOKENS, HIDDEN, VOCAB);
}

/* Opens the problem, checks it with these faults and closes it. */
static void check(cpu_problem *p, const reference_faults *faults, size_t count) {
    cpu_problem_open(p);
    cpu_problem_check_all(p, faults, count);
    cpu_problem_close(p);
}

static void use_operands(cpu_problem *p, lgh_dtype hidden, lgh_dtype weight) {
    p->options.hidden_dtype = hidden;
    p->options.weight_dtype = weight;
}

/* ---- Operands ------------------------------------------------------------------------------ */

static const struct {
    lgh_dtype hidden;
    lgh_dtype weight;
} operands[] = {
    {LGH_BF16, LGH_BF16}, {LGH_FP16, LGH_FP16}, {LGH_FP32, LGH_FP32}, {LGH_BF16, LGH_FP32}};

enum { OPERANDS = sizeof operands / sizeof operands[0] };

static void every_operand_dtype_gives_the_oracles_numbers(void **state) {
    (void)state;
    const reference_faults faults[] = {{.shared_gradient = 1}, {.divided_weight = 1}};
    for (int i = 0; i < OPERANDS; i++) {
        cpu_problem p = small();
        use_operands(&p, operands[i].hidden, operands[i].weight);
        check(&p, faults, 2);
    }
}

static void gradients_take_their_operands_dtype(void **state) {
    (void)state;
    for (int i = 0; i < OPERANDS; i++) {
        cpu_problem p = small();
        use_operands(&p, operands[i].hidden, operands[i].weight);
        p.options.dhidden_dtype = operands[i].hidden;
        p.options.dweight_dtype = operands[i].weight;
        check(&p, &(reference_faults){.shared_gradient = 1}, 1);
    }
}

/* A single rounding of a float64 sum, which a rounding to float on the way would spoil: 1 + 2^-8 is
 * halfway between two BF16 numbers, and 2^-40 beyond it is lost in a float. */
static void sixteen_bit_gradients_are_rounded_once(void **state) {
    (void)state;
    const struct {
        lgh_dtype dtype;
        double step; /* half of the last place of 1 */
    } cases[] = {{LGH_BF16, 0x1p-8}, {LGH_FP16, 0x1p-11}};
    for (size_t i = 0; i < 2; i++) {
        cpu_problem p = cpu_problem_of(3, 1, 1);
        use_operands(&p, cases[i].dtype, cases[i].dtype);
        p.options.dhidden_dtype = p.options.dweight_dtype = cases[i].dtype;
        p.temperature.host = 1;
        cpu_problem_open(&p);
        /* One entry has probability 1, so that dx is grad_lse. */
        const double parts[] = {1, cases[i].step, 0x1p-14};
        const float upstream[] = {1, 1, 0x1p-26f};
        for (int token = 0; token < 3; token++)
            cpu_problem_set_hidden(&p, token, 0, parts[token]);
        cpu_problem_set_weight(&p, 0, 0, 0);
        p.grad_logp = p.grad_entropy = (lgh_value){NULL, 0, 0};
        p.grad_lse = (lgh_value){upstream, 1, 0};
        cpu_results r = cpu_problem_run(&p);
        assert_true(cpu_results_dweight(&p, &r, 0, 0) == 1 + 2 * cases[i].step);
        cpu_problem_check(&p, &r);
        cpu_results_close(&r);
        cpu_problem_close(&p);
    }
}

/* ---- Temperature --------------------------------------------------------------------------- */

static void each_token_has_its_temperature(void **state) {
    (void)state;
    for (int i = 0; i < OPERANDS; i++) {
        cpu_problem p = small();
        use_operands(&p, operands[i].hidden, operands[i].weight);
        cpu_problem_open(&p);
        cpu_problem_vary_temperature(&p);
        p.temperatures[0] = 1;
        cpu_problem_check_all(&p, &(reference_faults){.shared_temperature = 1}, 1);
        cpu_problem_close(&p);
    }
}

/* A vector, a broadcast value and a host value of the same numbers give the same bits. */
static void ways_to_give_a_temperature_are_equal(void **state) {
    (void)state;
    const float values[] = {0.5f, 1, 2};
    cpu_problem p = small();
    cpu_problem_open(&p);
    for (int i = 0; i < TOKENS; i++)
        p.temperatures[i * CPU_PROBLEM_STRIDE] = values[i % 3];
    cpu_problem_vary_temperature(&p);
    cpu_results vector = cpu_problem_run(&p);
    for (int value = 0; value < 3; value++) {
        p.temperature = (lgh_value){&values[value], 0, 0};
        cpu_results broadcast = cpu_problem_run(&p);
        p.temperature = (lgh_value){NULL, 0, values[value]};
        cpu_results host = cpu_problem_run(&p);
        cpu_problem_check_same(&p, &broadcast, &host);
        for (int i = value; i < TOKENS; i += 3) {
            for (int k = 0; k < 4; k++)
                lgh_assert_same_bytes(&vector.outputs[k][i], &host.outputs[k][i], sizeof(float),
                                      "output");
            lgh_assert_same_bytes((float *)vector.dhidden + i * p.row_stride,
                                  (float *)host.dhidden + i * p.row_stride, HIDDEN * sizeof(float),
                                  "dhidden");
        }
        cpu_results_close(&broadcast);
        cpu_results_close(&host);
    }
    cpu_results_close(&vector);
    cpu_problem_close(&p);
}

static void extreme_temperatures_keep_their_meaning(void **state) {
    (void)state;
    cpu_problem p = small();
    cpu_problem_open(&p);
    const float values[] = {1e-3f, 1e-2f, 1e3f, 1e10f, 3.402823466e+38f};
    for (int i = 0; i < TOKENS; i++)
        p.temperatures[i * CPU_PROBLEM_STRIDE] = values[i % 5];
    /* Gradients in proportion: slacks are for numbers near 1. */
    for (int i = 0; i < 3 * TOKENS; i++)
        p.upstream[i / TOKENS][i % TOKENS * CPU_PROBLEM_STRIDE] *=
            1e-3f * fminf(values[i % TOKENS % 5], 1);
    cpu_problem_vary_temperature(&p);
    cpu_problem_check_all(&p, &(reference_faults){.shared_temperature = 1}, 1);
    cpu_problem_close(&p);
}

static void spoil_temperatures(cpu_problem *p) {
    const float invalid[] = {0, -1, NAN, INFINITY, -INFINITY, -0.0f};
    cpu_problem_vary_temperature(p);
    for (int i = 0; i < 6; i++)
        p->temperatures[(2 * i + 1) * CPU_PROBLEM_STRIDE] = invalid[i];
}

static void invalid_temperatures_make_their_rows_nan(void **state) {
    (void)state;
    cpu_problem p = small();
    p.options.bias_dtype = p.options.dbias_dtype = LGH_FP32;
    p.options.dhidden_dtype = LGH_BF16;
    cpu_problem_open(&p);
    spoil_temperatures(&p);
    cpu_problem_set_target(&p, 3, -1);   /* unknown: NaN all the same, and counted twice */
    cpu_problem_set_target(&p, 5, -100); /* ignored: its temperature does not matter */
    cpu_problem_set_target(&p, 2, VOCAB);
    cpu_results r = cpu_problem_run(&p);
    cpu_problem_check(&p, &r);
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(r.invalid_temperatures[pass], 5);
        assert_int_equal(r.foreign_targets[pass], 2);
    }
    for (int i = 0; i < 4; i++)
        assert_true(isnan(r.outputs[i][3]) && r.outputs[i][5] == 0);
    assert_int_equal(r.best[3], -1);
    assert_true(isnan(cpu_results_dhidden(&p, &r, 3, HIDDEN - 1)));
    assert_true(cpu_results_dhidden(&p, &r, 5, 0) == 0);
    cpu_results_close(&r);
    cpu_problem_close(&p);
}

/* The sums over tokens are those of a call that ignores the rows. */
static void invalid_temperatures_add_nothing(void **state) {
    (void)state;
    cpu_problem p = small();
    p.options.bias_dtype = p.options.dbias_dtype = LGH_FP32;
    cpu_problem_open(&p);
    spoil_temperatures(&p);
    cpu_results invalid = cpu_problem_run(&p);
    for (int i = 1; i < 12; i += 2)
        cpu_problem_set_target(&p, i, -100);
    cpu_results ignored = cpu_problem_run(&p);
    assert_int_equal(ignored.invalid_temperatures[0], 0);
    lgh_assert_same_bytes(invalid.dweight, ignored.dweight,
                          (size_t)(VOCAB * p.row_stride) * sizeof(float), "dweight");
    lgh_assert_same_bytes(invalid.dbias, ignored.dbias, VOCAB * sizeof(float), "dbias");
    cpu_results_close(&invalid);
    cpu_results_close(&ignored);
    cpu_problem_close(&p);
}

/* ---- Outputs ------------------------------------------------------------------------------- */

/* With every kind of row, and with a plan that has nothing else. */
static void each_output_alone_has_the_same_bits(void **state) {
    (void)state;
    cpu_problem p = small();
    p.options.vocab_start = 1000;
    p.options.vocab_valid = 5000;
    cpu_problem_open(&p);
    spoil_temperatures(&p);
    p.temperatures[0] = 1;
    cpu_problem_set_target(&p, 2, -1);
    cpu_problem_set_target(&p, 4, 7);
    cpu_problem_set_target(&p, 6, -100);
    cpu_results all = cpu_problem_run(&p);
    cpu_problem_check(&p, &all);
    for (int output = 0; output < 5; output++) {
        p.outputs = p.options.outputs = 1u << output;
        cpu_results alone = cpu_problem_run(&p);
        const int i = output < 3 ? output : 3; /* its place among the floats */
        if (p.outputs == LGH_OUTPUT_BEST)
            lgh_assert_same_bytes(alone.best, all.best, TOKENS * sizeof *all.best, "best");
        else
            lgh_assert_same_bytes(alone.outputs[i], all.outputs[i], TOKENS * sizeof(float),
                                  "an output");
        cpu_results_close(&alone);
    }
    cpu_results_close(&all);
    cpu_problem_close(&p);
}

/* ---- From the dot product to the logit ----------------------------------------------------- */

static const lgh_dtype float_dtypes[] = {LGH_FP32, LGH_BF16, LGH_FP16};

static void a_bias_is_added_and_has_its_gradient(void **state) {
    (void)state;
    const reference_faults faults[] = {{.bias_after_softcap = 1}, {.rounded_gradients = LGH_BF16}};
    for (int i = 0; i < OPERANDS; i++)
        for (int bias = 0; bias < 3; bias++) {
            cpu_problem p = small();
            use_operands(&p, operands[i].hidden, operands[i].weight);
            p.options.bias_dtype = float_dtypes[bias];
            p.options.dbias_dtype = LGH_FP32;
            p.options.softcap = 4;
            check(&p, faults, 2);
        }
}

static void sums_accumulate_where_asked(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        cpu_problem p = small();
        p.options.bias_dtype = LGH_BF16;
        p.options.dbias_dtype = LGH_FP32;
        p.accumulate_dweight = i & 1;
        p.accumulate_dbias = i >> 1;
        check(&p, &(reference_faults){.shared_gradient = 1}, 1);
    }
}

static void each_gradient_may_be_absent(void **state) {
    (void)state;
    cpu_problem p = small();
    p.options.bias_dtype = LGH_FP32;
    p.options.dbias_dtype = LGH_FP32;
    cpu_problem_open(&p);
    cpu_results all = cpu_problem_run(&p);
    for (int absent = 1; absent < 4; absent++) {
        p.without_dhidden = absent & 1;
        p.without_dweight = absent >> 1;
        cpu_results some = cpu_problem_run(&p);
        cpu_problem_check_same(&p, &some, &all);
        cpu_results_close(&some);
    }
    cpu_results_close(&all);
    cpu_problem_close(&p);
}

/* Without a dhidden_dtype and a dweight_dtype the plan still has a backward pass, and its limit. */
static void dbias_may_be_the_only_gradient(void **state) {
    (void)state;
    cpu_problem p = small();
    p.options.bias_dtype = p.options.dbias_dtype = LGH_FP32;
    p.options.dhidden_dtype = p.options.dweight_dtype = LGH_DTYPE_NONE;
    check(&p, &(reference_faults){.shared_gradient = 1}, 1);
    lgh_plan *plan;
    char text[2048];
    lgh_assert_success(lgh_plan_create(&plan, lgh_test_context(), &p.options));
    lgh_assert_success(lgh_plan_describe(plan, text, sizeof text, NULL));
    lgh_assert_contains(text, "dbias = fp32");
    lgh_assert_contains(text, "cpu_backward_tile");
    lgh_plan_destroy(plan);
}

static void logits_are_rounded_before_the_softcap(void **state) {
    (void)state;
    const reference_faults faults[] = {
        {.exact_logits = 1}, {.rounded_after_softcap = 1}, {.bias_after_softcap = 1}};
    for (int i = 0; i < OPERANDS; i++)
        for (int rounding = 1; rounding < 3; rounding++) {
            cpu_problem p = small();
            use_operands(&p, operands[i].hidden, operands[i].weight);
            p.options.logits_rounding = float_dtypes[rounding];
            p.options.bias_dtype = LGH_FP32;
            p.options.softcap = 5;
            check(&p, faults, 3);
        }
}

static void a_softcap_has_its_slope(void **state) {
    (void)state;
    const float caps[] = {0.5f, 3, 30};
    for (int i = 0; i < OPERANDS; i++)
        for (int cap = 0; cap < 3; cap++) {
            cpu_problem p = small();
            use_operands(&p, operands[i].hidden, operands[i].weight);
            p.options.softcap = caps[cap];
            check(&p, &(reference_faults){.flat_softcap = 1}, 1);
        }
}

/* A weight, or a bias, that leaves one of three logits far below the others, at T = 1 and where z
 * overflows a float: its probability and gradient are exactly 0. */
static void a_logit_far_below_is_no_nan(void **state) {
    (void)state;
    const double lowest[] = {-3e38, -3e38, -INFINITY};
    for (int i = 0; i < 6; i++) {
        cpu_problem p = cpu_problem_of(2, 1, 3);
        use_operands(&p, LGH_FP32, LGH_FP32);
        p.options.bias_dtype = p.options.dbias_dtype = LGH_FP32;
        p.temperature.host = i < 3 ? 1.0f : 0.7f;
        cpu_problem_open(&p);
        for (int row = 0; row < 3; row++) {
            cpu_problem_set_weight(&p, row, 0, row == 1 && i % 3 == 0 ? lowest[0] : 0);
            cpu_problem_set_bias(&p, row, row == 1 && i % 3 > 0 ? lowest[i % 3] : 0);
        }
        for (int token = 0; token < 2; token++) {
            cpu_problem_set_hidden(&p, token, 0, 1);
            cpu_problem_set_target(&p, token, token);
        }
        cpu_results r = cpu_problem_run(&p);
        lgh_assert_close((double)r.outputs[0][0], -log(2), 1e-7, "logp");
        lgh_assert_close((double)r.outputs[2][0], log(2), 1e-7, "entropy");
        assert_true(r.outputs[0][1] < -1e38f);
        /* Token 0 adds nothing to entry 1; token 1, whose target it is, adds g / T. */
        const float of_target = p.upstream[0][1 * CPU_PROBLEM_STRIDE] / p.temperature.host;
        lgh_assert_close((double)r.dbias[1], (double)of_target, 1e-6, "dbias");
        for (int token = 0; token < 2; token++)
            assert_true(isfinite(r.outputs[2][token]) && isfinite(r.outputs[1][token]));
        cpu_results_close(&r);
        cpu_problem_close(&p);
    }
}

/* ---- Promises ------------------------------------------------------------------------------ */

/* Against gradients of the oracle's own lse and entropy, which the call gets rounded to float. */
static void gradients_keep_the_headers_promise(void **state) {
    (void)state;
    cpu_problem p = small();
    use_operands(&p, LGH_FP32, LGH_FP32);
    p.options.bias_dtype = p.options.dbias_dtype = LGH_FP32;
    p.options.softcap = 10;
    cpu_problem_open(&p);
    cpu_problem_vary_temperature(&p);
    cpu_results r = cpu_problem_run(&p);
    double dhidden[TOKENS * HIDDEN], dweight[VOCAB * HIDDEN], dbias[VOCAB];
    float rows[VOCAB * HIDDEN];
    const lgh_backward_args args = cpu_problem_backward_args(&p);
    const reference_gradients gradients = {dhidden, dweight, dbias};
    reference_backward(&p.options, &args, NULL, &gradients);
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        rows[i] = (float)cpu_results_dhidden(&p, &r, i / HIDDEN, i % HIDDEN);
    lgh_assert_relative_l2(rows, dhidden, TOKENS * HIDDEN, 1e-6, "dhidden");
    for (int i = 0; i < VOCAB * HIDDEN; i++)
        rows[i] = (float)cpu_results_dweight(&p, &r, i / HIDDEN, i % HIDDEN);
    lgh_assert_relative_l2(rows, dweight, VOCAB * HIDDEN, 1e-6, "dweight");
    lgh_assert_relative_l2(r.dbias, dbias, VOCAB, 1e-6, "dbias");
    cpu_results_close(&r);
    cpu_problem_close(&p);
}

static void no_tokens_leave_zeros(void **state) {
    (void)state;
    cpu_problem p = cpu_problem_of(0, HIDDEN, VOCAB);
    p.options.bias_dtype = p.options.dbias_dtype = LGH_FP32;
    cpu_problem_open(&p);
    cpu_results r = cpu_problem_run(&p);
    cpu_problem_check(&p, &r);
    assert_true(cpu_results_dweight(&p, &r, VOCAB - 1, 0) == 0 && r.dbias[VOCAB - 1] == 0);
    cpu_results_close(&r);
    cpu_problem_close(&p);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operand_dtype_gives_the_oracles_numbers),
        cmocka_unit_test(gradients_take_their_operands_dtype),
        cmocka_unit_test(sixteen_bit_gradients_are_rounded_once),
        cmocka_unit_test(each_token_has_its_temperature),
        cmocka_unit_test(ways_to_give_a_temperature_are_equal),
        cmocka_unit_test(extreme_temperatures_keep_their_meaning),
        cmocka_unit_test(invalid_temperatures_make_their_rows_nan),
        cmocka_unit_test(invalid_temperatures_add_nothing),
        cmocka_unit_test(each_output_alone_has_the_same_bits),
        cmocka_unit_test(a_bias_is_added_and_has_its_gradient),
        cmocka_unit_test(sums_accumulate_where_asked),
        cmocka_unit_test(each_gradient_may_be_absent),
        cmocka_unit_test(dbias_may_be_the_only_gradient),
        cmocka_unit_test(logits_are_rounded_before_the_softcap),
        cmocka_unit_test(a_softcap_has_its_slope),
        cmocka_unit_test(a_logit_far_below_is_no_nan),
        cmocka_unit_test(gradients_keep_the_headers_promise),
        cmocka_unit_test(no_tokens_leave_zeros)};
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
