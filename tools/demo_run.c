/* demo_run.c - one run of the demo: its text, model and head, trained and then scored. */
#include "demo_run.h"

#include "demo_report.h"
#include "progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define CONTEXT 8
#define EMBEDDING 32
#define HELD_OUT_LIMIT 4096
#define TEXT_LIMIT (4 << 20)
#define LEARNING_RATE 0.01f
#define WARM_UP 20 /* steps */

static int complain(const char *text) {
    fprintf(stderr, "loggerhead demo: %s\n", text);
    return -1;
}

/* ---- Opening ------------------------------------------------------------------------------- */

static int read_text(lgh_tool_run *run) {
    char problem[512];
    const lgh_tool_run_options *options = &run->options;
    run->corpus.limit = TEXT_LIMIT;
    int failed = options->text != NULL
                     ? lgh_tool_corpus_add(&run->corpus, options->text, problem, sizeof problem)
                     : lgh_tool_corpus_add_own(&run->corpus, problem, sizeof problem);
    if (failed)
        return complain(problem);
    if (lgh_tool_data_create(&run->data, run->corpus.text, run->corpus.length,
                             (size_t)options->words, HELD_OUT_LIMIT, (uint64_t)options->seed,
                             problem, sizeof problem) != 0)
        return complain(problem);
    if (lgh_tool_data_unigram(&run->data, &run->unigram) != 0)
        return complain("out of memory");
    return 0;
}

static int allocate_scores(lgh_tool_held_out *scores, size_t rows) {
    scores->logp = malloc(5 * rows * sizeof *scores->logp);
    if (scores->logp == NULL)
        return -1;
    scores->entropy = scores->logp + rows;
    scores->cooled_logp = scores->entropy + rows;
    scores->cooled_entropy = scores->cooled_logp + rows;
    scores->logp_at_one = scores->cooled_entropy + rows;
    return 0;
}

static int allocate(lgh_tool_run *run) {
    const lgh_tool_run_options *options = &run->options;
    size_t batch = (size_t)options->batch;
    size_t rows = batch > run->data.held_out_count ? batch : run->data.held_out_count;
    const lgh_tool_model_shape shape = {CONTEXT, EMBEDDING, (int)options->hidden,
                                        lgh_tool_vocabulary_size(&run->data.vocabulary), (int)rows};
    run->positions = malloc(batch * sizeof *run->positions);
    run->contexts = malloc(rows * CONTEXT * sizeof *run->contexts);
    run->targets = malloc(rows * sizeof *run->targets);
    run->losses = malloc((size_t)options->steps * sizeof *run->losses);
    if (run->positions == NULL || run->contexts == NULL || run->targets == NULL ||
        run->losses == NULL || allocate_scores(&run->held_out, rows) != 0 ||
        lgh_tool_model_create(&run->model, &shape, (uint64_t)options->seed) != 0)
        return complain("out of memory; try a smaller --batch, --vocab or --hidden");
    return 0;
}

int lgh_tool_run_open(lgh_tool_run *run, const lgh_tool_run_options *options) {
    *run = (lgh_tool_run){.options = *options};
    if (read_text(run) != 0 || allocate(run) != 0 ||
        lgh_tool_head_open(&run->head, (lgh_tool_device)options->device) != 0)
        return -1;
    return lgh_tool_head_prepare(&run->head, run->model.shape.hidden, run->model.shape.vocabulary,
                                 (size_t)options->batch, run->data.held_out_count);
}

void lgh_tool_run_close(lgh_tool_run *run) {
    lgh_tool_head_close(&run->head);
    lgh_tool_model_free(&run->model);
    lgh_tool_data_free(&run->data);
    lgh_tool_corpus_free(&run->corpus);
    free(run->positions);
    free(run->contexts);
    free(run->targets);
    free(run->losses);
    free(run->held_out.logp);
}

/* ---- Training ------------------------------------------------------------------------------ */

/* Up in a straight line, then down to 0 in another. */
static float learning_rate(int64_t step, int64_t steps) {
    float up = (float)(step + 1) / WARM_UP;
    float down = (float)(steps - step) / (float)steps;
    return LEARNING_RATE * (up < 1 ? up : 1) * down;
}

static int train_step(lgh_tool_run *run, int64_t step, float *loss, float *entropy) {
    size_t batch = (size_t)run->options.batch;
    lgh_tool_model *model = &run->model;
    const lgh_tool_scores scores = {run->held_out.logp, run->held_out.entropy, NULL};
    lgh_tool_data_draw(&run->data, run->positions, batch);
    lgh_tool_data_gather(&run->data, run->positions, batch, CONTEXT, run->contexts, run->targets);
    lgh_tool_model_forward(model, run->contexts, (int)batch);
    if (lgh_tool_head_set_weight(&run->head, model->head.value) != 0 ||
        lgh_tool_head_train(&run->head, model->hidden, run->targets, batch, scores, model->dhidden,
                            model->head.gradient) != 0)
        return -1;
    lgh_tool_model_backward(model, run->contexts, (int)batch);
    lgh_tool_model_update(model, learning_rate(step, run->options.steps));
    *loss = (float)-lgh_tool_mean(scores.logp, batch);
    *entropy = (float)lgh_tool_mean(scores.entropy, batch);
    return 0;
}

static void show_step(lgh_tool_progress *progress, const lgh_tool_run *run, int64_t done,
                      float entropy) {
    if (!lgh_tool_progress_is_due(progress, done))
        return;
    char note[128];
    double loss = (double)run->losses[done - 1];
    double rate = (double)(done * run->options.batch) / (lgh_tool_now() - progress->started);
    snprintf(note, sizeof note, "loss %.2f  perplexity %.*f  entropy %.2f  %s tokens/s", loss,
             exp(loss) < 1000, exp(loss), (double)entropy, lgh_tool_count((size_t)rate).text);
    lgh_tool_progress_show(progress, done, note);
}

int lgh_tool_run_train(lgh_tool_run *run) {
    lgh_tool_progress progress;
    lgh_tool_progress_start(&progress, stdout, "train", run->options.steps);
    int result = 0;
    for (int64_t step = 0; step < run->options.steps && result == 0; ++step) {
        float loss = 0;
        float entropy = 0;
        result = train_step(run, step, &loss, &entropy);
        if (result != 0)
            break;
        /* One batch says little; an average over the last ten or so reads better. */
        run->losses[step] = step == 0 ? loss : 0.9f * run->losses[step - 1] + 0.1f * loss;
        show_step(&progress, run, step + 1, entropy);
    }
    run->seconds = lgh_tool_now() - progress.started;
    lgh_tool_progress_end(&progress);
    return result;
}

/* ---- Scoring ------------------------------------------------------------------------------- */

int lgh_tool_run_score(lgh_tool_run *run) {
    size_t count = run->data.held_out_count;
    const lgh_tool_held_out *to = &run->held_out;
    const lgh_tool_scores plain = {to->logp, to->entropy, NULL};
    const lgh_tool_scores cooled = {to->cooled_logp, to->cooled_entropy, to->logp_at_one};
    lgh_tool_data_gather(&run->data, run->data.held_out, count, CONTEXT, run->contexts,
                         run->targets);
    lgh_tool_model_forward(&run->model, run->contexts, (int)count);
    if (lgh_tool_head_set_weight(&run->head, run->model.head.value) != 0 ||
        lgh_tool_head_score(&run->head, run->model.hidden, run->targets, count, 1.0f, plain) != 0)
        return -1;
    return lgh_tool_head_score(&run->head, run->model.hidden, run->targets, count,
                               LGH_TOOL_LOW_TEMPERATURE, cooled);
}
