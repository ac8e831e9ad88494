/* cuda_problem.c - the buffers and arguments of one forward and backward call on the fakes. */
#include "cuda_problem.h"

#include "configuration.h"
#include "nvrtc_compiler.h"
#include "product.h"
#include "value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNTER_START 100 /* what the caller counted before */

problem problem_of(int64_t tokens, int64_t hidden_size, int64_t vocab_size) {
    problem p = {.options = LGH_PLAN_OPTIONS_INIT,
                 .tokens = tokens,
                 .padding = 8,
                 .grad_logp = PROBLEM_VECTOR,
                 .grad_entropy = PROBLEM_VECTOR,
                 .grad_lse = PROBLEM_VECTOR,
                 .gradient_scale = 1.0f};
    p.options.hidden_size = hidden_size;
    p.options.vocab_size = vocab_size;
    p.options.max_tokens = tokens;
    p.options.outputs = LGH_OUTPUT_ALL;
    return p;
}

/* ---- Vectors ------------------------------------------------------------------------------- */

static void *allocate(problem *p, int64_t bytes) {
    void *memory = fake_cuda_allocate((size_t)(bytes > 0 ? bytes : 1));
    assert_non_null(memory);
    assert_in_range(p->memory_count, 0, sizeof p->memory / sizeof *p->memory - 1);
    p->memory[p->memory_count++] = memory;
    return memory;
}

/* The entry of the whole vocabulary at which padding begins. */
static int64_t valid_end(const lgh_plan_options *o) {
    return o->vocab_valid > 0 ? o->vocab_valid : o->vocab_start + o->vocab_size;
}

/* Some rows are ignored, some outside the vocabulary, and some another shard's if there is one. An
 * int64 that would be an entry if it were cut to 32 bits is none. */
static int64_t choose_target(const problem *p, lgh_random *random, int64_t row) {
    const lgh_plan_options *o = &p->options;
    const int64_t end = valid_end(o), local = lgh_random_below(random, o->vocab_size + 1);
    if (row % 5 == 4)
        return o->ignore_index;
    if (row % 7 == 6)
        return row % 2 ? -1 : end;
    if (row % 11 == 7)
        return o->targets_dtype == LGH_INT64 ? ((int64_t)1 << 32) + o->vocab_start : INT32_MAX;
    if (row % 6 == 2 && end > 0)
        return lgh_random_below(random, end);
    return o->vocab_start + local < end && local < o->vocab_size ? o->vocab_start + local : 0;
}

static void *random_targets(problem *p, lgh_random *random) {
    const int64_t size = (int64_t)lgh_dtype_size(p->options.targets_dtype);
    char *targets = allocate(p, p->tokens * size);
    for (int64_t row = 0; row < p->tokens; ++row) {
        const int64_t target = choose_target(p, random, row);
        const int32_t narrow = (int32_t)target;
        if (size == 4)
            memcpy(targets + row * size, &narrow, sizeof narrow);
        else
            memcpy(targets + row * size, &target, sizeof target);
    }
    fake_cuda_mark_written(targets, (size_t)(p->tokens * size));
    return targets;
}

static int64_t stride_of(problem_mode mode) {
    return mode == PROBLEM_STRIDED ? 3 : mode == PROBLEM_VECTOR;
}

/* A value of this mode; `number` gives that of token i. */
static lgh_value open_value(problem *p, problem_mode mode, lgh_random *random,
                            float (*number)(const problem *, lgh_random *, int64_t)) {
    const int64_t stride = stride_of(mode), count = stride == 0 ? 1 : p->tokens;
    if (mode == PROBLEM_ABSENT)
        return (lgh_value){NULL, 0, 0.0f};
    if (mode == PROBLEM_HOST)
        return (lgh_value){NULL, 0, number(p, random, 0)};
    float *data = allocate(p, ((count - 1) * stride + 1) * (int64_t)sizeof *data);
    for (int64_t i = 0; i < count; ++i) {
        data[i * stride] = number(p, random, i);
        fake_cuda_mark_written(&data[i * stride], sizeof *data);
    }
    return (lgh_value){data, stride, 0.0f};
}

static float random_gradient(const problem *p, lgh_random *random, int64_t i) {
    (void)i;
    return (float)lgh_random_normal(random) * p->gradient_scale;
}

static float choose_temperature(const problem *p, lgh_random *random, int64_t i) {
    static const float valid[] = {0.7f, 0.5f, 1.0f, 1.9f};
    const float invalid[] = {NAN, 0.0f, -1.0f, INFINITY};
    const int is_vector = stride_of(p->temperature) > 0;
    (void)random;
    return is_vector && p->invalid_temperatures && i % 3 == 1 ? invalid[i / 3 % 4] : valid[i % 4];
}

