/* test_vocabulary_cases.c - targets that are no entry, shards of a vocabulary, padding, shards with
 * nothing in them. */
#include "case_oracle.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "promises.h"

enum { TOKENS = 29, WIDTH = 40, VOCAB = 301 };
enum { STATISTICS = LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE | LGH_OUTPUT_ENTROPY };

static case_problem shard_of(lgh_dtype operands, int64_t first, int64_t entries, int64_t valid) {
    case_problem p = case_of(TOKENS, WIDTH, entries);
    case_set_operands(&p, operands);
    case_set_bias_dtype(&p, LGH_FP32);
    p.options.vocab_start = first;
    p.options.vocab_valid = valid;
    p.temperature = 0.7f;
    p.with_counters = 1;
    case_open(&p);
    return p;
}

/* A problem of the whole vocabulary. */
static case_problem random_problem(lgh_dtype operands, int64_t entries, int64_t valid) {
    case_problem p = shard_of(operands, 0, entries, valid);
    case_fill(&p, 28, 1.0, 0.25);
    case_fill_bias(&p, 29, 10);
    return p;
}

static void check_parts(const case_problem *p, int gradients) {
    case_expected right = case_expect(p, NULL);
    case_assert_outputs(p, &right);
    case_assert_best(p, &right);
    case_assert_counters(p, &right);
    case_assert_gradients(p, &right, gradients);
    case_expected_destroy(&right);
}

static void check_results(const case_problem *p) {
    check_parts(p, CASE_ALL_GRADIENTS);
}

/* ---- No entry ------------------------------------------------------------------------------- */

static case_expected expect_policy(const case_problem *p, lgh_oov_policy policy) {
    case_problem other = *p;
    other.options.oov_policy = policy;
    return case_expect(&other, NULL);
}

static void check_policy(lgh_dtype dtype, lgh_oov_policy policy) {
    static const int64_t targets[] = {-1, VOCAB, INT64_MAX, INT64_MIN, VOCAB + 1, -99, -100};
    enum { FOREIGN = 6, ROWS = 7 };
    case_problem p = random_problem(dtype, VOCAB, 0);
    p.options.oov_policy = policy;
    for (int i = 0; i < ROWS; i++)
        p.targets[3 * i] = targets[i];
    case_run(&p);
    check_results(&p);
    for (int pass = 0; pass < 2; pass++)
        assert_int_equal(p.foreign_targets[pass], FOREIGN);
    for (int i = 0; i < ROWS; i++) {
        const int is_zero = policy == LGH_OOV_ZERO || i >= FOREIGN;
        assert_true(p.logp[3 * i] == 0 && p.logp_at_one[3 * i] == 0);
        assert_int_equal(p.dhidden[(int64_t)3 * i * WIDTH] == 0, is_zero);
        assert_int_equal(p.entropy[3 * i] == 0, i >= FOREIGN);
    }
    case_expected faulty =
        expect_policy(&p, policy == LGH_OOV_ZERO ? LGH_OOV_SOFTMAX : LGH_OOV_ZERO);
    case_assert_gradients_outside(&p, &faulty, CASE_ALL_GRADIENTS);
    case_expected_destroy(&faulty);
    case_close(&p);
}

static void targets_that_are_no_entry_are_counted(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        check_policy(*dtype, LGH_OOV_ZERO);
}

static void targets_that_are_no_entry_keep_their_softmax_on_demand(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        check_policy(*dtype, LGH_OOV_SOFTMAX);
}

/* ---- Shards ---------------------------------------------------------------------------------
 * The statistics of shards, merged in float64, are those of the whole; seen wrong in CCE, AReaL and
 * Megatron. */

enum { SHARDS = 3 };

static void copy_entries(case_problem *to, const case_problem *whole, int64_t first) {
    const lgh_plan_options *o = &to->options;
    const size_t row = WIDTH * lgh_dtype_size(o->weight_dtype);
    memcpy(to->hidden, whole->hidden, TOKENS * WIDTH * lgh_dtype_size(o->hidden_dtype));
    memcpy(to->weight, (const char *)whole->weight + (size_t)first * row,
           (size_t)o->vocab_size * row);
    for (int64_t v = 0; v < o->vocab_size; v++)
        case_set_bias(to, v, (double)((const float *)whole->bias)[first + v]);
    memcpy(to->targets, whole->targets, TOKENS * sizeof *to->targets);
    case_gradient *const gradients[] = {&to->grad_logp, &to->grad_entropy, &to->grad_lse};
    const case_gradient *const given[] = {&whole->grad_logp, &whole->grad_entropy,
                                          &whole->grad_lse};
    for (int i = 0; i < 3; i++) {
        gradients[i]->form = CASE_VECTOR;
        memcpy(gradients[i]->values, given[i]->values, TOKENS * sizeof(float));
    }
}

static int holds(const case_problem *shard, int64_t target) {
    const lgh_plan_options *o = &shard->options;
    return target >= o->vocab_start && target < o->vocab_start + o->vocab_size;
}

