/* cuda_problem.c - one forward and backward call on the fakes. */
#include "cuda_problem.h"

#include "formulas.h"
#include "nvrtc_compiler.h"
#include "value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FP32 sums of a few thousand terms, against the sum of their magnitudes; a missing term is more.
 */
#define SUM_TOLERANCE 1e-5
/* Statistics are kept as FP32 between chunks. */
#define FORWARD_TOLERANCE 1e-5
/* Half a unit in the last of BF16's 8 bits. */
#define BF16_TOLERANCE 0x1p-8

problem problem_of(int64_t tokens, int64_t hidden_size, int64_t vocab_size) {
    problem p = {.options = LGH_PLAN_OPTIONS_INIT,
                 .tokens = tokens,
                 .padding = 8,
                 .gradient_stride = 1,
                 .temperature = 0.7f};
    p.options.hidden_size = hidden_size;
    p.options.vocab_size = vocab_size;
    p.options.max_tokens = tokens;
    p.options.outputs = LGH_OUTPUT_ALL;
    return p;
}

/* ---- Buffers ------------------------------------------------------------------------------- */

static void *allocate(int64_t bytes) {
    void *memory = fake_cuda_allocate((size_t)(bytes > 0 ? bytes : 1));
    assert_non_null(memory);
    return memory;
}

/* The bytes of a matrix with rows row_stride apart, no padding after the last. */
static int64_t matrix_bytes(const problem *p, int64_t rows, lgh_dtype dtype) {
    if (rows == 0)
        return 0;
    return ((rows - 1) * p->row_stride + p->options.hidden_size) * (int64_t)lgh_dtype_size(dtype);
}

static void *random_matrix(const problem *p, lgh_random *random, int64_t rows) {
    uint16_t *matrix = allocate(matrix_bytes(p, rows, LGH_BF16));
    for (int64_t row = 0; row < rows; ++row) {
        uint16_t *at = matrix + row * p->row_stride;
        for (int64_t c = 0; c < p->options.hidden_size; ++c)
            at[c] = lgh__bf16_from_float((float)(lgh_random_below(random, 17) - 8) / 8.0f);
        fake_cuda_mark_written(at, (size_t)p->options.hidden_size * 2);
    }
    return matrix;
}

/* Some rows are ignored and some outside the vocabulary. */
static int64_t choose_target(const problem *p, lgh_random *random, int64_t row) {
    if (row % 5 == 4)
        return p->options.ignore_index;
    if (row % 7 == 6)
        return row % 2 ? -1 : p->options.vocab_size;
    return lgh_random_below(random, p->options.vocab_size);
}

static void *random_targets(const problem *p, lgh_random *random) {
    const int64_t size = (int64_t)lgh_dtype_size(p->options.targets_dtype);
    char *targets = allocate(p->tokens * size);
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

static float *random_gradients(const problem *p, lgh_random *random) {
    const int64_t count = (p->tokens > 0 ? (p->tokens - 1) * p->gradient_stride : 0) + 1;
    float *gradients = allocate(count * 4);
    lgh_random_fill_fp32(random, gradients, (size_t)count, 1.0);
    fake_cuda_mark_written(gradients, (size_t)count * 4);
    return gradients;
}

/* A sum to add to where the call accumulates. */
static void *result_matrix(const problem *p, int64_t rows, lgh_dtype dtype, int accumulate) {
    if (dtype == LGH_DTYPE_NONE)
        return NULL;
    char *matrix = allocate(matrix_bytes(p, rows, dtype));
    for (int64_t row = 0; accumulate && row < rows; ++row) {
        float *at = (float *)(void *)matrix + row * p->row_stride;
        for (int64_t c = 0; c < p->options.hidden_size; ++c)
            at[c] = 0.25f;
        fake_cuda_mark_written(at, (size_t)p->options.hidden_size * 4);
    }
    return matrix;
}

void problem_open(problem *p) {
    lgh_random random = {17};
    const lgh_plan_options *o = &p->options;
    p->row_stride = o->hidden_size + p->padding;
    p->hidden = random_matrix(p, &random, p->tokens);
    p->weight = random_matrix(p, &random, o->vocab_size);
    p->targets = random_targets(p, &random);
    p->grad_logp = random_gradients(p, &random);
    p->grad_entropy = random_gradients(p, &random);
    p->grad_lse = random_gradients(p, &random);
    p->logp = allocate(p->tokens * 4);
    p->lse = allocate(p->tokens * 4);
    p->entropy = allocate(p->tokens * 4);
    p->logp_at_one = allocate(p->tokens * 4);
    p->dhidden = result_matrix(p, p->tokens, o->dhidden_dtype, 0);
    p->dweight = result_matrix(p, o->vocab_size, o->dweight_dtype, p->accumulate);
    p->stream = fake_cuda_stream_create();
    fake_cuda_define((fake_cuda_definitions){.targets_int32 = o->targets_dtype == LGH_INT32,
                                             .logits_bf16 = o->logits_rounding == LGH_BF16});
}

void problem_close(problem *p) {
    void *const buffers[] = {p->hidden,       p->weight,   p->targets,     p->logp,
                             p->lse,          p->entropy,  p->logp_at_one, p->grad_logp,
                             p->grad_entropy, p->grad_lse, p->dhidden,     p->dweight};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; ++i)
        if (buffers[i])
            fake_cuda_free(buffers[i]);
    fake_cuda_stream_destroy(p->stream);
}

