/* test_device_memory.c - what the GPU says of its memory: calls take none, a plan gives back what
 * it took, and no temperature makes a copy of the weight. Free memory is a figure of the whole
 * device, so these cases run with no other test beside them. */
#include "case_problem.h"
#include "harness.h"

#include <stdlib.h>
#include <string.h>

enum { TOKENS = 512, WIDTH = 512, VOCAB = 32768 };

static size_t weight_bytes(void) {
    return (size_t)VOCAB * WIDTH * 2;
}

static case_problem large_problem(lgh_dtype results) {
    case_problem p = case_of(TOKENS, WIDTH, VOCAB);
    p.options.dhidden_dtype = p.options.dweight_dtype = results;
    p.options.token_block = 200;
    p.temperature = 0.7f;
    case_open(&p);
    case_fill(&p, 36, 1.0, 0.2);
    return p;
}

/* Copies have warmed up what the driver keeps for them, and only for them. */
static void plan_and_upload(case_problem *p) {
    case_plan(p);
    case_upload(p);
    case_read_outputs(p);
    case_read_gradients(p);
    case_check_guards(p);
}

static void check_calls(lgh_dtype results) {
    case_problem p = large_problem(results);
    plan_and_upload(&p);
    const size_t before = device_memory_in_use();
    for (int call = 0; call < 20; call++) {
        case_forward(&p);
        assert_int_equal(device_memory_in_use(), before);
        case_backward(&p);
        assert_int_equal(device_memory_in_use(), before);
    }
    assert_true(p.logp[0] < 0);
    case_close(&p);
}

static void calls_take_no_memory(void **state) {
    (void)state;
    check_calls(LGH_FP32);
    check_calls(LGH_BF16);
}

/* The measure itself: memory that is held shows. */
static void memory_that_is_held_shows(void **state) {
    (void)state;
    const size_t before = device_memory_in_use();
    device_buffer buffer = device_buffer_create(weight_bytes());
    assert_true(device_memory_in_use() >= before + weight_bytes());
    device_buffer_destroy(&buffer);
    assert_true(device_memory_in_use() < before + weight_bytes());
}

static void make_and_destroy(lgh_dtype results) {
    case_problem p = large_problem(results);
    case_run(&p);
    case_close(&p);
}

/* The first rounds leave what the context keeps for its life: kernels, the driver's own. */
static void plans_give_back_what_they_took(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++) {
        make_and_destroy(LGH_FP32);
        make_and_destroy(LGH_BF16);
    }
    const size_t before = device_memory_in_use();
    for (int round = 0; round < 3; round++) {
        make_and_destroy(LGH_FP32);
        make_and_destroy(LGH_BF16);
        assert_int_equal(device_memory_in_use(), before);
    }
}

/* Seen in SkyRL, which keeps W / T beside W. Looks while the call's work may still be under way,
 * and after it. */
static void temperature_makes_no_copy_of_the_weight(void **state) {
    (void)state;
    static const float temperatures[] = {1.0f, 0.7f, 1.3f};
    case_problem p = large_problem(LGH_FP32);
    plan_and_upload(&p);
    const size_t before = device_memory_in_use();
    for (int i = 0; i < 3; i++) {
        const device_buffer *workspaces = p.device.workspace;
        p.temperature = temperatures[i];
        const lgh_forward_args forward = case_forward_args(&p);
        const lgh_backward_args backward = case_backward_args(&p);
        lgh_assert_success(lgh_forward(p.plan, &forward, workspaces[0].data, workspaces[0].bytes,
                                       device_stream()));
        assert_true(device_memory_in_use() < before + weight_bytes());
        lgh_assert_success(lgh_backward(p.plan, &backward, workspaces[1].data, workspaces[1].bytes,
                                        device_stream()));
        assert_true(device_memory_in_use() < before + weight_bytes());
        case_read_gradients(&p);
        assert_true(device_memory_in_use() < before + weight_bytes());
        assert_true(workspaces[0].bytes < weight_bytes() && workspaces[1].bytes < weight_bytes());
        device_buffer_assert_same(&p.device.weight, p.weight, "the weight");
    }
    case_close(&p);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_take_no_memory),
        cmocka_unit_test(memory_that_is_held_shows),
        cmocka_unit_test(plans_give_back_what_they_took),
        cmocka_unit_test(temperature_makes_no_copy_of_the_weight),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
