/* cpu_problem.c - inputs and calls of a problem for the CPU device. */
#include "cpu_problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "value.h"

enum { LOG_PROBS = LGH_OUTPUT_LOGP | LGH_OUTPUT_LOGP_AT_ONE };
enum { GAP = 3, GAP_BYTE = 0xff }; /* elements between rows; a NaN in every format */

cpu_problem cpu_problem_of(int64_t tokens, int64_t hidden_size, int64_t vocab_size) {
    cpu_problem p = {.options = LGH_PLAN_OPTIONS_INIT, .tokens = tokens, .threads = 2, .seed = 1};
    p.options.hidden_size = hidden_size;
    p.options.vocab_size = vocab_size;
    p.options.max_tokens = tokens;
    p.options.outputs = p.outputs = LGH_OUTPUT_ALL;
    p.scale = 3;
    p.temperature.host = 0.7f;
    return p;
}

/* ---- Inputs -------------------------------------------------------------------------------- */

static void *allocate(int64_t elements, size_t size) {
    void *memory = malloc(((size_t)elements + GAP) * size);
    assert_non_null(memory);
    memset(memory, GAP_BYTE, ((size_t)elements + GAP) * size);
    return memory;
}

static void set_element(void *array, lgh_dtype dtype, int64_t i, double value) {
    if (dtype == LGH_FP32)
        ((float *)array)[i] = (float)value;
    else
        ((uint16_t *)array)[i] = dtype == LGH_BF16 ? lgh__bf16_from_float((float)value)
                                                   : lgh__fp16_from_float((float)value);
}

static void *random_matrix(const cpu_problem *p, lgh_random *random, int64_t rows, lgh_dtype dtype,
                           double scale) {
    void *matrix = allocate(rows * p->row_stride, lgh_dtype_size(dtype));
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < p->options.hidden_size; k++)
            set_element(matrix, dtype, row * p->row_stride + k, scale * lgh_random_normal(random));
    return matrix;
}

static float *random_values(const cpu_problem *p, lgh_random *random) {
    float *values = allocate(p->tokens * CPU_PROBLEM_STRIDE, sizeof *values);
    for (int64_t i = 0; i < p->tokens; i++)
        values[i * CPU_PROBLEM_STRIDE] = (float)lgh_random_normal(random);
    return values;
}

static void fill_vectors(cpu_problem *p, lgh_random *random) {
    const lgh_plan_options *o = &p->options;
    p->targets = allocate(p->tokens, lgh_dtype_size(o->targets_dtype));
    p->temperatures = random_values(p, random);
    for (int64_t i = 0; i < p->tokens; i++) {
        cpu_problem_set_target(p, i, o->vocab_start + lgh_random_below(random, o->vocab_size));
        p->temperatures[i * CPU_PROBLEM_STRIDE] = (float)(0.4 + 1.6 * lgh_random_uniform(random));
    }
    for (int i = 0; i < 3; i++)
        p->upstream[i] = random_values(p, random);
    p->grad_logp = (lgh_value){p->upstream[0], CPU_PROBLEM_STRIDE, 0};
    p->grad_entropy = (lgh_value){p->upstream[1], CPU_PROBLEM_STRIDE, 0};
    p->grad_lse = (lgh_value){p->upstream[2], CPU_PROBLEM_STRIDE, 0};
}

void cpu_problem_open(cpu_problem *p) {
    const lgh_plan_options *o = &p->options;
    lgh_random random = {p->seed};
    p->row_stride = o->hidden_size + GAP;
    p->hidden = random_matrix(p, &random, p->tokens, o->hidden_dtype, 1);
    p->weight = random_matrix(p, &random, o->vocab_size, o->weight_dtype,
                              p->scale / sqrt((double)o->hidden_size));
    if (o->bias_dtype != LGH_DTYPE_NONE)
        p->bias = allocate(o->vocab_size, lgh_dtype_size(o->bias_dtype));
    for (int64_t row = 0; p->bias && row < o->vocab_size; row++)
        cpu_problem_set_bias(p, row, p->scale * lgh_random_normal(&random));
    fill_vectors(p, &random);
    if (o->dweight_dtype != LGH_DTYPE_NONE)
        p->dweight_before = random_matrix(p, &random, o->vocab_size, o->dweight_dtype, 1);
    p->dbias_before = allocate(o->vocab_size, sizeof *p->dbias_before);
    lgh_random_fill_fp32(&random, p->dbias_before, (size_t)o->vocab_size, 1);
}

void cpu_problem_close(cpu_problem *p) {
    void *memory[] = {p->hidden,         p->weight,      p->targets,     p->bias,
                      p->temperatures,   p->upstream[0], p->upstream[1], p->upstream[2],
                      p->dweight_before, p->dbias_before};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        free(memory[i]);
}

