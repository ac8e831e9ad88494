/* case_problem.c - one problem on the device under test. */
#include "case_problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "value.h"

enum { STRIDE = 3 };

case_problem case_of(int64_t tokens, int64_t hidden_size, int64_t vocab_size) {
    case_problem p = {.options = LGH_PLAN_OPTIONS_INIT, .tokens = tokens, .temperature = 1.0f};
    p.options.hidden_size = hidden_size;
    p.options.vocab_size = vocab_size;
    p.options.max_tokens = tokens;
    p.options.outputs = LGH_OUTPUT_ALL;
    return p;
}

const lgh_dtype *case_operand_dtypes(void) {
    static const lgh_dtype both[] = {LGH_BF16, LGH_FP32, LGH_DTYPE_NONE};
    static const lgh_dtype one[] = {LGH_BF16, LGH_DTYPE_NONE};
    return lgh_test_device() == LGH_DEVICE_CPU ? both : one;
}

void case_set_operands(case_problem *p, lgh_dtype dtype) {
    p->options.hidden_dtype = p->options.weight_dtype = dtype;
}

/* ---- Host ---------------------------------------------------------------------------------- */

static void *allocate(int64_t count, size_t size) {
    void *memory = calloc(count > 0 ? (size_t)count : 1, size);
    assert_non_null(memory);
    return memory;
}

static float *allocate_gradient(int64_t tokens) {
    float *values = allocate(tokens, sizeof *values);
    for (int64_t i = 0; i < tokens; i++)
        values[i] = 1.0f;
    return values;
}

void case_open(case_problem *p) {
    const lgh_plan_options *o = &p->options;
    const int64_t tokens = o->max_tokens, weights = o->vocab_size * o->hidden_size;
    p->hidden = allocate(tokens * o->hidden_size, lgh_dtype_size(o->hidden_dtype));
    p->weight = allocate(weights, lgh_dtype_size(o->weight_dtype));
    p->targets = allocate(tokens, sizeof *p->targets);
    p->dweight_start = allocate(weights, sizeof(float));
    p->grad_logp.values = allocate_gradient(tokens);
    p->grad_entropy.values = allocate_gradient(tokens);
    p->grad_lse.values = allocate_gradient(tokens);
    p->logp = allocate(tokens, sizeof(float));
    p->lse = allocate(tokens, sizeof(float));
    p->entropy = allocate(tokens, sizeof(float));
    p->logp_at_one = allocate(tokens, sizeof(float));
    p->dhidden = allocate(tokens * o->hidden_size, sizeof(float));
    p->dweight = allocate(weights, sizeof(float));
}

static void close_buffers(case_problem *p) {
    case_buffers *d = &p->device;
    device_buffer *const buffers[] = {&d->hidden,
                                      &d->weight,
                                      &d->targets,
                                      &d->logp,
                                      &d->lse,
                                      &d->entropy,
                                      &d->logp_at_one,
                                      &d->dhidden,
                                      &d->dweight,
                                      &d->workspace[0],
                                      &d->workspace[1],
                                      &p->grad_logp.device,
                                      &p->grad_lse.device,
                                      &p->grad_entropy.device};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        device_buffer_destroy(buffers[i]);
}

void case_close(case_problem *p) {
    void *const host[] = {p->hidden,
                          p->weight,
                          p->targets,
                          p->dweight_start,
                          p->grad_logp.values,
                          p->grad_entropy.values,
                          p->grad_lse.values,
                          p->logp,
                          p->lse,
                          p->entropy,
                          p->logp_at_one,
                          p->dhidden,
                          p->dweight};
    close_buffers(p);
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        free(host[i]);
    lgh_plan_destroy(p->plan);
    memset(p, 0, sizeof *p);
}

/* ---- Operands ------------------------------------------------------------------------------ */

static void set_element(void *matrix, lgh_dtype dtype, int64_t i, double value) {
    if (dtype == LGH_BF16)
        ((uint16_t *)matrix)[i] = lgh__bf16_from_float((float)value);
    else
        ((float *)matrix)[i] = (float)value;
}

void case_set_hidden(case_problem *p, int64_t token, int64_t k, double value) {
    set_element(p->hidden, p->options.hidden_dtype, token * p->options.hidden_size + k, value);
}

void case_set_weight(case_problem *p, int64_t entry, int64_t k, double value) {
    set_element(p->weight, p->options.weight_dtype, entry * p->options.hidden_size + k, value);
}

static void fill_normal(lgh_random *random, void *matrix, lgh_dtype dtype, int64_t count,
                        double scale) {
    if (dtype == LGH_BF16)
        lgh_random_fill_bf16(random, matrix, (size_t)count, scale);
    else
        lgh_random_fill_fp32(random, matrix, (size_t)count, scale);
}

