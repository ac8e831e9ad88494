/* test_cpu_vocabulary.c - which entries the CPU device counts, which targets it knows, and which
 * entry it finds the best: whole vocabularies, padded ones and shards. */
#include "harness.h"

#include <math.h>
#include <string.h>

#include "cpu_problem.h"

enum { TOKENS = 13, HIDDEN = 20, VOCAB = 150, START = 1000 };

/* Entries 1000 .. 1149 of 5000, with everything that a row of the weight can have. */
static cpu_problem shard(void) {
    cpu_problem p = cpu_problem_of(TOKENS, HIDDEN, VOCAB);
    p.options.vocab_start = START;
    p.options.vocab_valid = 5000;
    p.options.bias_dtype = p.options.dbias_dtype = LGH_FP32;
    return p;
}

static const lgh_dtype operands[] = {LGH_BF16, LGH_FP16, LGH_FP32};

/* ---- Targets ------------------------------------------------------------------------------- */

/* Every kind of target, at the edges of its kind. */
static void mix_targets(cpu_problem *p) {
    const int64_t targets[TOKENS] = {
        START, START + VOCAB - 1, START - 1, START + VOCAB, 0,   4999, 5000, -1,
        -100,  INT32_MIN,         INT32_MAX, START + 7,     -101};
    for (int i = 0; i < TOKENS; i++)
        cpu_problem_set_target(p, i, targets[i]);
}

static void check_kinds(lgh_dtype targets, lgh_oov_policy policy) {
    const reference_faults faults[] = {{.first_entry_for_foreign = 1}, {.remote_as_unknown = 1}};
    for (int i = 0; i < 3; i++) {
        cpu_problem p = shard();
        p.options.hidden_dtype = p.options.weight_dtype = operands[i];
        p.options.targets_dtype = targets;
        p.options.oov_policy = policy;
        cpu_problem_open(&p);
        mix_targets(&p);
        cpu_problem_vary_temperature(&p);
        cpu_problem_check_all(&p, faults, 2);
        cpu_problem_close(&p);
    }
}

static void targets_have_their_kinds(void **state) {
    (void)state;
    check_kinds(LGH_INT64, LGH_OOV_ZERO);
    check_kinds(LGH_INT32, LGH_OOV_ZERO);
}

static void unknown_targets_may_keep_their_softmax(void **state) {
    (void)state;
    check_kinds(LGH_INT64, LGH_OOV_SOFTMAX);
    check_kinds(LGH_INT32, LGH_OOV_SOFTMAX);
}

static void targets_past_32_bits_are_unknown(void **state) {
    (void)state;
    cpu_problem p = shard();
    cpu_problem_open(&p);
    const int64_t targets[] = {INT64_MIN, INT64_MAX, (INT64_C(1) << 32) + START,
                               -(INT64_C(1) << 40)};
    for (int i = 0; i < 4; i++)
        cpu_problem_set_target(&p, i, targets[i]);
    cpu_results r = cpu_problem_run(&p);
    cpu_problem_check(&p, &r);
    assert_int_equal(r.foreign_targets[0], 4);
    cpu_results_close(&r);
    cpu_problem_close(&p);
}

static void without_targets_every_row_counts(void **state) {
    (void)state;
    cpu_problem p = shard();
    p.without_targets = 1;
    cpu_problem_open(&p);
    p.grad_logp = (lgh_value){NULL, 0, 0};
    cpu_problem_check_all(&p, &(reference_faults){.local_best = 1}, 1);
    cpu_problem_close(&p);
}

static void a_row_of_ignored_targets_is_all_zeros(void **state) {
    (void)state;
    cpu_problem p = shard();
    p.options.ignore_index = START + 3; /* even where it is an entry */
    cpu_problem_open(&p);
    for (int i = 0; i < TOKENS; i++)
        cpu_problem_set_target(&p, i, START + 3);
    cpu_results r = cpu_problem_run(&p);
    cpu_problem_check(&p, &r);
    for (int i = 0; i < TOKENS; i++)
        assert_true(r.outputs[1][i] == 0 && r.best[i] == -1);
    assert_int_equal(r.foreign_targets[0] + r.foreign_targets[1], 0);
    cpu_results_close(&r);
    cpu_problem_close(&p);
}

/* ---- Padding ------------------------------------------------------------------------------- */