/* logp of a shard without the target is -lse of the shard: the merge of two shards may as well add
 * the two and take lse away. */
static void merge_token(case_problem *whole, const case_problem *shards, int64_t i) {
    double max = -INFINITY, sum = 0, mean = 0, logp = 0;
    for (int s = 0; s < SHARDS; s++)
        max = fmax(max, (double)shards[s].lse[i]);
    for (int s = 0; s < SHARDS; s++)
        sum += exp((double)shards[s].lse[i] - max);
    const double lse = max + log(sum);
    for (int s = 0; s < SHARDS; s++) {
        const double of_shard = (double)shards[s].lse[i], entropy = (double)shards[s].entropy[i];
        if (of_shard > -(double)INFINITY)
            mean += exp(of_shard - lse) * (of_shard - entropy);
        if (holds(&shards[s], whole->targets[i]))
            logp = (double)shards[s].logp[i] + of_shard - lse;
    }
    whole->logp[i] = (float)logp;
    whole->lse[i] = (float)lse;
    whole->entropy[i] = (float)(lse - mean);
}

static void merge_best(case_problem *whole, const case_problem *shards, int64_t i) {
    whole->best[i] = -1;
    for (int s = 0; s < SHARDS; s++) {
        const int64_t best = shards[s].best[i];
        if (best >= 0 && (whole->best[i] < 0 ||
                          case_logit(whole, i, best) > case_logit(whole, i, whole->best[i])))
            whole->best[i] = best;
    }
}

/* The backward pass of a shard, given the statistics of the whole. */
static void backward_of_shard(const case_problem *whole, case_problem *shard) {
    device_buffer_upload(&shard->device.lse, whole->lse);
    device_buffer_upload(&shard->device.entropy, whole->entropy);
    case_backward(shard);
}

static void merge_gradients(case_problem *whole, const case_problem *shards) {
    memset(whole->dhidden, 0, TOKENS * WIDTH * sizeof(float));
    for (int s = 0; s < SHARDS; s++) {
        const int64_t first = shards[s].options.vocab_start;
        const size_t entries = (size_t)shards[s].options.vocab_size;
        for (int64_t i = 0; i < TOKENS * WIDTH; i++)
            whole->dhidden[i] += shards[s].dhidden[i];
        memcpy(whole->dweight + first * WIDTH, shards[s].dweight, entries * WIDTH * sizeof(float));
        memcpy(whole->dbias + first, shards[s].dbias, entries * sizeof(float));
    }
}

/* A shard by itself, and what it counts. */
static void run_shard(case_problem *shard, const case_problem *whole, int64_t first) {
    uint64_t foreign = 0;
    copy_entries(shard, whole, first);
    case_run(shard);
    check_parts(shard, CASE_GRADIENTS); /* dbias of few entries may be all cancellation */
    for (int64_t i = 0; i < TOKENS; i++) {
        const int is_foreign = !holds(shard, whole->targets[i]);
        foreign += (uint64_t)is_foreign;
        if (is_foreign && shard->options.vocab_size > 0)
            assert_true(shard->logp[i] == -shard->lse[i]);
    }
    assert_int_equal(shard->foreign_targets[0], foreign);
    assert_int_equal(shard->foreign_targets[1], foreign);
}

static void check_shards(lgh_dtype dtype, const int64_t bounds[SHARDS + 1]) {
    case_problem whole = random_problem(dtype, VOCAB, 0), shards[SHARDS];
    whole.options.outputs = STATISTICS | LGH_OUTPUT_BEST;
    for (int s = 0; s < SHARDS; s++) {
        shards[s] = shard_of(dtype, bounds[s], bounds[s + 1] - bounds[s], VOCAB);
        run_shard(&shards[s], &whole, bounds[s]);
    }
    case_expected right = case_expect(&whole, NULL);
    if (bounds[1] > 100) { /* the control: with each shard's own statistics, which differ enough */
        merge_gradients(&whole, shards);
        case_assert_gradients_outside(&whole, &right, CASE_ALL_GRADIENTS);
    }
    for (int64_t i = 0; i < TOKENS; i++) {
        merge_token(&whole, shards, i);
        merge_best(&whole, shards, i);
    }
    for (int s = 0; s < SHARDS; s++)
        backward_of_shard(&whole, &shards[s]);
    merge_gradients(&whole, shards);
    case_assert_outputs(&whole, &right);
    case_assert_best(&whole, &right);
    case_assert_gradients(&whole, &right, CASE_ALL_GRADIENTS);
    case_expected_destroy(&right);
    for (int s = 0; s < SHARDS; s++)
        case_close(&shards[s]);
    case_close(&whole);
}

static void shards_add_up_to_the_whole(void **state) {
    (void)state;
    static const int64_t bounds[][SHARDS + 1] = {
        {0, 127, 300, VOCAB}, {0, 150, 150, VOCAB}, {0, 1, 2, VOCAB}, {0, 0, 200, VOCAB}};
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
            check_shards(*dtype, bounds[i]);
}

