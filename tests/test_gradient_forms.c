/* test_gradient_forms.c - which gradients are wanted, where their sums go, how the upstream
 * gradients are given, and sums over many token blocks. Seen in Liger, prime-rl, TransformerEngine
 * and CCE. */
#include "case_copy.h"
#include "case_oracle.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "promises.h"
#include "value.h"

enum { TOKENS = 70, WIDTH = 24, VOCAB = 8300, COUNT = VOCAB * WIDTH };

static case_problem random_problem(lgh_dtype operands, lgh_dtype results) {
    case_problem p = case_of(TOKENS, WIDTH, VOCAB);
    case_set_operands(&p, operands);
    case_set_results(&p, results);
    case_set_bias_dtype(&p, LGH_FP32);
    p.options.token_block = 32;
    case_open(&p);
    case_fill(&p, 20, 1.0, 0.3);
    case_fill_bias(&p, 21, 1.0);
    case_fill_temperatures(&p, CASE_VECTOR, 22);
    return p;
}

/* ---- Gradients that are not wanted -----------------------------------------------------------
 * A gradient of the hidden states that went missing with a frozen head. Seen in Liger and prime-rl.
 */

static void check_not_written(const device_buffer *buffer) {
    assert_true(device_buffer_holds(buffer, 0xff));
}

/* The backward pass for these parts alone (CASE_ bits; both rows of dweight or none). */
static void backward_for(case_problem *p, int parts) {
    lgh_backward_args args = case_backward_args(p);
    const case_buffers *d = &p->device;
    case_clear_gradients(p);
    if (!(parts & CASE_DHIDDEN))
        args.dhidden = (lgh_matrix){NULL, 0, 0, 0, LGH_DTYPE_NONE};
    if (!(parts & CASE_DWEIGHT))
        args.dweight = (lgh_matrix){NULL, 0, 0, 0, LGH_DTYPE_NONE};
    if (!(parts & CASE_DBIAS))
        args.dbias = NULL;
    lgh_assert_success(
        lgh_backward(p->plan, &args, d->workspace[1].data, d->workspace[1].bytes, device_stream()));
    case_check_guards(p);
    case_read_gradients(p);
}

static void check_parts(case_problem *p, const case_copy *full, int parts) {
    const size_t hidden = (size_t)(TOKENS * WIDTH) * sizeof(float);
    backward_for(p, parts);
    if (parts & CASE_DHIDDEN)
        lgh_assert_same_bytes(p->dhidden, full->dhidden, hidden, "dhidden");
    else
        check_not_written(&p->device.dhidden);
    if (parts & CASE_DWEIGHT)
        lgh_assert_same_bytes(p->dweight, full->dweight, COUNT * sizeof(float), "dweight");
    else
        check_not_written(&p->device.dweight);
    if (parts & CASE_DBIAS)
        lgh_assert_same_bytes(p->dbias, full->dbias, VOCAB * sizeof(float), "dbias");
    else
        check_not_written(&p->device.dbias);
}

/* Negative control: the last bit of one hidden state shows in every part. */
static void assert_smallest_change_shows(case_problem *p, const case_copy *full) {
    ((unsigned char *)p->hidden)[0] ^= 1;
    case_upload(p);
    case_forward(p);
    case_backward(p);
    assert_memory_not_equal(p->dhidden, full->dhidden, WIDTH * sizeof(float));
    assert_memory_not_equal(p->dweight, full->dweight, COUNT * sizeof(float));
    assert_memory_not_equal(p->dbias, full->dbias, VOCAB * sizeof(float));
}

