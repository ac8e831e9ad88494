/* cpu_comparison.c - results of the CPU device against the oracle's and against each other. */
#include "cpu_problem.h"

#include <math.h>
#include <stdlib.h>

/* What two ways to sum in float64 may differ by, for logits and gradients of the sizes here. */
#define OUTPUT_SLACK 1e-12
#define GRADIENT_SLACK 1e-11
/* A fault must be worse than so many roundings to count as seen. */
#define FAULT_RATIO 100.0

/* ---- One number after another -------------------------------------------------------------- */

/* The worst error so far. */
typedef struct mismatch {
    double ratio; /* of the error to what is allowed */
    const char *what;
    int64_t index;
    double actual;
    double expected;
} mismatch;

static void note(mismatch *worst, const char *what, int64_t index, double actual, double expected,
                 double allowed) {
    const int equal = actual == expected || (isnan(actual) && isnan(expected));
    const double error = equal ? 0 : fabs(actual - expected);
    const double ratio = isfinite(error) ? error / allowed : (double)INFINITY;
    if (ratio > worst->ratio)
        *worst = (mismatch){ratio, what, index, actual, expected};
}

/* At least half of the last place of numbers near `value`. */
static double half_unit(double value, lgh_dtype dtype) {
    const double relative = dtype == LGH_FP32 ? 0x1p-24 : dtype == LGH_BF16 ? 0x1p-8 : 0x1p-11;
    const double smallest = dtype == LGH_FP32 ? 0x1p-150 : dtype == LGH_BF16 ? 0x1p-134 : 0x1p-25;
    return fmax(relative * fabs(value), smallest);
}

/* A number that was rounded once from something close to `expected`. */
static void note_rounded(mismatch *worst, const char *what, int64_t index, double actual,
                         double expected, lgh_dtype dtype, double slack) {
    const double rounded = reference_round(expected, dtype);
    const double goal = isfinite(rounded) ? expected : rounded;
    note(worst, what, index, actual, goal, half_unit(expected, dtype) + slack);
}

static void note_integer(mismatch *worst, const char *what, int64_t index, int64_t actual,
                         int64_t expected) {
    note(worst, what, index, (double)actual, (double)expected, actual == expected ? 1 : 1e-300);
}

static double *numbers(int64_t count) {
    double *memory = calloc(count > 0 ? (size_t)count : 1, sizeof *memory);
    assert_non_null(memory);
    return memory;
}

/* ---- Passes -------------------------------------------------------------------------------- */

static void compare_forward(mismatch *worst, const cpu_problem *p, const cpu_results *r,
                            const reference_faults *faults) {
    static const char *const names[] = {"logp", "lse", "entropy", "logp_at_one"};
    const lgh_forward_args args = cpu_problem_forward_args(p);
    double *memory = numbers(4 * p->tokens);
    int64_t *best = calloc((size_t)p->tokens + 1, sizeof *best);
    assert_non_null(best);
    double *outputs[4] = {memory, memory + p->tokens, memory + 2 * p->tokens,
                          memory + 3 * p->tokens};
    reference_outputs expected = {outputs[0], outputs[1], outputs[2], outputs[3], best, 0, 0};
    reference_forward(&p->options, &args, faults, &expected);
    for (int64_t token = 0; token < p->tokens; token++) {
        for (int i = 0; i < 4; i++)
            if (!p->without_targets || i == 1 || i == 2)
                note_rounded(worst, names[i], token, (double)r->outputs[i][token],
                             outputs[i][token], LGH_FP32, OUTPUT_SLACK);
        note_integer(worst, "best", token, r->best[token], best[token]);
    }
    /* A backward call without a result to write looks at no row. */
    const int passes = r->dhidden || r->dweight || r->dbias ? 2 : 1;
    for (int pass = 0; pass < passes; pass++) {
        note_integer(worst, "foreign_targets", pass, (int64_t)r->foreign_targets[pass],
                     (int64_t)expected.foreign_targets);
        note_integer(worst, "invalid_temperatures", pass, (int64_t)r->invalid_temperatures[pass],
                     (int64_t)expected.invalid_temperatures);
    }
    free(memory);
    free(best);
}

/* Element (row, k) of a gradient. */
static double element(const cpu_problem *p, const void *matrix, lgh_dtype dtype, int64_t row,
                      int64_t k) {
    return reference_element(matrix, dtype, row * p->row_stride + k);
}

static void compare_matrix(mismatch *worst, const cpu_problem *p, const char *what,
                           const void *actual, lgh_dtype dtype, const double *expected,
                           int64_t rows, const void *before) {
    const int64_t columns = p->options.hidden_size;
    for (int64_t i = 0; actual && i < rows * columns; i++) {
        const int64_t row = i / columns, k = i % columns;
        const double start = before ? element(p, before, dtype, row, k) : 0;
        note_rounded(worst, what, i, element(p, actual, dtype, row, k), start + expected[i], dtype,
                     GRADIENT_SLACK);
    }
}

