/* test_strides.c - where matrices lie: rows with gaps, rows a .. b of a larger matrix, starts that
 * are aligned to less than 16 bytes. A view that was taken for contiguous was seen in
 * TransformerEngine: equal to contiguous or a clear status, never silently wrong. */
#include "case_copy.h"
#include "case_oracle.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "promises.h"

enum { TOKENS = 70, WIDTH = 24, VOCAB = 8300 };

static case_problem random_problem(lgh_dtype operands, lgh_dtype results, int64_t width) {
    case_problem p = case_of(TOKENS, width, VOCAB);
    case_set_operands(&p, operands);
    case_set_results(&p, results);
    p.options.token_block = 32;
    p.temperature = 0.7f;
    case_open(&p);
    case_fill(&p, 25, 1.0, 1.5 / sqrt((double)width)); /* logits of one size for any width */
    p.targets[5] = -100;
    return p;
}

static void set_layouts(case_problem *p, case_layout layout) {
    p->hidden_layout = p->weight_layout = p->dhidden_layout = p->dweight_layout = layout;
}

static void run(case_problem *p) {
    case_upload(p);
    case_forward(p);
    case_backward(p);
}

/* ---- Gaps ------------------------------------------------------------------------------------ */

/* The oracle for a call that takes the stride for the width: row r begins where r rows without
 * gaps end. What lies there instead of a number of the gap is 0. */
static case_expected expect_without_stride(const case_problem *p) {
    const int64_t width = p->options.hidden_size, stride = width + p->hidden_layout.gap;
    case_problem faulty = *p;
    const size_t element = lgh_dtype_size(p->options.hidden_dtype);
    char *hidden = calloc((size_t)(TOKENS * width), element);
    assert_non_null(hidden);
    for (int64_t i = 0; i < TOKENS * width; i++)
        if (i % stride < width)
            memcpy(hidden + (size_t)i * element,
                   (const char *)p->hidden + (size_t)(i / stride * width + i % stride) * element,
                   element);
    faulty.hidden = hidden;
    case_expected e = case_expect(&faulty, NULL);
    free(hidden);
    return e;
}

/* Every matrix with its own gap, then all of them; NaNs in the gaps of operands, and gaps of
 * results that the fixture expects untouched. */
static void check_gaps(lgh_dtype operands, lgh_dtype results) {
    case_problem p = random_problem(operands, results, WIDTH);
    const case_layout none = {0, 0}, wide = {40, 0}, more = {8, 16};
    case_run(&p);
    case_copy contiguous = case_copy_of(&p);
    case_layout *const layouts[] = {&p.hidden_layout, &p.weight_layout, &p.dhidden_layout,
                                    &p.dweight_layout};
    for (int i = 0; i < 4; i++) {
        *layouts[i] = wide;
        run(&p);
        case_assert_same(&p, &contiguous);
        *layouts[i] = none;
    }
    set_layouts(&p, more);
    run(&p);
    case_assert_same(&p, &contiguous);
    case_expected right = case_expect(&p, NULL), faulty = expect_without_stride(&p);
    case_assert_outputs(&p, &right);
    case_assert_gradients(&p, &right, CASE_GRADIENTS);
    case_assert_outputs_outside(&p, &faulty, LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE | LGH_OUTPUT_ENTROPY);
    case_assert_gradients_outside(&p, &faulty, CASE_GRADIENTS);
    case_expected_destroy(&right);
    case_expected_destroy(&faulty);
    case_copy_destroy(&contiguous);
    case_close(&p);
}

static void rows_with_gaps_give_the_bits_of_contiguous_ones(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_gaps(*dtype, LGH_FP32);
        if (*dtype != LGH_FP32)
            check_gaps(*dtype, LGH_BF16);
    }
}

/* Gaps together with a live list and a mixed product, whose rows go through the workspace. */
static void rows_with_gaps_are_gathered(void **state) {
    (void)state;
    for (int mixed = 0; mixed < 2; mixed++) {
        int32_t list[TOKENS / 2];
        case_problem p = case_of(TOKENS, WIDTH, VOCAB);
        if (mixed)
            case_set_mixed_operands(&p);
        p.options.live_lists = 1;
        case_open(&p);
        case_fill(&p, 26, 1.0, 0.3);
        for (int i = 0; i < TOKENS / 2; i++)
            list[i] = 2 * i + 1;
        case_set_live(&p, list, TOKENS / 2);
        case_run(&p);
        case_copy contiguous = case_copy_of(&p);
        set_layouts(&p, (case_layout){16, 8});
        run(&p);
        case_assert_same(&p, &contiguous);
        case_expected right = case_expect(&p, NULL);
        case_assert_outputs(&p, &right);
        case_assert_gradients(&p, &right, CASE_GRADIENTS);
        case_expected_destroy(&right);
        case_copy_destroy(&contiguous);
        case_close(&p);
    }
}

