/* reference.c - the oracle's arithmetic: one token after another, one logit after another. */
#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "value.h"

/* One token's logits with what is read from them. */
typedef struct token_row {
    int64_t columns; /* the vocabulary, and columns that a fault counts past it */
    double *logit;
    double *scaled; /* logit / T */
    double *p;
    double lse;
    double entropy;
} token_row;

static double *allocate(int64_t count) {
    double *numbers = calloc(count > 0 ? (size_t)count : 1, sizeof *numbers);
    if (!numbers) {
        fprintf(stderr, "reference: out of memory\n");
        abort();
    }
    return numbers;
}

static token_row row_create(int64_t columns) {
    token_row row = {columns, allocate(columns), allocate(columns), allocate(columns), 0, 0};
    return row;
}

static void row_destroy(token_row *row) {
    free(row->logit);
    free(row->scaled);
    free(row->p);
}

/* The matrix as contiguous doubles. */
static double *widen(const lgh_const_matrix *matrix) {
    double *wide = allocate(matrix->rows * matrix->columns);
    for (int64_t row = 0; row < matrix->rows; row++)
        for (int64_t k = 0; k < matrix->columns; k++) {
            int64_t i = row * matrix->row_stride + k;
            wide[row * matrix->columns + k] =
                matrix->dtype == LGH_BF16
                    ? (double)lgh__float_from_bf16(((const uint16_t *)matrix->data)[i])
                    : (double)((const float *)matrix->data)[i];
        }
    return wide;
}

static double round_bf16(double value) {
    return (double)lgh__float_from_bf16(lgh__bf16_from_float((float)value));
}

double reference_round_fp16(double value) {
    if (!isfinite(value) || value == 0)
        return value;
    int exponent;
    frexp(value, &exponent); /* |value| in [2^(exponent - 1), 2^exponent) */
    int last = exponent - 11 < -24 ? -24 : exponent - 11;
    double rounded = ldexp(nearbyint(ldexp(value, -last)), last);
    return fabs(rounded) > 65504.0 ? copysign(INFINITY, value) : rounded;
}

static double round_logit(double logit, reference_rounding rounding) {
    if (rounding == REFERENCE_BF16)
        return round_bf16(logit);
    return rounding == REFERENCE_FP16 ? reference_round_fp16((double)(float)logit) : logit;
}

/* The operands as contiguous doubles, the weight with its fault if there is one. */
typedef struct operands {
    double *hidden;
    double *weight;
    double divisor; /* of the logits */
    int64_t size;   /* D */
} operands;

static operands operands_create(const lgh_const_matrix *hidden, const lgh_const_matrix *weight,
                                const reference_options *options) {
    operands o = {widen(hidden), widen(weight), options->temperature, hidden->columns};
    if (options->faults.divided_weight) {
        for (int64_t i = 0; i < weight->rows * weight->columns; i++)
            o.weight[i] = round_bf16(o.weight[i] / options->temperature);
        o.divisor = 1.0;
    }
    return o;
}

static void operands_destroy(operands *o) {
    free(o->hidden);
    free(o->weight);
}

static void compute_logits(token_row *row, const operands *o, int64_t vocab_size, int64_t token,
                           reference_rounding rounding) {
    for (int64_t v = 0; v < vocab_size; v++) {
        double sum = 0;
        for (int64_t k = 0; k < o->size; k++)
            sum += o->hidden[token * o->size + k] * o->weight[v * o->size + k];
        row->logit[v] = round_logit(sum, rounding);
        row->scaled[v] = row->logit[v] / o->divisor;
    }
}

/* ln sum exp, in the textbook's form. */
static double log_sum_exp(const double *z, int64_t count, const reference_faults *faults) {
    double max = faults->max_from_zero ? 0.0 : z[0];
    for (int64_t v = 0; v < count; v++)
        max = fmax(max, z[v]);
    double sum = 0;
    for (int64_t v = 0; v < count; v++)
        sum += faults->max_from_zero ? (double)expf((float)(z[v] - max)) : exp(z[v] - max);
    return max + log(sum);
}

static void compute_softmax(token_row *row, const reference_faults *faults) {
    row->lse = log_sum_exp(row->scaled, row->columns, faults);
    row->entropy = 0;
    for (int64_t v = 0; v < row->columns; v++) {
        double log_p = row->scaled[v] - row->lse;
        row->p[v] = exp(log_p);
        if (row->p[v] > 0)
            row->entropy -= row->p[v] * log_p;
    }
}

