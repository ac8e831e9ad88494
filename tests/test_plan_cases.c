/* test_plan_cases.c - plans, queries, contexts and memory with a bad argument: each call returns
 * its status, names the argument in its text, and gives NULL in place of a handle. */
#include "case_problem.h"
#include "harness.h"

#include <string.h>

#define INVALID LGH_ERROR_INVALID_ARGUMENT
#define UNSUPPORTED LGH_ERROR_UNSUPPORTED

static lgh_plan_options good_options(void) {
    return case_of(4, 16, 40).options;
}

/* A pointer that is not NULL, to see it become so; nothing reads through it. */
static void *not_null(void) {
    static char byte;
    return &byte;
}

static void assert_refused(lgh_status given, lgh_status expected, const char *argument) {
    if (given != expected)
        print_error("for %s\n", argument);
    lgh_assert_status(given, expected);
    lgh_assert_contains(lgh_last_error(), lgh_status_name(expected));
    lgh_assert_contains(lgh_last_error(), argument);
}

static void refuse_plan(const lgh_plan_options *options, lgh_status expected,
                        const char *argument) {
    lgh_plan *plan = not_null();
    assert_refused(lgh_plan_create(&plan, lgh_test_context(), options), expected, argument);
    assert_null(plan);
}

#define REFUSE_PLAN(change, expected, argument)                                                    \
    do {                                                                                           \
        lgh_plan_options options_ = good_options();                                                \
        options_.change;                                                                           \
        refuse_plan(&options_, expected, argument);                                                \
    } while (0)

/* ---- Plans ---------------------------------------------------------------------------------- */

static void good_options_make_a_plan(void **state) {
    (void)state;
    const lgh_plan_options options = good_options();
    lgh_plan *plan = NULL;
    lgh_assert_success(lgh_plan_create(&plan, lgh_test_context(), &options));
    assert_non_null(plan);
    lgh_plan_destroy(plan);
    lgh_plan_destroy(NULL);
}

static void plans_of_nothing_are_refused(void **state) {
    (void)state;
    const lgh_plan_options options = good_options();
    lgh_plan *plan = not_null();
    assert_refused(lgh_plan_create(NULL, lgh_test_context(), &options), INVALID, "plan");
    assert_refused(lgh_plan_create(&plan, NULL, &options), INVALID, "context");
    assert_null(plan);
    refuse_plan(NULL, INVALID, "options");
    REFUSE_PLAN(size = 0, INVALID, "options->size");
    REFUSE_PLAN(size = sizeof(lgh_plan_options) - 8, INVALID, "options->size");
    REFUSE_PLAN(size = 65537, INVALID, "options->size");
}

static void options_of_later_versions_must_be_zero(void **state) {
    (void)state;
    struct {
        lgh_plan_options options;
        unsigned char later[24];
    } given = {.options = good_options()};
    lgh_plan *plan = NULL;
    given.options.size = sizeof given;
    given.later[0] = 1;
    refuse_plan(&given.options, INVALID, "options");
    given.later[0] = 0;
    lgh_assert_success(lgh_plan_create(&plan, lgh_test_context(), &given.options));
    lgh_plan_destroy(plan);
}

static void sizes_out_of_range_are_refused(void **state) {
    (void)state;
    static const int64_t wrong[] = {-1, (int64_t)1 << 31, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        REFUSE_PLAN(hidden_size = wrong[i], INVALID, "options->hidden_size");
        REFUSE_PLAN(vocab_size = wrong[i], INVALID, "options->vocab_size");
        REFUSE_PLAN(max_tokens = wrong[i], INVALID, "options->max_tokens");
    }
    REFUSE_PLAN(hidden_size = 0, INVALID, "options->hidden_size");
    REFUSE_PLAN(vocab_size = 0, INVALID, "options->vocab_size");
    REFUSE_PLAN(backward_budget = -1, INVALID, "options->backward_budget");
    REFUSE_PLAN(backward_budget = 1, LGH_ERROR_WORKSPACE, "options->backward_budget");
    REFUSE_PLAN(token_block = -1, INVALID, "options->token_block");
    REFUSE_PLAN(outputs = 16, INVALID, "options->outputs");
    REFUSE_PLAN(outputs = UINT32_MAX, INVALID, "options->outputs");
}

