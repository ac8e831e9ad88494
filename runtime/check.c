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

static lgh_status check_operands(const lgh_plan_options *o) {
    RETURN_IF(!lgh__is_16_bit(o->hidden_dtype) && o->hidden_dtype != LGH_FP32,
              LGH_ERROR_UNSUPPORTED,
              "options->hidden_dtype is %s; bf16, fp16 and fp32 are possible",
              lgh__dtype_name(o->hidden_dtype));
    const int mixed = o->hidden_dtype == LGH_BF16 && o->weight_dtype == LGH_FP32;
    RETURN_IF(
        o->weight_dtype != o->hidden_dtype && !mixed, LGH_ERROR_UNSUPPORTED,
        "options->weight_dtype is %s and options->hidden_dtype %s; they must be equal, or fp32 "
        "and bf16",
        lgh__dtype_name(o->weight_dtype), lgh__dtype_name(o->hidden_dtype));
    RETURN_IF(o->targets_dtype != LGH_INT64 && o->targets_dtype != LGH_INT32, LGH_ERROR_UNSUPPORTED,
              "options->targets_dtype is %s; int32 or int64 are possible",
              lgh__dtype_name(o->targets_dtype));
    return LGH_SUCCESS;
}

/* A gradient is FP32, or has the 16-bit dtype of what it is the gradient of. */
static lgh_status check_result_dtype(lgh_dtype dtype, lgh_dtype operand, const char *name) {
    const int matches = lgh__is_16_bit(dtype) && dtype == operand;
    RETURN_IF(dtype != LGH_FP32 && !matches && dtype != LGH_DTYPE_NONE, LGH_ERROR_UNSUPPORTED,
              "options->%s is %s; fp32, none, or the %s of a 16-bit operand are possible", name,
              lgh__dtype_name(dtype), lgh__dtype_name(operand));
    return LGH_SUCCESS;
}

static lgh_status check_bias_dtypes(const lgh_plan_options *o) {
    RETURN_IF(o->bias_dtype != LGH_DTYPE_NONE && !lgh__is_16_bit(o->bias_dtype) &&
                  o->bias_dtype != LGH_FP32,
              LGH_ERROR_UNSUPPORTED,
              "options->bias_dtype is %s; fp32, bf16, fp16 or none are possible",
              lgh__dtype_name(o->bias_dtype));
    RETURN_IF(o->dbias_dtype != LGH_DTYPE_NONE && o->dbias_dtype != LGH_FP32, LGH_ERROR_UNSUPPORTED,
              "options->dbias_dtype is %s; fp32 or none are possible",
              lgh__dtype_name(o->dbias_dtype));
    return LGH_SUCCESS;
}

static lgh_status check_sizes(const lgh_plan_options *o) {
    FORWARD(check_size(o->hidden_size, 1, "options->hidden_size"));
    FORWARD(check_size(o->vocab_size, 0, "options->vocab_size"));
    FORWARD(check_size(o->max_tokens, 0, "options->max_tokens"));
    FORWARD(check_size(o->vocab_start, 0, "options->vocab_start"));
    FORWARD(check_size(o->vocab_valid, 0, "options->vocab_valid"));
    FORWARD(check_not_negative(o->backward_budget, "options->backward_budget"));
    return check_not_negative(o->token_block, "options->token_block");
}

static lgh_status check_features(const lgh_plan_options *o) {
    RETURN_IF(o->logits_rounding != LGH_DTYPE_NONE && !lgh__is_16_bit(o->logits_rounding),
              LGH_ERROR_UNSUPPORTED,
              "options->logits_rounding is %s; none, bf16 or fp16 are possible",
              lgh__dtype_name(o->logits_rounding));
    RETURN_IF(o->outputs & ~(uint32_t)LGH_OUTPUT_ALL, INVALID,
              "options->outputs is 0x%x; bits beyond 0x%x have no meaning", o->outputs,
              LGH_OUTPUT_ALL);
    RETURN_IF(!(o->softcap >= 0.0f) || !isfinite(o->softcap), INVALID,
              "options->softcap is %g; it must be positive and finite, or 0 for none",
              (double)o->softcap);
    RETURN_IF(o->oov_policy != LGH_OOV_ZERO && o->oov_policy != LGH_OOV_SOFTMAX, INVALID,
              "options->oov_policy is %d, which is no policy", (int)o->oov_policy);
    const int a = o->row_alignment;
    RETURN_IF(a != 0 && a != 2 && a != 4 && a != 8 && a != 16, INVALID,
              "options->row_alignment is %d; 2, 4, 8, 16 or 0 are possible", a);
    return LGH_SUCCESS;
}

