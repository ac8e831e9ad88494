/* test_random_cases.c - everything that the two passes can be asked for, thrown together at random,
 * against the oracle.
 *
 * Problem i of a run is that of seed S + i, where S is LGH_TEST_SEED, or 1. A failure is preceded
 * by its problem's seed, which as LGH_TEST_SEED repeats that problem first.
 */
#include "case_oracle.h"
#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PROBLEMS = 40, MOST_TOKENS = 90 };

static uint64_t first_seed(void) {
    const char *text = getenv("LGH_TEST_SEED");
    if (!text)
        return 1;
    char *end;
    errno = 0;
    const uint64_t seed = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0')
        fail_msg("LGH_TEST_SEED is %s; it must be a whole number", text);
    return seed;
}

static int64_t below(lgh_random *random, int64_t limit) {
    return lgh_random_below(random, limit);
}

static int one_in(lgh_random *random, int64_t n) {
    return below(random, n) == 0;
}

static int64_t one_of(lgh_random *random, const int64_t *choices, int64_t count) {
    return choices[below(random, count)];
}

/* ---- Plan ---------------------------------------------------------------------------------- */

static const lgh_dtype float_dtypes[] = {LGH_BF16, LGH_FP16, LGH_FP32};

static void choose_dtypes(case_problem *p, lgh_random *random) {
    lgh_plan_options *o = &p->options;
    if (one_in(random, 4))
        case_set_mixed_operands(p);
    else
        case_set_operands(p, float_dtypes[below(random, 3)]);
    case_set_results(p, one_in(random, 2) ? LGH_FP32 : LGH_BF16);
    if (one_in(random, 6))
        o->dhidden_dtype = LGH_DTYPE_NONE;
    if (one_in(random, 6))
        o->dweight_dtype = LGH_DTYPE_NONE;
    if (one_in(random, 2))
        case_set_bias_dtype(p, float_dtypes[below(random, 3)]);
    if (one_in(random, 6))
        o->dbias_dtype = one_in(random, 2) ? LGH_FP32 : LGH_DTYPE_NONE;
    if (one_in(random, 3))
        o->logits_rounding = one_in(random, 2) ? LGH_BF16 : LGH_FP16;
    o->targets_dtype = one_in(random, 2) ? LGH_INT32 : LGH_INT64;
}

static void choose_vocabulary(case_problem *p, lgh_random *random) {
    lgh_plan_options *o = &p->options;
    if (one_in(random, 2))
        o->vocab_start = below(random, 100);
    if (one_in(random, 3)) /* padding here, or entries beyond this shard */
        o->vocab_valid = o->vocab_start + 1 + below(random, 2 * o->vocab_size);
    if (one_in(random, 2))
        o->softcap = one_in(random, 2) ? 8 : 30;
    o->oov_policy = one_in(random, 2) ? LGH_OOV_ZERO : LGH_OOV_SOFTMAX;
    o->ignore_index = one_in(random, 4) ? o->vocab_start + below(random, 5) : -100;
}

static void choose_layouts(case_problem *p, lgh_random *random) {
    static const int64_t alignments[] = {2, 4, 8, 16};
    case_layout *const layouts[] = {&p->hidden_layout, &p->weight_layout, &p->dhidden_layout,
                                    &p->dweight_layout};
    if (one_in(random, 2))
        return;
    /* So many elements have that many bytes in every dtype, or a multiple of them. */
    const int64_t step = one_of(random, alignments, 4) / 2, width = p->options.hidden_size;
    const int64_t rest = (step - width % step) % step;
    p->options.row_alignment = (int32_t)(2 * step);
    for (int i = 0; i < 4; i++)
        *layouts[i] = (case_layout){rest + step * below(random, 4), step * below(random, 4)};
}

static case_problem choose_problem(lgh_random *random) {
    static const int64_t vocabularies[] = {1, 7, 40, 129, 300, 1000, 4099};
    static const int64_t widths[] = {7, 8, 20, 64, 65, 128, 256};
    static const int64_t blocks[] = {0, 0, 1, 16, 33};
    case_problem p = case_of(below(random, MOST_TOKENS), one_of(random, widths, 7),
                             one_of(random, vocabularies, 7));
    choose_dtypes(&p, random);
    choose_vocabulary(&p, random);
    choose_layouts(&p, random);
    p.options.live_lists = one_in(random, 2);
    p.options.token_block = one_of(random, blocks, 5);
    p.options.max_tokens += below(random, 20);
    p.with_counters = !one_in(random, 4);
    p.without_targets = one_in(random, 8);
    p.accumulate = p.options.dweight_dtype == LGH_FP32 && one_in(random, 3);
    p.accumulate_dbias = p.options.dbias_dtype == LGH_FP32 && one_in(random, 3);
    return p;
}

