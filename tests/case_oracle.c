/* case_oracle.c - a problem's results against the oracle's. */
#include "case_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "promises.h"

static double *allocate(int64_t count) {
    double *numbers = calloc(count > 0 ? (size_t)count : 1, sizeof *numbers);
    assert_non_null(numbers);
    return numbers;
}

/* ---- Expected ------------------------------------------------------------------------------ */

reference_options case_options(const case_problem *p) {
    reference_options options = REFERENCE_OPTIONS_INIT;
    options.temperature = (double)p->temperature;
    options.ignore_index = p->options.ignore_index;
    options.logits_rounding =
        p->options.logits_rounding == LGH_BF16 ? REFERENCE_BF16 : REFERENCE_EXACT;
    return options;
}

static void widen(double *to, const lgh_const_matrix *matrix) {
    const size_t count = (size_t)(matrix->rows * matrix->columns);
    if (matrix->dtype == LGH_BF16)
        lgh_widen_bf16(to, matrix->data, count);
    else
        lgh_widen_fp32(to, matrix->data, count);
}

/* The largest |hidden . weight| of any token and entry. */
static double largest_logit(const case_problem *p) {
    const lgh_const_matrix hidden = case_hidden(p), weight = case_weight(p);
    const int64_t width = hidden.columns;
    double *h = allocate(hidden.rows * width), *w = allocate(weight.rows * width);
    double largest = 0;
    widen(h, &hidden);
    widen(w, &weight);
    for (int64_t v = 0; v < weight.rows; v++)
        for (int64_t i = 0; i < hidden.rows; i++) {
            double x = 0;
            for (int64_t k = 0; k < width; k++)
                x += h[i * width + k] * w[v * width + k];
            largest = fmax(largest, fabs(x));
        }
    free(h);
    free(w);
    return largest;
}

case_expected case_expected_create(const case_problem *p, double max_abs_x) {
    const int64_t width = p->options.hidden_size;
    return (case_expected){.logp = allocate(p->tokens),
                           .lse = allocate(p->tokens),
                           .entropy = allocate(p->tokens),
                           .logp_at_one = allocate(p->tokens),
                           .dhidden = allocate(p->tokens * width),
                           .dweight = allocate(p->options.vocab_size * width),
                           .max_abs_x = max_abs_x};
}

void case_expected_destroy(case_expected *e) {
    double *const numbers[] = {e->logp, e->lse, e->entropy, e->logp_at_one, e->dhidden, e->dweight};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        free(numbers[i]);
    memset(e, 0, sizeof *e);
}

case_expected case_expect_outputs(const case_problem *p, const reference_options *options) {
    const reference_options right = case_options(p);
    const lgh_const_matrix hidden = case_hidden(p), weight = case_weight(p);
    case_expected e = case_expected_create(p, largest_logit(p));
    const reference_outputs outputs = {e.logp, e.lse, e.entropy, e.logp_at_one};
    reference_forward(&hidden, &weight, p->targets, options ? options : &right, &outputs);
    return e;
}

static double *gradients_of(const case_gradient *gradient, int64_t tokens) {
    double *values = allocate(tokens);
    for (int64_t i = 0; i < tokens; i++)
        values[i] = case_gradient_at(gradient, i);
    return values;
}

case_expected case_expect(const case_problem *p, const reference_options *options) {
    const reference_options right = case_options(p);
    const lgh_const_matrix hidden = case_hidden(p), weight = case_weight(p);
    case_expected e = case_expect_outputs(p, options);
    double *g = gradients_of(&p->grad_logp, p->tokens);
    double *h = gradients_of(&p->grad_entropy, p->tokens);
    double *l = gradients_of(&p->grad_lse, p->tokens);
    const reference_upstream upstream = {g, h, l};
    reference_backward(&hidden, &weight, p->targets, options ? options : &right, &upstream,
                       e.dhidden, e.dweight);
    free(g);
    free(h);
    free(l);
    return e;
}

/* ---- Outputs ------------------------------------------------------------------------------- */

typedef struct output {
    uint32_t bit;
    const char *name;
    const float *actual;
    const double *expected;
    double tolerance;
} output;

enum { OUTPUTS = 4 };

static void list_outputs(output outputs[OUTPUTS], const case_problem *p, const case_expected *e) {
    const lgh_plan_options *o = &p->options;
    const double at_one = promise_outputs(e->max_abs_x, o->hidden_size, o->hidden_dtype);
    const double at_t =
        promise_outputs(e->max_abs_x / (double)p->temperature, o->hidden_size, o->hidden_dtype);
    outputs[0] = (output){LGH_OUTPUT_LOGP, "logp", p->logp, e->logp, at_t};
    outputs[1] = (output){LGH_OUTPUT_LSE, "lse", p->lse, e->lse, at_t};
    outputs[2] = (output){LGH_OUTPUT_ENTROPY, "entropy", p->entropy, e->entropy, at_t};
    outputs[3] =
        (output){LGH_OUTPUT_LOGP_AT_ONE, "logp_at_one", p->logp_at_one, e->logp_at_one, at_one};
}

