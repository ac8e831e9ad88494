/* bench_subject.c - the library as the bench measures it: a plan, its buffers, its two calls. */
#include "bench_subject.h"

#include "bench_cache.h"
#include "error.h"
#include "progress.h"

#include <stdio.h>
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

static void close_plan(lgh_tool_subject *subject) {
    lgh_plan_destroy(subject->plan);
    lgh_context_destroy(subject->context);
    subject->plan = NULL;
    subject->context = NULL;
}

static lgh_status open_plan(lgh_tool_subject *subject, const lgh_plan_options *options,
                            double *seconds) {
    FORWARD(lgh_tool_context_open(&subject->context, LGH_DEVICE_CUDA));
    double begin = lgh_tool_now();
    FORWARD(lgh_plan_create(&subject->plan, subject->context, options));
    *seconds = lgh_tool_now() - begin;
    return LGH_SUCCESS;
}

static lgh_status open_cold_and_warm(lgh_tool_subject *subject, const lgh_plan_options *options) {
    FORWARD(open_plan(subject, options, &subject->plan_times.cold));
    close_plan(subject);
    return open_plan(subject, options, &subject->plan_times.warm);
}

lgh_status lgh_tool_subject_open(lgh_tool_subject *subject, const lgh_tool_shape *shape,
                                 int64_t budget_bytes, int64_t token_block) {
    lgh_plan_options options = LGH_PLAN_OPTIONS_INIT;
    options.hidden_size = shape->hidden;
    options.vocab_size = shape->vocab;
    options.max_tokens = shape->tokens;
    options.dhidden_dtype = LGH_BF16;
    options.dweight_dtype = LGH_FP32;
    options.backward_budget = budget_bytes;
    options.token_block = token_block;
    *subject = (lgh_tool_subject){.context = NULL};
    lgh_tool_cache cache;
    FORWARD(lgh_tool_cache_enter(&cache));
    lgh_status status = open_cold_and_warm(subject, &options);
    lgh_tool_cache_leave(&cache);
    if (status != LGH_SUCCESS)
        close_plan(subject);
    return status;
}

/* ---- Buffers ------------------------------------------------------------------------------- */

#define GUARD_BYTES 4096
#define GUARD_PATTERN 0xa5

static lgh_status allocate_workspace(lgh_tool_subject *subject, const lgh_tool_gpu *gpu,
                                     lgh_pass pass, int64_t tokens) {
    lgh_tool_workspace *workspace = &subject->workspaces[pass];
    unsigned char pattern[GUARD_BYTES];
    memset(pattern, GUARD_PATTERN, sizeof pattern);
    FORWARD(lgh_plan_workspace_size(subject->plan, pass, tokens, &workspace->bytes,
                                    &subject->beyond_budget));
    FORWARD(lgh__driver_allocate(&workspace->memory, workspace->bytes + GUARD_BYTES));
    FORWARD(lgh__driver_copy((char *)workspace->memory + workspace->bytes, pattern, GUARD_BYTES,
                             gpu->stream));
    return lgh__driver_synchronize(gpu->stream);
}

static lgh_status allocate_floats(float **memory, int64_t count) {
    void *allocated;
    FORWARD(lgh__driver_allocate(&allocated, (size_t)count * sizeof(float)));
    *memory = allocated;
    return LGH_SUCCESS;
}

static lgh_status allocate_buffers(lgh_tool_subject *s, const lgh_tool_gpu *gpu,
                                   const lgh_tool_tensors *t) {
    const size_t n = (size_t)t->shape.tokens, d = (size_t)t->shape.hidden;
    const size_t v = (size_t)t->shape.vocab;
    void *grad_logp;
    FORWARD(lgh_tool_gpu_upload(gpu, &s->hidden, t->hidden, n * d * sizeof *t->hidden));
    FORWARD(lgh_tool_gpu_upload(gpu, &s->weight, t->weight, v * d * sizeof *t->weight));
    FORWARD(lgh_tool_gpu_upload(gpu, &s->targets, t->targets, n * sizeof *t->targets));
    FORWARD(lgh_tool_gpu_upload(gpu, &grad_logp, t->grad_logp, n * sizeof *t->grad_logp));
    s->grad_logp = grad_logp;
    FORWARD(allocate_floats(&s->statistics, 3 * t->shape.tokens));
    FORWARD(lgh__driver_allocate(&s->dhidden, n * d * sizeof *t->hidden));
    FORWARD(allocate_floats(&s->dweight, t->shape.vocab * t->shape.hidden));
    FORWARD(allocate_workspace(s, gpu, LGH_PASS_FORWARD, t->shape.tokens));
    return allocate_workspace(s, gpu, LGH_PASS_BACKWARD, t->shape.tokens);
}

