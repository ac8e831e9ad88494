/* test_bench_check.c - how the bench judges results: its data, samples and float64 checks. */
#include "harness.h"

#include "../tools/bench_check.h"
#include "../tools/bench_reference.h"
#include "value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Data ---------------------------------------------------------------------------------- */

static lgh__threads *open_threads(int count) {
    lgh__threads *threads = NULL;
    lgh_assert_success(lgh__threads_create(&threads, count));
    return threads;
}

static lgh_tool_tensors make_tensors(int64_t tokens, int64_t hidden, int64_t vocab,
                                     int thread_count, uint64_t seed) {
    lgh_tool_tensors tensors;
    lgh_tool_shape shape = lgh_tool_shape_make(tokens, hidden, vocab);
    lgh__threads *threads = open_threads(thread_count);
    lgh_assert_success(lgh_tool_tensors_create(&tensors, &shape, seed, threads));
    lgh__threads_destroy(threads);
    return tensors;
}

/* Mean and variance of BF16 numbers. */
static void moments(const uint16_t *numbers, int64_t count, double *mean, double *variance) {
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < count; ++i) {
        double x = (double)lgh__float_from_bf16(numbers[i]);
        sum += x;
        squares += x * x;
    }
    *mean = sum / (double)count;
    *variance = squares / (double)count - *mean * *mean;
}

static void data_is_normal(void **state) {
    lgh_tool_tensors t = make_tensors(2048, 100, 5000, 1, 3);
    double mean, variance;
    (void)state;
    /* The table of 65536 numbers has a mean within 5 / 256 and a variance within 5 sqrt(2) / 256.
     */
    moments(t.hidden, 2048 * 100, &mean, &variance);
    lgh_assert_close(mean, 0.0, 0.02, "mean of hidden");
    lgh_assert_close(variance, 1.0, 0.03, "variance of hidden");
    moments(t.weight, 5000 * 100, &mean, &variance);
    lgh_assert_close(mean, 0.0, 0.002, "mean of weight");
    lgh_assert_close(variance, 0.01, 0.0003, "variance of weight");
    for (int i = 0; i < 2048; ++i) {
        assert_in_range(t.targets[i], 0, 4999);
        assert_true(isfinite(t.grad_logp[i]));
    }
    lgh_tool_tensors_free(&t);
}

static void data_does_not_depend_on_threads(void **state) {
    /* More than one block of the generator, and no multiple of it. */
    lgh_tool_tensors a = make_tensors(3, 1500, 1501, 1, 7), b = make_tensors(3, 1500, 1501, 3, 7);
    lgh_tool_tensors other = make_tensors(3, 1500, 1501, 1, 8);
    const size_t bytes = (size_t)1500 * 1501 * 2;
    (void)state;
    lgh_assert_same_bytes(b.weight, a.weight, bytes, "weight");
    lgh_assert_same_bytes(b.hidden, a.hidden, (size_t)3 * 1500 * 2, "hidden");
    lgh_assert_same_bytes(b.targets, a.targets, 3 * sizeof *a.targets, "targets");
    assert_memory_not_equal(other.weight, a.weight, bytes);
    lgh_tool_tensors_free(&a);
    lgh_tool_tensors_free(&b);
    lgh_tool_tensors_free(&other);
}

/* ---- Samples ------------------------------------------------------------------------------- */

static void a_spread_is_distinct_and_has_both_ends(void **state) {
    int64_t indices[8];
    (void)state;
    assert_int_equal(lgh_tool_spread(indices, 8, 1000), 8);
    assert_int_equal(indices[0], 0);
    assert_int_equal(indices[7], 999);
    for (int i = 1; i < 8; ++i)
        assert_true(indices[i] > indices[i - 1]);
    assert_int_equal(lgh_tool_spread(indices, 8, 3), 3);
    assert_int_equal(indices[2], 2);
    assert_int_equal(lgh_tool_spread(indices, 1, 5), 1);
    assert_int_equal(lgh_tool_spread(indices, 8, 0), 0);
}

static int is_target(const lgh_tool_tensors *t, int64_t entry) {
    for (int64_t i = 0; i < t->shape.tokens; ++i)
        if (t->targets[i] == entry)
            return 1;
    return 0;
}

