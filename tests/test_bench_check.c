/* test_bench_check.c - what the bench judges with: its data, samples, float64 and promises. */
#include "harness.h"

#include "../tools/bench_check.h"
#include "../tools/bench_reference.h"
#include "promises.h"
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

static lgh_tool_tensors make_tensors(lgh_tool_shape shape, int dtypes, int thread_count,
                                     uint64_t seed) {
    lgh_tool_tensors tensors;
    lgh__threads *threads = open_threads(thread_count);
    lgh_assert_success(
        lgh_tool_tensors_create(&tensors, &shape, lgh_tool_dtypes_of(dtypes), seed, threads));
    lgh__threads_destroy(threads);
    return tensors;
}

static double value(const void *matrix, lgh_dtype dtype, int64_t index) {
    float number;
    lgh_tool_widen(&number, matrix, dtype, index, 1);
    return (double)number;
}

static void moments(const void *numbers, lgh_dtype dtype, int64_t count, double *mean,
                    double *variance) {
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < count; ++i) {
        double x = value(numbers, dtype, i);
        sum += x;
        squares += x * x;
    }
    *mean = sum / (double)count;
    *variance = squares / (double)count - *mean * *mean;
}

static void data_is_normal_in_every_dtype(void **state) {
    (void)state;
    for (int choice = 0; choice < LGH_TOOL_DTYPE_CHOICES; ++choice) {
        lgh_tool_tensors t = make_tensors(lgh_tool_shape_make(2048, 100, 5000), choice, 1, 3);
        double mean, variance;
        /* The table of 65536 numbers has a mean within 5 / 256 and a variance within
         * 5 sqrt(2) / 256. */
        moments(t.hidden, t.dtypes->hidden, 2048 * 100, &mean, &variance);
        lgh_assert_close(mean, 0.0, 0.02, "mean of hidden");
        lgh_assert_close(variance, 1.0, 0.03, "variance of hidden");
        moments(t.weight, t.dtypes->weight, 5000 * 100, &mean, &variance);
        lgh_assert_close(mean, 0.0, 0.002, "mean of weight");
        lgh_assert_close(variance, 0.01, 0.0003, "variance of weight");
        lgh_tool_tensors_free(&t);
    }
}

static void vectors_are_in_their_ranges(void **state) {
    lgh_tool_tensors t = make_tensors(lgh_tool_shape_make(2048, 1, 5000), LGH_TOOL_BF16, 1, 3);
    (void)state;
    for (int i = 0; i < 2048; ++i) {
        assert_in_range(t.targets[i], 0, 4999);
        assert_true(t.temperatures[i] >= 0.5f && t.temperatures[i] < 1.0f);
        assert_true(isfinite(t.grad_logp[i]) && isfinite(t.grad_entropy[i]));
        assert_true(isfinite(t.grad_lse[i]));
    }
    for (int v = 0; v < 5000; ++v)
        lgh_assert_close(t.bias[v], lgh__float_from_bf16(t.bias_bf16[v]), 0.0, "bias");
    lgh_tool_tensors_free(&t);
}

static void data_does_not_depend_on_threads(void **state) {
    /* More than one block of the generator, and no multiple of it. */
    const lgh_tool_shape shape = lgh_tool_shape_make(3, 1500, 1501);
    const size_t bytes = (size_t)1500 * 1501 * 4;
    lgh_tool_tensors a = make_tensors(shape, LGH_TOOL_MIXED, 1, 7);
    lgh_tool_tensors b = make_tensors(shape, LGH_TOOL_MIXED, 3, 7);
    lgh_tool_tensors other = make_tensors(shape, LGH_TOOL_MIXED, 1, 8);
    (void)state;
    lgh_assert_same_bytes(b.weight, a.weight, bytes, "weight");
    lgh_assert_same_bytes(b.hidden, a.hidden, (size_t)3 * 1500 * 2, "hidden");
    lgh_assert_same_bytes(b.targets, a.targets, 3 * sizeof *a.targets, "targets");
    assert_memory_not_equal(other.weight, a.weight, bytes);
    lgh_tool_tensors_free(&a);
    lgh_tool_tensors_free(&b);
    lgh_tool_tensors_free(&other);
}

