/* chunked_products.c - the chunked engine's matrix products: their shapes, and the choice of their
 * algorithms. */
#include "chunked_engine.h"

#include "choice.h"
#include "chunked_kernels.h"
#include "error.h"

/* logits[tokens, chunk] = hidden weight^T (+ bias) */
static lgh__matmul logits_shape(const lgh_plan_options *o, int64_t tokens, int64_t chunk) {
    const int operands = lgh__row_alignment(o, o->hidden_size, o->weight_dtype);
    return (lgh__matmul){.m = tokens,
                         .n = chunk,
                         .k = o->hidden_size,
                         .b_transposed = 1,
                         .has_bias = o->bias_dtype != LGH_DTYPE_NONE,
                         .operands = o->weight_dtype,
                         .result = LGH_FP32,
                         .a_stride = lgh__row_pitch(o, o->weight_dtype),
                         .b_stride = lgh__row_pitch(o, o->weight_dtype),
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
                         .operands = o->weight_dtype,
                         .result = LGH_FP32,
                         .a_stride = lgh__gradient_stride(o, chunk),
                         .b_stride = lgh__row_pitch(o, o->weight_dtype),
                         .c_stride = lgh__row_pitch(o, LGH_FP32),
                         .a_alignment = 16,
                         .b_alignment = lgh__row_alignment(o, o->hidden_size, o->weight_dtype),
                         .c_alignment = lgh__row_alignment(o, o->hidden_size, LGH_FP32)};
}

/* dweight[columns, D] (+)= dx^T hidden */
static lgh__matmul dweight_shape(const lgh_plan_options *o, int64_t tokens, int64_t chunk,
                                 int64_t columns) {
    lgh__matmul shape = dhidden_shape(o, columns, chunk, tokens);
    shape.a_transposed = 1;
    shape.scales = o->weight_dtype == LGH_FP16;
    return shape;
}

typedef lgh__matmul (*shape_function)(const lgh_plan_options *, int64_t, int64_t, int64_t);

/* Chooses, or takes what the configuration names for `key`. */
static lgh_status choose(lgh__product *product, lgh__trial *trial, const lgh_plan_options *o,
                         const lgh__matmul *shape, const lgh__product *twin, const char *key) {
    if (!o->configuration)
        return lgh__choose_product(product, trial, shape, twin);
    return lgh__choose_named(product, trial, shape, twin, o->configuration, key);
}

static lgh_status choose_last(lgh__chunk_product *pair, lgh__trial *trial,
                              const lgh_plan_options *o, const lgh__matmul *shape,
                              const char *key) {
    if (o->configuration)
        return choose(&pair->last, trial, o, shape, NULL, key);
    return lgh__choose_like(&pair->last, trial, shape, &pair->whole);
}

static lgh_status choose_pair(lgh__chunk_product *pair, lgh__trial *trial,
                              const lgh_plan_options *o, const lgh__chunked_config *c,
                              shape_function shape, const char *key, const char *last_key) {
    const int64_t last = lgh__valid_entries(o) % c->backward_chunk;
    lgh__matmul s = shape(o, LGH__TRIAL_TOKENS, c->backward_chunk, c->backward_chunk);
    FORWARD(choose(&pair->whole, trial, o, &s, NULL, key));
    pair->last = pair->whole;
    if (last == 0)
        return LGH_SUCCESS;
    s = shape(o, LGH__TRIAL_TOKENS, c->backward_chunk, last);
    return choose_last(pair, trial, o, &s, last_key);
}

static lgh_status choose_all(lgh__chunked *e, const lgh_plan_options *o, lgh__trial *trial) {
    const lgh__chunked_config *c = &e->config;
    lgh__matmul logits = logits_shape(o, LGH__TRIAL_TOKENS, c->forward_chunk);
    FORWARD(choose(&e->forward_logits, trial, o, &logits, NULL, "forward_logits"));
    if (!lgh__has_backward(o))
        return LGH_SUCCESS;
    /* The backward pass must see the logits that lse and entropy came from. */
    logits = logits_shape(o, LGH__TRIAL_TOKENS, c->backward_chunk);
    FORWARD(choose(&e->backward_logits, trial, o, &logits, &e->forward_logits, "backward_logits"));
    if (o->dhidden_dtype != LGH_DTYPE_NONE)
        FORWARD(choose_pair(&e->dhidden, trial, o, c, dhidden_shape, "dhidden_product",
                            "dhidden_last"));
    if (o->dweight_dtype != LGH_DTYPE_NONE)
        FORWARD(choose_pair(&e->dweight, trial, o, c, dweight_shape, "dweight_product",
                            "dweight_last"));
    return LGH_SUCCESS;
}

