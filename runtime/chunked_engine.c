/* chunked_engine.c - the chunked engine: preparing a plan, and its small parts. */
#include "chunked_engine.h"

#include "context.h"
#include "error.h"

#include <stdlib.h>

lgh__chunk lgh__chunk_at(int64_t entries, int64_t chunk, int64_t first) {
    const int64_t left = entries - first;
    const int64_t columns = left < chunk ? left : chunk;
    return (lgh__chunk){first, columns, chunk - columns, left <= chunk};
}

const lgh__product *lgh__chunk_product_of(const lgh__chunk_product *pair, const lgh__chunk *chunk) {
    return chunk->is_last ? &pair->last : &pair->whole;
}

const void *lgh__row_of(const lgh_const_matrix *matrix, int64_t row) {
    return (const char *)matrix->data +
           (size_t)(row * matrix->row_stride) * lgh_dtype_size(matrix->dtype);
}

static lgh_status prepare_state(const lgh_plan *plan, lgh__chunked *e) {
    FORWARD(lgh__chunked_config_choose(&e->config, &plan->options));
    if (plan->options.max_tokens == 0)
        return LGH_SUCCESS; /* no call will ever enqueue anything */
    FORWARD(lgh__chunked_load_kernels(e, &plan->options));
    return lgh__chunked_choose_products(e, plan);
}

static lgh_status prepare(lgh_plan *plan) {
    lgh__chunked *e = calloc(1, sizeof *e);
    RETURN_IF(!e, LGH_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    e->cuda = plan->context->cuda;
    lgh_status status = prepare_state(plan, e);
    if (status != LGH_SUCCESS) {
        free(e);
        return status;
    }
    plan->state = e;
    return LGH_SUCCESS;
}

static void release(lgh_plan *plan) {
    free(plan->state);
}

static lgh__workspace_need workspace(const lgh_plan *plan, lgh_pass pass, int64_t tokens) {
    const lgh__chunked *e = plan->state;
    const lgh_plan_options *o = &plan->options;
    if (pass == LGH_PASS_FORWARD)
        return (lgh__workspace_need){lgh__chunked_forward_layout(&e->config, o, tokens).bytes, 0};
    if (!lgh__has_backward(o))
        return (lgh__workspace_need){0, 0};
    const lgh__backward_layout layout = lgh__chunked_backward_layout(&e->config, o, tokens);
    return (lgh__workspace_need){layout.bytes, layout.beyond_budget};
}

static lgh_status zero(const lgh_plan *plan, void *data, size_t rows, size_t row_bytes,
                       size_t stride_bytes, void *stream) {
    (void)plan;
    return lgh__driver_fill(data, 0, rows, row_bytes, stride_bytes, stream);
}

static void describe_machine(const lgh_plan *plan, lgh__text *text) {
    const lgh__device *device = &plan->context->cuda->device;
    lgh__text_append(text, "device = %s\narch = %s\ncublaslt = %zu\n", device->name, device->arch,
                     lgh__cublaslt_version());
}

static void describe(const lgh_plan *plan, lgh__text *text) {
    const lgh__chunked *e = plan->state;
    lgh__chunked_config_describe(&e->config, text);
    lgh__chunked_describe_products(e, &plan->options, text);
}

const lgh__engine lgh__chunked_engine = {
    .name = "chunked",
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .forward = lgh__chunked_forward,
    .backward = lgh__chunked_backward,
    .zero = zero,
    .live_rows = lgh__chunked_live_rows,
    .describe_machine = describe_machine,
    .describe = describe,
};
