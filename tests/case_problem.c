/* case_problem.c - the host's part of a problem: what it is about and what its operands are. */
#include "case_problem.h"

#include <stdlib.h>
#include <string.h>

#include "value.h"

case_problem case_of(int64_t tokens, int64_t hidden_size, int64_t vocab_size) {
    case_problem p = {.options = LGH_PLAN_OPTIONS_INIT, .tokens = tokens, .temperature = 1.0f};
    p.options.hidden_size = hidden_size;
    p.options.vocab_size = vocab_size;
    p.options.max_tokens = tokens;
    p.options.outputs = LGH_OUTPUT_ALL;
    return p;
}

const lgh_dtype *case_operand_dtypes(void) {
    static const lgh_dtype dtypes[] = {LGH_BF16, LGH_FP16, LGH_FP32, LGH_DTYPE_NONE};
    return dtypes;
}

void case_set_operands(case_problem *p, lgh_dtype dtype) {
    p->options.hidden_dtype = p->options.weight_dtype = dtype;
}

void case_set_mixed_operands(case_problem *p) {
    p->options.hidden_dtype = LGH_BF16;
    p->options.weight_dtype = LGH_FP32;
}

void case_set_results(case_problem *p, lgh_dtype dtype) {
    lgh_plan_options *o = &p->options;
    o->dhidden_dtype = dtype == LGH_FP32 ? LGH_FP32 : o->hidden_dtype;
    o->dweight_dtype = dtype == LGH_FP32 ? LGH_FP32 : o->weight_dtype;
}

void case_set_bias_dtype(case_problem *p, lgh_dtype dtype) {
    p->options.bias_dtype = dtype;
    p->options.dbias_dtype = dtype == LGH_DTYPE_NONE ? LGH_DTYPE_NONE : LGH_FP32;
}

/* ---- Memory -------------------------------------------------------------------------------- */

static void *allocate(int64_t count, size_t size) {
    void *memory = calloc(count > 0 ? (size_t)count : 1, size);
    assert_non_null(memory);
    return memory;
}

static float *allocate_ones(int64_t tokens) {
    float *values = allocate(tokens, sizeof *values);
    for (int64_t i = 0; i < tokens; i++)
        values[i] = 1.0f;
    return values;
}

static void open_inputs(case_problem *p) {
    const lgh_plan_options *o = &p->options;
    const int64_t tokens = o->max_tokens, weights = o->vocab_size * o->hidden_size;
    p->hidden = allocate(tokens * o->hidden_size, lgh_dtype_size(o->hidden_dtype));
    p->weight = allocate(weights, lgh_dtype_size(o->weight_dtype));
    if (o->bias_dtype != LGH_DTYPE_NONE)
        p->bias = allocate(o->vocab_size, lgh_dtype_size(o->bias_dtype));
    p->targets = allocate(tokens, sizeof *p->targets);
    p->temperatures.values = allocate_ones(tokens);
    p->live.rows = allocate(tokens, sizeof *p->live.rows);
    p->dweight_start = allocate(weights, sizeof(float));
    p->dbias_start = allocate(o->vocab_size, sizeof(float));
    p->grad_logp.values = allocate_ones(tokens);
    p->grad_entropy.values = allocate_ones(tokens);
    p->grad_lse.values = allocate_ones(tokens);
}

void case_open(case_problem *p) {
    const lgh_plan_options *o = &p->options;
    const int64_t tokens = o->max_tokens;
    open_inputs(p);
    p->logp = allocate(tokens, sizeof(float));
    p->lse = allocate(tokens, sizeof(float));
    p->entropy = allocate(tokens, sizeof(float));
    p->logp_at_one = allocate(tokens, sizeof(float));
    p->best = allocate(tokens, sizeof *p->best);
    p->dhidden = allocate(tokens * o->hidden_size, sizeof(float));
    p->dweight = allocate(o->vocab_size * o->hidden_size, sizeof(float));
    p->dbias = allocate(o->vocab_size, sizeof(float));
}

void case_close(case_problem *p) {
    void *const host[] = {p->hidden,
                          p->weight,
                          p->bias,
                          p->targets,
                          p->temperatures.values,
                          p->live.rows,
                          p->dweight_start,
                          p->dbias_start,
                          p->grad_logp.values,
                          p->grad_entropy.values,
                          p->grad_lse.values,
                          p->logp,
                          p->lse,
                          p->entropy,
                          p->logp_at_one,
                          p->best,
                          p->dhidden,
                          p->dweight,
                          p->dbias};
    case_close_buffers(p);
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        free(host[i]);
    lgh_plan_destroy(p->plan);
    memset(p, 0, sizeof *p);
}