/* The last 41 rows of the weight are padding: a whole tile has none of it, one has both. */
static cpu_problem padded(void) {
    cpu_problem p = shard();
    p.options.vocab_valid = START + VOCAB - 41;
    return p;
}

static void padding_has_no_probability(void **state) {
    (void)state;
    const reference_faults faults[] = {{.padding_left_in = 1}, {.padded_columns = 1}};
    for (int i = 0; i < 3; i++) {
        cpu_problem p = padded();
        p.options.hidden_dtype = p.options.weight_dtype = operands[i];
        cpu_problem_open(&p);
        cpu_problem_set_target(&p, 4, START + VOCAB - 41); /* the first row of padding */
        cpu_problem_check_all(&p, faults, 2);
        cpu_problem_close(&p);
    }
}

/* NaN and infinity in it reach nothing, and its gradients are exactly 0, or untouched. */
static void padding_is_not_read(void **state) {
    (void)state;
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        cpu_problem p = padded();
        p.accumulate_dweight = p.accumulate_dbias = accumulate;
        cpu_problem_open(&p);
        cpu_results clean = cpu_problem_run(&p);
        for (int row = VOCAB - 41; row < VOCAB; row++) {
            cpu_problem_set_bias(&p, row, row % 2 ? NAN : INFINITY);
            for (int k = 0; k < HIDDEN; k++)
                cpu_problem_set_weight(&p, row, k, row % 2 ? INFINITY : NAN);
        }
        cpu_results poisoned = cpu_problem_run(&p);
        cpu_problem_check_same(&p, &clean, &poisoned);
        for (int row = VOCAB - 41; row < VOCAB; row++) {
            const float bias = accumulate ? p.dbias_before[row] : 0;
            assert_true(poisoned.dbias[row] == bias);
            for (int k = 0; k < HIDDEN; k++) {
                const int64_t at = row * p.row_stride + k;
                const float before = accumulate ? ((float *)p.dweight_before)[at] : 0;
                lgh_assert_same_bytes((float *)poisoned.dweight + at, &before, sizeof before,
                                      "a row of padding");
            }
        }
        cpu_results_close(&clean);
        cpu_results_close(&poisoned);
        cpu_problem_close(&p);
    }
}

/* ---- Shards -------------------------------------------------------------------------------- */

static void check_empty_shard(int64_t vocab_size, int64_t vocab_valid) {
    cpu_problem p = shard();
    p.options.vocab_size = vocab_size;
    p.options.vocab_valid = vocab_valid;
    p.options.oov_policy = LGH_OOV_SOFTMAX;
    cpu_problem_open(&p);
    cpu_problem_vary_temperature(&p);
    for (int i = 0; i < TOKENS; i++)
        cpu_problem_set_target(&p, i, i - 2);
    cpu_problem_set_target(&p, 5, -100);
    p.temperatures[7 * CPU_PROBLEM_STRIDE] = -1;
    cpu_results r = cpu_problem_run(&p);
    cpu_problem_check(&p, &r);
    for (int i = 0; i < TOKENS; i++) {
        const float others = i == 7 ? NAN : 0;
        const float lse = i == 5 ? 0 : i == 7 ? NAN : -INFINITY;
        const float expected[] = {others, lse, others, others};
        for (int k = 0; k < 4; k++)
            lgh_assert_same_bytes(&r.outputs[k][i], &expected[k], sizeof(float), "an output");
        assert_int_equal(r.best[i], -1);
        assert_true(i == 7 || cpu_results_dhidden(&p, &r, i, 0) == 0);
    }
    assert_true(isnan(cpu_results_dhidden(&p, &r, 7, 0)));
    assert_int_equal(r.foreign_targets[0], TOKENS - 1);
    cpu_results_close(&r);
    cpu_problem_close(&p);
}

static void an_empty_shard_knows_nothing(void **state) {
    (void)state;
    check_empty_shard(0, 5000);
    check_empty_shard(VOCAB, START);     /* padding alone */
    check_empty_shard(VOCAB, START - 3); /* and no entry of an earlier shard */
    check_empty_shard(0, START);
}

/* Rows first .. first + count - 1 of a problem's weight as a shard of their own. The inputs are the
 * problem's. */
