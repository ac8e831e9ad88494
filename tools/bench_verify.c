/* bench_verify.c - whether the results are right, before any time is taken. */
#include "bench_verify.h"

#include "bench_check.h"
#include "error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct verification {
    lgh_tool_verdict *verdict;
    lgh_tool_subject *subject;
    const lgh_tool_feature *feature;
    const lgh_tool_device *device;
    const lgh_tool_tensors *tensors;
    lgh__threads *threads;
    lgh_tool_sample sample;
    lgh_tool_outputs first, second;
} verification;

/* ---- Running ------------------------------------------------------------------------------- */

static size_t statistics_bytes(const verification *v) {
    return LGH_TOOL_STATISTICS * (size_t)v->tensors->shape.tokens * sizeof(float);
}

static size_t best_bytes(const verification *v) {
    return (size_t)v->tensors->shape.tokens * sizeof(int64_t);
}

static size_t dhidden_bytes(const verification *v) {
    const lgh_tool_shape *s = &v->tensors->shape;
    return (size_t)(s->tokens * s->hidden) * lgh_dtype_size(v->feature->dhidden);
}

static size_t row_bytes(const verification *v) {
    return (size_t)v->tensors->shape.hidden * sizeof(float);
}

static lgh_status allocate_outputs(const verification *v, lgh_tool_outputs *o) {
    FORWARD(lgh_tool_allocate(&o->statistics, 1, statistics_bytes(v)));
    FORWARD(lgh_tool_allocate(&o->best, 1, best_bytes(v)));
    FORWARD(lgh_tool_allocate(&o->dhidden, 1, dhidden_bytes(v)));
    FORWARD(lgh_tool_allocate(&o->dweight[0], LGH_TOOL_ENTRIES, row_bytes(v)));
    return lgh_tool_allocate(&o->dweight[1], LGH_TOOL_ENTRIES, row_bytes(v));
}

static void free_outputs(lgh_tool_outputs *o) {
    free(o->statistics);
    free(o->best);
    free(o->dhidden);
    free(o->dweight[0]);
    free(o->dweight[1]);
}

static lgh_status download_entries(const verification *v, lgh_tool_outputs *o, int wanted) {
    const lgh_tool_buffers *b = v->subject->buffers;
    const int64_t d = v->tensors->shape.hidden;
    for (int64_t r = 0; r < v->sample.entry_counts[wanted]; ++r) {
        const int64_t entry = v->sample.entries[wanted][r];
        if (v->feature->dweight != LGH_DTYPE_NONE)
            FORWARD(lgh_tool_device_copy(v->device, o->dweight[wanted] + r * d,
                                         b->dweight + entry * d, row_bytes(v)));
        if (v->feature->dbias)
            FORWARD(lgh_tool_device_copy(v->device, &o->dbias[wanted][r], b->dbias + entry,
                                         sizeof(float)));
    }
    return LGH_SUCCESS;
}

static lgh_status download(const verification *v, lgh_tool_outputs *o) {
    const lgh_tool_subject *s = v->subject;
    FORWARD(lgh_tool_device_copy(v->device, o->statistics, s->statistics, statistics_bytes(v)));
    FORWARD(lgh_tool_device_copy(v->device, o->best, s->best, best_bytes(v)));
    if (v->feature->dhidden != LGH_DTYPE_NONE)
        FORWARD(lgh_tool_device_copy(v->device, o->dhidden, s->buffers->dhidden, dhidden_bytes(v)));
    FORWARD(download_entries(v, o, 0));
    return download_entries(v, o, 1);
}

static int same_outputs(const verification *v) {
    const lgh_tool_outputs *a = &v->first, *b = &v->second;
    int same = memcmp(a->statistics, b->statistics, statistics_bytes(v)) == 0 &&
               memcmp(a->best, b->best, best_bytes(v)) == 0 &&
               memcmp(a->dhidden, b->dhidden, dhidden_bytes(v)) == 0 &&
               memcmp(a->dbias, b->dbias, sizeof a->dbias) == 0;
    for (int wanted = 0; wanted < 2; ++wanted)
        same &=
            memcmp(a->dweight[wanted], b->dweight[wanted], LGH_TOOL_ENTRIES * row_bytes(v)) == 0;
    return same;
}