void cpu_problem_vary_temperature(cpu_problem *p) {
    p->temperature = (lgh_value){p->temperatures, CPU_PROBLEM_STRIDE, 0};
}

void cpu_problem_set_target(cpu_problem *p, int64_t token, int64_t entry) {
    if (p->options.targets_dtype == LGH_INT32)
        ((int32_t *)p->targets)[token] = (int32_t)entry;
    else
        ((int64_t *)p->targets)[token] = entry;
}

void cpu_problem_set_bias(cpu_problem *p, int64_t row, double value) {
    set_element(p->bias, p->options.bias_dtype, row, value);
}

void cpu_problem_set_weight(cpu_problem *p, int64_t row, int64_t column, double value) {
    set_element(p->weight, p->options.weight_dtype, row * p->row_stride + column, value);
}

void cpu_problem_set_hidden(cpu_problem *p, int64_t token, int64_t column, double value) {
    set_element(p->hidden, p->options.hidden_dtype, token * p->row_stride + column, value);
}

lgh_forward_args cpu_problem_forward_args(const cpu_problem *p) {
    const lgh_plan_options *o = &p->options;
    lgh_forward_args args = LGH_FORWARD_ARGS_INIT;
    args.hidden =
        (lgh_const_matrix){p->hidden, p->tokens, o->hidden_size, p->row_stride, o->hidden_dtype};
    args.weight = (lgh_const_matrix){p->weight, o->vocab_size, o->hidden_size, p->row_stride,
                                     o->weight_dtype};
    args.targets = p->without_targets ? NULL : p->targets;
    args.temperature = p->temperature;
    args.bias = p->bias;
    args.live = p->live;
    return args;
}

lgh_backward_args cpu_problem_backward_args(const cpu_problem *p) {
    const lgh_forward_args forward = cpu_problem_forward_args(p);
    lgh_backward_args args = LGH_BACKWARD_ARGS_INIT;
    args.hidden = forward.hidden;
    args.weight = forward.weight;
    args.targets = forward.targets;
    args.temperature = forward.temperature;
    args.bias = forward.bias;
    args.live = forward.live;
    args.lse = p->lse;
    args.entropy = p->entropy;
    args.grad_logp = p->grad_logp;
    args.grad_entropy = p->grad_entropy;
    args.grad_lse = p->grad_lse;
    args.accumulate_dweight = p->accumulate_dweight;
    args.accumulate_dbias = p->accumulate_dbias;
    return args;
}

/* ---- Calls --------------------------------------------------------------------------------- */

static int wants_dhidden(const cpu_problem *p) {
    return p->options.dhidden_dtype != LGH_DTYPE_NONE && !p->without_dhidden;
}

static int wants_dweight(const cpu_problem *p) {
    return p->options.dweight_dtype != LGH_DTYPE_NONE && !p->without_dweight;
}

static void *make_workspace(const lgh_plan *plan, lgh_pass pass, int64_t tokens, size_t *bytes) {
    lgh_assert_success(lgh_plan_workspace_size(plan, pass, tokens, bytes, NULL));
    if (*bytes == 0)
        return NULL;
    void *workspace = aligned_alloc(LGH_WORKSPACE_ALIGNMENT, *bytes);
    assert_non_null(workspace);
    memset(workspace, GAP_BYTE, *bytes);
    return workspace;
}

static cpu_results results_create(const cpu_problem *p) {
    const lgh_plan_options *o = &p->options;
    cpu_results r = {.best = allocate(p->tokens, sizeof *r.best)};
    for (int i = 0; i < 4; i++)
        r.outputs[i] = allocate(p->tokens, sizeof *r.outputs[i]);
    if (wants_dhidden(p))
        r.dhidden = allocate(p->tokens * p->row_stride, lgh_dtype_size(o->dhidden_dtype));
    if (wants_dweight(p)) {
        const size_t size = lgh_dtype_size(o->dweight_dtype);
        r.dweight = allocate(o->vocab_size * p->row_stride, size);
        memcpy(r.dweight, p->dweight_before, (size_t)(o->vocab_size * p->row_stride) * size);
    }
    if (o->dbias_dtype != LGH_DTYPE_NONE) {
        r.dbias = allocate(o->vocab_size, sizeof *r.dbias);
        memcpy(r.dbias, p->dbias_before, (size_t)o->vocab_size * sizeof *r.dbias);
    }
    return r;
}