/* Rows a .. b of a larger weight: the shard's call sees a part of the buffer. */
static void rows_of_a_larger_weight_are_a_weight(void **state) {
    (void)state;
    enum { FIRST = 1000, ROWS = 700 };
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        const size_t element = lgh_dtype_size(*dtype);
        case_problem whole = random_problem(*dtype, LGH_FP32, WIDTH);
        case_problem part = case_of(TOKENS, WIDTH, ROWS);
        case_set_operands(&part, *dtype);
        part.temperature = 0.7f;
        case_open(&part);
        case_fill(&part, 27, 1.0, 0.3);
        memcpy(part.weight, (char *)whole.weight + FIRST * WIDTH * element, ROWS * WIDTH * element);
        case_run(&part);
        case_copy alone = case_copy_of(&part);
        device_buffer larger = device_buffer_create(VOCAB * WIDTH * element);
        device_buffer_upload(&larger, whole.weight);
        lgh_forward_args forward = case_forward_args(&part);
        lgh_backward_args backward = case_backward_args(&part);
        forward.weight.data = (char *)larger.data + FIRST * WIDTH * element;
        backward.weight.data = forward.weight.data;
        const device_buffer *w = part.device.workspace;
        case_clear_outputs(&part);
        case_clear_gradients(&part);
        lgh_assert_success(
            lgh_forward(part.plan, &forward, w[0].data, w[0].bytes, device_stream()));
        lgh_assert_success(
            lgh_backward(part.plan, &backward, w[1].data, w[1].bytes, device_stream()));
        case_read_outputs(&part);
        case_read_gradients(&part);
        case_assert_same(&part, &alone);
        device_buffer_assert_same(&larger, whole.weight, "the larger weight");
        device_buffer_destroy(&larger);
        case_copy_destroy(&alone);
        case_close(&part);
        case_close(&whole);
    }
}

/* ---- Alignment --------------------------------------------------------------------------------
 */

/* The elements of `bytes`, at least one. */
static int64_t elements(int bytes, lgh_dtype dtype) {
    const int size = (int)lgh_dtype_size(dtype);
    return bytes > size ? bytes / size : 1;
}

/* Starts and strides that are multiples of the promise and of nothing more. */
static void set_odd_layouts(case_problem *p, int alignment) {
    const lgh_plan_options *o = &p->options;
    const lgh_dtype dtypes[] = {o->hidden_dtype, o->weight_dtype, o->dhidden_dtype,
                                o->dweight_dtype};
    case_layout *const layouts[] = {&p->hidden_layout, &p->weight_layout, &p->dhidden_layout,
                                    &p->dweight_layout};
    for (int i = 0; i < 4; i++) {
        const int64_t unit = elements(alignment, dtypes[i]);
        const int64_t past = o->hidden_size % unit;
        *layouts[i] = (case_layout){past ? unit - past : unit, unit};
        if ((o->hidden_size + layouts[i]->gap) / unit % 2 == 0)
            layouts[i]->gap += unit; /* an odd multiple */
    }
}

/* A plan that was promised less gives its own results the same bits wherever they lie, and results
 * within the promises. */
static void check_alignment(lgh_dtype operands, lgh_dtype results, int alignment, int64_t width) {
    case_problem p = random_problem(operands, results, width);
    p.options.row_alignment = alignment;
    set_odd_layouts(&p, alignment);
    case_run(&p);
    case_copy odd = case_copy_of(&p);
    case_expected right = case_expect(&p, NULL);
    case_assert_outputs(&p, &right);
    case_assert_gradients(&p, &right, CASE_GRADIENTS);
    set_layouts(&p, (case_layout){(16 - width % 16) % 16, 0}); /* aligned to more */
    run(&p);
    case_assert_same(&p, &odd);
    p.hidden_layout.gap = 16;
    case_expected faulty = expect_without_stride(&p);
    case_assert_outputs_outside(&p, &faulty, LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE | LGH_OUTPUT_ENTROPY);
    case_assert_gradients_outside(&p, &faulty, CASE_GRADIENTS);
    case_expected_destroy(&faulty);
    case_expected_destroy(&right);
    case_copy_destroy(&odd);
    case_close(&p);
}

static void rows_may_start_where_the_plan_was_promised(void **state) {
    (void)state;
    static const int alignments[] = {2, 4, 8, 16};
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        for (int i = 0; i < 4; i++) {
            check_alignment(*dtype, LGH_FP32, alignments[i], WIDTH);
            check_alignment(*dtype, LGH_FP32, alignments[i], 21);
            if (*dtype != LGH_FP32)
                check_alignment(*dtype, LGH_BF16, alignments[i], WIDTH);
        }
}

