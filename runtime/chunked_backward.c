/* chunked_backward.c - the chunked engine's backward pass.
 *
 * Each step handles one token block and one vocabulary chunk: recompute the logits, turn them into
 * gradients in place, add the products to dhidden and dweight. Two loop orders: tokens outer, where
 * a chunk's FP32 dweight rows are added to for every block; vocabulary outer, where a chunk's rows
 * are finished before the next begins, for a BF16 dweight that is rounded once.
 */
#include "chunked_engine.h"

#include "error.h"
#include "row_launch.h"
#include "value.h"

/* What stays the same over a call. */
typedef struct backward_call {
    const lgh_plan *plan;
    const lgh__chunked *engine;
    const lgh_backward_args *args;
    float *logits;          /* of one step; then its gradients */
    float *dhidden_staging; /* where dhidden is BF16 */
    float *dweight_staging; /* where dweight is BF16 */
    void *stream;
} backward_call;

/* One step: a block, a chunk, and whether they are their loop's first or last. */
typedef struct step {
    lgh__block block;
    lgh__chunk chunk;
    int block_is_first, block_is_last;
} step;

/* Where FP32 sums go: rows of the caller's matrix, or of the staging. */
typedef struct sums {
    float *data;
    int64_t stride;
} sums;

/* In 16-bit elements: the gradients of a row lie where its FP32 logits did. */
static int64_t gradient_stride(const backward_call *c) {
    return 2 * lgh__chunk_stride(c->engine->config.backward_chunk);
}

static lgh_status recompute_logits(const backward_call *c, const step *s) {
    const lgh__chunked *e = c->engine;
    const lgh__operands operands = {
        .a = lgh__row_of(&c->args->hidden, s->block.first),
        .b = lgh__row_of(&c->args->weight, s->chunk.first - s->chunk.skip),
        .c = c->logits,
        .a_stride = c->args->hidden.row_stride,
        .b_stride = c->args->weight.row_stride,
        .c_stride = lgh__chunk_stride(e->config.backward_chunk)};
    return lgh__product_run(&e->backward_logits, e->cuda->cublaslt, s->block.tokens, 0, &operands,
                            c->stream);
}

static lgh_status differentiate(const backward_call *c, const step *s) {
    const lgh_backward_args *args = c->args;
    const int64_t first = s->block.first;
    const lgh_chunk_dx_params p = {
        .place = lgh__chunk_place(c->plan, c->logits, c->engine->config.backward_chunk, &s->chunk,
                                  args->targets, s->block),
        .temperature = lgh__device_value_at(args->temperature, first),
        .lse = args->lse + first,
        .entropy = lgh__value_present(args->grad_entropy) ? args->entropy + first : NULL,
        .grad_logp = lgh__device_value_at(args->grad_logp, first),
        .grad_entropy = lgh__device_value_at(args->grad_entropy, first),
        .grad_lse = lgh__device_value_at(args->grad_lse, first),
    };
    return lgh__launch_dx(c->engine, &p, c->stream);
}

static lgh_status round_rows(const backward_call *c, const float *from, const lgh_matrix *to,
                             int64_t first, int64_t rows) {
    const lgh_round_rows_params p = {
        .from = from,
        .to = (uint16_t *)to->data + first * to->row_stride,
        .from_stride = to->columns,
        .to_stride = to->row_stride,
        .columns = to->columns,
    };
    return lgh__launch_round(c->engine, &p, rows, c->stream);
}

static sums dhidden_sums(const backward_call *c, const step *s) {
    const lgh_matrix *to = &c->args->dhidden;
    if (!c->dhidden_staging)
        return (sums){(float *)to->data + s->block.first * to->row_stride, to->row_stride};
    const int64_t row = c->engine->config.vocab_outer ? s->block.first : 0;
    return (sums){c->dhidden_staging + row * to->columns, to->columns};
}

static lgh_status add_dhidden(const backward_call *c, const step *s) {
    const lgh__chunked *e = c->engine;
    const sums to = dhidden_sums(c, s);
    const lgh__operands operands = {.a = c->logits,
                                    .b = lgh__row_of(&c->args->weight, s->chunk.first),
                                    .c = to.data,
                                    .a_stride = gradient_stride(c),
                                    .b_stride = c->args->weight.row_stride,
                                    .c_stride = to.stride};
    FORWARD(lgh__product_run(lgh__chunk_product_of(&e->dhidden, &s->chunk), e->cuda->cublaslt,
                             s->block.tokens, s->chunk.first > 0, &operands, c->stream));
    if (c->dhidden_staging && s->chunk.is_last)
        return round_rows(c, to.data, &c->args->dhidden, s->block.first, s->block.tokens);
    return LGH_SUCCESS;
}

