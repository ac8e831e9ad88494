/* main.c - the `loggerhead` command line: finds the subcommand and runs it.
 *
 *     loggerhead --help
 *     loggerhead demo --device cpu
 */
#include "arguments.h"
#include "demo.h"
#include "loggerhead/loggerhead.h"
#if LGH_WITH_CUDA
#include "bench.h"
#endif

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the subcommand's name */
} command;

static const command commands[] = {
    {"demo", "train a small language model on real text and score it", lgh_tool_demo},
#if LGH_WITH_CUDA
    {"bench", "time the library on a GPU and check its results", lgh_tool_bench},
#endif
};

#define COMMANDS (sizeof commands / sizeof commands[0])

static int print_help(FILE *stream) {
    fprintf(stream, "Usage: loggerhead COMMAND [options]\n\n"
                    "Per-token log-probabilities, entropies and their gradients from hidden states "
                    "and the\nweight of a language model's head, without stored logits.\n\n"
                    "Commands:\n");
    for (size_t i = 0; i < COMMANDS; ++i)
        fprintf(stream, "  %-12s%s\n", commands[i].name, commands[i].summary);
    fprintf(stream,
            "\nOptions:\n  %-12sthis text\n  %-12sthe version of the library\n\n"
            "'loggerhead COMMAND --help' tells more about a command.\n",
            "--help", "--version");
    return EXIT_SUCCESS;
}

static int print_version(void) {
    int version = lgh_version();
    printf("loggerhead %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
    return EXIT_SUCCESS;
}

static int complain_unknown(const char *name) {
    fprintf(stderr, "loggerhead: unknown command '%s'", name);
    for (size_t i = 0; i < COMMANDS; ++i)
        if (lgh_tool_is_near(name, commands[i].name)) {
            fprintf(stderr, "; did you mean '%s'?", commands[i].name);
            break;
        }
    fprintf(stderr, "\nTry 'loggerhead --help'.\n");
    return LGH_TOOL_EXIT_USAGE;
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return LGH_TOOL_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return print_help(stdout);
    if (strcmp(name, "--version") == 0)
        return print_version();
    for (size_t i = 0; i < COMMANDS; ++i)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    return complain_unknown(name);
}

int main(int argc, char **argv) {
    setlocale(LC_CTYPE, "");          /* numbers stay as in C */
    setvbuf(stdout, NULL, _IOLBF, 0); /* progress is seen when it happens, in a pipe too */
    int status = dispatch(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "loggerhead: cannot write to standard output\n");
        return EXIT_FAILURE;
    }
    return status;
}
