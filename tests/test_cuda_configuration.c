/* test_cuda_configuration.c - plans that repeat the choices of another plan's description, on the
 * fakes: what they take from it, and texts that are of no use. */
#include "cuda_problem.h"

#include "configuration.h"
#include "product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two vocabulary chunks in each pass, the last of another width than the first. */
static problem small_problem(void) {
    problem p = problem_of(5, 8, 8300);
    p.options.hidden_dtype = p.options.weight_dtype = LGH_FP16;
    p.options.dhidden_dtype = p.options.dweight_dtype = LGH_FP16;
    p.options.bias_dtype = LGH_BF16;
    p.options.dbias_dtype = LGH_FP32;
    p.options.live_lists = 1;
    return p;
}

static char *describe_options(lgh_context *context, const lgh_plan_options *options) {
    lgh_plan *plan;
    lgh_assert_success(lgh_plan_create(&plan, context, options));
    char *text = describe_plan(plan);
    lgh_plan_destroy(plan);
    return text;
}

/* ---- Texts that are taken ------------------------------------------------------------------- */

/* The clock prefers another candidate when the first plan is made than when the second is. */
static void check_repetition(lgh_context *context, problem p) {
    fake_cublaslt_cost(3, 0.1f);
    char *text = describe_options(context, &p.options);
    fake_cublaslt_cost(3, 1.0f);
    char *other = describe_options(context, &p.options);
    assert_string_not_equal(text, other);
    p.options.configuration = text;
    char *repeated = describe_options(context, &p.options);
    assert_string_equal(repeated, text);
    problem_check(&p, context);
    free(text);
    free(other);
    free(repeated);
}

static void description_makes_the_same_plan(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    check_repetition(context, small_problem());
    check_repetition(context, problem_of(20, 8, 100));
    problem p = problem_of(40, 8, 8192);
    p.options.token_block = 16;
    check_repetition(context, p);
    p = problem_of(10, 8, 100);
    p.options.dhidden_dtype = p.options.dweight_dtype = LGH_DTYPE_NONE;
    check_repetition(context, p);
    close_fake_device(context);
}

/* A candidate whose bits are its own is taken again, though the others have the majority. */
static void repeated_plan_has_the_same_bits(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    lgh_plan *plan;
    problem p = problem_of(20, 8, 100);
    fake_cublaslt_break(0, FAKE_DIFFERS);
    char *text = describe_options(context, &p.options);
    fake_cublaslt_break(-1, FAKE_DIFFERS);
    fake_cublaslt_break(0, FAKE_SOUND);
    p.options.configuration = text;
    lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
    assert_int_equal(chosen_candidate(plan, "forward_logits"), 0);
    assert_int_equal(chosen_candidate(plan, "backward_logits"), 0);
    assert_int_equal(chosen_candidate(plan, "dhidden_product"), 0);
    assert_int_equal(chosen_candidate(plan, "dweight_product"), 0);
    lgh_plan_destroy(plan);
    free(text);
    fake_cublaslt_break(-1, FAKE_SOUND);
    close_fake_device(context);
}

static int64_t described_number(const char *text, const char *key) {
    int64_t number;
    lgh_assert_success(lgh__configuration_number(text, key, &number));
    return number;
}

/* The most tokens belong to a plan and not to its choices; blocks are never larger than the text's
 * or the plan's own. */
static void other_token_counts_may_repeat(void **state) {
    (void)state;
    static const int64_t most[] = {1, 7, 300};
    lgh_context *context = open_fake_device();
    problem p = problem_of(40, 8, 100);
    char *text = describe_options(context, &p.options);
    p.options.configuration = text;
    for (size_t i = 0; i < sizeof most / sizeof *most; ++i) {
        p.tokens = p.options.max_tokens = most[i];
        char *repeated = describe_options(context, &p.options);
        assert_int_equal(described_number(repeated, "forward_block"), most[i] < 40 ? most[i] : 40);
        assert_int_equal(described_number(repeated, "backward_block"), most[i] < 40 ? most[i] : 40);
        assert_string_equal(strstr(repeated, "\nforward_logits"), strstr(text, "\nforward_logits"));
        problem_check(&p, context);
        free(repeated);
    }
    p.options.token_block = 9;
    char *repeated = describe_options(context, &p.options);
    assert_int_equal(described_number(repeated, "forward_block"), 9);
    free(repeated);
    free(text);
    close_fake_device(context);
}

/* ---- Texts that are refused ----------------------------------------------------------------- */

