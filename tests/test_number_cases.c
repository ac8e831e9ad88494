/* test_number_cases.c - logits and gradients at the ends of what their formats hold: logits down to
 * the lowest number and -inf, large ones, many of them, gradients below the smallest of FP16. */
#include "case_oracle.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "promises.h"
#include "value.h"

static int on_cpu(void) {
    return lgh_test_device() == LGH_DEVICE_CPU;
}

/* ---- Logits of the lowest number ------------------------------------------------------------
 * 0 times -inf made the entropy a NaN; seen in trl and SkyRL. */

enum { LOW = 1, LOW_VOCAB = 3, LOW_WIDTH = 8 };
#define LOWEST (-3e38)

/* Of three logits two are 0, and entry LOW has this bias, or this weight where there is none. */
static case_problem with_low(lgh_dtype hidden, lgh_dtype weight, lgh_dtype bias, double low) {
    case_problem p = case_of(1, LOW_WIDTH, LOW_VOCAB);
    p.options.hidden_dtype = hidden;
    p.options.weight_dtype = weight;
    case_set_bias_dtype(&p, bias);
    case_open(&p);
    case_set_hidden(&p, 0, 0, 1);
    if (p.bias)
        case_set_bias(&p, LOW, low);
    else
        case_set_weight(&p, LOW, 0, low);
    return p;
}

/* -sum p z + lse in FP32, term by term. */
static float naive_entropy(double low, float temperature) {
    const float z[] = {0, (float)low / temperature, 0}, lse = logf(2);
    float sum = 0;
    for (int v = 0; v < LOW_VOCAB; v++)
        sum += expf(z[v] - lse) * z[v];
    return lse - sum;
}

static void check_low_gradients(const case_problem *p) {
    const double t = (double)p->temperature;
    case_expected e = case_expected_create(p, 0);
    e.dbias[0] = e.dweight[0] = 1 / t; /* g / 2 + l / 2 with p = 1/2, g = l = 1 */
    e.dbias[2] = e.dweight[2 * LOW_WIDTH] = 0;
    case_assert_gradients(p, &e, CASE_DWEIGHT | CASE_DBIAS);
    for (int k = 0; k < LOW_WIDTH; k++) {
        assert_true(p->dweight[LOW * LOW_WIDTH + k] == 0);
        assert_true(p->dhidden[k] == 0);
    }
    if (p->bias)
        assert_true(p->dbias[LOW] == 0);
    case_expected_destroy(&e);
}

/* The entry as a target: its log-prob is z - lse, or -inf, and a finite gradient goes to it. */
static void check_low_target(case_problem *p, double low) {
    p->targets[0] = LOW;
    case_run(p);
    const double logp[] = {(double)p->logp[0], (double)p->logp_at_one[0]};
    const double z[] = {low / (double)p->temperature, low};
    for (int i = 0; i < 2; i++)
        if (!(logp[i] == -(double)INFINITY || fabs(logp[i] / z[i] - 1) < 0x1p-8))
            fail_msg("logp of the lowest logit is %g; %g or -inf is right", logp[i], z[i]);
    const double expected = 1 / (double)p->temperature; /* g (1 - 0) */
    lgh_assert_close((double)p->dweight[LOW * LOW_WIDTH], expected,
                     expected * promise_gradients(case_product_dtype(p), LGH_FP32, LOW_WIDTH),
                     "dweight of the lowest logit");
    assert_false(isnan(p->dhidden[0]));
}

static void check_low(lgh_dtype hidden, lgh_dtype weight, lgh_dtype bias, double low,
                      float temperature) {
    case_problem p = with_low(hidden, weight, bias, low);
    p.temperature = temperature;
    p.grad_logp.form = p.grad_entropy.form = p.grad_lse.form = CASE_HOST;
    case_run(&p);
    const double tolerance = promise_outputs(0, LOW_WIDTH, weight), ln2 = log(2);
    lgh_assert_close((double)p.entropy[0], ln2, tolerance, "entropy");
    lgh_assert_close((double)p.lse[0], ln2, tolerance, "lse");
    lgh_assert_close((double)p.logp[0], -ln2, tolerance, "logp");
    lgh_assert_close((double)p.logp_at_one[0], -ln2, tolerance, "logp at T = 1");
    assert_int_equal(p.best[0], 0);
    if (isinf((float)low / temperature))
        assert_true(isnan(naive_entropy(low, temperature)));
    check_low_gradients(&p);
    check_low_target(&p, low);
    case_close(&p);
}

