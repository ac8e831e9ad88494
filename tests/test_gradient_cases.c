/* test_gradient_cases.c - gradients on inputs that broke other implementations: many tokens on few
 * vocabulary entries, an upstream gradient of its own for each token and in every form, entropy
 * gradients, calls that follow each other. */
#include "case_oracle.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "promises.h"
#include "value.h"

/* ---- Sums over many tokens ------------------------------------------------------------------
 * A gradient of the weight that is summed in 16 bits. Seen in CCE and Liger. */

enum { MANY = 8192, FEW_ENTRIES = 32, MANY_WIDTH = 128 };

/* Targets below `targeted`; the rows of dweight from there on are no token's target. */
static case_problem many_tokens(lgh_dtype dtype, int64_t targeted) {
    case_problem p = case_of(MANY, MANY_WIDTH, FEW_ENTRIES);
    case_set_operands(&p, dtype);
    p.temperature = 0.7f;
    case_open(&p);
    case_fill(&p, 13, 1.0, 0.15);
    for (int64_t i = 0; i < MANY; i++)
        p.targets[i] %= targeted;
    p.grad_entropy.form = p.grad_lse.form = CASE_ABSENT;
    return p;
}

/* The sum over blocks of 16 tokens, rounded to BF16 after each. */
static case_expected expect_sum_in_bf16(const case_problem *p) {
    case_expected sum = case_expected_create(p, 0);
    case_problem block = *p;
    block.tokens = 16;
    for (int64_t first = 0; first < MANY; first += 16) {
        const size_t offset =
            (size_t)(first * MANY_WIDTH) * lgh_dtype_size(p->options.hidden_dtype);
        block.hidden = (char *)p->hidden + offset;
        block.targets = p->targets + first;
        block.grad_logp.values = p->grad_logp.values + first;
        case_expected part = case_expect(&block, NULL);
        for (int64_t i = 0; i < FEW_ENTRIES * MANY_WIDTH; i++)
            sum.dweight[i] = (double)lgh__float_from_bf16(
                lgh__bf16_from_float((float)(sum.dweight[i] + part.dweight[i])));
        case_expected_destroy(&part);
    }
    return sum;
}

static void check_many_tokens(lgh_dtype dtype, int64_t targeted) {
    static const lgh_dtype results[] = {LGH_FP32, LGH_BF16};
    case_problem p = many_tokens(dtype, targeted);
    case_expected right = case_expect(&p, NULL), faulty = expect_sum_in_bf16(&p);
    for (int i = 0; i < 4; i++) {
        case_set_results(&p, results[i / 2]);
        p.options.token_block = i % 2 ? MANY / 64 : 0;
        case_run(&p);
        case_assert_gradients(&p, &right, CASE_GRADIENTS);
        case_assert_gradients_outside(&p, &faulty, CASE_TARGET_ROWS);
        if (targeted < FEW_ENTRIES)
            case_assert_gradients_outside(&p, &faulty, CASE_OTHER_ROWS);
    }
    case_expected_destroy(&right);
    case_expected_destroy(&faulty);
    case_close(&p);
}

static void many_tokens_sum_without_loss(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        check_many_tokens(*dtype, FEW_ENTRIES);
}

static void many_tokens_sum_without_loss_where_no_target_is(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        check_many_tokens(*dtype, 20);
}

/* ---- A gradient for each token --------------------------------------------------------------
 * Every token scaled by the first one's upstream gradient. Seen in Liger. */

static case_problem random_problem(lgh_dtype dtype, int64_t tokens) {
    case_problem p = case_of(tokens, 24, 301);
    case_set_operands(&p, dtype);
    p.temperature = 0.7f;
    case_open(&p);
    case_fill(&p, 16, 1.0, 0.4);
    return p;
}

static case_expected expect_shared_gradient(const case_problem *p) {
    const reference_faults faults = {.shared_gradient = 1};
    return case_expect(p, &faults);
}

