/* demo_run.h - one run of the demo: its text, model and head, trained and then scored. */
#ifndef LGH_TOOL_DEMO_RUN_H
#define LGH_TOOL_DEMO_RUN_H

#include "demo_data.h"
#include "demo_files.h"
#include "demo_head.h"
#include "demo_model.h"

#include <stddef.h>
#include <stdint.h>

#define LGH_TOOL_LOW_TEMPERATURE 0.7f

typedef struct lgh_tool_run_options {
    const char *text; /* a file or folder; NULL: the project's own files */
    int device;       /* an lgh_tool_device */
    int64_t steps;
    int64_t batch; /* tokens of a step */
    int64_t hidden;
    int64_t words; /* most of the vocabulary, the bytes apart */
    int64_t seed;
} lgh_tool_run_options;

/* What was found for each held-out position. */
typedef struct lgh_tool_held_out {
    float *logp; /* at T = 1 */
    float *entropy;
    float *cooled_logp; /* at the low temperature */
    float *cooled_entropy;
    float *logp_at_one; /* T = 1 again, from the pass at the low temperature */
} lgh_tool_held_out;

typedef struct lgh_tool_run {
    lgh_tool_run_options options;
    lgh_tool_corpus corpus;
    lgh_tool_data data;
    lgh_tool_model model;
    lgh_tool_head head;
    size_t *positions; /* [batch] */
    int32_t *contexts; /* [batch or held-out positions, context] */
    int32_t *targets;
    float *losses; /* [steps], each an average of the last few */
    lgh_tool_held_out held_out;
    double unigram; /* cross-entropy of the held-out part under token frequencies, in nats */
    double seconds; /* that training took */
} lgh_tool_run;

/*
 * Every function that returns int returns 0, or -1 after it has said why on stderr.
 */

/** Reads the text, makes the model and opens the head. lgh_tool_run_close is due in any case. */
int lgh_tool_run_open(lgh_tool_run *run, const lgh_tool_run_options *options);

void lgh_tool_run_close(lgh_tool_run *run);

/** Trains for all steps and shows the progress on stdout. */
int lgh_tool_run_train(lgh_tool_run *run);

/** Scores the held-out positions at both temperatures. */
int lgh_tool_run_score(lgh_tool_run *run);

#endif
