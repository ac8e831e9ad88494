/* bench_check.c - what the bench's results are compared with: float64 on the host, and promises. */
#include "bench_check.h"

#include "error.h"
#include "value.h"

#include <math.h>
#include <stdlib.h>

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

/* ---- Rows of dweight ----------------------------------------------------------------------- */

typedef struct row_job {
    const lgh_tool_tensors *tensors;
    const float *lse;
    const int64_t *entries;
    double *rows;
    double *largest; /* one per row */
} row_job;

/* Four sums, so that a multiplication need not wait for the addition before it. */
static double dot(const uint16_t *a, const uint16_t *b, int64_t count) {
    double sums[4] = {0.0, 0.0, 0.0, 0.0};
    for (int64_t k = 0; k < count; ++k)
        sums[k % 4] += (double)lgh__float_from_bf16(a[k]) * (double)lgh__float_from_bf16(b[k]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

static void add_scaled(double *row, double scale, const uint16_t *hidden, int64_t count) {
    for (int64_t k = 0; k < count; ++k)
        row[k] += scale * (double)lgh__float_from_bf16(hidden[k]);
}

static void compute_row(void *data, int64_t item, int worker) {
    const row_job *job = data;
    const lgh_tool_tensors *t = job->tensors;
    const double temperature = (double)LGH_TOOL_BENCH_TEMPERATURE;
    int64_t d = t->shape.hidden, entry = job->entries[item];
    double *row = job->rows + item * d;
    (void)worker;
    for (int64_t k = 0; k < d; ++k)
        row[k] = 0.0;
    for (int64_t i = 0; i < t->shape.tokens; ++i) {
        const uint16_t *hidden = t->hidden + i * d;
        double z = dot(hidden, t->weight + entry * d, d) / temperature;
        double p = exp(z - (double)job->lse[i]);
        double dx = (double)t->grad_logp[i] * ((t->targets[i] == entry) - p) / temperature;
        add_scaled(row, dx, hidden, d);
        job->largest[item] = fmax(job->largest[item], fabs(z));
    }
}

lgh_status lgh_tool_dweight_rows(const lgh_tool_tensors *tensors, const float *lse,
                                 const int64_t *entries, int64_t count, double *rows,
                                 double *largest, lgh__threads *threads) {
    double *row_largest = calloc((size_t)count + 1, sizeof *row_largest);
    RETURN_IF(!row_largest, LGH_ERROR_OUT_OF_MEMORY, "no memory for %lld numbers",
              (long long)count);
    row_job job = {tensors, lse, entries, rows, row_largest};
    lgh__threads_run(threads, compute_row, &job, count);
    for (int64_t r = 0; largest && r < count; ++r)
        *largest = fmax(*largest, row_largest[r]);
    free(row_largest);
    return LGH_SUCCESS;
}

/* ---- Errors -------------------------------------------------------------------------------- */

double lgh_tool_largest_error(const float *actual, const double *expected, int64_t count) {
    double largest = 0.0;
    for (int64_t i = 0; i < count; ++i) {
        double error = fabs((double)actual[i] - expected[i]);
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

double lgh_tool_promise(double largest, int64_t hidden_size) {
    return 2e-5 * (1.0 + largest / 8.0) * fmax(1.0, (double)hidden_size / 1024.0);
}
