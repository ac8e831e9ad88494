/* bench_subject.c - the library as the bench measures it: a plan with its features, its calls. */
#include "bench_subject.h"

#include "bench_cache.h"
#include "error.h"
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Plan ---------------------------------------------------------------------------------- */

static void print_line(void *user, const char *line) {
    (void)user;
    fprintf(stderr, "loggerhead: %s\n", line);
}

lgh_status lgh_tool_context_open(lgh_context **context, lgh_device_type type) {
    lgh_context_options options = LGH_CONTEXT_OPTIONS_INIT;
    options.type = type;
    options.log = print_line;
    return lgh_context_create(context, &options);
}

static lgh_status open_plan(lgh_tool_subject *s, const lgh_tool_limits *limits, double *seconds) {
    const lgh_tool_tensors *t = s->buffers->tensors;
    lgh_plan_options options = lgh_tool_feature_options(s->feature, &t->shape, t->dtypes);
    options.backward_budget = limits->budget_bytes;
    options.token_block = limits->token_block;
    FORWARD(lgh_tool_context_open(&s->context, s->buffers->device->type));
    double begin = lgh_tool_now();
    FORWARD(lgh_plan_create(&s->plan, s->context, &options));
    *seconds = lgh_tool_now() - begin;
    return LGH_SUCCESS;
}

static void close_plan(lgh_tool_subject *s) {
    lgh_plan_destroy(s->plan);
    lgh_context_destroy(s->context);
    s->plan = NULL;
    s->context = NULL;
}

lgh_status lgh_tool_subject_time_plan(lgh_tool_plan_times *times, const lgh_tool_buffers *buffers,
                                      const lgh_tool_feature *feature,
                                      const lgh_tool_limits *limits) {
    lgh_tool_subject s = {.feature = feature, .buffers = buffers};
    lgh_tool_cache cache;
    FORWARD(lgh_tool_cache_enter(&cache));
    lgh_status status = open_plan(&s, limits, &times->cold);
    close_plan(&s);
    if (status == LGH_SUCCESS)
        status = open_plan(&s, limits, &times->warm);
    close_plan(&s);
    lgh_tool_cache_leave(&cache);
    return status;
}

/* ---- Memory -------------------------------------------------------------------------------- */

#define GUARD_BYTES 4096
#define GUARD_PATTERN 0xa5

static lgh_status allocate_workspace(lgh_tool_subject *s, lgh_pass pass) {
    const lgh_tool_device *device = s->buffers->device;
    lgh_tool_workspace *workspace = &s->workspaces[pass];
    unsigned char pattern[GUARD_BYTES];
    memset(pattern, GUARD_PATTERN, sizeof pattern);
    FORWARD(lgh_plan_workspace_size(s->plan, pass, s->buffers->tensors->shape.tokens,
                                    &workspace->bytes, &s->beyond_budget));
    FORWARD(lgh_tool_device_allocate(device, &workspace->memory, workspace->bytes + GUARD_BYTES));
    return lgh_tool_device_copy(device, (char *)workspace->memory + workspace->bytes, pattern,
                                GUARD_BYTES);
}

static lgh_status list_rows(lgh_tool_subject *s) {
    const lgh_tool_device *device = s->buffers->device;
    const int64_t count = lgh_tool_feature_live(s->feature, s->buffers->tensors->shape.tokens);
    const size_t bytes = (size_t)count * sizeof(int32_t);
    int32_t *rows;
    FORWARD(lgh_tool_allocate(&rows, count, sizeof *rows));
    for (int64_t r = 0; r < count; ++r)
        rows[r] = (int32_t)(r * s->feature->live_step);
    lgh_status status = lgh_tool_device_allocate(device, &s->rows, bytes);
    if (status == LGH_SUCCESS)
        status = lgh_tool_device_copy(device, s->rows, rows, bytes);
    free(rows);
    return status;
}

static size_t statistics_bytes(const lgh_tool_subject *s) {
    return LGH_TOOL_STATISTICS * (size_t)s->buffers->tensors->shape.tokens * sizeof(float);
}

static size_t best_bytes(const lgh_tool_subject *s) {
    return (size_t)s->buffers->tensors->shape.tokens * sizeof(int64_t);
}