static void gathered_tokens_are_the_tokens(void **state) {
    lgh_tool_tensors t = make_tensors(lgh_tool_shape_make(9, 5, 11), LGH_TOOL_FP16, 1, 2), few;
    const int64_t tokens[] = {8, 0, 3};
    (void)state;
    lgh_assert_success(lgh_tool_tensors_gather(&few, &t, tokens, 3));
    assert_int_equal(few.shape.tokens, 3);
    assert_ptr_equal(few.weight, t.weight);
    for (int r = 0; r < 3; ++r) {
        lgh_assert_same_bytes((uint16_t *)few.hidden + r * 5, (uint16_t *)t.hidden + tokens[r] * 5,
                              10, "hidden");
        assert_int_equal(few.targets[r], t.targets[tokens[r]]);
        lgh_assert_close(few.grad_entropy[r], t.grad_entropy[tokens[r]], 0.0, "grad_entropy");
    }
    lgh_tool_tensors_free_gathered(&few);
    lgh_tool_tensors_free(&t);
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
    lgh_tool_tensors t = make_tensors(lgh_tool_shape_make(40, 4, 90), LGH_TOOL_BF16, 1, 5);
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
    lgh_tool_tensors t = make_tensors(lgh_tool_shape_make(64, 4, 2), LGH_TOOL_BF16, 1, 5);
    int64_t entries[16], found;
    (void)state;
    lgh_assert_success(lgh_tool_vocab_sample(&t, 0, entries, 16, &found));
    assert_int_equal(found, 0);
    lgh_assert_success(lgh_tool_vocab_sample(&t, 1, entries, 16, &found));
    assert_int_equal(found, 2);
    lgh_tool_tensors_free(&t);
}

/* ---- Float64 ------------------------------------------------------------------------------- */

enum { N = 20, D = 13, V = 37 };

static const lgh_tool_feature plain = {
    .calls = LGH_TOOL_BOTH, .outputs = LGH_OUTPUT_ALL, .dhidden = LGH_FP32, .dweight = LGH_FP32};

/* Slow and plain: softmax over the whole vocabulary in long double. */
static void softmax_row(const lgh_tool_tensors *t, int64_t i, double *p, double *lse,
                        double *entropy) {
    long double sum = 0.0L, weighted = 0.0L;
    for (int64_t c = 0; c < V; ++c) {
        double x = 0.0;
        for (int64_t k = 0; k < D; ++k)
            x += value(t->hidden, t->dtypes->hidden, i * D + k) *
                 value(t->weight, t->dtypes->weight, c * D + k);
        p[c] = x / (double)LGH_TOOL_BENCH_TEMPERATURE;
        sum += expl((long double)p[c]);
    }
    *lse = (double)logl(sum);
    for (int64_t c = 0; c < V; ++c) {
        double z = p[c];
        p[c] = exp(z - *lse);
        weighted += (long double)p[c] * (long double)z;
    }
    *entropy = *lse - (double)weighted;
}

/* What is wrong with the plain computation. */
typedef enum fault { NONE, NO_TARGET_TERM, NO_ENTROPY_GRADIENT, NO_LSE_GRADIENT } fault;

static double plain_dx(const lgh_tool_tensors *t, const lgh_tool_feature *f, int64_t i, int64_t c,
                       double p, double entropy, fault wrong) {
    double dz = (double)t->grad_logp[i] * ((wrong != NO_TARGET_TERM && t->targets[i] == c) - p);
    if (f->grad_entropy && wrong != NO_ENTROPY_GRADIENT)
        dz -= (double)t->grad_entropy[i] * p * (log(p) + entropy);
    if (f->grad_lse && wrong != NO_LSE_GRADIENT)
        dz += (double)t->grad_lse[i] * p;
    return dz / (double)LGH_TOOL_BENCH_TEMPERATURE;
}

typedef struct plain_gradients {
    double dweight[V * D], dbias[V];
    float lse[N], entropy[N];
} plain_gradients;

static void compute_plain(plain_gradients *g, const lgh_tool_tensors *t, const lgh_tool_feature *f,
                          fault wrong) {
    memset(g, 0, sizeof *g);
    for (int64_t i = 0; i < N; ++i) {
        double p[V], lse, entropy;
        softmax_row(t, i, p, &lse, &entropy);
        g->lse[i] = (float)lse;
        g->entropy[i] = (float)entropy;
        for (int64_t c = 0; c < V; ++c) {
            const double dx = plain_dx(t, f, i, c, p[c], entropy, wrong);
            g->dbias[c] += dx;
            for (int64_t k = 0; k < D; ++k)
                g->dweight[c * D + k] += dx * value(t->hidden, t->dtypes->hidden, i * D + k);
        }
    }
}

/* The errors of dweight and dbias on the rows that are targets or are none. */
typedef struct row_errors {
    double dweight, dbias, largest;
} row_errors;

