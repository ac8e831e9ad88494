/* test_capture.c - both passes captured in a CUDA graph, without one call that a capture forbids,
 * and replayed with new values where the old ones were. A path that cannot be captured was seen in
 * Liger. */
#include "case_copy.h"
#include "cuda_graph.h"
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "cuda_device.h"

enum { TOKENS = 300, WIDTH = 64, VOCAB = 9001 };

/* ---- Problems ------------------------------------------------------------------------------- */

static case_problem random_problem(lgh_dtype operands, lgh_dtype results) {
    case_problem p = case_of(TOKENS, WIDTH, VOCAB);
    case_set_operands(&p, operands);
    case_set_results(&p, results);
    case_set_bias_dtype(&p, LGH_FP32);
    p.options.token_block = 128;
    p.with_counters = 1;
    case_open(&p);
    case_fill(&p, 34, 1.0, 0.2);
    case_fill_bias(&p, 35, 1.0);
    case_fill_temperatures(&p, CASE_VECTOR, 36);
    return p;
}

static void put_value(case_value *value, uint64_t seed) {
    case_fill_gradient(value, value->form, seed, TOKENS);
    device_buffer_upload(&value->device, value->values);
}

static void put_targets(case_problem *p, uint64_t seed) {
    lgh_random random = {seed};
    for (int i = 0; i < TOKENS; i++)
        p->targets[i] = i % 5 == 2 ? -100 : lgh_random_below(&random, VOCAB);
    device_buffer_upload(&p->device.targets, p->targets);
}

/* New T, g, e, l, targets and hidden states where the old ones lie. */
static void put_new_values(case_problem *p, uint64_t seed) {
    lgh_random random = {seed};
    case_fill_temperatures(p, p->temperatures.form, seed);
    device_buffer_upload(&p->temperatures.device, p->temperatures.values);
    put_value(&p->grad_logp, seed + 1);
    put_value(&p->grad_entropy, seed + 2);
    put_value(&p->grad_lse, seed + 3);
    put_targets(p, seed + 4);
    for (int64_t i = 0; i < TOKENS * WIDTH; i++)
        case_set_hidden(p, i / WIDTH, i % WIDTH, lgh_random_normal(&random));
    device_buffer_upload(&p->device.hidden, p->hidden);
}

static void put_list(case_problem *p, int stride) {
    p->live.count = 0;
    for (int i = 0; i < TOKENS; i++)
        p->live.rows[i] = i;
    for (int i = stride / 2; i < TOKENS; i += stride)
        p->live.rows[p->live.count++] = i;
    device_buffer_upload(&p->device.live_rows, p->live.rows);
    device_buffer_upload(&p->device.live_count, &p->live.count);
}

/* ---- Capture -------------------------------------------------------------------------------- */

static void enter_device(void) {
    lgh_assert_success(lgh__driver_push(&lgh_test_context()->cuda->device));
}

static void enqueue(const case_problem *p) {
    const lgh_forward_args forward = case_forward_args(p);
    const lgh_backward_args backward = case_backward_args(p);
    const device_buffer *w = p->device.workspace;
    lgh_assert_success(lgh_forward(p->plan, &forward, w[0].data, w[0].bytes, device_stream()));
    lgh_assert_success(lgh_backward(p->plan, &backward, w[1].data, w[1].bytes, device_stream()));
}

/* With the list made from the targets, as a part of the captured work, or without. */
static cuda_graph capture(const case_problem *p, int makes_list) {
    void *stream = device_stream();
    enter_device();
    cuda_graph_begin(stream);
    if (makes_list)
        lgh_assert_success(lgh_live_rows(p->plan, p->device.targets.data, TOKENS,
                                         p->device.live_rows.data, p->device.live_count.data,
                                         stream));
    enqueue(p);
    cuda_graph graph = cuda_graph_end(stream);
    lgh__driver_pop();
    return graph;
}

static void replay(case_problem *p, const cuda_graph *graph) {
    case_clear_outputs(p);
    case_clear_gradients(p);
    enter_device();
    cuda_graph_launch(graph, device_stream());
    lgh__driver_pop();
    case_check_guards(p);
    case_read_outputs(p);
    case_read_gradients(p);
}

static void destroy(cuda_graph *graph) {
    enter_device();
    cuda_graph_destroy(graph);
    lgh__driver_pop();
}

static void run_directly(case_problem *p) {
    case_forward(p);
    case_backward(p);
}

/* A replay gives the bits of direct calls with the values that are now in place; `other`, unless it
 * is NULL, holds results that must not come again. */