/* Counters start at a number of their own, since calls add to them. */
static void run_forward(const cpu_problem *p, const lgh_plan *plan, cpu_results *r) {
    lgh_forward_args args = cpu_problem_forward_args(p);
    uint64_t foreign = 5, invalid = 7;
    size_t bytes;
    void *workspace = make_workspace(plan, LGH_PASS_FORWARD, p->tokens, &bytes);
    const uint32_t outputs = p->without_targets ? p->outputs & ~(uint32_t)LOG_PROBS : p->outputs;
    args.logp = outputs & LGH_OUTPUT_LOGP ? r->outputs[0] : NULL;
    args.lse = outputs & LGH_OUTPUT_LSE ? r->outputs[1] : NULL;
    args.entropy = outputs & LGH_OUTPUT_ENTROPY ? r->outputs[2] : NULL;
    args.logp_at_one = outputs & LGH_OUTPUT_LOGP_AT_ONE ? r->outputs[3] : NULL;
    args.best = outputs & LGH_OUTPUT_BEST ? r->best : NULL;
    args.counters = (lgh_counters){&foreign, &invalid};
    lgh_assert_success(lgh_forward(plan, &args, workspace, bytes, NULL));
    r->foreign_targets[0] = foreign - 5;
    r->invalid_temperatures[0] = invalid - 7;
    free(workspace);
}

static void run_backward(const cpu_problem *p, const lgh_plan *plan, cpu_results *r) {
    const lgh_plan_options *o = &p->options;
    lgh_backward_args args = cpu_problem_backward_args(p);
    uint64_t foreign = 5, invalid = 7;
    size_t bytes;
    void *workspace = make_workspace(plan, LGH_PASS_BACKWARD, p->tokens, &bytes);
    args.lse = args.lse ? args.lse : r->outputs[1];
    args.entropy = args.entropy ? args.entropy : r->outputs[2];
    if (r->dhidden)
        args.dhidden =
            (lgh_matrix){r->dhidden, p->tokens, o->hidden_size, p->row_stride, o->dhidden_dtype};
    if (r->dweight)
        args.dweight = (lgh_matrix){r->dweight, o->vocab_size, o->hidden_size, p->row_stride,
                                    o->dweight_dtype};
    args.dbias = r->dbias;
    args.counters = (lgh_counters){&foreign, &invalid};
    lgh_assert_success(lgh_backward(plan, &args, workspace, bytes, NULL));
    r->foreign_targets[1] = foreign - 5;
    r->invalid_temperatures[1] = invalid - 7;
    free(workspace);
}

static void check_gap(const void *array, size_t size, int64_t from, int64_t count,
                      const char *what) {
    unsigned char gap[GAP * sizeof(int64_t)];
    memset(gap, GAP_BYTE, sizeof gap);
    lgh_assert_same_bytes((const char *)array + (size_t)from * size, gap, (size_t)count * size,
                          what);
}

static void check_matrix_gaps(const cpu_problem *p, const void *matrix, lgh_dtype dtype,
                              int64_t rows, const char *what) {
    for (int64_t row = 0; matrix && row < rows; row++)
        check_gap(matrix, lgh_dtype_size(dtype), row * p->row_stride + p->options.hidden_size, GAP,
                  what);
}

static void check_gaps(const cpu_problem *p, const cpu_results *r) {
    const lgh_plan_options *o = &p->options;
    for (int i = 0; i < 4; i++)
        check_gap(r->outputs[i], sizeof(float), p->tokens, GAP, "past an output");
    check_gap(r->best, sizeof(int64_t), p->tokens, GAP, "past best");
    if (r->dbias)
        check_gap(r->dbias, sizeof(float), o->vocab_size, GAP, "past dbias");
    check_matrix_gaps(p, r->dhidden, o->dhidden_dtype, p->tokens, "between rows of dhidden");
    check_matrix_gaps(p, r->dweight, o->dweight_dtype, o->vocab_size, "between rows of dweight");
}

cpu_results cpu_problem_run(const cpu_problem *p) {
    lgh_context_options options = LGH_CONTEXT_OPTIONS_INIT;
    options.cpu_threads = p->threads;
    lgh_context *context;
    lgh_plan *plan;
    lgh_assert_success(lgh_context_create(&context, &options));
    lgh_assert_success(lgh_plan_create(&plan, context, &p->options));
    cpu_results r = results_create(p);
    run_forward(p, plan, &r);
    if ((p->outputs & LGH_OUTPUT_LSE) && (p->outputs & LGH_OUTPUT_ENTROPY))
        run_backward(p, plan, &r);
    check_gaps(p, &r);
    lgh_plan_destroy(plan);
    lgh_context_destroy(context);
    return r;
}

void cpu_results_close(cpu_results *r) {
    for (int i = 0; i < 4; i++)
        free(r->outputs[i]);
    free(r->best);
    free(r->dhidden);
    free(r->dweight);
    free(r->dbias);
}
