/* test_call_arguments.c - calls with an argument that is wrong by itself, or that does not fit the
 * others: each returns its status, names the argument in its text, and touches nothing. Mismatched
 * shapes that were read past their ends were seen in CCE and unsloth. */
#include "harness.h"
#include "refused_calls.h"

#include <float.h>
#include <math.h>

static refused_calls good_calls(void) {
    refused_calls r = refused_calls_of();
    refused_calls_open(&r);
    return r;
}

/* ---- Pointers ------------------------------------------------------------------------------- */

static void null_pointers_are_refused(void **state) {
    (void)state;
    refused_calls r = good_calls();
    const lgh_forward_args forward = case_forward_args(&r.p);
    const lgh_backward_args backward = case_backward_args(&r.p);
    const device_buffer *w = r.p.device.workspace;
    assert_refused(&r, lgh_forward(NULL, &forward, w[0].data, w[0].bytes, NULL), INVALID,
                   "plan is null");
    assert_refused(&r, lgh_backward(NULL, &backward, w[1].data, w[1].bytes, NULL), INVALID,
                   "plan is null");
    refuse_forward(&r, NULL, INVALID, "args is null");
    refuse_backward(&r, NULL, INVALID, "args is null");
    REFUSE_BOTH(&r, hidden.data = NULL, INVALID, "args->hidden.data");
    REFUSE_BOTH(&r, weight.data = NULL, INVALID, "args->weight.data");
    REFUSE_BOTH(&r, targets = NULL, INVALID, "args->targets");
    REFUSE_BOTH(&r, bias = NULL, INVALID, "args->bias");
    REFUSE_BACKWARD(&r, lse = NULL, INVALID, "args->lse");
    REFUSE_BACKWARD(&r, entropy = NULL, INVALID, "args->entropy");
    refused_calls_close(&r);
}

/* Matrices, targets and the bias, by the size of their elements. */
static void refuse_misaligned_elements(const refused_calls *r) {
    const lgh_plan_options *o = &r->p.options;
    const case_buffers *d = &r->p.device;
    for (size_t i = 1; i < lgh_dtype_size(o->hidden_dtype); i++)
        REFUSE_BOTH(r, hidden.data = (char *)d->hidden.data + i, INVALID, "args->hidden.data");
    for (size_t i = 1; i < lgh_dtype_size(o->weight_dtype); i++)
        REFUSE_BOTH(r, weight.data = (char *)d->weight.data + i, INVALID, "args->weight.data");
    for (size_t i = 1; i < lgh_dtype_size(o->targets_dtype); i++)
        REFUSE_BOTH(r, targets = (char *)d->targets.data + i, INVALID, "args->targets");
    for (size_t i = 1; i < lgh_dtype_size(o->bias_dtype); i++)
        REFUSE_BOTH(r, bias = (char *)d->bias.data + i, INVALID, "args->bias");
    for (size_t i = 1; i < lgh_dtype_size(o->dhidden_dtype); i++)
        REFUSE_BACKWARD(r, dhidden.data = (char *)d->dhidden.data + i, INVALID,
                        "args->dhidden.data");
    for (size_t i = 1; i < lgh_dtype_size(o->dweight_dtype); i++)
        REFUSE_BACKWARD(r, dweight.data = (char *)d->dweight.data + i, INVALID,
                        "args->dweight.data");
}

static void misaligned_elements_are_refused(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        refused_calls r = refused_calls_of();
        case_set_operands(&r.p, *dtype);
        case_set_results(&r.p, *dtype);
        case_set_bias_dtype(&r.p, *dtype);
        if (*dtype == LGH_FP16)
            r.p.options.targets_dtype = LGH_INT32;
        refused_calls_open(&r);
        refuse_misaligned_elements(&r);
        refused_calls_close(&r);
    }
}

