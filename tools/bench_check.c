/* bench_check.c - what the bench's results are compared with: float64 on the host, and promises. */
#include "bench_check.h"

#include "error.h"
#include "value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Samples ------------------------------------------------------------------------------- */

int64_t lgh_tool_spread(int64_t *indices, int64_t count, int64_t limit) {
    if (count > limit)
        count = limit;
    for (int64_t i = 0; i < count; ++i)
        indices[i] = count > 1 ? i * (limit - 1) / (count - 1) : 0;
    return count;
}

lgh_status lgh_tool_vocab_sample(const lgh_tool_tensors *tensors, int wanted, int64_t *entries,
                                 int64_t count, int64_t *found) {
    int64_t vocab = tensors->shape.vocab, matching = 0, position = 0;
    unsigned char *is_target = calloc((size_t)vocab, 1);
    *found = 0;
    RETURN_IF(!is_target, LGH_ERROR_OUT_OF_MEMORY, "no memory for %lld bytes", (long long)vocab);
    for (int64_t i = 0; i < tensors->shape.tokens; ++i)
        is_target[tensors->targets[i]] = 1;
    for (int64_t v = 0; v < vocab; ++v)
        matching += is_target[v] == wanted;
    int64_t *positions = entries; /* among the matching entries; replaced by the entries in order */
    count = lgh_tool_spread(positions, count, matching);
    for (int64_t v = 0; v < vocab && *found < count; ++v)
        if (is_target[v] == wanted && position++ == positions[*found])
            entries[(*found)++] = v;
    free(is_target);
    return LGH_SUCCESS;
}

/* ---- Logits -------------------------------------------------------------------------------- */

double lgh_tool_temperature(const lgh_tool_tensors *tensors, const lgh_tool_feature *feature,
                            int64_t token) {
    return (double)(feature->token_temperatures ? tensors->temperatures[token]
                                                : LGH_TOOL_BENCH_TEMPERATURE);
}

