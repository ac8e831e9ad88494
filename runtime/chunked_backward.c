/* chunked_backward.c - the chunked engine's backward pass.
 *
 * Each step handles one token block and one vocabulary chunk: recompute the logits, turn them into
 * gradients in place, add the products to dhidden, dweight and dbias. Two loop orders: tokens
 * outer, where a chunk's FP32 dweight rows are added to for every block; vocabulary outer, where a
 * chunk's rows are finished before the next begins, for a 16-bit dweight that is rounded once.
 */
#include "chunked_engine.h"

#include "chunked_kernels.h"
#include "error.h"
#include "value.h"

#include <math.h>

/* What stays the same over a call. */
typedef struct backward_call {
    lgh__row_call rows;
    const lgh_backward_args *args;
    float *logits;             /* of one step; then its gradients */
    void *hidden;              /* room for a block's gathered rows */
    const float *biases;       /* or NULL */
    lgh_gradient_scale *scale; /* of dweight's product where gradients are FP16, else NULL */
    void *scaled_hidden;       /* room for a block's rows */
    float *dhidden_staging;    /* or NULL */
    float *dweight_staging;    /* or NULL */
} backward_call;

/* One step: a block with its rows of hidden, and a chunk. */
typedef struct step {
    lgh__block block;
    lgh__chunk chunk;
    lgh_const_matrix hidden;
    lgh_const_matrix scaled_hidden; /* the same as hidden without a scale */
    int block_is_first, block_is_last;
} step;

/* Where FP32 sums go: rows of the caller's matrix, or of the staging. */
typedef struct sums {
    float *data;
    int64_t stride;
} sums;

static int64_t gradient_stride(const backward_call *c) {
    return lgh__gradient_stride(&c->rows.plan->options, c->rows.engine->config.backward_chunk);
}

static int has_fp16_gradients(const backward_call *c) {
    return c->rows.plan->options.weight_dtype == LGH_FP16;
}

/* |p (ln p + H)| <= 1 + ln V, since |p ln p| <= 1/e and H <= ln V. */
static lgh_token_gradients token_gradients(const backward_call *c) {
    const lgh_backward_args *a = c->args;
    return (lgh_token_gradients){
        .grad_logp = lgh__device_value(a->grad_logp),
        .grad_entropy = lgh__device_value(a->grad_entropy),
        .grad_lse = lgh__device_value(a->grad_lse),
        .temperature = lgh__device_value(a->temperature),
        .entropy_weight = 1.0f + logf((float)c->rows.plan->options.vocab_valid),
    };
}

static lgh_status recompute_logits(const backward_call *c, const step *s) {
    const lgh__chunked *e = c->rows.engine;
    const int64_t stride = lgh__chunk_stride(e->config.backward_chunk);
    const int64_t index = s->chunk.first / e->config.backward_chunk;
    const lgh_const_matrix *weight = &c->args->weight;
    const lgh__run run = {
        .tokens = s->block.rows,
        .a_stride = s->hidden.row_stride,
        .b_stride = weight->row_stride,
        .c_stride = stride,
        .operands = {.a = s->hidden.data,
                     .b = lgh__row_of(weight, s->chunk.first - s->chunk.skip),
                     .c = c->logits,
                     .bias = c->biases ? c->biases + index * stride : NULL},
    };
    return lgh__product_run(&e->backward_logits, e->cuda->cublaslt, &run, c->rows.stream);
}

static lgh_status differentiate(const backward_call *c, const step *s) {
    const lgh_backward_args *args = c->args;
    const lgh_chunk_dx_params p = {
        .place = lgh__chunk_place(&c->rows, c->logits, c->rows.engine->config.backward_chunk,
                                  &s->chunk, s->block),
        .softmax_for_foreign = c->rows.plan->options.oov_policy == LGH_OOV_SOFTMAX,
        .lse = args->lse,
        .entropy = lgh__value_present(args->grad_entropy) ? args->entropy : NULL,
        .gradients = token_gradients(c),
    };
    return lgh__launch_dx(&c->rows, &p);
}