static row_errors compare_rows(const lgh_tool_tensors *t, const lgh_tool_feature *f, int wanted,
                               fault wrong) {
    double dweight[8 * D], dbias[8];
    float found_dweight[8 * D], found_dbias[8];
    int64_t entries[8], count;
    plain_gradients g;
    row_errors errors = {.largest = 0.0};
    compute_plain(&g, t, f, wrong);
    const lgh_tool_tokens_seen seen = {g.lse, g.entropy};
    lgh_assert_success(lgh_tool_vocab_sample(t, wanted, entries, 8, &count));
    lgh__threads *threads = open_threads(2);
    lgh_assert_success(lgh_tool_dweight_rows(t, f, &seen, entries, count, dweight, dbias,
                                             &errors.largest, threads));
    lgh__threads_destroy(threads);
    for (int64_t r = 0; r < count; ++r) {
        found_dbias[r] = (float)g.dbias[entries[r]];
        for (int64_t k = 0; k < D; ++k)
            found_dweight[r * D + k] = (float)g.dweight[entries[r] * D + k];
    }
    errors.dweight = lgh_tool_l2_error(found_dweight, dweight, count * D);
    errors.dbias = lgh_tool_l2_error(found_dbias, dbias, count);
    return errors;
}

static void rows_of_dweight_equal_a_plain_computation(void **state) {
    lgh_tool_feature f = plain;
    (void)state;
    for (int choice = 0; choice < LGH_TOOL_DTYPE_CHOICES; ++choice) {
        lgh_tool_tensors t = make_tensors(lgh_tool_shape_make(N, D, V), choice, 1, 21);
        for (int more = 0; more < 2; ++more) {
            f.grad_entropy = f.grad_lse = more;
            for (int wanted = 0; wanted < 2; ++wanted) {
                row_errors errors = compare_rows(&t, &f, wanted, NONE);
                lgh_assert_close(errors.dweight, 0.0, 1e-6, "dweight");
                lgh_assert_close(errors.dbias, 0.0, 1e-6, "dbias");
                assert_true(errors.largest > 0.5 && errors.largest < 20.0);
            }
        }
        lgh_tool_tensors_free(&t);
    }
}

/* The promised bound must tell each missing term, where there is one. */
static void a_fault_in_dweight_is_seen(void **state) {
    static const fault faults[] = {NO_TARGET_TERM, NO_ENTROPY_GRADIENT, NO_LSE_GRADIENT};
    const double bound = lgh_tool_promise_gradient(LGH_BF16, LGH_BF16, D);
    lgh_tool_feature f = plain;
    lgh_tool_tensors t = make_tensors(lgh_tool_shape_make(N, D, V), LGH_TOOL_BF16, 1, 21);
    (void)state;
    f.grad_entropy = f.grad_lse = 1;
    for (int i = 0; i < 3; ++i)
        for (int wanted = faults[i] == NO_TARGET_TERM; wanted < 2; ++wanted) {
            row_errors errors = compare_rows(&t, &f, wanted, faults[i]);
            assert_true(errors.dweight > 10.0 * bound);
            assert_true(errors.dbias > 10.0 * bound);
        }
    assert_true(compare_rows(&t, &f, 0, NO_TARGET_TERM).dweight < 1e-6);
    lgh_tool_tensors_free(&t);
}

static void check_reference(const lgh_tool_tensors *t) {
    const int64_t tokens[] = {0, 7, 19};
    lgh_tool_reference reference;
    double p[V];
    lgh_assert_success(lgh_tool_reference_compute(&reference, t, &plain, tokens, 3));
    for (int r = 0; r < 3; ++r) {
        double lse, entropy;
        const int64_t i = tokens[r], target = t->targets[i];
        softmax_row(t, i, p, &lse, &entropy);
        lgh_assert_close(reference.statistics[LGH_TOOL_LOGP][r], log(p[target]), 1e-6, "logp");
        lgh_assert_close(reference.statistics[LGH_TOOL_LSE][r], lse, 1e-6, "lse");
        lgh_assert_close(reference.statistics[LGH_TOOL_ENTROPY][r], entropy, 1e-6, "entropy");
        for (int k = 0; k < D; ++k) {
            double sum = 0.0;
            for (int c = 0; c < V; ++c)
                sum += plain_dx(t, &plain, i, c, p[c], entropy, NONE) *
                       value(t->weight, t->dtypes->weight, c * D + k);
            lgh_assert_close(reference.dhidden[r * D + k], sum, 1e-6, "dhidden");
        }
    }
    lgh_tool_reference_free(&reference);
}

static void the_reference_equals_a_plain_computation(void **state) {
    (void)state;
    for (int choice = 0; choice < LGH_TOOL_DTYPE_CHOICES; ++choice) {
        lgh_tool_tensors t = make_tensors(lgh_tool_shape_make(N, D, V), choice, 1, 22);
        check_reference(&t);
        lgh_tool_tensors_free(&t);
    }
}

