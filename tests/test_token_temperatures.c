/* test_token_temperatures.c - a temperature for each token. One for all was asserted in verl. */
#include "case_copy.h"
#include "case_oracle.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 37, WIDTH = 24, VOCAB = 301 };
enum { STATISTICS = LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE | LGH_OUTPUT_ENTROPY };

/* Flat enough that no few probabilities make up a gradient, whose roundings to 16 bits then would
 * not average out. */
static case_problem random_problem(lgh_dtype operands, int64_t tokens, int64_t vocab_size) {
    case_problem p = case_of(tokens, WIDTH, vocab_size);
    case_set_operands(&p, operands);
    case_set_bias_dtype(&p, LGH_FP32);
    p.with_counters = 1;
    case_open(&p);
    case_fill(&p, 9, 1.0, 0.25);
    case_fill_bias(&p, 10, 1);
    return p;
}

/* ---- Equal to scalars ----------------------------------------------------------------------- */

static const float three[] = {0.5f, 1.0f, 2.0f};

/* Three tokens that differ in nothing. */
static case_problem equal_tokens(lgh_dtype dtype, int64_t vocab_size) {
    case_problem p = random_problem(dtype, 3, vocab_size);
    case_gradient *const gradients[] = {&p.grad_logp, &p.grad_entropy, &p.grad_lse};
    const size_t bytes = WIDTH * lgh_dtype_size(dtype);
    for (size_t i = 1; i < 3; i++) {
        memcpy((char *)p.hidden + i * bytes, p.hidden, bytes);
        p.targets[i] = p.targets[0];
        for (int j = 0; j < 3; j++)
            gradients[j]->values[i] = gradients[j]->values[0];
    }
    return p;
}

static void check_equal_tokens(lgh_dtype dtype, int64_t vocab_size, case_form form) {
    case_problem p = equal_tokens(dtype, vocab_size);
    memcpy(p.temperatures.values, three, sizeof three);
    p.temperatures.form = form;
    case_run(&p);
    case_copy each = case_copy_of(&p);
    p.temperatures.form = CASE_ABSENT;
    for (int64_t i = 0; i < 3; i++) {
        p.temperature = three[i];
        case_run(&p);
        for (int64_t token = 0; token < 3; token++) {
            assert_true(case_token_is_same(&p, token, &each, i));
            assert_false(case_token_is_same(&p, token, &each, (i + 1) % 3));
        }
    }
    case_copy_destroy(&each);
    case_close(&p);
}

/* FP16 gradients carry a power of two that the smallest temperature of a call decides; it leaves
 * every bit as it was, as these are far from the smallest numbers of FP16. */
static void temperatures_of_tokens_give_the_bits_of_scalars(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_equal_tokens(*dtype, 19, CASE_VECTOR);
        check_equal_tokens(*dtype, VOCAB, CASE_STRIDED);
        check_equal_tokens(*dtype, 9001, CASE_VECTOR);
    }
}

static void one_temperature_in_device_memory_gives_the_bits_of_a_scalar(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        case_problem p = random_problem(*dtype, TOKENS, VOCAB);
        p.temperature = 0.7f;
        case_run(&p);
        case_copy scalar = case_copy_of(&p);
        p.temperature = 1.0f;
        case_run(&p);
        assert_false(case_token_is_same(&p, 0, &scalar, 0));
        for (int form = CASE_HOST; form <= CASE_STRIDED; form++) {
            for (int i = 0; i < TOKENS; i++)
                p.temperatures.values[i] = 0.7f;
            p.temperatures.form = (case_form)form;
            case_run(&p);
            case_assert_same(&p, &scalar);
        }
        case_copy_destroy(&scalar);
        case_close(&p);
    }
}

/* ---- Right ---------------------------------------------------------------------------------- */

static void check_temperatures(lgh_dtype dtype, case_form form, int64_t token_block) {
    const reference_faults shared = {.shared_temperature = 1};
    case_problem p = random_problem(dtype, TOKENS, VOCAB);
    p.options.token_block = token_block;
    case_fill_temperatures(&p, form, 11);
    case_run(&p);
    case_expected right = case_expect(&p, NULL), faulty = case_expect(&p, &shared);
    case_assert_outputs(&p, &right);
    case_assert_best(&p, &right);
    case_assert_counters(&p, &right);
    case_assert_gradients(&p, &right, CASE_ALL_GRADIENTS);
    if (form != CASE_BROADCAST) {
        case_assert_outputs_outside(&p, &faulty, STATISTICS);
        case_assert_gradients_outside(&p, &faulty, CASE_ALL_GRADIENTS);
    }
    case_expected_destroy(&right);
    case_expected_destroy(&faulty);
    case_close(&p);
}

static void each_token_has_its_own_temperature(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        for (int form = CASE_BROADCAST; form <= CASE_STRIDED; form++) {
            check_temperatures(*dtype, (case_form)form, 0);
            check_temperatures(*dtype, (case_form)form, 16);
        }
}

