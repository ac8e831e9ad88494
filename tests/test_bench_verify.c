/* test_bench_verify.c - what the bench takes for right: every feature on the CPU device is, and
 * whatever is perturbed is not. */
#include "harness.h"

#include "../tools/bench_check.h"
#include "../tools/bench_verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- A subject on the CPU device ----------------------------------------------------------- */

/* No more tokens than are compared. */
enum { N = 60, D = 24, V = 600 };

typedef struct fixture {
    lgh__threads *threads;
    lgh_tool_device device;
    lgh_tool_tensors tensors;
    lgh_tool_buffers buffers;
    lgh_tool_subject subject;
} fixture;

static void open_fixture(fixture *f, int dtypes, const lgh_tool_feature *feature) {
    const lgh_tool_shape shape = lgh_tool_shape_make(N, D, V);
    const lgh_tool_limits limits = {0, 0};
    lgh_assert_success(lgh__threads_create(&f->threads, 2));
    lgh_assert_success(lgh_tool_device_open(&f->device, LGH_DEVICE_CPU));
    lgh_assert_success(
        lgh_tool_tensors_create(&f->tensors, &shape, lgh_tool_dtypes_of(dtypes), 3, f->threads));
    lgh_assert_success(lgh_tool_buffers_open(&f->buffers, &f->device, &f->tensors, 1));
    lgh_assert_success(lgh_tool_subject_open(&f->subject, &f->buffers, feature, &limits));
}

static void close_fixture(fixture *f) {
    lgh_tool_subject_close(&f->subject);
    lgh_tool_buffers_close(&f->buffers);
    lgh_tool_tensors_free(&f->tensors);
    lgh_tool_device_close(&f->device);
    lgh__threads_destroy(f->threads);
}

static lgh_tool_verdict verify(fixture *f) {
    lgh_tool_verdict verdict;
    lgh_assert_success(lgh_tool_verify(&verdict, &f->subject, f->threads));
    return verdict;
}

static const lgh_tool_feature everything = {.name = "everything",
                                            .calls = LGH_TOOL_BOTH,
                                            .outputs = LGH_OUTPUT_ALL,
                                            .dhidden = LGH_FP32,
                                            .dweight = LGH_FP32,
                                            .bias = LGH_FP32,
                                            .dbias = 1,
                                            .grad_entropy = 1,
                                            .grad_lse = 1};

/* ---- Features ------------------------------------------------------------------------------ */

static void check_features(int dtypes) {
    for (size_t i = 0; i < lgh_tool_feature_count; ++i) {
        fixture f;
        open_fixture(&f, dtypes, &lgh_tool_features[i]);
        lgh_tool_verdict verdict = verify(&f);
        if (!verdict.right)
            fail_msg("%s, %s: not right, %g of the promise", f.tensors.dtypes->name,
                     lgh_tool_features[i].name, lgh_tool_verdict_share(&verdict));
        close_fixture(&f);
    }
}

static void every_feature_is_right_in_every_dtype(void **state) {
    (void)state;
    for (int dtypes = 0; dtypes < LGH_TOOL_DTYPE_CHOICES; ++dtypes)
        check_features(dtypes);
}

static void everything_asked_for_is_compared(void **state) {
    fixture f;
    (void)state;
    open_fixture(&f, LGH_TOOL_BF16, &everything);
    lgh_tool_verdict verdict = verify(&f);
    for (int i = 0; i < LGH_TOOL_ERRORS; ++i)
        assert_true(verdict.errors[i].rows > 0);
    assert_int_equal(verdict.errors[LGH_TOOL_ERROR_LOGP].rows, N);
    assert_int_equal(verdict.errors[LGH_TOOL_ERROR_DWEIGHT_OTHERS].rows, LGH_TOOL_ENTRIES);
    close_fixture(&f);
    open_fixture(&f, LGH_TOOL_BF16, &lgh_tool_features[0]); /* logp alone */
    verdict = verify(&f);
    for (int i = 0; i < LGH_TOOL_ERRORS; ++i)
        assert_int_equal(verdict.errors[i].rows > 0, i == LGH_TOOL_ERROR_LOGP);
    close_fixture(&f);
}