static void check_replay(case_problem *p, const cuda_graph *graph, const case_copy *other) {
    replay(p, graph);
    const uint64_t foreign = p->foreign_targets[0];
    case_copy replayed = case_copy_of(p);
    run_directly(p);
    case_assert_same(p, &replayed);
    assert_int_equal(foreign, p->foreign_targets[0]);
    for (int i = 0, differ = 0; other && i < TOKENS; i++) {
        differ += !case_token_is_same(p, i, other, i);
        assert_true(i < TOKENS - 1 || differ > TOKENS / 5);
    }
    case_copy_destroy(&replayed);
}

/* ---- Cases ---------------------------------------------------------------------------------- */

static void check_capture(lgh_dtype operands, lgh_dtype results) {
    case_problem p = random_problem(operands, results);
    case_run(&p);
    case_copy first = case_copy_of(&p);
    cuda_graph graph = capture(&p, 0);
    check_replay(&p, &graph, NULL);
    case_assert_same(&p, &first);
    for (uint64_t seed = 100; seed < 130; seed += 10) {
        put_new_values(&p, seed);
        check_replay(&p, &graph, &first);
    }
    destroy(&graph);
    case_copy_destroy(&first);
    case_close(&p);
}

static void replays_take_the_values_that_are_in_place(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_capture(*dtype, LGH_FP32);
        if (*dtype != LGH_FP32)
            check_capture(*dtype, LGH_BF16);
    }
}

/* Captured before any direct call: nothing is loaded, allocated or chosen at the first run. */
static void the_first_call_of_a_plan_can_be_captured(void **state) {
    (void)state;
    case_problem p = random_problem(LGH_BF16, LGH_FP32);
    case_plan(&p);
    case_upload(&p);
    cuda_graph graph = capture(&p, 0);
    check_replay(&p, &graph, NULL);
    destroy(&graph);
    case_close(&p);
}

static void replays_take_the_list_and_count_that_are_in_place(void **state) {
    (void)state;
    static const int strides[] = {3, 1, 40, 2 * TOKENS + 2};
    case_problem p = random_problem(LGH_BF16, LGH_FP32);
    const int32_t none[TOKENS] = {0};
    p.options.live_lists = 1;
    case_set_live(&p, none, TOKENS);
    p.live.with_count = 1;
    case_run(&p);
    cuda_graph graph = capture(&p, 0);
    case_copy before = case_copy_of(&p);
    for (int i = 0; i < 4; i++) {
        put_list(&p, strides[i]);
        put_value(&p.grad_logp, 200 + (uint64_t)i);
        check_replay(&p, &graph, i < 2 ? &before : NULL);
        int live = 0;
        for (int token = 0; token < TOKENS; token++)
            live += !case_token_is_zero(&p, token);
        assert_int_equal(live, p.live.count);
    }
    destroy(&graph);
    case_copy_destroy(&before);
    case_close(&p);
}

/* New targets give a new list, and the passes captured behind it follow that. */
static void a_captured_list_follows_the_targets(void **state) {
    (void)state;
    case_problem p = random_problem(LGH_BF16, LGH_FP32);
    const int32_t none[TOKENS] = {0};
    p.options.live_lists = 1;
    case_set_live(&p, none, TOKENS);
    p.live.with_count = 1;
    case_run(&p);
    cuda_graph graph = capture(&p, 1);
    case_copy before = case_copy_of(&p);
    for (uint64_t seed = 300; seed < 330; seed += 10) {
        put_new_values(&p, seed);
        for (int i = 0; i < TOKENS / 2 && seed == 320; i++)
            p.targets[i] = -100;
        device_buffer_upload(&p.device.targets, p.targets);
        check_replay(&p, &graph, &before);
        for (int i = 0; i < TOKENS; i++)
            assert_int_equal(case_token_is_zero(&p, i), p.targets[i] == -100);
    }
    destroy(&graph);
    case_copy_destroy(&before);
    case_close(&p);
}

/* What the header says of host values, and the control of all cases above: what is not read in
 * place stays. */
static void a_host_value_stays_as_it_was_captured(void **state) {
    (void)state;
    case_problem p = random_problem(LGH_BF16, LGH_FP32);
    p.temperatures.form = CASE_ABSENT;
    p.temperature = 0.7f;
    case_run(&p);
    case_copy captured = case_copy_of(&p);
    cuda_graph graph = capture(&p, 0);
    p.temperature = 1.3f;
    run_directly(&p);
    assert_false(case_token_is_same(&p, 1, &captured, 1));
    replay(&p, &graph);
    case_assert_same(&p, &captured);
    destroy(&graph);
    case_copy_destroy(&captured);
    case_close(&p);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_take_the_values_that_are_in_place),
        cmocka_unit_test(the_first_call_of_a_plan_can_be_captured),
        cmocka_unit_test(replays_take_the_list_and_count_that_are_in_place),
        cmocka_unit_test(a_captured_list_follows_the_targets),
        cmocka_unit_test(a_host_value_stays_as_it_was_captured),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
