/* test_workspace.c - the memory promise: a workspace of exactly the bytes that the plan asks for is
 * enough, nothing behind it or behind a result is written, and what the plan asks for stays within
 * its limits for any number of tokens. */
#include "case_oracle.h"
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#define FORWARD_LIMIT ((size_t)64 << 20)
#define DEFAULT_BUDGET ((size_t)512 << 20)

/* ---- Exactly enough ------------------------------------------------------------------------- */

/* The guards are checked by every call of the problem. */
static void check_workspace(lgh_dtype operands, lgh_dtype dhidden, lgh_dtype dweight,
                            int64_t token_block, int64_t budget) {
    static const int64_t counts[] = {1, 16, 17, 77};
    case_problem p = case_of(77, 24, 8300);
    case_set_operands(&p, operands);
    p.options.dhidden_dtype = dhidden;
    p.options.dweight_dtype = dweight;
    p.options.token_block = token_block;
    p.options.backward_budget = budget;
    p.temperature = 0.7f;
    case_open(&p);
    case_fill(&p, 35, 1.0, 0.4);
    case_plan(&p);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        p.tokens = counts[i];
        case_upload(&p);
        assert_int_equal(p.device.workspace[0].bytes % LGH_WORKSPACE_ALIGNMENT, 0);
        assert_int_equal(p.device.workspace[1].bytes % LGH_WORKSPACE_ALIGNMENT, 0);
        case_forward(&p);
        case_backward(&p);
        if (counts[i] > 16)
            continue;
        case_expected right = case_expect(&p, NULL);
        case_assert_outputs(&p, &right);
        case_assert_gradients(&p, &right, CASE_GRADIENTS);
        case_expected_destroy(&right);
    }
    case_close(&p);
}

static void workspace_of_the_queried_size_is_enough(void **state) {
    (void)state;
    static const lgh_dtype results[] = {LGH_DTYPE_NONE, LGH_BF16, LGH_FP32};
    for (int i = 0; i < 9; i++)
        check_workspace(LGH_BF16, results[i % 3], results[i / 3], 0, 0);
}

static void workspace_of_small_blocks_is_enough(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_workspace(*dtype, LGH_FP32, LGH_FP32, 16, 0);
        check_workspace(*dtype, *dtype, *dtype, 16, 0);
    }
}

static void workspace_of_a_small_budget_is_enough(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_workspace(*dtype, LGH_FP32, LGH_FP32, 0, 2 << 20);
        check_workspace(*dtype, *dtype, *dtype, 0, 2 << 20);
    }
}

/* Negative control: one byte past the end is noticed. */
static void a_write_behind_a_buffer_is_noticed(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 256, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        device_buffer buffer = device_buffer_create(sizes[i]);
        char *end = (char *)buffer.data + buffer.bytes, kept, other = 0x11;
        assert_true(device_buffer_guard_is_intact(&buffer));
        lgh_assert_success(lgh_memory_copy(lgh_test_context(), &kept, end, 1, device_stream()));
        lgh_assert_success(lgh_memory_copy(lgh_test_context(), end, &other, 1, device_stream()));
        assert_false(device_buffer_guard_is_intact(&buffer));
        lgh_assert_success(lgh_memory_copy(lgh_test_context(), end, &kept, 1, device_stream()));
        device_buffer_destroy(&buffer);
    }
}

/* ---- Limits --------------------------------------------------------------------------------- */

/* Far below N V: the bytes of one 16-bit logit for each of a million tokens are 512 GB. */
static void check_limits(lgh_dtype dhidden, lgh_dtype dweight, int64_t budget) {
    case_problem p = case_of((int64_t)1 << 20, 1024, 262144);
    p.options.dhidden_dtype = dhidden;
    p.options.dweight_dtype = dweight;
    p.options.backward_budget = budget;
    case_plan(&p);
    const size_t limit = budget > 0 ? (size_t)budget : DEFAULT_BUDGET;
    for (int64_t tokens = 0; tokens <= p.options.max_tokens;
         tokens += tokens < 4 ? 1 : tokens / 3) {
        const size_t staging = (size_t)tokens * 1024 * sizeof(float);
        size_t forward, backward, beyond;
        lgh_assert_success(
            lgh_plan_workspace_size(p.plan, LGH_PASS_FORWARD, tokens, &forward, &beyond));
        assert_in_range(forward, tokens > 0, FORWARD_LIMIT);
        assert_int_equal(beyond, 0);
        lgh_assert_success(
            lgh_plan_workspace_size(p.plan, LGH_PASS_BACKWARD, tokens, &backward, &beyond));
        assert_true(beyond <= backward);
        assert_in_range(backward - beyond, tokens > 0, limit);
        assert_in_range(beyond, 0, staging + LGH_WORKSPACE_ALIGNMENT);
        assert_true(beyond == 0 || (dhidden == LGH_BF16 && dweight == LGH_BF16));
    }
    case_close(&p);
}

static void workspace_stays_within_its_limits(void **state) {
    (void)state;
    check_limits(LGH_FP32, LGH_FP32, 0);
    check_limits(LGH_BF16, LGH_FP32, 0);
    check_limits(LGH_DTYPE_NONE, LGH_BF16, 0);
    check_limits(LGH_BF16, LGH_BF16, 0);
    check_limits(LGH_FP32, LGH_FP32, 64 << 20);
    check_limits(LGH_FP32, LGH_BF16, 128 << 20);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workspace_of_the_queried_size_is_enough),
        cmocka_unit_test(workspace_of_small_blocks_is_enough),
        cmocka_unit_test(workspace_of_a_small_budget_is_enough),
        cmocka_unit_test(a_write_behind_a_buffer_is_noticed),
        cmocka_unit_test(workspace_stays_within_its_limits),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