/* ---- Arguments ----------------------------------------------------------------------------- */

static lgh_const_matrix operand(const problem *p, const void *data, int64_t rows) {
    return (lgh_const_matrix){data, rows, p->options.hidden_size, p->row_stride, LGH_BF16};
}

static lgh_matrix result(const problem *p, void *data, int64_t rows, lgh_dtype dtype) {
    return (lgh_matrix){data, rows, p->options.hidden_size, p->row_stride, dtype};
}

lgh_forward_args problem_forward_args(const problem *p) {
    lgh_forward_args args = LGH_FORWARD_ARGS_INIT;
    args.hidden = operand(p, p->hidden, p->tokens);
    args.weight = operand(p, p->weight, p->options.vocab_size);
    args.temperature.host = p->temperature;
    args.targets = p->without_targets ? NULL : p->targets;
    args.logp = p->without_targets ? NULL : p->logp;
    args.lse = p->lse;
    args.entropy = p->options.outputs & LGH_OUTPUT_ENTROPY ? p->entropy : NULL;
    args.logp_at_one =
        !p->without_targets && p->options.outputs & LGH_OUTPUT_LOGP_AT_ONE ? p->logp_at_one : NULL;
    return args;
}

lgh_backward_args problem_backward_args(const problem *p) {
    lgh_backward_args args = LGH_BACKWARD_ARGS_INIT;
    args.hidden = operand(p, p->hidden, p->tokens);
    args.weight = operand(p, p->weight, p->options.vocab_size);
    args.targets = p->without_targets ? NULL : p->targets;
    args.temperature.host = p->temperature;
    args.lse = p->lse;
    if (!p->without_targets)
        args.grad_logp = (lgh_value){p->grad_logp, p->gradient_stride, 0.0f};
    if (!p->without_entropy_gradient) {
        args.entropy = p->entropy;
        args.grad_entropy = (lgh_value){p->grad_entropy, p->gradient_stride, 0.0f};
    }
    args.grad_lse = (lgh_value){p->grad_lse, p->gradient_stride, 0.0f};
    if (p->dhidden)
        args.dhidden = result(p, p->dhidden, p->tokens, p->options.dhidden_dtype);
    if (p->dweight)
        args.dweight = result(p, p->dweight, p->options.vocab_size, p->options.dweight_dtype);
    args.accumulate_dweight = p->accumulate;
    return args;
}

/* ---- Reference ----------------------------------------------------------------------------- */

static double element(const problem *p, const void *matrix, int64_t row, int64_t column) {
    const uint16_t *values = matrix;
    return (double)lgh__float_from_bf16(values[row * p->row_stride + column]);
}

