/* test_feature_slopes.c - gradients with a bias, a softcap and a temperature per token against
 * central differences of the float64 oracle, on a shape with just enough numbers for the roundings
 * of 16-bit operands to even out. */
#include "case_slopes.h"
#include "harness.h"

#include "promises.h"

enum { TOKENS = 24, WIDTH = 8, VOCAB = 61 };

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
    case_expected slopes = case_expect_slopes(&p);
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
