/* test_plan_cases.c - plans, and queries of them, with a bad argument: each call returns its
 * status, names the argument in its text, and gives NULL in place of a plan; the arguments just
 * beside it are taken. */
#include "harness.h"
#include "refused_calls.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static lgh_plan_options good_options(void) {
    return case_of(4, 16, 40).options;
}

/* A pointer that is not NULL, to see it become so; nothing reads through it. */
static void *not_null(void) {
    static char byte;
    return &byte;
}

static void refuse_plan(const lgh_plan_options *options, lgh_status expected,
                        const char *argument) {
    lgh_plan *plan = not_null();
    assert_names(lgh_plan_create(&plan, lgh_test_context(), options), expected, argument);
    assert_null(plan);
}

static void take_plan(const lgh_plan_options *options) {
    lgh_plan *plan = NULL;
    lgh_assert_success(lgh_plan_create(&plan, lgh_test_context(), options));
    assert_non_null(plan);
    lgh_plan_destroy(plan);
}

#define REFUSE_PLAN(change, expected, argument)                                                    \
    do {                                                                                           \
        lgh_plan_options options_ = good_options();                                                \
        options_.change;                                                                           \
        refuse_plan(&options_, expected, argument);                                                \
    } while (0)

#define TAKE_PLAN(change)                                                                          \
    do {                                                                                           \
        lgh_plan_options options_ = good_options();                                                \
        options_.change;                                                                           \
        take_plan(&options_);                                                                      \
    } while (0)

/* ---- Plans ---------------------------------------------------------------------------------- */

static void plans_of_nothing_are_refused(void **state) {
    (void)state;
    const lgh_plan_options options = good_options();
    lgh_plan *plan = not_null();
    take_plan(&options);
    assert_names(lgh_plan_create(NULL, lgh_test_context(), &options), INVALID, "plan is null");
    assert_names(lgh_plan_create(&plan, NULL, &options), INVALID, "context is null");
    assert_null(plan);
    refuse_plan(NULL, INVALID, "options is null");
    lgh_plan_destroy(NULL);
}