static void every_feature_has_a_base_and_a_name_of_its_own(void **state) {
    const lgh_tool_feature *features = lgh_tool_features;
    (void)state;
    for (size_t i = 0; i < lgh_tool_feature_count; ++i)
        for (size_t j = 0; j < i; ++j)
            if (features[i].calls == features[j].calls) {
                assert_string_not_equal(features[i].name, features[j].name);
                assert_true(features[j].live_step == 0 || j > 0);
            }
}

static void a_live_list_names_its_share_of_rows(void **state) {
    const lgh_tool_feature tenth = {.live_step = 10}, all = {.live_step = 0};
    int64_t live = 0;
    (void)state;
    for (int64_t i = 0; i < 8192; ++i)
        live += lgh_tool_feature_is_live(&tenth, i);
    assert_int_equal(lgh_tool_feature_live(&tenth, 8192), live);
    assert_int_equal(live, 820);
    assert_int_equal(lgh_tool_feature_live(&all, 8192), 8192);
    assert_int_equal(lgh_tool_feature_live(&tenth, 1), 1);
}

/* ---- Perturbed arguments ------------------------------------------------------------------- */

/* The call differs from what the reference is computed for. */
static int is_caught(void (*perturb)(fixture *), int dtypes) {
    fixture f;
    open_fixture(&f, dtypes, &everything);
    assert_true(verify(&f).right);
    perturb(&f);
    const int right = verify(&f).right;
    close_fixture(&f);
    return !right;
}

static void warm_forward(fixture *f) {
    f->subject.forward.temperature.host *= 1.001f;
}

static void warm_backward(fixture *f) {
    f->subject.backward.temperature.host *= 1.01f;
}

static void swap_gradients(fixture *f) {
    f->subject.backward.grad_logp = f->subject.backward.grad_lse;
}

static void drop_entropy_gradient(fixture *f) {
    f->subject.backward.grad_entropy = (lgh_value){NULL, 0, 0.0f};
}

static void ignore_bias(fixture *f) {
    f->subject.forward.bias = f->buffers.dbias; /* zeros */
}

static void swap_targets(fixture *f) {
    static const int64_t entry_0[N];
    f->subject.forward.targets = entry_0;
}

static void perturbed_calls_are_not_right(void **state) {
    void (*const perturbations[])(fixture *) = {warm_forward,   warm_backward,
                                                swap_gradients, drop_entropy_gradient,
                                                ignore_bias,    swap_targets};
    (void)state;
    for (int dtypes = 0; dtypes < LGH_TOOL_DTYPE_CHOICES; ++dtypes)
        for (size_t i = 0; i < sizeof perturbations / sizeof perturbations[0]; ++i)
            if (!is_caught(perturbations[i], dtypes))
                fail_msg("perturbation %zu of dtypes %d passes", i, dtypes);
}

static void a_write_behind_the_workspace_is_seen(void **state) {
    fixture f;
    int intact;
    (void)state;
    open_fixture(&f, LGH_TOOL_BF16, &everything);
    for (int pass = 0; pass < 2; ++pass) {
        const lgh_tool_workspace *w = &f.subject.workspaces[pass];
        ((char *)w->memory)[w->bytes] ^= 1;
        lgh_assert_success(lgh_tool_subject_intact(&f.subject, &intact));
        assert_false(intact);
        assert_false(verify(&f).right);
        ((char *)w->memory)[w->bytes] ^= 1;
    }
    assert_true(verify(&f).right);
    close_fixture(&f);
}

/* ---- Perturbed results --------------------------------------------------------------------- */

/* Every token and some entries, as a run of the fixture wrote them. */
typedef struct results {
    lgh_tool_sample sample;
    lgh_tool_outputs outputs;
    float dweight[2][LGH_TOOL_ENTRIES * D];
} results;

static void take_results(results *r, fixture *f) {
    lgh_tool_sample *s = &r->sample;
    lgh_assert_success(lgh_tool_subject_both(&f->subject, NULL));
    s->token_count = lgh_tool_spread(s->tokens, LGH_TOOL_REFERENCE_ROWS, N);
    r->outputs = (lgh_tool_outputs){.statistics = f->subject.statistics,
                                    .best = f->subject.best,
                                    .dhidden = f->buffers.dhidden,
                                    .dweight = {r->dweight[0], r->dweight[1]}};
    for (int wanted = 0; wanted < 2; ++wanted) {
        lgh_assert_success(lgh_tool_vocab_sample(&f->tensors, wanted, s->entries[wanted],
                                                 LGH_TOOL_ENTRIES, &s->entry_counts[wanted]));
        for (int64_t e = 0; e < s->entry_counts[wanted]; ++e) {
            const int64_t entry = s->entries[wanted][e];
            memcpy(r->dweight[wanted] + e * D, f->buffers.dweight + entry * D, D * sizeof(float));
            r->outputs.dbias[wanted][e] = f->buffers.dbias[entry];
        }
    }
}

