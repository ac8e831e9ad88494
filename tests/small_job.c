/* small_job.c - a small problem that any thread may work on. */
#include "small_job.h"

#include "error.h"
#include "harness.h"
#include "promises.h"
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Inputs -------------------------------------------------------------------------------- */

void small_job_fill(small_job *job, lgh_device_type type, uint64_t seed) {
    job_data *d = &job->data;
    lgh_random random = {seed};
    memset(job, 0, sizeof *job);
    memset(&job->data, 0xff, sizeof job->data);
    job->type = type;
    job->rounds = 1;
    lgh_random_fill_bf16(&random, d->hidden, JOB_TOKENS * JOB_WIDTH, 1.0);
    lgh_random_fill_bf16(&random, d->weight, JOB_VOCAB * JOB_WIDTH, 0.5);
    lgh_random_fill_fp32(&random, d->grad_logp, JOB_TOKENS, 1.0);
    lgh_random_fill_fp32(&random, d->grad_entropy, JOB_TOKENS, 1.0);
    for (int i = 0; i < JOB_TOKENS; i++) {
        d->targets[i] = lgh_random_below(&random, JOB_VOCAB);
        d->temperatures[i] = (float)(0.5 + lgh_random_uniform(&random));
    }
}

lgh_plan_options small_job_options(void) {
    lgh_plan_options options = LGH_PLAN_OPTIONS_INIT;
    options.hidden_size = JOB_WIDTH;
    options.vocab_size = JOB_VOCAB;
    options.max_tokens = JOB_TOKENS;
    options.token_block = 16;
    return options;
}

/* ---- Calls --------------------------------------------------------------------------------- */

/* `d` may be device memory: only addresses are taken. */
static lgh_forward_args forward_args(job_data *d) {
    lgh_forward_args args = LGH_FORWARD_ARGS_INIT;
    args.hidden = (lgh_const_matrix){d->hidden, JOB_TOKENS, JOB_WIDTH, JOB_WIDTH, LGH_BF16};
    args.weight = (lgh_const_matrix){d->weight, JOB_VOCAB, JOB_WIDTH, JOB_WIDTH, LGH_BF16};
    args.targets = d->targets;
    args.temperature = (lgh_value){d->temperatures, 1, 0};
    args.logp = d->logp;
    args.lse = d->lse;
    args.entropy = d->entropy;
    return args;
}

static lgh_backward_args backward_args(job_data *d) {
    lgh_backward_args args = LGH_BACKWARD_ARGS_INIT;
    args.hidden = (lgh_const_matrix){d->hidden, JOB_TOKENS, JOB_WIDTH, JOB_WIDTH, LGH_BF16};
    args.weight = (lgh_const_matrix){d->weight, JOB_VOCAB, JOB_WIDTH, JOB_WIDTH, LGH_BF16};
    args.targets = d->targets;
    args.temperature = (lgh_value){d->temperatures, 1, 0};
    args.lse = d->lse;
    args.entropy = d->entropy;
    args.grad_logp = (lgh_value){d->grad_logp, 1, 0};
    args.grad_entropy = (lgh_value){d->grad_entropy, 1, 0};
    args.dhidden = (lgh_matrix){d->dhidden, JOB_TOKENS, JOB_WIDTH, JOB_WIDTH, LGH_FP32};
    args.dweight = (lgh_matrix){d->dweight, JOB_VOCAB, JOB_WIDTH, JOB_WIDTH, LGH_FP32};
    return args;
}

static lgh_status call_both(const small_job *job, const lgh_plan *plan, job_data *device,
                            void *workspace, size_t bytes) {
    const lgh_forward_args forward = forward_args(device);
    const lgh_backward_args backward = backward_args(device);
    for (int round = 0; round < job->rounds; round++) {
        FORWARD(lgh_forward(plan, &forward, workspace, bytes, job->stream));
        FORWARD(lgh_backward(plan, &backward, workspace, bytes, job->stream));
    }
    return LGH_SUCCESS;
}

static lgh_status work_on_memory(small_job *job, lgh_context *context, const lgh_plan *plan,
                                 job_data *device, size_t bytes) {
    void *workspace;
    FORWARD(lgh_memory_copy(context, device, &job->data, sizeof job->data, job->stream));
    FORWARD(lgh_memory_allocate(context, bytes, &workspace));
    lgh_status status = call_both(job, plan, device, workspace, bytes);
    /* Also after a failure: it waits for what was enqueued. */
    lgh_status copied = lgh_memory_copy(context, &job->data, device, sizeof *device, job->stream);
    lgh_memory_free(context, workspace);
    return status != LGH_SUCCESS ? status : copied;
}