static void misaligned_vectors_are_refused(void **state) {
    (void)state;
    refused_calls r = good_calls();
    char *start = r.spare.data;
    for (int i = 1; i < 4; i++) {
        void *odd = start + i;
        REFUSE_FORWARD(&r, logp = odd, INVALID, "args->logp");
        REFUSE_FORWARD(&r, lse = odd, INVALID, "args->lse");
        REFUSE_FORWARD(&r, entropy = odd, INVALID, "args->entropy");
        REFUSE_FORWARD(&r, logp_at_one = odd, INVALID, "args->logp_at_one");
        REFUSE_BOTH(&r, temperature.data = odd, INVALID, "args->temperature.data");
        REFUSE_BOTH(&r, live.rows = odd, INVALID, "args->live.rows");
        REFUSE_BOTH(&r, live.count = odd, INVALID, "args->live.count");
        REFUSE_BACKWARD(&r, lse = odd, INVALID, "args->lse");
        REFUSE_BACKWARD(&r, entropy = odd, INVALID, "args->entropy");
        REFUSE_BACKWARD(&r, grad_logp.data = odd, INVALID, "args->grad_logp.data");
        REFUSE_BACKWARD(&r, grad_entropy.data = odd, INVALID, "args->grad_entropy.data");
        REFUSE_BACKWARD(&r, grad_lse.data = odd, INVALID, "args->grad_lse.data");
        REFUSE_BACKWARD(&r, dbias = odd, INVALID, "args->dbias");
    }
    for (int i = 1; i < 8; i++) {
        void *odd = start + i;
        REFUSE_FORWARD(&r, best = odd, INVALID, "args->best");
        REFUSE_BOTH(&r, counters.foreign_targets = odd, INVALID, "args->counters.foreign_targets");
        REFUSE_BOTH(&r, counters.invalid_temperatures = odd, INVALID,
                    "args->counters.invalid_temperatures");
    }
    refused_calls_close(&r);
}

/* ---- Shapes, strides, dtypes ---------------------------------------------------------------- */

static void mismatched_shapes_are_refused(void **state) {
    (void)state;
    static const int64_t wrong[] = {0, 1, -1, WIDTH - 1, WIDTH + 1, INT64_MAX, INT64_MIN};
    refused_calls r = good_calls();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        REFUSE_BOTH(&r, hidden.columns = wrong[i], INVALID, "args->hidden.columns");
        REFUSE_BOTH(&r, weight.columns = wrong[i], INVALID, "args->weight.columns");
        REFUSE_BOTH(&r, weight.rows = wrong[i], INVALID, "args->weight.rows");
        REFUSE_BACKWARD(&r, dhidden.columns = wrong[i], INVALID, "args->dhidden.columns");
        REFUSE_BACKWARD(&r, dhidden.rows = wrong[i], INVALID, "args->dhidden.rows");
        REFUSE_BACKWARD(&r, dweight.columns = wrong[i], INVALID, "args->dweight.columns");
        REFUSE_BACKWARD(&r, dweight.rows = wrong[i], INVALID, "args->dweight.rows");
    }
    REFUSE_BOTH(&r, weight.rows = VOCAB - 1, INVALID, "args->weight.rows");
    REFUSE_BOTH(&r, weight.rows = VOCAB + 1, INVALID, "args->weight.rows");
    REFUSE_BOTH(&r, hidden.rows = TOKENS + 1, INVALID, "args->hidden.rows");
    REFUSE_BOTH(&r, hidden.rows = INT64_MAX, INVALID, "args->hidden.rows");
    REFUSE_BOTH(&r, hidden.rows = -1, INVALID, "args->hidden.rows");
    REFUSE_BACKWARD(&r, hidden.rows = TOKENS - 1, INVALID, "args->dhidden.rows");
    refused_calls_close(&r);
}

