/* case_calls.c - the device's part of a problem: buffers, arguments, calls, results. */
#include "case_problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "value.h"

enum { STRIDE = 3, FRESH = 0xff };

/* What the counters hold before a call, which adds to them. */
static const uint64_t counters_start[2] = {5, 7};

static void *allocate(int64_t count, size_t size) {
    void *memory = calloc(count > 0 ? (size_t)count : 1, size);
    assert_non_null(memory);
    return memory;
}

/* ---- Buffers ------------------------------------------------------------------------------- */

void case_plan(case_problem *p) {
    lgh_plan_destroy(p->plan);
    p->plan = NULL;
    lgh_assert_success(lgh_plan_create(&p->plan, lgh_test_context(), &p->options));
}

void case_list_buffers(case_problem *p, device_buffer *buffers[CASE_BUFFERS]) {
    case_buffers *d = &p->device;
    device_buffer *const all[CASE_BUFFERS] = {&d->hidden,
                                              &d->weight,
                                              &d->bias,
                                              &d->targets,
                                              &d->live_rows,
                                              &d->live_count,
                                              &d->logp,
                                              &d->lse,
                                              &d->entropy,
                                              &d->logp_at_one,
                                              &d->best,
                                              &d->dhidden,
                                              &d->dweight,
                                              &d->dbias,
                                              &d->counters[0],
                                              &d->counters[1],
                                              &d->workspace[0],
                                              &d->workspace[1],
                                              &p->temperatures.device,
                                              &p->grad_logp.device,
                                              &p->grad_lse.device,
                                              &p->grad_entropy.device};
    memcpy(buffers, all, sizeof all);
}

void case_close_buffers(case_problem *p) {
    device_buffer *buffers[CASE_BUFFERS];
    case_list_buffers(p, buffers);
    for (int i = 0; i < CASE_BUFFERS; i++)
        device_buffer_destroy(buffers[i]);
}

static device_buffer upload(const void *from, int64_t count, size_t size) {
    device_buffer buffer = device_buffer_create((size_t)count * size);
    device_buffer_upload(&buffer, from);
    return buffer;
}

/* ---- Matrices with gaps -------------------------------------------------------------------- */

static int64_t row_stride(const case_problem *p, case_layout layout) {
    return p->options.hidden_size + layout.gap;
}

/* Up to the end of the last row. */
static size_t matrix_bytes(const case_problem *p, case_layout layout, int64_t rows, size_t size) {
    const int64_t last = rows > 0 ? rows * row_stride(p, layout) - layout.gap : 0;
    return (size_t)(layout.offset + last) * size;
}

/* The bytes of the whole buffer for a contiguous matrix. */
static void *spread(const case_problem *p, case_layout layout, const void *from, int64_t rows,
                    size_t size) {
    const size_t bytes = matrix_bytes(p, layout, rows, size);
    const size_t width = (size_t)p->options.hidden_size * size;
    char *to = allocate((int64_t)bytes, 1);
    memset(to, FRESH, bytes);
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + (size_t)(layout.offset + r * row_stride(p, layout)) * size,
               (const char *)from + (size_t)r * width, width);
    return to;
}

static void upload_rows(const case_problem *p, const device_buffer *buffer, case_layout layout,
                        const void *from, int64_t rows, size_t size) {
    void *image = spread(p, layout, from, rows, size);
    device_buffer_upload(buffer, image);
    free(image);
}

static device_buffer upload_matrix(const case_problem *p, case_layout layout, const void *from,
                                   int64_t rows, lgh_dtype dtype) {
    const size_t size = lgh_dtype_size(dtype);
    device_buffer buffer = device_buffer_create(matrix_bytes(p, layout, rows, size));
    upload_rows(p, &buffer, layout, from, rows, size);
    return buffer;
}

static void *first_row(const device_buffer *buffer, case_layout layout, lgh_dtype dtype) {
    return (char *)buffer->data + (size_t)layout.offset * lgh_dtype_size(dtype);
}

/* ---- Vectors ------------------------------------------------------------------------------- */

static device_buffer upload_targets(const case_problem *p) {
    if (p->options.targets_dtype == LGH_INT64)
        return upload(p->targets, p->tokens, sizeof *p->targets);
    int32_t *narrow = allocate(p->tokens, sizeof *narrow);
    for (int64_t i = 0; i < p->tokens; i++)
        narrow[i] = (int32_t)p->targets[i];
    device_buffer buffer = upload(narrow, p->tokens, sizeof *narrow);
    free(narrow);
    return buffer;
}

