/* cpu_engine.c - the CPU device as an engine: limits, workspace and description. */
#include "context.h"
#include "cpu_passes.h"
#include "cpu_tile.h"
#include "error.h"
#include "plan.h"
#include "threads.h"
#include "value.h"

#include <string.h>

static lgh_status prepare(lgh_plan *plan) {
    lgh__cpu_layout forward = lgh__cpu_layout_of(plan, LGH_PASS_FORWARD);
    RETURN_IF(
        forward.workers == 0, LGH_ERROR_UNSUPPORTED,
        "options->hidden_size is %lld: a thread of the CPU device would need %zu bytes, and a "
        "forward pass stays within 64 MiB",
        (long long)plan->options.hidden_size, forward.slice);
    lgh__cpu_layout backward = lgh__cpu_layout_of(plan, LGH_PASS_BACKWARD);
    RETURN_IF(lgh__has_backward(&plan->options) && backward.workers == 0, LGH_ERROR_WORKSPACE,
              "options->backward_budget is %lld bytes, but hidden_size %lld needs at least %zu",
              (long long)plan->options.backward_budget, (long long)plan->options.hidden_size,
              backward.slice);
    plan->state = NULL;
    return LGH_SUCCESS;
}

static void release(lgh_plan *plan) {
    (void)plan;
}

static lgh__workspace_need workspace(const lgh_plan *plan, lgh_pass pass, int64_t tokens) {
    lgh__cpu_layout layout = lgh__cpu_layout_of(plan, pass);
    lgh__workspace_need need = {0, 0};
    if (tokens > 0 && (pass == LGH_PASS_FORWARD || lgh__has_backward(&plan->options)))
        need.bytes = (size_t)layout.workers * layout.slice;
    return need;
}

static lgh_status zero(const lgh_plan *plan, void *data, size_t rows, size_t row_bytes,
                       size_t stride_bytes, void *stream) {
    (void)plan;
    (void)stream;
    for (size_t row = 0; row < rows; row++)
        memset((char *)data + row * stride_bytes, 0, row_bytes);
    return LGH_SUCCESS;
}

static void describe_pass(const lgh_plan *plan, lgh_pass pass, const char *name, lgh__text *text) {
    lgh__cpu_layout layout = lgh__cpu_layout_of(plan, pass);
    lgh__text_append(text, "cpu_%s_tile = %lld\n", name, (long long)layout.lanes);
    lgh__text_append(text, "cpu_%s_workers = %lld\n", name, (long long)layout.workers);
}

/* Fused multiply-adds, where the processor has them, round once instead of twice. */
static void describe_machine(const lgh_plan *plan, lgh__text *text) {
    (void)plan;
    lgh__text_append(text, "cpu_instructions = %s\n", lgh__cpu_kernels_at(0)->name);
}

static void describe(const lgh_plan *plan, lgh__text *text) {
    lgh__text_append(text, "cpu_threads = %d\n", lgh__threads_count(plan->context->threads));
    describe_pass(plan, LGH_PASS_FORWARD, "forward", text);
    if (lgh__has_backward(&plan->options))
        describe_pass(plan, LGH_PASS_BACKWARD, "backward", text);
}

static lgh_status live_rows(const lgh_plan *plan, const void *targets, int64_t tokens,
                            int32_t *rows, int32_t *count, void *stream) {
    (void)stream;
    *count = 0;
    for (int64_t token = 0; token < tokens; token++)
        if (lgh__target_at(targets, plan->options.targets_dtype, token) !=
            plan->options.ignore_index)
            rows[(*count)++] = (int32_t)token;
    return LGH_SUCCESS;
}

const lgh__engine lgh__cpu_engine = {
    .name = "cpu",
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .forward = lgh__cpu_forward,
    .backward = lgh__cpu_backward,
    .zero = zero,
    .live_rows = live_rows,
    .describe_machine = describe_machine,
    .describe = describe,
};