/* Too short for a row, or so long that the last row's place does not fit 64 bits. */
static void row_strides_that_do_not_hold_a_row_are_refused(void **state) {
    (void)state;
    static const int64_t wrong[] = {0, WIDTH - 1, -WIDTH, INT64_MAX, INT64_MIN, INT64_MAX / 16};
    refused_calls r = good_calls();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        REFUSE_BOTH(&r, hidden.row_stride = wrong[i], INVALID, "args->hidden.row_stride");
        REFUSE_BOTH(&r, weight.row_stride = wrong[i], INVALID, "args->weight.row_stride");
        REFUSE_BACKWARD(&r, dhidden.row_stride = wrong[i], INVALID, "args->dhidden.row_stride");
        REFUSE_BACKWARD(&r, dweight.row_stride = wrong[i], INVALID, "args->dweight.row_stride");
    }
    refused_calls_close(&r);
}

static void strides_of_values_that_leave_memory_are_refused(void **state) {
    (void)state;
    static const int64_t wrong[] = {-1, INT64_MIN, INT64_MAX, INT64_MAX / 4};
    refused_calls r = good_calls();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const lgh_value value = {r.spare.data, wrong[i], 1.0f};
        REFUSE_BOTH(&r, temperature = value, INVALID, "args->temperature.stride");
        REFUSE_BACKWARD(&r, grad_logp = value, INVALID, "args->grad_logp.stride");
        REFUSE_BACKWARD(&r, grad_entropy = value, INVALID, "args->grad_entropy.stride");
        REFUSE_BACKWARD(&r, grad_lse = value, INVALID, "args->grad_lse.stride");
    }
    refused_calls_close(&r);
}

static void refuse_other_dtypes(const refused_calls *r) {
    const lgh_plan_options *o = &r->p.options;
    for (int i = -1; i <= 6; i++) {
        const lgh_dtype dtype = (lgh_dtype)i;
        if (dtype != o->hidden_dtype)
            REFUSE_BOTH(r, hidden.dtype = dtype, INVALID, "args->hidden.dtype");
        if (dtype != o->weight_dtype)
            REFUSE_BOTH(r, weight.dtype = dtype, INVALID, "args->weight.dtype");
        if (dtype != o->dhidden_dtype)
            REFUSE_BACKWARD(r, dhidden.dtype = dtype, INVALID, "args->dhidden.dtype");
        if (dtype != o->dweight_dtype)
            REFUSE_BACKWARD(r, dweight.dtype = dtype, INVALID, "args->dweight.dtype");
    }
}

static void mismatched_dtypes_are_refused(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        refused_calls r = refused_calls_of();
        case_set_operands(&r.p, *dtype);
        case_set_results(&r.p, *dtype);
        refused_calls_open(&r);
        refuse_other_dtypes(&r);
        refused_calls_close(&r);
    }
    refused_calls r = refused_calls_of();
    case_set_mixed_operands(&r.p);
    refused_calls_open(&r);
    refuse_other_dtypes(&r);
    refused_calls_close(&r);
}

/* ---- Numbers -------------------------------------------------------------------------------- */

static void bad_temperatures_are_refused(void **state) {
    (void)state;
    const float wrong[] = {0.0f, -0.0f, -1.0f, -1e-45f, NAN, INFINITY, -INFINITY};
    refused_calls r = good_calls();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        REFUSE_BOTH(&r, temperature.host = wrong[i], INVALID, "args->temperature");
    refused_calls_close(&r);
}

static void lists_longer_than_the_call_are_refused(void **state) {
    (void)state;
    static const int64_t wrong[] = {-1, TOKENS + 1, INT64_MAX, INT64_MIN};
    refused_calls r = good_calls();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        REFUSE_BOTH(&r, live.bound = wrong[i], INVALID, "args->live.bound");
    REFUSE_FORWARD(&r, hidden.rows = LISTED - 1, INVALID, "args->live.bound");
    REFUSE_BOTH(&r, live.rows = NULL, INVALID, "args->live.rows");
    refused_calls_close(&r);
}

/* ---- Workspaces ----------------------------------------------------------------------------- */

static lgh_status call(const refused_calls *r, int pass, void *workspace, size_t bytes) {
    const lgh_forward_args forward = case_forward_args(&r->p);
    const lgh_backward_args backward = case_backward_args(&r->p);
    if (pass == LGH_PASS_FORWARD)
        return lgh_forward(r->p.plan, &forward, workspace, bytes, device_stream());
    return lgh_backward(r->p.plan, &backward, workspace, bytes, device_stream());
}

