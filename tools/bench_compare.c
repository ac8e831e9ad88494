/* bench_compare.c - results of the library beside those of float64, and what is promised. */
#include "bench_compare.h"

#include "bench_check.h"
#include "error.h"

#include <math.h>
#include <stdlib.h>

typedef struct comparison {
    lgh_tool_error *errors;
    const lgh_tool_tensors *tensors;
    const lgh_tool_feature *feature;
    const lgh_tool_sample *sample;
    const lgh_tool_outputs *outputs;
    lgh__threads *threads;
    double largest; /* of the |z| met */
} comparison;

/* ---- Outputs ------------------------------------------------------------------------------- */

/* The bound grows with the largest |z|. That of all N V logits is not known; the largest of those
 * computed here is no larger, which only makes the bound stricter. */
static double exact_promise(const comparison *v) {
    return lgh_tool_promise(v->tensors->dtypes->operands, v->largest, v->tensors->shape.hidden);
}

static double allowance(const comparison *v) {
    return lgh_tool_allowance(v->feature->rounding, v->largest);
}

static double promise(const comparison *v) {
    return exact_promise(v) + allowance(v);
}

static void compare_statistics(comparison *v, const lgh_tool_reference *reference) {
    static const uint32_t bits[LGH_TOOL_STATISTICS] = {LGH_OUTPUT_LOGP, LGH_OUTPUT_LSE,
                                                       LGH_OUTPUT_ENTROPY, LGH_OUTPUT_LOGP_AT_ONE};
    const int64_t n = v->tensors->shape.tokens, count = v->sample->token_count;
    for (int which = 0; which < LGH_TOOL_STATISTICS; ++which) {
        float actual[LGH_TOOL_REFERENCE_ROWS];
        for (int64_t r = 0; r < count; ++r)
            actual[r] = v->outputs->statistics[which * n + v->sample->tokens[r]];
        if (v->feature->outputs & bits[which])
            v->errors[LGH_TOOL_ERROR_LOGP + which] = (lgh_tool_error){
                count, lgh_tool_largest_error(actual, reference->statistics[which], count),
                promise(v)};
    }
}

/* How much less the logit of the entry found is than that of the best one: near ties may fall
 * either way. */
static lgh_status best_error(const comparison *v, int64_t token, int64_t found, int64_t best,
                             double *error) {
    double x = NAN, largest = NAN;
    *error = found == best ? 0.0 : INFINITY;
    if (found == best || best < 0 || found < 0 ||
        found >= lgh_tool_feature_valid(v->feature, v->tensors->shape.vocab))
        return LGH_SUCCESS;
    FORWARD(lgh_tool_logit(&x, v->tensors, v->feature, token, found));
    FORWARD(lgh_tool_logit(&largest, v->tensors, v->feature, token, best));
    *error = (largest - x) / lgh_tool_temperature(v->tensors, v->feature, token);
    return LGH_SUCCESS;
}

static lgh_status compare_best(comparison *v, const lgh_tool_reference *reference) {
    double worst = 0.0;
    if (!(v->feature->outputs & LGH_OUTPUT_BEST))
        return LGH_SUCCESS;
    for (int64_t r = 0; r < v->sample->token_count; ++r) {
        const int64_t token = v->sample->tokens[r];
        double error;
        FORWARD(best_error(v, token, v->outputs->best[token], reference->best[r], &error));
        worst = fmax(worst, error);
    }
    v->errors[LGH_TOOL_ERROR_BEST] = (lgh_tool_error){v->sample->token_count, worst, promise(v)};
    return LGH_SUCCESS;
}

/* ---- Gradients ----------------------------------------------------------------------------- */

static double rounding_allowance(const comparison *v) {
    return lgh_tool_allowance_gradient(exact_promise(v), allowance(v));
}

static double gradient_promise(const comparison *v, lgh_dtype result) {
    return lgh_tool_promise_gradient(v->tensors->dtypes->operands, result,
                                     v->tensors->shape.hidden) +
           rounding_allowance(v);
}

static double dbias_bound(const comparison *v) {
    return lgh_tool_bound_dbias(v->tensors->dtypes->operands, v->tensors->shape.hidden) +
           rounding_allowance(v);
}

static void widen_dhidden(const comparison *v, const lgh_tool_reference *reference, float *actual,
                          double *expected) {
    const int64_t d = v->tensors->shape.hidden, count = v->sample->token_count;
    for (int64_t r = 0; r < count; ++r)
        lgh_tool_widen(actual + r * d, v->outputs->dhidden, v->feature->dhidden,
                       v->sample->tokens[r] * d, d);
    for (int64_t k = 0; k < count * d; ++k)
        expected[k] = (double)reference->dhidden[k];
}

