/* chunked_engine.c - the chunked engine: preparing a plan. */
#include "chunked_engine.h"

#include "choice.h"
#include "context.h"
#include "error.h"
#include "row_launch.h"

#include <stdio.h>
#include <stdlib.h>

lgh__chunk lgh__chunk_at(int64_t vocab_size, int64_t chunk, int64_t first) {
    const int64_t left = vocab_size - first;
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

/* A thread holds 16 columns in registers, more where a block would pass 512 threads. */
int lgh__dx_threads(int64_t chunk) {
    const int64_t threads = (chunk + 15) / 16;
    return threads > 512 ? 512 : (int)((threads + 31) / 32 * 32);
}

void lgh__chunked_define(lgh__chunked_definitions *d, const lgh_plan_options *o,
                         const lgh__chunked_config *c) {
    const int rounds = o->logits_rounding == LGH_BF16, int32 = o->targets_dtype == LGH_INT32;
    snprintf(d->stats, sizeof d->stats,
             "#define LGH_THREADS %d\n"
             "#define LGH_LOGITS_BF16 %d\n"
             "#define LGH_TARGETS_INT32 %d\n"
             "#define LGH_WANT_ENTROPY %d\n"
             "#define LGH_WANT_LOGP_AT_ONE %d\n",
             LGH__STATS_THREADS, rounds, int32, (o->outputs & LGH_OUTPUT_ENTROPY) != 0,
             (o->outputs & LGH_OUTPUT_LOGP_AT_ONE) != 0);
    snprintf(d->dx, sizeof d->dx,
             "#define LGH_THREADS %d\n"
             "#define LGH_CHUNK %lld\n"
             "#define LGH_LOGITS_BF16 %d\n"
             "#define LGH_TARGETS_INT32 %d\n",
             lgh__dx_threads(c->backward_chunk), (long long)c->backward_chunk, rounds, int32);
    snprintf(d->round, sizeof d->round, "#define LGH_THREADS %d\n", LGH__ROUND_THREADS);
}

static lgh_status load_kernels(lgh__chunked *e, const lgh_plan_options *o) {
    lgh__chunked_definitions definitions;
    lgh__chunked_define(&definitions, o, &e->config);
    const lgh__kernel_name stats = {"chunk_stats.cu", "chunk_stats_kernel", definitions.stats};
    const lgh__kernel_name dx = {"chunk_dx.cu", "chunk_dx_kernel", definitions.dx};
    const lgh__kernel_name round = {"round_rows.cu", "round_rows_kernel", definitions.round};
    FORWARD(lgh__cuda_kernel(e->cuda, &stats, &e->stats));
    FORWARD(lgh__cuda_kernel(e->cuda, &dx, &e->dx));
    return lgh__cuda_kernel(e->cuda, &round, &e->round);
}

/* The products' algorithms are chosen for so many tokens, not for a plan's blocks: plans that
 * differ in these alone are offered the same algorithms in the same order, and so give the same
 * bits. */
#define CHOICE_TOKENS 2048

/* The alignment of every row of a matrix with `width` elements of `size` bytes that starts at a
 * 16-byte boundary. */
static int row_alignment(int64_t width, size_t size) {
    int64_t bytes = width * (int64_t)size;
    int alignment = 16;
    while (bytes % alignment != 0)
        alignment /= 2;
    return alignment;
}

/* logits[tokens, chunk] = hidden weight^T */
static lgh__matmul logits_shape(const lgh_plan_options *o, int64_t tokens, int64_t chunk) {
    const int operands = row_alignment(o->hidden_size, 2);
    return (lgh__matmul){.m = tokens,
                         .n = chunk,
                         .k = o->hidden_size,
                         .b_transposed = 1,
                         .operands = LGH_BF16,
                         .result = LGH_FP32,
                         .a_stride = o->hidden_size,
                         .b_stride = o->hidden_size,
                         .c_stride = lgh__chunk_stride(chunk),
                         .a_alignment = operands,
                         .b_alignment = operands,
                         .c_alignment = 16};
}

/* dhidden[tokens, D] (+)= dx weight */
static lgh__matmul dhidden_shape(const lgh_plan_options *o, int64_t tokens, int64_t chunk,
                                 int64_t columns) {
    return (lgh__matmul){.m = tokens,
                         .n = o->hidden_size,
                         .k = columns,
                         .accumulate = 1,
                         .operands = LGH_BF16,
                         .result = LGH_FP32,
                         .a_stride = 2 * lgh__chunk_stride(chunk),
                         .b_stride = o->hidden_size,
                         .c_stride = o->hidden_size,
                         .a_alignment = 16,
                         .b_alignment = row_alignment(o->hidden_size, 2),
                         .c_alignment = row_alignment(o->hidden_size, 4)};
}

/* dweight[columns, D] (+)= dx^T hidden */
static lgh__matmul dweight_shape(const lgh_plan_options *o, int64_t tokens, int64_t chunk,
                                 int64_t columns) {
    lgh__matmul shape = dhidden_shape(o, columns, chunk, tokens);
    shape.a_transposed = 1;
    return shape;
}

typedef lgh__matmul (*shape_function)(const lgh_plan_options *, int64_t, int64_t, int64_t);

static lgh_status choose_pair(lgh__chunk_product *pair, lgh__trial *trial,
                              const lgh_plan_options *o, const lgh__chunked_config *c,
                              shape_function shape) {
    const int64_t last = o->vocab_size % c->backward_chunk;
    lgh__matmul s = shape(o, CHOICE_TOKENS, c->backward_chunk, c->backward_chunk);
    FORWARD(lgh__choose_product(&pair->whole, trial, &s, NULL));
    pair->last = pair->whole;
    if (last == 0)
        return LGH_SUCCESS;
    s = shape(o, CHOICE_TOKENS, c->backward_chunk, last);
    return lgh__choose_like(&pair->last, trial, &s, &pair->whole);
}

static int has_backward(const lgh_plan_options *o) {
    return o->dhidden_dtype != LGH_DTYPE_NONE || o->dweight_dtype != LGH_DTYPE_NONE;
}

static lgh_status choose_products(lgh__chunked *e, const lgh_plan_options *o, lgh__trial *trial) {
    const lgh__chunked_config *c = &e->config;
    lgh__matmul logits = logits_shape(o, CHOICE_TOKENS, c->forward_chunk);
    FORWARD(lgh__choose_product(&e->forward_logits, trial, &logits, NULL));
    if (!has_backward(o))
        return LGH_SUCCESS;
    logits = logits_shape(o, CHOICE_TOKENS, c->backward_chunk);
    FORWARD(lgh__choose_product(&e->backward_logits, trial, &logits, &e->forward_logits));
    if (o->dhidden_dtype != LGH_DTYPE_NONE)
        FORWARD(choose_pair(&e->dhidden, trial, o, c, dhidden_shape));
    if (o->dweight_dtype != LGH_DTYPE_NONE)
        FORWARD(choose_pair(&e->dweight, trial, o, c, dweight_shape));
    return LGH_SUCCESS;
}

/* Runs each row kernel on one row of scratch, so that the driver has loaded it. */
static lgh_status run_kernels(const lgh_plan *plan, const lgh__chunked *e, const lgh__trial *t) {
    const lgh__chunk chunk = {0, 1, 0, 1};
    const lgh__block block = {0, 1};
    float *scratch = t->c;
    const lgh_chunk_stats_params stats = {
        .place =
            lgh__chunk_place(plan, scratch, lgh__chunked_widest(&e->config), &chunk, NULL, block),
        .temperature = {NULL, 0, 1.0f},
        .is_first = 1,
        .is_last = 1,
        .lse = t->reference,
    };
    const lgh_chunk_dx_params dx = {
        .place = stats.place, .temperature = stats.temperature, .lse = t->reference};
    const lgh_round_rows_params round = {scratch, t->reference, 1, 1, 1};
    FORWARD(lgh__launch_stats(e, &stats, t->stream));
    FORWARD(lgh__launch_dx(e, &dx, t->stream));
    FORWARD(lgh__launch_round(e, &round, 1, t->stream));
    return lgh__driver_synchronize(t->stream);
}

static lgh_status open_trial(lgh__trial *trial, const lgh__chunked *e, const lgh_plan_options *o) {
    const lgh__chunked_config *c = &e->config;
    const int64_t widest = lgh__chunked_widest(c);
    const lgh__trial_sizes sizes = {
        .tokens = c->forward_block > c->backward_block ? c->forward_block : c->backward_block,
        .chunk = widest,
        .stride = lgh__chunk_stride(widest),
        .width = o->hidden_size,
    };
    return lgh__trial_open(trial, e->cuda, &sizes);
}

static lgh_status prepare_state(const lgh_plan *plan, lgh__chunked *e) {
    const lgh_plan_options *o = &plan->options;
    lgh__trial trial = {0};
    lgh_status status;
    FORWARD(lgh__chunked_config_choose(&e->config, o));
    if (o->max_tokens == 0)
        return LGH_SUCCESS; /* no call will ever enqueue anything */
    FORWARD(load_kernels(e, o));
    GOTO_IF(status, open_trial(&trial, e, o), close_trial);
    GOTO_IF(status, choose_products(e, o, &trial), close_trial);
    GOTO_IF(status, run_kernels(plan, e, &trial), close_trial);
close_trial:
    lgh__trial_close(&trial);
    return status;
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
    if (pass == LGH_PASS_FORWARD)
        return (lgh__workspace_need){lgh__chunked_forward_layout(&e->config, tokens).bytes, 0};
    if (!has_backward(&plan->options))
        return (lgh__workspace_need){0, 0};
    const lgh__backward_layout layout =
        lgh__chunked_backward_layout(&e->config, &plan->options, tokens);
    return (lgh__workspace_need){layout.bytes, layout.beyond_budget};
}

static lgh_status zero(const lgh_plan *plan, void *data, size_t rows, size_t row_bytes,
                       size_t stride_bytes, void *stream) {
    (void)plan;
    return lgh__driver_zero(data, rows, row_bytes, stride_bytes, stream);
}

static void describe(const lgh_plan *plan, lgh__text *text) {
    const lgh__chunked *e = plan->state;
    lgh__text_append(text, "arch = %s\ncublaslt = %zu\n", e->cuda->device.arch,
                     lgh__cublaslt_version());
    lgh__chunked_config_describe(&e->config, text);
    lgh__text_append(text, "logits_algorithms = %d %d\n", e->forward_logits.candidate,
                     e->backward_logits.candidate);
    lgh__text_append(text, "dhidden_algorithms = %d %d\n", e->dhidden.whole.candidate,
                     e->dhidden.last.candidate);
    lgh__text_append(text, "dweight_algorithms = %d %d\n", e->dweight.whole.candidate,
                     e->dweight.last.candidate);
}

const lgh__engine lgh__chunked_engine = {
    .name = "chunked",
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .forward = lgh__chunked_forward,
    .backward = lgh__chunked_backward,
    .zero = zero,
    .describe = describe,
};