static void *random_bias(problem *p, lgh_random *random) {
    const lgh_plan_options *o = &p->options;
    const int64_t size = (int64_t)lgh_dtype_size(o->bias_dtype);
    char *bias = allocate(p, o->vocab_size * size);
    for (int64_t v = 0; v < o->vocab_size; ++v) {
        const float number = (float)(lgh_random_below(random, 16385) - 8192) / 4096.0f;
        const uint16_t narrow =
            o->bias_dtype == LGH_BF16 ? lgh__bf16_from_float(number) : lgh__fp16_from_float(number);
        memcpy(bias + v * size, size == 4 ? (const void *)&number : &narrow, (size_t)size);
    }
    fake_cuda_mark_written(bias, (size_t)(o->vocab_size * size));
    return bias;
}

/* A sum to add to where the call accumulates. */
static float *open_dbias(problem *p) {
    float *dbias = allocate(p, p->options.vocab_size * (int64_t)sizeof *dbias);
    for (int64_t v = 0; p->accumulate && v < p->options.vocab_size; ++v)
        dbias[v] = PROBLEM_START;
    if (p->accumulate)
        fake_cuda_mark_written(dbias, (size_t)p->options.vocab_size * sizeof *dbias);
    return dbias;
}

static uint64_t *open_counter(problem *p) {
    uint64_t *counter = allocate(p, sizeof *counter);
    *counter = COUNTER_START;
    fake_cuda_mark_written(counter, sizeof *counter);
    return counter;
}

/* ---- The live list ------------------------------------------------------------------------- */

/* Two tokens of three, last first, and numbers that are no tokens where there is room. */
static int64_t choose_live(const problem *p, int32_t *rows) {
    const int32_t tokens = (int32_t)p->tokens;
    int64_t length = 0;
    if (tokens >= 12)
        rows[length++] = -1;
    for (int32_t i = tokens - 1; i >= 0; --i)
        if (i % 3 != 2)
            rows[length++] = i;
    if (tokens >= 12)
        rows[length++] = tokens;
    return length;
}

static int32_t *open_count(problem *p, int64_t length) {
    int32_t *count = allocate(p, sizeof *count);
    *count = (int32_t)length;
    fake_cuda_mark_written(count, sizeof *count);
    return count;
}

/* The list is as long as it must be: nothing past its count or its bound exists. */
static lgh_live open_live(problem *p) {
    int32_t *chosen = calloc((size_t)p->tokens + 2, sizeof *chosen);
    assert_non_null(chosen);
    const int64_t length = choose_live(p, chosen);
    lgh_live live = {NULL, length, NULL};
    if (p->live == PROBLEM_BOUNDED)
        live.bound = (length + 1) / 2;
    if (p->live == PROBLEM_NONE)
        live.bound = 0;
    if (p->live == PROBLEM_COUNTED || p->live == PROBLEM_BOUNDED)
        live.count = open_count(p, length);
    const size_t bytes = (size_t)live.bound * sizeof *chosen;
    int32_t *rows = allocate(p, (int64_t)bytes);
    memcpy(rows, chosen, bytes);
    fake_cuda_mark_written(rows, bytes);
    free(chosen);
    live.rows = rows;
    if (p->live == PROBLEM_COUNTED)
        live.bound = p->tokens;
    return live;
}

/* ---- Matrices ------------------------------------------------------------------------------ */

/* Rows that start at odd multiples of the plan's row_alignment, or D and the padding apart. */
static problem_matrix open_matrix(const problem *p, int64_t rows, lgh_dtype dtype) {
    const int64_t size = (int64_t)lgh_dtype_size(dtype), width = p->options.hidden_size * size;
    problem_matrix m = {.stride = p->options.hidden_size + p->padding, .dtype = dtype};
    int64_t start = 0;
    if (dtype == LGH_DTYPE_NONE)
        return m;
    if (p->options.row_alignment > 0) {
        start = p->options.row_alignment > size ? p->options.row_alignment : size;
        const int64_t units = (width + start - 1) / start + 1;
        m.stride = (units | 1) * start / size;
    }
    const int64_t bytes = rows > 0 ? (rows - 1) * m.stride * size + width : 0;
    m.memory = fake_cuda_allocate((size_t)(start + bytes + (bytes == 0)));
    assert_non_null(m.memory);
    m.data = (char *)m.memory + start;
    return m;
}