static void vocabulary_samples_are_targets_or_are_not(void **state) {
    lgh_tool_tensors t = make_tensors(40, 4, 90, 1, 5);
    (void)state;
    for (int wanted = 0; wanted < 2; ++wanted) {
        int64_t entries[16], found;
        lgh_assert_success(lgh_tool_vocab_sample(&t, wanted, entries, 16, &found));
        assert_int_equal(found, 16);
        for (int i = 0; i < 16; ++i) {
            assert_int_equal(is_target(&t, entries[i]), wanted);
            assert_true(i == 0 || entries[i] > entries[i - 1]);
        }
    }
    lgh_tool_tensors_free(&t);
}

static void a_vocabulary_of_targets_has_no_others(void **state) {
    lgh_tool_tensors t = make_tensors(64, 4, 2, 1, 5);
    int64_t entries[16], found;
    (void)state;
    lgh_assert_success(lgh_tool_vocab_sample(&t, 0, entries, 16, &found));
    assert_int_equal(found, 0);
    lgh_assert_success(lgh_tool_vocab_sample(&t, 1, entries, 16, &found));
    assert_int_equal(found, 2);
    lgh_tool_tensors_free(&t);
}

/* ---- Float64 ------------------------------------------------------------------------------- */

static double value(const void *matrix, lgh_dtype dtype, int64_t index) {
    return dtype == LGH_FP32 ? (double)((const float *)matrix)[index]
                             : (double)lgh__float_from_bf16(((const uint16_t *)matrix)[index]);
}

/* Slow and plain: softmax over the whole vocabulary in long double. */
static void softmax_row(const lgh_tool_tensors *t, int64_t i, double *p, double *lse,
                        double *entropy) {
    const int64_t d = t->shape.hidden, v = t->shape.vocab;
    long double sum = 0.0L, weighted = 0.0L;
    for (int64_t c = 0; c < v; ++c) {
        double x = 0.0;
        for (int64_t k = 0; k < d; ++k)
            x += value(t->hidden, LGH_BF16, i * d + k) * value(t->weight, LGH_BF16, c * d + k);
        p[c] = x / (double)LGH_TOOL_BENCH_TEMPERATURE;
        sum += expl((long double)p[c]);
    }
    *lse = (double)logl(sum);
    for (int64_t c = 0; c < v; ++c) {
        double z = p[c];
        p[c] = exp(z - *lse);
        weighted += (long double)p[c] * (long double)z;
    }
    *entropy = *lse - (double)weighted;
}

/* All of dweight; with `fault`, the target's own term is left out. */
static void plain_dweight(const lgh_tool_tensors *t, double *dweight, float *lse, int fault) {
    const int64_t d = t->shape.hidden, v = t->shape.vocab;
    double *p = malloc((size_t)v * sizeof *p);
    memset(dweight, 0, (size_t)(v * d) * sizeof *dweight);
    for (int64_t i = 0; i < t->shape.tokens; ++i) {
        double row_lse, entropy;
        softmax_row(t, i, p, &row_lse, &entropy);
        lse[i] = (float)row_lse;
        for (int64_t c = 0; c < v; ++c) {
            double term = (!fault && t->targets[i] == c) - p[c];
            double dx = (double)t->grad_logp[i] * term / (double)LGH_TOOL_BENCH_TEMPERATURE;
            for (int64_t k = 0; k < d; ++k)
                dweight[c * d + k] += dx * value(t->hidden, LGH_BF16, i * d + k);
        }
    }
    free(p);
}

enum { N = 20, D = 13, V = 37 };

static double row_error(const lgh_tool_tensors *t, int wanted, int fault, double *largest) {
    double *dweight = malloc((size_t)V * D * sizeof *dweight);
    double rows[8 * D];
    float expected[8 * D], lse[N];
    int64_t entries[8], found;
    plain_dweight(t, dweight, lse, fault);
    lgh_assert_success(lgh_tool_vocab_sample(t, wanted, entries, 8, &found));
    lgh__threads *threads = open_threads(2);
    lgh_assert_success(lgh_tool_dweight_rows(t, lse, entries, found, rows, largest, threads));
    lgh__threads_destroy(threads);
    for (int64_t r = 0; r < found; ++r)
        for (int64_t k = 0; k < D; ++k)
            expected[r * D + k] = (float)dweight[entries[r] * D + k];
    free(dweight);
    return lgh_tool_l2_error(expected, rows, found * D);
}