static void check_subsets(lgh_dtype operands, lgh_dtype results) {
    static const int subsets[] = {CASE_DHIDDEN,
                                  CASE_DWEIGHT,
                                  CASE_DBIAS,
                                  CASE_DHIDDEN | CASE_DWEIGHT,
                                  CASE_DHIDDEN | CASE_DBIAS,
                                  CASE_DWEIGHT | CASE_DBIAS,
                                  0};
    case_problem p = random_problem(operands, results);
    case_run(&p);
    case_copy full = case_copy_of(&p);
    for (size_t i = 0; i < sizeof subsets / sizeof *subsets; i++)
        check_parts(&p, &full, subsets[i]);
    assert_smallest_change_shows(&p, &full);
    case_copy_destroy(&full);
    case_close(&p);
}

static void a_gradient_is_the_same_without_the_others(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_subsets(*dtype, LGH_FP32);
        if (*dtype != LGH_FP32)
            check_subsets(*dtype, LGH_BF16);
    }
}

/* Of a plan that never writes dweight, the workspace is far below a [V, D] buffer. */
static void a_frozen_weight_takes_no_room(void **state) {
    (void)state;
    static const lgh_dtype results[] = {LGH_FP32, LGH_BF16};
    for (int r = 0; r < 2; r++) {
        case_problem p = case_of(4, 1024, 262144);
        case_set_results(&p, results[r]);
        p.options.dweight_dtype = LGH_DTYPE_NONE;
        case_plan(&p);
        size_t bytes;
        lgh_assert_success(lgh_plan_workspace_size(p.plan, LGH_PASS_BACKWARD, 4, &bytes, NULL));
        assert_true(bytes < (size_t)262144 * 1024 * 2 / 8);
        case_close(&p);
    }
}

/* ---- Sums that are added to ------------------------------------------------------------------ */

static void add_expected(case_expected *to, const case_expected *from) {
    for (int i = 0; i < COUNT; i++)
        to->dweight[i] += from->dweight[i];
    for (int i = 0; i < VOCAB; i++)
        to->dbias[i] += from->dbias[i];
}

/* Takes what the sums started from off the results. */
static void subtract_start(case_problem *p) {
    for (int i = 0; i < COUNT; i++)
        p->dweight[i] = (float)((double)p->dweight[i] - (double)p->dweight_start[i]);
    for (int i = 0; i < VOCAB; i++)
        p->dbias[i] = (float)((double)p->dbias[i] - (double)p->dbias_start[i]);
}

static void new_gradients(case_problem *p, uint64_t seed) {
    case_value *const values[] = {&p->grad_logp, &p->grad_entropy, &p->grad_lse};
    for (int i = 0; i < 3; i++) {
        case_fill_gradient(values[i], CASE_VECTOR, seed + (uint64_t)i, TOKENS);
        device_buffer_upload(&values[i]->device, values[i]->values);
    }
}

/* Backward on top of what is there. */
static void add_backward(const case_problem *p) {
    const lgh_backward_args args = case_backward_args(p);
    const device_buffer *workspace = &p->device.workspace[LGH_PASS_BACKWARD];
    lgh_assert_success(
        lgh_backward(p->plan, &args, workspace->data, workspace->bytes, device_stream()));
}

/* Two micro-batches into one main_grad, which starts from 0 or from other numbers. */
static void check_two_additions(lgh_dtype operands, double start, int64_t token_block) {
    case_problem p = random_problem(operands, LGH_FP32);
    const int parts = CASE_DWEIGHT | CASE_DBIAS;
    lgh_random random = {8};
    p.options.token_block = token_block;
    lgh_random_fill_fp32(&random, p.dweight_start, COUNT, start);
    lgh_random_fill_fp32(&random, p.dbias_start, VOCAB, start);
    case_run(&p);
    case_expected first = case_expect(&p, NULL);
    p.accumulate = p.accumulate_dbias = 1;
    case_clear_gradients(&p);
    add_backward(&p);
    new_gradients(&p, 90);
    case_expected second = case_expect(&p, NULL);
    add_backward(&p);
    case_check_guards(&p);
    case_read_gradients(&p);
    case_assert_gradients(&p, &second, CASE_DHIDDEN);
    subtract_start(&p);
    case_assert_gradients_outside(&p, &first, parts);
    case_assert_gradients_outside(&p, &second, parts);
    add_expected(&first, &second);
    case_assert_gradients(&p, &first, parts);
    case_expected_destroy(&first);
    case_expected_destroy(&second);
    case_close(&p);
}

