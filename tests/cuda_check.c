/* cuda_check.c - runs the passes of a problem, and compares what they wrote with the reference. */
#include "cuda_problem.h"

#include "cuda_reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FP32 sums of a few thousand terms, against the sum of their magnitudes; a missing term is more.
 */
#define SUM_TOLERANCE 3e-5
/* Statistics are kept as FP32 between chunks. */
#define FORWARD_TOLERANCE 1e-5
/* A unit in the last place of the 16-bit dtypes, relative; the smallest FP16 number. */
#define BF16_TOLERANCE 0x1p-8
#define FP16_TOLERANCE 0x1p-11
#define FP16_SMALLEST 0x1p-24
/* What the header promises. */
#define FORWARD_LIMIT ((size_t)64 << 20)
#define DEFAULT_BUDGET ((size_t)512 << 20)

/* ---- Assertions ---------------------------------------------------------------------------- */

void assert_call_succeeds(lgh_status status) {
    if (status != LGH_SUCCESS)
        fail_msg("%s\n%d violations:\n%s", lgh_last_error(), fake_cuda_violation_count(),
                 fake_cuda_violations());
}

void assert_no_violations(void) {
    if (fake_cuda_violation_count() > 0)
        fail_msg("%d violations:\n%s", fake_cuda_violation_count(), fake_cuda_violations());
}

/* A NaN is right where one is expected, and only there. */
static void check_number(double actual, double expected, double tolerance, const char *what,
                         int64_t at_row) {
    char text[96];
    snprintf(text, sizeof text, "%s of row %lld", what, (long long)at_row);
    if (isnan(expected) && isnan(actual))
        return;
    lgh_assert_close(actual, expected, tolerance, text);
}

static void check_vector(const problem *p, const void *vector, size_t element_bytes,
                         const char *what) {
    if (vector && p->tokens > 0 && !fake_cuda_written(vector, (size_t)p->tokens * element_bytes))
        fail_msg("%s was not written for every token", what);
}

/* Every row was written, and nothing between rows. */
static void check_coverage(const problem *p, const problem_matrix *m, int64_t rows,
                           const char *what) {
    const int64_t size = (int64_t)lgh_dtype_size(m->dtype);
    const int64_t row_bytes = p->options.hidden_size * size, stride = m->stride * size;
    for (int64_t at_row = 0; at_row < rows; ++at_row) {
        const char *at = m->data + at_row * stride;
        if (!fake_cuda_written(at, (size_t)row_bytes))
            fail_msg("%s: row %lld was not written", what, (long long)at_row);
        if (at_row + 1 < rows && stride > row_bytes &&
            fake_cuda_partly_written(at + row_bytes, (size_t)(stride - row_bytes)))
            fail_msg("%s: the padding of row %lld was written", what, (long long)at_row);
    }
    if (m->data > (char *)m->memory &&
        fake_cuda_partly_written(m->memory, (size_t)(m->data - (char *)m->memory)))
        fail_msg("%s: what lies before its first row was written", what);
}

/* ---- Workspace ----------------------------------------------------------------------------- */

static int is_16_bit(lgh_dtype dtype) {
    return lgh_dtype_size(dtype) == 2;
}

/* Rows of dhidden are summed in the workspace: for all tokens at once, with a 16-bit dweight. */
static int may_go_beyond_budget(const lgh_plan_options *o) {
    return is_16_bit(o->dweight_dtype) && (is_16_bit(o->dhidden_dtype) || o->live_lists);
}

static void check_workspace_bytes(const problem *p, lgh_pass pass, size_t bytes, size_t beyond) {
    const size_t budget =
        p->options.backward_budget > 0 ? (size_t)p->options.backward_budget : DEFAULT_BUDGET;
    assert_int_equal(bytes % LGH_WORKSPACE_ALIGNMENT, 0);
    assert_true(beyond <= bytes);
    assert_true(bytes - beyond <= (pass == LGH_PASS_FORWARD ? FORWARD_LIMIT : budget));
    if (pass == LGH_PASS_FORWARD || !may_go_beyond_budget(&p->options))
        assert_int_equal(beyond, 0);
}

/* A workspace of exactly the bytes that the plan asks for, or NULL. */
static void *query_workspace(const problem *p, const lgh_plan *plan, lgh_pass pass, size_t *bytes) {
    size_t beyond;
    lgh_assert_success(lgh_plan_workspace_size(plan, pass, p->tokens, bytes, &beyond));
    check_workspace_bytes(p, pass, *bytes, beyond);
    if (*bytes == 0)
        return NULL;
    void *workspace = fake_cuda_allocate(*bytes);
    assert_non_null(workspace);
    return workspace;
}

static void free_workspace(void *workspace, size_t bytes) {
    if (!workspace)
        return;
    assert_true(fake_cuda_bytes_touched(workspace) <= bytes);
    fake_cuda_free(workspace);
}

