/* bench.c - `loggerhead bench`: errors, then times against the bare matrix products. */
#include "bench.h"

#include "arguments.h"
#include "bench_measure.h"
#include "bench_run.h"

#include <stdio.h>
#include <stdlib.h>

#define COMMAND "loggerhead bench"

static const char about[] =
    "Checks results on the GPU against float64, then measures forward and forward + backward\n"
    "against the fastest bare cuBLASLt products of the same run: logits, dhidden and dweight,\n"
    "whole or in chunks. Exits with 1 if a result is not as promised, and then times nothing.\n"
    "\n"
    "    loggerhead bench --shape qwen3-8b,held\n"
    "    loggerhead bench --shape 4096x3584x152064 --budget 1024 --quick\n"
    "\n"
    "Shapes: qwen3-8b qwen3.6-35b-a3b gemma2-2b llama3.2-1b deepseek-v3 qwen2.5-0.5b, NxDxV;\n"
    "\"models\" stands for these six, \"held\" for six others.\n";

#define ROUNDS 7
#define QUICK_ROUNDS 3

/* The command line as it was given. */
typedef struct arguments {
    const char *shapes;
    int64_t tokens, hidden, vocab;
    int64_t budget; /* MiB */
    int64_t token_block;
    int64_t rounds; /* 0: not given */
    int quick, no_check, no_products;
} arguments;

static lgh_tool_option integer(const char *name, const char *value, const char *help,
                               int64_t *number, double minimum, double maximum) {
    return (lgh_tool_option){name,    value,  help, LGH_TOOL_INTEGER, {.integer = number},
                             minimum, maximum};
}

static lgh_tool_option flag(const char *name, const char *help, int *set) {
    return (lgh_tool_option){name, NULL, help, LGH_TOOL_FLAG, {.flag = set}, 0, 0};
}

static lgh_tool_parsed parse(arguments *a, int argc, char **argv) {
    const double most = (double)LGH_TOOL_SIZE_MOST;
    const lgh_tool_option options[] = {
        {"shape",
         "NAME[,NAME...]",
         "what to measure (default models)",
         LGH_TOOL_TEXT,
         {.text = &a->shapes},
         0,
         0},
        integer("tokens", "N", "with --hidden and --vocab: a shape of your own", &a->tokens, 1,
                most),
        integer("hidden", "D", "its hidden size", &a->hidden, 1, most),
        integer("vocab", "V", "its vocabulary size", &a->vocab, 1, most),
        integer("budget", "MIB", "workspace of the backward pass (default 512)", &a->budget, 1,
                1e6),
        integer("token-block", "N", "tokens worked on at a time (default: the plan's choice)",
                &a->token_block, 0, most),
        integer("rounds", "COUNT", "samples of each time (default 7)", &a->rounds, 1,
                LGH_TOOL_ROUNDS_MOST),
        flag("quick", "3 rounds, and fewer trials of each product", &a->quick),
        flag("no-check", "no comparison with float64", &a->no_check),
        flag("no-products", "no bare products, and so no ratios", &a->no_products),
    };
    const lgh_tool_syntax syntax = {COMMAND, about, options, sizeof options / sizeof options[0]};
    return lgh_tool_arguments_parse(&syntax, argc, argv, stdout, stderr);
}

/* Fills in the shapes; -1 with the reason in `problem`. */
static int choose_shapes(lgh_tool_shapes *shapes, const arguments *a, char *problem,
                         size_t capacity) {
    if (a->tokens == 0 && a->hidden == 0 && a->vocab == 0)
        return lgh_tool_shapes_parse(shapes, a->shapes ? a->shapes : "models", problem, capacity);
    if (a->tokens == 0 || a->hidden == 0 || a->vocab == 0 || a->shapes) {
        snprintf(problem, capacity, "%s",
                 a->shapes ? "--shape and --tokens, --hidden, --vocab exclude each other"
                           : "--tokens, --hidden and --vocab are needed together");
        return -1;
    }
    shapes->items[shapes->count++] = lgh_tool_shape_make(a->tokens, a->hidden, a->vocab);
    return 0;
}

int lgh_tool_bench(int argc, char **argv) {
    arguments a = {.budget = 512};
    lgh_tool_bench_settings settings = {.check = 1};
    char problem[256];
    int right;
    lgh_tool_parsed parsed = parse(&a, argc, argv);
    if (parsed != LGH_TOOL_PARSED_RUN)
        return parsed == LGH_TOOL_PARSED_HELP ? EXIT_SUCCESS : LGH_TOOL_EXIT_USAGE;
    if (choose_shapes(&settings.shapes, &a, problem, sizeof problem) != 0) {
        fprintf(stderr, COMMAND ": %s\nTry '" COMMAND " --help'.\n", problem);
        return LGH_TOOL_EXIT_USAGE;
    }
    settings.budget_bytes = a.budget * 1024 * 1024;
    settings.token_block = a.token_block;
    settings.rounds = a.rounds > 0 ? (int)a.rounds : a.quick ? QUICK_ROUNDS : ROUNDS;
    settings.quick = a.quick;
    settings.check = !a.no_check;
    settings.products = !a.no_products;
    if (lgh_tool_bench_run(&settings, &right) != LGH_SUCCESS) {
        fprintf(stderr, COMMAND ": %s\n", lgh_last_error());
        return EXIT_FAILURE;
    }
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
