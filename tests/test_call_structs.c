/* test_call_structs.c - argument structs of other versions, and fields that a plan has no use for
 * or a call no need of: refused by name, or done without. */
#include "case_copy.h"
#include "harness.h"
#include "refused_calls.h"

static refused_calls good_calls(void) {
    refused_calls r = refused_calls_of();
    refused_calls_open(&r);
    return r;
}

static lgh_status forward(const refused_calls *r, const lgh_forward_args *args) {
    const device_buffer *w = &r->p.device.workspace[LGH_PASS_FORWARD];
    return lgh_forward(r->p.plan, args, w->data, w->bytes, device_stream());
}

static lgh_status backward(const refused_calls *r, const lgh_backward_args *args) {
    const device_buffer *w = &r->p.device.workspace[LGH_PASS_BACKWARD];
    return lgh_backward(r->p.plan, args, w->data, w->bytes, device_stream());
}

/* ---- Structs of other versions -------------------------------------------------------------- */

static void unknown_struct_sizes_are_refused(void **state) {
    (void)state;
    static const size_t wrong[] = {0, 1, sizeof(size_t), 65537, SIZE_MAX};
    refused_calls r = good_calls();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        REFUSE_BOTH(&r, size = wrong[i], INVALID, "args->size");
    REFUSE_FORWARD(&r, size = sizeof(lgh_forward_args) - 1, INVALID, "args->size");
    REFUSE_BACKWARD(&r, size = sizeof(lgh_backward_args) - 1, INVALID, "args->size");
    refused_calls_close(&r);
}

/* As a program built against a later header gives them. */
static void fields_of_later_versions_must_be_zero(void **state) {
    (void)state;
    refused_calls r = good_calls();
    struct {
        lgh_forward_args args;
        unsigned char later[40];
    } f = {.args = case_forward_args(&r.p)};
    struct {
        lgh_backward_args args;
        unsigned char later[40];
    } b = {.args = case_backward_args(&r.p)};
    f.args.size = sizeof f;
    b.args.size = sizeof b;
    f.later[39] = b.later[39] = 1;
    refuse_forward(&r, &f.args, INVALID, "args sets a field");
    refuse_backward(&r, &b.args, INVALID, "args sets a field");
    f.later[39] = b.later[39] = 0;
    lgh_assert_success(forward(&r, &f.args));
    assert_false(device_buffer_holds(&r.p.device.logp, 0xff));
    lgh_assert_success(backward(&r, &b.args));
    assert_false(device_buffer_holds(&r.p.device.dweight, 0xff));
    refused_calls_close(&r);
}

/* ---- What the plan lacks -------------------------------------------------------------------- */

static void outputs_that_were_not_planned_are_refused(void **state) {
    (void)state;
    static const uint32_t planned[] = {LGH_OUTPUT_LOGP, LGH_OUTPUT_LSE};
    for (int i = 0; i < 2; i++) {
        refused_calls r = refused_calls_of();
        r.p.options.outputs = planned[i];
        refused_calls_open(&r);
        void *spare = r.spare.data;
        if (planned[i] == LGH_OUTPUT_LOGP)
            REFUSE_FORWARD(&r, lse = spare, INVALID, "args->lse");
        else
            REFUSE_FORWARD(&r, logp = spare, INVALID, "args->logp");
        REFUSE_FORWARD(&r, entropy = spare, INVALID, "args->entropy");
        REFUSE_FORWARD(&r, logp_at_one = spare, INVALID, "args->logp_at_one");
        REFUSE_FORWARD(&r, best = spare, INVALID, "args->best");
        lgh_assert_contains(lgh_last_error(), "LGH_OUTPUT_BEST");
        refused_calls_close(&r);
    }
}

static void gradients_that_were_not_planned_are_refused(void **state) {
    (void)state;
    refused_calls r = refused_calls_of();
    r.p.options.dhidden_dtype = LGH_DTYPE_NONE;
    refused_calls_open(&r);
    const lgh_matrix dhidden = {r.spare.data, TOKENS, WIDTH, WIDTH, LGH_FP32};
    REFUSE_BACKWARD(&r, dhidden = dhidden, INVALID, "args->dhidden is given");
    lgh_assert_contains(lgh_last_error(), "options->dhidden_dtype");
    refused_calls_close(&r);
    r = refused_calls_of();
    r.p.options.dweight_dtype = LGH_DTYPE_NONE;
    r.p.options.dbias_dtype = LGH_DTYPE_NONE;
    refused_calls_open(&r);
    const lgh_matrix dweight = {r.spare.data, VOCAB, WIDTH, WIDTH, LGH_FP32};
    REFUSE_BACKWARD(&r, dweight = dweight, INVALID, "args->dweight is given");
    lgh_assert_contains(lgh_last_error(), "options->dweight_dtype");
    REFUSE_BACKWARD(&r, dbias = r.spare.data, INVALID, "args->dbias is given");
    lgh_assert_contains(lgh_last_error(), "options->dbias_dtype");
    refused_calls_close(&r);
}

static void inputs_that_were_not_planned_are_refused(void **state) {
    (void)state;
    refused_calls r = refused_calls_of();
    case_set_bias_dtype(&r.p, LGH_DTYPE_NONE);
    r.p.options.live_lists = 0;
    refused_calls_open(&r);
    int32_t *rows = r.spare.data;
    const lgh_live live = {rows, 1, NULL};
    REFUSE_BOTH(&r, bias = r.spare.data, INVALID, "args->bias is given");
    lgh_assert_contains(lgh_last_error(), "options->bias_dtype");
    REFUSE_BOTH(&r, live = live, INVALID, "args->live is given");
    lgh_assert_contains(lgh_last_error(), "options->live_lists");
    assert_refused(&r,
                   lgh_live_rows(r.p.plan, r.p.device.targets.data, TOKENS, rows, rows + TOKENS,
                                 device_stream()),
                   INVALID, "plan was made without live lists");
    lgh_assert_contains(lgh_last_error(), "options->live_lists");
    refused_calls_close(&r);
}