static cpu_problem part_of(const cpu_problem *whole, int64_t first, int64_t count) {
    cpu_problem part = *whole;
    const int64_t size = (int64_t)lgh_dtype_size(whole->options.weight_dtype);
    part.options.vocab_start = first;
    part.options.vocab_size = count;
    part.weight = (char *)whole->weight + first * whole->row_stride * size;
    part.bias = (float *)whole->bias + first;
    return part;
}

/* ln sum exp and sum over the shards of their parts of what the whole vocabulary gives. */
static void shards_add_up_to_the_whole(void **state) {
    (void)state;
    enum { SHARDS = 5 };
    const int64_t starts[SHARDS + 1] = {0, 64, 65, 65, 141, VOCAB}; /* the third one is empty, */
    cpu_problem whole = shard();
    whole.options.vocab_start = 0;
    whole.options.vocab_valid = 141; /* and the last one is padding */
    whole.options.hidden_dtype = whole.options.weight_dtype = LGH_FP32;
    cpu_problem_open(&whole);
    for (int i = 0; i < TOKENS; i++)
        cpu_problem_set_target(&whole, i, i % 5 == 4 ? -1 : i * 11);
    whole.grad_entropy = whole.grad_lse = (lgh_value){NULL, 0, 0.5f};
    cpu_results sum = cpu_problem_run(&whole);
    double total[TOKENS] = {0}, target_z[TOKENS] = {0};
    int best_found[TOKENS] = {0};
    for (int s = 0; s < SHARDS; s++) {
        cpu_problem part = part_of(&whole, starts[s], starts[s + 1] - starts[s]);
        cpu_results r = cpu_problem_run(&part);
        cpu_problem_check(&part, &r);
        for (int i = 0; i < TOKENS; i++) {
            const int has_target = starts[s] <= i * 11 && i * 11 < starts[s + 1];
            total[i] += exp((double)r.outputs[1][i]);
            target_z[i] += has_target ? (double)(r.outputs[0][i] + r.outputs[1][i]) : 0;
            best_found[i] += r.best[i] == sum.best[i];
        }
        cpu_results_close(&r);
    }
    for (int i = 0; i < TOKENS; i++) {
        lgh_assert_close(log(total[i]), (double)sum.outputs[1][i], 1e-5, "lse");
        if (i % 5 != 4)
            lgh_assert_close(target_z[i] - log(total[i]), (double)sum.outputs[0][i], 1e-5, "logp");
        assert_int_equal(best_found[i], 1);
    }
    cpu_results_close(&sum);
    cpu_problem_close(&whole);
}

/* With the whole vocabulary's lse and entropy, shards give partial sums of dhidden and their own
 * rows of dweight. */
static void partial_gradients_add_up(void **state) {
    (void)state;
    enum { SHARDS = 3 };
    const int64_t starts[SHARDS + 1] = {0, 1, 70, VOCAB};
    cpu_problem whole = shard();
    whole.options.vocab_start = 0;
    whole.options.vocab_valid = VOCAB;
    cpu_problem_open(&whole);
    cpu_results all = cpu_problem_run(&whole);
    double dhidden[TOKENS * HIDDEN] = {0};
    for (int s = 0; s < SHARDS; s++) {
        cpu_problem part = part_of(&whole, starts[s], starts[s + 1] - starts[s]);
        part.lse = all.outputs[1];
        part.entropy = all.outputs[2];
        cpu_results r = cpu_problem_run(&part);
        cpu_problem_check(&part, &r);
        for (int i = 0; i < TOKENS * HIDDEN; i++)
            dhidden[i] += cpu_results_dhidden(&part, &r, i / HIDDEN, i % HIDDEN);
        lgh_assert_same_bytes(r.dweight, (float *)all.dweight + starts[s] * part.row_stride,
                              HIDDEN * sizeof(float), "the first row of a shard's dweight");
        cpu_results_close(&r);
    }
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        lgh_assert_close(dhidden[i], cpu_results_dhidden(&whole, &all, i / HIDDEN, i % HIDDEN),
                         1e-6, "dhidden");
    cpu_results_close(&all);
    cpu_problem_close(&whole);
}

/* ---- Best ---------------------------------------------------------------------------------- */

