/* test_arguments.c - the command line's option parser: numbers, slips and missing values. */
#include "../tools/arguments.h"
#include "harness.h"

#include <stdlib.h>
#include <string.h>

/* ---- Numbers ------------------------------------------------------------------------------- */

static void whole_numbers_are_read_exactly(void **state) {
    static const struct {
        const char *text;
        int64_t number;
    } cases[] = {{"0", 0},
                 {"-7", -7},
                 {"+12", 12},
                 {"010", 10},
                 {"9223372036854775807", INT64_MAX},
                 {"-9223372036854775808", INT64_MIN}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        int64_t number = 1;
        assert_int_equal(lgh_tool_parse_integer(cases[i].text, &number), 0);
        assert_true(number == cases[i].number);
    }
}

static void anything_but_a_whole_number_is_refused(void **state) {
    static const char *const texts[] = {"",    " 1", "1 ", "1.5", "1e3", "0x10",
                                        "12k", "-",  "+",  "ten", "--1", "9223372036854775808"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
        int64_t number = 42;
        assert_int_equal(lgh_tool_parse_integer(texts[i], &number), -1);
        assert_true(number == 42);
    }
}

static void real_numbers_are_read(void **state) {
    static const struct {
        const char *text;
        double number;
    } cases[] = {{"0", 0}, {"-2.5", -2.5}, {"1e-3", 1e-3}, {".5", 0.5}, {"+4E2", 400}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        double number = -1;
        assert_int_equal(lgh_tool_parse_real(cases[i].text, &number), 0);
        lgh_assert_close(number, cases[i].number, 0, cases[i].text);
    }
}

static void anything_but_a_finite_number_is_refused(void **state) {
    static const char *const texts[] = {"",      " 1",    "nan", "inf", "-inf",
                                        "0x1p3", "1e999", "1,5", "."};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
        double number = 42;
        assert_int_equal(lgh_tool_parse_real(texts[i], &number), -1);
        lgh_assert_close(number, 42, 0, texts[i]);
    }
}

/* ---- Command lines ------------------------------------------------------------------------- */

/* What the parser made of one command line. */
typedef struct outcome {
    int quiet;
    const char *text;
    int64_t steps;
    double rate;
    int device;
    lgh_tool_parsed parsed;
    char *output;
    char *errors;
} outcome;

/* Parses the words of `line`, which are apart by one space; `line` is changed. */
static outcome parse(char *line) {
    outcome o = {.text = "none", .steps = 5, .rate = 0.5};
    const lgh_tool_option table[] = {
        lgh_tool_flag("quiet", &o.quiet, "say less"),
        lgh_tool_text("text", "PATH", &o.text, "a file"),
        lgh_tool_integer("steps", "COUNT", &o.steps, 1, 100, "how many"),
        lgh_tool_real("rate", "NUMBER", &o.rate, 0, 1, "how fast"),
        lgh_tool_choice("device", "auto|cpu", &o.device, "where"),
    };
    const lgh_tool_syntax syntax = {"tool job", "Does a job.\n", table,
                                    sizeof table / sizeof table[0]};
    char command[] = "job";
    char *argv[16] = {command};
    int argc = 1;
    for (char *word = strtok(line, " "); word != NULL && argc < 16; word = strtok(NULL, " "))
        argv[argc++] = word;
    size_t bytes;
    FILE *output = open_memstream(&o.output, &bytes);
    FILE *errors = open_memstream(&o.errors, &bytes);
    assert_non_null(output);
    assert_non_null(errors);
    o.parsed = lgh_tool_arguments_parse(&syntax, argc, argv, output, errors);
    fclose(output);
    fclose(errors);
    return o;
}

static void discard(outcome o) {
    free(o.output);
    free(o.errors);
}

static void options_are_taken_in_both_forms(void **state) {
    char line[] = "--quiet --text some/file --steps=7 --rate 0.25 --device cpu";
    (void)state;
    outcome o = parse(line);
    assert_int_equal(o.parsed, LGH_TOOL_PARSED_RUN);
    assert_int_equal(o.quiet, 1);
    assert_string_equal(o.text, "some/file");
    assert_int_equal(o.steps, 7);
    lgh_assert_close(o.rate, 0.25, 0, "rate");
    assert_int_equal(o.device, 1);
    assert_string_equal(o.errors, "");
    discard(o);
}

