/* test_call_cases.c - calls with a bad argument: each returns its status, names the argument in its
 * text, and writes nothing. Mismatched shapes that were read past their ends were seen in CCE and
 * unsloth. */
#include "case_problem.h"
#include "harness.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 6, WIDTH = 16, VOCAB = 40 };

#define INVALID LGH_ERROR_INVALID_ARGUMENT
#define UNSUPPORTED LGH_ERROR_UNSUPPORTED

/* A problem that both passes take, its results cleared but for what the backward pass reads. */
static case_problem good_problem(void) {
    case_problem p = case_of(TOKENS, WIDTH, VOCAB);
    case_open(&p);
    case_fill(&p, 27, 1.0, 1.0);
    case_run(&p);
    assert_true(p.logp[0] < 0 && p.dhidden[0] != 0 && p.dweight[0] != 0);
    case_clear_outputs(&p);
    case_clear_gradients(&p);
    return p;
}

static void assert_untouched(const case_problem *p) {
    const case_buffers *d = &p->device;
    const device_buffer *const results[] = {&d->logp,        &d->lse,     &d->entropy,
                                            &d->logp_at_one, &d->dhidden, &d->dweight};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i]->data)
            assert_true(device_buffer_holds(results[i], 0xff));
}

static void assert_refused(const case_problem *p, lgh_status given, lgh_status expected,
                           const char *argument) {
    if (given != expected)
        print_error("for %s\n", argument);
    lgh_assert_status(given, expected);
    lgh_assert_contains(lgh_last_error(), lgh_status_name(expected));
    lgh_assert_contains(lgh_last_error(), argument);
    assert_untouched(p);
}

static void refuse_forward(const case_problem *p, const lgh_forward_args *args, lgh_status expected,
                           const char *argument) {
    const device_buffer *w = &p->device.workspace[LGH_PASS_FORWARD];
    assert_refused(p, lgh_forward(p->plan, args, w->data, w->bytes, device_stream()), expected,
                   argument);
}

static void refuse_backward(const case_problem *p, const lgh_backward_args *args,
                            lgh_status expected, const char *argument) {
    const device_buffer *w = &p->device.workspace[LGH_PASS_BACKWARD];
    assert_refused(p, lgh_backward(p->plan, args, w->data, w->bytes, device_stream()), expected,
                   argument);
}

/* The same change to both passes' arguments. */
#define REFUSE_BOTH(p, change, expected, argument)                                                 \
    do {                                                                                           \
        lgh_forward_args forward_ = case_forward_args(p);                                          \
        lgh_backward_args backward_ = case_backward_args(p);                                       \
        forward_.change;                                                                           \
        backward_.change;                                                                          \
        refuse_forward(p, &forward_, expected, argument);                                          \
        refuse_backward(p, &backward_, expected, argument);                                        \
    } while (0)

#define REFUSE_FORWARD(p, change, expected, argument)                                              \
    do {                                                                                           \
        lgh_forward_args forward_ = case_forward_args(p);                                          \
        forward_.change;                                                                           \
        refuse_forward(p, &forward_, expected, argument);                                          \
    } while (0)

#define REFUSE_BACKWARD(p, change, expected, argument)                                             \
    do {                                                                                           \
        lgh_backward_args backward_ = case_backward_args(p);                                       \
        backward_.change;                                                                          \
        refuse_backward(p, &backward_, expected, argument);                                        \
    } while (0)

/* ---- Both passes ---------------------------------------------------------------------------- */

static void null_pointers_are_refused(void **state) {
    (void)state;
    case_problem p = good_problem();
    const lgh_forward_args forward = case_forward_args(&p);
    const lgh_backward_args backward = case_backward_args(&p);
    const device_buffer *w = p.device.workspace;
    assert_refused(&p, lgh_forward(NULL, &forward, w[0].data, w[0].bytes, NULL), INVALID, "plan");
    assert_refused(&p, lgh_backward(NULL, &backward, w[1].data, w[1].bytes, NULL), INVALID, "plan");
    refuse_forward(&p, NULL, INVALID, "args");
    refuse_backward(&p, NULL, INVALID, "args");
    REFUSE_BOTH(&p, hidden.data = NULL, INVALID, "args->hidden.data");
    REFUSE_BOTH(&p, weight.data = NULL, INVALID, "args->weight.data");
    REFUSE_BOTH(&p, targets = NULL, INVALID, "args->targets");
    case_close(&p);
}