static void assert_refused(lgh_context *context, const lgh_plan_options *options, lgh_status status,
                           const char *key) {
    lgh_plan *plan = (lgh_plan *)&plan;
    const fake_cuda_live before = fake_cuda_count_live();
    lgh_assert_status(lgh_plan_create(&plan, context, options), status);
    const fake_cuda_live after = fake_cuda_count_live();
    lgh_assert_contains(lgh_last_error(), "options->configuration");
    lgh_assert_contains(lgh_last_error(), key);
    assert_null(plan);
    assert_int_equal(after.allocations, before.allocations);
    assert_int_equal(after.streams, before.streams);
    assert_int_equal(after.events, before.events);
    assert_int_equal(fake_cuda_depth(), 0);
}

/* The text with the value of one key replaced, or its line left out where that is NULL. */
static char *edit(const char *text, const char *key, const char *value) {
    char start[64];
    snprintf(start, sizeof start, "\n%s = ", key);
    const char *line =
        strncmp(text, start + 1, strlen(start + 1)) == 0 ? text : strstr(text, start);
    assert_non_null(line);
    line += line != text;
    const char *end = strchr(line, '\n') + 1;
    char *edited = calloc(strlen(text) + 256, 1);
    assert_non_null(edited);
    memcpy(edited, text, (size_t)(line - text));
    if (value)
        sprintf(edited + (line - text), "%s = %s\n", key, value);
    strcat(edited, end);
    return edited;
}

static void check_edit(lgh_context *context, lgh_plan_options options, const char *text,
                       const char *key, const char *value, lgh_status status) {
    char *edited = edit(text, key, value);
    options.configuration = edited;
    assert_refused(context, &options, status, key);
    free(edited);
}

static void texts_of_another_problem_are_refused(void **state) {
    (void)state;
    static const char *const keys[] = {
        "engine",       "hidden_size", "vocab_size",  "hidden",        "weight",
        "targets",      "dhidden",     "dweight",     "outputs",       "logits_rounding",
        "ignore_index", "vocab_start", "vocab_valid", "bias",          "dbias",
        "softcap",      "oov_policy",  "live_lists",  "row_alignment", "device",
        "arch",         "cublaslt"};
    lgh_context *context = open_fake_device();
    const problem p = small_problem();
    char *text = describe_options(context, &p.options);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; ++i) {
        check_edit(context, p.options, text, keys[i], "another", LGH_ERROR_INVALID_ARGUMENT);
        check_edit(context, p.options, text, keys[i], NULL, LGH_ERROR_INVALID_ARGUMENT);
    }
    free(text);
    close_fake_device(context);
}

static void missing_choices_are_named(void **state) {
    (void)state;
    static const char *const keys[] = {
        "forward_chunk",   "forward_block",   "backward_chunk", "backward_block",  "forward_logits",
        "backward_logits", "dhidden_product", "dhidden_last",   "dweight_product", "dweight_last"};
    lgh_context *context = open_fake_device();
    const problem p = small_problem();
    char *text = describe_options(context, &p.options);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; ++i)
        check_edit(context, p.options, text, keys[i], NULL, LGH_ERROR_INVALID_ARGUMENT);
    free(text);
    close_fake_device(context);
}

static void impossible_sizes_are_named(void **state) {
    (void)state;
    static const char *const keys[] = {"forward_chunk", "forward_block", "backward_chunk",
                                       "backward_block"};
    static const char *const values[] = {
        "0", "-1", "", "many", "5 or so", "99999999999999999999", "-9223372036854775808"};
    lgh_context *context = open_fake_device();
    const problem p = small_problem();
    char *text = describe_options(context, &p.options);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; ++i)
        for (size_t k = 0; k < sizeof values / sizeof *values; ++k)
            check_edit(context, p.options, text, keys[i], values[k], LGH_ERROR_INVALID_ARGUMENT);
    /* More columns than there are, and more than a row of gradients has registers for. */
    check_edit(context, p.options, text, "forward_chunk", "8301", LGH_ERROR_INVALID_ARGUMENT);
    check_edit(context, p.options, text, "backward_chunk", "8200", LGH_ERROR_INVALID_ARGUMENT);
    free(text);
    close_fake_device(context);
}

static const char *const products[] = {"forward_logits", "backward_logits", "dhidden_product",
                                       "dhidden_last",   "dweight_product", "dweight_last"};
#define PRODUCTS (sizeof products / sizeof *products)

