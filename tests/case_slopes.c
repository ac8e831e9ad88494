/* case_slopes.c - the gradients of a problem as central differences of the float64 oracle. */
#include "case_slopes.h"

#include <stdlib.h>

/* The operands as FP32, which holds those of 16 bits and the small steps away from them. */
typedef struct slope_problem {
    const case_problem *p;
    float *hidden;
    float *weight;
    float *bias; /* or NULL */
} slope_problem;

static float *widen(const void *from, lgh_dtype dtype, int64_t count) {
    float *to = malloc((size_t)count * sizeof *to);
    assert_non_null(to);
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)reference_element(from, dtype, i);
    return to;
}

static slope_problem open_slopes(const case_problem *p) {
    const lgh_plan_options *o = &p->options;
    return (slope_problem){p, widen(p->hidden, o->hidden_dtype, p->tokens * o->hidden_size),
                           widen(p->weight, o->weight_dtype, o->vocab_size * o->hidden_size),
                           p->bias ? widen(p->bias, o->bias_dtype, o->vocab_size) : NULL};
}

static void close_slopes(slope_problem *s) {
    free(s->hidden);
    free(s->weight);
    free(s->bias);
}

static double loss(const slope_problem *s) {
    const case_problem *p = s->p;
    lgh_plan_options options = case_host_options(p);
    lgh_forward_args args = case_host_forward_args(p);
    case_expected e = case_expected_create(p, 0);
    reference_outputs outputs = {.logp = e.logp, .lse = e.lse, .entropy = e.entropy};
    double sum = 0;
    options.hidden_dtype = options.weight_dtype = args.hidden.dtype = args.weight.dtype = LGH_FP32;
    args.hidden.data = s->hidden;
    args.weight.data = s->weight;
    if (s->bias) {
        options.bias_dtype = LGH_FP32;
        args.bias = s->bias;
    }
    reference_forward(&options, &args, NULL, &outputs);
    for (int64_t i = 0; i < p->tokens; i++)
        sum += case_gradient_at(&p->grad_logp, i) * e.logp[i] +
               case_gradient_at(&p->grad_entropy, i) * e.entropy[i] +
               case_gradient_at(&p->grad_lse, i) * e.lse[i];
    case_expected_destroy(&e);
    return sum;
}

/* Along one element, with the steps that a float can take. */
static double slope(const slope_problem *s, float *element) {
    const float at = *element, above = at + 1e-3f, below = at - 1e-3f;
    *element = above;
    double rise = loss(s);
    *element = below;
    rise -= loss(s);
    *element = at;
    return rise / ((double)above - (double)below);
}

case_expected case_expect_slopes(const case_problem *p) {
    const lgh_plan_options *o = &p->options;
    slope_problem s = open_slopes(p);
    case_expected e = case_expected_create(p, 0);
    for (int64_t i = 0; i < p->tokens * o->hidden_size; i++)
        e.dhidden[i] = slope(&s, &s.hidden[i]);
    for (int64_t i = 0; i < o->vocab_size * o->hidden_size; i++)
        e.dweight[i] = slope(&s, &s.weight[i]);
    for (int64_t v = 0; s.bias && v < o->vocab_size; v++)
        e.dbias[v] = slope(&s, &s.bias[v]);
    close_slopes(&s);
    return e;
}
