/* case_oracle.c - a problem's results against the oracle's. */
#include "case_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "promises.h"

static void *allocate(int64_t count, size_t size) {
    void *numbers = calloc(count > 0 ? (size_t)count : 1, size);
    assert_non_null(numbers);
    return numbers;
}

static double *allocate_doubles(int64_t count) {
    return allocate(count, sizeof(double));
}

/* ---- What the oracle reads ----------------------------------------------------------------- */

lgh_plan_options case_host_options(const case_problem *p) {
    lgh_plan_options options = p->options;
    options.targets_dtype = LGH_INT64;
    return options;
}

static lgh_value host_value(const case_value *value) {
    if (value->form == CASE_ABSENT)
        return (lgh_value){NULL, 0, 0.0f};
    if (value->form == CASE_HOST)
        return (lgh_value){NULL, 0, value->values[0]};
    return (lgh_value){value->values, value->form == CASE_BROADCAST ? 0 : 1, 0.0f};
}

static lgh_live host_live(const case_problem *p) {
    const case_live *live = &p->live;
    if (!live->given)
        return (lgh_live){NULL, 0, NULL};
    return (lgh_live){live->rows, live->bound, live->with_count ? &live->count : NULL};
}

lgh_forward_args case_host_forward_args(const case_problem *p) {
    lgh_forward_args args = LGH_FORWARD_ARGS_INIT;
    args.hidden = case_hidden(p);
    args.weight = case_weight(p);
    args.targets = p->without_targets ? NULL : p->targets;
    args.temperature = p->temperatures.form == CASE_ABSENT ? (lgh_value){NULL, 0, p->temperature}
                                                           : host_value(&p->temperatures);
    args.bias = p->bias;
    args.live = host_live(p);
    return args;
}

lgh_backward_args case_host_backward_args(const case_problem *p) {
    const lgh_forward_args forward = case_host_forward_args(p);
    lgh_backward_args args = LGH_BACKWARD_ARGS_INIT;
    args.hidden = forward.hidden;
    args.weight = forward.weight;
    args.targets = forward.targets;
    args.temperature = forward.temperature;
    args.bias = forward.bias;
    args.live = forward.live;
    args.grad_logp = host_value(&p->grad_logp);
    args.grad_entropy = host_value(&p->grad_entropy);
    args.grad_lse = host_value(&p->grad_lse);
    return args;
}

/* ---- Expected ------------------------------------------------------------------------------ */

static double *widen(const lgh_const_matrix *matrix) {
    double *wide = allocate_doubles(matrix->rows * matrix->columns);
    for (int64_t i = 0; i < matrix->rows * matrix->columns; i++)
        wide[i] = reference_element(matrix->data, matrix->dtype, i);
    return wide;
}

static double finished(const case_problem *p, int64_t entry, double x) {
    const double cap = (double)p->options.softcap;
    if (p->bias)
        x += reference_element(p->bias, p->options.bias_dtype, entry);
    return cap > 0 ? cap * tanh(x / cap) : x;
}

double case_logit(const case_problem *p, int64_t token, int64_t entry) {
    const lgh_const_matrix hidden = case_hidden(p), weight = case_weight(p);
    const int64_t width = hidden.columns;
    double x = 0;
    for (int64_t k = 0; k < width; k++)
        x += reference_element(hidden.data, hidden.dtype, token * width + k) *
             reference_element(weight.data, weight.dtype, entry * width + k);
    return finished(p, entry, x);
}

/* Of any token and entry. */
static double largest_logit(const case_problem *p) {
    const lgh_const_matrix hidden = case_hidden(p), weight = case_weight(p);
    const int64_t width = hidden.columns;
    double *h = widen(&hidden), *w = widen(&weight);
    double largest = 0;
    for (int64_t v = 0; v < weight.rows; v++)
        for (int64_t i = 0; i < hidden.rows; i++) {
            double x = 0;
            for (int64_t k = 0; k < width; k++)
                x += h[i * width + k] * w[v * width + k];
            x = fabs(finished(p, v, x));
            largest = isfinite(x) ? fmax(largest, x) : largest;
        }
    free(h);
    free(w);
    return largest;
}

