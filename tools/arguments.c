/* arguments.c - the option parser that the subcommands share. */
#include "arguments.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- Descriptions -------------------------------------------------------------------------- */

lgh_tool_option lgh_tool_flag(const char *name, int *to, const char *help) {
    return (lgh_tool_option){.name = name, .help = help, .kind = LGH_TOOL_FLAG, .to.flag = to};
}

lgh_tool_option lgh_tool_text(const char *name, const char *value, const char **to,
                              const char *help) {
    return (lgh_tool_option){
        .name = name, .value = value, .help = help, .kind = LGH_TOOL_TEXT, .to.text = to};
}

lgh_tool_option lgh_tool_integer(const char *name, const char *value, int64_t *to, double minimum,
                                 double maximum, const char *help) {
    return (lgh_tool_option){name,    value,  help, LGH_TOOL_INTEGER, {.integer = to},
                             minimum, maximum};
}

lgh_tool_option lgh_tool_real(const char *name, const char *value, double *to, double minimum,
                              double maximum, const char *help) {
    return (lgh_tool_option){name, value, help, LGH_TOOL_REAL, {.real = to}, minimum, maximum};
}

lgh_tool_option lgh_tool_choice(const char *name, const char *words, int *to, const char *help) {
    return (lgh_tool_option){
        .name = name, .value = words, .help = help, .kind = LGH_TOOL_CHOICE, .to.choice = to};
}

/* ---- Numbers ------------------------------------------------------------------------------- */

int lgh_tool_parse_integer(const char *text, int64_t *number) {
    /* strtoll skips leading space, which is no part of a number here. */
    if (!isdigit((unsigned char)text[0]) && text[0] != '-' && text[0] != '+')
        return -1;
    char *end = NULL;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0')
        return -1;
    *number = parsed;
    return 0;
}

int lgh_tool_parse_real(const char *text, double *number) {
    /* Only the characters of a decimal number: no leading space, no hexadecimal, no "nan". */
    if (text[0] == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0')
        return -1;
    char *end = NULL;
    double parsed = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(parsed))
        return -1;
    *number = parsed;
    return 0;
}

/* ---- Messages ------------------------------------------------------------------------------ */

__attribute__((format(printf, 3, 4))) static lgh_tool_parsed
complain(const lgh_tool_syntax *syntax, FILE *errors, const char *format, ...) {
    fprintf(errors, "%s: ", syntax->command);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(errors, format, arguments);
    va_end(arguments);
    fprintf(errors, "\nTry '%s --help'.\n", syntax->command);
    return LGH_TOOL_PARSED_ERROR;
}

static void print_help(const lgh_tool_syntax *syntax, FILE *output) {
    fprintf(output, "Usage: %s [options]\n\n%s\nOptions:\n", syntax->command, syntax->about);
    for (size_t i = 0; i < syntax->count; ++i) {
        const lgh_tool_option *option = &syntax->options[i];
        int width = fprintf(output, "  --%s%s%s", option->name, option->value ? " " : "",
                            option->value ? option->value : "");
        fprintf(output, "%*s%s\n", width < 26 ? 26 - width : 1, "", option->help);
    }
    fprintf(output, "  %-24s%s\n", "--help", "this text");
}

/* ---- Near misses --------------------------------------------------------------------------- */

static size_t min3(size_t a, size_t b, size_t c) {
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Levenshtein's distance, one row of the table at a time. */
static size_t edit_distance(const char *a, const char *b) {
    size_t row[32];
    size_t columns = strlen(b) + 1;
    if (columns > sizeof row / sizeof row[0])
        return (size_t)-1;
    for (size_t j = 0; j < columns; ++j)
        row[j] = j;
    for (size_t i = 0; a[i] != '\0'; ++i) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 1; j < columns; ++j) {
            size_t replaced = diagonal + (a[i] != b[j - 1]);
            diagonal = row[j];
            row[j] = min3(replaced, row[j] + 1, row[j - 1] + 1);
        }
    }
    return row[columns - 1];
}

int lgh_tool_is_near(const char *typed, const char *name) {
    return edit_distance(typed, name) <= (strlen(name) > 3 ? 2 : 1);
}

static lgh_tool_parsed complain_unknown(const lgh_tool_syntax *syntax, FILE *errors,
                                        const char *typed, size_t length) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), typed);
    for (size_t i = 0; i < syntax->count; ++i)
        if (lgh_tool_is_near(name, syntax->options[i].name))
            return complain(syntax, errors, "unknown option '--%s'; did you mean '--%s'?", name,
                            syntax->options[i].name);
    return complain(syntax, errors, "unknown option '--%s'", name);
}

