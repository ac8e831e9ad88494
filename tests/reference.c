/* reference.c - the oracle's arithmetic: one token after another, one logit after another. */
#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double *allocate(int64_t count) {
    double *numbers = calloc(count > 0 ? (size_t)count : 1, sizeof *numbers);
    if (!numbers) {
        fprintf(stderr, "reference: out of memory\n");
        abort();
    }
    return numbers;
}

/* ---- Numbers ------------------------------------------------------------------------------- */

/* IEEE 754's formats as far as they differ. */
typedef struct format {
    int exponent_bits;
    int fraction_bits;
} format;

static format format_of(lgh_dtype dtype) {
    const format bf16 = {8, 7}, fp16 = {5, 10}, fp32 = {8, 23};
    return dtype == LGH_BF16 ? bf16 : dtype == LGH_FP16 ? fp16 : fp32;
}

static int bias_of(format f) {
    return (1 << (f.exponent_bits - 1)) - 1;
}

double reference_element(const void *array, lgh_dtype dtype, int64_t i) {
    if (dtype == LGH_FP32)
        return (double)((const float *)array)[i];
    const format f = format_of(dtype);
    const int bits = ((const uint16_t *)array)[i], ones = (1 << f.exponent_bits) - 1;
    const int exponent = bits >> f.fraction_bits & ones;
    const int fraction = bits & ((1 << f.fraction_bits) - 1);
    double value;
    if (exponent == ones)
        value = fraction ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, 1 - bias_of(f) - f.fraction_bits);
    else
        value = ldexp(fraction + (1 << f.fraction_bits), exponent - bias_of(f) - f.fraction_bits);
    return bits >> 15 ? -value : value;
}

double reference_round(double value, lgh_dtype dtype) {
    const format f = format_of(dtype);
    if (!isfinite(value) || value == 0)
        return value;
    int exponent;
    frexp(value, &exponent); /* |value| in [2^(exponent - 1), 2^exponent) */
    int last = exponent - 1 - f.fraction_bits;
    const int smallest = 1 - bias_of(f) - f.fraction_bits;
    last = last < smallest ? smallest : last;
    const double rounded = ldexp(nearbyint(ldexp(value, -last)), last);
    return fabs(rounded) >= ldexp(1, bias_of(f) + 1) ? copysign(INFINITY, value) : rounded;
}

static double value_at(lgh_value value, int64_t token) {
    return value.data ? (double)value.data[token * value.stride] : (double)value.host;
}

/* ---- What a call reads --------------------------------------------------------------------- */

typedef struct problem {
    lgh_plan_options options; /* vocab_valid filled in */
    reference_faults faults;
    int64_t tokens;
    int64_t size;   /* D */
    double *hidden; /* contiguous */
    double *weight;
    double *divided;   /* with that fault weight / divided_by, rounded; else weight */
    double divided_by; /* the last token's T */
    double *bias;      /* zeros without one */
    const void *targets;
    lgh_value temperature;
    lgh_live live;
} problem;

static double *widen(const lgh_const_matrix *matrix) {
    double *wide = allocate(matrix->rows * matrix->columns);
    for (int64_t row = 0; row < matrix->rows; row++)
        for (int64_t k = 0; k < matrix->columns; k++)
            wide[row * matrix->columns + k] =
                reference_element(matrix->data, matrix->dtype, row * matrix->row_stride + k);
    return wide;
}

static problem problem_create(const lgh_plan_options *options, const reference_faults *faults,
                              const lgh_const_matrix *hidden, const lgh_const_matrix *weight,
                              const void *bias) {
    problem p = {.options = *options, .tokens = hidden->rows, .size = hidden->columns};
    if (faults)
        p.faults = *faults;
    if (options->vocab_valid == 0)
        p.options.vocab_valid = options->vocab_start + options->vocab_size;
    p.hidden = widen(hidden);
    p.weight = p.divided = widen(weight);
    if (p.faults.divided_weight)
        p.divided = widen(weight);
    p.bias = allocate(options->vocab_size);
    for (int64_t v = 0; bias && v < options->vocab_size; v++)
        p.bias[v] = reference_element(bias, options->bias_dtype, v);
    return p;
}

static void problem_destroy(problem *p) {
    if (p->divided != p->weight)
        free(p->divided);
    free(p->hidden);
    free(p->weight);
    free(p->bias);
}

/* ---- Rows ---------------------------------------------------------------------------------- */