static lgh_status compare_dhidden(comparison *v, const lgh_tool_reference *reference) {
    const int64_t count = v->sample->token_count, elements = count * v->tensors->shape.hidden;
    float *actual = NULL;
    double *expected = NULL;
    if (v->feature->dhidden == LGH_DTYPE_NONE)
        return LGH_SUCCESS;
    FORWARD(lgh_tool_allocate(&actual, elements, sizeof *actual));
    lgh_status status = lgh_tool_allocate(&expected, elements, sizeof *expected);
    if (status == LGH_SUCCESS) {
        widen_dhidden(v, reference, actual, expected);
        v->errors[LGH_TOOL_ERROR_DHIDDEN] =
            (lgh_tool_error){count, lgh_tool_l2_error(actual, expected, elements),
                             gradient_promise(v, v->feature->dhidden)};
    }
    free(expected);
    free(actual);
    return status;
}

/* dweight, and dbias where it is wanted. */
static lgh_status compare_entries(comparison *v, int wanted) {
    const int64_t n = v->tensors->shape.tokens, d = v->tensors->shape.hidden;
    const int64_t count = v->sample->entry_counts[wanted];
    const lgh_tool_tokens_seen seen = {v->outputs->statistics + LGH_TOOL_LSE * n,
                                       v->outputs->statistics + LGH_TOOL_ENTROPY * n};
    double *dweight = NULL, dbias[LGH_TOOL_ENTRIES];
    if (count == 0 || !lgh_tool_feature_has_backward(v->feature))
        return LGH_SUCCESS; /* every entry, or none, is a target; or there are no gradients */
    FORWARD(lgh_tool_allocate(&dweight, count * d, sizeof *dweight));
    lgh_status status =
        lgh_tool_dweight_rows(v->tensors, v->feature, &seen, v->sample->entries[wanted], count,
                              dweight, dbias, &v->largest, v->threads);
    lgh_tool_error *errors = v->errors;
    if (status == LGH_SUCCESS && v->feature->dweight != LGH_DTYPE_NONE)
        errors[LGH_TOOL_ERROR_DWEIGHT_OTHERS + wanted] = (lgh_tool_error){
            count, lgh_tool_l2_error(v->outputs->dweight[wanted], dweight, count * d),
            gradient_promise(v, v->feature->dweight)};
    if (status == LGH_SUCCESS && v->feature->dbias)
        errors[LGH_TOOL_ERROR_DBIAS_OTHERS + wanted] = (lgh_tool_error){
            count, lgh_tool_l2_error(v->outputs->dbias[wanted], dbias, count), dbias_bound(v)};
    free(dweight);
    return status;
}

/* The target's scaled logit is its log-prob plus lse, where the target is an entry. */
static void raise_largest(comparison *v, const lgh_tool_reference *reference) {
    const int64_t valid = lgh_tool_feature_valid(v->feature, v->tensors->shape.vocab);
    for (int64_t r = 0; r < v->sample->token_count; ++r) {
        const float *lse = reference->statistics[LGH_TOOL_LSE];
        const float *logp = reference->statistics[LGH_TOOL_LOGP];
        if (v->tensors->targets[v->sample->tokens[r]] < valid)
            v->largest = fmax(v->largest, fabs((double)logp[r] + (double)lse[r]));
    }
}

static lgh_status compare(comparison *v) {
    lgh_tool_reference reference;
    FORWARD(lgh_tool_reference_compute(&reference, v->tensors, v->feature, v->sample->tokens,
                                       v->sample->token_count));
    raise_largest(v, &reference);
    lgh_status status = compare_entries(v, 0);
    if (status == LGH_SUCCESS)
        status = compare_entries(v, 1);
    if (status == LGH_SUCCESS)
        status = compare_dhidden(v, &reference);
    if (status == LGH_SUCCESS)
        status = compare_best(v, &reference);
    if (status == LGH_SUCCESS)
        compare_statistics(v, &reference);
    lgh_tool_reference_free(&reference);
    return status;
}

lgh_status lgh_tool_compare(lgh_tool_error *errors, const lgh_tool_tensors *tensors,
                            const lgh_tool_feature *feature, const lgh_tool_sample *sample,
                            const lgh_tool_outputs *outputs, lgh__threads *threads) {
    comparison c = {errors, tensors, feature, sample, outputs, threads, 0.0};
    return compare(&c);
}