static lgh_status work_on_plan(small_job *job, lgh_context *context, const lgh_plan *plan) {
    size_t forward, backward;
    void *device;
    FORWARD(lgh_plan_workspace_size(plan, LGH_PASS_FORWARD, JOB_TOKENS, &forward, NULL));
    FORWARD(lgh_plan_workspace_size(plan, LGH_PASS_BACKWARD, JOB_TOKENS, &backward, NULL));
    FORWARD(lgh_memory_allocate(context, sizeof job->data, &device));
    lgh_status status =
        work_on_memory(job, context, plan, device, forward > backward ? forward : backward);
    lgh_memory_free(context, device);
    return status;
}

static lgh_status work_on_context(small_job *job, lgh_context *context) {
    const lgh_plan_options options = small_job_options();
    lgh_plan *plan;
    if (job->plan)
        return work_on_plan(job, context, job->plan);
    FORWARD(lgh_plan_create(&plan, context, &options));
    lgh_status status = work_on_plan(job, context, plan);
    lgh_plan_destroy(plan);
    return status;
}

static lgh_status work(small_job *job) {
    lgh_context_options options = LGH_CONTEXT_OPTIONS_INIT;
    lgh_context *context;
    if (job->context)
        return work_on_context(job, job->context);
    options.type = job->type;
    FORWARD(lgh_context_create(&context, &options));
    lgh_status status = work_on_context(job, context);
    lgh_context_destroy(context);
    return status;
}

void *small_job_run(void *argument) {
    small_job *job = argument;
    job->status = work(job);
    if (job->status != LGH_SUCCESS) {
        strncpy(job->error, lgh_last_error(), sizeof job->error - 1);
        job->error[sizeof job->error - 1] = 0;
    }
    return NULL;
}

/* ---- Results ------------------------------------------------------------------------------- */

typedef struct oracle {
    double logp[JOB_TOKENS], lse[JOB_TOKENS], entropy[JOB_TOKENS];
    double dhidden[JOB_TOKENS * JOB_WIDTH];
    double dweight[JOB_VOCAB * JOB_WIDTH];
} oracle;

static void expect(oracle *o, job_data *d) {
    const lgh_plan_options options = small_job_options();
    const lgh_forward_args forward = forward_args(d);
    lgh_backward_args backward = backward_args(d);
    reference_outputs outputs = {.logp = o->logp, .lse = o->lse, .entropy = o->entropy};
    const reference_gradients gradients = {.dhidden = o->dhidden, .dweight = o->dweight};
    backward.lse = backward.entropy = NULL; /* the oracle's own */
    reference_forward(&options, &forward, NULL, &outputs);
    reference_backward(&options, &backward, NULL, &gradients);
}

/* Logits of a standard deviation of 2; |z| stays below 40. */
enum { LARGEST_Z = 40 };

void small_job_check(const small_job *job) {
    static oracle o;
    small_job copy = *job;
    const job_data *d = &job->data;
    const double output = promise_outputs(LARGEST_Z, JOB_WIDTH, LGH_BF16);
    const double gradient = promise_gradients(LGH_BF16, LGH_FP32, JOB_WIDTH);
    if (job->status != LGH_SUCCESS)
        fail_msg("the job gave %s: %s", lgh_status_name(job->status), job->error);
    expect(&o, &copy.data);
    lgh_assert_array_close(d->logp, o.logp, JOB_TOKENS, output, "logp");
    lgh_assert_array_close(d->lse, o.lse, JOB_TOKENS, output, "lse");
    lgh_assert_array_close(d->entropy, o.entropy, JOB_TOKENS, output, "entropy");
    lgh_assert_relative_l2(d->dhidden, o.dhidden, JOB_TOKENS * JOB_WIDTH, gradient, "dhidden");
    lgh_assert_relative_l2(d->dweight, o.dweight, JOB_VOCAB * JOB_WIDTH, gradient, "dweight");
}

int small_job_equals(const small_job *a, const small_job *b) {
    const job_data *x = &a->data, *y = &b->data;
    return memcmp(x->logp, y->logp, sizeof x->logp) == 0 &&
           memcmp(x->lse, y->lse, sizeof x->lse) == 0 &&
           memcmp(x->entropy, y->entropy, sizeof x->entropy) == 0 &&
           memcmp(x->dhidden, y->dhidden, sizeof x->dhidden) == 0 &&
           memcmp(x->dweight, y->dweight, sizeof x->dweight) == 0;
}

void small_job_check_same(const small_job *a, const small_job *b) {
    const job_data *x = &a->data, *y = &b->data;
    lgh_assert_same_bytes(x->logp, y->logp, sizeof x->logp, "logp");
    lgh_assert_same_bytes(x->lse, y->lse, sizeof x->lse, "lse");
    lgh_assert_same_bytes(x->entropy, y->entropy, sizeof x->entropy, "entropy");
    lgh_assert_same_bytes(x->dhidden, y->dhidden, sizeof x->dhidden, "dhidden");
    lgh_assert_same_bytes(x->dweight, y->dweight, sizeof x->dweight, "dweight");
}