/* Without a promise, rows of an odd size follow each other wherever that leads. */
static void odd_rows_that_follow_each_other_need_no_promise(void **state) {
    (void)state;
    static const int64_t widths[] = {1, 2, 3, 4, 7, 12, 100};
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
            case_problem p = random_problem(*dtype, LGH_FP32, widths[i]);
            case_run(&p);
            case_expected right = case_expect(&p, NULL);
            case_assert_outputs(&p, &right);
            if (widths[i] >= 7) /* less is the error of a few roundings, not yet of many */
                case_assert_gradients(&p, &right, CASE_GRADIENTS);
            case_expected_destroy(&right);
            case_close(&p);
        }
}

/* ---- Broken promises ------------------------------------------------------------------------- */

static void assert_refused(const case_problem *p, const char *name) {
    const lgh_forward_args forward = case_forward_args(p);
    const lgh_backward_args backward = case_backward_args(p);
    const device_buffer *w = p->device.workspace;
    const int is_result = name[0] == 'd';
    lgh_status status = LGH_SUCCESS;
    if (!is_result) {
        status = lgh_forward(p->plan, &forward, w[0].data, w[0].bytes, device_stream());
        lgh_assert_status(status, LGH_ERROR_UNSUPPORTED);
        lgh_assert_contains(lgh_last_error(), name);
        lgh_assert_contains(lgh_last_error(), "row_alignment");
        assert_true(device_buffer_holds(&p->device.lse, 0xff));
    }
    status = lgh_backward(p->plan, &backward, w[1].data, w[1].bytes, device_stream());
    lgh_assert_status(status, LGH_ERROR_UNSUPPORTED);
    lgh_assert_contains(lgh_last_error(), name);
    assert_true(device_buffer_holds(&p->device.dhidden, 0xff));
    assert_true(device_buffer_holds(&p->device.dweight, 0xff));
}

/* Both a start and a stride that break it. On the CPU device any element will do. */
static void check_broken(lgh_dtype operands, int alignment) {
    static const char *const names[] = {"hidden", "weight", "dhidden", "dweight"};
    case_problem p = random_problem(operands, LGH_FP32, WIDTH);
    p.options.row_alignment = alignment;
    case_layout *const layouts[] = {&p.hidden_layout, &p.weight_layout, &p.dhidden_layout,
                                    &p.dweight_layout};
    case_plan(&p);
    for (int i = 0; i < 8; i++) {
        const int promised = alignment ? alignment : 16;
        const int64_t half = elements(promised / 2, i % 4 < 2 ? operands : LGH_FP32);
        *layouts[i % 4] = i < 4 ? (case_layout){0, half} : (case_layout){half, 0};
        case_upload(&p);
        case_clear_outputs(&p);
        case_clear_gradients(&p);
        if (elements(promised, i % 4 < 2 ? operands : LGH_FP32) > half)
            assert_refused(&p, names[i % 4]);
        *layouts[i % 4] = (case_layout){0, 0};
    }
    case_upload(&p); /* and it works after all of that */
    case_forward(&p);
    case_backward(&p);
    case_expected right = case_expect(&p, NULL);
    case_assert_outputs(&p, &right);
    case_expected_destroy(&right);
    case_close(&p);
}

static void a_broken_promise_has_a_status_that_names_the_matrix(void **state) {
    (void)state;
    static const int alignments[] = {0, 4, 8, 16};
    if (lgh_test_device() == LGH_DEVICE_CPU)
        lgh_test_skip("the CPU device reads rows wherever their elements are aligned");
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        for (int i = 0; i < 4; i++)
            check_broken(*dtype, alignments[i]);
}

/* ---- Targets ----------------------------------------------------------------------------------
 */

static void targets_of_32_bits_give_the_bits_of_64(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        case_problem p = random_problem(*dtype, LGH_FP32, WIDTH);
        p.targets[7] = -1;
        p.targets[9] = VOCAB;
        case_run(&p);
        case_copy wide = case_copy_of(&p);
        p.options.targets_dtype = LGH_INT32;
        case_run(&p);
        case_assert_same(&p, &wide);
        p.targets[0] = (p.targets[0] + 1) % VOCAB;
        run(&p);
        assert_false(case_token_is_same(&p, 0, &wide, 0));
        case_copy_destroy(&wide);
        case_close(&p);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_with_gaps_give_the_bits_of_contiguous_ones),
        cmocka_unit_test(rows_with_gaps_are_gathered),
        cmocka_unit_test(rows_of_a_larger_weight_are_a_weight),
        cmocka_unit_test(rows_may_start_where_the_plan_was_promised),
        cmocka_unit_test(odd_rows_that_follow_each_other_need_no_promise),
        cmocka_unit_test(a_broken_promise_has_a_status_that_names_the_matrix),
        cmocka_unit_test(targets_of_32_bits_give_the_bits_of_64),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
