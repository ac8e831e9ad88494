/* test_slopes.c - gradients of log-prob, entropy and log-sum-exp against central differences of the
 * float64 oracle, on a tiny shape. A gradient of the entropy is refused or missing elsewhere; seen
 * in SkyRL. */
#include "case_slopes.h"
#include "harness.h"

#include "promises.h"

enum { TOKENS = 5, WIDTH = 8, VOCAB = 19 };

/* The entropy's gradient without its mean: -e p ln p in place of -e p (ln p + H), which is what a
 * gradient e H of the log-sum-exp adds. */
static case_expected expect_no_mean(const case_problem *p) {
    float values[TOKENS];
    case_problem faulty = *p;
    faulty.grad_lse = (case_gradient){.form = CASE_VECTOR, .values = values};
    for (int i = 0; i < TOKENS; i++)
        values[i] = (float)(case_gradient_at(&p->grad_lse, i) +
                            case_gradient_at(&p->grad_entropy, i) * (double)p->entropy[i]);
    return case_expect(&faulty, NULL);
}

static void check_slopes(lgh_dtype dtype, case_form g, case_form e, case_form l) {
    case_problem p = case_of(TOKENS, WIDTH, VOCAB);
    case_set_operands(&p, dtype);
    p.temperature = 0.7f;
    case_open(&p);
    case_fill(&p, 22, 1.0, 0.6);
    p.grad_logp.form = g;
    p.grad_entropy.form = e;
    p.grad_lse.form = l;
    case_run(&p);
    case_expected slopes = case_expect_slopes(&p);
    for (int part = CASE_DHIDDEN; part <= CASE_OTHER_ROWS; part *= 2)
        lgh_assert_close(case_gradient_error(&p, &slopes, part), 0, promise_slopes(dtype),
                         "relative L2 error");
    case_problem undivided = p;
    undivided.temperature = 1.0f;
    case_expected faulty = case_expect(&undivided, NULL);
    case_assert_gradients_outside(&p, &faulty, CASE_GRADIENTS);
    case_expected_destroy(&faulty);
    if (e != CASE_ABSENT) {
        faulty = expect_no_mean(&p);
        case_assert_gradients_outside(&p, &faulty, CASE_GRADIENTS);
        case_expected_destroy(&faulty);
    }
    case_expected_destroy(&slopes);
    case_close(&p);
}

static void logp_gradient_is_its_slope(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        check_slopes(*dtype, CASE_VECTOR, CASE_ABSENT, CASE_ABSENT);
}

static void entropy_gradient_is_its_slope(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        check_slopes(*dtype, CASE_ABSENT, CASE_VECTOR, CASE_ABSENT);
}

static void lse_gradient_is_its_slope(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        check_slopes(*dtype, CASE_ABSENT, CASE_ABSENT, CASE_VECTOR);
}

static void gradients_together_are_the_slope_of_the_sum(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_slopes(*dtype, CASE_VECTOR, CASE_VECTOR, CASE_ABSENT);
        check_slopes(*dtype, CASE_VECTOR, CASE_VECTOR, CASE_VECTOR);
        check_slopes(*dtype, CASE_HOST, CASE_HOST, CASE_HOST);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logp_gradient_is_its_slope),
        cmocka_unit_test(entropy_gradient_is_its_slope),
        cmocka_unit_test(lse_gradient_is_its_slope),
        cmocka_unit_test(gradients_together_are_the_slope_of_the_sum),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