static lgh_status allocate_outputs(lgh_tool_subject *s) {
    void *statistics, *best;
    FORWARD(lgh_tool_device_allocate(s->buffers->device, &statistics, statistics_bytes(s)));
    s->statistics = statistics;
    FORWARD(lgh_tool_device_allocate(s->buffers->device, &best, best_bytes(s)));
    s->best = best;
    return lgh_tool_subject_clear(s);
}

lgh_status lgh_tool_subject_clear(const lgh_tool_subject *s) {
    FORWARD(lgh_tool_device_clear(s->buffers->device, s->statistics, statistics_bytes(s)));
    FORWARD(lgh_tool_device_clear(s->buffers->device, s->best, best_bytes(s)));
    return lgh_tool_buffers_clear(s->buffers);
}

/* ---- Arguments ----------------------------------------------------------------------------- */

static float *statistic(const lgh_tool_subject *s, int which, uint32_t output) {
    const int64_t tokens = s->buffers->tensors->shape.tokens;
    return s->feature->outputs & output ? s->statistics + which * tokens : NULL;
}

static lgh_value temperature(const lgh_tool_subject *s) {
    if (s->feature->token_temperatures)
        return (lgh_value){s->buffers->temperatures, 1, 0.0f};
    return (lgh_value){NULL, 0, LGH_TOOL_BENCH_TEMPERATURE};
}

static const void *bias(const lgh_tool_subject *s) {
    return s->feature->bias == LGH_FP32   ? s->buffers->bias
           : s->feature->bias == LGH_BF16 ? s->buffers->bias_bf16
                                          : NULL;
}

static lgh_live live(const lgh_tool_subject *s) {
    const int64_t tokens = s->buffers->tensors->shape.tokens;
    return (lgh_live){s->rows, s->rows ? lgh_tool_feature_live(s->feature, tokens) : 0, NULL};
}

static lgh_counters counters(const lgh_tool_subject *s) {
    uint64_t *first = s->buffers->counters;
    return s->feature->counters ? (lgh_counters){first, first + 1} : (lgh_counters){NULL, NULL};
}

static void fill_forward(lgh_tool_subject *s) {
    const lgh_tool_buffers *b = s->buffers;
    const lgh_tool_shape *shape = &b->tensors->shape;
    const lgh_tool_dtypes *dtypes = b->tensors->dtypes;
    const int64_t n = shape->tokens, d = shape->hidden, v = shape->vocab;
    lgh_forward_args *a = &s->forward;
    *a = (lgh_forward_args)LGH_FORWARD_ARGS_INIT;
    a->hidden = (lgh_const_matrix){b->hidden, n, d, d, dtypes->hidden};
    a->weight = (lgh_const_matrix){b->weight, v, d, d, dtypes->weight};
    a->targets = b->targets;
    a->temperature = temperature(s);
    a->logp = statistic(s, LGH_TOOL_LOGP, LGH_OUTPUT_LOGP);
    a->lse = statistic(s, LGH_TOOL_LSE, LGH_OUTPUT_LSE);
    a->entropy = statistic(s, LGH_TOOL_ENTROPY, LGH_OUTPUT_ENTROPY);
    a->logp_at_one = statistic(s, LGH_TOOL_LOGP_AT_ONE, LGH_OUTPUT_LOGP_AT_ONE);
    a->best = s->feature->outputs & LGH_OUTPUT_BEST ? s->best : NULL;
    a->bias = bias(s);
    a->live = live(s);
    a->counters = counters(s);
}

static void fill_backward(lgh_tool_subject *s) {
    const lgh_tool_buffers *b = s->buffers;
    const lgh_tool_feature *f = s->feature;
    const int64_t n = b->tensors->shape.tokens, d = b->tensors->shape.hidden;
    const int64_t v = b->tensors->shape.vocab;
    lgh_backward_args *a = &s->backward;
    *a = (lgh_backward_args)LGH_BACKWARD_ARGS_INIT;
    a->hidden = s->forward.hidden;
    a->weight = s->forward.weight;
    a->targets = b->targets;
    a->temperature = s->forward.temperature;
    a->lse = s->forward.lse;
    a->entropy = f->grad_entropy ? s->forward.entropy : NULL;
    a->grad_logp = (lgh_value){b->grad_logp, 1, 0.0f};
    if (f->grad_entropy)
        a->grad_entropy = (lgh_value){b->grad_entropy, 1, 0.0f};
    if (f->grad_lse)
        a->grad_lse = (lgh_value){b->grad_lse, 1, 0.0f};
    if (f->dhidden != LGH_DTYPE_NONE)
        a->dhidden = (lgh_matrix){b->dhidden, n, d, d, f->dhidden};
    if (f->dweight != LGH_DTYPE_NONE)
        a->dweight = (lgh_matrix){b->dweight, v, d, d, f->dweight};
    a->accumulate_dweight = f->accumulates;
    a->bias = s->forward.bias;
    a->dbias = f->dbias ? b->dbias : NULL;
    a->live = s->forward.live;
    a->counters = s->forward.counters;
}