static void compare_backward(mismatch *worst, const cpu_problem *p, const cpu_results *r,
                             const reference_faults *faults) {
    const lgh_plan_options *o = &p->options;
    lgh_backward_args args = cpu_problem_backward_args(p);
    args.lse = args.lse ? args.lse : r->outputs[1];
    args.entropy = args.entropy ? args.entropy : r->outputs[2];
    const reference_gradients expected = {numbers(p->tokens * o->hidden_size),
                                          numbers(o->vocab_size * o->hidden_size),
                                          numbers(o->vocab_size)};
    reference_backward(o, &args, faults, &expected);
    compare_matrix(worst, p, "dhidden", r->dhidden, o->dhidden_dtype, expected.dhidden, p->tokens,
                   NULL);
    compare_matrix(worst, p, "dweight", r->dweight, o->dweight_dtype, expected.dweight,
                   o->vocab_size, p->accumulate_dweight ? p->dweight_before : NULL);
    for (int64_t row = 0; r->dbias && row < o->vocab_size; row++) {
        const double start = p->accumulate_dbias ? (double)p->dbias_before[row] : 0;
        note_rounded(worst, "dbias", row, (double)r->dbias[row], start + expected.dbias[row],
                     LGH_FP32, GRADIENT_SLACK);
    }
    free(expected.dhidden);
    free(expected.dweight);
    free(expected.dbias);
}

double cpu_problem_distance(const cpu_problem *p, const cpu_results *r,
                            const reference_faults *faults, int print) {
    mismatch worst = {0, "nothing", 0, 0, 0};
    compare_forward(&worst, p, r, faults);
    compare_backward(&worst, p, r, faults);
    if (print)
        print_message("%s[%lld]: actual %.17g, expected %.17g, %g times what is allowed\n",
                      worst.what, (long long)worst.index, worst.actual, worst.expected,
                      worst.ratio);
    return worst.ratio;
}

/* ---- Checks -------------------------------------------------------------------------------- */

void cpu_problem_check(const cpu_problem *p, const cpu_results *r) {
    if (cpu_problem_distance(p, r, NULL, 0) > 1) {
        cpu_problem_distance(p, r, NULL, 1);
        fail_msg("not the oracle's results");
    }
}

void cpu_problem_check_fault(const cpu_problem *p, const cpu_results *r, reference_faults fault) {
    if (cpu_problem_distance(p, r, &fault, 0) < FAULT_RATIO) {
        cpu_problem_distance(p, r, &fault, 1);
        fail_msg("the fault does not show");
    }
}

static void check_same_matrix(const cpu_problem *p, const void *a, const void *b, lgh_dtype dtype,
                              int64_t rows, const char *what) {
    if (a && b)
        lgh_assert_same_bytes(a, b, (size_t)(rows * p->row_stride) * lgh_dtype_size(dtype), what);
}

void cpu_problem_check_same(const cpu_problem *p, const cpu_results *a, const cpu_results *b) {
    static const char *const names[] = {"logp", "lse", "entropy", "logp_at_one"};
    const lgh_plan_options *o = &p->options;
    for (int i = 0; i < 4; i++)
        lgh_assert_same_bytes(a->outputs[i], b->outputs[i], (size_t)p->tokens * sizeof(float),
                              names[i]);
    lgh_assert_same_bytes(a->best, b->best, (size_t)p->tokens * sizeof *a->best, "best");
    check_same_matrix(p, a->dhidden, b->dhidden, o->dhidden_dtype, p->tokens, "dhidden");
    check_same_matrix(p, a->dweight, b->dweight, o->dweight_dtype, o->vocab_size, "dweight");
    if (a->dbias && b->dbias)
        lgh_assert_same_bytes(a->dbias, b->dbias, (size_t)o->vocab_size * sizeof *a->dbias,
                              "dbias");
}

double cpu_results_dhidden(const cpu_problem *p, const cpu_results *r, int64_t token, int64_t k) {
    return element(p, r->dhidden, p->options.dhidden_dtype, token, k);
}

double cpu_results_dweight(const cpu_problem *p, const cpu_results *r, int64_t row, int64_t k) {
    return element(p, r->dweight, p->options.dweight_dtype, row, k);
}

void cpu_problem_check_all(const cpu_problem *p, const reference_faults *faults, size_t count) {
    cpu_results r = cpu_problem_run(p);
    cpu_problem_check(p, &r);
    for (size_t i = 0; i < count; i++)
        cpu_problem_check_fault(p, &r, faults[i]);
    cpu_results_close(&r);
}