static void fill_arguments(lgh_tool_subject *s, const lgh_tool_shape *shape) {
    const int64_t n = shape->tokens, d = shape->hidden, v = shape->vocab;
    s->forward = (lgh_forward_args)LGH_FORWARD_ARGS_INIT;
    s->forward.hidden = (lgh_const_matrix){s->hidden, n, d, d, LGH_BF16};
    s->forward.weight = (lgh_const_matrix){s->weight, v, d, d, LGH_BF16};
    s->forward.targets = s->targets;
    s->forward.temperature.host = LGH_TOOL_BENCH_TEMPERATURE;
    s->forward.logp = s->statistics;
    s->forward.lse = s->statistics + n;
    s->forward.entropy = s->statistics + 2 * n;
    s->backward = (lgh_backward_args)LGH_BACKWARD_ARGS_INIT;
    s->backward.hidden = s->forward.hidden;
    s->backward.weight = s->forward.weight;
    s->backward.targets = s->targets;
    s->backward.temperature = s->forward.temperature;
    s->backward.lse = s->forward.lse;
    s->backward.grad_logp = (lgh_value){s->grad_logp, 1, 0.0f};
    s->backward.dhidden = (lgh_matrix){s->dhidden, n, d, d, LGH_BF16};
    s->backward.dweight = (lgh_matrix){s->dweight, v, d, d, LGH_FP32};
    s->backward.accumulate_dweight = 1;
}

lgh_status lgh_tool_subject_load(lgh_tool_subject *subject, const lgh_tool_gpu *gpu,
                                 const lgh_tool_tensors *tensors) {
    FORWARD(allocate_buffers(subject, gpu, tensors));
    fill_arguments(subject, &tensors->shape);
    return lgh_tool_subject_clear(subject, gpu);
}

void lgh_tool_subject_close(lgh_tool_subject *s) {
    lgh__driver_free(s->workspaces[LGH_PASS_BACKWARD].memory);
    lgh__driver_free(s->workspaces[LGH_PASS_FORWARD].memory);
    lgh__driver_free(s->dweight);
    lgh__driver_free(s->dhidden);
    lgh__driver_free(s->statistics);
    lgh__driver_free(s->grad_logp);
    lgh__driver_free(s->targets);
    lgh__driver_free(s->weight);
    lgh__driver_free(s->hidden);
    close_plan(s);
    *s = (lgh_tool_subject){.context = NULL};
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

static lgh_status zero(void *data, size_t bytes, void *stream) {
    return lgh__driver_fill(data, 0, 1, bytes, bytes, stream);
}

lgh_status lgh_tool_subject_clear(const lgh_tool_subject *s, const lgh_tool_gpu *gpu) {
    const size_t n = (size_t)s->forward.hidden.rows, d = (size_t)s->forward.hidden.columns;
    const size_t v = (size_t)s->forward.weight.rows;
    FORWARD(zero(s->statistics, 3 * n * sizeof(float), gpu->stream));
    FORWARD(zero(s->dhidden, n * d * sizeof(uint16_t), gpu->stream));
    return zero(s->dweight, v * d * sizeof(float), gpu->stream);
}

lgh_status lgh_tool_subject_intact(const lgh_tool_subject *s, const lgh_tool_gpu *gpu,
                                   int *intact) {
    unsigned char found[GUARD_BYTES];
    *intact = 1;
    for (int pass = 0; pass < 2; ++pass) {
        const lgh_tool_workspace *workspace = &s->workspaces[pass];
        FORWARD(lgh_tool_gpu_download(gpu, found, (char *)workspace->memory + workspace->bytes,
                                      sizeof found));
        for (size_t i = 0; i < sizeof found; ++i)
            *intact &= found[i] == GUARD_PATTERN;
    }
    return LGH_SUCCESS;
}