/* ---- Counters ------------------------------------------------------------------------------ */

typedef struct counts {
    uint64_t foreign, invalid;
} counts;

static counts read_counters(const problem *p) {
    if (!p->counters.foreign_targets)
        return (counts){0, 0};
    return (counts){*p->counters.foreign_targets, *p->counters.invalid_temperatures};
}

static void check_counters(const problem *p, counts before) {
    const counts after = read_counters(p);
    for (int64_t token = 0; token < p->tokens; ++token) {
        const reference_row r = reference_row_of(p, token);
        before.foreign += r.kind == ROW_FOREIGN || r.kind == ROW_REMOTE;
        before.invalid += r.is_invalid != 0;
    }
    if (!p->counters.foreign_targets)
        return;
    assert_int_equal(after.foreign, before.foreign);
    assert_int_equal(after.invalid, before.invalid);
}

/* ---- Forward ------------------------------------------------------------------------------- */

/* Log-probs and the rest of a row that counts. */
static void check_row_results(const problem *p, int64_t token, const reference_row *r) {
    const lgh_forward_args args = problem_forward_args(p);
    double *x = reference_logits(p, token);
    const reference_statistics s = reference_statistics_of(p, x, r->temperature);
    double logp = 0, at_one = 0;
    if (r->kind == ROW_LOCAL || (r->kind == ROW_REMOTE && reference_entries(p) > 0)) {
        logp = (r->kind == ROW_LOCAL ? x[r->target] / r->temperature : 0) - s.lse;
        at_one = (r->kind == ROW_LOCAL ? x[r->target] : 0) - s.lse_at_one;
    }
    free(x);
    check_number((double)p->lse[token], s.lse, FORWARD_TOLERANCE, "lse", token);
    if (args.logp)
        check_number((double)p->logp[token], logp, FORWARD_TOLERANCE, "logp", token);
    if (args.logp_at_one)
        check_number((double)p->logp_at_one[token], at_one, FORWARD_TOLERANCE, "logp_at_one",
                     token);
    if (args.entropy)
        check_number((double)p->entropy[token], s.entropy, FORWARD_TOLERANCE, "entropy", token);
    if (args.best)
        assert_int_equal(p->best[token], s.best);
}

/* Every output of a row that does not count is this number. */
static void check_row_without_results(const problem *p, int64_t token, double number) {
    const lgh_forward_args args = problem_forward_args(p);
    check_number((double)p->lse[token], number, 0, "lse", token);
    if (args.logp)
        check_number((double)p->logp[token], number, 0, "logp", token);
    if (args.logp_at_one)
        check_number((double)p->logp_at_one[token], number, 0, "logp_at_one", token);
    if (args.entropy)
        check_number((double)p->entropy[token], number, 0, "entropy", token);
    if (args.best)
        assert_int_equal(p->best[token], -1);
}

static void check_outputs(const problem *p) {
    const lgh_forward_args args = problem_forward_args(p);
    check_vector(p, args.logp, sizeof(float), "logp");
    check_vector(p, args.lse, sizeof(float), "lse");
    check_vector(p, args.entropy, sizeof(float), "entropy");
    check_vector(p, args.logp_at_one, sizeof(float), "logp_at_one");
    check_vector(p, args.best, sizeof(int64_t), "best");
    for (int64_t token = 0; token < p->tokens; ++token) {
        const reference_row r = reference_row_of(p, token);
        if (r.kind == ROW_IGNORED || r.is_invalid)
            check_row_without_results(p, token, r.is_invalid ? NAN : 0);
        else
            check_row_results(p, token, &r);
    }
}

void problem_check_forward(const problem *p, const lgh_plan *plan) {
    const lgh_forward_args args = problem_forward_args(p);
    const counts before = read_counters(p);
    size_t bytes;
    void *workspace = query_workspace(p, plan, LGH_PASS_FORWARD, &bytes);
    fake_cuda_begin_run(p->stream, "lgh_forward");
    lgh_status status = lgh_forward(plan, &args, workspace, bytes, p->stream);
    fake_cuda_end_run();
    assert_call_succeeds(status);
    free_workspace(workspace, bytes);
    check_counters(p, before);
    check_outputs(p);
}

/* ---- Backward ------------------------------------------------------------------------------ */

/* Sums of rows and of their terms' magnitudes. */
typedef struct sums {
    double *values;
    double *magnitudes;
    int64_t width;
} sums;

static sums create_sums(int64_t rows, int64_t width, double start) {
    const size_t count = (size_t)(rows * width);
    const sums s = {calloc(count + 1, sizeof(double)), calloc(count + 1, sizeof(double)), width};
    assert_non_null(s.values);
    assert_non_null(s.magnitudes);
    for (size_t i = 0; i < count; ++i)
        s.values[i] = s.magnitudes[i] = start;
    return s;
}

static void free_sums(sums s) {
    free(s.values);
    free(s.magnitudes);
}