static void unknown_option_sizes_are_refused(void **state) {
    (void)state;
    static const size_t wrong[] = {0, 1, sizeof(lgh_plan_options) - 8, 65537, SIZE_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        REFUSE_PLAN(size = wrong[i], INVALID, "options->size");
}

static void options_of_later_versions_must_be_zero(void **state) {
    (void)state;
    struct {
        lgh_plan_options options;
        unsigned char later[24];
    } given = {.options = good_options()};
    given.options.size = sizeof given;
    for (size_t i = 0; i < sizeof given.later; i++) {
        given.later[i] = 1;
        refuse_plan(&given.options, INVALID, "options sets a field");
        given.later[i] = 0;
    }
    take_plan(&given.options);
}

static void sizes_out_of_range_are_refused(void **state) {
    (void)state;
    static const int64_t wrong[] = {-1, (int64_t)1 << 31, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        REFUSE_PLAN(hidden_size = wrong[i], INVALID, "options->hidden_size");
        REFUSE_PLAN(vocab_size = wrong[i], INVALID, "options->vocab_size");
        REFUSE_PLAN(max_tokens = wrong[i], INVALID, "options->max_tokens");
        REFUSE_PLAN(vocab_start = wrong[i], INVALID, "options->vocab_start");
        REFUSE_PLAN(vocab_valid = wrong[i], INVALID, "options->vocab_valid");
    }
    REFUSE_PLAN(hidden_size = 0, INVALID, "options->hidden_size");
    REFUSE_PLAN(backward_budget = -1, INVALID, "options->backward_budget");
    REFUSE_PLAN(backward_budget = INT64_MIN, INVALID, "options->backward_budget");
    REFUSE_PLAN(token_block = -1, INVALID, "options->token_block");
    REFUSE_PLAN(token_block = INT64_MIN, INVALID, "options->token_block");
}

static void sizes_at_their_limits_are_taken(void **state) {
    (void)state;
    TAKE_PLAN(hidden_size = 1);
    TAKE_PLAN(vocab_size = 0);
    TAKE_PLAN(vocab_size = 1);
    TAKE_PLAN(max_tokens = 0);
    TAKE_PLAN(max_tokens = INT32_MAX);
    TAKE_PLAN(vocab_start = INT32_MAX);
    TAKE_PLAN(vocab_valid = 1);
    TAKE_PLAN(vocab_valid = INT32_MAX);
    TAKE_PLAN(backward_budget = INT64_MAX);
    TAKE_PLAN(token_block = 1);
    TAKE_PLAN(token_block = INT64_MAX);
    if (lgh_test_device() == LGH_DEVICE_CPU) /* of which nothing is tried on scratch memory */
        TAKE_PLAN(vocab_size = INT32_MAX);
}

/* A hidden_size within the limits of the number, not of the memory that a thread may have. */
static void hidden_sizes_beyond_the_forward_pass_are_refused(void **state) {
    (void)state;
    if (lgh_test_device() != LGH_DEVICE_CPU)
        lgh_test_skip("a GPU's workspace holds no row of hidden");
    REFUSE_PLAN(hidden_size = INT32_MAX, UNSUPPORTED, "options->hidden_size");
}

/* ---- The backward pass's budget ------------------------------------------------------------- */

/* The text of the refusal gives a budget that suffices, and one byte less does not. */
static void check_least_budget(lgh_dtype dhidden, lgh_dtype dweight, lgh_dtype dbias) {
    lgh_plan_options options = good_options();
    options.dhidden_dtype = dhidden;
    options.dweight_dtype = dweight;
    options.dbias_dtype = dbias;
    options.backward_budget = 1;
    refuse_plan(&options, LGH_ERROR_WORKSPACE, "options->backward_budget is 1 ");
    const char *least = strstr(lgh_last_error(), "at least ");
    assert_non_null(least);
    options.backward_budget = strtoll(least + strlen("at least "), NULL, 10);
    take_plan(&options);
    options.backward_budget--;
    refuse_plan(&options, LGH_ERROR_WORKSPACE, "options->backward_budget");
}

static void budgets_below_the_least_are_refused(void **state) {
    (void)state;
    check_least_budget(LGH_FP32, LGH_FP32, LGH_FP32);
    check_least_budget(LGH_BF16, LGH_BF16, LGH_DTYPE_NONE);
    check_least_budget(LGH_FP32, LGH_DTYPE_NONE, LGH_DTYPE_NONE);
    check_least_budget(LGH_DTYPE_NONE, LGH_FP32, LGH_DTYPE_NONE);
    check_least_budget(LGH_DTYPE_NONE, LGH_DTYPE_NONE, LGH_FP32);
}

static void any_budget_is_enough_without_a_backward_pass(void **state) {
    (void)state;
    lgh_plan_options options = good_options();
    options.dhidden_dtype = options.dweight_dtype = LGH_DTYPE_NONE;
    options.backward_budget = 1;
    take_plan(&options);
}

/* ---- Dtypes and features -------------------------------------------------------------------- */

enum {
    NONE = 1 << LGH_DTYPE_NONE,
    BF16 = 1 << LGH_BF16,
    FP16 = 1 << LGH_FP16,
    FP32 = 1 << LGH_FP32
};
enum { INTEGERS = 1 << LGH_INT32 | 1 << LGH_INT64, NUMBERS = BF16 | FP16 | FP32 };

/* One option at a time beside a BF16 hidden and a BF16 weight. */
static const struct {
    size_t offset;
    const char *argument;
    int taken; /* bits of the dtypes that it may have */
} dtype_options[] = {
    {offsetof(lgh_plan_options, weight_dtype), "options->weight_dtype", BF16 | FP32},
    {offsetof(lgh_plan_options, targets_dtype), "options->targets_dtype", INTEGERS},
    {offsetof(lgh_plan_options, dhidden_dtype), "options->dhidden_dtype", NONE | BF16 | FP32},
    {offsetof(lgh_plan_options, dweight_dtype), "options->dweight_dtype", NONE | BF16 | FP32},
    {offsetof(lgh_plan_options, logits_rounding), "options->logits_rounding", NONE | BF16 | FP16},
    {offsetof(lgh_plan_options, bias_dtype), "options->bias_dtype", NONE | NUMBERS},
    {offsetof(lgh_plan_options, dbias_dtype), "options->dbias_dtype", NONE | FP32},
};

static void dtypes_that_an_option_cannot_have_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof dtype_options / sizeof *dtype_options; i++)
        for (int number = -1; number <= LGH_INT64 + 1; number++) {
            const lgh_dtype dtype = (lgh_dtype)number;
            lgh_plan_options options = good_options();
            memcpy((char *)&options + dtype_options[i].offset, &dtype, sizeof dtype);
            if (number >= 0 && dtype_options[i].taken & 1 << number)
                take_plan(&options);
            else
                refuse_plan(&options, UNSUPPORTED, dtype_options[i].argument);
        }
}