static void check_low_dtypes(lgh_dtype hidden, lgh_dtype weight) {
    static const float temperatures[] = {1.0f, 0.7f};
    for (int i = 0; i < 2; i++) {
        const float t = temperatures[i];
        if (weight != LGH_FP16)
            check_low(hidden, weight, LGH_DTYPE_NONE, LOWEST, t);
        check_low(hidden, weight, LGH_FP32, LOWEST, t);
        check_low(hidden, weight, LGH_BF16, LOWEST, t);
        check_low(hidden, weight, LGH_FP32, -INFINITY, t);
        check_low(hidden, weight, LGH_BF16, -INFINITY, t);
        check_low(hidden, weight, LGH_FP16, -INFINITY, t);
    }
}

static void lowest_logits_have_no_probability(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        check_low_dtypes(*dtype, *dtype);
    check_low_dtypes(LGH_BF16, LGH_FP32);
}

/* ---- Forward and backward logits ------------------------------------------------------------
 * Logits that the two passes computed differently no longer sum to a probability of 1; seen in
 * marin. */

enum { SUM_WIDTH = 256, SUM_VOCAB = 1000 };

/* One token whose largest |z| is 80. */
static case_problem far_from_zero(lgh_dtype hidden, lgh_dtype weight) {
    case_problem p = case_of(1, SUM_WIDTH, SUM_VOCAB);
    double largest = 0;
    p.options.hidden_dtype = hidden;
    p.options.weight_dtype = weight;
    case_set_bias_dtype(&p, LGH_FP32);
    case_open(&p);
    case_fill(&p, 4, 1.0, 1.0);
    for (int64_t v = 0; v < SUM_VOCAB; v++)
        largest = fmax(largest, fabs(case_logit(&p, 0, v)));
    p.temperature = (float)(largest / 80);
    return p;
}

static void sum_dbias(const case_problem *p, double *sum, double *size) {
    *sum = *size = 0;
    for (int64_t v = 0; v < SUM_VOCAB; v++) {
        *sum += (double)p->dbias[v];
        *size += fabs((double)p->dbias[v]);
    }
}

static void check_sum(lgh_dtype hidden, lgh_dtype weight) {
    case_problem p = far_from_zero(hidden, weight);
    double sum, size;
    p.grad_logp.form = CASE_HOST;
    p.grad_entropy.form = p.grad_lse.form = CASE_ABSENT;
    case_run(&p);
    sum_dbias(&p, &sum, &size);
    const double bound = promise_dbias_sum(weight);
    if (!(fabs(sum) <= bound * size))
        fail_msg("dbias sums to %g, more than %g of its magnitudes %g", sum, bound, size);
    p.lse[0] += 0.05f; /* the control: as if the forward pass had seen other logits */
    device_buffer_upload(&p.device.lse, p.lse);
    case_backward(&p);
    sum_dbias(&p, &sum, &size);
    assert_true(fabs(sum) > bound * size);
    case_close(&p);
}

static void gradients_of_one_token_sum_to_zero(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        check_sum(*dtype, *dtype);
    check_sum(LGH_BF16, LGH_FP32);
}

/* Probabilities as the backward pass has them, through dbias = p / T for l = 1. */
static void check_probabilities(lgh_dtype hidden, lgh_dtype weight) {
    case_problem p = far_from_zero(hidden, weight);
    double sum, size;
    p.grad_lse.form = CASE_HOST;
    p.grad_lse.values[0] = 1;
    p.grad_logp.form = p.grad_entropy.form = CASE_ABSENT;
    case_run(&p);
    sum_dbias(&p, &sum, &size);
    const double t = (double)p.temperature;
    const double bound = weight == LGH_FP32 ? PROMISE_PROBABILITY_SUM : promise_dbias_sum(weight);
    lgh_assert_close(sum * t, 1, bound, "the sum of probabilities");
    p.lse[0] += 0.05f;
    device_buffer_upload(&p.device.lse, p.lse);
    case_backward(&p);
    sum_dbias(&p, &sum, &size);
    assert_true(fabs(sum * t - 1) > bound);
    case_close(&p);
}