static void two_additions_are_the_sum_of_two_calls(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_two_additions(*dtype, 0, 0);
        check_two_additions(*dtype, 0.01, 32);
    }
}

/* ---- Numbers around the upstream gradients ----------------------------------------------------
 * A broadcast gradient that was read as a vector, past its end. Seen in TransformerEngine. */

enum { ROOM = 8 * TOKENS + 64, BEFORE = 40 };

/* `values` with this stride among NaNs, which lie before, between and behind them. */
static lgh_value put_among_nans(device_buffer *buffer, const float *values, int64_t stride) {
    float *room = malloc(ROOM * sizeof *room);
    assert_non_null(room);
    for (int i = 0; i < ROOM; i++)
        room[i] = NAN;
    for (int64_t i = 0; i < TOKENS; i++)
        room[BEFORE + i * stride] = values[stride > 0 ? i : 0];
    *buffer = device_buffer_create(ROOM * sizeof *room);
    device_buffer_upload(buffer, room);
    free(room);
    return (lgh_value){(const float *)buffer->data + BEFORE, stride, NAN};
}

/* The calls' four values, each of its own stride. */
static void run_among_nans(case_problem *p, const int64_t strides[4]) {
    device_buffer buffers[4];
    lgh_forward_args forward = case_forward_args(p);
    lgh_backward_args backward = case_backward_args(p);
    const device_buffer *w = p->device.workspace;
    forward.temperature = put_among_nans(&buffers[0], p->temperatures.values, strides[0]);
    backward.temperature = forward.temperature;
    backward.grad_logp = put_among_nans(&buffers[1], p->grad_logp.values, strides[1]);
    backward.grad_entropy = put_among_nans(&buffers[2], p->grad_entropy.values, strides[2]);
    backward.grad_lse = put_among_nans(&buffers[3], p->grad_lse.values, strides[3]);
    case_clear_outputs(p);
    case_clear_gradients(p);
    lgh_assert_success(lgh_forward(p->plan, &forward, w[0].data, w[0].bytes, device_stream()));
    lgh_assert_success(lgh_backward(p->plan, &backward, w[1].data, w[1].bytes, device_stream()));
    case_check_guards(p);
    case_read_outputs(p);
    case_read_gradients(p);
    for (int i = 0; i < 4; i++)
        device_buffer_destroy(&buffers[i]);
}

static void check_strides(lgh_dtype operands, const int64_t strides[4]) {
    case_problem p = random_problem(operands, LGH_FP32);
    case_value *const values[] = {&p.temperatures, &p.grad_logp, &p.grad_entropy, &p.grad_lse};
    for (int v = 0; v < 4; v++)
        for (int i = 1; i < TOKENS && strides[v] == 0; i++)
            values[v]->values[i] = values[v]->values[0];
    case_run(&p);
    case_copy vectors = case_copy_of(&p);
    case_expected right = case_expect(&p, NULL);
    run_among_nans(&p, strides);
    case_assert_same(&p, &vectors);
    case_assert_outputs(&p, &right);
    case_assert_gradients(&p, &right, CASE_ALL_GRADIENTS);
    case_expected_destroy(&right);
    /* Negative control: values one token further on are not the same. */
    for (int v = 1; v < 4; v++)
        memmove(values[v]->values, values[v]->values + 1, (TOKENS - 1) * sizeof(float));
    case_upload(&p);
    run_among_nans(&p, strides);
    if (strides[1] > 0)
        assert_false(case_token_is_same(&p, 0, &vectors, 0));
    case_copy_destroy(&vectors);
    case_close(&p);
}