/* A product of this step's gradients, of `b` and into `to`; `scale` holds its factors, or NULL. */
static lgh_status add_product(const backward_call *c, const step *s, const lgh__product *product,
                              const void *b, int64_t b_stride, sums to, int accumulate,
                              const lgh_gradient_scale *scale) {
    const lgh__run run = {
        .tokens = s->block.rows,
        .accumulate = accumulate,
        .a_stride = gradient_stride(c),
        .b_stride = b_stride,
        .c_stride = to.stride,
        .operands = {.a = c->logits,
                     .b = b,
                     .c = to.data,
                     .alpha = scale ? &scale->inverse : NULL,
                     .beta = !scale       ? NULL
                             : accumulate ? &scale->one
                                          : &scale->zero},
    };
    return lgh__product_run(product, c->rows.engine->cuda->cublaslt, &run, c->rows.stream);
}

static sums dhidden_sums(const backward_call *c, const step *s) {
    const lgh_matrix *to = &c->args->dhidden;
    if (!c->dhidden_staging)
        return (sums){(float *)to->data + s->block.first * to->row_stride, to->row_stride};
    const int64_t row = c->rows.engine->config.vocab_outer ? s->block.first : 0;
    const int64_t stride = lgh__row_pitch(&c->rows.plan->options, LGH_FP32);
    return (sums){c->dhidden_staging + row * stride, stride};
}

/* Rounds the sums into place and takes the power of two of FP16 gradients out of them, where either
 * is needed, and marks the rows of invalid temperatures. */
static lgh_status finish_dhidden(const backward_call *c, lgh__block block, const sums *summed) {
    const lgh_matrix *to = &c->args->dhidden;
    const int moves = summed && (c->dhidden_staging || has_fp16_gradients(c));
    if (!moves && !c->rows.temperature.data)
        return LGH_SUCCESS;
    const lgh_finish_rows_params p = {
        .from = moves ? summed->data : NULL,
        .to = to->data,
        .from_stride = moves ? summed->stride : 0,
        .to_stride = to->row_stride,
        .columns = to->columns,
        .block = lgh__block_rows(&c->rows, block),
        .targets = lgh__token_targets(&c->rows),
        .is_scaled = has_fp16_gradients(c),
        .gradients = token_gradients(c),
    };
    return lgh__launch_finish_dhidden(&c->rows, &p);
}

static lgh_status add_dhidden(const backward_call *c, const step *s) {
    const lgh_const_matrix *weight = &c->args->weight;
    const sums to = dhidden_sums(c, s);
    FORWARD(add_product(c, s, lgh__chunk_product_of(&c->rows.engine->dhidden, &s->chunk),
                        lgh__row_of(weight, s->chunk.first), weight->row_stride, to,
                        s->chunk.first > 0, NULL));
    return s->chunk.is_last ? finish_dhidden(c, s->block, &to) : LGH_SUCCESS;
}

static sums dweight_sums(const backward_call *c, const step *s) {
    const lgh_matrix *to = &c->args->dweight;
    if (c->dweight_staging)
        return (sums){c->dweight_staging, lgh__row_pitch(&c->rows.plan->options, LGH_FP32)};
    return (sums){(float *)to->data + s->chunk.first * to->row_stride, to->row_stride};
}

static lgh_status finish_dweight(const backward_call *c, const step *s, sums from) {
    const lgh_matrix *to = &c->args->dweight;
    const lgh_finish_rows_params p = {
        .from = from.data,
        .to = (char *)to->data +
              (size_t)(s->chunk.first * to->row_stride) * lgh_dtype_size(to->dtype),
        .from_stride = from.stride,
        .to_stride = to->row_stride,
        .columns = to->columns,
        .block = {.rows = s->chunk.columns},
        .gradients = {.temperature = {.host = 1.0f}},
    };
    return lgh__launch_finish_dweight(&c->rows, &p);
}