static void dtypes_out_of_range_are_refused(void **state) {
    (void)state;
    static const lgh_dtype none[] = {LGH_INT32, LGH_INT64, (lgh_dtype)2, (lgh_dtype)-1,
                                     (lgh_dtype)99};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        REFUSE_PLAN(hidden_dtype = none[i], UNSUPPORTED, "options->hidden_dtype");
        REFUSE_PLAN(weight_dtype = none[i], UNSUPPORTED, "options->weight_dtype");
        REFUSE_PLAN(dhidden_dtype = none[i], UNSUPPORTED, "options->dhidden_dtype");
        REFUSE_PLAN(dweight_dtype = none[i], UNSUPPORTED, "options->dweight_dtype");
        REFUSE_PLAN(logits_rounding = none[i], UNSUPPORTED, "options->logits_rounding");
    }
    REFUSE_PLAN(hidden_dtype = LGH_DTYPE_NONE, UNSUPPORTED, "options->hidden_dtype");
    REFUSE_PLAN(weight_dtype = LGH_DTYPE_NONE, UNSUPPORTED, "options->weight_dtype");
    REFUSE_PLAN(weight_dtype = LGH_FP32, UNSUPPORTED, "options->weight_dtype");
    REFUSE_PLAN(logits_rounding = LGH_FP32, UNSUPPORTED, "options->logits_rounding");
    REFUSE_PLAN(targets_dtype = LGH_BF16, UNSUPPORTED, "options->targets_dtype");
    REFUSE_PLAN(targets_dtype = LGH_DTYPE_NONE, UNSUPPORTED, "options->targets_dtype");
}

static void fp32_operands_are_refused_where_they_are_not_taken(void **state) {
    (void)state;
    lgh_plan_options options = good_options();
    options.hidden_dtype = LGH_FP32;
    if (lgh_test_device() == LGH_DEVICE_CUDA)
        refuse_plan(&options, UNSUPPORTED, "options->hidden_dtype");
    else
        refuse_plan(&options, UNSUPPORTED, "options->weight_dtype");
}

/* ---- Queries -------------------------------------------------------------------------------- */

static void bad_queries_are_refused(void **state) {
    (void)state;
    case_problem p = case_of(4, 16, 40);
    case_plan(&p);
    size_t bytes = 17, length = 0;
    char text[8];
    assert_refused(lgh_plan_workspace_size(NULL, LGH_PASS_FORWARD, 1, &bytes, NULL), INVALID,
                   "plan");
    assert_refused(lgh_plan_workspace_size(p.plan, LGH_PASS_FORWARD, 1, NULL, NULL), INVALID,
                   "bytes");
    assert_refused(lgh_plan_workspace_size(p.plan, (lgh_pass)2, 1, &bytes, NULL), INVALID, "pass");
    assert_refused(lgh_plan_workspace_size(p.plan, LGH_PASS_BACKWARD, 5, &bytes, NULL), INVALID,
                   "tokens");
    assert_refused(lgh_plan_workspace_size(p.plan, LGH_PASS_BACKWARD, -1, &bytes, NULL), INVALID,
                   "tokens");
    assert_int_equal(bytes, 17);
    assert_refused(lgh_plan_describe(NULL, text, sizeof text, NULL), INVALID, "plan");
    assert_refused(lgh_plan_describe(p.plan, NULL, 1, NULL), INVALID, "text");
    lgh_assert_success(lgh_plan_describe(p.plan, NULL, 0, &length));
    assert_true(length > sizeof text);
    lgh_assert_success(lgh_plan_describe(p.plan, text, sizeof text, NULL));
    assert_int_equal(strlen(text), sizeof text - 1);
    case_close(&p);
}

/* ---- Contexts and memory -------------------------------------------------------------------- */

static void refuse_context(const lgh_context_options *options, lgh_status expected,
                           const char *argument) {
    lgh_context *context = not_null();
    assert_refused(lgh_context_create(&context, options), expected, argument);
    assert_null(context);
}