/* 1024 equal logits of 80, whose probabilities 16 bits hold exactly. */
static void check_equal_probabilities(lgh_dtype dtype) {
    case_problem p = case_of(1, 8, 1024);
    double sum = 0;
    case_set_operands(&p, dtype);
    case_set_bias_dtype(&p, LGH_FP32);
    case_open(&p);
    case_set_hidden(&p, 0, 0, 8);
    for (int64_t v = 0; v < 1024; v++)
        case_set_weight(&p, v, 0, 10);
    p.grad_lse.form = CASE_HOST;
    case_run(&p);
    for (int64_t v = 0; v < 1024; v++)
        sum += (double)p.dbias[v];
    lgh_assert_close(sum, 1, PROMISE_PROBABILITY_SUM, "the sum of equal probabilities");
    case_close(&p);
}

static void probabilities_sum_to_one(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_probabilities(*dtype, *dtype);
        check_equal_probabilities(*dtype);
    }
    check_probabilities(LGH_BF16, LGH_FP32);
}

/* ---- Logits of 16 bits ----------------------------------------------------------------------
 * An LM head that stored its logits in 16 bits; seen in Fast-LLM and NeMo-RL. */

enum { LONG = 4096, LONG_TOKENS = 4, TABLE = 1 << 18 };

/* Rows of the weight are pieces of one long table: that many normal numbers take long to make. */
static int64_t piece_of(int64_t entry) {
    return entry * 7919 % TABLE;
}

typedef struct long_problem {
    case_problem p;
    uint16_t *table; /* of the weight's dtype */
    double *wide;    /* the same */
    double *logits;  /* [N, V] in float64 */
} long_problem;

static void fill_table(long_problem *l, lgh_random *random, lgh_dtype dtype) {
    uint16_t *table = malloc((TABLE + LONG) * sizeof *table);
    l->table = table;
    l->wide = malloc((TABLE + LONG) * sizeof *l->wide);
    assert_true(l->table && l->wide);
    for (int64_t i = 0; i < TABLE + LONG; i++) {
        const float value = (float)(0.1 * lgh_random_normal(random));
        table[i] = dtype == LGH_BF16 ? lgh__bf16_from_float(value) : lgh__fp16_from_float(value);
        l->wide[i] = reference_element(table, dtype, i);
    }
}

static long_problem long_rows(lgh_dtype dtype, int64_t vocab_size) {
    lgh_random random = {55};
    long_problem l = {.p = case_of(LONG_TOKENS, LONG, vocab_size)};
    case_problem *p = &l.p;
    case_set_operands(p, dtype);
    p->options.outputs = LGH_OUTPUT_LOGP;
    p->options.dhidden_dtype = p->options.dweight_dtype = LGH_DTYPE_NONE;
    case_open(p);
    fill_table(&l, &random, dtype);
    l.logits = malloc((size_t)(LONG_TOKENS * vocab_size) * sizeof *l.logits);
    assert_non_null(l.logits);
    for (int64_t v = 0; v < vocab_size; v++)
        memcpy((uint16_t *)p->weight + v * LONG, l.table + piece_of(v), LONG * sizeof *l.table);
    for (int64_t i = 0; i < LONG_TOKENS * LONG; i++)
        case_set_hidden(p, i / LONG, i % LONG, lgh_random_normal(&random));
    for (int64_t i = 0; i < LONG_TOKENS; i++)
        p->targets[i] = (i + 1) * 7 % vocab_size;
    return l;
}

static void compute_logits(long_problem *l) {
    const case_problem *p = &l->p;
    double hidden[LONG];
    for (int64_t i = 0; i < LONG_TOKENS; i++) {
        for (int64_t k = 0; k < LONG; k++)
            hidden[k] = reference_element(p->hidden, p->options.hidden_dtype, i * LONG + k);
        for (int64_t v = 0; v < p->options.vocab_size; v++) {
            const double *row = l->wide + piece_of(v);
            double x = 0;
            for (int64_t k = 0; k < LONG; k++)
                x += hidden[k] * row[k];
            l->logits[i * p->options.vocab_size + v] = x;
        }
    }
}