/* Fractions that the dtype holds exactly, finer where it holds more. */
static void put_fraction(void *values, int64_t i, lgh_dtype dtype, lgh_random *random) {
    const int64_t unit = dtype == LGH_BF16 ? 128 : 256;
    const float number = (float)(lgh_random_below(random, 2 * unit + 1) - unit) / (float)unit;
    if (dtype == LGH_BF16)
        ((uint16_t *)values)[i] = lgh__bf16_from_float(number);
    else if (dtype == LGH_FP16)
        ((uint16_t *)values)[i] = lgh__fp16_from_float(number);
    else
        ((float *)values)[i] = number;
}

static problem_matrix random_matrix(const problem *p, lgh_random *random, int64_t rows,
                                    lgh_dtype dtype) {
    const problem_matrix m = open_matrix(p, rows, dtype);
    const int64_t size = (int64_t)lgh_dtype_size(dtype), width = p->options.hidden_size;
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t c = 0; c < width; ++c)
            put_fraction(m.data, row * m.stride + c, dtype, random);
        fake_cuda_mark_written(m.data + row * m.stride * size, (size_t)(width * size));
    }
    return m;
}

static problem_matrix result_matrix(const problem *p, int64_t rows, lgh_dtype dtype,
                                    int accumulate) {
    const problem_matrix m = open_matrix(p, rows, dtype);
    for (int64_t row = 0; m.memory && accumulate && row < rows; ++row) {
        float *at = (float *)(void *)m.data + row * m.stride;
        for (int64_t c = 0; c < p->options.hidden_size; ++c)
            at[c] = PROBLEM_START;
        fake_cuda_mark_written(at, (size_t)p->options.hidden_size * sizeof *at);
    }
    return m;
}

/* ---- Problem ------------------------------------------------------------------------------- */

int problem_adds_to_dweight(const problem *p) {
    return p->accumulate && p->options.dweight_dtype == LGH_FP32;
}

static void open_outputs(problem *p) {
    p->logp = allocate(p, p->tokens * 4);
    p->lse = allocate(p, p->tokens * 4);
    p->entropy = allocate(p, p->tokens * 4);
    p->logp_at_one = allocate(p, p->tokens * 4);
    p->best = allocate(p, p->tokens * 8);
}

void problem_open(problem *p) {
    lgh_random random = {17};
    const lgh_plan_options *o = &p->options;
    p->memory_count = 0;
    p->hidden = random_matrix(p, &random, p->tokens, o->hidden_dtype);
    p->weight = random_matrix(p, &random, o->vocab_size, o->weight_dtype);
    p->targets = p->without_targets ? NULL : random_targets(p, &random);
    p->bias = o->bias_dtype != LGH_DTYPE_NONE ? random_bias(p, &random) : NULL;
    p->temperatures = open_value(p, p->temperature, &random, choose_temperature);
    p->grads_logp =
        open_value(p, p->without_targets ? PROBLEM_ABSENT : p->grad_logp, &random, random_gradient);
    p->grads_entropy = open_value(p, p->grad_entropy, &random, random_gradient);
    p->grads_lse = open_value(p, p->grad_lse, &random, random_gradient);
    open_outputs(p);
    p->dhidden = result_matrix(p, p->tokens, o->dhidden_dtype, 0);
    p->dweight = result_matrix(p, o->vocab_size, o->dweight_dtype, problem_adds_to_dweight(p));
    p->dbias = o->dbias_dtype != LGH_DTYPE_NONE ? open_dbias(p) : NULL;
    p->live_list = p->live != PROBLEM_ALL ? open_live(p) : (lgh_live){NULL, 0, NULL};
    p->counters = (lgh_counters){NULL, NULL};
    if (!p->without_counters)
        p->counters = (lgh_counters){open_counter(p), open_counter(p)};
    p->stream = fake_cuda_stream_create();
}

void problem_close(problem *p) {
    void *const matrices[] = {p->hidden.memory, p->weight.memory, p->dhidden.memory,
                              p->dweight.memory};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; ++i)
        if (matrices[i])
            fake_cuda_free(matrices[i]);
    while (p->memory_count > 0)
        fake_cuda_free(p->memory[--p->memory_count]);
    fake_cuda_stream_destroy(p->stream);
}

/* ---- Arguments ----------------------------------------------------------------------------- */

static lgh_const_matrix operand(const problem *p, const problem_matrix *m, int64_t rows) {
    return (lgh_const_matrix){m->data, rows, p->options.hidden_size, m->stride, m->dtype};
}

