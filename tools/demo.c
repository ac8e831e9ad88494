/* demo.c - `loggerhead demo`: a small language model, trained and scored through the library.
 *
 *     loggerhead demo
 *     loggerhead demo --text ~/books --steps 2000 --vocab 16384
 */
#include "demo.h"

#include "arguments.h"
#include "demo_run.h"
#include "demo_summary.h"

#include <stdlib.h>

static const char about[] =
    "Trains a small next-token model on text, with the library as its head and loss, and scores\n"
    "a part of the text that it was not trained on. Exits with 1 if the model is no better there\n"
    "than the frequencies of the tokens.\n"
    "\n"
    "  loggerhead demo\n"
    "  loggerhead demo --text ~/books --steps 2000 --vocab 16384\n";

static lgh_tool_parsed parse(lgh_tool_run_options *options, int argc, char **argv) {
    const lgh_tool_option table[] = {
        lgh_tool_text("text", "PATH", &options->text,
                      "a text file, or a folder of them (default: the project's own files)"),
        lgh_tool_choice("device", "auto|cpu|cuda", &options->device,
                        "where the head runs (default auto: the GPU if there is one)"),
        lgh_tool_integer("steps", "COUNT", &options->steps, 1, 1e6, "training steps (default 400)"),
        lgh_tool_integer("batch", "TOKENS", &options->batch, 1, 65536,
                         "tokens of one step (default 512)"),
        lgh_tool_integer("hidden", "SIZE", &options->hidden, 1, 8192,
                         "hidden size D (default 128)"),
        lgh_tool_integer("vocab", "WORDS", &options->words, 0, 262144,
                         "most words of the vocabulary, beside 256 bytes (default 4096)"),
        lgh_tool_integer("seed", "NUMBER", &options->seed, 0, 9e15,
                         "of the first weights and the order of the text (default 1)"),
    };
    const lgh_tool_syntax syntax = {"loggerhead demo", about, table,
                                    sizeof table / sizeof table[0]};
    return lgh_tool_arguments_parse(&syntax, argc, argv, stdout, stderr);
}

static int train_and_score(lgh_tool_run *run, const lgh_tool_run_options *options) {
    if (lgh_tool_run_open(run, options) != 0)
        return -1;
    lgh_tool_print_setting(stdout, run);
    if (lgh_tool_run_train(run) != 0)
        return -1;
    lgh_tool_print_training(stdout, run);
    if (lgh_tool_run_score(run) != 0)
        return -1;
    lgh_tool_print_scores(stdout, run);
    return lgh_tool_print_verdict(stdout, run);
}

int lgh_tool_demo(int argc, char **argv) {
    lgh_tool_run_options options = {.device = LGH_TOOL_DEVICE_AUTO,
                                    .steps = 400,
                                    .batch = 512,
                                    .hidden = 128,
                                    .words = 4096,
                                    .seed = 1};
    switch (parse(&options, argc, argv)) {
    case LGH_TOOL_PARSED_HELP:
        return EXIT_SUCCESS;
    case LGH_TOOL_PARSED_ERROR:
        return LGH_TOOL_EXIT_USAGE;
    case LGH_TOOL_PARSED_RUN:
        break;
    }
    lgh_tool_run run;
    int result = train_and_score(&run, &options);
    lgh_tool_run_close(&run);
    return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
