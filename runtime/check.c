/* check.c - what the public functions ask of their arguments. */
#include "check.h"

#include "context.h"
#include "dtype.h"
#include "error.h"
#include "options.h"
#include "value.h"

#include <math.h>
#include <stdint.h>

#define INVALID LGH_ERROR_INVALID_ARGUMENT

static lgh_status check_size(int64_t value, int64_t smallest, const char *name) {
    RETURN_IF(value < smallest || value > INT32_MAX, INVALID,
              "%s is %lld; it must lie in [%lld, %d]", name, (long long)value, (long long)smallest,
              INT32_MAX);
    return LGH_SUCCESS;
}

static lgh_status check_not_negative(int64_t value, const char *name) {
    RETURN_IF(value < 0, INVALID, "%s is %lld; it must not be negative", name, (long long)value);
    return LGH_SUCCESS;
}

/* ---- Plan ---------------------------------------------------------------------------------- */

static lgh_status check_operands(const lgh_context *context, const lgh_plan_options *o) {
    const int on_cpu = context->options.type == LGH_DEVICE_CPU;
    RETURN_IF(o->hidden_dtype != LGH_BF16 && !(on_cpu && o->hidden_dtype == LGH_FP32),
              LGH_ERROR_UNSUPPORTED, "options->hidden_dtype is %s; this device takes %s",
              lgh__dtype_name(o->hidden_dtype), on_cpu ? "bf16 and fp32" : "bf16");
    RETURN_IF(o->weight_dtype != o->hidden_dtype, LGH_ERROR_UNSUPPORTED,
              "options->weight_dtype is %s and options->hidden_dtype %s; they must be equal",
              lgh__dtype_name(o->weight_dtype), lgh__dtype_name(o->hidden_dtype));
    RETURN_IF(o->targets_dtype != LGH_INT64 && o->targets_dtype != LGH_INT32, LGH_ERROR_UNSUPPORTED,
              "options->targets_dtype is %s; int32 or int64 are possible",
              lgh__dtype_name(o->targets_dtype));
    return LGH_SUCCESS;
}

static lgh_status check_result_dtype(lgh_dtype dtype, const char *name) {
    RETURN_IF(dtype != LGH_FP32 && dtype != LGH_BF16 && dtype != LGH_DTYPE_NONE,
              LGH_ERROR_UNSUPPORTED, "options->%s is %s; fp32, bf16 or none are possible", name,
              lgh__dtype_name(dtype));
    return LGH_SUCCESS;
}

lgh_status lgh__check_plan(lgh_plan_options *o, const lgh_context *context,
                           const lgh_plan_options *given) {
    RETURN_IF(!context, INVALID, "context is null");
    *o = (lgh_plan_options)LGH_PLAN_OPTIONS_INIT;
    FORWARD(lgh__options_read(o, sizeof *o, sizeof *o, given, "options"));
    FORWARD(check_size(o->hidden_size, 1, "options->hidden_size"));
    FORWARD(check_size(o->vocab_size, 1, "options->vocab_size"));
    FORWARD(check_size(o->max_tokens, 0, "options->max_tokens"));
    FORWARD(check_operands(context, o));
    FORWARD(check_result_dtype(o->dhidden_dtype, "dhidden_dtype"));
    FORWARD(check_result_dtype(o->dweight_dtype, "dweight_dtype"));
    RETURN_IF(o->logits_rounding != LGH_DTYPE_NONE && o->logits_rounding != LGH_BF16,
              LGH_ERROR_UNSUPPORTED, "options->logits_rounding is %s; none or bf16 are possible",
              lgh__dtype_name(o->logits_rounding));
    RETURN_IF(o->outputs & ~(uint32_t)LGH_OUTPUT_ALL, INVALID,
              "options->outputs is 0x%x; bits beyond 0x%x have no meaning", o->outputs,
              LGH_OUTPUT_ALL);
    FORWARD(check_not_negative(o->backward_budget, "options->backward_budget"));
    return check_not_negative(o->token_block, "options->token_block");
}

/* ---- Matrices and values ------------------------------------------------------------------- */

/* The largest power of two, at most 16, that divides every row's start where rows of `columns`
 * elements follow each other from a 16-byte boundary: what the plan's products were chosen for. */
static size_t natural_alignment(int64_t columns, size_t element) {
    size_t bytes = (size_t)columns * element, alignment = 16;
    while (bytes % alignment != 0)
        alignment /= 2;
    return alignment;
}