/* The kinds of rows that the header tells apart. */
typedef enum row_kind { IGNORED, NO_TARGET, UNKNOWN_TARGET, REMOTE_TARGET, LOCAL_TARGET } row_kind;

/* One token's logits with what is read from them. */
typedef struct token_row {
    row_kind kind;
    int64_t target; /* a row of the weight, -1: none */
    double temperature;
    int64_t columns; /* the weight's rows, and columns that a fault counts past them */
    double *logit;
    double *slope;  /* of the softcap */
    double *scaled; /* logit / T */
    double lse;
    double lse_at_one;
    double entropy;
    int64_t best; /* a row of the weight; -1: it has none that counts */
} token_row;

static token_row row_create(const problem *p) {
    token_row row = {.columns = p->options.vocab_size + p->faults.padded_columns};
    row.logit = allocate(row.columns);
    row.slope = allocate(row.columns);
    row.scaled = allocate(row.columns);
    return row;
}

static void row_destroy(token_row *row) {
    free(row->logit);
    free(row->slope);
    free(row->scaled);
}

static int is_live(const problem *p, int64_t token) {
    const lgh_live *live = &p->live;
    if (!live->rows || p->faults.every_row)
        return 1;
    for (int64_t i = 0; i < live->bound && (!live->count || i < *live->count); i++)
        if (live->rows[i] == token)
            return 1;
    return 0;
}

static row_kind kind_of_target(const problem *p, int64_t target) {
    const lgh_plan_options *o = &p->options;
    if (target == o->ignore_index)
        return IGNORED;
    if (target < 0 || target >= o->vocab_valid)
        return UNKNOWN_TARGET;
    if (target >= o->vocab_start && target < o->vocab_start + o->vocab_size)
        return LOCAL_TARGET;
    return p->faults.remote_as_unknown ? UNKNOWN_TARGET : REMOTE_TARGET;
}

/* The row's kind, target and temperature. */
static void classify(token_row *row, const problem *p, int64_t token) {
    row->kind = is_live(p, token) ? NO_TARGET : IGNORED;
    row->target = -1;
    row->temperature = value_at(p->temperature, p->faults.shared_temperature ? 0 : token);
    if (!p->targets || row->kind == IGNORED)
        return;
    const int64_t target = p->options.targets_dtype == LGH_INT32
                               ? ((const int32_t *)p->targets)[token]
                               : ((const int64_t *)p->targets)[token];
    row->kind = kind_of_target(p, target);
    if (p->faults.first_entry_for_foreign && row->kind != IGNORED && row->kind != LOCAL_TARGET) {
        row->kind = LOCAL_TARGET;
        row->target = 0;
    } else if (row->kind == LOCAL_TARGET) {
        row->target = target - p->options.vocab_start;
    }
}

static int is_foreign(const token_row *row) {
    return row->kind == UNKNOWN_TARGET || row->kind == REMOTE_TARGET;
}

static int has_invalid_temperature(const token_row *row) {
    return row->kind != IGNORED && !(row->temperature > 0 && isfinite(row->temperature));
}

/* ---- Softmax ------------------------------------------------------------------------------- */

static int counts(const problem *p, int64_t column) {
    return column >= p->options.vocab_size || p->faults.padding_left_in ||
           p->options.vocab_start + column < p->options.vocab_valid;
}

/* Only for a new T: a large problem has one. */
static void divide_weight(problem *p, double temperature) {
    if (!p->faults.divided_weight || p->divided_by == temperature)
        return;
    for (int64_t i = 0; i < p->options.vocab_size * p->size; i++)
        p->divided[i] = reference_round(p->weight[i] / temperature, LGH_BF16);
    p->divided_by = temperature;
}

static double round_logit(const problem *p, double x) {
    if (p->options.logits_rounding == LGH_DTYPE_NONE || p->faults.exact_logits)
        return x;
    return reference_round((double)(float)x, p->options.logits_rounding);
}

/* Bias, rounding and softcap, in this order unless a fault wants another one. */
static void finish_logit(token_row *row, const problem *p, int64_t v, double x) {
    const double cap = (double)p->options.softcap, bias = p->bias[v];
    const double before = p->faults.bias_after_softcap ? 0 : bias;
    x += before;
    if (!p->faults.rounded_after_softcap)
        x = round_logit(p, x);
    row->slope[v] = 1;
    if (cap > 0) {
        row->slope[v] = p->faults.flat_softcap ? 1 : 1 / pow(cosh(x / cap), 2);
        x = cap * tanh(x / cap);
    }
    if (p->faults.rounded_after_softcap)
        x = round_logit(p, x);
    row->logit[v] = x + (bias - before);
}