void case_assert_outputs(const case_problem *p, const case_expected *e) {
    output outputs[OUTPUTS];
    list_outputs(outputs, p, e);
    for (int i = 0; i < OUTPUTS; i++)
        if (p->options.outputs & outputs[i].bit)
            lgh_assert_array_close(outputs[i].actual, outputs[i].expected, (size_t)p->tokens,
                                   outputs[i].tolerance, outputs[i].name);
}

static double worst_error(const output *o, int64_t tokens) {
    double worst = 0;
    for (int64_t i = 0; i < tokens; i++)
        worst = fmax(worst, fabs((double)o->actual[i] - o->expected[i]));
    return worst;
}

void case_assert_outputs_outside(const case_problem *p, const case_expected *faulty,
                                 uint32_t bits) {
    output outputs[OUTPUTS];
    list_outputs(outputs, p, faulty);
    for (int i = 0; i < OUTPUTS; i++) {
        if (!(bits & p->options.outputs & outputs[i].bit))
            continue;
        const double error = worst_error(&outputs[i], p->tokens);
        if (error <= outputs[i].tolerance)
            fail_msg("%s is within %.3g of the faulty result: %.3g", outputs[i].name,
                     outputs[i].tolerance, error);
    }
}

/* ---- Gradients ----------------------------------------------------------------------------- */

/* For each entry of the vocabulary, whether it is the target of a token that counts. */
static unsigned char *mark_targets(const case_problem *p) {
    unsigned char *is_target = calloc((size_t)p->options.vocab_size, 1);
    assert_non_null(is_target);
    for (int64_t i = 0; i < p->tokens; i++) {
        const int64_t target = p->targets[i];
        if (target != p->options.ignore_index && target >= 0 && target < p->options.vocab_size)
            is_target[target] = 1;
    }
    return is_target;
}

/* Of the rows of dweight that are targets, or of those that are not. */
static double dweight_error(const case_problem *p, const case_expected *e, int targets) {
    const int64_t width = p->options.hidden_size;
    unsigned char *is_target = mark_targets(p);
    double difference = 0, size = 0;
    for (int64_t i = 0; i < p->options.vocab_size * width; i++) {
        if (is_target[i / width] != targets)
            continue;
        const double error = (double)p->dweight[i] - e->dweight[i];
        difference += error * error;
        size += e->dweight[i] * e->dweight[i];
    }
    free(is_target);
    return difference == 0 ? 0 : sqrt(difference / size);
}

double case_gradient_error(const case_problem *p, const case_expected *e, int part) {
    if (part == CASE_DHIDDEN)
        return lgh_relative_l2(p->dhidden, e->dhidden,
                               (size_t)(p->tokens * p->options.hidden_size));
    return dweight_error(p, e, part == CASE_TARGET_ROWS);
}

static const char *part_name(int part) {
    if (part == CASE_DHIDDEN)
        return "dhidden";
    return part == CASE_TARGET_ROWS ? "target rows of dweight" : "other rows of dweight";
}

/* 0 where the plan does not have the part. */
static double part_tolerance(const case_problem *p, int part) {
    const lgh_plan_options *o = &p->options;
    const lgh_dtype dtype = part == CASE_DHIDDEN ? o->dhidden_dtype : o->dweight_dtype;
    if (dtype == LGH_DTYPE_NONE)
        return 0;
    return promise_gradients(o->hidden_dtype, dtype, o->hidden_size);
}

void case_assert_gradients(const case_problem *p, const case_expected *e, int parts) {
    for (int part = CASE_DHIDDEN; part <= CASE_OTHER_ROWS; part *= 2) {
        const double tolerance = part_tolerance(p, part);
        if (!(parts & part) || tolerance == 0)
            continue;
        const double error = case_gradient_error(p, e, part);
        if (!(error <= tolerance))
            fail_msg("%s: relative L2 error %.3g > %.3g", part_name(part), error, tolerance);
    }
}

void case_assert_gradients_outside(const case_problem *p, const case_expected *faulty, int parts) {
    for (int part = CASE_DHIDDEN; part <= CASE_OTHER_ROWS; part *= 2) {
        if (!(parts & part))
            continue;
        const double error = case_gradient_error(p, faulty, part);
        if (error <= part_tolerance(p, part))
            fail_msg("%s: relative L2 error %.3g of the faulty result is within %.3g",
                     part_name(part), error, part_tolerance(p, part));
    }
}