case_expected case_expected_create(const case_problem *p, double max_abs_x) {
    const int64_t width = p->options.hidden_size;
    return (case_expected){.logp = allocate_doubles(p->tokens),
                           .lse = allocate_doubles(p->tokens),
                           .entropy = allocate_doubles(p->tokens),
                           .logp_at_one = allocate_doubles(p->tokens),
                           .best = allocate(p->tokens, sizeof(int64_t)),
                           .dhidden = allocate_doubles(p->tokens * width),
                           .dweight = allocate_doubles(p->options.vocab_size * width),
                           .dbias = allocate_doubles(p->options.vocab_size),
                           .max_abs_x = max_abs_x};
}

void case_expected_destroy(case_expected *e) {
    void *const numbers[] = {e->logp, e->lse,     e->entropy, e->logp_at_one,
                             e->best, e->dhidden, e->dweight, e->dbias};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        free(numbers[i]);
    memset(e, 0, sizeof *e);
}

case_expected case_expect_outputs(const case_problem *p, const reference_faults *faults) {
    const lgh_plan_options options = case_host_options(p);
    const lgh_forward_args args = case_host_forward_args(p);
    case_expected e = case_expected_create(p, largest_logit(p));
    reference_outputs outputs = {e.logp, e.lse, e.entropy, e.logp_at_one, e.best, 0, 0};
    reference_forward(&options, &args, faults, &outputs);
    e.foreign_targets = outputs.foreign_targets;
    e.invalid_temperatures = outputs.invalid_temperatures;
    return e;
}

case_expected case_expect(const case_problem *p, const reference_faults *faults) {
    const lgh_plan_options options = case_host_options(p);
    const lgh_backward_args args = case_host_backward_args(p);
    case_expected e = case_expect_outputs(p, faults);
    const reference_gradients gradients = {e.dhidden, e.dweight, e.dbias};
    reference_backward(&options, &args, faults, &gradients);
    return e;
}

/* A problem of its own, whose weight is FP32 so that it can hold what either rounding leaves. */
case_expected case_expect_divided_weight(const case_problem *p, lgh_dtype rounding) {
    const int64_t count = p->options.vocab_size * p->options.hidden_size;
    const double t = (double)p->temperature;
    case_problem divided = *p;
    float *weight = allocate(count, sizeof *weight);
    for (int64_t i = 0; i < count; i++)
        weight[i] = (float)reference_round(
            reference_element(p->weight, p->options.weight_dtype, i) / t, rounding);
    divided.weight = weight;
    divided.options.weight_dtype = LGH_FP32;
    divided.temperature = 1.0f;
    case_expected e = case_expect(&divided, NULL);
    for (int64_t i = 0; i < count; i++)
        e.dweight[i] /= t;
    e.max_abs_x *= t;
    free(weight);
    return e;
}

lgh_dtype case_product_dtype(const case_problem *p) {
    return p->options.weight_dtype;
}

/* ---- Outputs ------------------------------------------------------------------------------- */

typedef struct output {
    uint32_t bit;
    const char *name;
    const float *actual;
    const double *expected;
    int at_one; /* whatever the temperature */
} output;

enum { OUTPUTS = 4 };

static void list_outputs(output outputs[OUTPUTS], const case_problem *p, const case_expected *e) {
    outputs[0] = (output){LGH_OUTPUT_LOGP, "logp", p->logp, e->logp, 0};
    outputs[1] = (output){LGH_OUTPUT_LSE, "lse", p->lse, e->lse, 0};
    outputs[2] = (output){LGH_OUTPUT_ENTROPY, "entropy", p->entropy, e->entropy, 0};
    outputs[3] = (output){LGH_OUTPUT_LOGP_AT_ONE, "logp_at_one", p->logp_at_one, e->logp_at_one, 1};
}

/* Those that a call of the problem writes. */
static uint32_t outputs_of(const case_problem *p) {
    const uint32_t of_targets = LGH_OUTPUT_LOGP | LGH_OUTPUT_LOGP_AT_ONE;
    return p->without_targets ? p->options.outputs & ~of_targets : p->options.outputs;
}

/* 0 for equal infinities and NaNs, infinity where only one of the two is one. */
static double distance(double actual, double expected) {
    if (actual == expected || (isnan(actual) && isnan(expected)))
        return 0;
    return isfinite(actual) && isfinite(expected) ? fabs(actual - expected) : (double)INFINITY;
}

