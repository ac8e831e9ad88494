/* test_feature_slopes.c - gradients with a bias, a softcap and a temperature per token against
 * central differences of the float64 oracle, on a shape with just enough numbers for the roundings
 * of 16-bit operands to even out. */
#include "case_oracle.h"
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#include "promises.h"

enum { TOKENS = 24, WIDTH = 8, VOCAB = 61 };

/* The operands as FP32, which holds those of 16 bits and the small steps away from them. */
typedef struct slope_problem {
    const case_problem *p;
    float hidden[TOKENS * WIDTH];
    float weight[VOCAB * WIDTH];
    float bias[VOCAB];
} slope_problem;

static void widen(float *to, const void *from, lgh_dtype dtype, int count) {
    for (int i = 0; i < count; i++)
        to[i] = (float)reference_element(from, dtype, i);
}

static slope_problem slope_problem_of(const case_problem *p) {
    slope_problem s = {.p = p};
    widen(s.hidden, p->hidden, p->options.hidden_dtype, TOKENS * WIDTH);
    widen(s.weight, p->weight, p->options.weight_dtype, VOCAB * WIDTH);
    widen(s.bias, p->bias, p->options.bias_dtype, VOCAB);
    return s;
}

static double loss(const slope_problem *s) {
    const case_problem *p = s->p;
    lgh_plan_options options = case_host_options(p);
    lgh_forward_args args = case_host_forward_args(p);
    double logp[TOKENS], lse[TOKENS], entropy[TOKENS], sum = 0;
    reference_outputs outputs = {.logp = logp, .lse = lse, .entropy = entropy};
    options.hidden_dtype = options.weight_dtype = options.bias_dtype = LGH_FP32;
    args.hidden = (lgh_const_matrix){s->hidden, TOKENS, WIDTH, WIDTH, LGH_FP32};
    args.weight = (lgh_const_matrix){s->weight, VOCAB, WIDTH, WIDTH, LGH_FP32};
    args.bias = s->bias;
    reference_forward(&options, &args, NULL, &outputs);
    for (int i = 0; i < TOKENS; i++)
        sum += case_gradient_at(&p->grad_logp, i) * logp[i] +
               case_gradient_at(&p->grad_entropy, i) * entropy[i] +
               case_gradient_at(&p->grad_lse, i) * lse[i];
    return sum;
}

/* Along one element, with the steps that a float can take. */
static double slope(const slope_problem *s, float *element) {
    const float at = *element, above = at + 1e-3f, below = at - 1e-3f;
    *element = above;
    double rise = loss(s);
    *element = below;
    rise -= loss(s);
    *element = at;
    return rise / ((double)above - (double)below);
}

static case_expected expect_slopes(const case_problem *p) {
    slope_problem s = slope_problem_of(p);
    case_expected e = case_expected_create(p, 0);
    for (int i = 0; i < TOKENS * WIDTH; i++)
        e.dhidden[i] = slope(&s, &s.hidden[i]);
    for (int i = 0; i < VOCAB * WIDTH; i++)
        e.dweight[i] = slope(&s, &s.weight[i]);
    for (int i = 0; i < VOCAB; i++)
        e.dbias[i] = slope(&s, &s.bias[i]);
    return e;
}

static case_problem feature_problem(lgh_dtype operands, float softcap) {
    case_problem p = case_of(TOKENS, WIDTH, VOCAB);
    case_set_operands(&p, operands);
    case_set_bias_dtype(&p, LGH_FP32);
    p.options.softcap = softcap;
    case_open(&p);
    case_fill(&p, 22, 1.0, 0.6);
    case_fill_bias(&p, 23, 2.0);
    case_fill_temperatures(&p, CASE_VECTOR, 24);
    return p;
}

/* The oracles of a gradient without the softcap's slope, and of one T for all tokens. */
static void check_faults(const case_problem *p) {
    const reference_faults faults[] = {{.flat_softcap = 1}, {.shared_temperature = 1}};
    for (int i = p->options.softcap > 0 ? 0 : 1; i < 2; i++) {
        case_expected faulty = case_expect(p, &faults[i]);
        case_assert_gradients_outside(p, &faulty, CASE_ALL_GRADIENTS);
        case_expected_destroy(&faulty);
    }
}

static void check_slopes(lgh_dtype dtype, float softcap, case_form g, case_form e, case_form l) {
    case_problem p = feature_problem(dtype, softcap);
    p.grad_logp.form = g;
    p.grad_entropy.form = e;
    p.grad_lse.form = l;
    case_run(&p);
    case_expected slopes = expect_slopes(&p);
    for (int part = CASE_DHIDDEN; part <= CASE_DBIAS; part *= 2)
        lgh_assert_close(case_gradient_error(&p, &slopes, part), 0, promise_slopes(dtype),
                         "relative L2 error");
    check_faults(&p);
    case_expected_destroy(&slopes);
    case_close(&p);
}

static void check_forms(float softcap) {
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_slopes(*dtype, softcap, CASE_VECTOR, CASE_ABSENT, CASE_ABSENT);
        check_slopes(*dtype, softcap, CASE_ABSENT, CASE_VECTOR, CASE_ABSENT);
        check_slopes(*dtype, softcap, CASE_ABSENT, CASE_ABSENT, CASE_VECTOR);
        check_slopes(*dtype, softcap, CASE_VECTOR, CASE_VECTOR, CASE_VECTOR);
    }
}

static void slopes_hold_with_a_bias_and_token_temperatures(void **state) {
    (void)state;
    check_forms(0);
}

static void slopes_hold_with_a_softcap(void **state) {
    (void)state;
    check_forms(3.0f);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slopes_hold_with_a_bias_and_token_temperatures),
        cmocka_unit_test(slopes_hold_with_a_softcap),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