static void mismatched_shapes_are_refused(void **state) {
    (void)state;
    static const int64_t wrong[] = {0, 1, -1, WIDTH - 1, WIDTH + 1, INT64_MAX, INT64_MIN};
    case_problem p = good_problem();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        REFUSE_BOTH(&p, hidden.columns = wrong[i], INVALID, "args->hidden.columns");
        REFUSE_BOTH(&p, weight.columns = wrong[i], INVALID, "args->weight.columns");
        REFUSE_BOTH(&p, weight.rows = wrong[i], INVALID, "args->weight.rows");
    }
    REFUSE_BOTH(&p, weight.rows = VOCAB + 1, INVALID, "args->weight.rows");
    REFUSE_BOTH(&p, hidden.rows = TOKENS + 1, INVALID, "args->hidden.rows");
    REFUSE_BOTH(&p, hidden.rows = INT64_MAX, INVALID, "args->hidden.rows");
    REFUSE_BOTH(&p, hidden.rows = -1, INVALID, "args->hidden.rows");
    case_close(&p);
}

static void row_strides_that_do_not_hold_a_row_are_refused(void **state) {
    (void)state;
    static const int64_t wrong[] = {0, WIDTH - 1, -WIDTH, INT64_MAX, INT64_MIN, INT64_MAX / 2};
    case_problem p = good_problem();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        REFUSE_BOTH(&p, hidden.row_stride = wrong[i], INVALID, "args->hidden.row_stride");
        REFUSE_BOTH(&p, weight.row_stride = wrong[i], INVALID, "args->weight.row_stride");
        REFUSE_BACKWARD(&p, dhidden.row_stride = wrong[i], INVALID, "args->dhidden.row_stride");
        REFUSE_BACKWARD(&p, dweight.row_stride = wrong[i], INVALID, "args->dweight.row_stride");
    }
    case_close(&p);
}

static void mismatched_dtypes_are_refused(void **state) {
    (void)state;
    static const lgh_dtype wrong[] = {LGH_DTYPE_NONE, LGH_INT32, LGH_INT64, (lgh_dtype)2,
                                      (lgh_dtype)77};
    case_problem p = good_problem();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        REFUSE_BOTH(&p, hidden.dtype = wrong[i], INVALID, "args->hidden.dtype");
        REFUSE_BOTH(&p, weight.dtype = wrong[i], INVALID, "args->weight.dtype");
        REFUSE_BACKWARD(&p, dhidden.dtype = wrong[i], INVALID, "args->dhidden.dtype");
        REFUSE_BACKWARD(&p, dweight.dtype = wrong[i], INVALID, "args->dweight.dtype");
    }
    REFUSE_BOTH(&p, hidden.dtype = LGH_FP32, INVALID, "args->hidden.dtype");
    REFUSE_BOTH(&p, weight.dtype = LGH_FP32, INVALID, "args->weight.dtype");
    REFUSE_BACKWARD(&p, dhidden.dtype = LGH_BF16, INVALID, "args->dhidden.dtype");
    REFUSE_BACKWARD(&p, dweight.dtype = LGH_BF16, INVALID, "args->dweight.dtype");
    case_close(&p);
}

static void misaligned_pointers_are_refused(void **state) {
    (void)state;
    case_problem p = good_problem();
    const char *hidden = p.device.hidden.data, *weight = p.device.weight.data;
    const char *targets = p.device.targets.data;
    void *output = (char *)p.device.logp.data + 2;
    REFUSE_BOTH(&p, hidden.data = hidden + 1, INVALID, "args->hidden.data");
    REFUSE_BOTH(&p, weight.data = weight + 1, INVALID, "args->weight.data");
    REFUSE_BOTH(&p, targets = targets + 4, INVALID, "args->targets");
    REFUSE_FORWARD(&p, logp = output, INVALID, "args->logp");
    REFUSE_FORWARD(&p, lse = output, INVALID, "args->lse");
    REFUSE_FORWARD(&p, entropy = output, INVALID, "args->entropy");
    REFUSE_FORWARD(&p, logp_at_one = output, INVALID, "args->logp_at_one");
    REFUSE_BACKWARD(&p, grad_logp.data = output, INVALID, "args->grad_logp.data");
    REFUSE_BACKWARD(&p, grad_entropy.data = output, INVALID, "args->grad_entropy.data");
    REFUSE_BACKWARD(&p, grad_lse.data = output, INVALID, "args->grad_lse.data");
    REFUSE_BACKWARD(&p, dhidden.data = output, INVALID, "args->dhidden.data");
    REFUSE_BACKWARD(&p, dweight.data = output, INVALID, "args->dweight.data");
    case_close(&p);
}

static void misaligned_statistics_are_refused(void **state) {
    (void)state;
    case_problem p = good_problem();
    const float *lse = (const float *)(const void *)((const char *)p.device.lse.data + 2);
    REFUSE_BACKWARD(&p, lse = lse, INVALID, "args->lse");
    REFUSE_BACKWARD(&p, entropy = lse, INVALID, "args->entropy");
    case_close(&p);
}