lgh_status lgh__check_plan(lgh_plan_options *o, const lgh_context *context,
                           const lgh_plan_options *given) {
    RETURN_IF(!context, INVALID, "context is null");
    *o = (lgh_plan_options)LGH_PLAN_OPTIONS_INIT;
    FORWARD(lgh__options_read(o, sizeof *o, sizeof *o, given, "options"));
    FORWARD(check_sizes(o));
    FORWARD(check_operands(o));
    FORWARD(check_result_dtype(o->dhidden_dtype, o->hidden_dtype, "dhidden_dtype"));
    FORWARD(check_result_dtype(o->dweight_dtype, o->weight_dtype, "dweight_dtype"));
    FORWARD(check_bias_dtypes(o));
    FORWARD(check_features(o));
    if (o->vocab_valid == 0)
        o->vocab_valid = o->vocab_start + o->vocab_size;
    return LGH_SUCCESS;
}

/* ---- Matrices and values ------------------------------------------------------------------- */

static lgh_status check_alignment(const lgh_plan *plan, const lgh_const_matrix *m,
                                  const char *name) {
    const size_t element = lgh_dtype_size(m->dtype);
    RETURN_IF((uintptr_t)m->data % element != 0, INVALID,
              "args->%s.data is not aligned to its elements of %zu bytes", name, element);
    if (plan->context->options.type == LGH_DEVICE_CPU)
        return LGH_SUCCESS;
    const size_t alignment = (size_t)lgh__row_alignment(&plan->options, m->columns, m->dtype);
    RETURN_IF(
        (uintptr_t)m->data % alignment != 0 || (size_t)m->row_stride * element % alignment != 0,
        LGH_ERROR_UNSUPPORTED,
        "args->%s: this plan expects rows that start at multiples of %zu bytes; data is %p and "
        "the row stride %lld elements of %zu bytes. options->row_alignment can promise less",
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

static lgh_status check_value(lgh_value value, int64_t tokens, const char *name) {
    const int64_t longest = INT64_MAX / (int64_t)sizeof(float) / (tokens + 1);
    RETURN_IF(value.data && (value.stride < 0 || value.stride > longest), INVALID,
              "args->%s.stride is %lld elements; it must not be negative, and every token's must "
              "be addressable",
              name, (long long)value.stride);
    RETURN_IF(value.data && (uintptr_t)value.data % sizeof(float) != 0, INVALID,
              "args->%s.data is not aligned to its elements of 4 bytes", name);
    return LGH_SUCCESS;
}

static lgh_status check_temperature(lgh_value t, int64_t tokens) {
    RETURN_IF(!t.data && (!(t.host > 0.0f) || !isfinite(t.host)), INVALID,
              "args->temperature is %g; it must be positive and finite", (double)t.host);
    return check_value(t, tokens, "temperature");
}

static lgh_status check_bias(const lgh_plan *plan, const void *bias) {
    const lgh_plan_options *o = &plan->options;
    RETURN_IF(!bias && o->bias_dtype != LGH_DTYPE_NONE && o->vocab_size > 0, INVALID,
              "args->bias is null, but the plan was made with a bias");
    RETURN_IF(bias && o->bias_dtype == LGH_DTYPE_NONE, INVALID,
              "args->bias is given, but the plan was made without it: set options->bias_dtype");
    RETURN_IF(bias && (uintptr_t)bias % lgh_dtype_size(o->bias_dtype) != 0, INVALID,
              "args->bias is not aligned to its elements of %zu bytes",
              lgh_dtype_size(o->bias_dtype));
    return LGH_SUCCESS;
}

static lgh_status check_live(const lgh_plan *plan, const lgh_live *live, int64_t tokens) {
    if (!live->rows) {
        RETURN_IF(live->bound != 0 || live->count, INVALID,
                  "args->live.rows is null, but args->live has a bound or a count");
        return LGH_SUCCESS;
    }
    RETURN_IF(!plan->options.live_lists, INVALID,
              "args->live is given, but the plan was made without it: set options->live_lists");
    RETURN_IF(live->bound < 0 || live->bound > tokens, INVALID,
              "args->live.bound is %lld; it must lie in [0, %lld], the rows of args->hidden",
              (long long)live->bound, (long long)tokens);
    RETURN_IF((uintptr_t)live->rows % sizeof(int32_t) != 0, INVALID,
              "args->live.rows is not aligned to its elements of 4 bytes");
    RETURN_IF((uintptr_t)live->count % sizeof(int32_t) != 0, INVALID,
              "args->live.count is not aligned to 4 bytes");
    return LGH_SUCCESS;
}

static lgh_status check_counters(const lgh_counters *c) {
    RETURN_IF((uintptr_t)c->foreign_targets % sizeof(uint64_t) != 0, INVALID,
              "args->counters.foreign_targets is not aligned to 8 bytes");
    RETURN_IF((uintptr_t)c->invalid_temperatures % sizeof(uint64_t) != 0, INVALID,
              "args->counters.invalid_temperatures is not aligned to 8 bytes");
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

static lgh_status check_output(const lgh_plan *plan, const void *output, size_t element,
                               uint32_t bit, const char *name, const char *flag) {
    RETURN_IF(output && !(plan->options.outputs & bit), INVALID,
              "args->%s is given, but the plan was made without it: add %s to options->outputs",
              name, flag);
    RETURN_IF((uintptr_t)output % element != 0, INVALID,
              "args->%s is not aligned to its elements of %zu bytes", name, element);
    return LGH_SUCCESS;
}

static lgh_status check_outputs(const lgh_plan *plan, const lgh_forward_args *a) {
    FORWARD(check_output(plan, a->logp, 4, LGH_OUTPUT_LOGP, "logp", "LGH_OUTPUT_LOGP"));
    FORWARD(check_output(plan, a->lse, 4, LGH_OUTPUT_LSE, "lse", "LGH_OUTPUT_LSE"));
    FORWARD(check_output(plan, a->entropy, 4, LGH_OUTPUT_ENTROPY, "entropy", "LGH_OUTPUT_ENTROPY"));
    FORWARD(check_output(plan, a->best, 8, LGH_OUTPUT_BEST, "best", "LGH_OUTPUT_BEST"));
    return check_output(plan, a->logp_at_one, 4, LGH_OUTPUT_LOGP_AT_ONE, "logp_at_one",
                        "LGH_OUTPUT_LOGP_AT_ONE");
}

lgh_status lgh__check_forward(lgh_forward_args *a, const lgh_plan *plan,
                              const lgh_forward_args *given) {
    RETURN_IF(!plan, INVALID, "plan is null");
    *a = (lgh_forward_args)LGH_FORWARD_ARGS_INIT;
    FORWARD(lgh__options_read(a, sizeof *a, sizeof *a, given, "args"));
    FORWARD(check_inputs(plan, &a->hidden, &a->weight, a->targets));
    FORWARD(check_temperature(a->temperature, a->hidden.rows));
    FORWARD(check_bias(plan, a->bias));
    FORWARD(check_live(plan, &a->live, a->hidden.rows));
    FORWARD(check_counters(&a->counters));
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
    FORWARD(check_value(a->grad_logp, a->hidden.rows, "grad_logp"));
    FORWARD(check_value(a->grad_entropy, a->hidden.rows, "grad_entropy"));
    FORWARD(check_value(a->grad_lse, a->hidden.rows, "grad_lse"));
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
    FORWARD(check_temperature(a->temperature, a->hidden.rows));
    FORWARD(check_bias(plan, a->bias));
    FORWARD(check_live(plan, &a->live, a->hidden.rows));
    FORWARD(check_counters(&a->counters));
    FORWARD(check_gradients(a));
    const lgh_plan_options *o = &plan->options;
    if (a->dhidden.data)
        FORWARD(check_result(plan, &a->dhidden, a->hidden.rows, o->dhidden_dtype, "dhidden"));
    if (a->dweight.data)
        FORWARD(check_result(plan, &a->dweight, o->vocab_size, o->dweight_dtype, "dweight"));
    RETURN_IF(a->dbias && o->dbias_dtype == LGH_DTYPE_NONE, INVALID,
              "args->dbias is given, but the plan was made without it: set options->dbias_dtype");
    RETURN_IF((uintptr_t)a->dbias % sizeof(float) != 0, INVALID,
              "args->dbias is not aligned to its elements of 4 bytes");
    RETURN_IF(a->accumulate_dweight && a->dweight.data && a->dweight.dtype != LGH_FP32,
              LGH_ERROR_UNSUPPORTED, "args->accumulate_dweight needs an fp32 dweight; it is %s",
              lgh__dtype_name(a->dweight.dtype));
    return LGH_SUCCESS;
}

lgh_status lgh__check_live_rows(const lgh_plan *plan, const void *targets, int64_t tokens,
                                const int32_t *rows, const int32_t *count) {
    RETURN_IF(!plan, INVALID, "plan is null");
    RETURN_IF(!plan->options.live_lists, INVALID,
              "plan was made without live lists: set options->live_lists");
    RETURN_IF(tokens < 0 || tokens > plan->options.max_tokens, INVALID,
              "tokens is %lld; the plan was made for 0 to %lld", (long long)tokens,
              (long long)plan->options.max_tokens);
    RETURN_IF(!targets && tokens > 0, INVALID, "targets is null");
    RETURN_IF(!rows && tokens > 0, INVALID, "rows is null");
    RETURN_IF(!count, INVALID, "count is null");
    const size_t element = lgh_dtype_size(plan->options.targets_dtype);
    RETURN_IF((uintptr_t)targets % element != 0, INVALID,
              "targets is not aligned to its elements of %zu bytes", element);
    RETURN_IF((uintptr_t)rows % sizeof *rows != 0, INVALID,
              "rows is not aligned to its elements of 4 bytes");
    RETURN_IF((uintptr_t)count % sizeof *count != 0, INVALID, "count is not aligned to 4 bytes");
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