/* The row's logits, rounded as the plan asks for; to be freed. */
static double *reference_logits(const problem *p, int64_t row) {
    double *logits = calloc((size_t)p->options.vocab_size, sizeof *logits);
    assert_non_null(logits);
    for (int64_t v = 0; v < p->options.vocab_size; ++v) {
        for (int64_t c = 0; c < p->options.hidden_size; ++c)
            logits[v] += element(p, p->hidden, row, c) * element(p, p->weight, v, c);
        if (p->options.logits_rounding == LGH_BF16)
            logits[v] = (double)lgh__float_from_bf16(lgh__bf16_from_float((float)logits[v]));
    }
    return logits;
}

static int64_t target_of(const problem *p, int64_t row) {
    return p->without_targets ? -1 : lgh__target_at(p->targets, p->options.targets_dtype, row);
}

static int is_ignored(const problem *p, int64_t row) {
    return !p->without_targets && target_of(p, row) == p->options.ignore_index;
}

static int has_target(const problem *p, int64_t row) {
    return target_of(p, row) >= 0 && target_of(p, row) < p->options.vocab_size &&
           !is_ignored(p, row);
}

static lgh_row_stats reference_stats(const problem *p, const double *logits, double inverse) {
    lgh_row_stats stats = lgh_row_stats_empty();
    for (int64_t v = 0; v < p->options.vocab_size; ++v)
        stats.max = fmax(stats.max, logits[v]);
    for (int64_t v = 0; v < p->options.vocab_size; ++v) {
        lgh_row_stats_add(&stats, logits[v], inverse);
        lgh_row_stats_add_at_one(&stats, logits[v]);
    }
    return stats;
}

/* The gradients of the row's logits as the kernel stores them; all 0 for a row that does not count.
 */
static double *reference_gradients(const problem *p, int64_t row) {
    double *dx = reference_logits(p, row);
    const int64_t target = target_of(p, row), at = row * p->gradient_stride;
    const int counts = p->without_targets || has_target(p, row);
    const lgh_row_gradient gradient = {
        .inverse_temperature = lgh_inverse_temperature((double)p->temperature),
        .lse = (double)p->lse[row],
        .entropy = p->without_entropy_gradient ? 0 : (double)p->entropy[row],
        .grad_logp = p->without_targets ? 0 : (double)p->grad_logp[at],
        .grad_entropy = p->without_entropy_gradient ? 0 : (double)p->grad_entropy[at],
        .grad_lse = (double)p->grad_lse[at],
    };
    for (int64_t v = 0; v < p->options.vocab_size; ++v) {
        const double exact = counts ? lgh_logit_gradient(gradient, dx[v], v == target) : 0;
        dx[v] = (double)lgh__float_from_bf16(lgh__bf16_from_float((float)exact));
    }
    return dx;
}

/* ---- Checks -------------------------------------------------------------------------------- */

void assert_call_succeeds(lgh_status status) {
    if (status != LGH_SUCCESS)
        fail_msg("%s\n%d violations:\n%s", lgh_last_error(), fake_cuda_violation_count(),
                 fake_cuda_violations());
}

void assert_no_violations(void) {
    if (fake_cuda_violation_count() > 0)
        fail_msg("%d violations:\n%s", fake_cuda_violation_count(), fake_cuda_violations());
}

static void check_row(const problem *p, int64_t row) {
    const double inverse = lgh_inverse_temperature((double)p->temperature);
    double *logits = reference_logits(p, row);
    const lgh_row_stats stats = reference_stats(p, logits, inverse);
    const int ignored = is_ignored(p, row);
    const lgh_forward_args args = problem_forward_args(p);
    double logp = 0, logp_at_one = 0;
    if (has_target(p, row)) {
        logp = lgh_log_prob(stats, logits[target_of(p, row)], inverse);
        logp_at_one = lgh_log_prob_at_one(stats, logits[target_of(p, row)]);
    }
    free(logits);
    if (args.logp)
        lgh_assert_close((double)p->logp[row], logp, FORWARD_TOLERANCE, "logp");
    if (args.logp_at_one)
        lgh_assert_close((double)p->logp_at_one[row], logp_at_one, FORWARD_TOLERANCE,
                         "logp_at_one");
    lgh_assert_close((double)p->lse[row], ignored ? 0 : lgh_lse(stats, inverse), FORWARD_TOLERANCE,
                     "lse");
    if (args.entropy)
        lgh_assert_close((double)p->entropy[row], ignored ? 0 : lgh_entropy(stats),
                         FORWARD_TOLERANCE, "entropy");
}