static void bad_workspaces_are_refused(void **state) {
    (void)state;
    refused_calls r = good_calls();
    for (int pass = 0; pass < 2; pass++) {
        const device_buffer *w = &r.p.device.workspace[pass];
        char *start = w->data;
        assert_true(w->bytes > 0);
        const struct {
            void *data;
            size_t bytes;
            const char *argument;
        } wrong[] = {{NULL, w->bytes, "workspace is null"},
                     {NULL, 0, "workspace is null"},
                     {start, 0, "workspace_bytes"},
                     {start, w->bytes - 1, "workspace_bytes"},
                     {start + 1, w->bytes, "workspace is not aligned"},
                     {start + LGH_WORKSPACE_ALIGNMENT / 2, w->bytes, "workspace is not aligned"}};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
            assert_refused(&r, call(&r, pass, wrong[i].data, wrong[i].bytes), LGH_ERROR_WORKSPACE,
                           wrong[i].argument);
    }
    refused_calls_close(&r);
}

/* ---- Listing live rows ---------------------------------------------------------------------- */

static void bad_listings_are_refused(void **state) {
    (void)state;
    refused_calls r = good_calls();
    const lgh_plan *plan = r.p.plan;
    const void *targets = r.p.device.targets.data;
    int32_t *rows = r.spare.data, *count = rows + TOKENS;
    void *stream = device_stream();
    assert_refused(&r, lgh_live_rows(NULL, targets, TOKENS, rows, count, stream), INVALID,
                   "plan is null");
    assert_refused(&r, lgh_live_rows(plan, NULL, TOKENS, rows, count, stream), INVALID,
                   "targets is null");
    assert_refused(&r, lgh_live_rows(plan, targets, TOKENS, NULL, count, stream), INVALID,
                   "rows is null");
    assert_refused(&r, lgh_live_rows(plan, targets, TOKENS, rows, NULL, stream), INVALID,
                   "count is null");
    assert_refused(&r, lgh_live_rows(plan, targets, 0, rows, NULL, stream), INVALID,
                   "count is null");
    static const int64_t wrong[] = {-1, TOKENS + 1, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_refused(&r, lgh_live_rows(plan, targets, wrong[i], rows, count, stream), INVALID,
                       "tokens is");
    refused_calls_close(&r);
}

static void misaligned_listings_are_refused(void **state) {
    (void)state;
    refused_calls r = good_calls();
    const lgh_plan *plan = r.p.plan;
    char *targets = r.p.device.targets.data, *rows = r.spare.data;
    int32_t *const count = (int32_t *)rows + TOKENS;
    void *stream = device_stream();
    for (int i = 1; i < 4; i++) {
        void *odd = rows + i;
        assert_refused(&r, lgh_live_rows(plan, targets, TOKENS - 1, odd, count, stream), INVALID,
                       "rows is not aligned");
        assert_refused(&r, lgh_live_rows(plan, targets, TOKENS, count + 1, odd, stream), INVALID,
                       "count is not aligned");
    }
    for (size_t i = 1; i < sizeof(int64_t); i++)
        assert_refused(&r,
                       lgh_live_rows(plan, targets + i, TOKENS - 1, (int32_t *)rows, count, stream),
                       INVALID, "targets is not aligned");
    refused_calls_close(&r);
}

/* ---- Just beside the bad ones --------------------------------------------------------------- */

static void take(const refused_calls *r, const lgh_forward_args *forward,
                 const lgh_backward_args *backward) {
    const device_buffer *w = r->p.device.workspace;
    lgh_assert_success(lgh_forward(r->p.plan, forward, w[0].data, w[0].bytes, device_stream()));
    lgh_assert_success(lgh_backward(r->p.plan, backward, w[1].data, w[1].bytes, device_stream()));
}

#define TAKE(r, change)                                                                            \
    do {                                                                                           \
        lgh_forward_args forward_ = case_forward_args(&(r)->p);                                    \
        lgh_backward_args backward_ = case_backward_args(&(r)->p);                                 \
        forward_.change;                                                                           \
        backward_.change;                                                                          \
        take(r, &forward_, &backward_);                                                            \
    } while (0)

static void numbers_at_their_limits_are_taken(void **state) {
    (void)state;
    refused_calls r = good_calls();
    const lgh_value first = {r.p.device.bias.data, 0, NAN};
    TAKE(&r, temperature.host = nextafterf(0.0f, 1.0f));
    TAKE(&r, temperature.host = FLT_MAX);
    TAKE(&r, temperature.stride = -1); /* of no data */
    TAKE(&r, temperature = first);
    TAKE(&r, live.bound = 0);
    TAKE(&r, live.bound = TOKENS);
    TAKE(&r, live.count = NULL);
    TAKE(&r, live = ((lgh_live){NULL, 0, NULL}));
    TAKE(&r, counters.foreign_targets = NULL);
    TAKE(&r, counters.invalid_temperatures = NULL);
    refused_calls_close(&r);
}

/* Vectors want the alignment of their elements alone. */
static void vectors_may_start_at_any_element(void **state) {
    (void)state;
    refused_calls r = good_calls();
    const case_buffers *d = &r.p.device;
    lgh_forward_args f = case_forward_args(&r.p);
    lgh_backward_args b = case_backward_args(&r.p);
    float *spare = r.spare.data;
    f.logp = spare + 1;
    f.lse = spare + 1 + TOKENS;
    f.best = (int64_t *)r.spare.data + 1 + TOKENS;
    take(&r, &f, &b);
    f = case_forward_args(&r.p);
    take(&r, &f, &b);
    float moved[2 * TOKENS + 1], usual[2 * TOKENS + 1];
    lgh_assert_success(
        lgh_memory_copy(lgh_test_context(), moved, spare, sizeof moved, device_stream()));
    device_buffer_download(&d->logp, usual + 1);
    device_buffer_download(&d->lse, usual + 1 + TOKENS);
    lgh_assert_same_bytes(moved + 1, usual + 1, 2 * TOKENS * sizeof(float), "logp and lse");
    refused_calls_close(&r);
}

static void a_listing_of_every_token_or_none_is_taken(void **state) {
    (void)state;
    refused_calls r = good_calls();
    int32_t *count = r.spare.data, counted = -1;
    for (int64_t tokens = TOKENS; tokens >= 0; tokens -= TOKENS) {
        const void *targets = tokens ? r.p.device.targets.data : NULL;
        int32_t *rows = tokens ? count + 1 : NULL;
        lgh_assert_success(lgh_live_rows(r.p.plan, targets, tokens, rows, count, device_stream()));
        lgh_assert_success(
            lgh_memory_copy(lgh_test_context(), &counted, count, sizeof counted, device_stream()));
        assert_int_equal(counted, tokens);
    }
    refused_calls_close(&r);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_pointers_are_refused),
        cmocka_unit_test(misaligned_elements_are_refused),
        cmocka_unit_test(misaligned_vectors_are_refused),
        cmocka_unit_test(mismatched_shapes_are_refused),
        cmocka_unit_test(row_strides_that_do_not_hold_a_row_are_refused),
        cmocka_unit_test(strides_of_values_that_leave_memory_are_refused),
        cmocka_unit_test(mismatched_dtypes_are_refused),
        cmocka_unit_test(bad_temperatures_are_refused),
        cmocka_unit_test(lists_longer_than_the_call_are_refused),
        cmocka_unit_test(bad_workspaces_are_refused),
        cmocka_unit_test(bad_listings_are_refused),
        cmocka_unit_test(misaligned_listings_are_refused),
        cmocka_unit_test(numbers_at_their_limits_are_taken),
        cmocka_unit_test(vectors_may_start_at_any_element),
        cmocka_unit_test(a_listing_of_every_token_or_none_is_taken),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