/* Logits that are the bias alone. */
static cpu_problem biases(const double *bias) {
    cpu_problem p = shard();
    p.options.vocab_valid = START + VOCAB - 10;
    cpu_problem_open(&p);
    for (int row = 0; row < VOCAB; row++) {
        cpu_problem_set_bias(&p, row, bias[row]);
        for (int k = 0; k < HIDDEN; k++)
            cpu_problem_set_weight(&p, row, k, 0);
    }
    return p;
}

static void check_best(const double *bias, int64_t expected) {
    cpu_problem p = biases(bias);
    cpu_results r = cpu_problem_run(&p);
    for (int i = 0; i < TOKENS; i++)
        assert_int_equal(r.best[i], expected);
    cpu_results_close(&r);
    cpu_problem_close(&p);
}

static void fill(double *bias, double value) {
    for (int row = 0; row < VOCAB; row++)
        bias[row] = value;
}

static void the_lowest_of_equal_logits_is_best(void **state) {
    (void)state;
    double bias[VOCAB];
    fill(bias, -1);
    check_best(bias, START);
    bias[VOCAB - 11] = 2; /* the last entry that is no padding */
    check_best(bias, START + VOCAB - 11);
    bias[VOCAB - 10] = 3; /* padding */
    check_best(bias, START + VOCAB - 11);
    bias[70] = bias[71] = bias[130] = 2; /* in two tiles */
    check_best(bias, START + 70);
    fill(bias, -1);
    bias[0] = -0.0;
    bias[1] = 0;
    check_best(bias, START);
}

static void best_ties_show_their_faults(void **state) {
    (void)state;
    const reference_faults faults[] = {
        {.highest_best = 1}, {.local_best = 1}, {.padding_left_in = 1}};
    double bias[VOCAB];
    fill(bias, -1);
    bias[70] = bias[71] = 2;
    bias[VOCAB - 1] = 3;
    cpu_problem p = biases(bias);
    cpu_problem_check_all(&p, faults, 3);
    cpu_problem_close(&p);
}

static void best_is_an_entry_where_no_logit_is_a_number(void **state) {
    (void)state;
    double bias[VOCAB];
    fill(bias, -INFINITY);
    check_best(bias, -1); /* there is no softmax at all */
    bias[5] = -1e30;
    check_best(bias, START + 5);
    bias[0] = bias[100] = NAN;
    check_best(bias, START + 5);
    fill(bias, NAN);
    check_best(bias, START);
    bias[VOCAB - 11] = -INFINITY;
    check_best(bias, START);
    bias[VOCAB - 12] = INFINITY;
    check_best(bias, START + VOCAB - 12);
}

/* Equal after rounding, or in the softcap's flat part, is equal. */
static void ties_are_those_of_the_final_logits(void **state) {
    (void)state;
    for (int capped = 0; capped < 2; capped++) {
        double bias[VOCAB];
        fill(bias, 0);
        bias[33] = 200;
        bias[99] = 200.25;
        cpu_problem p = biases(bias);
        p.options.logits_rounding = capped ? LGH_DTYPE_NONE : LGH_BF16;
        p.options.softcap = capped ? 2 : 0;
        cpu_results r = cpu_problem_run(&p);
        cpu_problem_check(&p, &r);
        assert_int_equal(r.best[0], START + 33);
        p.options.logits_rounding = LGH_DTYPE_NONE;
        p.options.softcap = 0;
        cpu_results exact = cpu_problem_run(&p);
        assert_int_equal(exact.best[0], START + 99);
        cpu_results_close(&r);
        cpu_results_close(&exact);
        cpu_problem_close(&p);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_have_their_kinds),
        cmocka_unit_test(unknown_targets_may_keep_their_softmax),
        cmocka_unit_test(targets_past_32_bits_are_unknown),
        cmocka_unit_test(without_targets_every_row_counts),
        cmocka_unit_test(a_row_of_ignored_targets_is_all_zeros),
        cmocka_unit_test(padding_has_no_probability),
        cmocka_unit_test(padding_is_not_read),
        cmocka_unit_test(an_empty_shard_knows_nothing),
        cmocka_unit_test(shards_add_up_to_the_whole),
        cmocka_unit_test(partial_gradients_add_up),
        cmocka_unit_test(the_lowest_of_equal_logits_is_best),
        cmocka_unit_test(best_ties_show_their_faults),
        cmocka_unit_test(best_is_an_entry_where_no_logit_is_a_number),
        cmocka_unit_test(ties_are_those_of_the_final_logits)};
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