static void bad_temperatures_are_refused(void **state) {
    (void)state;
    const float wrong[] = {0.0f, -0.0f, -1.0f, -1e-45f, NAN, INFINITY, -INFINITY};
    case_problem p = good_problem();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        REFUSE_BOTH(&p, temperature.host = wrong[i], INVALID, "args->temperature");
    REFUSE_BOTH(&p, temperature.data = p.device.lse.data, UNSUPPORTED, "args->temperature");
    case_close(&p);
}

static void bad_workspaces_are_refused(void **state) {
    (void)state;
    case_problem p = good_problem();
    const lgh_forward_args forward = case_forward_args(&p);
    const lgh_backward_args backward = case_backward_args(&p);
    for (int pass = 0; pass < 2; pass++) {
        const device_buffer *w = &p.device.workspace[pass];
        char *start = w->data;
        const struct {
            void *workspace;
            size_t bytes;
        } wrong[] = {{NULL, w->bytes},
                     {NULL, 0},
                     {start, 0},
                     {start, w->bytes - 1},
                     {start + 1, w->bytes},
                     {start + LGH_WORKSPACE_ALIGNMENT / 2, w->bytes}};
        assert_true(w->bytes > 0);
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            lgh_status status = pass == LGH_PASS_FORWARD
                                    ? lgh_forward(p.plan, &forward, wrong[i].workspace,
                                                  wrong[i].bytes, device_stream())
                                    : lgh_backward(p.plan, &backward, wrong[i].workspace,
                                                   wrong[i].bytes, device_stream());
            assert_refused(&p, status, LGH_ERROR_WORKSPACE, "workspace");
        }
    }
    case_close(&p);
}

/* ---- Structs of other versions -------------------------------------------------------------- */

static void unknown_struct_sizes_are_refused(void **state) {
    (void)state;
    static const size_t wrong[] = {0, 1, sizeof(size_t), 65537, SIZE_MAX};
    case_problem p = good_problem();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        REFUSE_BOTH(&p, size = wrong[i], INVALID, "args->size");
    REFUSE_FORWARD(&p, size = sizeof(lgh_forward_args) - 1, INVALID, "args->size");
    REFUSE_BACKWARD(&p, size = sizeof(lgh_backward_args) - 1, INVALID, "args->size");
    case_close(&p);
}

/* As a program built against a later header gives them. */
static void fields_of_later_versions_must_be_zero(void **state) {
    (void)state;
    case_problem p = good_problem();
    struct {
        lgh_forward_args args;
        unsigned char later[40];
    } forward = {.args = case_forward_args(&p)};
    struct {
        lgh_backward_args args;
        unsigned char later[40];
    } backward = {.args = case_backward_args(&p)};
    const device_buffer *w = p.device.workspace;
    forward.args.size = sizeof forward;
    backward.args.size = sizeof backward;
    forward.later[39] = backward.later[39] = 1;
    refuse_forward(&p, &forward.args, INVALID, "args");
    refuse_backward(&p, &backward.args, INVALID, "args");
    forward.later[39] = backward.later[39] = 0;
    lgh_assert_success(lgh_forward(p.plan, &forward.args, w[0].data, w[0].bytes, device_stream()));
    assert_false(device_buffer_holds(&p.device.logp, 0xff));
    lgh_assert_success(
        lgh_backward(p.plan, &backward.args, w[1].data, w[1].bytes, device_stream()));
    assert_false(device_buffer_holds(&p.device.dweight, 0xff));
    case_close(&p);
}

/* ---- What the plan or the call lacks -------------------------------------------------------- */

static void outputs_that_were_not_planned_are_refused(void **state) {
    (void)state;
    case_problem p = good_problem();
    device_buffer other = device_buffer_create(TOKENS * sizeof(float));
    p.options.outputs = LGH_OUTPUT_LSE;
    case_plan(&p);
    case_upload(&p);
    REFUSE_FORWARD(&p, logp = other.data, INVALID, "args->logp");
    REFUSE_FORWARD(&p, entropy = other.data, INVALID, "args->entropy");
    REFUSE_FORWARD(&p, logp_at_one = other.data, INVALID, "args->logp_at_one");
    p.options.outputs = LGH_OUTPUT_LOGP;
    case_plan(&p);
    REFUSE_FORWARD(&p, lse = other.data, INVALID, "args->lse");
    assert_true(device_buffer_holds(&other, 0xff));
    device_buffer_destroy(&other);
    case_close(&p);
}