static void compute_logits(token_row *row, const problem *p, int64_t token) {
    for (int64_t v = 0; v < p->options.vocab_size; v++) {
        double sum = 0;
        for (int64_t k = 0; k < p->size; k++)
            sum += p->hidden[token * p->size + k] * p->divided[v * p->size + k];
        finish_logit(row, p, v, sum);
    }
    for (int64_t v = 0; v < row->columns; v++)
        row->scaled[v] = row->logit[v] / (p->faults.divided_weight ? 1 : row->temperature);
}

/* ln sum exp, in the textbook's form. */
static double log_sum_exp(const problem *p, const double *z, int64_t columns) {
    double max = p->faults.max_from_zero ? 0.0 : -INFINITY;
    for (int64_t v = 0; v < columns; v++)
        if (counts(p, v))
            max = fmax(max, z[v]);
    double sum = 0;
    for (int64_t v = 0; v < columns; v++)
        if (counts(p, v))
            sum += p->faults.max_from_zero ? (double)expf((float)(z[v] - max)) : exp(z[v] - max);
    return max + log(sum);
}

static double probability(const problem *p, const token_row *row, int64_t v) {
    return counts(p, v) ? exp(row->scaled[v] - row->lse) : 0;
}

static double entropy_of(const problem *p, const token_row *row) {
    double entropy = 0;
    for (int64_t v = 0; v < row->columns; v++) {
        const double probability_of_v = probability(p, row, v);
        if (probability_of_v != 0)
            entropy -= probability_of_v * (row->scaled[v] - row->lse);
    }
    return entropy;
}

static int64_t find_best(const problem *p, const token_row *row) {
    int64_t best = -1;
    for (int64_t v = 0; v < row->columns; v++) {
        if (!counts(p, v))
            continue;
        const double x = row->logit[v], leader = best < 0 ? 0 : row->logit[best];
        if (best < 0 || x > leader || (isnan(leader) && x > -INFINITY) ||
            (p->faults.highest_best && x == leader))
            best = v;
    }
    return best;
}

static void compute_softmax(token_row *row, problem *p, int64_t token) {
    divide_weight(p, row->temperature);
    compute_logits(row, p, token);
    row->best = find_best(p, row);
    const int empty = row->best < 0;
    row->lse = empty ? -(double)INFINITY : log_sum_exp(p, row->scaled, row->columns);
    row->lse_at_one = empty ? -(double)INFINITY : log_sum_exp(p, row->logit, row->columns);
    row->entropy = empty ? 0 : entropy_of(p, row);
}

/* ---- Forward ------------------------------------------------------------------------------- */

typedef struct token_results {
    double logp;
    double lse;
    double entropy;
    double logp_at_one;
    int64_t best;
} token_results;

static token_results results_of(const problem *p, const token_row *row) {
    token_results r = {0, row->lse, row->entropy, 0, -1};
    if (row->best < 0) /* an empty shard */
        return r;
    if (row->kind == LOCAL_TARGET && counts(p, row->target)) {
        r.logp = row->scaled[row->target] - row->lse;
        r.logp_at_one = row->logit[row->target] - row->lse_at_one;
    } else if (row->kind == REMOTE_TARGET) {
        r.logp = -row->lse;
        r.logp_at_one = -row->lse_at_one;
    }
    r.best = row->best + (p->faults.local_best ? 0 : p->options.vocab_start);
    return r;
}

static void store(double *to, int64_t token, double value) {
    if (to)
        to[token] = value;
}

static void store_results(reference_outputs *outputs, int64_t token, token_results r) {
    store(outputs->logp, token, r.logp);
    store(outputs->lse, token, r.lse);
    store(outputs->entropy, token, r.entropy);
    store(outputs->logp_at_one, token, r.logp_at_one);
    if (outputs->best)
        outputs->best[token] = r.best;
}

static void forward_token(problem *p, token_row *row, int64_t token, reference_outputs *outputs) {
    const token_results ignored = {0, 0, 0, 0, -1}, invalid = {NAN, NAN, NAN, NAN, -1};
    classify(row, p, token);
    outputs->foreign_targets += is_foreign(row);
    outputs->invalid_temperatures += has_invalid_temperature(row);
    if (row->kind == IGNORED) {
        store_results(outputs, token, ignored);
    } else if (has_invalid_temperature(row)) {
        store_results(outputs, token, invalid);
    } else {
        compute_softmax(row, p, token);
        store_results(outputs, token, results_of(p, row));
    }
}

