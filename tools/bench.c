/* bench.c - `loggerhead bench`: errors, then times against the bare matrix products. */
#include "bench.h"

#include "arguments.h"
#include "bench_measure.h"
#include "bench_run.h"

#include <stdio.h>
#include <stdlib.h>

#define COMMAND "loggerhead bench"

static const char about[] =
    "Checks results against float64, then measures forward and forward + backward against the\n"
    "fastest bare cuBLASLt products of the same run and dtype: logits, dhidden and dweight, whole\n"
    "or in chunks. With --features: what each optional output and feature costs. Exits with 1 if\n"
    "a result is not as promised, and then times nothing.\n"
    "\n"
    "    loggerhead bench --shape qwen3-8b,held\n"
    "    loggerhead bench --shape 4096x3584x152064 --budget 1024 --quick\n"
    "    loggerhead bench --shape qwen2.5-0.5b --dtype fp32 --tokens 1024\n"
    "    loggerhead bench --features\n"
    "\n"
    "Shapes: qwen3-8b qwen3.6-35b-a3b gemma2-2b llama3.2-1b deepseek-v3 qwen2.5-0.5b, NxDxV;\n"
    "\"models\" stands for these six, \"held\" for six others.\n";

#define ROUNDS 7
#define QUICK_ROUNDS 3

/* The command line as it was given. */
typedef struct arguments {
    const char *shapes;
    int64_t tokens, hidden, vocab; /* 0: not given */
    int dtype, device;
    int64_t budget; /* MiB */
    int64_t token_block;
    int64_t rounds; /* 0: not given */
    int features, quick, no_check, no_products;
} arguments;

static lgh_tool_parsed parse(arguments *a, int argc, char **argv) {
    const double most = (double)LGH_TOOL_SIZE_MOST;
    const lgh_tool_option options[] = {
        lgh_tool_text("shape", "NAME[,NAME...]", &a->shapes,
                      "what to measure (default models; qwen3-8b with --features)"),
        lgh_tool_integer("tokens", "N", &a->tokens, 1, most, "in place of each shape's own N"),
        lgh_tool_integer("hidden", "D", &a->hidden, 1, most,
                         "with --tokens and --vocab: a shape of your own"),
        lgh_tool_integer("vocab", "V", &a->vocab, LGH_TOOL_VOCAB_LEAST, most,
                         "its vocabulary size"),
        lgh_tool_choice("dtype", LGH_TOOL_DTYPE_WORDS, &a->dtype,
                        "of hidden and weight (default bf16; mixed: BF16 hidden, FP32 weight)"),
        lgh_tool_flag("features", &a->features, "the cost of each output and feature"),
        lgh_tool_choice("device", "cuda|cpu", &a->device,
                        "where it runs (default cuda; cpu: without bare products)"),
        lgh_tool_integer("budget", "MIB", &a->budget, 1, 1e6,
                         "workspace of the backward pass (default 512)"),
        lgh_tool_integer("token-block", "N", &a->token_block, 0, most,
                         "tokens worked on at a time (default: the plan's choice)"),
        lgh_tool_integer("rounds", "COUNT", &a->rounds, 1, LGH_TOOL_ROUNDS_MOST,
                         "samples of each time (default 7)"),
        lgh_tool_flag("quick", &a->quick, "3 rounds, and fewer trials of each product"),
        lgh_tool_flag("no-check", &a->no_check, "no comparison with float64"),
        lgh_tool_flag("no-products", &a->no_products, "no bare products, and so no ratios"),
    };
    const lgh_tool_syntax syntax = {COMMAND, about, options, sizeof options / sizeof options[0]};
    return lgh_tool_arguments_parse(&syntax, argc, argv, stdout, stderr);
}

static int choose_named(lgh_tool_shapes *shapes, const arguments *a, char *problem,
                        size_t capacity) {
    const char *standard = a->features ? "qwen3-8b" : "models";
    if (lgh_tool_shapes_parse(shapes, a->shapes ? a->shapes : standard, problem, capacity) != 0)
        return -1;
    for (size_t i = 0; a->tokens > 0 && i < shapes->count; ++i)
        shapes->items[i].tokens = a->tokens;
    return 0;
}

/* Fills in the shapes; -1 with the reason in `problem`. */
static int choose_shapes(lgh_tool_shapes *shapes, const arguments *a, char *problem,
                         size_t capacity) {
    if (a->hidden == 0 && a->vocab == 0)
        return choose_named(shapes, a, problem, capacity);
    if (a->tokens == 0 || a->hidden == 0 || a->vocab == 0 || a->shapes) {
        snprintf(problem, capacity, "%s",
                 a->shapes ? "--shape and --hidden, --vocab exclude each other"
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
    settings.device = a.device == 0 ? LGH_DEVICE_CUDA : LGH_DEVICE_CPU;
    settings.dtypes = lgh_tool_dtypes_of(a.dtype);
    settings.limits = (lgh_tool_limits){a.budget * 1024 * 1024, a.token_block};
    settings.features = a.features;
    settings.rounds = a.rounds > 0 ? (int)a.rounds : a.quick ? QUICK_ROUNDS : ROUNDS;
    settings.quick = a.quick;
    settings.check = !a.no_check;
    settings.products = !a.no_products && settings.device == LGH_DEVICE_CUDA;
    if (lgh_tool_bench_run(&settings, &right) != LGH_SUCCESS) {
        fprintf(stderr, COMMAND ": %s\n", lgh_last_error());
        return EXIT_FAILURE;
    }
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