/* Four sums, so that a multiplication need not wait for the addition before it. */
static double dot(const float *a, const float *b, int64_t count) {
    double sums[4] = {0.0, 0.0, 0.0, 0.0};
    for (int64_t k = 0; k < count; ++k)
        sums[k % 4] += (double)a[k] * (double)b[k];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

lgh_status lgh_tool_logit(double *logit, const lgh_tool_tensors *t, const lgh_tool_feature *feature,
                          int64_t token, int64_t entry) {
    const int64_t d = t->shape.hidden;
    float *hidden;
    FORWARD(lgh_tool_allocate(&hidden, 2 * d, sizeof *hidden));
    lgh_tool_widen(hidden, t->hidden, t->dtypes->hidden, token * d, d);
    lgh_tool_widen(hidden + d, t->weight, t->dtypes->weight, entry * d, d);
    *logit = dot(hidden, hidden + d, d);
    if (feature->bias != LGH_DTYPE_NONE)
        *logit += (double)t->bias[entry];
    free(hidden);
    return LGH_SUCCESS;
}

/* ---- Rows of dweight ----------------------------------------------------------------------- */

typedef struct row_job {
    const lgh_tool_tensors *tensors;
    const lgh_tool_feature *feature;
    const lgh_tool_tokens_seen *seen;
    const int64_t *entries;
    double *dweight, *dbias;
    double *largest; /* one per entry, as in dbias */
    float *scratch;  /* two rows for each worker */
} row_job;

static void add_scaled(double *row, double scale, const float *hidden, int64_t count) {
    for (int64_t k = 0; k < count; ++k)
        row[k] += scale * (double)hidden[k];
}

static double rounded(double x, lgh_dtype rounding) {
    return rounding == LGH_BF16   ? (double)lgh__float_from_bf16(lgh__bf16_from_float((float)x))
           : rounding == LGH_FP16 ? (double)lgh__float_from_fp16(lgh__fp16_from_float((float)x))
                                  : x;
}

/* dL/dz from the probability of the entry, as in the public header. */
static double dz_of(const row_job *job, int64_t i, int64_t entry, double z) {
    const lgh_tool_tensors *t = job->tensors;
    const double log_p = z - (double)job->seen->lse[i], p = exp(log_p);
    double dz = (double)t->grad_logp[i] * ((t->targets[i] == entry) - p);
    if (job->feature->grad_entropy)
        dz -= (double)t->grad_entropy[i] * p * (log_p + (double)job->seen->entropy[i]);
    if (job->feature->grad_lse)
        dz += (double)t->grad_lse[i] * p;
    return dz;
}

/* dL/dx of a logit x = hidden . weight. */
static double dx_of(const row_job *job, int64_t i, int64_t entry, double x, double *largest) {
    const lgh_tool_feature *f = job->feature;
    const double temperature = lgh_tool_temperature(job->tensors, f, i);
    const double cap = (double)f->softcap;
    double slope = 1.0 / temperature;
    if (f->bias != LGH_DTYPE_NONE)
        x += (double)job->tensors->bias[entry];
    x = rounded(x, f->rounding);
    if (cap > 0.0) {
        x = cap * tanh(x / cap);
        slope *= 1.0 - (x / cap) * (x / cap);
    }
    *largest = fmax(*largest, fabs(x / temperature));
    return dz_of(job, i, entry, x / temperature) * slope;
}

/* Rows that do not count, rows whose target is none, and padding. */
static int has_gradient(const row_job *job, int64_t i, int64_t entry) {
    const lgh_tool_feature *f = job->feature;
    const int64_t valid = lgh_tool_feature_valid(f, job->tensors->shape.vocab);
    return lgh_tool_feature_is_live(f, i) && entry < valid &&
           (job->tensors->targets[i] < valid || f->oov_policy == LGH_OOV_SOFTMAX);
}

static void compute_row(void *data, int64_t item, int worker) {
    const row_job *job = data;
    const lgh_tool_tensors *t = job->tensors;
    const int64_t d = t->shape.hidden, entry = job->entries[item];
    float *hidden = job->scratch + 2 * worker * d, *weight = hidden + d;
    double *row = job->dweight + item * d;
    lgh_tool_widen(weight, t->weight, t->dtypes->weight, entry * d, d);
    for (int64_t k = 0; k < d; ++k)
        row[k] = 0.0;
    for (int64_t i = 0; i < t->shape.tokens; ++i) {
        if (!has_gradient(job, i, entry))
            continue;
        lgh_tool_widen(hidden, t->hidden, t->dtypes->hidden, i * d, d);
        double dx = dx_of(job, i, entry, dot(hidden, weight, d), &job->largest[item]);
        add_scaled(row, dx, hidden, d);
        job->dbias[item] += dx;
    }
}

lgh_status lgh_tool_dweight_rows(const lgh_tool_tensors *tensors, const lgh_tool_feature *feature,
                                 const lgh_tool_tokens_seen *seen, const int64_t *entries,
                                 int64_t count, double *dweight, double *dbias, double *largest,
                                 lgh__threads *threads) {
    const size_t rows = 2 * (size_t)lgh__threads_count(threads);
    double *row_largest = calloc((size_t)count + 1, sizeof *row_largest);
    float *scratch = malloc(rows * (size_t)tensors->shape.hidden * sizeof *scratch);
    lgh_status status = LGH_SUCCESS;
    if (row_largest && scratch) {
        row_job job = {tensors, feature, seen, entries, dweight, dbias, row_largest, scratch};
        memset(dbias, 0, (size_t)count * sizeof *dbias);
        lgh__threads_run(threads, compute_row, &job, count);
        for (int64_t r = 0; r < count; ++r)
            *largest = fmax(*largest, row_largest[r]);
    } else
        status = FAIL(LGH_ERROR_OUT_OF_MEMORY, "no memory for %zu rows", rows);
    free(scratch);
    free(row_largest);
    return status;
}

/* ---- Errors -------------------------------------------------------------------------------- */

double lgh_tool_largest_error(const float *actual, const float *expected, int64_t count) {
    double largest = 0.0;
    for (int64_t i = 0; i < count; ++i) {
        double error = fabs((double)actual[i] - (double)expected[i]);
        if (isnan(error))
            return error;
        largest = fmax(largest, error);
    }
    return largest;
}

double lgh_tool_l2_error(const float *actual, const double *expected, int64_t count) {
    double difference = 0.0, norm = 0.0;
    for (int64_t i = 0; i < count; ++i) {
        double error = (double)actual[i] - expected[i];
        difference += error * error;
        norm += expected[i] * expected[i];
    }
    return difference == 0.0 ? 0.0 : sqrt(difference / norm);
}

/* ---- Promises ------------------------------------------------------------------------------ */

/* The longer the sums, the more accumulators lose; up to D = 1024 the bounds hold as they are. */
static double depth(int64_t hidden_size) {
    return fmax(1.0, (double)hidden_size / 1024.0);
}

double lgh_tool_promise(lgh_dtype operands, double largest, int64_t hidden_size) {
    return (operands == LGH_FP32 ? 1e-5 : 2e-5) * (1.0 + largest / 8.0) * depth(hidden_size);
}

double lgh_tool_promise_gradient(lgh_dtype operands, lgh_dtype result, int64_t hidden_size) {
    if (result != LGH_FP32)
        return 4e-3;
    return operands == LGH_FP32 ? 1e-5 * depth(hidden_size) : 2.5e-3;
}

double lgh_tool_bound_dbias(lgh_dtype operands, int64_t hidden_size) {
    return operands == LGH_BF16 ? 0x1p-8
                                : lgh_tool_promise_gradient(operands, LGH_FP32, hidden_size);
}

double lgh_tool_allowance(lgh_dtype rounding, double largest) {
    return rounding == LGH_BF16 ? 0x1p-7 * largest : rounding == LGH_FP16 ? 0x1p-10 * largest : 0.0;
}

double lgh_tool_allowance_gradient(double promise, double allowance) {
    return sqrt(promise * allowance);
}