static device_buffer upload_strided(const float *values, int64_t count) {
    const int64_t length = count > 0 ? (count - 1) * STRIDE + 1 : 0;
    float *strided = allocate(length, sizeof *strided);
    for (int64_t i = 0; i < length; i++)
        strided[i] = i % STRIDE == 0 ? values[i / STRIDE] : NAN;
    device_buffer buffer = upload(strided, length, sizeof *strided);
    free(strided);
    return buffer;
}

static void upload_value(case_value *value, int64_t tokens) {
    if (value->form == CASE_STRIDED)
        value->device = upload_strided(value->values, tokens);
    else if (value->form == CASE_VECTOR)
        value->device = upload(value->values, tokens, sizeof(float));
    else if (value->form == CASE_BROADCAST)
        value->device = upload(value->values, 1, sizeof(float));
}

static void upload_live(case_problem *p) {
    if (!p->live.given)
        return;
    p->device.live_rows = upload(p->live.rows, p->live.bound, sizeof *p->live.rows);
    if (p->live.with_count)
        p->device.live_count = upload(&p->live.count, 1, sizeof p->live.count);
}

/* ---- Upload -------------------------------------------------------------------------------- */

static void upload_inputs(case_problem *p) {
    const lgh_plan_options *o = &p->options;
    case_buffers *d = &p->device;
    d->hidden = upload_matrix(p, p->hidden_layout, p->hidden, p->tokens, o->hidden_dtype);
    d->weight = upload_matrix(p, p->weight_layout, p->weight, o->vocab_size, o->weight_dtype);
    if (o->bias_dtype != LGH_DTYPE_NONE)
        d->bias = upload(p->bias, o->vocab_size, lgh_dtype_size(o->bias_dtype));
    d->targets = upload_targets(p);
    upload_live(p);
    upload_value(&p->temperatures, p->tokens);
    upload_value(&p->grad_logp, p->tokens);
    upload_value(&p->grad_entropy, p->tokens);
    upload_value(&p->grad_lse, p->tokens);
}

static void make_output(const case_problem *p, device_buffer *buffer, uint32_t bit, size_t size) {
    if (p->options.outputs & bit)
        *buffer = device_buffer_create((size_t)p->tokens * size);
}

static void make_outputs(case_problem *p) {
    case_buffers *d = &p->device;
    make_output(p, &d->logp, LGH_OUTPUT_LOGP, sizeof(float));
    make_output(p, &d->lse, LGH_OUTPUT_LSE, sizeof(float));
    make_output(p, &d->entropy, LGH_OUTPUT_ENTROPY, sizeof(float));
    make_output(p, &d->logp_at_one, LGH_OUTPUT_LOGP_AT_ONE, sizeof(float));
    make_output(p, &d->best, LGH_OUTPUT_BEST, sizeof *p->best);
    for (int pass = 0; pass < 2 && p->with_counters; pass++)
        d->counters[pass] = device_buffer_create(sizeof counters_start);
}

static void make_gradients(case_problem *p) {
    const lgh_plan_options *o = &p->options;
    case_buffers *d = &p->device;
    if (o->dhidden_dtype != LGH_DTYPE_NONE)
        d->dhidden = device_buffer_create(
            matrix_bytes(p, p->dhidden_layout, p->tokens, lgh_dtype_size(o->dhidden_dtype)));
    if (o->dweight_dtype != LGH_DTYPE_NONE)
        d->dweight = device_buffer_create(
            matrix_bytes(p, p->dweight_layout, o->vocab_size, lgh_dtype_size(o->dweight_dtype)));
    if (o->dbias_dtype != LGH_DTYPE_NONE)
        d->dbias = device_buffer_create((size_t)o->vocab_size * sizeof(float));
}

static void make_workspace(case_problem *p, lgh_pass pass) {
    size_t bytes;
    lgh_assert_success(lgh_plan_workspace_size(p->plan, pass, p->tokens, &bytes, NULL));
    p->device.workspace[pass] = device_buffer_create(bytes);
}

void case_upload(case_problem *p) {
    case_close_buffers(p);
    upload_inputs(p);
    make_outputs(p);
    make_gradients(p);
    make_workspace(p, LGH_PASS_FORWARD);
    make_workspace(p, LGH_PASS_BACKWARD);
}

/* ---- Arguments ----------------------------------------------------------------------------- */

static lgh_const_matrix operand(const case_problem *p, const device_buffer *buffer,
                                case_layout layout, int64_t rows, lgh_dtype dtype) {
    return (lgh_const_matrix){first_row(buffer, layout, dtype), rows, p->options.hidden_size,
                              row_stride(p, layout), dtype};
}

