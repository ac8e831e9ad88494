/* demo_summary.c - what the demo tells about a run: before it, after it, and whether it passed. */
#include "demo_summary.h"

#include "demo_report.h"
#include "terminal.h"

#include <math.h>

/* Twice the library's promise at the largest logits that so small a model grows to. */
#define SAME_PASS_LIMIT 1e-3

void lgh_tool_print_setting(FILE *stream, const lgh_tool_run *run) {
    const lgh_tool_corpus *corpus = &run->corpus;
    const lgh_tool_data *data = &run->data;
    lgh_tool_print_heading(stream, "Loggerhead demo");
    fprintf(stream,
            "Trains a small next-token model on text, then scores text that it has not seen.\n"
            "The first layers are plain C on the host. Head and loss are lgh_forward and\n"
            "lgh_backward: log-probs, entropies and gradients without stored logits.\n\n");
    fprintf(stream, "  device      %s", run->head.device_name);
    if (run->head.no_gpu != LGH_SUCCESS)
        fprintf(stream, "; no GPU (%s; --device cuda says more)",
                lgh_status_name(run->head.no_gpu));
    fprintf(stream, "\n  text        %s from %d %s%s: %s tokens, %s of them held out\n",
            lgh_tool_bytes((double)corpus->length).text, corpus->files,
            corpus->files == 1 ? "file" : "files", corpus->is_cut ? " (cut)" : "",
            lgh_tool_count(data->token_count).text, lgh_tool_count(data->held_out_count).text);
    fprintf(stream, "  vocabulary  %s: %s words and %d bytes\n",
            lgh_tool_count(run->head.vocab_size).text,
            lgh_tool_count(data->vocabulary.word_count).text, LGH_TOOL_BYTE_TOKENS);
    fprintf(stream, "  parameters  %s, of which the head has %s\n\n",
            lgh_tool_count(lgh_tool_model_parameters(&run->model)).text,
            lgh_tool_count(run->model.head.count).text);
}

/* ---- Training ------------------------------------------------------------------------------ */

static void print_memory_row(FILE *stream, const char *what, const lgh_tool_run *run, size_t tokens,
                             int copies, size_t workspace) {
    double stored = (double)copies * (double)tokens * (double)run->head.vocab_size * sizeof(float);
    fprintf(stream, "  %-24s%14s%16s%14s\n", what, lgh_tool_count(tokens).text,
            lgh_tool_bytes(stored).text, lgh_tool_bytes((double)workspace).text);
}

void lgh_tool_print_training(FILE *stream, const lgh_tool_run *run) {
    const lgh_tool_run_options *options = &run->options;
    size_t tokens = (size_t)options->steps * (size_t)options->batch;
    double bytes = (double)tokens * (double)run->head.vocab_size * sizeof(float);
    lgh_tool_print_curve(stream, run->losses, (size_t)options->steps);
    fprintf(stream, "  %s tokens in %.1f s\n", lgh_tool_count(tokens).text, run->seconds);
    lgh_tool_print_heading(stream, "Logits that were never stored");
    fprintf(stream, "  %s in the forward passes of training: %s tokens x %s entries x 4 bytes\n\n",
            lgh_tool_bytes(bytes).text, lgh_tool_count(tokens).text,
            lgh_tool_count(run->head.vocab_size).text);
    fprintf(stream, "  %-24s%14s%16s%14s\n", "at a time", "tokens", "stored logits", "workspace");
    print_memory_row(stream, "training, with gradient", run, run->head.batch, 2,
                     run->head.training_bytes);
    print_memory_row(stream, "scoring", run, run->head.scored, 1, run->head.scoring_bytes);
}

/* ---- Scores -------------------------------------------------------------------------------- */

static void print_score_row(FILE *stream, const char *what, double logp, double entropy) {
    fprintf(stream, "  %-24s%14.3f%16.1f", what, logp, exp(-logp));
    if (entropy >= 0)
        fprintf(stream, "%14.3f", entropy);
    fputc('\n', stream);
}

void lgh_tool_print_scores(FILE *stream, const lgh_tool_run *run) {
    size_t count = run->data.held_out_count;
    const lgh_tool_held_out *from = &run->held_out;
    char low[16];
    snprintf(low, sizeof low, "T = %.2g", (double)LGH_TOOL_LOW_TEMPERATURE);
    lgh_tool_print_heading(stream, "Held-out text, mean per token");
    fprintf(stream, "  %-24s%14s%16s%14s\n", "", "log-prob", "perplexity", "entropy");
    print_score_row(stream, "T = 1", lgh_tool_mean(from->logp, count),
                    lgh_tool_mean(from->entropy, count));
    print_score_row(stream, low, lgh_tool_mean(from->cooled_logp, count),
                    lgh_tool_mean(from->cooled_entropy, count));
    print_score_row(stream, "token frequencies alone", -run->unigram, -1);
    lgh_tool_print_heading(stream, "Surprisal at T = 1, in nats");
    lgh_tool_print_surprisal(stream, from->logp, count);
    lgh_tool_print_heading(stream, "A passage, token by token");
    lgh_tool_print_passage(stream, &run->data, from->logp, from->cooled_logp, from->entropy, low);
}

/* ---- Verdict ------------------------------------------------------------------------------- */

/* The largest difference between the log-probs at T = 1 of the two scoring passes. */
static double same_pass_difference(const lgh_tool_run *run) {
    double most = 0;
    for (size_t i = 0; i < run->data.held_out_count; ++i) {
        double difference =
            fabs((double)run->held_out.logp_at_one[i] - (double)run->held_out.logp[i]);
        if (!(difference <= most)) /* so that a NaN counts as the largest */
            most = difference;
    }
    return most;
}

int lgh_tool_print_verdict(FILE *stream, const lgh_tool_run *run) {
    double loss = -lgh_tool_mean(run->held_out.logp, run->data.held_out_count);
    double difference = same_pass_difference(run);
    int agrees = difference <= SAME_PASS_LIMIT;
    int learned = loss < run->unigram;
    fprintf(stream,
            "\nThe pass at T = %.2g gave the log-probs at T = 1 too; they differ from the other "
            "pass's\nby %.2g at most.\n\n",
            (double)LGH_TOOL_LOW_TEMPERATURE, difference);
    fputs(lgh_tool_terminal_style(stream, agrees && learned ? LGH_TOOL_GREEN : LGH_TOOL_RED),
          stream);
    if (!agrees)
        fprintf(stream, "FAILED: the two passes disagree about the log-probs at T = 1.");
    else if (!learned)
        fprintf(stream, "FAILED: held-out perplexity %.1f, no better than token frequencies, %.1f.",
                exp(loss), exp(run->unigram));
    else
        fprintf(stream, "OK: held-out perplexity %.1f, %.1f times below token frequencies, %.1f.",
                exp(loss), exp(run->unigram - loss), exp(run->unigram));
    fprintf(stream, "%s\n", lgh_tool_terminal_style(stream, LGH_TOOL_PLAIN));
    return agrees && learned ? 0 : -1;
}