static lgh_status run_once(const verification *v) {
    return lgh_tool_feature_has_backward(v->feature)
               ? lgh_tool_subject_both(v->subject, v->device->stream)
               : lgh_tool_subject_forward(v->subject, v->device->stream);
}

/* The memory in use is read around the very first calls: later ones could hide what those took. The
 * outputs are cleared between, so that nothing of the first run is taken for the second's. */
static lgh_status run_twice(verification *v) {
    lgh_tool_verdict *verdict = v->verdict;
    FORWARD(lgh_tool_subject_clear(v->subject));
    FORWARD(lgh_tool_device_used(v->device, &verdict->used_before));
    FORWARD(run_once(v));
    FORWARD(lgh_tool_device_used(v->device, &verdict->used_after));
    FORWARD(download(v, &v->first));
    FORWARD(lgh_tool_subject_clear(v->subject));
    FORWARD(run_once(v));
    FORWARD(download(v, &v->second));
    verdict->equal = same_outputs(v);
    return lgh_tool_subject_intact(v->subject, &verdict->intact);
}

/* ---- Verdict ------------------------------------------------------------------------------- */

static void judge(lgh_tool_verdict *verdict) {
    verdict->right =
        verdict->equal && verdict->intact && verdict->used_before == verdict->used_after;
    for (int i = 0; i < LGH_TOOL_ERRORS; ++i)
        verdict->right &= lgh_tool_error_holds(&verdict->errors[i]);
}

double lgh_tool_verdict_share(const lgh_tool_verdict *verdict) {
    double largest = 0.0;
    for (int i = 0; i < LGH_TOOL_ERRORS; ++i) {
        const lgh_tool_error *e = &verdict->errors[i];
        double share = e->rows > 0 ? e->error / e->promise : 0.0;
        if (isnan(share))
            return share;
        largest = fmax(largest, share);
    }
    return largest;
}

/* Every second token is one that a live list names. */
static void choose_tokens(lgh_tool_sample *s, const verification *v) {
    const int64_t step = v->feature->live_step > 0 ? v->feature->live_step : 1;
    s->token_count = lgh_tool_spread(s->tokens, LGH_TOOL_REFERENCE_ROWS, v->tensors->shape.tokens);
    for (int64_t r = 0; r < s->token_count; r += 2)
        s->tokens[r] -= s->tokens[r] % step;
}

static lgh_status verify(verification *v) {
    lgh_tool_sample *s = &v->sample;
    choose_tokens(s, v);
    for (int wanted = 0; wanted < 2; ++wanted)
        FORWARD(lgh_tool_vocab_sample(v->tensors, wanted, s->entries[wanted], LGH_TOOL_ENTRIES,
                                      &s->entry_counts[wanted]));
    FORWARD(allocate_outputs(v, &v->first));
    FORWARD(allocate_outputs(v, &v->second));
    FORWARD(run_twice(v));
    FORWARD(lgh_tool_compare(v->verdict->errors, v->tensors, v->feature, s, &v->first, v->threads));
    judge(v->verdict);
    return LGH_SUCCESS;
}

lgh_status lgh_tool_verify(lgh_tool_verdict *verdict, lgh_tool_subject *subject,
                           lgh__threads *threads) {
    verification v = {.verdict = verdict,
                      .subject = subject,
                      .feature = subject->feature,
                      .device = subject->buffers->device,
                      .tensors = subject->buffers->tensors,
                      .threads = threads};
    *verdict = (lgh_tool_verdict){.right = 0};
    lgh_status status = verify(&v);
    free_outputs(&v.first);
    free_outputs(&v.second);
    return status;
}