/* The kinds of rows that the header tells apart. */
typedef enum token_kind { COUNTS, HAS_NO_TARGET, OUT_OF_VOCABULARY, IGNORED } token_kind;

static token_kind kind_of(const void *targets, const reference_options *options, int64_t vocab_size,
                          int64_t token, int64_t *target) {
    if (!targets)
        return HAS_NO_TARGET;
    *target = lgh__target_at(targets, options->targets_dtype, token);
    if (*target == options->ignore_index)
        return IGNORED;
    return *target < 0 || *target >= vocab_size ? OUT_OF_VOCABULARY : COUNTS;
}

static void store(double *to, int64_t token, double value) {
    if (to)
        to[token] = value;
}

void reference_forward(const lgh_const_matrix *hidden, const lgh_const_matrix *weight,
                       const void *targets, const reference_options *options,
                       const reference_outputs *outputs) {
    operands o = operands_create(hidden, weight, options);
    token_row row = row_create(weight->rows + options->faults.padded_columns);
    for (int64_t token = 0; token < hidden->rows; token++) {
        int64_t target = 0;
        token_kind kind = kind_of(targets, options, weight->rows, token, &target);
        compute_logits(&row, &o, weight->rows, token, options->logits_rounding);
        compute_softmax(&row, &options->faults);
        double lse_at_one = log_sum_exp(row.logit, row.columns, &options->faults);
        store(outputs->lse, token, kind == IGNORED ? 0 : row.lse);
        store(outputs->entropy, token, kind == IGNORED ? 0 : row.entropy);
        store(outputs->logp, token, kind == COUNTS ? row.scaled[target] - row.lse : 0);
        store(outputs->logp_at_one, token, kind == COUNTS ? row.logit[target] - lse_at_one : 0);
    }
    row_destroy(&row);
    operands_destroy(&o);
}

static double upstream_at(const double *gradient, int64_t token) {
    return gradient ? gradient[token] : 0.0;
}

/* dL/dz of one entry of the row; target -1: none. */
static double scaled_gradient(const token_row *row, int64_t v, int64_t target, double g, double e,
                              double l) {
    double p = row->p[v];
    double log_p = row->scaled[v] - row->lse;
    double from_logp = g * ((v == target ? 1.0 : 0.0) - p);
    double from_entropy = p > 0 ? -e * p * (log_p + row->entropy) : 0.0;
    return from_logp + from_entropy + l * p;
}

void reference_backward(const lgh_const_matrix *hidden, const lgh_const_matrix *weight,
                        const void *targets, const reference_options *options,
                        const reference_upstream *upstream, double *dhidden, double *dweight) {
    for (int64_t i = 0; dhidden && i < hidden->rows * hidden->columns; i++)
        dhidden[i] = 0;
    for (int64_t i = 0; dweight && i < weight->rows * weight->columns; i++)
        dweight[i] = 0;
    operands o = operands_create(hidden, weight, options);
    token_row row = row_create(weight->rows + options->faults.padded_columns);
    for (int64_t token = 0; token < hidden->rows; token++) {
        int64_t target = -1;
        token_kind kind = kind_of(targets, options, weight->rows, token, &target);
        if (kind == IGNORED || kind == OUT_OF_VOCABULARY)
            continue;
        compute_logits(&row, &o, weight->rows, token, options->logits_rounding);
        compute_softmax(&row, &options->faults);
        double g = upstream_at(upstream->grad_logp, options->faults.shared_gradient ? 0 : token);
        double e = upstream_at(upstream->grad_entropy, token);
        double l = upstream_at(upstream->grad_lse, token);
        for (int64_t v = 0; v < weight->rows; v++) {
            double dz = scaled_gradient(&row, v, target, g, e, l);
            for (int64_t k = 0; dhidden && k < o.size; k++)
                dhidden[token * o.size + k] += dz / o.divisor * o.weight[v * o.size + k];
            for (int64_t k = 0; dweight && k < o.size; k++)
                dweight[v * o.size + k] += dz / options->temperature * o.hidden[token * o.size + k];
        }
    }
    row_destroy(&row);
    operands_destroy(&o);
}