static void defaults_stay_without_options(void **state) {
    char line[] = "";
    (void)state;
    outcome o = parse(line);
    assert_int_equal(o.parsed, LGH_TOOL_PARSED_RUN);
    assert_int_equal(o.quiet, 0);
    assert_string_equal(o.text, "none");
    assert_int_equal(o.steps, 5);
    assert_int_equal(o.device, 0);
    discard(o);
}

static void the_last_of_a_repeated_option_counts(void **state) {
    char line[] = "--steps 3 --text=a=b --steps 4";
    (void)state;
    outcome o = parse(line);
    assert_int_equal(o.parsed, LGH_TOOL_PARSED_RUN);
    assert_int_equal(o.steps, 4);
    assert_string_equal(o.text, "a=b");
    discard(o);
}

/* The command line is an error whose text holds `part` and points to the help. */
static void expect_error(const char *line, const char *part) {
    char copy[128];
    snprintf(copy, sizeof copy, "%s", line);
    outcome o = parse(copy);
    assert_int_equal(o.parsed, LGH_TOOL_PARSED_ERROR);
    lgh_assert_contains(o.errors, part);
    lgh_assert_contains(o.errors, "tool job --help");
    assert_string_equal(o.output, "");
    assert_int_equal(o.steps, 5);
    discard(o);
}

static void an_unknown_option_is_an_error_with_a_guess(void **state) {
    (void)state;
    expect_error("--bananas 3", "unknown option '--bananas'");
    expect_error("--setps 3", "did you mean '--steps'?");
    expect_error("--step", "did you mean '--steps'?");
}

static void a_missing_value_is_an_error(void **state) {
    (void)state;
    expect_error("--steps", "--steps needs a value: --steps COUNT");
    expect_error("--text --quiet", "--text needs a value");
}

static void a_bad_value_is_an_error(void **state) {
    (void)state;
    expect_error("--steps many", "--steps needs a whole number, not 'many'");
    expect_error("--steps=", "--steps needs a whole number");
    expect_error("--rate fast", "--rate needs a number");
    expect_error("--device gpu", "--device must be one of auto|cpu, not 'gpu'");
    expect_error("--device au", "--device must be one of");
    expect_error("--quiet=1", "--quiet takes no value");
}

static void a_number_out_of_range_is_an_error(void **state) {
    (void)state;
    expect_error("--steps 0", "--steps must be from 1 to 100, not 0");
    expect_error("--steps 101", "--steps must be from 1 to 100");
    expect_error("--rate -0.5", "--rate must be from 0 to 1");
}

static void a_stray_argument_is_an_error(void **state) {
    (void)state;
    expect_error("here", "unexpected argument 'here'");
    expect_error("-q", "unexpected argument '-q'");
    expect_error("--", "unexpected argument '--'");
}

static void help_lists_every_option(void **state) {
    char line[] = "--steps 3 --help";
    (void)state;
    outcome o = parse(line);
    assert_int_equal(o.parsed, LGH_TOOL_PARSED_HELP);
    assert_string_equal(o.errors, "");
    lgh_assert_contains(o.output, "Usage: tool job [options]");
    lgh_assert_contains(o.output, "Does a job.");
    lgh_assert_contains(o.output, "--quiet");
    lgh_assert_contains(o.output, "--device auto|cpu");
    discard(o);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers_are_read_exactly),
        cmocka_unit_test(anything_but_a_whole_number_is_refused),
        cmocka_unit_test(real_numbers_are_read),
        cmocka_unit_test(anything_but_a_finite_number_is_refused),
        cmocka_unit_test(options_are_taken_in_both_forms),
        cmocka_unit_test(defaults_stay_without_options),
        cmocka_unit_test(the_last_of_a_repeated_option_counts),
        cmocka_unit_test(an_unknown_option_is_an_error_with_a_guess),
        cmocka_unit_test(a_missing_value_is_an_error),
        cmocka_unit_test(a_bad_value_is_an_error),
        cmocka_unit_test(a_number_out_of_range_is_an_error),
        cmocka_unit_test(a_stray_argument_is_an_error),
        cmocka_unit_test(help_lists_every_option),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