/* ---- Life ---------------------------------------------------------------------------------- */

static lgh_status open_subject(lgh_tool_subject *s, const lgh_tool_limits *limits) {
    double seconds;
    FORWARD(open_plan(s, limits, &seconds));
    if (s->feature->live_step > 0)
        FORWARD(list_rows(s));
    FORWARD(allocate_outputs(s));
    FORWARD(allocate_workspace(s, LGH_PASS_FORWARD));
    if (lgh_tool_feature_has_backward(s->feature))
        FORWARD(allocate_workspace(s, LGH_PASS_BACKWARD));
    fill_forward(s);
    fill_backward(s);
    return LGH_SUCCESS;
}

lgh_status lgh_tool_subject_open(lgh_tool_subject *subject, const lgh_tool_buffers *buffers,
                                 const lgh_tool_feature *feature, const lgh_tool_limits *limits) {
    *subject = (lgh_tool_subject){.feature = feature, .buffers = buffers};
    lgh_status status = open_subject(subject, limits);
    if (status != LGH_SUCCESS)
        lgh_tool_subject_close(subject);
    return status;
}

void lgh_tool_subject_close(lgh_tool_subject *s) {
    if (!s->buffers)
        return;
    for (int pass = 0; pass < 2; ++pass)
        lgh_tool_device_free(s->buffers->device, s->workspaces[pass].memory);
    lgh_tool_device_free(s->buffers->device, s->best);
    lgh_tool_device_free(s->buffers->device, s->statistics);
    lgh_tool_device_free(s->buffers->device, s->rows);
    close_plan(s);
    *s = (lgh_tool_subject){.buffers = NULL};
}

/* ---- Calls --------------------------------------------------------------------------------- */

lgh_status lgh_tool_subject_forward(void *subject, void *stream) {
    const lgh_tool_subject *s = subject;
    const lgh_tool_workspace *workspace = &s->workspaces[LGH_PASS_FORWARD];
    return lgh_forward(s->plan, &s->forward, workspace->memory, workspace->bytes, stream);
}

lgh_status lgh_tool_subject_backward(void *subject, void *stream) {
    const lgh_tool_subject *s = subject;
    const lgh_tool_workspace *workspace = &s->workspaces[LGH_PASS_BACKWARD];
    return lgh_backward(s->plan, &s->backward, workspace->memory, workspace->bytes, stream);
}

lgh_status lgh_tool_subject_both(void *subject, void *stream) {
    FORWARD(lgh_tool_subject_forward(subject, stream));
    return lgh_tool_subject_backward(subject, stream);
}

lgh_status lgh_tool_subject_run(void *subject, void *stream) {
    static const lgh_tool_work runs[] = {[LGH_TOOL_FORWARD] = lgh_tool_subject_forward,
                                         [LGH_TOOL_BACKWARD] = lgh_tool_subject_backward,
                                         [LGH_TOOL_BOTH] = lgh_tool_subject_both};
    return runs[((const lgh_tool_subject *)subject)->feature->calls](subject, stream);
}

lgh_status lgh_tool_subject_intact(const lgh_tool_subject *s, int *intact) {
    unsigned char found[GUARD_BYTES];
    *intact = 1;
    for (int pass = 0; pass < 2; ++pass) {
        const lgh_tool_workspace *workspace = &s->workspaces[pass];
        if (!workspace->memory)
            continue;
        FORWARD(lgh_tool_device_copy(s->buffers->device, found,
                                     (char *)workspace->memory + workspace->bytes, sizeof found));
        for (size_t i = 0; i < sizeof found; ++i)
            *intact &= found[i] == GUARD_PATTERN;
    }
    return LGH_SUCCESS;
}