static void no_number_beside_the_values_is_taken(void **state) {
    (void)state;
    static const int64_t strides[][4] = {{0, 0, 0, 0}, {1, 1, 1, 1}, {0, 1, 3, 7},
                                         {7, 0, 1, 2}, {2, 3, 0, 1}, {1, 7, 2, 0}};
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        for (size_t i = 0; i < sizeof strides / sizeof *strides; i++)
            check_strides(*dtype, strides[i]);
}

/* ---- Many token blocks -----------------------------------------------------------------------
 * Sums over blocks that are kept in 16 bits. Seen in Liger. */

typedef struct block_shape {
    int64_t tokens, width, entries;
} block_shape;

/* The right dweight, and the one whose sum is rounded to BF16 after each of 64 blocks. */
static case_expected expect_in_blocks(const case_problem *p, double *rounded) {
    case_expected sum = case_expected_create(p, 0);
    const int64_t width = p->options.hidden_size, count = p->options.vocab_size * width;
    const int64_t tokens = p->tokens / 64;
    case_problem block = *p;
    block.tokens = tokens;
    for (int64_t first = 0; first < p->tokens; first += tokens) {
        block.hidden =
            (char *)p->hidden + (size_t)(first * width) * lgh_dtype_size(p->options.hidden_dtype);
        block.targets = p->targets + first;
        block.grad_logp.values = p->grad_logp.values + first;
        block.grad_entropy.values = p->grad_entropy.values + first;
        block.grad_lse.values = p->grad_lse.values + first;
        case_expected part = case_expect(&block, NULL);
        for (int64_t i = 0; i < count; i++) {
            sum.dweight[i] += part.dweight[i];
            rounded[i] = (double)lgh__float_from_bf16(
                lgh__bf16_from_float((float)(rounded[i] + part.dweight[i])));
        }
        case_expected_destroy(&part);
    }
    return sum;
}

/* More than the error of one block by no more than a tenth and a hundredth of the promise. */
static double may_grow_to(double error, double promise) {
    return 1.1 * error + 0.01 * promise;
}

static void check_blocks(lgh_dtype operands, block_shape shape) {
    case_problem p = case_of(shape.tokens, shape.width, shape.entries);
    case_set_operands(&p, operands);
    p.options.backward_budget = (int64_t)1 << 30; /* one block fits */
    p.temperature = 0.7f;
    case_open(&p);
    case_fill(&p, 12, 1.0, 2 / sqrt((double)shape.width));
    double *rounded = calloc((size_t)(shape.entries * shape.width), sizeof *rounded);
    assert_non_null(rounded);
    case_expected right = expect_in_blocks(&p, rounded), faulty = case_expected_create(&p, 0);
    memcpy(faulty.dweight, rounded, (size_t)(shape.entries * shape.width) * sizeof *rounded);
    double errors[2][2];
    for (int many = 0; many < 2; many++) {
        p.options.token_block = shape.tokens / (many ? 64 : 1);
        case_run(&p);
        case_assert_gradients(&p, &right, CASE_DWEIGHT);
        case_assert_gradients_outside(&p, &faulty, CASE_TARGET_ROWS);
        errors[many][0] = case_gradient_error(&p, &right, CASE_TARGET_ROWS);
        errors[many][1] = case_gradient_error(&p, &right, CASE_OTHER_ROWS);
    }
    const double promise = promise_gradients(operands, LGH_FP32, shape.width);
    for (int part = 0; part < 2; part++)
        assert_true(errors[1][part] <= may_grow_to(errors[0][part], promise));
    case_expected_destroy(&right);
    case_expected_destroy(&faulty);
    free(rounded);
    case_close(&p);
}

static void errors_do_not_grow_with_the_number_of_token_blocks(void **state) {
    (void)state;
    const block_shape small = {1024, 64, 512};
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        check_blocks(*dtype, small);
}

