/* bench_reference.c - what the CPU device, in float64, makes of a few tokens. */
#include "bench_reference.h"

#include "error.h"
#include "value.h"

#include <stdlib.h>
#include <string.h>

/* One call's worth of host memory. */
typedef struct run {
    lgh_context *context;
    lgh_plan *plan;
    int64_t count;
    uint16_t *hidden; /* [count, D] */
    int64_t targets[LGH_TOOL_REFERENCE_ROWS];
    float grad_logp[LGH_TOOL_REFERENCE_ROWS];
    float statistics[3][LGH_TOOL_REFERENCE_ROWS];
    float *dhidden; /* [count, D] */
    void *workspace;
    size_t workspace_bytes;
} run;

void lgh_tool_gather_bf16(float *to, const uint16_t *from, const int64_t *rows, int64_t count,
                          int64_t columns) {
    for (int64_t r = 0; r < count; ++r)
        for (int64_t k = 0; k < columns; ++k)
            to[r * columns + k] = lgh__float_from_bf16(from[rows[r] * columns + k]);
}

static lgh_status open_plan(run *r, const lgh_tool_shape *shape) {
    lgh_context_options context = LGH_CONTEXT_OPTIONS_INIT;
    lgh_plan_options plan = LGH_PLAN_OPTIONS_INIT;
    plan.hidden_size = shape->hidden;
    plan.vocab_size = shape->vocab;
    plan.max_tokens = r->count;
    plan.dweight_dtype = LGH_DTYPE_NONE;
    FORWARD(lgh_context_create(&r->context, &context));
    return lgh_plan_create(&r->plan, r->context, &plan);
}

static lgh_status allocate(run *r, int64_t hidden_size) {
    const size_t count = (size_t)(r->count * hidden_size);
    size_t forward, backward;
    FORWARD(lgh_plan_workspace_size(r->plan, LGH_PASS_FORWARD, r->count, &forward, NULL));
    FORWARD(lgh_plan_workspace_size(r->plan, LGH_PASS_BACKWARD, r->count, &backward, NULL));
    r->workspace_bytes = forward > backward ? forward : backward;
    FORWARD(lgh_memory_allocate(r->context, r->workspace_bytes, &r->workspace));
    r->hidden = malloc(count * sizeof *r->hidden);
    r->dhidden = malloc(count * sizeof *r->dhidden);
    RETURN_IF(!r->hidden || !r->dhidden, LGH_ERROR_OUT_OF_MEMORY, "no memory for %zu elements",
              count);
    return LGH_SUCCESS;
}

static void gather(run *r, const lgh_tool_tensors *t, const int64_t *tokens) {
    const int64_t d = t->shape.hidden;
    for (int64_t i = 0; i < r->count; ++i) {
        memcpy(r->hidden + i * d, t->hidden + tokens[i] * d, (size_t)d * sizeof *r->hidden);
        r->targets[i] = t->targets[tokens[i]];
        r->grad_logp[i] = t->grad_logp[tokens[i]];
    }
}

static lgh_status call(run *r, const lgh_tool_tensors *t) {
    const int64_t d = t->shape.hidden, v = t->shape.vocab;
    lgh_forward_args forward = LGH_FORWARD_ARGS_INIT;
    lgh_backward_args backward = LGH_BACKWARD_ARGS_INIT;
    forward.hidden = (lgh_const_matrix){r->hidden, r->count, d, d, LGH_BF16};
    forward.weight = (lgh_const_matrix){t->weight, v, d, d, LGH_BF16};
    forward.targets = r->targets;
    forward.temperature.host = LGH_TOOL_BENCH_TEMPERATURE;
    forward.logp = r->statistics[0];
    forward.lse = r->statistics[1];
    forward.entropy = r->statistics[2];
    FORWARD(lgh_forward(r->plan, &forward, r->workspace, r->workspace_bytes, NULL));
    backward.hidden = forward.hidden;
    backward.weight = forward.weight;
    backward.targets = r->targets;
    backward.temperature = forward.temperature;
    backward.lse = r->statistics[1];
    backward.grad_logp = (lgh_value){r->grad_logp, 1, 0.0f};
    backward.dhidden = (lgh_matrix){r->dhidden, r->count, d, d, LGH_FP32};
    return lgh_backward(r->plan, &backward, r->workspace, r->workspace_bytes, NULL);
}

static lgh_status widen(lgh_tool_reference *reference, const run *r, int64_t hidden_size) {
    const int64_t count = r->count * hidden_size;
    reference->dhidden = malloc((size_t)count * sizeof *reference->dhidden);
    RETURN_IF(!reference->dhidden, LGH_ERROR_OUT_OF_MEMORY, "no memory for %lld numbers",
              (long long)count);
    for (int which = 0; which < 3; ++which)
        for (int64_t i = 0; i < r->count; ++i)
            reference->statistics[which][i] = (double)r->statistics[which][i];
    for (int64_t k = 0; k < count; ++k)
        reference->dhidden[k] = (double)r->dhidden[k];
    return LGH_SUCCESS;
}

static lgh_status compute(lgh_tool_reference *reference, run *r, const lgh_tool_tensors *tensors,
                          const int64_t *tokens) {
    FORWARD(open_plan(r, &tensors->shape));
    FORWARD(allocate(r, tensors->shape.hidden));
    gather(r, tensors, tokens);
    FORWARD(call(r, tensors));
    return widen(reference, r, tensors->shape.hidden);
}

lgh_status lgh_tool_reference_compute(lgh_tool_reference *reference,
                                      const lgh_tool_tensors *tensors, const int64_t *tokens,
                                      int64_t count) {
    run r = {.count = count};
    *reference = (lgh_tool_reference){.dhidden = NULL};
    RETURN_IF(count < 1 || count > LGH_TOOL_REFERENCE_ROWS, LGH_ERROR_INVALID_ARGUMENT,
              "%lld rows for a reference of 1 to %d", (long long)count, LGH_TOOL_REFERENCE_ROWS);
    lgh_status status = compute(reference, &r, tensors, tokens);
    free(r.hidden);
    free(r.dhidden);
    lgh_memory_free(r.context, r.workspace);
    lgh_plan_destroy(r.plan);
    lgh_context_destroy(r.context);
    return status;
}

void lgh_tool_reference_free(lgh_tool_reference *reference) {
    free(reference->dhidden);
    *reference = (lgh_tool_reference){.dhidden = NULL};
}
