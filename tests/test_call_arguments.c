/* test_call_arguments.c - arguments that do not fit each other or the plan: a status that names the
 * argument, and nothing written. Seen in CCE and unsloth, where they were read past their ends. */
#include "case_copy.h"
#include "harness.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 9, WIDTH = 16, VOCAB = 50 };

static case_problem open_problem(void) {
    case_problem p = case_of(TOKENS, WIDTH, VOCAB);
    case_set_bias_dtype(&p, LGH_FP32);
    p.options.live_lists = 1;
    case_open(&p);
    case_fill(&p, 27, 1.0, 0.5);
    case_run(&p);
    case_clear_outputs(&p);
    case_clear_gradients(&p);
    return p;
}

static void assert_nothing_written(const case_problem *p) {
    const case_buffers *d = &p->device;
    const device_buffer *const results[] = {&d->logp, &d->lse,     &d->entropy, &d->logp_at_one,
                                            &d->best, &d->dhidden, &d->dweight, &d->dbias};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        assert_true(device_buffer_holds(results[i], 0xff));
}

static void assert_named(const case_problem *p, lgh_status status, const char *name) {
    if (status != LGH_ERROR_INVALID_ARGUMENT)
        fail_msg("a wrong %s gave %s", name, lgh_status_name(status));
    lgh_assert_contains(lgh_last_error(), name);
    assert_nothing_written(p);
}

static lgh_status forward(const case_problem *p, const lgh_forward_args *args) {
    const device_buffer *w = &p->device.workspace[LGH_PASS_FORWARD];
    return lgh_forward(p->plan, args, w->data, w->bytes, device_stream());
}

static lgh_status backward(const case_problem *p, const lgh_backward_args *args) {
    const device_buffer *w = &p->device.workspace[LGH_PASS_BACKWARD];
    return lgh_backward(p->plan, args, w->data, w->bytes, device_stream());
}

/* Calls with one field of the arguments changed. */
#define FORWARD_NAMES(field, value, name)                                                          \
    do {                                                                                           \
        lgh_forward_args args = case_forward_args(&p);                                             \
        args.field = (value);                                                                      \
        assert_named(&p, forward(&p, &args), (name));                                              \
    } while (0)
#define BACKWARD_NAMES(field, value, name)                                                         \
    do {                                                                                           \
        lgh_backward_args args = case_backward_args(&p);                                           \
        args.field = (value);                                                                      \
        assert_named(&p, backward(&p, &args), (name));                                             \
    } while (0)

static void shapes_that_do_not_fit_are_named(void **state) {
    (void)state;
    case_problem p = open_problem();
    FORWARD_NAMES(hidden.columns, WIDTH + 1, "hidden.columns");
    FORWARD_NAMES(weight.columns, WIDTH - 1, "weight.columns");
    FORWARD_NAMES(hidden.rows, TOKENS + 1, "hidden.rows");
    FORWARD_NAMES(hidden.rows, -1, "hidden.rows");
    FORWARD_NAMES(weight.rows, VOCAB + 1, "weight.rows");
    FORWARD_NAMES(weight.rows, VOCAB - 1, "weight.rows");
    FORWARD_NAMES(hidden.row_stride, WIDTH - 1, "hidden.row_stride");
    FORWARD_NAMES(weight.row_stride, -WIDTH, "weight.row_stride");
    FORWARD_NAMES(hidden.dtype, LGH_FP32, "hidden.dtype");
    FORWARD_NAMES(weight.dtype, LGH_FP16, "weight.dtype");
    BACKWARD_NAMES(hidden.columns, WIDTH + 1, "hidden.columns");
    BACKWARD_NAMES(weight.rows, VOCAB + 1, "weight.rows");
    BACKWARD_NAMES(dhidden.columns, WIDTH + 1, "dhidden.columns");
    BACKWARD_NAMES(dhidden.rows, TOKENS - 1, "dhidden.rows");
    BACKWARD_NAMES(dweight.rows, VOCAB + 1, "dweight.rows");
    BACKWARD_NAMES(dweight.dtype, LGH_BF16, "dweight.dtype");
    BACKWARD_NAMES(dweight.row_stride, WIDTH - 1, "dweight.row_stride");
    case_close(&p);
}