static lgh_status add_dweight(const backward_call *c, const step *s) {
    const sums to = dweight_sums(c, s);
    const int accumulate = !s->block_is_first || c->args->accumulate_dweight;
    FORWARD(add_product(c, s, lgh__chunk_product_of(&c->rows.engine->dweight, &s->chunk),
                        s->scaled_hidden.data, s->scaled_hidden.row_stride, to, accumulate,
                        c->scale));
    if (c->dweight_staging && s->block_is_last)
        return finish_dweight(c, s, to);
    return LGH_SUCCESS;
}

static lgh_status add_dbias(const backward_call *c, const step *s) {
    const lgh_column_sums_params p = {
        .dx = c->logits,
        .stride = gradient_stride(c),
        .columns = (int)s->chunk.columns,
        .accumulate = !s->block_is_first || c->args->accumulate_dbias,
        .sums = c->args->dbias + s->chunk.first,
        .block = lgh__block_rows(&c->rows, s->block),
        .gradients = token_gradients(c),
    };
    return lgh__launch_column_sums(&c->rows, &p);
}

static lgh_status run_step(const backward_call *c, const step *s) {
    FORWARD(recompute_logits(c, s));
    FORWARD(differentiate(c, s));
    if (c->args->dhidden.data)
        FORWARD(add_dhidden(c, s));
    if (c->args->dweight.data)
        FORWARD(add_dweight(c, s));
    if (c->args->dbias)
        FORWARD(add_dbias(c, s));
    return LGH_SUCCESS;
}

/* The block's rows of hidden for dweight's product. */
static lgh_status scale_hidden(const backward_call *c, step *s) {
    s->scaled_hidden = s->hidden;
    if (!c->scale)
        return LGH_SUCCESS;
    lgh_gather_rows_params p =
        lgh__gather_rows(&c->rows, &c->args->hidden, s->block, c->scaled_hidden, &s->scaled_hidden);
    p.scale = c->scale;
    p.gradients = token_gradients(c);
    return lgh__launch_gather(&c->rows, &p);
}

/* Moves to the step of a block and a chunk; a block that it was not at yet is gathered. */
static lgh_status go_to(step *s, const backward_call *c, int64_t block_rows, int64_t position,
                        int64_t column) {
    const int64_t positions = lgh__positions(&c->rows);
    const int64_t entries = lgh__valid_entries(&c->rows.plan->options);
    const int is_new = !s->hidden.data || s->block.first != position;
    s->block = lgh__block_at(positions, block_rows, position);
    s->chunk = lgh__chunk_at(entries, c->rows.engine->config.backward_chunk, column);
    s->block_is_first = position == 0;
    s->block_is_last = position + block_rows >= positions;
    if (!is_new)
        return LGH_SUCCESS;
    FORWARD(lgh__block_hidden(&c->rows, &c->args->hidden, s->block, c->hidden, &s->hidden));
    return scale_hidden(c, s);
}

/* Visits every step; `outer` and `inner` count positions or columns. */
static lgh_status run_steps(const backward_call *c) {
    const int vocab_outer = c->rows.engine->config.vocab_outer;
    const int64_t positions = lgh__positions(&c->rows);
    const int64_t entries = lgh__valid_entries(&c->rows.plan->options);
    const int64_t block = lgh__token_block(positions, c->rows.engine->config.backward_block);
    const int64_t chunk = c->rows.engine->config.backward_chunk;
    const int64_t outer_end = vocab_outer ? entries : positions;
    const int64_t inner_end = vocab_outer ? positions : entries;
    step s = {.hidden.data = NULL};
    for (int64_t outer = 0; outer < outer_end; outer += vocab_outer ? chunk : block)
        for (int64_t inner = 0; inner < inner_end; inner += vocab_outer ? block : chunk) {
            FORWARD(go_to(&s, c, block, vocab_outer ? inner : outer, vocab_outer ? outer : inner));
            FORWARD(run_step(c, &s));
        }
    return LGH_SUCCESS;
}

