/* plan.c - plans, and the passes that run through them. */
#include "plan.h"

#include "check.h"
#include "configuration.h"
#include "context.h"
#include "dtype.h"
#include "error.h"
#include "integers.h"

#if LGH_WITH_CUDA
#include "cuda_device.h"
#endif

#include <stdlib.h>

static const lgh__engine *choose_engine(const lgh_context *context) {
#if LGH_WITH_CUDA
    if (context->options.type == LGH_DEVICE_CUDA)
        return &lgh__chunked_engine;
#else
    (void)context;
#endif
    return &lgh__cpu_engine;
}

/* Makes the plan's device current, where it is one that must be, for the calling thread. */
static lgh_status enter_device(const lgh_context *context) {
#if LGH_WITH_CUDA
    if (context->cuda)
        return lgh__driver_push(&context->cuda->device);
#else
    (void)context;
#endif
    return LGH_SUCCESS;
}

static void leave_device(const lgh_context *context) {
#if LGH_WITH_CUDA
    if (context->cuda)
        lgh__driver_pop();
#else
    (void)context;
#endif
}

int lgh__has_backward(const lgh_plan_options *o) {
    return o->dhidden_dtype != LGH_DTYPE_NONE || o->dweight_dtype != LGH_DTYPE_NONE ||
           o->dbias_dtype != LGH_DTYPE_NONE;
}

int64_t lgh__valid_entries(const lgh_plan_options *o) {
    const int64_t valid = o->vocab_valid - o->vocab_start;
    if (valid < 0)
        return 0;
    return valid < o->vocab_size ? valid : o->vocab_size;
}

int lgh__row_alignment(const lgh_plan_options *o, int64_t columns, lgh_dtype dtype) {
    const int64_t row = columns * (int64_t)lgh_dtype_size(dtype);
    const int element = (int)lgh_dtype_size(dtype);
    int alignment = 16;
    if (o->row_alignment > 0)
        return o->row_alignment > element ? o->row_alignment : element;
    while (row % alignment != 0)
        alignment /= 2;
    return alignment;
}

int64_t lgh__row_pitch(const lgh_plan_options *o, lgh_dtype dtype) {
    const int64_t element = (int64_t)lgh_dtype_size(dtype);
    const int64_t unit = lgh__row_alignment(o, o->hidden_size, dtype);
    int64_t bytes = lgh__round_up(o->hidden_size * element, unit);
    if (unit < 16 && bytes % (2 * unit) == 0)
        bytes += unit; /* no better aligned than the caller's rows may be */
    return bytes / element;
}

/* ---- Descriptions -------------------------------------------------------------------------- */

static void describe_outputs(uint32_t outputs, lgh__text *text) {
    static const char *const names[] = {"logp", "lse", "entropy", "logp_at_one", "best"};
    lgh__text_append(text, outputs ? "outputs =" : "outputs = none");
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
        if (outputs & 1u << i)
            lgh__text_append(text, " %s", names[i]);
    lgh__text_append(text, "\n");
}

static void describe_problem(const lgh_plan *plan, lgh__text *text) {
    const lgh_plan_options *o = &plan->options;
    lgh__text_append(text, "engine = %s\n", plan->engine->name);
    lgh__text_append(text, "hidden_size = %lld\nvocab_size = %lld\nmax_tokens = %lld\n",
                     (long long)o->hidden_size, (long long)o->vocab_size, (long long)o->max_tokens);
    lgh__text_append(text, "hidden = %s\nweight = %s\ntargets = %s\ndhidden = %s\ndweight = %s\n",
                     lgh__dtype_name(o->hidden_dtype), lgh__dtype_name(o->weight_dtype),
                     lgh__dtype_name(o->targets_dtype), lgh__dtype_name(o->dhidden_dtype),
                     lgh__dtype_name(o->dweight_dtype));
    describe_outputs(o->outputs, text);
    lgh__text_append(text, "logits_rounding = %s\nignore_index = %lld\n",
                     lgh__dtype_name(o->logits_rounding), (long long)o->ignore_index);
    lgh__text_append(text, "vocab_start = %lld\nvocab_valid = %lld\nbias = %s\ndbias = %s\n",
                     (long long)o->vocab_start, (long long)o->vocab_valid,
                     lgh__dtype_name(o->bias_dtype), lgh__dtype_name(o->dbias_dtype));
    lgh__text_append(text, "softcap = %a\noov_policy = %s\nrow_alignment = %d\nlive_lists = %d\n",
                     (double)o->softcap, o->oov_policy == LGH_OOV_ZERO ? "zero" : "softmax",
                     (int)o->row_alignment, o->live_lists != 0);
}

/* A configuration's text must be that of this problem on a machine like this one. */
static lgh_status check_configuration(const lgh_plan *plan) {
    char expected[2048];
    lgh__text text = {expected, sizeof expected, 0};
    if (!plan->options.configuration)
        return LGH_SUCCESS;
    describe_problem(plan, &text);
    plan->engine->describe_machine(plan, &text);
    return lgh__configuration_matches(plan->options.configuration, expected, "max_tokens");
}

/* ---- Plans --------------------------------------------------------------------------------- */

static lgh_status prepare_on_device(lgh_plan *plan) {
    FORWARD(check_configuration(plan));
    FORWARD(enter_device(plan->context));
    lgh_status status = plan->engine->prepare(plan);
    leave_device(plan->context);
    return status;
}