static void texts_that_are_no_algorithm_are_named(void **state) {
    (void)state;
    static const char *const values[] = {"", "none", "1.2.3", "1.2.3.4.5.6.7.8.9",
                                         "1.2.3.4.5.6.7.x"};
    static const char garbage[] = "6f.1.2.3.4.5.6.ffffffffffffffff";
    lgh_context *context = open_fake_device();
    const problem p = small_problem();
    char *text = describe_options(context, &p.options);
    for (size_t i = 0; i < PRODUCTS; ++i) {
        for (size_t k = 0; k < sizeof values / sizeof *values; ++k)
            check_edit(context, p.options, text, products[i], values[k],
                       LGH_ERROR_INVALID_ARGUMENT);
        check_edit(context, p.options, text, products[i], garbage, LGH_ERROR_UNSUPPORTED);
    }
    char long_value[200];
    memset(long_value, '1', sizeof long_value - 1);
    long_value[sizeof long_value - 1] = 0;
    check_edit(context, p.options, text, "forward_logits", long_value, LGH_ERROR_INVALID_ARGUMENT);
    free(text);
    close_fake_device(context);
}

static char *value_of(const char *text, const char *key) {
    char *value = malloc(LGH__ALGORITHM_TEXT);
    assert_non_null(value);
    lgh_assert_success(lgh__configuration_text(text, key, value, LGH__ALGORITHM_TEXT));
    return value;
}

/* One product of the text is candidate 2, which does not do what it must. */
static void algorithms_that_fail_their_trial_are_named(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    const problem p = small_problem();
    char *text = describe_options(context, &p.options);
    fake_cublaslt_cost(2, 0.1f);
    char *other = describe_options(context, &p.options);
    fake_cublaslt_break(2, FAKE_BREAKS_BY_RUN);
    for (size_t i = 0; i < PRODUCTS; ++i) {
        char *algorithm = value_of(other, products[i]);
        check_edit(context, p.options, text, products[i], algorithm, LGH_ERROR_UNSUPPORTED);
        free(algorithm);
    }
    fake_cublaslt_break(2, FAKE_SOUND);
    free(other);
    free(text);
    close_fake_device(context);
}

static void algorithms_that_split_k_are_never_run(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    const problem p = small_problem();
    char *text = describe_options(context, &p.options);
    for (size_t i = 0; i < PRODUCTS; ++i) {
        char *algorithm = value_of(text, products[i]);
        lgh__algorithm split;
        lgh_assert_success(lgh__algorithm_read(&split, algorithm, products[i]));
        fake_cublaslt_split(split.opaque);
        lgh__algorithm_write(algorithm, &split);
        check_edit(context, p.options, text, products[i], algorithm, LGH_ERROR_UNSUPPORTED);
        free(algorithm);
    }
    free(text);
    close_fake_device(context);
}

/* Whatever the text is, a plan is made that keeps the promises, or none is. */
static void check_any_text(lgh_context *context, const lgh_plan_options *options) {
    const fake_cuda_live before = fake_cuda_count_live();
    lgh_plan *plan;
    const lgh_status status = lgh_plan_create(&plan, context, options);
    assert_true((status == LGH_SUCCESS) == (plan != NULL));
    assert_true(status == LGH_SUCCESS || status == LGH_ERROR_INVALID_ARGUMENT ||
                status == LGH_ERROR_UNSUPPORTED || status == LGH_ERROR_WORKSPACE);
    lgh_plan_destroy(plan);
    assert_int_equal(fake_cuda_count_live().allocations, before.allocations);
    assert_int_equal(fake_cuda_depth(), 0);
}

static void damaged_texts_do_no_harm(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    lgh_random random = {3};
    problem p = small_problem();
    char *text = describe_options(context, &p.options), *damaged = calloc(strlen(text) + 1, 1);
    const int64_t length = (int64_t)strlen(text);
    assert_non_null(damaged);
    p.options.configuration = damaged;
    for (int64_t kept = 0; kept < length; kept += 11) {
        memcpy(damaged, text, (size_t)kept);
        check_any_text(context, &p.options);
    }
    for (int i = 0; i < 300; ++i) {
        memcpy(damaged, text, (size_t)length);
        const int64_t at = i % 3 ? lgh_random_below(&random, length)
                                 : length - 1 - lgh_random_below(&random, length / 2);
        damaged[at] = "0123456789abcdef =.\n-"[lgh_random_below(&random, 21)];
        check_any_text(context, &p.options);
    }
    free(damaged);
    free(text);
    close_fake_device(context);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(description_makes_the_same_plan),
        cmocka_unit_test(repeated_plan_has_the_same_bits),
        cmocka_unit_test(other_token_counts_may_repeat),
        cmocka_unit_test(texts_of_another_problem_are_refused),
        cmocka_unit_test(missing_choices_are_named),
        cmocka_unit_test(impossible_sizes_are_named),
        cmocka_unit_test(texts_that_are_no_algorithm_are_named),
        cmocka_unit_test(algorithms_that_fail_their_trial_are_named),
        cmocka_unit_test(algorithms_that_split_k_are_never_run),
        cmocka_unit_test(damaged_texts_do_no_harm),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