static void gradients_that_were_not_planned_are_refused(void **state) {
    (void)state;
    case_problem p = good_problem();
    p.options.dhidden_dtype = LGH_DTYPE_NONE;
    case_plan(&p);
    REFUSE_BACKWARD(&p, dweight.data = NULL, INVALID, "args->dhidden");
    p.options.dhidden_dtype = LGH_FP32;
    p.options.dweight_dtype = LGH_DTYPE_NONE;
    case_plan(&p);
    REFUSE_BACKWARD(&p, dhidden.data = NULL, INVALID, "args->dweight");
    case_close(&p);
}

static void adding_to_a_bf16_dweight_is_refused(void **state) {
    (void)state;
    case_problem p = good_problem();
    p.options.dweight_dtype = LGH_BF16;
    case_plan(&p);
    case_upload(&p);
    case_forward(&p);
    case_clear_outputs(&p);
    REFUSE_BACKWARD(&p, accumulate_dweight = 1, UNSUPPORTED, "args->accumulate_dweight");
    case_close(&p);
}

static void missing_inputs_are_refused(void **state) {
    (void)state;
    case_problem p = good_problem();
    REFUSE_BACKWARD(&p, lse = NULL, INVALID, "args->lse");
    REFUSE_BACKWARD(&p, entropy = NULL, INVALID, "args->entropy");
    REFUSE_FORWARD(&p, targets = NULL, INVALID, "args->targets");
    REFUSE_BACKWARD(&p, targets = NULL, INVALID, "args->targets");
    REFUSE_BACKWARD(&p, grad_logp.stride = -1, INVALID, "args->grad_logp.stride");
    REFUSE_BACKWARD(&p, grad_entropy.stride = -1, INVALID, "args->grad_entropy.stride");
    REFUSE_BACKWARD(&p, grad_lse.stride = INT64_MIN, INVALID, "args->grad_lse.stride");
    REFUSE_BACKWARD(&p, dhidden.rows = TOKENS - 1, INVALID, "args->dhidden.rows");
    REFUSE_BACKWARD(&p, dweight.rows = VOCAB + 1, INVALID, "args->dweight.rows");
    REFUSE_BACKWARD(&p, dhidden.columns = WIDTH + 1, INVALID, "args->dhidden.columns");
    REFUSE_BACKWARD(&p, dweight.columns = WIDTH - 1, INVALID, "args->dweight.columns");
    case_close(&p);
}

/* The other side: what is not needed may be missing, and a call that wants nothing does nothing. */
static void inputs_that_are_not_needed_may_be_missing(void **state) {
    (void)state;
    case_problem p = good_problem();
    lgh_forward_args forward = case_forward_args(&p);
    lgh_backward_args backward = case_backward_args(&p);
    const device_buffer *w = p.device.workspace;
    forward.logp = forward.lse = forward.entropy = forward.logp_at_one = NULL;
    lgh_assert_success(lgh_forward(p.plan, &forward, NULL, 0, device_stream()));
    backward.dhidden.data = backward.dweight.data = NULL;
    lgh_assert_success(lgh_backward(p.plan, &backward, NULL, 0, device_stream()));
    assert_untouched(&p);
    forward.targets = NULL;
    forward.lse = p.device.lse.data;
    lgh_assert_success(lgh_forward(p.plan, &forward, w[0].data, w[0].bytes, device_stream()));
    backward = case_backward_args(&p);
    backward.targets = NULL;
    backward.entropy = NULL;
    backward.grad_logp = backward.grad_entropy = (lgh_value){NULL, 0, 0.0f};
    lgh_assert_success(lgh_backward(p.plan, &backward, w[1].data, w[1].bytes, device_stream()));
    assert_false(device_buffer_holds(&p.device.dhidden, 0xff));
    assert_false(device_buffer_holds(&p.device.dweight, 0xff));
    case_close(&p);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_pointers_are_refused),
        cmocka_unit_test(mismatched_shapes_are_refused),
        cmocka_unit_test(row_strides_that_do_not_hold_a_row_are_refused),
        cmocka_unit_test(mismatched_dtypes_are_refused),
        cmocka_unit_test(misaligned_pointers_are_refused),
        cmocka_unit_test(misaligned_statistics_are_refused),
        cmocka_unit_test(bad_temperatures_are_refused),
        cmocka_unit_test(bad_workspaces_are_refused),
        cmocka_unit_test(unknown_struct_sizes_are_refused),
        cmocka_unit_test(fields_of_later_versions_must_be_zero),
        cmocka_unit_test(outputs_that_were_not_planned_are_refused),
        cmocka_unit_test(gradients_that_were_not_planned_are_refused),
        cmocka_unit_test(adding_to_a_bf16_dweight_is_refused),
        cmocka_unit_test(missing_inputs_are_refused),
        cmocka_unit_test(inputs_that_are_not_needed_may_be_missing),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