static void rows_of_dweight_equal_a_plain_computation(void **state) {
    lgh_tool_tensors t = make_tensors(N, D, V, 1, 21);
    double largest = 0.0;
    (void)state;
    lgh_assert_close(row_error(&t, 1, 0, &largest), 0.0, 1e-6, "rows that are targets");
    lgh_assert_close(row_error(&t, 0, 0, NULL), 0.0, 1e-6, "rows that are none");
    assert_true(largest > 0.5 && largest < 20.0);
    lgh_tool_tensors_free(&t);
}

/* The promised bound must tell a missing target term, where there is one. */
static void a_fault_in_dweight_is_seen(void **state) {
    lgh_tool_tensors t = make_tensors(N, D, V, 1, 21);
    (void)state;
    assert_true(row_error(&t, 1, 1, NULL) > 100.0 * LGH_TOOL_PROMISE_GRADIENT_FP32);
    assert_true(row_error(&t, 0, 1, NULL) < 1e-6);
    lgh_tool_tensors_free(&t);
}

static void the_reference_equals_a_plain_computation(void **state) {
    lgh_tool_tensors t = make_tensors(N, D, V, 1, 22);
    const int64_t tokens[] = {0, 7, 19};
    lgh_tool_reference reference;
    double p[V];
    (void)state;
    lgh_assert_success(lgh_tool_reference_compute(&reference, &t, tokens, 3));
    for (int r = 0; r < 3; ++r) {
        double lse, entropy;
        const int64_t i = tokens[r], target = t.targets[i];
        softmax_row(&t, i, p, &lse, &entropy);
        lgh_assert_close(reference.statistics[0][r], log(p[target]), 1e-6, "logp");
        lgh_assert_close(reference.statistics[1][r], lse, 1e-6, "lse");
        lgh_assert_close(reference.statistics[2][r], entropy, 1e-6, "entropy");
        for (int k = 0; k < D; ++k) {
            double sum = 0.0;
            for (int c = 0; c < V; ++c)
                sum += ((c == target) - p[c]) * value(t.weight, LGH_BF16, c * D + k);
            sum *= (double)t.grad_logp[i] / (double)LGH_TOOL_BENCH_TEMPERATURE;
            lgh_assert_close(reference.dhidden[r * D + k], sum, 1e-6, "dhidden");
        }
    }
    lgh_tool_reference_free(&reference);
    lgh_tool_tensors_free(&t);
}

static void errors_are_what_they_say(void **state) {
    const double expected[] = {3.0, -4.0, 0.0};
    const float same[] = {3.0f, -4.0f, 0.0f}, off[] = {3.0f, -4.0f, 0.5f};
    const float broken[] = {3.0f, NAN, 9.0f};
    const double zero[] = {0.0, 0.0, 0.0};
    (void)state;
    lgh_assert_close(lgh_tool_l2_error(same, expected, 3), 0.0, 0.0, "l2 of equals");
    lgh_assert_close(lgh_tool_l2_error(off, expected, 3), 0.1, 1e-12, "l2");
    lgh_assert_close(lgh_tool_largest_error(off, expected, 3), 0.5, 0.0, "largest");
    assert_true(isnan(lgh_tool_l2_error(broken, expected, 3)));
    assert_true(isnan(lgh_tool_largest_error(broken, expected, 3)));
    assert_true(isinf(lgh_tool_l2_error(off, zero, 3)));
}

static void promises_grow_with_z_and_hidden_size(void **state) {
    (void)state;
    lgh_assert_close(lgh_tool_promise(0.0, 64), 2e-5, 1e-12, "least");
    lgh_assert_close(lgh_tool_promise(8.0, 1024), 4e-5, 1e-12, "at |z| = 8");
    lgh_assert_close(lgh_tool_promise(8.0, 7168), 2.8e-4, 1e-12, "at D = 7168");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_is_normal),
        cmocka_unit_test(data_does_not_depend_on_threads),
        cmocka_unit_test(a_spread_is_distinct_and_has_both_ends),
        cmocka_unit_test(vocabulary_samples_are_targets_or_are_not),
        cmocka_unit_test(a_vocabulary_of_targets_has_no_others),
        cmocka_unit_test(rows_of_dweight_equal_a_plain_computation),
        cmocka_unit_test(a_fault_in_dweight_is_seen),
        cmocka_unit_test(the_reference_equals_a_plain_computation),
        cmocka_unit_test(errors_are_what_they_say),
        cmocka_unit_test(promises_grow_with_z_and_hidden_size),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
