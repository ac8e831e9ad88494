/* cuda_reference.c - what a problem's passes have to give. */
#include "cuda_reference.h"

#include "value.h"

#include <math.h>
#include <stdlib.h>

/* ---- Rows ---------------------------------------------------------------------------------- */

static int64_t valid_end(const problem *p) {
    const lgh_plan_options *o = &p->options;
    return o->vocab_valid > 0 ? o->vocab_valid : o->vocab_start + o->vocab_size;
}

int64_t reference_entries(const problem *p) {
    const int64_t entries = valid_end(p) - p->options.vocab_start;
    return entries < 0 ? 0 : entries < p->options.vocab_size ? entries : p->options.vocab_size;
}

static int is_live(const problem *p, int64_t token) {
    const lgh_live *live = &p->live_list;
    if (!live->rows)
        return 1;
    for (int64_t i = 0; i < live->bound && (!live->count || i < *live->count); ++i)
        if (live->rows[i] == token)
            return 1;
    return 0;
}

reference_row reference_row_of(const problem *p, int64_t token) {
    reference_row r = {ROW_WITHOUT_TARGET, -1, lgh__value_at(p->temperatures, token), 0};
    if (p->targets) {
        const int64_t entry = lgh__target_at(p->targets, p->options.targets_dtype, token);
        const int64_t local = entry - p->options.vocab_start;
        r.kind = local < 0 || local >= reference_entries(p) ? ROW_REMOTE : ROW_LOCAL;
        r.target = r.kind == ROW_LOCAL ? local : -1;
        if (entry < 0 || entry >= valid_end(p))
            r.kind = ROW_FOREIGN;
        if (entry == p->options.ignore_index)
            r.kind = ROW_IGNORED;
    }
    if (!is_live(p, token))
        r.kind = ROW_IGNORED;
    r.is_invalid = r.kind != ROW_IGNORED && !(r.temperature > 0 && r.temperature < INFINITY);
    return r;
}

/* ---- Reference ----------------------------------------------------------------------------- */

static double load(const void *values, int64_t i, lgh_dtype dtype) {
    if (dtype == LGH_BF16)
        return (double)lgh__float_from_bf16(((const uint16_t *)values)[i]);
    if (dtype == LGH_FP16)
        return (double)lgh__float_from_fp16(((const uint16_t *)values)[i]);
    return (double)((const float *)values)[i];
}

double reference_element(const problem_matrix *m, int64_t at_row, int64_t column) {
    return load(m->data, at_row * m->stride + column, m->dtype);
}

static double round_to(double value, lgh_dtype dtype) {
    const float single = (float)value;
    if (dtype == LGH_BF16)
        return (double)lgh__float_from_bf16(lgh__bf16_from_float(single));
    if (dtype == LGH_FP16)
        return (double)lgh__float_from_fp16(lgh__fp16_from_float(single));
    return (double)single;
}

double *reference_logits(const problem *p, int64_t token) {
    const lgh_plan_options *o = &p->options;
    const int64_t entries = reference_entries(p);
    const double cap = (double)o->softcap;
    double *x = calloc((size_t)entries + 1, sizeof *x);
    assert_non_null(x);
    for (int64_t v = 0; v < entries; ++v) {
        for (int64_t c = 0; c < o->hidden_size; ++c)
            x[v] += reference_element(&p->hidden, token, c) * reference_element(&p->weight, v, c);
        if (p->bias)
            x[v] += load(p->bias, v, o->bias_dtype);
        x[v] = round_to(x[v], o->logits_rounding);
        if (cap > 0)
            x[v] = (double)(float)(cap * tanh(x[v] / cap));
    }
    return x;
}

static double reference_lse(const double *x, int64_t entries, double temperature) {
    double most = -INFINITY, sum = 0;
    for (int64_t v = 0; v < entries; ++v)
        most = fmax(most, x[v] / temperature);
    for (int64_t v = 0; v < entries; ++v)
        sum += exp(x[v] / temperature - most);
    return entries > 0 ? most + log(sum) : -INFINITY;
}

reference_statistics reference_statistics_of(const problem *p, const double *x,
                                             double temperature) {
    const int64_t entries = reference_entries(p);
    reference_statistics s = {reference_lse(x, entries, temperature), reference_lse(x, entries, 1),
                              0, -1};
    int64_t best = 0;
    for (int64_t v = 0; v < entries; ++v) {
        const double log_p = x[v] / temperature - s.lse;
        s.entropy -= exp(log_p) * log_p;
        best = x[v] > x[best] ? v : best;
    }
    if (entries > 0)
        s.best = p->options.vocab_start + best;
    return s;
}

static double largest(const problem *p, lgh_value value) {
    double most = 0;
    for (int64_t i = 0; i < p->tokens; ++i)
        most = fmax(most, fabs(lgh__value_at(value, i)));
    return most;
}

double reference_scale(const problem *p) {
    double most = largest(p, p->grads_logp) + largest(p, p->grads_lse) +
                  (1 + log((double)valid_end(p))) * largest(p, p->grads_entropy);
    double inverse = 0;
    for (int64_t i = 0; i < p->tokens; ++i) {
        const double temperature = lgh__value_at(p->temperatures, i);
        if (temperature > 0 && temperature < INFINITY)
            inverse = fmax(inverse, 1 / temperature);
    }
    most *= inverse;
    return p->options.weight_dtype == LGH_FP16 && most > 0 ? exp2(floor(log2(8192 / most))) : 1;
}

double *reference_gradients(const problem *p, int64_t token, double scale) {
    const reference_row r = reference_row_of(p, token);
    double *x = reference_logits(p, token);
    const int counts = r.kind != ROW_IGNORED && !r.is_invalid &&
                       (r.kind != ROW_FOREIGN || p->options.oov_policy == LGH_OOV_SOFTMAX);
    const double g = lgh__value_at(p->grads_logp, token), cap = (double)p->options.softcap;
    const double e = lgh__value_at(p->grads_entropy, token);
    const double l = lgh__value_at(p->grads_lse, token);
    const double entropy = e != 0 && counts ? (double)p->entropy[token] : 0;
    const double lse = counts ? (double)p->lse[token] : 0;
    for (int64_t v = 0; v < reference_entries(p); ++v) {
        const double log_p = x[v] / r.temperature - lse, probability = exp(log_p);
        double dx = g * ((v == r.target) - probability) - e * probability * (log_p + entropy) +
                    l * probability;
        dx /= r.temperature;
        if (cap > 0)
            dx *= 1 - (x[v] / cap) * (x[v] / cap);
        x[v] = counts ? round_to(scale * dx, p->options.weight_dtype) / scale : 0;
    }
    return x;
}
