/* formulas.h - the arithmetic that every engine shares: statistics of a row of logits, their
 * merge, the results read from them, and the gradient of a logit.
 *
 * Read by the host's C compiler (double) and by NVRTC (float). Notation of loggerhead.h:
 * x a logit, T the temperature, z = x / T, m the largest x of a row.
 */
#ifndef LGH_FORMULAS_H
#define LGH_FORMULAS_H

#ifdef __CUDACC_RTC__
#define LGH_FORMULA static __device__ __forceinline__
#define LGH_REAL_MAX 3.402823466e+38f
#define LGH_ILOGB ilogbf
typedef float lgh_real;
/* ex2.approx has a relative error of 2^-22 over its whole range (PTX ISA, ex2). */
LGH_FORMULA lgh_real lgh_exp(lgh_real u) {
    lgh_real y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(u * 1.44269504088896341f));
    return y;
}
LGH_FORMULA lgh_real lgh_log(lgh_real s) {
    return logf(s);
}
/* tanhf branches, and some kernels that have unrolled many of it spill. An odd polynomial below
 * 0.6, 1 - 2 / (exp(2 |y|) + 1) above: a relative error of 3.4e-7, most of it that of ex2. */
LGH_FORMULA lgh_real lgh_tanh(lgh_real y) {
    const lgh_real size = fabsf(y), s = y * y;
    lgh_real p = -6.26911972e-3f;
    p = p * s + 2.11109591e-2f;
    p = p * s - 5.38739488e-2f;
    p = p * s + 1.33329154e-1f;
    p = p * s - 3.33333303e-1f;
    const lgh_real small = size * s * p + size;
    const lgh_real large = 1.0f - __fdividef(2.0f, lgh_exp(2.0f * size) + 1.0f);
    return copysignf(size < 0.6f ? small : large, y);
}
/* The larger one; a NaN wins. */
LGH_FORMULA lgh_real lgh_larger(lgh_real a, lgh_real b) {
    lgh_real y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
#else
#include <float.h>
#include <math.h>
#ifndef LGH_HOST_EXP
#define LGH_HOST_EXP exp /* a file whose loops must become vectors may bring its own */
#endif
#define LGH_FORMULA static inline
#define LGH_REAL_MAX DBL_MAX
#define LGH_ILOGB ilogb
typedef double lgh_real;
LGH_FORMULA lgh_real lgh_exp(lgh_real u) {
    return LGH_HOST_EXP(u);
}
LGH_FORMULA lgh_real lgh_log(lgh_real s) {
    return log(s);
}
LGH_FORMULA lgh_real lgh_tanh(lgh_real y) {
    return tanh(y);
}
LGH_FORMULA lgh_real lgh_larger(lgh_real a, lgh_real b) {
    return a < b ? b : a;
}
#endif

/* exp of this is 0 in float and double alike, and a product with it is finite: 0 * -inf never
 * arises from a logit of -inf. */
#define LGH_LOWEST_EXPONENT (-1.0e4f)

/* The largest temperature: the largest finite FP32 number, since temperatures are FP32. */
#define LGH_HIGHEST_TEMPERATURE 3.402823466e+38f

LGH_FORMULA int lgh_temperature_is_valid(lgh_real temperature) {
    return temperature > 0 && temperature <= LGH_HIGHEST_TEMPERATURE;
}

/* c tanh(x / c) */
LGH_FORMULA lgh_real lgh_softcap(lgh_real x, lgh_real cap) {
    return cap * lgh_tanh(x / cap);
}

/* The derivative of the softcap at x: 1 - tanh^2 = 4 q / (1 + q)^2 with q = exp(-2 |x / c|), which
 * keeps its digits where tanh is all but 1. */
LGH_FORMULA lgh_real lgh_softcap_slope(lgh_real x, lgh_real cap) {
    lgh_real y = x / cap;
    lgh_real q = lgh_exp(y < 0 ? 2 * y : -2 * y);
    return 4 * q / ((1 + q) * (1 + q));
}

/* What a set of logits adds up to. The sums are relative to the set's own maximum, so that neither
 * overflows, and weighted has terms of one sign, so that the entropy has no cancellation. */
typedef struct lgh_row_stats {
    lgh_real max;        /* m = max x, or the lowest finite number where that is more */
    lgh_real sum;        /* sum of exp((x - m) / T) */
    lgh_real weighted;   /* sum of exp((x - m) / T) * (x - m) / T, <= 0 */
    lgh_real sum_at_one; /* sum of exp(x - m) */
} lgh_row_stats;

/* 1 / T, finite also for the smallest T, so that (x - m) / T stays 0 at the maximum. */
LGH_FORMULA lgh_real lgh_inverse_temperature(lgh_real temperature) {
    lgh_real inverse = 1 / temperature;
    return inverse > LGH_REAL_MAX ? LGH_REAL_MAX : inverse;
}

/* Lifts exponents below the lowest, -inf among them, and keeps a NaN. */
LGH_FORMULA lgh_real lgh_exponent(lgh_real u) {
    return lgh_larger(u, LGH_LOWEST_EXPONENT);
}

/* The maximum is finite from the start, so that a set of nothing but -inf sums to 0. */
LGH_FORMULA lgh_row_stats lgh_row_stats_empty(void) {
    lgh_row_stats empty = {-LGH_REAL_MAX, 0, 0, 0};
    return empty;
}

/* Adds a logit x <= stats->max, where max is already that of the whole set. */
LGH_FORMULA void lgh_row_stats_add(lgh_row_stats *stats, lgh_real x, lgh_real inverse_temperature) {
    lgh_real u = lgh_exponent((x - stats->max) * inverse_temperature);
    lgh_real p = lgh_exp(u);
    stats->sum += p;
    stats->weighted += p * u;
}

LGH_FORMULA void lgh_row_stats_add_at_one(lgh_row_stats *stats, lgh_real x) {
    stats->sum_at_one += lgh_exp(lgh_exponent(x - stats->max));
}

/* Moves the sums of one set to a maximum >= its own. With w = exp(d), d = (m_old - m_new) / T:
 * sum' = w sum, weighted' = w (weighted + d sum). */
LGH_FORMULA lgh_row_stats lgh_row_stats_rebase(lgh_row_stats s, lgh_real max,
                                               lgh_real inverse_temperature) {
    if (s.max == max)
        return s;
    lgh_real d = lgh_exponent((s.max - max) * inverse_temperature);
    lgh_real w = lgh_exp(d);
    s.weighted = w * (s.weighted + d * s.sum);
    s.sum *= w;
    s.sum_at_one *= lgh_exp(lgh_exponent(s.max - max));
    s.max = max;
    return s;
}

/* The statistics of the union of two disjoint sets. */
LGH_FORMULA lgh_row_stats lgh_row_stats_merge(lgh_row_stats a, lgh_row_stats b,
                                              lgh_real inverse_temperature) {
    lgh_real max = a.max > b.max ? a.max : b.max;
    a = lgh_row_stats_rebase(a, max, inverse_temperature);
    b = lgh_row_stats_rebase(b, max, inverse_temperature);
    a.sum += b.sum;
    a.weighted += b.weighted;
    a.sum_at_one += b.sum_at_one;
    return a;
}

LGH_FORMULA lgh_real lgh_lse(lgh_row_stats s, lgh_real inverse_temperature) {
    return s.max * inverse_temperature + lgh_log(s.sum);
}

/* (z - m / T) - ln sum rather than z - lse: sum >= 1 and z <= m / T, so rounding never lifts it
 * above 0. */
LGH_FORMULA lgh_real lgh_log_prob(lgh_row_stats s, lgh_real target, lgh_real inverse_temperature) {
    return (target - s.max) * inverse_temperature - lgh_log(s.sum);
}

LGH_FORMULA lgh_real lgh_log_prob_at_one(lgh_row_stats s, lgh_real target) {
    return (target - s.max) - lgh_log(s.sum_at_one);
}

/* lse - sum p z = ln sum - weighted / sum: both terms >= 0. */
LGH_FORMULA lgh_real lgh_entropy(lgh_row_stats s) {
    return lgh_log(s.sum) - s.weighted / s.sum;
}

/* What the gradient of a row's logits needs. */
typedef struct lgh_row_gradient {
    lgh_real inverse_temperature;
    lgh_real lse;
    lgh_real entropy;
    lgh_real grad_logp;    /* g = dL/dlogp */
    lgh_real grad_entropy; /* e = dL/dentropy */
    lgh_real grad_lse;     /* l = dL/dlse */
} lgh_row_gradient;

/* dx = dz / T with dz = g (1[target] - p) - e p (ln p + H) + l p: softmax derivative for g and l,
 * dH/dz_v = -p_v (ln p_v + H) for e. */
LGH_FORMULA lgh_real lgh_logit_gradient(lgh_row_gradient r, lgh_real x, int is_target) {
    lgh_real log_p = lgh_exponent(x * r.inverse_temperature - r.lse);
    lgh_real p = lgh_exp(log_p);
    lgh_real dz = p * (r.grad_lse - r.grad_logp - r.grad_entropy * (log_p + r.entropy));
    if (is_target)
        dz += r.grad_logp;
    return dz * r.inverse_temperature;
}

/* The exponent of the power of two that takes FP16 gradients of at most `bound` to between 4096 and
 * 8192, an eighth of what FP16 holds. */
LGH_FORMULA int lgh_scale_exponent(lgh_real bound) {
    if (!(bound > 0) || bound > 3.402823466e+38f)
        return 0;
    int exponent = 12 - LGH_ILOGB(bound);
    return exponent < -100 ? -100 : exponent > 100 ? 100 : exponent;
}

#endif