static sums dweight_sums(const backward_call *c, const step *s) {
    const lgh_matrix *to = &c->args->dweight;
    if (c->dweight_staging)
        return (sums){c->dweight_staging, to->columns};
    return (sums){(float *)to->data + s->chunk.first * to->row_stride, to->row_stride};
}

static lgh_status add_dweight(const backward_call *c, const step *s) {
    const lgh__chunked *e = c->engine;
    const sums to = dweight_sums(c, s);
    const int accumulate = !s->block_is_first || c->args->accumulate_dweight;
    const lgh__operands operands = {.a = c->logits,
                                    .b = lgh__row_of(&c->args->hidden, s->block.first),
                                    .c = to.data,
                                    .a_stride = gradient_stride(c),
                                    .b_stride = c->args->hidden.row_stride,
                                    .c_stride = to.stride};
    FORWARD(lgh__product_run(lgh__chunk_product_of(&e->dweight, &s->chunk), e->cuda->cublaslt,
                             s->block.tokens, accumulate, &operands, c->stream));
    if (c->dweight_staging && s->block_is_last)
        return round_rows(c, to.data, &c->args->dweight, s->chunk.first, s->chunk.columns);
    return LGH_SUCCESS;
}

static lgh_status run_step(const backward_call *c, const step *s) {
    FORWARD(recompute_logits(c, s));
    FORWARD(differentiate(c, s));
    if (c->args->dhidden.data)
        FORWARD(add_dhidden(c, s));
    if (c->args->dweight.data)
        FORWARD(add_dweight(c, s));
    return LGH_SUCCESS;
}

static step step_at(const backward_call *c, int64_t block_tokens, int64_t token, int64_t entry) {
    const int64_t tokens = c->args->hidden.rows;
    return (step){
        .block = lgh__block_at(tokens, block_tokens, token),
        .chunk =
            lgh__chunk_at(c->plan->options.vocab_size, c->engine->config.backward_chunk, entry),
        .block_is_first = token == 0,
        .block_is_last = token + block_tokens >= tokens,
    };
}

/* Visits every step; `outer` and `inner` count tokens or vocabulary entries. */
static lgh_status run_steps(const backward_call *c) {
    const int vocab_outer = c->engine->config.vocab_outer;
    const int64_t tokens = c->args->hidden.rows, vocab_size = c->plan->options.vocab_size;
    const int64_t block = lgh__token_block(tokens, c->engine->config.backward_block);
    const int64_t chunk = c->engine->config.backward_chunk;
    const int64_t outer_end = vocab_outer ? vocab_size : tokens;
    const int64_t inner_end = vocab_outer ? tokens : vocab_size;
    for (int64_t outer = 0; outer < outer_end; outer += vocab_outer ? chunk : block)
        for (int64_t inner = 0; inner < inner_end; inner += vocab_outer ? block : chunk) {
            const step s =
                step_at(c, block, vocab_outer ? inner : outer, vocab_outer ? outer : inner);
            FORWARD(run_step(c, &s));
        }
    return LGH_SUCCESS;
}

lgh_status lgh__chunked_backward(const lgh_plan *plan, const lgh_backward_args *args,
                                 void *workspace, void *stream) {
    const lgh__chunked *e = plan->state;
    const lgh_plan_options *o = &plan->options;
    const lgh__backward_layout layout =
        lgh__chunked_backward_layout(&e->config, o, args->hidden.rows);
    char *base = workspace;
    const backward_call call = {
        .plan = plan,
        .engine = e,
        .args = args,
        .logits = (float *)(base + layout.logits),
        .dhidden_staging = o->dhidden_dtype == LGH_BF16 ? (float *)(base + layout.dhidden) : NULL,
        .dweight_staging = o->dweight_dtype == LGH_BF16 ? (float *)(base + layout.dweight) : NULL,
        .stream = stream,
    };
    return run_steps(&call);
}