/* The weight, dhidden and dweight follow hidden. */
static void operands_that_do_not_fit_each_other_are_refused(void **state) {
    (void)state;
    static const int none[] = {-1, LGH_DTYPE_NONE, LGH_INT32, LGH_INT64, LGH_INT64 + 1};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        REFUSE_PLAN(hidden_dtype = (lgh_dtype)none[i], UNSUPPORTED, "options->hidden_dtype");
    REFUSE_PLAN(hidden_dtype = LGH_FP16, UNSUPPORTED, "options->weight_dtype");
    REFUSE_PLAN(hidden_dtype = LGH_FP32, UNSUPPORTED, "options->weight_dtype");
    lgh_plan_options options = good_options();
    options.hidden_dtype = options.weight_dtype = LGH_FP32;
    take_plan(&options);
    options.dhidden_dtype = LGH_BF16;
    refuse_plan(&options, UNSUPPORTED, "options->dhidden_dtype");
    options.dhidden_dtype = LGH_FP32;
    options.dweight_dtype = LGH_FP16;
    refuse_plan(&options, UNSUPPORTED, "options->dweight_dtype");
    options.dweight_dtype = LGH_FP32;
    options.hidden_dtype = LGH_FP16;
    refuse_plan(&options, UNSUPPORTED, "options->weight_dtype");
    options.hidden_dtype = LGH_BF16;
    options.dhidden_dtype = LGH_BF16;
    take_plan(&options);
    options.dweight_dtype = LGH_BF16;
    refuse_plan(&options, UNSUPPORTED, "options->dweight_dtype");
}

static void features_out_of_range_are_refused(void **state) {
    (void)state;
    static const int alignments[] = {-2, 1, 3, 6, 12, 32, INT32_MAX, INT32_MIN};
    const float softcaps[] = {-1.0f, -FLT_MIN, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++)
        REFUSE_PLAN(row_alignment = alignments[i], INVALID, "options->row_alignment");
    for (size_t i = 0; i < sizeof softcaps / sizeof *softcaps; i++)
        REFUSE_PLAN(softcap = softcaps[i], INVALID, "options->softcap");
    REFUSE_PLAN(outputs = LGH_OUTPUT_ALL + 1, INVALID, "options->outputs");
    REFUSE_PLAN(outputs = UINT32_MAX, INVALID, "options->outputs");
    REFUSE_PLAN(oov_policy = (lgh_oov_policy)2, INVALID, "options->oov_policy");
    REFUSE_PLAN(oov_policy = (lgh_oov_policy)-1, INVALID, "options->oov_policy");
}

static void features_at_their_limits_are_taken(void **state) {
    (void)state;
    for (int alignment = 2; alignment <= 16; alignment *= 2)
        TAKE_PLAN(row_alignment = alignment);
    TAKE_PLAN(softcap = FLT_MIN);
    TAKE_PLAN(softcap = FLT_MAX);
    TAKE_PLAN(softcap = -0.0f);
    TAKE_PLAN(outputs = 0);
    TAKE_PLAN(oov_policy = LGH_OOV_SOFTMAX);
    TAKE_PLAN(live_lists = INT32_MIN);
    TAKE_PLAN(ignore_index = INT64_MIN);
}

/* ---- Queries -------------------------------------------------------------------------------- */