void case_fill_gradient(case_gradient *gradient, case_form form, uint64_t seed, int64_t count) {
    lgh_random random = {seed};
    gradient->form = form;
    lgh_random_fill_fp32(&random, gradient->values, (size_t)count, 1.0);
}

void case_fill(case_problem *p, uint64_t seed, double hidden_scale, double weight_scale) {
    const lgh_plan_options *o = &p->options;
    lgh_random random = {seed};
    fill_normal(&random, p->hidden, o->hidden_dtype, o->max_tokens * o->hidden_size, hidden_scale);
    fill_normal(&random, p->weight, o->weight_dtype, o->vocab_size * o->hidden_size, weight_scale);
    for (int64_t i = 0; i < o->max_tokens; i++)
        p->targets[i] = lgh_random_below(&random, o->vocab_size);
    case_fill_gradient(&p->grad_logp, CASE_VECTOR, seed + 1, o->max_tokens);
    case_fill_gradient(&p->grad_entropy, CASE_VECTOR, seed + 2, o->max_tokens);
    case_fill_gradient(&p->grad_lse, CASE_VECTOR, seed + 3, o->max_tokens);
}

double case_gradient_at(const case_gradient *gradient, int64_t token) {
    if (gradient->form == CASE_ABSENT)
        return 0.0;
    const int each = gradient->form == CASE_VECTOR || gradient->form == CASE_STRIDED;
    return (double)gradient->values[each ? token : 0];
}

lgh_const_matrix case_hidden(const case_problem *p) {
    const int64_t width = p->options.hidden_size;
    return (lgh_const_matrix){p->hidden, p->tokens, width, width, p->options.hidden_dtype};
}

lgh_const_matrix case_weight(const case_problem *p) {
    const int64_t width = p->options.hidden_size;
    return (lgh_const_matrix){p->weight, p->options.vocab_size, width, width,
                              p->options.weight_dtype};
}

/* ---- Device -------------------------------------------------------------------------------- */

void case_plan(case_problem *p) {
    lgh_plan_destroy(p->plan);
    p->plan = NULL;
    lgh_assert_success(lgh_plan_create(&p->plan, lgh_test_context(), &p->options));
}

static device_buffer upload(const void *from, int64_t count, size_t size) {
    device_buffer buffer = device_buffer_create((size_t)count * size);
    device_buffer_upload(&buffer, from);
    return buffer;
}

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

static void upload_gradient(case_gradient *gradient, int64_t tokens) {
    if (gradient->form == CASE_STRIDED)
        gradient->device = upload_strided(gradient->values, tokens);
    else if (gradient->form == CASE_VECTOR)
        gradient->device = upload(gradient->values, tokens, sizeof(float));
    else if (gradient->form == CASE_BROADCAST)
        gradient->device = upload(gradient->values, 1, sizeof(float));
}

static void make_output(const case_problem *p, device_buffer *buffer, uint32_t bit) {
    if (p->options.outputs & bit)
        *buffer = device_buffer_create((size_t)p->tokens * sizeof(float));
}

static void make_result(const case_problem *p, device_buffer *buffer, int64_t rows,
                        lgh_dtype dtype) {
    if (dtype != LGH_DTYPE_NONE)
        *buffer =
            device_buffer_create((size_t)(rows * p->options.hidden_size) * lgh_dtype_size(dtype));
}

static void make_workspace(case_problem *p, lgh_pass pass) {
    size_t bytes;
    lgh_assert_success(lgh_plan_workspace_size(p->plan, pass, p->tokens, &bytes, NULL));
    p->device.workspace[pass] = device_buffer_create(bytes);
}

void case_upload(case_problem *p) {
    const lgh_plan_options *o = &p->options;
    case_buffers *d = &p->device;
    close_buffers(p);
    const size_t element = lgh_dtype_size(o->hidden_dtype);
    d->hidden = upload(p->hidden, p->tokens * o->hidden_size, element);
    d->weight = upload(p->weight, o->vocab_size * o->hidden_size, element);
    d->targets = upload_targets(p);
    upload_gradient(&p->grad_logp, p->tokens);
    upload_gradient(&p->grad_entropy, p->tokens);
    upload_gradient(&p->grad_lse, p->tokens);
    make_output(p, &d->logp, LGH_OUTPUT_LOGP);
    make_output(p, &d->lse, LGH_OUTPUT_LSE);
    make_output(p, &d->entropy, LGH_OUTPUT_ENTROPY);
    make_output(p, &d->logp_at_one, LGH_OUTPUT_LOGP_AT_ONE);
    make_result(p, &d->dhidden, p->tokens, o->dhidden_dtype);
    make_result(p, &d->dweight, o->vocab_size, o->dweight_dtype);
    make_workspace(p, LGH_PASS_FORWARD);
    make_workspace(p, LGH_PASS_BACKWARD);
}

/* ---- Arguments ----------------------------------------------------------------------------- */