void reference_forward(const lgh_plan_options *options, const lgh_forward_args *args,
                       const reference_faults *faults, reference_outputs *outputs) {
    problem p = problem_create(options, faults, &args->hidden, &args->weight, args->bias);
    p.targets = args->targets;
    p.temperature = args->temperature;
    p.live = args->live;
    token_row row = row_create(&p);
    outputs->foreign_targets = outputs->invalid_temperatures = 0;
    for (int64_t token = 0; token < p.tokens; token++)
        forward_token(&p, &row, token, outputs);
    row_destroy(&row);
    problem_destroy(&p);
}

/* ---- Backward ------------------------------------------------------------------------------ */

/* One token's upstream gradients. */
typedef struct upstream {
    double g; /* dL/dlogp */
    double e; /* dL/dentropy */
    double l; /* dL/dlse */
} upstream;

/* dL/dz of one entry of the row. */
static double scaled_gradient(const problem *p, const token_row *row, int64_t v, upstream u) {
    const double probability_of_v = probability(p, row, v);
    const double from_logp = u.g * ((v == row->target ? 1.0 : 0.0) - probability_of_v);
    const double from_lse = u.l * probability_of_v;
    double from_entropy = 0;
    if (probability_of_v > 0)
        from_entropy = -u.e * probability_of_v * (row->scaled[v] - row->lse + row->entropy);
    return from_logp + from_entropy + from_lse;
}

static void add_gradients(const problem *p, const token_row *row, int64_t token, upstream u,
                          const reference_gradients *to) {
    for (int64_t v = 0; v < p->options.vocab_size; v++) {
        if (!counts(p, v))
            continue;
        double dx = scaled_gradient(p, row, v, u) / row->temperature * row->slope[v];
        if (p->faults.rounded_gradients != LGH_DTYPE_NONE)
            dx = reference_round(dx, p->faults.rounded_gradients);
        const double to_hidden = p->faults.divided_weight ? dx * row->temperature : dx;
        for (int64_t k = 0; to->dhidden && k < p->size; k++)
            to->dhidden[token * p->size + k] += to_hidden * p->divided[v * p->size + k];
        for (int64_t k = 0; to->dweight && k < p->size; k++)
            to->dweight[v * p->size + k] += dx * p->hidden[token * p->size + k];
        if (to->dbias)
            to->dbias[v] += dx;
    }
}

static void backward_token(problem *p, token_row *row, int64_t token, const lgh_backward_args *args,
                           const reference_gradients *to) {
    classify(row, p, token);
    if (row->kind == IGNORED)
        return;
    if (has_invalid_temperature(row)) {
        for (int64_t k = 0; to->dhidden && k < p->size; k++)
            to->dhidden[token * p->size + k] = NAN;
        return;
    }
    if (row->kind == UNKNOWN_TARGET && p->options.oov_policy == LGH_OOV_ZERO)
        return;
    compute_softmax(row, p, token);
    if (args->lse)
        row->lse = (double)args->lse[token];
    if (args->entropy)
        row->entropy = (double)args->entropy[token];
    const upstream u = {value_at(args->grad_logp, p->faults.shared_gradient ? 0 : token),
                        value_at(args->grad_entropy, token), value_at(args->grad_lse, token)};
    add_gradients(p, row, token, u, to);
}

static void clear(double *numbers, int64_t count) {
    if (numbers && count > 0)
        memset(numbers, 0, (size_t)count * sizeof *numbers);
}

void reference_backward(const lgh_plan_options *options, const lgh_backward_args *args,
                        const reference_faults *faults, const reference_gradients *gradients) {
    problem p = problem_create(options, faults, &args->hidden, &args->weight, args->bias);
    p.targets = args->targets;
    p.temperature = args->temperature;
    p.live = args->live;
    token_row row = row_create(&p);
    clear(gradients->dhidden, p.tokens * p.size);
    clear(gradients->dweight, options->vocab_size * p.size);
    clear(gradients->dbias, options->vocab_size);
    for (int64_t token = 0; token < p.tokens; token++)
        backward_token(&p, &row, token, args, gradients);
    row_destroy(&row);
    problem_destroy(&p);
}
