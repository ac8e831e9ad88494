/* test_cpu_random.c - everything that a call on the CPU device can be, thrown together at random.
 *
 * A run prints the seed that it started from. LGH_TEST_SEED=SEED repeats it; a failure names the
 * seed that repeats the failing problem first.
 */
#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu_problem.h"

enum { PROBLEMS = 300 };

static uint64_t first_seed(void) {
    const char *text = getenv("LGH_TEST_SEED");
    struct timespec now;
    if (!text) {
        clock_gettime(CLOCK_REALTIME, &now);
        return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    }
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

/* ---- Plans --------------------------------------------------------------------------------- */

static const lgh_dtype float_dtypes[] = {LGH_FP32, LGH_BF16, LGH_FP16};

static lgh_dtype dtype_or_none(lgh_random *random) {
    return one_in(random, 2) ? LGH_DTYPE_NONE : float_dtypes[below(random, 3)];
}

static void choose_dtypes(lgh_plan_options *o, lgh_random *random) {
    o->hidden_dtype = o->weight_dtype = float_dtypes[below(random, 3)];
    if (o->hidden_dtype == LGH_BF16 && one_in(random, 2))
        o->weight_dtype = LGH_FP32;
    o->targets_dtype = one_in(random, 2) ? LGH_INT32 : LGH_INT64;
    o->dhidden_dtype = one_in(random, 2) ? o->hidden_dtype : LGH_FP32;
    o->dweight_dtype = one_in(random, 2) ? o->weight_dtype : LGH_FP32;
    o->bias_dtype = dtype_or_none(random);
    o->dbias_dtype = one_in(random, 2) ? LGH_FP32 : LGH_DTYPE_NONE;
    const lgh_dtype rounding = dtype_or_none(random);
    o->logits_rounding = rounding == LGH_FP32 ? LGH_DTYPE_NONE : rounding;
}

static void choose_vocabulary(lgh_plan_options *o, lgh_random *random) {
    const int64_t end = o->vocab_size;
    if (one_in(random, 2))
        o->vocab_start = below(random, 100);
    if (one_in(random, 2)) /* padding, a shard in the middle, or one past the end */
        o->vocab_valid = 1 + below(random, o->vocab_start + end + 50);
}

static cpu_problem choose_plan(lgh_random *random) {
    const int64_t sizes[] = {1, 2, 7, 8, 20, 64, 65, 257, 300};
    cpu_problem p = cpu_problem_of(below(random, 80), sizes[below(random, 9)], below(random, 200));
    choose_dtypes(&p.options, random);
    choose_vocabulary(&p.options, random);
    if (one_in(random, 2))
        p.options.softcap = one_in(random, 2) ? 5 : 30;
    p.options.oov_policy = one_in(random, 2) ? LGH_OOV_ZERO : LGH_OOV_SOFTMAX;
    p.options.ignore_index = one_in(random, 4) ? below(random, 20) : -100;
    p.options.live_lists = one_in(random, 2);
    p.threads = 1 + (int)below(random, 3);
    p.seed = lgh_random_bits(random);
    p.accumulate_dweight = p.options.dweight_dtype == LGH_FP32 && one_in(random, 3);
    p.accumulate_dbias = one_in(random, 3);
    p.without_targets = one_in(random, 8);
    p.without_dhidden = one_in(random, 8);
    p.without_dweight = one_in(random, 8);
    return p;
}

/* ---- Inputs -------------------------------------------------------------------------------- */

static void choose_targets(cpu_problem *p, lgh_random *random) {
    const lgh_plan_options *o = &p->options;
    const int64_t kinds[] = {o->ignore_index, -1, o->vocab_valid, o->vocab_start - 1,
                             o->vocab_start + o->vocab_size};
    for (int64_t i = 0; i < p->tokens; i++)
        if (one_in(random, 3))
            cpu_problem_set_target(
                p, i, one_in(random, 3) ? below(random, 300) : kinds[below(random, 5)]);
}

static void choose_temperature(cpu_problem *p, lgh_random *random) {
    const float invalid[] = {0, -1, NAN, INFINITY};
    const int64_t way = below(random, 4);
    for (int64_t i = 0; i < p->tokens; i++)
        if (one_in(random, 16))
            p->temperatures[i * CPU_PROBLEM_STRIDE] =
                one_in(random, 2) ? 1 : invalid[below(random, 4)];
    if (way == 0)
        p->temperature = (lgh_value){p->temperatures, 0, 0};
    else if (way < 3)
        cpu_problem_vary_temperature(p);
}

static lgh_value choose_value(lgh_random *random, lgh_value vector) {
    switch (below(random, 4)) {
    case 0:
        return (lgh_value){NULL, 0, 0};
    case 1:
        return (lgh_value){NULL, 0, (float)lgh_random_normal(random)};
    case 2:
        return (lgh_value){vector.data, 0, 0};
    default:
        return vector;
    }
}

static void choose_gradients(cpu_problem *p, lgh_random *random) {
    p->grad_logp = choose_value(random, p->grad_logp);
    p->grad_entropy = choose_value(random, p->grad_entropy);
    p->grad_lse = choose_value(random, p->grad_lse);
    if (p->without_targets)
        p->grad_logp = (lgh_value){NULL, 0, 0};
}

/* A row is in the list or not; numbers that are no row lie between. */
static void choose_list(cpu_problem *p, lgh_random *random, int32_t *list, int32_t *count) {
    int64_t length = 0;
    for (int64_t i = 0; i < p->tokens; i++)
        if (one_in(random, 2))
            list[length++] = (int32_t)(one_in(random, 16) ? p->tokens + i : i);
    *count = (int32_t)below(random, p->tokens + 1);
    if (p->options.live_lists)
        p->live = (lgh_live){list, length, one_in(random, 2) ? count : NULL};
}

/* ---- Properties ---------------------------------------------------------------------------- */

/* One token's results by itself have the same bits. */
static void check_alone(const cpu_problem *p, const cpu_results *r, int64_t token) {
    const lgh_plan_options *o = &p->options;
    cpu_problem alone = *p;
    alone.tokens = 1;
    alone.hidden =
        (char *)p->hidden + (size_t)(token * p->row_stride) * lgh_dtype_size(o->hidden_dtype);
    alone.targets = (char *)p->targets + (size_t)token * lgh_dtype_size(o->targets_dtype);
    lgh_value *values[] = {&alone.temperature, &alone.grad_logp, &alone.grad_entropy,
                           &alone.grad_lse};
    for (int i = 0; i < 4; i++)
        if (values[i]->data)
            values[i]->data += token * values[i]->stride;
    cpu_results of_alone = cpu_problem_run(&alone);
    for (int i = 0; i < 4; i++)
        lgh_assert_same_bytes(of_alone.outputs[i], r->outputs[i] + token, sizeof(float),
                              "an output of a token alone");
    assert_int_equal(of_alone.best[0], r->best[token]);
    const size_t size = lgh_dtype_size(o->dhidden_dtype);
    if (r->dhidden)
        lgh_assert_same_bytes(of_alone.dhidden,
                              (char *)r->dhidden + (size_t)(token * p->row_stride) * size,
                              (size_t)o->hidden_size * size, "dhidden of a token alone");
    cpu_results_close(&of_alone);
}

/* Threads, token blocks and budgets change no bit. */
static void check_spread(const cpu_problem *p, const cpu_results *r, lgh_random *random) {
    cpu_problem other = *p;
    other.threads = 1 + (int)below(random, 4);
    other.options.token_block = below(random, 40);
    other.options.backward_budget = one_in(random, 2) ? 0 : 1000000;
    cpu_results of_other = cpu_problem_run(&other);
    cpu_problem_check_same(p, &of_other, r);
    cpu_results_close(&of_other);
}

static void check_problem(uint64_t seed) {
    lgh_random random = {seed};
    int32_t list[80], count;
    cpu_problem p = choose_plan(&random);
    cpu_problem_open(&p);
    choose_targets(&p, &random);
    choose_temperature(&p, &random);
    choose_gradients(&p, &random);
    choose_list(&p, &random, list, &count);
    cpu_results r = cpu_problem_run(&p);
    if (cpu_problem_distance(&p, &r, NULL, 0) > 1) {
        cpu_problem_distance(&p, &r, NULL, 1);
        fail_msg("not the oracle's results; LGH_TEST_SEED=%" PRIu64 " repeats them", seed);
    }
    check_spread(&p, &r, &random);
    if (p.tokens > 0 && !p.live.rows)
        check_alone(&p, &r, below(&random, p.tokens));
    cpu_results_close(&r);
    cpu_problem_close(&p);
}

static void random_calls_give_the_oracles_results(void **state) {
    (void)state;
    const uint64_t seed = first_seed();
    print_message("LGH_TEST_SEED=%" PRIu64 "\n", seed);
    for (uint64_t i = 0; i < PROBLEMS; i++)
        check_problem(seed + i);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_calls_give_the_oracles_results)};
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