/* Runs each row kernel once on scratch, so that the driver has loaded it. */
static lgh_status run_kernels(const lgh_plan *plan, const lgh__chunked *e, const lgh__trial *t) {
    static const lgh__chunk chunk = {0, 1, 0, 1};
    static const lgh__block block = {0, 1};
    static const lgh_value one = {NULL, 0, 1.0f};
    const lgh__chunked_kernels *k = &e->kernels;
    const lgh__row_call call = {
        .plan = plan, .engine = e, .tokens = 1, .temperature = one, .stream = t->stream};
    const lgh_chunk_stats_params stats = {
        .place = lgh__chunk_place(&call, t->c, lgh__chunked_widest(&e->config), &chunk, block),
        .lse = t->reference,
    };
    const lgh_chunk_dx_params dx = {.place = stats.place, .lse = t->reference};
    const lgh_finish_rows_params finish = {.from = t->c,
                                           .to = t->reference,
                                           .columns = 1,
                                           .block = stats.place.block,
                                           .gradients = {.temperature = stats.place.temperature}};
    const lgh_gather_rows_params gather = {
        .from = t->b, .to = t->c, .columns = 1, .block = stats.place.block};
    const lgh_widen_bias_params widen = {
        .bias = t->bias, .to = t->c, .stride = 8, .chunk = 1, .shard_size = 1};
    const lgh_column_sums_params sums = {
        .dx = t->b, .stride = 1, .columns = 1, .sums = t->c, .block = stats.place.block};
    const lgh_gradient_scale_params scale = {
        .scale = t->scalars, .rows = stats.place.block, .gradients = finish.gradients};
    const lgh_live_rows_params live = {
        .targets = t->b, .tokens = 0, .rows = t->c, .count = t->reference};
    /* Without entries no product has written there. */
    FORWARD(lgh__driver_fill(t->c, 0, 1, 32, 32, t->stream));
    FORWARD(lgh__launch_stats(&call, &stats));
    if (k->dx)
        FORWARD(lgh__launch_dx(&call, &dx));
    if (k->finish_dhidden)
        FORWARD(lgh__launch_finish_dhidden(&call, &finish));
    if (k->finish_dweight)
        FORWARD(lgh__launch_finish_dweight(&call, &finish));
    if (k->gather)
        FORWARD(lgh__launch_gather(&call, &gather));
    if (k->widen_bias)
        FORWARD(lgh__launch_widen_bias(&call, &widen));
    if (k->column_sums)
        FORWARD(lgh__launch_column_sums(&call, &sums));
    if (k->gradient_scale)
        FORWARD(lgh__launch_gradient_scale(&call, &scale));
    if (k->live_rows)
        FORWARD(lgh__launch_live_rows(&call, &live));
    return lgh__driver_synchronize(t->stream);
}

static lgh_status open_trial(lgh__trial *trial, const lgh__chunked *e, const lgh_plan_options *o) {
    const lgh__chunked_config *c = &e->config;
    const int64_t widest = lgh__chunked_widest(c);
    const int64_t operand = lgh__row_pitch(o, o->weight_dtype), sum = lgh__row_pitch(o, LGH_FP32);
    const lgh__trial_sizes sizes = {
        .tokens = c->forward_block > c->backward_block ? c->forward_block : c->backward_block,
        .chunk = widest,
        .stride = lgh__chunk_stride(widest),
        .width = operand > sum ? operand : sum,
        .operands = o->weight_dtype,
    };
    return lgh__trial_open(trial, e->cuda, &sizes);
}

lgh_status lgh__chunked_choose_products(lgh__chunked *e, const lgh_plan *plan) {
    const lgh_plan_options *o = &plan->options;
    lgh__trial trial = {0};
    lgh_status status;
    GOTO_IF(status, open_trial(&trial, e, o), close_trial);
    if (lgh__valid_entries(o) > 0)
        GOTO_IF(status, choose_all(e, o, &trial), close_trial);
    GOTO_IF(status, run_kernels(plan, e, &trial), close_trial);
close_trial:
    lgh__trial_close(&trial);
    return status;
}

static void describe(const char *key, const lgh__product *product, lgh__text *text) {
    char algorithm[LGH__ALGORITHM_TEXT];
    lgh__algorithm_write(algorithm, &product->algorithm);
    lgh__text_append(text, "%s = %s\n", key, algorithm);
}

void lgh__chunked_describe_products(const lgh__chunked *e, const lgh_plan_options *o,
                                    lgh__text *text) {
    if (lgh__valid_entries(o) == 0 || o->max_tokens == 0)
        return;
    describe("forward_logits", &e->forward_logits, text);
    if (lgh__has_backward(o))
        describe("backward_logits", &e->backward_logits, text);
    if (o->dhidden_dtype != LGH_DTYPE_NONE) {
        describe("dhidden_product", &e->dhidden.whole, text);
        describe("dhidden_last", &e->dhidden.last, text);
    }
    if (o->dweight_dtype != LGH_DTYPE_NONE) {
        describe("dweight_product", &e->dweight.whole, text);
        describe("dweight_last", &e->dweight.last, text);
    }
}