/* ---- Operands ------------------------------------------------------------------------------ */

/* A multiple of this step, at most 8 of them from 0. */
static double multiple(lgh_random *random, double step) {
    return step * (double)(below(random, 17) - 8);
}

/* Logits of a standard deviation of about 1.5. Where they are rounded, their sums of products are
 * exact in FP32 in any order, so that the rounding has one result. */
static void choose_operands(case_problem *p, lgh_random *random) {
    const lgh_plan_options *o = &p->options;
    const double width = sqrt((double)o->hidden_size), step = ldexp(1, -(int)ceil(log2(2 * width)));
    const int64_t entries = o->vocab_size;
    case_fill(p, lgh_random_bits(random), 1.0, 1.5 / width);
    for (int64_t v = 0; v < entries && p->bias; v++)
        case_set_bias(p, v, multiple(random, 0.125));
    lgh_random_fill_fp32(random, p->dweight_start, (size_t)(entries * o->hidden_size), 0.1);
    lgh_random_fill_fp32(random, p->dbias_start, (size_t)entries, 0.1);
    if (o->logits_rounding == LGH_DTYPE_NONE)
        return;
    for (int64_t i = 0; i < o->max_tokens * o->hidden_size; i++)
        case_set_hidden(p, i / o->hidden_size, i % o->hidden_size, multiple(random, 0.125));
    for (int64_t i = 0; i < entries * o->hidden_size; i++)
        case_set_weight(p, i / o->hidden_size, i % o->hidden_size, multiple(random, step));
}

static void choose_targets(case_problem *p, lgh_random *random) {
    const lgh_plan_options *o = &p->options;
    const int64_t others[] = {o->ignore_index, -1, o->vocab_start - 1,
                              o->vocab_start + o->vocab_size, o->vocab_valid};
    for (int64_t i = 0; i < o->max_tokens; i++)
        if (one_in(random, 3))
            p->targets[i] = others[below(random, 5)];
}

static void choose_temperatures(case_problem *p, lgh_random *random) {
    static const float invalid[] = {0, -1, NAN, INFINITY};
    p->temperature = (float)(0.5 + lgh_random_uniform(random));
    if (one_in(random, 2))
        return;
    case_fill_temperatures(p, (case_form)(CASE_HOST + below(random, 4)), lgh_random_bits(random));
    for (int64_t i = 1; i < p->options.max_tokens && p->temperatures.form > CASE_BROADCAST; i++)
        if (one_in(random, 12))
            p->temperatures.values[i] = invalid[below(random, 4)];
}

static int64_t counted_entries(const lgh_plan_options *o) {
    const int64_t valid = o->vocab_valid - o->vocab_start;
    return o->vocab_valid > 0 && valid < o->vocab_size ? valid : o->vocab_size;
}

/* A single entry has a probability of 1, whatever its logit, and no gradient but that of lse; with
 * few entries the others may be less than what an FP32 lse can tell from 0. */
static void choose_gradients(case_problem *p, lgh_random *random) {
    case_gradient *const gradients[] = {&p->grad_logp, &p->grad_entropy, &p->grad_lse};
    for (int i = 0; i < 3; i++)
        gradients[i]->form = (case_form)below(random, CASE_STRIDED + 1);
    if (p->without_targets)
        p->grad_logp.form = CASE_ABSENT;
    if (counted_entries(&p->options) < 3)
        p->grad_lse.form = CASE_HOST;
}

/* Rows in any order, numbers that are no row among them. */
static void choose_live(case_problem *p, lgh_random *random) {
    int32_t rows[MOST_TOKENS];
    int64_t bound = 0;
    if (!p->options.live_lists || one_in(random, 4))
        return;
    for (int64_t i = 0; i < p->tokens; i++)
        if (one_in(random, 2))
            rows[bound++] = (int32_t)(one_in(random, 10) ? p->tokens + i : i);
    for (int64_t i = bound - 1; i > 0; i--) {
        const int64_t j = below(random, i + 1);
        const int32_t kept = rows[i];
        rows[i] = rows[j];
        rows[j] = kept;
    }
    case_set_live(p, rows, bound);
    p->live.with_count = one_in(random, 2);
    p->live.count = (int32_t)below(random, bound + 3);
}