static lgh_status check_alignment(const lgh_plan *plan, const lgh_const_matrix *m,
                                  const char *name) {
    const size_t element = lgh_dtype_size(m->dtype);
    RETURN_IF((uintptr_t)m->data % element != 0, INVALID,
              "args->%s.data is not aligned to its elements of %zu bytes", name, element);
    if (plan->context->options.type == LGH_DEVICE_CPU)
        return LGH_SUCCESS;
    const size_t alignment = natural_alignment(m->columns, element);
    RETURN_IF((uintptr_t)m->data % alignment != 0 ||
                  (size_t)m->row_stride * element % alignment != 0,
              LGH_ERROR_UNSUPPORTED,
              "args->%s: rows must start at multiples of %zu bytes on this device; data is %p and "
              "the row stride %lld elements of %zu bytes",
              name, alignment, m->data, (long long)m->row_stride, element);
    return LGH_SUCCESS;
}

static lgh_status check_matrix(const lgh_plan *plan, const lgh_const_matrix *m, int64_t rows,
                               lgh_dtype dtype, const char *name) {
    const int64_t columns = plan->options.hidden_size;
    RETURN_IF(m->columns != columns, INVALID,
              "args->%s.columns is %lld, but the plan's hidden_size is %lld", name,
              (long long)m->columns, (long long)columns);
    RETURN_IF(m->rows != rows, INVALID, "args->%s.rows is %lld, but %lld are expected", name,
              (long long)m->rows, (long long)rows);
    RETURN_IF(m->dtype != dtype, INVALID, "args->%s.dtype is %s, but the plan's is %s", name,
              lgh__dtype_name(m->dtype), lgh__dtype_name(dtype));
    RETURN_IF(m->row_stride < columns || m->row_stride > INT64_MAX / 16 / (rows + 1), INVALID,
              "args->%s.row_stride is %lld elements; rows have %lld, and all of them must be "
              "addressable",
              name, (long long)m->row_stride, (long long)columns);
    RETURN_IF(!m->data && rows > 0, INVALID, "args->%s.data is null", name);
    return check_alignment(plan, m, name);
}

static lgh_status check_result(const lgh_plan *plan, const lgh_matrix *m, int64_t rows,
                               lgh_dtype dtype, const char *name) {
    const lgh_const_matrix readable = {m->data, m->rows, m->columns, m->row_stride, m->dtype};
    RETURN_IF(dtype == LGH_DTYPE_NONE, INVALID,
              "args->%s is given, but the plan was made without it: set options->%s_dtype", name,
              name);
    return check_matrix(plan, &readable, rows, dtype, name);
}

static lgh_status check_temperature(lgh_value t) {
    RETURN_IF(t.data, LGH_ERROR_UNSUPPORTED,
              "args->temperature must be a host value in this version");
    RETURN_IF(!(t.host > 0.0f) || !isfinite(t.host), INVALID,
              "args->temperature is %g; it must be positive and finite", (double)t.host);
    return LGH_SUCCESS;
}

static lgh_status check_value(lgh_value value, const char *name) {
    RETURN_IF(value.data && value.stride < 0, INVALID,
              "args->%s.stride is %lld; it must not be negative", name, (long long)value.stride);
    RETURN_IF(value.data && (uintptr_t)value.data % sizeof(float) != 0, INVALID,
              "args->%s.data is not aligned to its elements of 4 bytes", name);
    return LGH_SUCCESS;
}

/* What both passes read. */
static lgh_status check_inputs(const lgh_plan *plan, const lgh_const_matrix *hidden,
                               const lgh_const_matrix *weight, const void *targets) {
    const lgh_plan_options *o = &plan->options;
    RETURN_IF(hidden->rows < 0 || hidden->rows > o->max_tokens, INVALID,
              "args->hidden.rows is %lld; the plan was made for 0 to %lld tokens",
              (long long)hidden->rows, (long long)o->max_tokens);
    FORWARD(check_matrix(plan, hidden, hidden->rows, o->hidden_dtype, "hidden"));
    FORWARD(check_matrix(plan, weight, o->vocab_size, o->weight_dtype, "weight"));
    RETURN_IF((uintptr_t)targets % lgh_dtype_size(o->targets_dtype) != 0, INVALID,
              "args->targets is not aligned to its elements of %zu bytes",
              lgh_dtype_size(o->targets_dtype));
    return LGH_SUCCESS;
}

/* ---- Passes -------------------------------------------------------------------------------- */

static lgh_status check_output(const lgh_plan *plan, const float *output, uint32_t bit,
                               const char *name, const char *flag) {
    RETURN_IF(output && !(plan->options.outputs & bit), INVALID,
              "args->%s is given, but the plan was made without it: add %s to options->outputs",
              name, flag);
    RETURN_IF((uintptr_t)output % sizeof(float) != 0, INVALID,
              "args->%s is not aligned to its elements of 4 bytes", name);
    return LGH_SUCCESS;
}