/* The case as it was met; the oracle alone takes it 10^10 multiplications. */
static void errors_do_not_grow_over_64_blocks_of_128_tokens(void **state) {
    (void)state;
    if (lgh_test_device() == LGH_DEVICE_CPU)
        lgh_test_skip("the smaller case will do where sums are in float64");
    const block_shape large = {8192, 256, 1024};
    check_blocks(LGH_BF16, large);
}

/* ---- Small probabilities ----------------------------------------------------------------------
 * Gradients below a threshold dropped, which are all of those of a uniform softmax. Seen in CCE. */

enum { UNIFORM = 256000, UNIFORM_TOKENS = 3, UNIFORM_WIDTH = 8 };

/* Every row of the weight is the same: p = 1 / V exactly. */
static case_problem uniform_softmax(lgh_dtype operands, lgh_dtype results) {
    case_problem p = case_of(UNIFORM_TOKENS, UNIFORM_WIDTH, UNIFORM);
    case_set_operands(&p, operands);
    case_set_results(&p, results);
    p.temperature = 0.5f;
    case_open(&p);
    for (int i = 0; i < UNIFORM_TOKENS * UNIFORM_WIDTH; i++)
        case_set_hidden(&p, i / UNIFORM_WIDTH, i % UNIFORM_WIDTH, (double)(1 + i % 5) / 8);
    for (int64_t i = 0; i < (int64_t)UNIFORM * UNIFORM_WIDTH; i++)
        case_set_weight(&p, i / UNIFORM_WIDTH, i % UNIFORM_WIDTH, 0.25);
    for (int i = 0; i < UNIFORM_TOKENS; i++)
        p.targets[i] = i * (int64_t)(UNIFORM / 2) - (i == 2);
    p.grad_logp.form = CASE_HOST;
    return p;
}

static case_expected expect_uniform(const case_problem *p) {
    case_expected e = case_expected_create(p, 0);
    const double t = (double)p->temperature, probability = 1.0 / UNIFORM;
    for (int64_t v = 0; v < UNIFORM; v++)
        for (int i = 0; i < UNIFORM_TOKENS; i++)
            for (int k = 0; k < UNIFORM_WIDTH; k++)
                e.dweight[v * UNIFORM_WIDTH + k] += ((p->targets[i] == v) - probability) / t *
                                                    (double)(1 + (i * UNIFORM_WIDTH + k) % 5) / 8;
    return e;
}

static void check_uniform(lgh_dtype operands, lgh_dtype results) {
    case_problem p = uniform_softmax(operands, results);
    case_run(&p);
    case_expected right = expect_uniform(&p), filtered = expect_uniform(&p);
    for (int64_t i = 0; i < (int64_t)UNIFORM * UNIFORM_WIDTH; i++) {
        assert_true(p.dweight[i] != 0);
        if (fabs(filtered.dweight[i]) < 0x1p-12)
            filtered.dweight[i] = 0;
    }
    case_assert_gradients(&p, &right, CASE_DWEIGHT);
    case_assert_gradients_outside(&p, &filtered, CASE_OTHER_ROWS);
    case_expected_destroy(&right);
    case_expected_destroy(&filtered);
    case_close(&p);
}

static void gradients_of_a_uniform_softmax_are_not_dropped(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        check_uniform(*dtype, LGH_FP32);
    check_uniform(LGH_BF16, LGH_BF16);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gradient_is_the_same_without_the_others),
        cmocka_unit_test(a_frozen_weight_takes_no_room),
        cmocka_unit_test(two_additions_are_the_sum_of_two_calls),
        cmocka_unit_test(no_number_beside_the_values_is_taken),
        cmocka_unit_test(errors_do_not_grow_with_the_number_of_token_blocks),
        cmocka_unit_test(errors_do_not_grow_over_64_blocks_of_128_tokens),
        cmocka_unit_test(gradients_of_a_uniform_softmax_are_not_dropped),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