static void add_term(sums s, int64_t at_row, int64_t column, double term) {
    s.values[at_row * s.width + column] += term;
    s.magnitudes[at_row * s.width + column] += fabs(term);
}

static void add_row(sums s, int64_t to, double factor, const problem_matrix *m, int64_t from) {
    for (int64_t c = 0; factor != 0 && c < s.width; ++c)
        add_term(s, to, c, factor * reference_element(m, from, c));
}

static double tolerance_of(lgh_dtype dtype, double value) {
    if (dtype == LGH_BF16)
        return BF16_TOLERANCE * fabs(value);
    return dtype == LGH_FP16 ? FP16_TOLERANCE * fabs(value) + FP16_SMALLEST : 0;
}

static void check_matrix(const problem *p, sums s, const problem_matrix *m, int64_t rows,
                         const char *what) {
    if (!m->memory)
        return;
    check_coverage(p, m, rows, what);
    for (int64_t i = 0; i < rows * s.width; ++i) {
        const double expected = s.values[i], magnitude = s.magnitudes[i];
        const double rounding = magnitude > 0 ? tolerance_of(m->dtype, expected) : 0;
        check_number(reference_element(m, i / s.width, i % s.width), expected,
                     SUM_TOLERANCE * magnitude + rounding, what, i / s.width);
    }
}

static void check_dbias(const problem *p, sums s) {
    const int64_t vocab_size = p->options.vocab_size;
    if (!p->dbias || vocab_size == 0)
        return;
    if (!fake_cuda_written(p->dbias, (size_t)vocab_size * sizeof(float)))
        fail_msg("dbias was not written for every entry");
    for (int64_t v = 0; v < vocab_size; ++v)
        check_number((double)p->dbias[v], s.values[v], SUM_TOLERANCE * s.magnitudes[v], "dbias", v);
}

static void add_token(const problem *p, int64_t token, double scale, sums dhidden, sums dweight,
                      sums dbias) {
    const int is_invalid = reference_row_of(p, token).is_invalid;
    double *dx = reference_gradients(p, token, scale);
    for (int64_t v = 0; v < reference_entries(p); ++v) {
        add_row(dhidden, token, dx[v], &p->weight, v);
        add_row(dweight, v, dx[v], &p->hidden, token);
        add_term(dbias, v, 0, dx[v]);
    }
    free(dx);
    for (int64_t c = 0; is_invalid && c < dhidden.width; ++c)
        dhidden.values[token * dhidden.width + c] = NAN;
}

static void check_results(const problem *p) {
    const int64_t width = p->options.hidden_size, vocab_size = p->options.vocab_size;
    const double start = (double)PROBLEM_START;
    const double scale = reference_scale(p);
    const sums dhidden = create_sums(p->tokens, width, 0);
    const sums dweight = create_sums(vocab_size, width, problem_adds_to_dweight(p) ? start : 0);
    const sums dbias = create_sums(vocab_size, 1, p->accumulate ? start : 0);
    for (int64_t token = 0; token < p->tokens; ++token)
        add_token(p, token, scale, dhidden, dweight, dbias);
    check_matrix(p, dhidden, &p->dhidden, p->tokens, "dhidden");
    check_matrix(p, dweight, &p->dweight, vocab_size, "dweight");
    check_dbias(p, dbias);
    free_sums(dhidden);
    free_sums(dweight);
    free_sums(dbias);
}

void problem_check_backward(const problem *p, const lgh_plan *plan) {
    const lgh_backward_args args = problem_backward_args(p);
    const counts before = read_counters(p);
    const int runs = args.dhidden.data || args.dweight.data || args.dbias;
    size_t bytes;
    void *workspace = query_workspace(p, plan, LGH_PASS_BACKWARD, &bytes);
    fake_cuda_begin_run(p->stream, "lgh_backward");
    lgh_status status = lgh_backward(plan, &args, workspace, bytes, p->stream);
    fake_cuda_end_run();
    assert_call_succeeds(status);
    free_workspace(workspace, bytes);
    if (runs)
        check_counters(p, before);
    check_results(p);
}

/* ---- Both ---------------------------------------------------------------------------------- */

void problem_check(problem *p, lgh_context *context) {
    lgh_plan *plan;
    problem_open(p);
    const fake_cuda_live before = fake_cuda_count_live();
    fake_cuda_reset();
    assert_call_succeeds(lgh_plan_create(&plan, context, &p->options));
    const fake_cuda_live planned = fake_cuda_count_live();
    problem_check_forward(p, plan);
    problem_check_backward(p, plan);
    lgh_plan_destroy(plan);
    assert_int_equal(planned.bytes, before.bytes);
    assert_int_equal(fake_cuda_count_live().bytes, before.bytes);
    assert_int_equal(fake_cuda_count_live().streams, before.streams);
    assert_int_equal(fake_cuda_depth(), 0);
    problem_close(p);
    assert_no_violations();
}