static void rows_left_out_of_a_live_list_are_zero(void **state) {
    lgh_tool_tensors t = make_tensors(lgh_tool_shape_make(N, D, V), LGH_TOOL_BF16, 1, 23);
    const int64_t tokens[] = {10, 11};
    lgh_tool_feature f = plain;
    lgh_tool_reference reference;
    (void)state;
    f.live_step = 10;
    lgh_assert_success(lgh_tool_reference_compute(&reference, &t, &f, tokens, 2));
    for (int which = 0; which < LGH_TOOL_STATISTICS; ++which) {
        assert_true(reference.statistics[which][0] != 0.0f);
        lgh_assert_close(reference.statistics[which][1], 0.0, 0.0, "a row left out");
    }
    assert_in_range(reference.best[0], 0, V - 1);
    assert_int_equal(reference.best[1], -1);
    lgh_assert_close(reference.dhidden[D], 0.0, 0.0, "its dhidden");
    lgh_tool_reference_free(&reference);
    lgh_tool_tensors_free(&t);
}

static void errors_are_what_they_say(void **state) {
    const double expected[] = {3.0, -4.0, 0.0}, zero[] = {0.0, 0.0, 0.0};
    const float same[] = {3.0f, -4.0f, 0.0f}, off[] = {3.0f, -4.0f, 0.5f};
    const float broken[] = {3.0f, NAN, 9.0f};
    (void)state;
    lgh_assert_close(lgh_tool_l2_error(same, expected, 3), 0.0, 0.0, "l2 of equals");
    lgh_assert_close(lgh_tool_l2_error(off, expected, 3), 0.1, 1e-12, "l2");
    lgh_assert_close(lgh_tool_largest_error(off, same, 3), 0.5, 0.0, "largest");
    assert_true(isnan(lgh_tool_l2_error(broken, expected, 3)));
    assert_true(isnan(lgh_tool_largest_error(broken, same, 3)));
    assert_true(isinf(lgh_tool_l2_error(off, zero, 3)));
}

/* ---- Promises ------------------------------------------------------------------------------ */

static void promises_are_those_of_the_tests(void **state) {
    static const lgh_dtype dtypes[] = {LGH_BF16, LGH_FP16, LGH_FP32};
    (void)state;
    lgh_assert_close(lgh_tool_promise(LGH_BF16, 8.0, 7168), 2.8e-4, 1e-12, "BF16 at D = 7168");
    lgh_assert_close(lgh_tool_promise(LGH_FP32, 8.0, 64), 2e-5, 1e-12, "FP32 at |z| = 8");
    for (int64_t d = 64; d <= 8192; d *= 2)
        for (int i = 0; i < 3; ++i) {
            lgh_assert_close(lgh_tool_promise(dtypes[i], 5.0, d),
                             promise_outputs(5.0, d, dtypes[i]), 0.0, "outputs");
            for (int j = 0; j < 3; ++j)
                lgh_assert_close(lgh_tool_promise_gradient(dtypes[i], dtypes[j], d),
                                 promise_gradients(dtypes[i], dtypes[j], d), 0.0, "gradients");
        }
}

static void rounding_is_allowed_for_only_where_it_is_asked_for(void **state) {
    (void)state;
    lgh_assert_close(lgh_tool_allowance(LGH_DTYPE_NONE, 8.0), 0.0, 0.0, "no rounding");
    lgh_assert_close(lgh_tool_allowance(LGH_BF16, 8.0), 0x1p-4, 0.0, "BF16");
    lgh_assert_close(lgh_tool_allowance(LGH_FP16, 8.0), 0x1p-7, 0.0, "FP16");
    lgh_assert_close(lgh_tool_allowance_gradient(1e-5, 0.0), 0.0, 0.0, "no rounding");
    lgh_assert_close(lgh_tool_allowance_gradient(4e-6, 1e-2), 2e-4, 1e-12, "of gradients");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_is_normal_in_every_dtype),
        cmocka_unit_test(vectors_are_in_their_ranges),
        cmocka_unit_test(data_does_not_depend_on_threads),
        cmocka_unit_test(gathered_tokens_are_the_tokens),
        cmocka_unit_test(a_spread_is_distinct_and_has_both_ends),
        cmocka_unit_test(vocabulary_samples_are_targets_or_are_not),
        cmocka_unit_test(a_vocabulary_of_targets_has_no_others),
        cmocka_unit_test(rows_of_dweight_equal_a_plain_computation),
        cmocka_unit_test(a_fault_in_dweight_is_seen),
        cmocka_unit_test(the_reference_equals_a_plain_computation),
        cmocka_unit_test(rows_left_out_of_a_live_list_are_zero),
        cmocka_unit_test(errors_are_what_they_say),
        cmocka_unit_test(promises_are_those_of_the_tests),
        cmocka_unit_test(rounding_is_allowed_for_only_where_it_is_asked_for),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