/* The first number of what an error is about. */
static float *first_of(results *r, int error) {
    switch (error) {
    case LGH_TOOL_ERROR_DHIDDEN:
        return r->outputs.dhidden;
    case LGH_TOOL_ERROR_DWEIGHT_OTHERS:
    case LGH_TOOL_ERROR_DWEIGHT_TARGETS:
        return r->dweight[error - LGH_TOOL_ERROR_DWEIGHT_OTHERS];
    case LGH_TOOL_ERROR_DBIAS_OTHERS:
    case LGH_TOOL_ERROR_DBIAS_TARGETS:
        return r->outputs.dbias[error - LGH_TOOL_ERROR_DBIAS_OTHERS];
    default:
        return r->outputs.statistics + error * N;
    }
}

/* Which of the errors do not hold, as bits. */
static unsigned broken(const fixture *f, const results *r, lgh_tool_error *errors) {
    unsigned bits = 0;
    memset(errors, 0, LGH_TOOL_ERRORS * sizeof *errors);
    lgh_assert_success(
        lgh_tool_compare(errors, &f->tensors, &everything, &r->sample, &r->outputs, f->threads));
    for (int i = 0; i < LGH_TOOL_ERRORS; ++i)
        bits |= (unsigned)!lgh_tool_error_holds(&errors[i]) << i;
    return bits;
}

/* What the promise of an error is relative to. */
static double size_of(const float *numbers, int error, int64_t rows) {
    const int64_t width = error >= LGH_TOOL_ERROR_DBIAS_OTHERS ? 1 : D;
    double squares = 0.0;
    if (error < LGH_TOOL_ERROR_DHIDDEN)
        return 1.0;
    for (int64_t k = 0; k < rows * width; ++k)
        squares += (double)numbers[k] * (double)numbers[k];
    return sqrt(squares);
}

/* Twice the promise, and a NaN, in one number. The reference of dweight starts from lse. */
static void check_perturbed(const fixture *f, results *r, int error, const lgh_tool_error *right) {
    lgh_tool_error errors[LGH_TOOL_ERRORS];
    float *number = first_of(r, error);
    const float before = *number;
    *number += (float)(2.0 * right->promise * size_of(number, error, right->rows));
    assert_int_equal(broken(f, r, errors), 1u << error);
    *number = NAN;
    assert_true(broken(f, r, errors) & 1u << error);
    *number = before;
}

static void check_best(const fixture *f, results *r) {
    const int64_t wrong[] = {(r->outputs.best[0] + 1) % V, -1, V};
    const int64_t before = r->outputs.best[0];
    lgh_tool_error errors[LGH_TOOL_ERRORS];
    for (int i = 0; i < 3; ++i) {
        r->outputs.best[0] = wrong[i];
        assert_int_equal(broken(f, r, errors), 1u << LGH_TOOL_ERROR_BEST);
    }
    r->outputs.best[0] = before;
}

static void perturbed_results_are_not_as_promised(void **state) {
    fixture f;
    results *r = calloc(1, sizeof *r);
    lgh_tool_error right[LGH_TOOL_ERRORS];
    (void)state;
    open_fixture(&f, LGH_TOOL_BF16, &everything);
    take_results(r, &f);
    assert_int_equal(broken(&f, r, right), 0);
    for (int error = 0; error < LGH_TOOL_ERRORS; ++error)
        if (error != LGH_TOOL_ERROR_BEST)
            check_perturbed(&f, r, error, &right[error]);
    check_best(&f, r);
    assert_int_equal(broken(&f, r, right), 0);
    close_fixture(&f);
    free(r);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_feature_is_right_in_every_dtype),
        cmocka_unit_test(everything_asked_for_is_compared),
        cmocka_unit_test(every_feature_has_a_base_and_a_name_of_its_own),
        cmocka_unit_test(a_live_list_names_its_share_of_rows),
        cmocka_unit_test(perturbed_calls_are_not_right),
        cmocka_unit_test(a_write_behind_the_workspace_is_seen),
        cmocka_unit_test(perturbed_results_are_not_as_promised),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