static lgh_status check_outputs(const lgh_plan *plan, const lgh_forward_args *a) {
    FORWARD(check_output(plan, a->logp, LGH_OUTPUT_LOGP, "logp", "LGH_OUTPUT_LOGP"));
    FORWARD(check_output(plan, a->lse, LGH_OUTPUT_LSE, "lse", "LGH_OUTPUT_LSE"));
    FORWARD(check_output(plan, a->entropy, LGH_OUTPUT_ENTROPY, "entropy", "LGH_OUTPUT_ENTROPY"));
    return check_output(plan, a->logp_at_one, LGH_OUTPUT_LOGP_AT_ONE, "logp_at_one",
                        "LGH_OUTPUT_LOGP_AT_ONE");
}

lgh_status lgh__check_forward(lgh_forward_args *a, const lgh_plan *plan,
                              const lgh_forward_args *given) {
    RETURN_IF(!plan, INVALID, "plan is null");
    *a = (lgh_forward_args)LGH_FORWARD_ARGS_INIT;
    FORWARD(lgh__options_read(a, sizeof *a, sizeof *a, given, "args"));
    FORWARD(check_inputs(plan, &a->hidden, &a->weight, a->targets));
    FORWARD(check_temperature(a->temperature));
    RETURN_IF(!a->targets && (a->logp || a->logp_at_one) && a->hidden.rows > 0, INVALID,
              "args->targets is null, but a log-prob is asked for");
    return check_outputs(plan, a);
}

static lgh_status check_statistics(const float *values, const char *name) {
    RETURN_IF((uintptr_t)values % sizeof(float) != 0, INVALID,
              "args->%s is not aligned to its elements of 4 bytes", name);
    return LGH_SUCCESS;
}

static lgh_status check_gradients(const lgh_backward_args *a) {
    FORWARD(check_statistics(a->lse, "lse"));
    FORWARD(check_statistics(a->entropy, "entropy"));
    FORWARD(check_value(a->grad_logp, "grad_logp"));
    FORWARD(check_value(a->grad_entropy, "grad_entropy"));
    FORWARD(check_value(a->grad_lse, "grad_lse"));
    if (a->hidden.rows == 0)
        return LGH_SUCCESS;
    RETURN_IF(!a->lse, INVALID, "args->lse is null; lgh_forward of the same plan writes it");
    RETURN_IF(!a->targets && lgh__value_present(a->grad_logp), INVALID,
              "args->targets is null, but args->grad_logp is given");
    RETURN_IF(!a->entropy && lgh__value_present(a->grad_entropy), INVALID,
              "args->entropy is null, but args->grad_entropy is given");
    return LGH_SUCCESS;
}

lgh_status lgh__check_backward(lgh_backward_args *a, const lgh_plan *plan,
                               const lgh_backward_args *given) {
    RETURN_IF(!plan, INVALID, "plan is null");
    *a = (lgh_backward_args)LGH_BACKWARD_ARGS_INIT;
    FORWARD(lgh__options_read(a, sizeof *a, sizeof *a, given, "args"));
    FORWARD(check_inputs(plan, &a->hidden, &a->weight, a->targets));
    FORWARD(check_temperature(a->temperature));
    FORWARD(check_gradients(a));
    const lgh_plan_options *o = &plan->options;
    if (a->dhidden.data)
        FORWARD(check_result(plan, &a->dhidden, a->hidden.rows, o->dhidden_dtype, "dhidden"));
    if (a->dweight.data)
        FORWARD(check_result(plan, &a->dweight, o->vocab_size, o->dweight_dtype, "dweight"));
    RETURN_IF(a->accumulate_dweight && a->dweight.data && a->dweight.dtype != LGH_FP32,
              LGH_ERROR_UNSUPPORTED, "args->accumulate_dweight needs an fp32 dweight; it is %s",
              lgh__dtype_name(a->dweight.dtype));
    return LGH_SUCCESS;
}

lgh_status lgh__check_workspace(const lgh_plan *plan, lgh_pass pass, int64_t tokens,
                                const void *workspace, size_t bytes) {
    const size_t need = plan->engine->workspace(plan, pass, tokens).bytes;
    RETURN_IF(!workspace && need > 0, LGH_ERROR_WORKSPACE,
              "workspace is null; this call needs %zu bytes", need);
    RETURN_IF((uintptr_t)workspace % LGH_WORKSPACE_ALIGNMENT != 0, LGH_ERROR_WORKSPACE,
              "workspace is not aligned to %d bytes", LGH_WORKSPACE_ALIGNMENT);
    RETURN_IF(bytes < need, LGH_ERROR_WORKSPACE,
              "workspace_bytes is %zu, but this call needs %zu; lgh_plan_workspace_size tells",
              bytes, need);
    return LGH_SUCCESS;
}