/* Negative controls of the above: what a shard takes for a target that it lacks. */
static void shards_do_not_take_a_target_that_they_lack(void **state) {
    (void)state;
    const reference_faults first = {.first_entry_for_foreign = 1}, zero = {.remote_as_unknown = 1};
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        case_problem whole = random_problem(*dtype, VOCAB, 0);
        case_problem p = shard_of(*dtype, 127, 100, VOCAB);
        run_shard(&p, &whole, 127);
        case_expected taken = case_expect(&p, &first), unknown = case_expect(&p, &zero);
        case_assert_outputs_outside(&p, &taken, LGH_OUTPUT_LOGP | LGH_OUTPUT_LOGP_AT_ONE);
        case_assert_outputs_outside(&p, &unknown, LGH_OUTPUT_LOGP | LGH_OUTPUT_LOGP_AT_ONE);
        case_assert_gradients_outside(&p, &taken, CASE_DHIDDEN | CASE_DBIAS);
        case_assert_gradients_outside(&p, &unknown, CASE_ALL_GRADIENTS);
        case_expected_destroy(&taken);
        case_expected_destroy(&unknown);
        case_close(&p);
        case_close(&whole);
    }
}

/* ---- Padding -------------------------------------------------------------------------------- */

enum { PADDED = 320 };

static void assert_no_gradient(const case_problem *p, int64_t first) {
    for (int64_t v = first; v < p->options.vocab_size; v++) {
        assert_true(p->dbias[v] == 0);
        for (int64_t k = 0; k < WIDTH; k++)
            assert_true(p->dweight[v * WIDTH + k] == 0);
    }
}

/* Padding with logits above all others, in place of the zeros that it usually has. */
static void check_padding(lgh_dtype dtype, int64_t entries, int64_t valid) {
    const reference_faults counted = {.padding_left_in = 1};
    case_problem p = random_problem(dtype, entries, valid);
    for (int64_t v = valid; v < entries; v++)
        case_set_bias(&p, v, 30);
    for (int64_t i = 0; i < TOKENS; i++)
        p.targets[i] %= valid;
    p.targets[4] = valid; /* no entry, though the weight has a row for it */
    p.targets[7] = valid - 1;
    case_run(&p);
    check_results(&p);
    assert_int_equal(p.foreign_targets[0], 1);
    assert_no_gradient(&p, valid);
    case_expected faulty = case_expect(&p, &counted);
    case_assert_outputs_outside(&p, &faulty, STATISTICS | LGH_OUTPUT_LOGP_AT_ONE);
    case_assert_gradients_outside(&p, &faulty, CASE_ALL_GRADIENTS);
    for (int64_t i = 0; i < TOKENS; i++)
        assert_true(p.best[i] != faulty.best[i]);
    case_expected_destroy(&faulty);
    case_close(&p);
}

static void padding_has_neither_probability_nor_gradient(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_padding(*dtype, PADDED, VOCAB);
        check_padding(*dtype, 9001, 8193);
    }
}

/* A shard with nothing to count: no rows at all, or padding only. */
static void check_nothing(lgh_dtype dtype, int64_t entries, lgh_oov_policy policy) {
    case_problem p = shard_of(dtype, 400, entries, VOCAB);
    p.options.oov_policy = policy;
    if (entries > 0) {
        case_fill(&p, 30, 1.0, 0.25);
        case_fill_bias(&p, 31, 10);
    }
    for (int64_t i = 0; i < TOKENS; i++)
        p.targets[i] = i < 2 ? i - 100 : i; /* -100, -99 and entries of other shards */
    case_run(&p);
    check_results(&p);
    for (int64_t i = 0; i < TOKENS; i++) {
        assert_true(p.best[i] == -1 && p.logp[i] == 0 && p.entropy[i] == 0);
        assert_true(i == 0 ? p.lse[i] == 0 : p.lse[i] == -INFINITY);
    }
    for (int64_t i = 0; i < TOKENS * WIDTH; i++)
        assert_true(p.dhidden[i] == 0);
    assert_no_gradient(&p, 0);
    if (entries > 0) {
        const reference_faults counted = {.padding_left_in = 1};
        case_expected faulty = case_expect(&p, &counted);
        case_assert_outputs_outside(&p, &faulty, STATISTICS);
        case_expected_destroy(&faulty);
    }
    case_close(&p);
}

static void shards_with_nothing_to_count_change_nothing(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_nothing(*dtype, 0, LGH_OOV_ZERO);
        check_nothing(*dtype, 0, LGH_OOV_SOFTMAX);
        check_nothing(*dtype, 40, LGH_OOV_ZERO);
        check_nothing(*dtype, 40, LGH_OOV_SOFTMAX);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_that_are_no_entry_are_counted),
        cmocka_unit_test(targets_that_are_no_entry_keep_their_softmax_on_demand),
        cmocka_unit_test(shards_add_up_to_the_whole),
        cmocka_unit_test(shards_do_not_take_a_target_that_they_lack),
        cmocka_unit_test(padding_has_neither_probability_nor_gradient),
        cmocka_unit_test(shards_with_nothing_to_count_change_nothing),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