/* ---- Options ------------------------------------------------------------------------------- */

/* The index of the word in a list such as "auto|cpu|cuda", or -1. */
static int find_choice(const char *words, const char *wanted) {
    size_t length = strlen(wanted);
    int index = 0;
    for (const char *word = words;; ++index) {
        size_t word_length = strcspn(word, "|");
        if (word_length == length && memcmp(word, wanted, length) == 0)
            return index;
        if (word[word_length] == '\0')
            return -1;
        word += word_length + 1;
    }
}

static int in_range(const lgh_tool_option *option, double number) {
    return number >= option->minimum && number <= option->maximum;
}

static lgh_tool_parsed store_number(const lgh_tool_syntax *syntax, const lgh_tool_option *option,
                                    const char *value, FILE *errors) {
    int64_t integer = 0;
    double real = 0;
    int whole = option->kind == LGH_TOOL_INTEGER;
    if (whole ? lgh_tool_parse_integer(value, &integer) : lgh_tool_parse_real(value, &real))
        return complain(syntax, errors, "--%s needs %s number, not '%s'", option->name,
                        whole ? "a whole" : "a", value);
    if (!in_range(option, whole ? (double)integer : real))
        return complain(syntax, errors, "--%s must be from %.10g to %.10g, not %s", option->name,
                        option->minimum, option->maximum, value);
    if (whole)
        *option->to.integer = integer;
    else
        *option->to.real = real;
    return LGH_TOOL_PARSED_RUN;
}

static lgh_tool_parsed store(const lgh_tool_syntax *syntax, const lgh_tool_option *option,
                             const char *value, FILE *errors) {
    int choice;
    switch (option->kind) {
    case LGH_TOOL_FLAG:
        *option->to.flag = 1;
        return LGH_TOOL_PARSED_RUN;
    case LGH_TOOL_TEXT:
        *option->to.text = value;
        return LGH_TOOL_PARSED_RUN;
    case LGH_TOOL_CHOICE:
        choice = find_choice(option->value, value);
        if (choice < 0)
            return complain(syntax, errors, "--%s must be one of %s, not '%s'", option->name,
                            option->value, value);
        *option->to.choice = choice;
        return LGH_TOOL_PARSED_RUN;
    case LGH_TOOL_INTEGER:
    case LGH_TOOL_REAL:
        break;
    }
    return store_number(syntax, option, value, errors);
}

static const lgh_tool_option *find_option(const lgh_tool_syntax *syntax, const char *name,
                                          size_t length) {
    for (size_t i = 0; i < syntax->count; ++i) {
        const lgh_tool_option *option = &syntax->options[i];
        if (strlen(option->name) == length && memcmp(option->name, name, length) == 0)
            return option;
    }
    return NULL;
}

/* Parses the option at argv[*next] and moves *next past it and its value. */
static lgh_tool_parsed parse_option(const lgh_tool_syntax *syntax, int argc, char **argv, int *next,
                                    FILE *errors) {
    const char *name = argv[(*next)++] + 2;
    size_t length = strcspn(name, "=");
    const char *value = name[length] == '=' ? name + length + 1 : NULL;
    const lgh_tool_option *option = find_option(syntax, name, length);
    if (option == NULL)
        return complain_unknown(syntax, errors, name, length);
    if (option->kind == LGH_TOOL_FLAG) {
        if (value != NULL)
            return complain(syntax, errors, "--%s takes no value", option->name);
    } else if (value == NULL) {
        if (*next >= argc || strncmp(argv[*next], "--", 2) == 0)
            return complain(syntax, errors, "--%s needs a value: --%s %s", option->name,
                            option->name, option->value);
        value = argv[(*next)++];
    }
    return store(syntax, option, value, errors);
}

lgh_tool_parsed lgh_tool_arguments_parse(const lgh_tool_syntax *syntax, int argc, char **argv,
                                         FILE *output, FILE *errors) {
    for (int next = 1; next < argc;) {
        const char *argument = argv[next];
        if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            print_help(syntax, output);
            return LGH_TOOL_PARSED_HELP;
        }
        if (strncmp(argument, "--", 2) != 0 || argument[2] == '\0')
            return complain(syntax, errors, "unexpected argument '%s'", argument);
        lgh_tool_parsed parsed = parse_option(syntax, argc, argv, &next, errors);
        if (parsed != LGH_TOOL_PARSED_RUN)
            return parsed;
    }
    return LGH_TOOL_PARSED_RUN;
}