static double promised(const case_problem *p, const case_expected *e, const output *o,
                       int64_t token) {
    const double t = o->at_one ? 1 : case_temperature_at(p, token);
    return promise_outputs(e->max_abs_x / t, p->options.hidden_size, case_product_dtype(p));
}

/* tolerance 0: what is promised. */
static void assert_output(const case_problem *p, const case_expected *e, const output *o,
                          double tolerance) {
    for (int64_t i = 0; i < p->tokens; i++) {
        const double allowed = tolerance > 0 ? tolerance : promised(p, e, o, i);
        const double error = distance((double)o->actual[i], o->expected[i]);
        if (error > 0 && !(error <= allowed))
            fail_msg("%s[%lld]: actual %.9g, expected %.9g, error %.3g > %.3g", o->name,
                     (long long)i, (double)o->actual[i], o->expected[i], error, allowed);
    }
}

void case_assert_outputs_close(const case_problem *p, const case_expected *e, double tolerance) {
    output outputs[OUTPUTS];
    list_outputs(outputs, p, e);
    for (int i = 0; i < OUTPUTS; i++)
        if (outputs_of(p) & outputs[i].bit)
            assert_output(p, e, &outputs[i], tolerance);
}

void case_assert_outputs(const case_problem *p, const case_expected *e) {
    case_assert_outputs_close(p, e, 0);
}

static int is_outside(const case_problem *p, const case_expected *e, const output *o) {
    for (int64_t i = 0; i < p->tokens; i++) {
        const double error = distance((double)o->actual[i], o->expected[i]);
        if (error > 0 && !(error <= promised(p, e, o, i)))
            return 1;
    }
    return 0;
}

void case_assert_outputs_outside(const case_problem *p, const case_expected *faulty,
                                 uint32_t bits) {
    output outputs[OUTPUTS];
    list_outputs(outputs, p, faulty);
    for (int i = 0; i < OUTPUTS; i++)
        if ((bits & outputs_of(p) & outputs[i].bit) && !is_outside(p, faulty, &outputs[i]))
            fail_msg("%s is within the promise of the faulty result", outputs[i].name);
}

/* ---- Best, counters ------------------------------------------------------------------------ */

/* How far apart two logits may be that a device may take for each other. */
static double indistinct(const case_problem *p, const case_expected *e) {
    const lgh_dtype rounding = p->options.logits_rounding;
    const double ulp = rounding == LGH_BF16 ? 0x1p-7 : rounding == LGH_FP16 ? 0x1p-10 : 0;
    return 2 * promise_outputs(e->max_abs_x, p->options.hidden_size, case_product_dtype(p)) +
           ulp * e->max_abs_x;
}

static int is_counted_entry(const case_problem *p, int64_t entry) {
    const lgh_plan_options *o = &p->options;
    return entry >= o->vocab_start && entry < o->vocab_start + o->vocab_size &&
           (o->vocab_valid == 0 || entry < o->vocab_valid);
}

void case_assert_best(const case_problem *p, const case_expected *e) {
    const int64_t start = p->options.vocab_start;
    for (int64_t i = 0; i < p->tokens && (outputs_of(p) & LGH_OUTPUT_BEST); i++) {
        const int64_t best = p->best[i], expected = e->best[i];
        if (best == expected)
            continue;
        const int comparable = is_counted_entry(p, best) && is_counted_entry(p, expected);
        if (!comparable || !(fabs(case_logit(p, i, best - start) -
                                  case_logit(p, i, expected - start)) <= indistinct(p, e)))
            fail_msg("best[%lld] is %lld, expected %lld", (long long)i, (long long)best,
                     (long long)expected);
    }
}

void case_assert_counters(const case_problem *p, const case_expected *e) {
    const lgh_plan_options *o = &p->options;
    const int gradients = o->dhidden_dtype != LGH_DTYPE_NONE ||
                          o->dweight_dtype != LGH_DTYPE_NONE || o->dbias_dtype != LGH_DTYPE_NONE;
    for (int pass = 0; pass < (gradients ? 2 : 1); pass++) {
        assert_int_equal(p->foreign_targets[pass], e->foreign_targets);
        assert_int_equal(p->invalid_temperatures[pass], e->invalid_temperatures);
    }
}