/* ---- Invalid -------------------------------------------------------------------------------- */

static const float invalid[] = {0.0f, -0.0f, -1.0f, NAN, INFINITY, -INFINITY};
enum { INVALID = 6 };

static int64_t invalid_token(int i) {
    return 5 * i + 2;
}

static void assert_all_nan(const float *values, int64_t count, const char *what) {
    for (int64_t i = 0; i < count; i++)
        if (!isnan(values[i]))
            fail_msg("%s: element %lld is %g, not a NaN", what, (long long)i, (double)values[i]);
}

static void assert_nan_row(const case_problem *p, int64_t token) {
    assert_all_nan(p->logp + token, 1, "logp");
    assert_all_nan(p->lse + token, 1, "lse");
    assert_all_nan(p->entropy + token, 1, "entropy");
    assert_all_nan(p->logp_at_one + token, 1, "logp_at_one");
    assert_all_nan(p->dhidden + token * WIDTH, WIDTH, "dhidden");
    assert_int_equal(p->best[token], -1);
}

/* Invalid temperatures here and there; also one of an ignored token, which makes no difference, and
 * one of a token whose target is no entry. */
static case_problem with_invalid(lgh_dtype dtype, case_form form) {
    case_problem p = random_problem(dtype, TOKENS, VOCAB);
    p.options.token_block = 16;
    case_fill_temperatures(&p, form, 12);
    for (int i = 0; i < INVALID; i++)
        p.temperatures.values[invalid_token(i)] = invalid[i];
    p.temperatures.values[0] = 0.0f;
    p.targets[0] = p.options.ignore_index;
    p.targets[invalid_token(1)] = -7;
    p.targets[1] = VOCAB;
    return p;
}

/* What the sums over tokens are without the tokens of an invalid temperature. */
static void check_sums(case_problem *p, lgh_dtype dtype) {
    case_copy with = case_copy_of(p);
    for (int i = 0; i < INVALID; i++) {
        p->temperatures.values[invalid_token(i)] = 1.0f;
        p->targets[invalid_token(i)] = p->options.ignore_index;
    }
    case_upload(p);
    case_forward(p);
    case_backward(p);
    if (dtype != LGH_FP16) /* whose power of two depends on every temperature */
        case_assert_same_sums(p, &with);
    assert_int_equal(p->invalid_temperatures[0], 0);
    assert_int_equal(p->invalid_temperatures[1], 0);
    case_copy_destroy(&with);
}

static void check_invalid(lgh_dtype dtype, case_form form) {
    case_problem p = with_invalid(dtype, form);
    case_run(&p);
    case_expected right = case_expect(&p, NULL);
    for (int i = 0; i < INVALID; i++)
        assert_nan_row(&p, invalid_token(i));
    assert_true(case_token_is_zero(&p, 0));
    case_assert_outputs(&p, &right);
    case_assert_best(&p, &right);
    case_assert_gradients(&p, &right, CASE_ALL_GRADIENTS);
    case_assert_counters(&p, &right);
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(p.invalid_temperatures[pass], INVALID);
        assert_int_equal(p.foreign_targets[pass], 2);
    }
    case_problem valid = p; /* the control: as if those tokens counted */
    valid.temperatures.form = CASE_ABSENT;
    case_expected faulty = case_expect(&valid, NULL);
    case_assert_gradients_outside(&p, &faulty, CASE_ALL_GRADIENTS);
    check_sums(&p, dtype);
    case_expected_destroy(&right);
    case_expected_destroy(&faulty);
    case_close(&p);
}

static void invalid_temperatures_spoil_their_own_tokens_only(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_invalid(*dtype, CASE_VECTOR);
        check_invalid(*dtype, CASE_STRIDED);
    }
}

static void one_invalid_temperature_for_all_leaves_no_gradient(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        for (int i = 0; i < INVALID; i++) {
            case_problem p = random_problem(*dtype, TOKENS, VOCAB);
            p.temperatures.values[0] = invalid[i];
            p.temperatures.form = CASE_BROADCAST;
            case_run(&p);
            for (int64_t token = 0; token < TOKENS; token++)
                assert_nan_row(&p, token);
            for (int64_t k = 0; k < VOCAB * WIDTH; k++)
                assert_true(p.dweight[k] == 0);
            for (int64_t v = 0; v < VOCAB; v++)
                assert_true(p.dbias[v] == 0);
            assert_int_equal(p.invalid_temperatures[0], TOKENS);
            assert_int_equal(p.invalid_temperatures[1], TOKENS);
            case_close(&p);
        }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperatures_of_tokens_give_the_bits_of_scalars),
        cmocka_unit_test(one_temperature_in_device_memory_gives_the_bits_of_a_scalar),
        cmocka_unit_test(each_token_has_its_own_temperature),
        cmocka_unit_test(invalid_temperatures_spoil_their_own_tokens_only),
        cmocka_unit_test(one_invalid_temperature_for_all_leaves_no_gradient),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