lgh_status lgh_plan_create(lgh_plan **plan, lgh_context *context, const lgh_plan_options *options) {
    RETURN_IF(!plan, LGH_ERROR_INVALID_ARGUMENT, "plan is null");
    *plan = NULL;
    lgh_plan_options filled;
    FORWARD(lgh__check_plan(&filled, context, options));
    lgh_plan *created = calloc(1, sizeof *created);
    RETURN_IF(!created, LGH_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    created->context = context;
    created->options = filled;
    created->engine = choose_engine(context);
    lgh_status status = prepare_on_device(created);
    if (status != LGH_SUCCESS) {
        free(created);
        return status;
    }
    created->options.configuration = NULL; /* the caller's text may go */
    *plan = created;
    return LGH_SUCCESS;
}

void lgh_plan_destroy(lgh_plan *plan) {
    if (!plan)
        return;
    plan->engine->release(plan);
    free(plan);
}

lgh_status lgh_plan_describe(const lgh_plan *plan, char *text, size_t capacity, size_t *length) {
    RETURN_IF(!plan, LGH_ERROR_INVALID_ARGUMENT, "plan is null");
    RETURN_IF(!text && capacity > 0, LGH_ERROR_INVALID_ARGUMENT, "text is null");
    lgh__text out = {text, capacity, 0};
    describe_problem(plan, &out);
    plan->engine->describe_machine(plan, &out);
    plan->engine->describe(plan, &out);
    if (length)
        *length = out.length;
    return LGH_SUCCESS;
}

lgh_status lgh_plan_workspace_size(const lgh_plan *plan, lgh_pass pass, int64_t tokens,
                                   size_t *bytes, size_t *beyond_budget) {
    RETURN_IF(!plan, LGH_ERROR_INVALID_ARGUMENT, "plan is null");
    RETURN_IF(!bytes, LGH_ERROR_INVALID_ARGUMENT, "bytes is null");
    RETURN_IF(pass != LGH_PASS_FORWARD && pass != LGH_PASS_BACKWARD, LGH_ERROR_INVALID_ARGUMENT,
              "pass is %d, which is no pass", (int)pass);
    RETURN_IF(tokens < 0 || tokens > plan->options.max_tokens, LGH_ERROR_INVALID_ARGUMENT,
              "tokens is %lld; the plan was made for 0 to %lld", (long long)tokens,
              (long long)plan->options.max_tokens);
    const lgh__workspace_need need = plan->engine->workspace(plan, pass, tokens);
    *bytes = tokens > 0 ? need.bytes : 0;
    if (beyond_budget)
        *beyond_budget = tokens > 0 ? need.beyond_budget : 0;
    return LGH_SUCCESS;
}

/* ---- Passes -------------------------------------------------------------------------------- */

lgh_status lgh_forward(const lgh_plan *plan, const lgh_forward_args *args, void *workspace,
                       size_t workspace_bytes, void *stream) {
    lgh_forward_args a;
    FORWARD(lgh__check_forward(&a, plan, args));
    const int wanted = a.logp || a.lse || a.entropy || a.logp_at_one || a.best;
    if (a.hidden.rows == 0 || !wanted)
        return LGH_SUCCESS;
    FORWARD(
        lgh__check_workspace(plan, LGH_PASS_FORWARD, a.hidden.rows, workspace, workspace_bytes));
    FORWARD(enter_device(plan->context));
    lgh_status status = plan->engine->forward(plan, &a, workspace, stream);
    leave_device(plan->context);
    return status;
}

/* Without tokens an overwritten dweight or dbias is a sum of nothing. */
static lgh_status zero_sums(const lgh_plan *plan, const lgh_backward_args *a, void *stream) {
    const lgh_matrix *m = &a->dweight;
    const size_t element = lgh_dtype_size(m->dtype), bias = (size_t)plan->options.vocab_size * 4;
    if (m->data && !a->accumulate_dweight)
        FORWARD(plan->engine->zero(plan, m->data, (size_t)m->rows, (size_t)m->columns * element,
                                   (size_t)m->row_stride * element, stream));
    if (a->dbias && !a->accumulate_dbias)
        FORWARD(plan->engine->zero(plan, a->dbias, 1, bias, bias, stream));
    return LGH_SUCCESS;
}

static lgh_status run_backward(const lgh_plan *plan, const lgh_backward_args *a, void *workspace,
                               void *stream) {
    if (a->hidden.rows == 0)
        return zero_sums(plan, a, stream);
    return plan->engine->backward(plan, a, workspace, stream);
}

lgh_status lgh_backward(const lgh_plan *plan, const lgh_backward_args *args, void *workspace,
                        size_t workspace_bytes, void *stream) {
    lgh_backward_args a;
    FORWARD(lgh__check_backward(&a, plan, args));
    if (!a.dhidden.data && !a.dweight.data && !a.dbias)
        return LGH_SUCCESS;
    if (a.hidden.rows > 0)
        FORWARD(lgh__check_workspace(plan, LGH_PASS_BACKWARD, a.hidden.rows, workspace,
                                     workspace_bytes));
    FORWARD(enter_device(plan->context));
    lgh_status status = run_backward(plan, &a, workspace, stream);
    leave_device(plan->context);
    return status;
}

lgh_status lgh_live_rows(const lgh_plan *plan, const void *targets, int64_t tokens, int32_t *rows,
                         int32_t *count, void *stream) {
    FORWARD(lgh__check_live_rows(plan, targets, tokens, rows, count));
    FORWARD(enter_device(plan->context));
    lgh_status status = plan->engine->live_rows(plan, targets, tokens, rows, count, stream);
    leave_device(plan->context);
    return status;
}