/* ---- Checks -------------------------------------------------------------------------------- */

/* The CUDA device rounds each dx to the weight's dtype; with few or cancelling terms that is more
 * than the promise about their sum, and so part of what is expected here. FP16 is rounded at a
 * scale of its own, with errors far within the promise. */
static reference_faults rounding_of(const case_problem *p) {
    reference_faults faults = {0};
    if (lgh_test_device() == LGH_DEVICE_CUDA && case_product_dtype(p) == LGH_BF16)
        faults.rounded_gradients = LGH_BF16;
    return faults;
}

static void add(double *to, const float *what, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        to[i] += (double)what[i];
}

static void check_results(const case_problem *p) {
    const lgh_plan_options *o = &p->options;
    const reference_faults rounded = rounding_of(p);
    case_expected e = case_expect(p, &rounded);
    case_assert_outputs(p, &e);
    case_assert_best(p, &e);
    if (p->with_counters && p->tokens > 0)
        case_assert_counters(p, &e);
    if (p->accumulate)
        add(e.dweight, p->dweight_start, o->vocab_size * o->hidden_size);
    if (p->accumulate_dbias)
        add(e.dbias, p->dbias_start, o->vocab_size);
    case_assert_gradients(p, &e, CASE_ALL_GRADIENTS);
    case_expected_destroy(&e);
}

/* Whether lse is not that of a temperature that is a quarter higher. */
static int tells_temperature(const case_problem *p) {
    float values[MOST_TOKENS + 20];
    case_problem warmer = *p;
    warmer.temperature *= 1.25f;
    warmer.temperatures.values = values;
    for (int64_t i = 0; i < p->options.max_tokens; i++)
        values[i] = 1.25f * p->temperatures.values[i];
    case_expected e = case_expect_outputs(&warmer, NULL);
    int differs = 0;
    for (int64_t i = 0; i < p->tokens; i++)
        differs = differs || fabs((double)p->lse[i] - e.lse[i]) > 0.01;
    case_expected_destroy(&e);
    return differs;
}

static void print_problem(uint64_t seed, const case_problem *p) {
    const lgh_plan_options *o = &p->options;
    print_message("seed %" PRIu64 ": N %lld, D %lld, V %lld; dtypes %d %d, %d %d, bias %d %d, "
                  "rounding %d; vocabulary %lld, %lld; softcap %g, policy %d, live %d; T %d, "
                  "gradients %d %d %d\n",
                  seed, (long long)p->tokens, (long long)o->hidden_size, (long long)o->vocab_size,
                  (int)o->hidden_dtype, (int)o->weight_dtype, (int)o->dhidden_dtype,
                  (int)o->dweight_dtype, (int)o->bias_dtype, (int)o->dbias_dtype,
                  (int)o->logits_rounding, (long long)o->vocab_start, (long long)o->vocab_valid,
                  (double)o->softcap, (int)o->oov_policy, p->live.given, (int)p->temperatures.form,
                  (int)p->grad_logp.form, (int)p->grad_entropy.form, (int)p->grad_lse.form);
}

static int check_problem(uint64_t seed) {
    lgh_random random = {seed};
    case_problem p = choose_problem(&random);
    case_open(&p);
    choose_operands(&p, &random);
    choose_targets(&p, &random);
    choose_temperatures(&p, &random);
    choose_gradients(&p, &random);
    choose_live(&p, &random);
    print_problem(seed, &p);
    case_run(&p);
    check_results(&p);
    const int tells = tells_temperature(&p);
    case_close(&p);
    return tells;
}

static void random_calls_give_the_results_of_the_oracle(void **state) {
    (void)state;
    const uint64_t seed = first_seed();
    int telling = 0;
    for (uint64_t i = 0; i < PROBLEMS; i++)
        telling += check_problem(seed + i);
    assert_true(telling > PROBLEMS / 2);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_calls_give_the_results_of_the_oracle)};
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