/* The log-prob of a token's target; the logits rounded to this dtype first, unless it is none. */
static double logp_of(const long_problem *l, int64_t token, lgh_dtype rounding) {
    const int64_t vocab_size = l->p.options.vocab_size;
    double sum = 0, target = 0;
    for (int64_t v = 0; v < vocab_size; v++) {
        double x = l->logits[token * vocab_size + v];
        if (rounding != LGH_DTYPE_NONE)
            x = reference_round(x, rounding);
        sum += exp(x);
        target = v == l->p.targets[token] ? x : target;
    }
    return target - log(sum);
}

static double largest_error(const long_problem *l, lgh_dtype rounding) {
    double largest = 0;
    for (int64_t i = 0; i < LONG_TOKENS; i++)
        largest = fmax(largest, fabs((double)l->p.logp[i] - logp_of(l, i, rounding)));
    return largest;
}

static double largest_logit(const long_problem *l) {
    double largest = 0;
    for (int64_t i = 0; i < LONG_TOKENS * l->p.options.vocab_size; i++)
        largest = fmax(largest, fabs(l->logits[i]));
    return largest;
}

static void check_long_rows(lgh_dtype dtype) {
    long_problem l = long_rows(dtype, on_cpu() ? 3000 : 151936);
    case_plan(&l.p);
    case_upload(&l.p);
    case_forward(&l.p);
    compute_logits(&l);
    assert_in_range((int)largest_logit(&l), 18, 45);
    const double error = largest_error(&l, LGH_DTYPE_NONE);
    if (!(error < PROMISE_WIDE_LOGP))
        fail_msg("logp is off by %g, of which %g is allowed", error, PROMISE_WIDE_LOGP);
    assert_true(largest_error(&l, LGH_BF16) > PROMISE_WIDE_LOGP);
    assert_true(largest_error(&l, LGH_FP16) > PROMISE_WIDE_LOGP);
    free(l.table);
    free(l.wide);
    free(l.logits);
    case_close(&l.p);
}

static void logits_are_not_rounded_to_16_bits(void **state) {
    (void)state;
    check_long_rows(LGH_BF16);
}

static void logits_of_fp16_operands_are_not_rounded_to_16_bits(void **state) {
    (void)state;
    check_long_rows(LGH_FP16);
}

/* ---- Gradients of FP16 ----------------------------------------------------------------------
 * Gradients of a large vocabulary are below the smallest number of FP16. */

static void check_underflow(case_form form, float gradient, float temperature) {
    const reference_faults unscaled = {.rounded_gradients = LGH_FP16};
    case_problem p = case_of(8, 32, 151936);
    case_set_operands(&p, LGH_FP16);
    p.temperature = temperature;
    case_open(&p);
    case_fill(&p, 39, 1.0, 0.2);
    p.grad_logp.form = form;
    p.grad_entropy.form = p.grad_lse.form = CASE_ABSENT;
    for (int i = 0; i < 8; i++)
        p.grad_logp.values[i] = form == CASE_HOST ? gradient : (float)(i % 3 - 1) * gradient;
    case_run(&p);
    case_expected right = case_expect(&p, NULL), faulty = case_expect(&p, &unscaled);
    case_assert_gradients(&p, &right, CASE_GRADIENTS);
    case_assert_gradients_outside(&p, &faulty, CASE_DHIDDEN | CASE_OTHER_ROWS);
    case_expected_destroy(&right);
    case_expected_destroy(&faulty);
    case_close(&p);
}

static void small_gradients_of_fp16_operands_are_kept(void **state) {
    (void)state;
    check_underflow(CASE_HOST, 1.0f / 8192, 1.0f);
    check_underflow(CASE_VECTOR, 1.0f / 8192, 0.7f);
}

static void tiny_gradients_of_fp16_operands_are_kept(void **state) {
    (void)state;
    check_underflow(CASE_VECTOR, 1e-12f, 1.3f);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lowest_logits_have_no_probability),
        cmocka_unit_test(gradients_of_one_token_sum_to_zero),
        cmocka_unit_test(probabilities_sum_to_one),
        cmocka_unit_test(logits_are_not_rounded_to_16_bits),
        cmocka_unit_test(logits_of_fp16_operands_are_not_rounded_to_16_bits),
        cmocka_unit_test(small_gradients_of_fp16_operands_are_kept),
        cmocka_unit_test(tiny_gradients_of_fp16_operands_are_kept),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