/* Sums of a matrix and of their terms' magnitudes. */
typedef struct expected_sums {
    double *values;
    double *magnitudes;
} expected_sums;

static expected_sums create_sums(const problem *p, int64_t rows, double start) {
    const size_t count = (size_t)(rows * p->options.hidden_size);
    const expected_sums sums = {calloc(count + 1, sizeof(double)),
                                calloc(count + 1, sizeof(double))};
    assert_non_null(sums.values);
    assert_non_null(sums.magnitudes);
    for (size_t i = 0; i < count; ++i)
        sums.values[i] = sums.magnitudes[i] = start;
    return sums;
}

static void free_sums(expected_sums sums) {
    free(sums.values);
    free(sums.magnitudes);
}

static void add_row(const problem *p, expected_sums sums, int64_t to, double factor,
                    const void *matrix, int64_t row) {
    const int64_t width = p->options.hidden_size;
    for (int64_t c = 0; factor != 0 && c < width; ++c) {
        const double term = factor * element(p, matrix, row, c);
        sums.values[to * width + c] += term;
        sums.magnitudes[to * width + c] += fabs(term);
    }
}

static void check_sums(const problem *p, expected_sums sums, const void *matrix, int64_t rows,
                       lgh_dtype dtype, const char *what) {
    const int64_t width = p->options.hidden_size;
    const double rounding = dtype == LGH_BF16 ? BF16_TOLERANCE : 0;
    for (int64_t i = 0; i < rows * width; ++i) {
        const int64_t at = i / width * p->row_stride + i % width;
        const double actual = dtype == LGH_BF16
                                  ? (double)lgh__float_from_bf16(((const uint16_t *)matrix)[at])
                                  : (double)((const float *)matrix)[at];
        lgh_assert_close(actual, sums.values[i],
                         SUM_TOLERANCE * sums.magnitudes[i] + rounding * fabs(sums.values[i]),
                         what);
    }
}

/* Every row was written, and nothing between rows. */
static void check_coverage(const problem *p, const void *matrix, int64_t rows, lgh_dtype dtype,
                           const char *what) {
    const int64_t size = (int64_t)lgh_dtype_size(dtype);
    const int64_t row_bytes = p->options.hidden_size * size;
    for (int64_t row = 0; row < rows; ++row) {
        const char *at = (const char *)matrix + row * p->row_stride * size;
        if (!fake_cuda_written(at, (size_t)row_bytes))
            fail_msg("%s: row %lld was not written", what, (long long)row);
        if (row + 1 < rows && p->padding > 0 &&
            fake_cuda_partly_written(at + row_bytes, (size_t)(p->padding * size)))
            fail_msg("%s: the padding of row %lld was written", what, (long long)row);
    }
}

static void check_vector(const problem *p, const float *vector, const char *what) {
    if (vector && p->tokens > 0 && !fake_cuda_written(vector, (size_t)p->tokens * 4))
        fail_msg("%s was not written for every token", what);
}

/* A workspace of exactly the bytes that the plan asks for, or NULL. */
static void *query_workspace(const problem *p, const lgh_plan *plan, lgh_pass pass, size_t *bytes) {
    lgh_assert_success(lgh_plan_workspace_size(plan, pass, p->tokens, bytes, NULL));
    assert_int_equal(*bytes % LGH_WORKSPACE_ALIGNMENT, 0);
    return *bytes > 0 ? allocate((int64_t)*bytes) : NULL;
}