static void adding_to_a_dweight_of_16_bits_is_refused(void **state) {
    (void)state;
    static const lgh_dtype dtypes[] = {LGH_BF16, LGH_FP16};
    for (int i = 0; i < 2; i++) {
        refused_calls r = refused_calls_of();
        case_set_operands(&r.p, dtypes[i]);
        case_set_results(&r.p, dtypes[i]);
        refused_calls_open(&r);
        REFUSE_BACKWARD(&r, accumulate_dweight = 1, UNSUPPORTED, "args->accumulate_dweight");
        lgh_backward_args args = case_backward_args(&r.p);
        args.accumulate_dweight = 1;
        args.dweight.data = NULL;
        lgh_assert_success(backward(&r, &args));
        refused_calls_close(&r);
    }
}

/* ---- What a call can do without ------------------------------------------------------------- */

static void calls_that_want_nothing_do_nothing(void **state) {
    (void)state;
    refused_calls r = good_calls();
    lgh_forward_args f = case_forward_args(&r.p);
    lgh_backward_args b = case_backward_args(&r.p);
    f.logp = f.lse = f.entropy = f.logp_at_one = NULL;
    f.best = NULL;
    lgh_assert_success(lgh_forward(r.p.plan, &f, NULL, 0, device_stream()));
    b.dhidden.data = b.dweight.data = NULL;
    b.dbias = NULL;
    lgh_assert_success(lgh_backward(r.p.plan, &b, NULL, 0, device_stream()));
    assert_untouched(&r, "a call that wants nothing");
    refused_calls_close(&r);
}

static void inputs_that_are_not_needed_may_be_missing(void **state) {
    (void)state;
    refused_calls r = good_calls();
    const case_buffers *d = &r.p.device;
    lgh_forward_args f = case_forward_args(&r.p);
    f.logp = f.logp_at_one = NULL;
    f.targets = NULL;
    lgh_assert_success(forward(&r, &f));
    assert_false(device_buffer_holds(&d->lse, 0xff));
    assert_true(device_buffer_holds(&d->logp, 0xff));
    lgh_backward_args b = case_backward_args(&r.p);
    b.targets = NULL;
    b.entropy = NULL;
    b.grad_logp = b.grad_entropy = (lgh_value){NULL, 0, 0.0f};
    lgh_assert_success(backward(&r, &b));
    assert_false(device_buffer_holds(&d->dhidden, 0xff));
    assert_false(device_buffer_holds(&d->dweight, 0xff));
    assert_false(device_buffer_holds(&d->dbias, 0xff));
    refused_calls_close(&r);
}

/* Buffers of no tokens may be null; they need no workspace either. */
static void no_tokens_need_no_buffers(void **state) {
    (void)state;
    refused_calls r = good_calls();
    lgh_forward_args f = case_forward_args(&r.p);
    lgh_backward_args b = case_backward_args(&r.p);
    f.hidden.rows = b.hidden.rows = b.dhidden.rows = 0;
    f.hidden.data = b.hidden.data = b.dhidden.data = NULL;
    f.targets = b.targets = NULL;
    b.lse = b.entropy = NULL;
    f.live = b.live = (lgh_live){NULL, 0, NULL};
    lgh_assert_success(lgh_forward(r.p.plan, &f, NULL, 0, device_stream()));
    assert_untouched(&r, "a call without tokens");
    lgh_assert_success(lgh_backward(r.p.plan, &b, NULL, 0, device_stream()));
    assert_true(device_buffer_holds(&r.p.device.dweight, 0));
    assert_true(device_buffer_holds(&r.p.device.dbias, 0));
    assert_true(device_buffer_holds(&r.p.device.dhidden, 0xff));
    refused_calls_close(&r);
}

/* ---- After a refusal ------------------------------------------------------------------------ */

static void refused_calls_leave_the_plan_as_it_was(void **state) {
    (void)state;
    refused_calls r = good_calls();
    case_copy before = case_copy_of(&r.p);
    REFUSE_FORWARD(&r, weight.rows = VOCAB + 1, INVALID, "args->weight.rows");
    REFUSE_BACKWARD(&r, lse = NULL, INVALID, "args->lse");
    case_forward(&r.p);
    case_backward(&r.p);
    case_assert_same(&r.p, &before);
    case_copy_destroy(&before);
    refused_calls_close(&r);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_struct_sizes_are_refused),
        cmocka_unit_test(fields_of_later_versions_must_be_zero),
        cmocka_unit_test(outputs_that_were_not_planned_are_refused),
        cmocka_unit_test(gradients_that_were_not_planned_are_refused),
        cmocka_unit_test(inputs_that_were_not_planned_are_refused),
        cmocka_unit_test(adding_to_a_dweight_of_16_bits_is_refused),
        cmocka_unit_test(calls_that_want_nothing_do_nothing),
        cmocka_unit_test(inputs_that_are_not_needed_may_be_missing),
        cmocka_unit_test(no_tokens_need_no_buffers),
        cmocka_unit_test(refused_calls_leave_the_plan_as_it_was),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