/* A shard without entries has no gradients, but its rows are counted and marked all the same. */
static lgh_status run_empty(const backward_call *c) {
    static const lgh__chunk empty = {0, 0, 0, 1};
    const int64_t positions = lgh__positions(&c->rows);
    const int64_t block = lgh__token_block(positions, c->rows.engine->config.backward_block);
    for (int64_t first = 0; first < positions; first += block) {
        const step s = {.block = lgh__block_at(positions, block, first), .chunk = empty};
        FORWARD(differentiate(c, &s));
        if (c->args->dhidden.data)
            FORWARD(finish_dhidden(c, s.block, NULL));
    }
    return LGH_SUCCESS;
}

static lgh_status zero_rows(const lgh_matrix *m, int64_t first, void *stream) {
    const size_t element = lgh_dtype_size(m->dtype);
    if (!m->data || first >= m->rows)
        return LGH_SUCCESS;
    return lgh__driver_fill((char *)m->data + (size_t)(first * m->row_stride) * element, 0,
                            (size_t)(m->rows - first), (size_t)m->columns * element,
                            (size_t)m->row_stride * element, stream);
}

/* What no step writes: rows of dhidden outside the live list, padding of dweight and dbias, and all
 * of a result where there is no step at all. */
static lgh_status zero_rest(const backward_call *c) {
    const lgh_backward_args *a = c->args;
    const int64_t vocab_size = c->rows.plan->options.vocab_size;
    const int64_t entries = lgh__valid_entries(&c->rows.plan->options);
    const int64_t written = lgh__positions(&c->rows) > 0 ? entries : 0;
    const size_t padding = (size_t)(vocab_size - written) * sizeof(float);
    if (c->rows.live.rows || entries == 0)
        FORWARD(zero_rows(&a->dhidden, 0, c->rows.stream));
    if (!a->accumulate_dweight)
        FORWARD(zero_rows(&a->dweight, written, c->rows.stream));
    if (a->dbias && !a->accumulate_dbias && padding > 0)
        FORWARD(lgh__driver_fill(a->dbias + written, 0, 1, padding, padding, c->rows.stream));
    return LGH_SUCCESS;
}

/* The power of two of this call's largest gradients, where dweight needs it. */
static lgh_status choose_scale(const backward_call *c) {
    const lgh_plan_options *o = &c->rows.plan->options;
    const lgh__block all = {0, lgh__positions(&c->rows)};
    if (!c->scale)
        return LGH_SUCCESS;
    const lgh_gradient_scale_params p = {
        .scale = c->scale,
        .rows = lgh__block_rows(&c->rows, all),
        .targets = lgh__token_targets(&c->rows),
        .vocab_valid = o->vocab_valid,
        .softmax_for_foreign = o->oov_policy == LGH_OOV_SOFTMAX,
        .gradients = token_gradients(c),
    };
    return lgh__launch_gradient_scale(&c->rows, &p);
}

lgh_status lgh__chunked_backward(const lgh_plan *plan, const lgh_backward_args *args,
                                 void *workspace, void *stream) {
    const lgh__chunked *e = plan->state;
    const lgh_plan_options *o = &plan->options;
    const lgh__backward_layout layout =
        lgh__chunked_backward_layout(&e->config, o, args->hidden.rows);
    char *base = workspace;
    const int stages_dweight = lgh_dtype_size(o->dweight_dtype) == 2;
    backward_call call = {
        .rows = {plan, e, args->hidden.rows, args->targets, args->temperature, args->live,
                 args->counters, stream},
        .args = args,
        .logits = (float *)(base + layout.logits),
        .hidden = base + layout.hidden,
        .scaled_hidden = base + layout.scaled,
        .dhidden_staging = e->config.stages_dhidden ? (float *)(base + layout.dhidden) : NULL,
        .dweight_staging = stages_dweight ? (float *)(base + layout.dweight) : NULL,
    };
    if (e->config.scales_hidden && args->dweight.data)
        call.scale = (lgh_gradient_scale *)(base + layout.scale);
    FORWARD(zero_rest(&call));
    FORWARD(choose_scale(&call));
    if (lgh__valid_entries(o) == 0)
        return run_empty(&call);
    FORWARD(lgh__chunk_biases(&call.rows, args->bias, e->config.backward_chunk, base + layout.bias,
                              &call.biases));
    return run_steps(&call);
}
