/* case_problem.h - one problem on the device under test: operands on the host, buffers on the
 * device, a plan, both passes, and their results back on the host.
 *
 *     case_problem p = case_of(4, 8, 100);      change options, temperature, tokens
 *     case_open(&p);                            set operands, targets, upstream gradients
 *     case_run(&p);                             plan, upload, forward, backward
 *     case_close(&p);
 *
 * Every buffer is as large as the call may touch, the workspace as large as the plan asks for, with
 * a guard behind each that every call is checked against.
 */
#ifndef LGH_CASE_PROBLEM_H
#define LGH_CASE_PROBLEM_H

#include "device_buffer.h"
#include "harness.h"

/** How the calls are given an upstream gradient. */
typedef enum case_form {
    CASE_ABSENT,
    CASE_HOST,      /* the first value, as a number */
    CASE_BROADCAST, /* the first value, in device memory with stride 0 */
    CASE_VECTOR,
    CASE_STRIDED /* with NaNs between the values */
} case_form;

typedef struct case_gradient {
    case_form form;
    float *values; /* [max_tokens] */
    device_buffer device;
} case_gradient;

/** Buffers of the device, for the tokens of the last upload. */
typedef struct case_buffers {
    device_buffer hidden, weight, targets;
    device_buffer logp, lse, entropy, logp_at_one;
    device_buffer dhidden, dweight;
    device_buffer workspace[2]; /* by lgh_pass */
} case_buffers;

typedef struct case_problem {
    lgh_plan_options options;
    int64_t tokens; /* <= options.max_tokens */
    float temperature;
    int accumulate; /* adds to dweight_start */
    /* From case_open on; operands and targets are 0, gradients 1 and absent. */
    void *hidden; /* [max_tokens, D] of options.hidden_dtype */
    void *weight; /* [V, D] */
    int64_t *targets;
    float *dweight_start; /* [V, D] */
    case_gradient grad_logp, grad_entropy, grad_lse;
    /* Results; gradients are widened where they are BF16. */
    float *logp, *lse, *entropy, *logp_at_one;
    float *dhidden, *dweight;
    lgh_plan *plan;
    case_buffers device;
} case_problem;

/** Options as LGH_PLAN_OPTIONS_INIT has them with every output wanted, at T = 1. */
case_problem case_of(int64_t tokens, int64_t hidden_size, int64_t vocab_size);

/** The operand dtypes of the device under test; the list ends with LGH_DTYPE_NONE. */
const lgh_dtype *case_operand_dtypes(void);
void case_set_operands(case_problem *p, lgh_dtype dtype); /* before case_open */

void case_open(case_problem *p);
void case_close(case_problem *p);

/* ---- Operands ------------------------------------------------------------------------------ */

void case_set_hidden(case_problem *p, int64_t token, int64_t k, double value);
void case_set_weight(case_problem *p, int64_t entry, int64_t k, double value);

/** Normal numbers of these standard deviations, random targets, gradients as vectors. */
void case_fill(case_problem *p, uint64_t seed, double hidden_scale, double weight_scale);
void case_fill_gradient(case_gradient *gradient, case_form form, uint64_t seed, int64_t count);

/** The gradient that the calls give token i. */
double case_gradient_at(const case_gradient *gradient, int64_t token);

/** The operands on the host, of p->tokens tokens. */
lgh_const_matrix case_hidden(const case_problem *p);
lgh_const_matrix case_weight(const case_problem *p);

/* ---- Calls --------------------------------------------------------------------------------- */

/** Makes the plan, in place of one that was there. */
void case_plan(case_problem *p);

/** Makes the buffers, in place of those that were there, and fills them. */
void case_upload(case_problem *p);

/** The arguments of the passes; every result that the plan has is asked for. */
lgh_forward_args case_forward_args(const case_problem *p);
lgh_backward_args case_backward_args(const case_problem *p);

/** Run a pass and read its results. */
void case_forward(case_problem *p);
void case_backward(case_problem *p);

/** All of it. */
void case_run(case_problem *p);

/** Results as case_forward and case_backward leave them before the call: nothing was written. */
void case_clear_outputs(const case_problem *p);
void case_clear_gradients(const case_problem *p);
void case_read_outputs(case_problem *p);
void case_read_gradients(case_problem *p);

/** Fails the case if something was written behind a buffer. */
void case_check_guards(const case_problem *p);

#endif