#define REFUSE_CONTEXT(change, expected, argument)                                                 \
    do {                                                                                           \
        lgh_context_options options_ = LGH_CONTEXT_OPTIONS_INIT;                                   \
        options_.type = lgh_test_device();                                                         \
        options_.change;                                                                           \
        refuse_context(&options_, expected, argument);                                             \
    } while (0)

static void bad_contexts_are_refused(void **state) {
    (void)state;
    const lgh_context_options options = LGH_CONTEXT_OPTIONS_INIT;
    lgh_test_context(); /* or the case is skipped for want of a device */
    assert_refused(lgh_context_create(NULL, &options), INVALID, "context");
    refuse_context(NULL, INVALID, "options");
    REFUSE_CONTEXT(type = (lgh_device_type)7, INVALID, "options->type");
    REFUSE_CONTEXT(size = 1, INVALID, "options->size");
    if (lgh_test_device() == LGH_DEVICE_CUDA) {
        REFUSE_CONTEXT(ordinal = 1000, LGH_ERROR_NO_DEVICE, "ordinal");
        REFUSE_CONTEXT(ordinal = -1, LGH_ERROR_NO_DEVICE, "ordinal");
    } else {
        REFUSE_CONTEXT(cpu_threads = -1, INVALID, "options->cpu_threads");
        REFUSE_CONTEXT(cpu_threads = INT32_MAX, INVALID, "options->cpu_threads");
    }
    lgh_context_destroy(NULL);
}

static void bad_names_are_refused(void **state) {
    (void)state;
    char text[4] = "abc";
    assert_refused(lgh_context_device_name(NULL, text, sizeof text), INVALID, "context");
    assert_refused(lgh_context_device_name(lgh_test_context(), NULL, 4), INVALID, "text");
    assert_refused(lgh_context_device_name(lgh_test_context(), text, 0), INVALID, "text");
    assert_string_equal(text, "abc");
    lgh_assert_success(lgh_context_device_name(lgh_test_context(), text, sizeof text));
    assert_int_equal(strlen(text), 3);
}

static void bad_memory_calls_are_refused(void **state) {
    (void)state;
    lgh_context *context = lgh_test_context();
    void *memory = not_null();
    char byte = 1, other = 2;
    assert_refused(lgh_memory_allocate(NULL, 1, &memory), INVALID, "context");
    assert_refused(lgh_memory_allocate(context, 1, NULL), INVALID, "memory");
    assert_refused(lgh_memory_allocate(context, SIZE_MAX, &memory), LGH_ERROR_OUT_OF_MEMORY,
                   "bytes");
    assert_null(memory);
    if (lgh_test_device() == LGH_DEVICE_CUDA) { /* host allocators of sanitizers abort instead */
        memory = not_null();
        assert_refused(lgh_memory_allocate(context, (size_t)1 << 56, &memory),
                       LGH_ERROR_OUT_OF_MEMORY, "bytes");
        assert_null(memory);
    }
    memory = not_null();
    lgh_assert_success(lgh_memory_allocate(context, 0, &memory));
    assert_null(memory);
    assert_refused(lgh_memory_copy(NULL, &byte, &other, 1, NULL), INVALID, "context");
    assert_refused(lgh_memory_copy(context, NULL, &other, 1, device_stream()), INVALID, "to");
    assert_refused(lgh_memory_copy(context, &byte, NULL, 1, device_stream()), INVALID, "from");
    assert_int_equal(byte, 1);
    lgh_assert_success(lgh_memory_copy(context, NULL, NULL, 0, device_stream()));
    lgh_memory_free(context, NULL);
    lgh_memory_free(NULL, NULL);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_options_make_a_plan),
        cmocka_unit_test(plans_of_nothing_are_refused),
        cmocka_unit_test(options_of_later_versions_must_be_zero),
        cmocka_unit_test(sizes_out_of_range_are_refused),
        cmocka_unit_test(dtypes_out_of_range_are_refused),
        cmocka_unit_test(fp32_operands_are_refused_where_they_are_not_taken),
        cmocka_unit_test(bad_queries_are_refused),
        cmocka_unit_test(bad_contexts_are_refused),
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(bad_memory_calls_are_refused),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