static void check_each_gradient(lgh_dtype dtype, float first) {
    const float values[] = {first, 1, -2, 3};
    case_problem p = random_problem(dtype, 4);
    memcpy(p.grad_logp.values, values, sizeof values);
    p.grad_entropy.form = p.grad_lse.form = CASE_ABSENT;
    case_run(&p);
    case_expected right = case_expect(&p, NULL), faulty = expect_shared_gradient(&p);
    case_assert_gradients(&p, &right, CASE_GRADIENTS);
    case_assert_gradients_outside(&p, &faulty, CASE_GRADIENTS);
    for (int k = 0; k < 24 && first == 0; k++)
        assert_true(p.dhidden[k] == 0);
    case_expected_destroy(&right);
    case_expected_destroy(&faulty);
    case_close(&p);
}

static void each_token_has_its_own_gradient(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_each_gradient(*dtype, 0);
        check_each_gradient(*dtype, -3);
    }
}

/* Each upstream gradient in another form, over several token blocks. */
static void check_forms(lgh_dtype dtype, case_form g, case_form e, case_form l) {
    case_problem p = random_problem(dtype, 70);
    p.options.token_block = 16;
    case_fill_gradient(&p.grad_logp, g, 1, 70);
    case_fill_gradient(&p.grad_entropy, e, 2, 70);
    case_fill_gradient(&p.grad_lse, l, 3, 70);
    case_run(&p);
    case_expected right = case_expect(&p, NULL);
    case_assert_gradients(&p, &right, CASE_GRADIENTS);
    case_expected_destroy(&right);
    if (g == CASE_VECTOR || g == CASE_STRIDED) {
        case_expected faulty = expect_shared_gradient(&p);
        case_assert_gradients_outside(&p, &faulty, CASE_GRADIENTS);
        case_expected_destroy(&faulty);
    }
    case_close(&p);
}

static void gradients_come_in_every_form(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        for (int form = CASE_ABSENT; form <= CASE_STRIDED; form++) {
            check_forms(*dtype, (case_form)form, CASE_VECTOR, CASE_HOST);
            check_forms(*dtype, CASE_STRIDED, (case_form)form, CASE_BROADCAST);
            check_forms(*dtype, CASE_HOST, CASE_STRIDED, (case_form)form);
        }
}

/* A token's dhidden depends on the number that it is given, not on how. */
static void equal_gradients_give_equal_bits_in_every_form(void **state) {
    (void)state;
    enum { COUNT = 70 * 24 };
    case_problem p = random_problem(LGH_BF16, 70);
    case_gradient *const gradients[] = {&p.grad_logp, &p.grad_entropy, &p.grad_lse};
    float *first = calloc(COUNT, sizeof *first);
    assert_non_null(first);
    for (int form = CASE_HOST; form <= CASE_STRIDED; form++) {
        for (int i = 0; i < 3; i++) {
            gradients[i]->form = (case_form)form;
            for (int token = 0; token < 70; token++)
                gradients[i]->values[token] = (float)(1 + i) / 7;
        }
        case_run(&p);
        if (form == CASE_HOST)
            memcpy(first, p.dhidden, COUNT * sizeof *first);
        lgh_assert_same_bytes(p.dhidden, first, COUNT * sizeof *first, "dhidden");
    }
    free(first);
    case_close(&p);
}

static void gradients_of_zero_give_zeros(void **state) {
    (void)state;
    for (int form = CASE_ABSENT; form <= CASE_STRIDED; form++) {
        case_problem p = random_problem(LGH_BF16, 33);
        case_gradient *const gradients[] = {&p.grad_logp, &p.grad_entropy, &p.grad_lse};
        for (int i = 0; i < 3; i++) {
            gradients[i]->form = (case_form)form;
            memset(gradients[i]->values, 0, 33 * sizeof(float));
        }
        case_run(&p);
        for (int64_t i = 0; i < 33 * 24; i++)
            assert_true(p.dhidden[i] == 0);
        for (int64_t i = 0; i < 301 * 24; i++)
            assert_true(p.dweight[i] == 0);
        case_close(&p);
    }
}

/* ---- Calls that follow each other -----------------------------------------------------------
 * Inputs overwritten by the first backward pass, so that a second one is wrong. Seen in Megatron
 * and quack. */