/* ---- Operands ------------------------------------------------------------------------------ */

static void set_element(void *array, lgh_dtype dtype, int64_t i, double value) {
    if (dtype == LGH_FP32)
        ((float *)array)[i] = (float)value;
    else if (dtype == LGH_BF16)
        ((uint16_t *)array)[i] = lgh__bf16_from_float((float)value);
    else
        ((uint16_t *)array)[i] = lgh__fp16_from_float((float)value);
}

void case_set_hidden(case_problem *p, int64_t token, int64_t k, double value) {
    set_element(p->hidden, p->options.hidden_dtype, token * p->options.hidden_size + k, value);
}

void case_set_weight(case_problem *p, int64_t entry, int64_t k, double value) {
    set_element(p->weight, p->options.weight_dtype, entry * p->options.hidden_size + k, value);
}

void case_set_bias(case_problem *p, int64_t entry, double value) {
    set_element(p->bias, p->options.bias_dtype, entry, value);
}

static void fill_normal(lgh_random *random, void *matrix, lgh_dtype dtype, int64_t count,
                        double scale) {
    for (int64_t i = 0; i < count; i++)
        set_element(matrix, dtype, i, scale * lgh_random_normal(random));
}

void case_fill_gradient(case_gradient *gradient, case_form form, uint64_t seed, int64_t count) {
    lgh_random random = {seed};
    gradient->form = form;
    lgh_random_fill_fp32(&random, gradient->values, (size_t)count, 1.0);
}

void case_fill(case_problem *p, uint64_t seed, double hidden_scale, double weight_scale) {
    const lgh_plan_options *o = &p->options;
    lgh_random random = {seed};
    fill_normal(&random, p->hidden, o->hidden_dtype, o->max_tokens * o->hidden_size, hidden_scale);
    fill_normal(&random, p->weight, o->weight_dtype, o->vocab_size * o->hidden_size, weight_scale);
    for (int64_t i = 0; i < o->max_tokens; i++)
        p->targets[i] = o->vocab_start + lgh_random_below(&random, o->vocab_size);
    case_fill_gradient(&p->grad_logp, CASE_VECTOR, seed + 1, o->max_tokens);
    case_fill_gradient(&p->grad_entropy, CASE_VECTOR, seed + 2, o->max_tokens);
    case_fill_gradient(&p->grad_lse, CASE_VECTOR, seed + 3, o->max_tokens);
}

void case_fill_bias(case_problem *p, uint64_t seed, double scale) {
    lgh_random random = {seed};
    for (int64_t v = 0; v < p->options.vocab_size; v++)
        case_set_bias(p, v, scale * (2 * lgh_random_uniform(&random) - 1));
}

void case_fill_temperatures(case_problem *p, case_form form, uint64_t seed) {
    lgh_random random = {seed};
    p->temperatures.form = form;
    for (int64_t i = 0; i < p->options.max_tokens; i++)
        p->temperatures.values[i] = (float)(0.4 + 1.6 * lgh_random_uniform(&random));
}

double case_gradient_at(const case_gradient *gradient, int64_t token) {
    if (gradient->form == CASE_ABSENT)
        return 0.0;
    const int each = gradient->form == CASE_VECTOR || gradient->form == CASE_STRIDED;
    return (double)gradient->values[each ? token : 0];
}

double case_temperature_at(const case_problem *p, int64_t token) {
    if (p->temperatures.form == CASE_ABSENT)
        return (double)p->temperature;
    return case_gradient_at(&p->temperatures, token);
}

void case_set_live(case_problem *p, const int32_t *rows, int64_t bound) {
    p->live.given = 1;
    p->live.bound = bound;
    memcpy(p->live.rows, rows, (size_t)bound * sizeof *rows);
}

lgh_const_matrix case_hidden(const case_problem *p) {
    const int64_t width = p->options.hidden_size;
    return (lgh_const_matrix){p->hidden, p->tokens, width, width, p->options.hidden_dtype};
}

lgh_const_matrix case_weight(const case_problem *p) {
    const int64_t width = p->options.hidden_size;
    return (lgh_const_matrix){p->weight, p->options.vocab_size, width, width,
                              p->options.weight_dtype};
}
