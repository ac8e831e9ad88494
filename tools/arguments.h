/* arguments.h - the option parser that the subcommands share. */
#ifndef LGH_TOOL_ARGUMENTS_H
#define LGH_TOOL_ARGUMENTS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The exit status for a command line that makes no sense. */
#define LGH_TOOL_EXIT_USAGE 2

typedef enum lgh_tool_kind {
    LGH_TOOL_FLAG,    /* --name            sets *to.flag to 1 */
    LGH_TOOL_TEXT,    /* --name value      the value as it stands */
    LGH_TOOL_INTEGER, /* --name value      decimal, within minimum..maximum */
    LGH_TOOL_REAL,    /* --name value      finite decimal, within minimum..maximum */
    LGH_TOOL_CHOICE   /* --name value      one of the words in `value`; *to.choice is its index */
} lgh_tool_kind;

/* One option. What `to` points at holds the default and is written only by a valid argument. */
typedef struct lgh_tool_option {
    const char *name;  /* without the dashes */
    const char *value; /* how the help names the value; of a choice its words, as in "auto|cpu" */
    const char *help;  /* one line, with the default */
    lgh_tool_kind kind;
    union {
        int *flag;
        const char **text;
        int64_t *integer;
        double *real;
        int *choice;
    } to;
    double minimum; /* of a number */
    double maximum;
} lgh_tool_option;

lgh_tool_option lgh_tool_flag(const char *name, int *to, const char *help);
lgh_tool_option lgh_tool_text(const char *name, const char *value, const char **to,
                              const char *help);
lgh_tool_option lgh_tool_integer(const char *name, const char *value, int64_t *to, double minimum,
                                 double maximum, const char *help);
lgh_tool_option lgh_tool_real(const char *name, const char *value, double *to, double minimum,
                              double maximum, const char *help);
lgh_tool_option lgh_tool_choice(const char *name, const char *words, int *to, const char *help);

typedef struct lgh_tool_syntax {
    const char *command; /* as the user types it, such as "loggerhead demo" */
    const char *about;   /* what the help says first; whole lines */
    const lgh_tool_option *options;
    size_t count;
} lgh_tool_syntax;

typedef enum lgh_tool_parsed {
    LGH_TOOL_PARSED_RUN,  /* every argument is valid: go on */
    LGH_TOOL_PARSED_HELP, /* --help was given and answered: exit with 0 */
    LGH_TOOL_PARSED_ERROR /* said on `errors`: exit with LGH_TOOL_EXIT_USAGE */
} lgh_tool_parsed;

/**
 * Reads argv[1] .. argv[argc - 1]: "--name value", "--name=value" and flags, the last of a repeated
 * option counts. "--help" and "-h" print the help to `output`.
 */
lgh_tool_parsed lgh_tool_arguments_parse(const lgh_tool_syntax *syntax, int argc, char **argv,
                                         FILE *output, FILE *errors);

/** Strict: the whole text is one number. Returns 0, or -1 and leaves *number alone. */
int lgh_tool_parse_integer(const char *text, int64_t *number);
int lgh_tool_parse_real(const char *text, double *number);

/** Whether `typed` looks like a slip of the keyboard for `name`. */
int lgh_tool_is_near(const char *typed, const char *name);

#endif