static lgh_const_matrix operand(const case_problem *p, const device_buffer *buffer, int64_t rows) {
    const int64_t width = p->options.hidden_size;
    return (lgh_const_matrix){buffer->data, rows, width, width, p->options.hidden_dtype};
}

static lgh_matrix result(const case_problem *p, const device_buffer *buffer, int64_t rows,
                         lgh_dtype dtype) {
    const int64_t width = p->options.hidden_size;
    if (!buffer->data)
        return (lgh_matrix){NULL, 0, 0, 0, LGH_DTYPE_NONE};
    return (lgh_matrix){buffer->data, rows, width, width, dtype};
}

static lgh_value value_of(const case_gradient *gradient) {
    switch (gradient->form) {
    case CASE_ABSENT:
        break;
    case CASE_HOST:
        return (lgh_value){NULL, 0, gradient->values[0]};
    case CASE_BROADCAST:
        return (lgh_value){gradient->device.data, 0, 0.0f};
    case CASE_VECTOR:
        return (lgh_value){gradient->device.data, 1, 0.0f};
    case CASE_STRIDED:
        return (lgh_value){gradient->device.data, STRIDE, 0.0f};
    }
    return (lgh_value){NULL, 0, 0.0f};
}

lgh_forward_args case_forward_args(const case_problem *p) {
    lgh_forward_args args = LGH_FORWARD_ARGS_INIT;
    args.hidden = operand(p, &p->device.hidden, p->tokens);
    args.weight = operand(p, &p->device.weight, p->options.vocab_size);
    args.targets = p->device.targets.data;
    args.temperature.host = p->temperature;
    args.logp = p->device.logp.data;
    args.lse = p->device.lse.data;
    args.entropy = p->device.entropy.data;
    args.logp_at_one = p->device.logp_at_one.data;
    return args;
}

lgh_backward_args case_backward_args(const case_problem *p) {
    const lgh_plan_options *o = &p->options;
    lgh_backward_args args = LGH_BACKWARD_ARGS_INIT;
    args.hidden = operand(p, &p->device.hidden, p->tokens);
    args.weight = operand(p, &p->device.weight, o->vocab_size);
    args.targets = p->device.targets.data;
    args.temperature.host = p->temperature;
    args.lse = p->device.lse.data;
    args.entropy = p->device.entropy.data;
    args.grad_logp = value_of(&p->grad_logp);
    args.grad_entropy = value_of(&p->grad_entropy);
    args.grad_lse = value_of(&p->grad_lse);
    args.dhidden = result(p, &p->device.dhidden, p->tokens, o->dhidden_dtype);
    args.dweight = result(p, &p->device.dweight, o->vocab_size, o->dweight_dtype);
    args.accumulate_dweight = p->accumulate;
    return args;
}

/* ---- Calls --------------------------------------------------------------------------------- */

static void clear(const device_buffer *buffer) {
    if (buffer->data)
        device_buffer_fill(buffer, 0xff);
}

void case_clear_outputs(const case_problem *p) {
    clear(&p->device.logp);
    clear(&p->device.lse);
    clear(&p->device.entropy);
    clear(&p->device.logp_at_one);
}

void case_clear_gradients(const case_problem *p) {
    clear(&p->device.dhidden);
    if (p->accumulate)
        device_buffer_upload(&p->device.dweight, p->dweight_start);
    else
        clear(&p->device.dweight);
}

static void read_vector(const device_buffer *buffer, float *to) {
    if (buffer->data)
        device_buffer_download(buffer, to);
}

void case_read_outputs(case_problem *p) {
    read_vector(&p->device.logp, p->logp);
    read_vector(&p->device.lse, p->lse);
    read_vector(&p->device.entropy, p->entropy);
    read_vector(&p->device.logp_at_one, p->logp_at_one);
}

static void read_matrix(const device_buffer *buffer, lgh_dtype dtype, float *to) {
    if (dtype != LGH_BF16) {
        read_vector(buffer, to);
        return;
    }
    const size_t count = buffer->bytes / sizeof(uint16_t);
    uint16_t *bits = allocate((int64_t)count, sizeof *bits);
    device_buffer_download(buffer, bits);
    for (size_t i = 0; i < count; i++)
        to[i] = lgh__float_from_bf16(bits[i]);
    free(bits);
}

void case_read_gradients(case_problem *p) {
    read_matrix(&p->device.dhidden, p->options.dhidden_dtype, p->dhidden);
    read_matrix(&p->device.dweight, p->options.dweight_dtype, p->dweight);
}

void case_check_guards(const case_problem *p) {
    const case_buffers *d = &p->device;
    const device_buffer *const written[] = {&d->logp,         &d->lse,         &d->entropy,
                                            &d->logp_at_one,  &d->dhidden,     &d->dweight,
                                            &d->workspace[0], &d->workspace[1]};
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        if (written[i]->data)
            assert_true(device_buffer_guard_is_intact(written[i]));
}

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