static void assert_inputs_are_unchanged(const case_problem *p) {
    device_buffer_assert_same(&p->device.hidden, p->hidden, "hidden");
    device_buffer_assert_same(&p->device.weight, p->weight, "weight");
    device_buffer_assert_same(&p->device.targets, p->targets, "targets");
    device_buffer_assert_same(&p->device.lse, p->lse, "lse");
    device_buffer_assert_same(&p->device.entropy, p->entropy, "entropy");
    device_buffer_assert_same(&p->grad_logp.device, p->grad_logp.values, "grad_logp");
    device_buffer_assert_same(&p->grad_entropy.device, p->grad_entropy.values, "grad_entropy");
    device_buffer_assert_same(&p->grad_lse.device, p->grad_lse.values, "grad_lse");
}

static void change_gradient(case_gradient *gradient, uint64_t seed, int64_t count) {
    case_fill_gradient(gradient, CASE_VECTOR, seed, count);
    device_buffer_upload(&gradient->device, gradient->values);
}

static void check_two_calls(lgh_dtype operands, lgh_dtype results) {
    case_problem p = random_problem(operands, 37);
    case_set_results(&p, results);
    case_run(&p);
    case_expected first = case_expect(&p, NULL);
    case_assert_gradients(&p, &first, CASE_GRADIENTS);
    assert_inputs_are_unchanged(&p);
    change_gradient(&p.grad_logp, 91, 37);
    change_gradient(&p.grad_entropy, 92, 37);
    change_gradient(&p.grad_lse, 93, 37);
    case_backward(&p);
    case_expected second = case_expect(&p, NULL);
    case_assert_gradients(&p, &second, CASE_GRADIENTS);
    case_assert_gradients_outside(&p, &first, CASE_GRADIENTS);
    for (int64_t i = 0; i < 301 * 24; i++)
        first.dweight[i] += second.dweight[i];
    case_assert_gradients_outside(&p, &first, CASE_DWEIGHT);
    assert_inputs_are_unchanged(&p);
    case_expected_destroy(&first);
    case_expected_destroy(&second);
    case_close(&p);
}

static void two_backward_passes_are_independent(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_two_calls(*dtype, LGH_FP32);
        check_two_calls(*dtype, LGH_BF16);
    }
}

static void subtract(float *from, const float *what, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        from[i] = (float)((double)from[i] - (double)what[i]);
}

/* Adds the same gradient to a random start, and again to the result. */
static void check_accumulation(lgh_dtype dtype, int64_t token_block) {
    enum { COUNT = 301 * 24 };
    case_problem p = random_problem(dtype, 50);
    lgh_random random = {8};
    p.options.token_block = token_block;
    lgh_random_fill_fp32(&random, p.dweight_start, COUNT, 0.1);
    case_run(&p);
    case_expected right = case_expect(&p, NULL);
    case_assert_gradients(&p, &right, CASE_GRADIENTS);
    subtract(p.dweight, p.dweight_start, COUNT); /* what overwriting would leave */
    case_assert_gradients_outside(&p, &right, CASE_DWEIGHT);
    p.accumulate = 1;
    for (int call = 0; call < 2; call++) {
        float sum[COUNT];
        case_backward(&p);
        memcpy(sum, p.dweight, sizeof sum);
        subtract(p.dweight, p.dweight_start, COUNT);
        case_assert_gradients(&p, &right, CASE_GRADIENTS);
        memcpy(p.dweight_start, sum, sizeof sum);
    }
    case_expected_destroy(&right);
    case_close(&p);
}

static void dweight_adds_to_what_is_there(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_accumulation(*dtype, 0);
        check_accumulation(*dtype, 16);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_tokens_sum_without_loss),
        cmocka_unit_test(many_tokens_sum_without_loss_where_no_target_is),
        cmocka_unit_test(each_token_has_its_own_gradient),
        cmocka_unit_test(gradients_come_in_every_form),
        cmocka_unit_test(equal_gradients_give_equal_bits_in_every_form),
        cmocka_unit_test(gradients_of_zero_give_zeros),
        cmocka_unit_test(two_backward_passes_are_independent),
        cmocka_unit_test(dweight_adds_to_what_is_there),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