static void bad_sizes_of_workspaces_are_refused(void **state) {
    (void)state;
    static const int64_t wrong[] = {5, -1, INT64_MAX, INT64_MIN};
    case_problem p = case_of(4, 16, 40);
    case_plan(&p);
    size_t bytes = 17, beyond = 18;
    assert_names(lgh_plan_workspace_size(NULL, LGH_PASS_FORWARD, 1, &bytes, &beyond), INVALID,
                 "plan is null");
    for (int pass = 0; pass < 2; pass++) {
        assert_names(lgh_plan_workspace_size(p.plan, (lgh_pass)pass, 1, NULL, &beyond), INVALID,
                     "bytes is null");
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
            assert_names(lgh_plan_workspace_size(p.plan, (lgh_pass)pass, wrong[i], &bytes, &beyond),
                         INVALID, "tokens is");
    }
    assert_names(lgh_plan_workspace_size(p.plan, (lgh_pass)2, 1, &bytes, &beyond), INVALID,
                 "pass is");
    assert_names(lgh_plan_workspace_size(p.plan, (lgh_pass)-1, 1, &bytes, &beyond), INVALID,
                 "pass is");
    assert_int_equal(bytes, 17);
    assert_int_equal(beyond, 18);
    lgh_assert_success(lgh_plan_workspace_size(p.plan, LGH_PASS_BACKWARD, 4, &bytes, NULL));
    assert_int_not_equal(bytes, 17);
    lgh_assert_success(lgh_plan_workspace_size(p.plan, LGH_PASS_BACKWARD, 0, &bytes, &beyond));
    assert_int_equal(bytes + beyond, 0);
    case_close(&p);
}

static void bad_descriptions_are_refused(void **state) {
    (void)state;
    case_problem p = case_of(4, 16, 40);
    size_t length = 17;
    char text[8] = "abc";
    case_plan(&p);
    assert_names(lgh_plan_describe(NULL, text, sizeof text, &length), INVALID, "plan is null");
    assert_names(lgh_plan_describe(p.plan, NULL, 1, &length), INVALID, "text is null");
    assert_int_equal(length, 17);
    assert_string_equal(text, "abc");
    case_close(&p);
}

/* Room for every length up to one more than the text's: what fits is its start, and nothing behind
 * it is written. */
static void descriptions_that_do_not_fit_are_cut(void **state) {
    (void)state;
    enum { MOST = 4096, FRESH = 0x5a };
    case_problem p = case_of(4, 16, 40);
    size_t whole = 0, length = 0;
    char text[MOST], cut[MOST];
    case_plan(&p);
    lgh_assert_success(lgh_plan_describe(p.plan, NULL, 0, &whole));
    assert_in_range(whole, 1, MOST - 2);
    lgh_assert_success(lgh_plan_describe(p.plan, text, MOST, NULL));
    assert_int_equal(strlen(text), whole);
    for (size_t capacity = 0; capacity <= whole + 2; capacity++) {
        memset(cut, FRESH, MOST);
        lgh_assert_success(lgh_plan_describe(p.plan, cut, capacity, &length));
        assert_int_equal(length, whole);
        const size_t kept = capacity > whole ? whole : capacity > 0 ? capacity - 1 : 0;
        lgh_assert_same_bytes(cut, text, kept, "a text that is cut");
        assert_int_equal(cut[kept], capacity > 0 ? 0 : FRESH);
        assert_int_equal(cut[capacity > whole ? whole + 1 : capacity], FRESH);
    }
    case_close(&p);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_nothing_are_refused),
        cmocka_unit_test(unknown_option_sizes_are_refused),
        cmocka_unit_test(options_of_later_versions_must_be_zero),
        cmocka_unit_test(sizes_out_of_range_are_refused),
        cmocka_unit_test(sizes_at_their_limits_are_taken),
        cmocka_unit_test(hidden_sizes_beyond_the_forward_pass_are_refused),
        cmocka_unit_test(budgets_below_the_least_are_refused),
        cmocka_unit_test(any_budget_is_enough_without_a_backward_pass),
        cmocka_unit_test(dtypes_that_an_option_cannot_have_are_refused),
        cmocka_unit_test(operands_that_do_not_fit_each_other_are_refused),
        cmocka_unit_test(features_out_of_range_are_refused),
        cmocka_unit_test(features_at_their_limits_are_taken),
        cmocka_unit_test(bad_sizes_of_workspaces_are_refused),
        cmocka_unit_test(bad_descriptions_are_refused),
        cmocka_unit_test(descriptions_that_do_not_fit_are_cut),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