static void null_pointers_are_named(void **state) {
    (void)state;
    case_problem p = open_problem();
    FORWARD_NAMES(hidden.data, NULL, "hidden.data");
    FORWARD_NAMES(weight.data, NULL, "weight.data");
    FORWARD_NAMES(targets, NULL, "targets");
    FORWARD_NAMES(bias, NULL, "bias");
    BACKWARD_NAMES(hidden.data, NULL, "hidden.data");
    BACKWARD_NAMES(weight.data, NULL, "weight.data");
    BACKWARD_NAMES(targets, NULL, "targets");
    BACKWARD_NAMES(bias, NULL, "bias");
    BACKWARD_NAMES(lse, NULL, "lse");
    BACKWARD_NAMES(entropy, NULL, "entropy");
    const lgh_forward_args args = case_forward_args(&p);
    const device_buffer *w = &p.device.workspace[LGH_PASS_FORWARD];
    assert_named(&p, lgh_forward(NULL, &args, w->data, w->bytes, device_stream()), "plan");
    assert_named(&p, lgh_forward(p.plan, NULL, w->data, w->bytes, device_stream()), "args");
    lgh_assert_status(lgh_forward(p.plan, &args, NULL, w->bytes, device_stream()),
                      LGH_ERROR_WORKSPACE);
    lgh_assert_status(lgh_forward(p.plan, &args, w->data, w->bytes - 1, device_stream()),
                      LGH_ERROR_WORKSPACE);
    assert_nothing_written(&p);
    case_close(&p);
}

static void values_out_of_range_are_named(void **state) {
    (void)state;
    static const float temperatures[] = {0.0f, -1.0f, NAN, INFINITY, -INFINITY};
    case_problem p = open_problem();
    int32_t row = 0;
    for (size_t i = 0; i < sizeof temperatures / sizeof *temperatures; i++) {
        FORWARD_NAMES(temperature.host, temperatures[i], "temperature");
        BACKWARD_NAMES(temperature.host, temperatures[i], "temperature");
    }
    BACKWARD_NAMES(grad_logp.stride, -1, "grad_logp");
    FORWARD_NAMES(live, ((lgh_live){&row, TOKENS + 1, NULL}), "live.bound");
    FORWARD_NAMES(live, ((lgh_live){&row, -1, NULL}), "live.bound");
    BACKWARD_NAMES(live, ((lgh_live){&row, TOKENS + 1, NULL}), "live.bound");
    FORWARD_NAMES(size, 1, "size");
    BACKWARD_NAMES(size, 1, "size");
    case_close(&p);
}

/* A shard of which the plan says more than the weight has, or another plan's results. */
static void what_the_plan_lacks_is_named(void **state) {
    (void)state;
    case_problem p = case_of(TOKENS, WIDTH, VOCAB);
    p.options.outputs = LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE;
    p.options.dhidden_dtype = LGH_DTYPE_NONE;
    case_open(&p);
    case_fill(&p, 28, 1.0, 0.5);
    p.grad_entropy.form = CASE_ABSENT;
    case_run(&p);
    lgh_forward_args f = case_forward_args(&p);
    f.entropy = f.logp;
    lgh_assert_status(forward(&p, &f), LGH_ERROR_INVALID_ARGUMENT);
    lgh_assert_contains(lgh_last_error(), "entropy");
    lgh_backward_args b = case_backward_args(&p);
    b.dhidden = (lgh_matrix){p.device.dweight.data, TOKENS, WIDTH, WIDTH, LGH_FP32};
    lgh_assert_status(backward(&p, &b), LGH_ERROR_INVALID_ARGUMENT);
    lgh_assert_contains(lgh_last_error(), "dhidden");
    b = case_backward_args(&p);
    b.dbias = p.device.dweight.data;
    lgh_assert_status(backward(&p, &b), LGH_ERROR_INVALID_ARGUMENT);
    lgh_assert_contains(lgh_last_error(), "dbias");
    case_close(&p);
}

/* After every refusal the same calls, set right, give the results that they gave before. */
static void a_refused_call_changes_nothing(void **state) {
    (void)state;
    case_problem p = open_problem();
    case_copy before = case_copy_of(&p);
    FORWARD_NAMES(weight.rows, VOCAB + 1, "weight.rows");
    BACKWARD_NAMES(lse, NULL, "lse");
    case_forward(&p);
    case_backward(&p);
    case_assert_same(&p, &before);
    device_buffer_assert_same(&p.device.hidden, p.hidden, "hidden");
    device_buffer_assert_same(&p.device.weight, p.weight, "weight");
    case_copy_destroy(&before);
    case_close(&p);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_that_do_not_fit_are_named),
        cmocka_unit_test(null_pointers_are_named),
        cmocka_unit_test(values_out_of_range_are_named),
        cmocka_unit_test(what_the_plan_lacks_is_named),
        cmocka_unit_test(a_refused_call_changes_nothing),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