static lgh_matrix result(const case_problem *p, const device_buffer *buffer, case_layout layout,
                         int64_t rows, lgh_dtype dtype) {
    if (!buffer->data)
        return (lgh_matrix){NULL, 0, 0, 0, LGH_DTYPE_NONE};
    return (lgh_matrix){first_row(buffer, layout, dtype), rows, p->options.hidden_size,
                        row_stride(p, layout), dtype};
}

static lgh_value value_of(const case_value *value) {
    switch (value->form) {
    case CASE_ABSENT:
        break;
    case CASE_HOST:
        return (lgh_value){NULL, 0, value->values[0]};
    case CASE_BROADCAST:
        return (lgh_value){value->device.data, 0, 0.0f};
    case CASE_VECTOR:
        return (lgh_value){value->device.data, 1, 0.0f};
    case CASE_STRIDED:
        return (lgh_value){value->device.data, STRIDE, 0.0f};
    }
    return (lgh_value){NULL, 0, 0.0f};
}

static lgh_value temperature_of(const case_problem *p) {
    if (p->temperatures.form == CASE_ABSENT)
        return (lgh_value){NULL, 0, p->temperature};
    return value_of(&p->temperatures);
}

static lgh_live live_of(const case_problem *p) {
    const case_buffers *d = &p->device;
    return (lgh_live){d->live_rows.data, p->live.given ? p->live.bound : 0, d->live_count.data};
}

static lgh_counters counters_of(const case_problem *p, lgh_pass pass) {
    uint64_t *counters = p->device.counters[pass].data;
    return (lgh_counters){counters, counters ? counters + 1 : NULL};
}

lgh_forward_args case_forward_args(const case_problem *p) {
    const lgh_plan_options *o = &p->options;
    const case_buffers *d = &p->device;
    lgh_forward_args args = LGH_FORWARD_ARGS_INIT;
    args.hidden = operand(p, &d->hidden, p->hidden_layout, p->tokens, o->hidden_dtype);
    args.weight = operand(p, &d->weight, p->weight_layout, o->vocab_size, o->weight_dtype);
    args.targets = p->without_targets ? NULL : d->targets.data;
    args.temperature = temperature_of(p);
    args.logp = p->without_targets ? NULL : d->logp.data;
    args.lse = d->lse.data;
    args.entropy = d->entropy.data;
    args.logp_at_one = p->without_targets ? NULL : d->logp_at_one.data;
    args.best = d->best.data;
    args.bias = d->bias.data;
    args.live = live_of(p);
    args.counters = counters_of(p, LGH_PASS_FORWARD);
    return args;
}

lgh_backward_args case_backward_args(const case_problem *p) {
    const lgh_plan_options *o = &p->options;
    const case_buffers *d = &p->device;
    const lgh_forward_args forward = case_forward_args(p);
    lgh_backward_args args = LGH_BACKWARD_ARGS_INIT;
    args.hidden = forward.hidden;
    args.weight = forward.weight;
    args.targets = forward.targets;
    args.temperature = forward.temperature;
    args.lse = forward.lse;
    args.entropy = forward.entropy;
    args.grad_logp = value_of(&p->grad_logp);
    args.grad_entropy = value_of(&p->grad_entropy);
    args.grad_lse = value_of(&p->grad_lse);
    args.dhidden = result(p, &d->dhidden, p->dhidden_layout, p->tokens, o->dhidden_dtype);
    args.dweight = result(p, &d->dweight, p->dweight_layout, o->vocab_size, o->dweight_dtype);
    args.accumulate_dweight = p->accumulate;
    args.accumulate_dbias = p->accumulate_dbias;
    args.bias = forward.bias;
    args.dbias = d->dbias.data;
    args.live = forward.live;
    args.counters = counters_of(p, LGH_PASS_BACKWARD);
    return args;
}

/* ---- Results ------------------------------------------------------------------------------- */

static void clear(const device_buffer *buffer) {
    if (buffer->data)
        device_buffer_fill(buffer, FRESH);
}

static void start_counters(const case_problem *p, lgh_pass pass) {
    if (p->device.counters[pass].data)
        device_buffer_upload(&p->device.counters[pass], counters_start);
}

void case_clear_outputs(const case_problem *p) {
    clear(&p->device.logp);
    clear(&p->device.lse);
    clear(&p->device.entropy);
    clear(&p->device.logp_at_one);
    clear(&p->device.best);
    start_counters(p, LGH_PASS_FORWARD);
}