/* ---- Gradients ----------------------------------------------------------------------------- */

static int is_live(const case_problem *p, int64_t token) {
    const case_live *live = &p->live;
    if (!live->given)
        return 1;
    for (int64_t i = 0; i < live->bound && (!live->with_count || i < live->count); i++)
        if (live->rows[i] == token)
            return 1;
    return 0;
}

/* For each row of the weight, whether it is the target of a token that counts. */
static unsigned char *mark_targets(const case_problem *p) {
    unsigned char *is_target = allocate(p->options.vocab_size, 1);
    for (int64_t i = 0; i < p->tokens && !p->without_targets; i++) {
        const int64_t target = p->targets[i];
        const double t = case_temperature_at(p, i);
        if (target != p->options.ignore_index && is_counted_entry(p, target) && is_live(p, i) &&
            t > 0 && isfinite(t))
            is_target[target - p->options.vocab_start] = 1;
    }
    return is_target;
}

typedef struct error_sum {
    double difference, size; /* squared */
} error_sum;

static void add_error(error_sum *sum, const float *actual, const double *expected, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const double error = distance((double)actual[i], expected[i]);
        sum->difference += error * error;
        sum->size += isnan(expected[i]) ? 0 : expected[i] * expected[i];
    }
}

static double relative_error(error_sum sum) {
    return sum.difference == 0 ? 0 : sqrt(sum.difference / sum.size);
}

/* Of the rows of dweight that are targets, or of those that are not. */
static error_sum dweight_error(const case_problem *p, const case_expected *e, int targets) {
    const int64_t width = p->options.hidden_size;
    unsigned char *is_target = mark_targets(p);
    error_sum sum = {0, 0};
    for (int64_t v = 0; v < p->options.vocab_size; v++)
        if (is_target[v] == targets)
            add_error(&sum, p->dweight + v * width, e->dweight + v * width, width);
    free(is_target);
    return sum;
}

double case_gradient_error(const case_problem *p, const case_expected *e, int part) {
    const lgh_plan_options *o = &p->options;
    error_sum sum = {0, 0};
    if (part == CASE_DHIDDEN)
        add_error(&sum, p->dhidden, e->dhidden, p->tokens * o->hidden_size);
    else if (part == CASE_DBIAS)
        add_error(&sum, p->dbias, e->dbias, o->vocab_size);
    else
        sum = dweight_error(p, e, part == CASE_TARGET_ROWS);
    return relative_error(sum);
}

static const char *part_name(int part) {
    switch (part) {
    case CASE_DHIDDEN:
        return "dhidden";
    case CASE_TARGET_ROWS:
        return "target rows of dweight";
    case CASE_OTHER_ROWS:
        return "other rows of dweight";
    default:
        return "dbias";
    }
}

/* 0 where the plan does not have the part. */
static double part_tolerance(const case_problem *p, int part) {
    const lgh_plan_options *o = &p->options;
    const lgh_dtype dtype = part == CASE_DHIDDEN ? o->dhidden_dtype
                            : part == CASE_DBIAS ? o->dbias_dtype
                                                 : o->dweight_dtype;
    if (dtype == LGH_DTYPE_NONE)
        return 0;
    return promise_gradients(case_product_dtype(p), dtype, o->hidden_size);
}

void case_assert_gradients(const case_problem *p, const case_expected *e, int parts) {
    for (int part = CASE_DHIDDEN; part <= CASE_DBIAS; part *= 2) {
        const double tolerance = part_tolerance(p, part);
        if (!(parts & part) || tolerance == 0)
            continue;
        const double error = case_gradient_error(p, e, part);
        if (!(error <= tolerance))
            fail_msg("%s: relative L2 error %.3g > %.3g", part_name(part), error, tolerance);
    }
}

void case_assert_gradients_outside(const case_problem *p, const case_expected *faulty, int parts) {
    for (int part = CASE_DHIDDEN; part <= CASE_DBIAS; part *= 2) {
        if (!(parts & part))
            continue;
        const double error = case_gradient_error(p, faulty, part);
        if (error <= part_tolerance(p, part))
            fail_msg("%s: relative L2 error %.3g of the faulty result is within %.3g",
                     part_name(part), error, part_tolerance(p, part));
    }
}
