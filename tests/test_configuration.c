/* test_configuration.c - the text of lgh_plan_describe as an option: it pins what a plan chose, so
 * that another plan gives the same bits, and a text that does not fit is refused by name. */
#include "case_copy.h"
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 90, WIDTH = 40, VOCAB = 9001, TEXT = 8192 };

static case_problem random_problem(lgh_dtype operands, lgh_dtype results) {
    case_problem p = case_of(TOKENS, WIDTH, VOCAB);
    case_set_operands(&p, operands);
    case_set_results(&p, results);
    case_set_bias_dtype(&p, LGH_FP32);
    p.options.max_tokens = 4 * TOKENS;
    p.options.live_lists = 1;
    case_open(&p);
    case_fill(&p, 5, 1.0, 0.3);
    case_fill_bias(&p, 6, 1.0);
    case_fill_temperatures(&p, CASE_VECTOR, 7);
    p.tokens = TOKENS;
    return p;
}

static void describe(const case_problem *p, char text[TEXT]) {
    size_t length;
    lgh_assert_success(lgh_plan_describe(p->plan, text, TEXT, &length));
    assert_true(length < TEXT);
}

/* The line of a key with its end, or NULL. */
static const char *line_of(const char *text, const char *key) {
    char start[128];
    const int length = snprintf(start, sizeof start, "%s = ", key);
    for (const char *line = text; line && *line;) {
        if (strncmp(line, start, (size_t)length) == 0)
            return line;
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return NULL;
}

static int line_is_equal(const char *a, const char *b, const char *key) {
    const char *x = line_of(a, key), *y = line_of(b, key);
    const size_t length = x ? strcspn(x, "\n") : 0;
    return x && y && length == strcspn(y, "\n") && memcmp(x, y, length) == 0;
}

/* ---- Pinning --------------------------------------------------------------------------------- */

/* What the bits hang on; a key that the device does not have is passed over. */
static void assert_choices_are_repeated(const char *pinned, const char *text) {
    static const char *const keys[] = {"engine",          "forward_chunk",   "backward_chunk",
                                       "forward_logits",  "backward_logits", "dhidden_product",
                                       "dweight_product", "dhidden_last",    "dweight_last"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (line_of(text, keys[i]) && !line_is_equal(pinned, text, keys[i]))
            fail_msg("the plan did not repeat %s", keys[i]);
}

/* Many more tokens, and another budget. */
static void check_pin(lgh_dtype operands, lgh_dtype results, int64_t budget) {
    char text[TEXT], pinned[TEXT];
    case_problem p = random_problem(operands, results);
    p.options.max_tokens = TOKENS;
    p.options.token_block = 32;
    case_run(&p);
    case_copy first = case_copy_of(&p);
    describe(&p, text);
    p.options.max_tokens = 4 * TOKENS;
    p.options.token_block = 0;
    p.options.backward_budget = budget;
    p.options.configuration = text;
    case_run(&p);
    describe(&p, pinned);
    assert_choices_are_repeated(pinned, text);
    case_assert_same_tokens(&p, &first);
    case_set_hidden(&p, 0, 0, 3); /* another hidden state shows */
    case_upload(&p);
    case_forward(&p);
    case_backward(&p);
    assert_false(case_token_is_same(&p, 0, &first, 0));
    assert_true(case_token_is_same(&p, 1, &first, 1));
    case_copy_destroy(&first);
    case_close(&p);
}

static void a_text_pins_the_bits_of_every_token(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_pin(*dtype, LGH_FP32, 0);
        check_pin(*dtype, LGH_FP32, 16 << 20);
        if (*dtype != LGH_FP32)
            check_pin(*dtype, LGH_BF16, 64 << 20);
    }
}

/* The text of a plan that was made from a text gives that plan again. */
static void a_pinned_plan_has_the_same_text(void **state) {
    (void)state;
    char text[TEXT], again[TEXT];
    case_problem p = random_problem(LGH_BF16, LGH_FP32);
    case_plan(&p);
    describe(&p, text);
    p.options.configuration = text;
    case_plan(&p);
    describe(&p, again);
    assert_string_equal(again, text);
    case_close(&p);
}

/* ---- Texts that do not fit --------------------------------------------------------------------
 */

/* The plan with these options is refused, and the text names the key. */
static void assert_refused(const lgh_plan_options *options, const char *key) {
    lgh_plan *plan = (lgh_plan *)(uintptr_t)1;
    const lgh_status status = lgh_plan_create(&plan, lgh_test_context(), options);
    if (status != LGH_ERROR_INVALID_ARGUMENT)
        fail_msg("another %s gave %s", key, lgh_status_name(status));
    assert_null(plan);
    lgh_assert_contains(lgh_last_error(), "configuration");
    lgh_assert_contains(lgh_last_error(), key);
}

/* One option at a time is another than the text's. */
static void the_text_of_another_problem_is_refused(void **state) {
    (void)state;
    char text[TEXT];
    case_problem p = random_problem(LGH_BF16, LGH_FP32);
    case_plan(&p);
    describe(&p, text);
    p.options.configuration = text;
    case_plan(&p); /* it fits as it is */
    lgh_plan_options o = p.options;
    const lgh_plan_options fits = o;
#define REFUSED(option, value, key)                                                                \
    do {                                                                                           \
        o.option = (value);                                                                        \
        assert_refused(&o, key);                                                                   \
        o = fits;                                                                                  \
    } while (0)
    REFUSED(hidden_size, WIDTH + 8, "hidden_size");
    REFUSED(vocab_size, VOCAB - 1, "vocab_size");
    REFUSED(targets_dtype, LGH_INT32, "targets");
    REFUSED(dhidden_dtype, LGH_BF16, "dhidden");
    REFUSED(dweight_dtype, LGH_DTYPE_NONE, "dweight");
    REFUSED(logits_rounding, LGH_BF16, "logits_rounding");
    REFUSED(outputs, LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE, "outputs");
    REFUSED(ignore_index, -1, "ignore_index");
    REFUSED(vocab_start, 8, "vocab_start");
    REFUSED(vocab_valid, VOCAB - 1, "vocab_valid");
    REFUSED(bias_dtype, LGH_BF16, "bias");
    REFUSED(dbias_dtype, LGH_DTYPE_NONE, "dbias");
    REFUSED(softcap, 30.0f, "softcap");
    REFUSED(oov_policy, LGH_OOV_SOFTMAX, "oov_policy");
    REFUSED(row_alignment, 2, "row_alignment");
    REFUSED(live_lists, 0, "live_lists");
#undef REFUSED
    case_close(&p);
}

/* Each line but max_tokens' in turn: gone, cut off, with another value. A blocks's size is no
 * choice that bits hang on, but a text without it is still damaged. */
static void remove_line(char *to, const char *text, const char *line) {
    const size_t before = (size_t)(line - text);
    const char *end = strchr(line, '\n');
    memcpy(to, text, before);
    strcpy(to + before, end ? end + 1 : "");
}

static void key_of(const char *line, char key[64]) {
    const char *end = strstr(line, " = ");
    assert_true(end && end - line < 64);
    memcpy(key, line, (size_t)(end - line));
    key[end - line] = 0;
}

/* Lines that say how the host shares its work, and those that a change of max_tokens may change. */
static int is_no_choice(const char *key) {
    return strcmp(key, "max_tokens") == 0 ||
           (strncmp(key, "cpu_", 4) == 0 && strcmp(key, "cpu_instructions") != 0) ||
           strcmp(key, "backward_outer") == 0;
}

static void a_damaged_text_is_refused(void **state) {
    (void)state;
    char text[TEXT], damaged[TEXT], key[64];
    case_problem p = random_problem(LGH_BF16, LGH_FP32);
    case_plan(&p);
    describe(&p, text);
    p.options.configuration = damaged;
    int lines = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1, lines++) {
        key_of(line, key);
        if (is_no_choice(key))
            continue;
        remove_line(damaged, text, line);
        assert_refused(&p.options, key);
        strcpy(damaged, text);
        damaged[strstr(line, " = ") + 3 - text] = '?';
        assert_refused(&p.options, key);
    }
    assert_true(lines > 15);
    strcpy(damaged, "");
    assert_refused(&p.options, "engine");
    strcpy(damaged, "these are no lines of a configuration\n");
    assert_refused(&p.options, "engine");
    case_close(&p);
}

/* A text may have come through an editor: what stands between the lines does not matter. */
static void lines_may_be_in_any_order_among_others(void **state) {
    (void)state;
    char text[TEXT], turned[2 * TEXT] = "# chosen on another day\n\n";
    case_problem p = random_problem(LGH_BF16, LGH_FP32);
    case_run(&p);
    case_copy first = case_copy_of(&p);
    describe(&p, text);
    for (const char *end = text + strlen(text); end > text;) {
        const char *line = end - 1;
        while (line > text && line[-1] != '\n')
            line--;
        strncat(turned, line, (size_t)(end - line));
        end = line;
    }
    p.options.configuration = turned;
    case_run(&p);
    case_assert_same_tokens(&p, &first);
    case_copy_destroy(&first);
    case_close(&p);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_pins_the_bits_of_every_token),
        cmocka_unit_test(a_pinned_plan_has_the_same_text),
        cmocka_unit_test(the_text_of_another_problem_is_refused),
        cmocka_unit_test(a_damaged_text_is_refused),
        cmocka_unit_test(lines_may_be_in_any_order_among_others),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
