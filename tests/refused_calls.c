/* refused_calls.c - a problem whose calls are refused, and what its buffers hold meanwhile. */
#include "refused_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRESH = 0xff };

static void list_buffers(refused_calls *r, device_buffer *buffers[REFUSED_BUFFERS]) {
    case_list_buffers(&r->p, buffers);
    buffers[CASE_BUFFERS] = &r->spare;
}

/* ---- Opening and closing ------------------------------------------------------------------- */

refused_calls refused_calls_of(void) {
    refused_calls r = {.p = case_of(TOKENS, WIDTH, VOCAB)};
    case_set_bias_dtype(&r.p, LGH_FP32);
    r.p.options.live_lists = 1;
    r.p.with_counters = 1;
    return r;
}

static void fill_inputs(case_problem *p) {
    static const int32_t rows[LISTED] = {0, 8, 1, 3, 5, 6};
    case_fill(p, 27, 1.0, 0.5);
    if (p->bias)
        case_fill_bias(p, 28, 1.0);
    if (p->options.live_lists)
        case_set_live(p, rows, LISTED);
    p->live.with_count = 1;
    p->live.count = LISTED;
    if (!(p->options.outputs & LGH_OUTPUT_ENTROPY))
        p->grad_entropy.form = CASE_ABSENT;
}

/* A plan without lse has no backward pass to show. */
static void show_good_calls(case_problem *p) {
    const lgh_plan_options *o = &p->options;
    case_forward(p);
    if (o->outputs & LGH_OUTPUT_LOGP)
        assert_true(p->logp[0] < 0);
    if (!(o->outputs & LGH_OUTPUT_LSE))
        return;
    assert_true(p->lse[0] != 0);
    case_backward(p);
    if (o->dhidden_dtype != LGH_DTYPE_NONE)
        assert_true(p->dhidden[0] != 0);
    if (o->dweight_dtype != LGH_DTYPE_NONE)
        assert_true(p->dweight[0] != 0);
}

static void hold(refused_calls *r) {
    device_buffer *buffers[REFUSED_BUFFERS];
    list_buffers(r, buffers);
    for (int i = 0; i < REFUSED_BUFFERS; i++) {
        if (!buffers[i]->data)
            continue;
        r->held[i] = malloc(buffers[i]->bytes > 0 ? buffers[i]->bytes : 1);
        assert_non_null(r->held[i]);
        device_buffer_download(buffers[i], r->held[i]);
    }
}

void refused_calls_open(refused_calls *r) {
    case_problem *p = &r->p;
    case_open(p);
    fill_inputs(p);
    case_plan(p);
    case_upload(p);
    show_good_calls(p);
    case_clear_outputs(p);
    case_clear_gradients(p);
    for (int pass = 0; pass < 2; pass++)
        device_buffer_fill(&p->device.workspace[pass], FRESH);
    r->spare = device_buffer_create((size_t)VOCAB * WIDTH * sizeof(float));
    hold(r);
}

void refused_calls_close(refused_calls *r) {
    for (int i = 0; i < REFUSED_BUFFERS; i++)
        free(r->held[i]);
    device_buffer_destroy(&r->spare);
    case_close(&r->p);
    memset(r, 0, sizeof *r);
}

/* ---- Calls --------------------------------------------------------------------------------- */

void assert_names(lgh_status given, lgh_status expected, const char *argument) {
    char start[128];
    snprintf(start, sizeof start, "%s: %s", lgh_status_name(expected), argument);
    if (given != expected)
        print_error("for %s\n", argument);
    lgh_assert_status(given, expected);
    if (strncmp(lgh_last_error(), start, strlen(start)) != 0)
        fail_msg("the text \"%s\" does not begin with \"%s\"", lgh_last_error(), start);
}

void assert_untouched(const refused_calls *r, const char *argument) {
    refused_calls same = *r; /* of the same buffers */
    device_buffer *buffers[REFUSED_BUFFERS];
    list_buffers(&same, buffers);
    for (int i = 0; i < REFUSED_BUFFERS; i++)
        if (buffers[i]->data)
            device_buffer_assert_same(buffers[i], r->held[i], argument);
}

void assert_refused(const refused_calls *r, lgh_status given, lgh_status expected,
                    const char *argument) {
    assert_names(given, expected, argument);
    assert_untouched(r, argument);
}

void refuse_forward(const refused_calls *r, const lgh_forward_args *args, lgh_status expected,
                    const char *argument) {
    const device_buffer *w = &r->p.device.workspace[LGH_PASS_FORWARD];
    assert_refused(r, lgh_forward(r->p.plan, args, w->data, w->bytes, device_stream()), expected,
                   argument);
}

void refuse_backward(const refused_calls *r, const lgh_backward_args *args, lgh_status expected,
                     const char *argument) {
    const device_buffer *w = &r->p.device.workspace[LGH_PASS_BACKWARD];
    assert_refused(r, lgh_backward(r->p.plan, args, w->data, w->bytes, device_stream()), expected,
                   argument);
}