static void free_workspace(void *workspace, size_t bytes) {
    if (!workspace)
        return;
    assert_true(fake_cuda_bytes_touched(workspace) <= bytes);
    fake_cuda_free(workspace);
}

void problem_check_forward(const problem *p, const lgh_plan *plan) {
    const lgh_forward_args args = problem_forward_args(p);
    size_t bytes;
    void *workspace = query_workspace(p, plan, LGH_PASS_FORWARD, &bytes);
    fake_cuda_begin_run(p->stream, "lgh_forward");
    lgh_status status = lgh_forward(plan, &args, workspace, bytes, p->stream);
    fake_cuda_end_run();
    assert_call_succeeds(status);
    free_workspace(workspace, bytes);
    check_vector(p, args.logp, "logp");
    check_vector(p, args.lse, "lse");
    check_vector(p, args.entropy, "entropy");
    check_vector(p, args.logp_at_one, "logp_at_one");
    for (int64_t row = 0; row < p->tokens; ++row)
        check_row(p, row);
}

static void check_gradients(const problem *p, expected_sums dhidden, expected_sums dweight) {
    const lgh_plan_options *o = &p->options;
    for (int64_t row = 0; row < p->tokens; ++row) {
        double *dx = reference_gradients(p, row);
        for (int64_t v = 0; v < o->vocab_size; ++v) {
            add_row(p, dhidden, row, dx[v], p->weight, v);
            add_row(p, dweight, v, dx[v], p->hidden, row);
        }
        free(dx);
    }
    if (p->dhidden) {
        check_coverage(p, p->dhidden, p->tokens, o->dhidden_dtype, "dhidden");
        check_sums(p, dhidden, p->dhidden, p->tokens, o->dhidden_dtype, "dhidden");
    }
    if (p->dweight) {
        check_coverage(p, p->dweight, o->vocab_size, o->dweight_dtype, "dweight");
        check_sums(p, dweight, p->dweight, o->vocab_size, o->dweight_dtype, "dweight");
    }
}

void problem_check_backward(const problem *p, const lgh_plan *plan) {
    const lgh_backward_args args = problem_backward_args(p);
    size_t bytes;
    void *workspace = query_workspace(p, plan, LGH_PASS_BACKWARD, &bytes);
    fake_cuda_begin_run(p->stream, "lgh_backward");
    lgh_status status = lgh_backward(plan, &args, workspace, bytes, p->stream);
    fake_cuda_end_run();
    assert_call_succeeds(status);
    free_workspace(workspace, bytes);
    expected_sums dhidden = create_sums(p, p->tokens, 0);
    expected_sums dweight = create_sums(p, p->options.vocab_size, p->accumulate ? 0.25 : 0);
    check_gradients(p, dhidden, dweight);
    free_sums(dhidden);
    free_sums(dweight);
}

/* chunk_dx keeps a chunk's columns in registers, so it takes no more than it was compiled for. */
static void check_widest_gradients(const lgh_plan *plan) {
    char text[4096];
    lgh_assert_success(lgh_plan_describe(plan, text, sizeof text, NULL));
    const char *line = strstr(text, "\nbackward_chunk = ");
    assert_non_null(line);
    assert_in_range(fake_cuda_widest_gradients(), 0, atoi(strchr(line, '=') + 1));
}

void problem_check(problem *p, lgh_context *context) {
    lgh_plan *plan;
    problem_open(p);
    const fake_cuda_live before = fake_cuda_count_live();
    fake_cuda_reset();
    assert_call_succeeds(lgh_plan_create(&plan, context, &p->options));
    const fake_cuda_live planned = fake_cuda_count_live();
    problem_check_forward(p, plan);
    problem_check_backward(p, plan);
    check_widest_gradients(plan);
    lgh_plan_destroy(plan);
    assert_int_equal(planned.bytes, before.bytes);
    assert_int_equal(fake_cuda_count_live().bytes, before.bytes);
    assert_int_equal(fake_cuda_count_live().streams, before.streams);
    assert_int_equal(fake_cuda_depth(), 0);
    problem_close(p);
    assert_no_violations();
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