static lgh_matrix result(const problem *p, const problem_matrix *m, int64_t rows) {
    if (!m->memory)
        return (lgh_matrix){NULL, 0, 0, 0, LGH_DTYPE_NONE};
    return (lgh_matrix){m->data, rows, p->options.hidden_size, m->stride, m->dtype};
}

lgh_forward_args problem_forward_args(const problem *p) {
    const uint32_t outputs = p->options.outputs;
    lgh_forward_args args = LGH_FORWARD_ARGS_INIT;
    args.hidden = operand(p, &p->hidden, p->tokens);
    args.weight = operand(p, &p->weight, p->options.vocab_size);
    args.targets = p->targets;
    args.temperature = p->temperatures;
    args.logp = p->targets && outputs & LGH_OUTPUT_LOGP ? p->logp : NULL;
    args.lse = p->lse;
    args.entropy = outputs & LGH_OUTPUT_ENTROPY ? p->entropy : NULL;
    args.logp_at_one = p->targets && outputs & LGH_OUTPUT_LOGP_AT_ONE ? p->logp_at_one : NULL;
    args.bias = p->bias;
    args.best = outputs & LGH_OUTPUT_BEST ? p->best : NULL;
    args.live = p->live_list;
    args.counters = p->counters;
    return args;
}

lgh_backward_args problem_backward_args(const problem *p) {
    lgh_backward_args args = LGH_BACKWARD_ARGS_INIT;
    args.hidden = operand(p, &p->hidden, p->tokens);
    args.weight = operand(p, &p->weight, p->options.vocab_size);
    args.targets = p->targets;
    args.temperature = p->temperatures;
    args.lse = p->lse;
    args.entropy = lgh__value_present(p->grads_entropy) ? p->entropy : NULL;
    args.grad_logp = p->grads_logp;
    args.grad_entropy = p->grads_entropy;
    args.grad_lse = p->grads_lse;
    args.dhidden = result(p, &p->dhidden, p->tokens);
    args.dweight = result(p, &p->dweight, p->options.vocab_size);
    args.accumulate_dweight = problem_adds_to_dweight(p);
    args.accumulate_dbias = p->accumulate;
    args.bias = p->bias;
    args.dbias = p->dbias;
    args.live = p->live_list;
    args.counters = p->counters;
    return args;
}

/* ---- Descriptions -------------------------------------------------------------------------- */

char *describe_plan(const lgh_plan *plan) {
    size_t length;
    lgh_assert_success(lgh_plan_describe(plan, NULL, 0, &length));
    char *text = malloc(length + 1);
    assert_non_null(text);
    lgh_assert_success(lgh_plan_describe(plan, text, length + 1, NULL));
    assert_int_equal(strlen(text), length);
    return text;
}

int chosen_candidate(const lgh_plan *plan, const char *key) {
    char value[LGH__ALGORITHM_TEXT];
    lgh__algorithm algorithm;
    char *text = describe_plan(plan);
    lgh_assert_success(lgh__configuration_text(text, key, value, sizeof value));
    lgh_assert_success(lgh__algorithm_read(&algorithm, value, key));
    free(text);
    return fake_cublaslt_candidate(algorithm.opaque);
}

/* ---- Device -------------------------------------------------------------------------------- */

lgh_context *open_fake_device(void) {
    lgh_context_options options = LGH_CONTEXT_OPTIONS_INIT;
    lgh_context *context;
    char identity[64];
    if (lgh__nvrtc_identity(identity, sizeof identity) != LGH_SUCCESS)
        lgh_test_skip("%s", lgh_last_error());
    assert_true(fake_cublaslt_install());
    fake_cuda_reset();
    fake_cublaslt_break(-1, FAKE_SOUND);
    fake_cublaslt_cost(-1, 1.0f);
    fake_cublaslt_offer(0);
    options.type = LGH_DEVICE_CUDA;
    lgh_assert_success(lgh_context_create(&context, &options));
    return context;
}

void close_fake_device(lgh_context *context) {
    lgh_context_destroy(context);
    const fake_cuda_live live = fake_cuda_count_live();
    assert_int_equal(live.allocations, 0);
    assert_int_equal(live.bytes, 0);
    assert_int_equal(live.streams, 0);
    assert_int_equal(live.events, 0);
    assert_int_equal(live.libraries, 0);
    assert_int_equal(live.cublaslt_handles, 0);
    assert_int_equal(live.retained, 0);
    assert_no_violations();
}