void case_clear_gradients(const case_problem *p) {
    const case_buffers *d = &p->device;
    clear(&d->dhidden);
    if (p->accumulate)
        upload_rows(p, &d->dweight, p->dweight_layout, p->dweight_start, p->options.vocab_size,
                    sizeof(float));
    else
        clear(&d->dweight);
    if (p->accumulate_dbias)
        device_buffer_upload(&d->dbias, p->dbias_start);
    else
        clear(&d->dbias);
    start_counters(p, LGH_PASS_BACKWARD);
}

static void read_vector(const device_buffer *buffer, void *to) {
    if (buffer->data)
        device_buffer_download(buffer, to);
}

static void read_counters(case_problem *p, lgh_pass pass) {
    uint64_t counted[2] = {counters_start[0], counters_start[1]};
    read_vector(&p->device.counters[pass], counted);
    p->foreign_targets[pass] = counted[0] - counters_start[0];
    p->invalid_temperatures[pass] = counted[1] - counters_start[1];
}

void case_read_outputs(case_problem *p) {
    read_vector(&p->device.logp, p->logp);
    read_vector(&p->device.lse, p->lse);
    read_vector(&p->device.entropy, p->entropy);
    read_vector(&p->device.logp_at_one, p->logp_at_one);
    read_vector(&p->device.best, p->best);
    read_counters(p, LGH_PASS_FORWARD);
}

static float widened(const void *array, lgh_dtype dtype, int64_t i) {
    if (dtype == LGH_FP32)
        return ((const float *)array)[i];
    const uint16_t bits = ((const uint16_t *)array)[i];
    return dtype == LGH_BF16 ? lgh__float_from_bf16(bits) : lgh__float_from_fp16(bits);
}

static void read_matrix(const case_problem *p, const device_buffer *buffer, case_layout layout,
                        int64_t rows, lgh_dtype dtype, float *to) {
    if (!buffer->data)
        return;
    const size_t size = lgh_dtype_size(dtype);
    const int64_t width = p->options.hidden_size;
    char *image = allocate((int64_t)buffer->bytes, 1);
    device_buffer_download(buffer, image);
    for (int64_t r = 0; r < rows; r++) {
        char *row = image + (size_t)(layout.offset + r * row_stride(p, layout)) * size;
        for (int64_t k = 0; k < width; k++)
            to[r * width + k] = widened(row, dtype, k);
        memset(row, FRESH, (size_t)width * size);
    }
    for (size_t i = 0; i < buffer->bytes; i++)
        if ((unsigned char)image[i] != FRESH)
            fail_msg("byte %zu, between the rows of a gradient, was written", i);
    free(image);
}

void case_read_gradients(case_problem *p) {
    const lgh_plan_options *o = &p->options;
    const case_buffers *d = &p->device;
    read_matrix(p, &d->dhidden, p->dhidden_layout, p->tokens, o->dhidden_dtype, p->dhidden);
    read_matrix(p, &d->dweight, p->dweight_layout, o->vocab_size, o->dweight_dtype, p->dweight);
    read_vector(&d->dbias, p->dbias);
    read_counters(p, LGH_PASS_BACKWARD);
}

void case_check_guards(const case_problem *p) {
    const case_buffers *d = &p->device;
    const device_buffer *const written[] = {&d->logp,        &d->lse,          &d->entropy,
                                            &d->logp_at_one, &d->best,         &d->dhidden,
                                            &d->dweight,     &d->dbias,        &d->counters[0],
                                            &d->counters[1], &d->workspace[0], &d->workspace[1]};
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        if (written[i]->data)
            assert_true(device_buffer_guard_is_intact(written[i]));
}

/* ---- Calls --------------------------------------------------------------------------------- */

void case_forward(case_problem *p) {
    const lgh_forward_args args = case_forward_args(p);
    const device_buffer *workspace = &p->device.workspace[LGH_PASS_FORWARD];
    case_clear_outputs(p);
    lgh_assert_success(
        lgh_forward(p->plan, &args, workspace->data, workspace->bytes, device_stream()));
    case_check_guards(p);
    case_read_outputs(p);
}

void case_backward(case_problem *p) {
    const lgh_backward_args args = case_backward_args(p);
    const device_buffer *workspace = &p->device.workspace[LGH_PASS_BACKWARD];
    case_clear_gradients(p);
    lgh_assert_success(
        lgh_backward(p->plan, &args, workspace->data, workspace->bytes, device_stream()));
    case_check_guards(p);
    case_read_gradients(p);
}

void case_run(case_problem *p) {
    case_plan(p);
    case_upload(p);
    case_forward(p);
    case_backward(p);
}
