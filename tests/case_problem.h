/* case_problem.h - one problem on the device under test: operands on the host, buffers on the
 * device, a plan, both passes, and their results back on the host.
 *
 *     case_problem p = case_of(4, 8, 100);      change options, temperature, layouts
 *     case_open(&p);                            set operands, targets, upstream gradients
 *     case_run(&p);                             plan, upload, forward, backward
 *     case_close(&p);
 *
 * Every buffer is as large as the call may touch, the workspace as large as the plan asks for, with
 * a guard behind each that every call is checked against. case_problem.c is the host's part,
 * case_calls.c the device's.
 */
#ifndef LGH_CASE_PROBLEM_H
#define LGH_CASE_PROBLEM_H

#include "device_buffer.h"
#include "harness.h"

/** How the calls are given a number, or a number per token. */
typedef enum case_form {
    CASE_ABSENT,
    CASE_HOST,      /* the first value, as a number */
    CASE_BROADCAST, /* the first value, in device memory with stride 0 */
    CASE_VECTOR,
    CASE_STRIDED /* with NaNs between the values */
} case_form;

typedef struct case_value {
    case_form form;
    float *values; /* [max_tokens] */
    device_buffer device;
} case_value;

typedef case_value case_gradient;

/** Where a matrix lies in its buffer; all else there holds NaNs, or must stay as it was. */
typedef struct case_layout {
    int64_t gap;    /* elements between rows */
    int64_t offset; /* elements before the first row */
} case_layout;

/** The list of live rows that the calls are given. */
typedef struct case_live {
    int given;
    int32_t *rows; /* [max_tokens] */
    int64_t bound;
    int with_count;
    int32_t count;
} case_live;

/** Buffers of the device, for the tokens of the last upload. */
typedef struct case_buffers {
    device_buffer hidden, weight, bias, targets;
    device_buffer live_rows, live_count;
    device_buffer logp, lse, entropy, logp_at_one, best;
    device_buffer dhidden, dweight, dbias;
    device_buffer counters[2];  /* by lgh_pass */
    device_buffer workspace[2]; /* by lgh_pass */
} case_buffers;

typedef struct case_problem {
    lgh_plan_options options;
    int64_t tokens; /* <= options.max_tokens */
    float temperature;
    int accumulate;       /* adds to dweight_start */
    int accumulate_dbias; /* adds to dbias_start */
    int with_counters;
    int without_targets; /* nor log-probs; grad_logp must be absent */
    case_layout hidden_layout, weight_layout, dhidden_layout, dweight_layout;
    /* From case_open on; operands and targets are 0, gradients and temperatures 1 and absent. */
    void *hidden; /* [max_tokens, D] of options.hidden_dtype */
    void *weight; /* [V, D] */
    void *bias;   /* [V] of options.bias_dtype; NULL without one */
    int64_t *targets;
    case_value temperatures; /* absent: `temperature` for all */
    case_live live;
    float *dweight_start; /* [V, D] */
    float *dbias_start;   /* [V] */
    case_gradient grad_logp, grad_entropy, grad_lse;
    /* Results; gradients are widened where they are of 16 bits. */
    float *logp, *lse, *entropy, *logp_at_one;
    int64_t *best;
    float *dhidden, *dweight, *dbias;
    uint64_t foreign_targets[2]; /* what the last call of each pass added to its counters */
    uint64_t invalid_temperatures[2];
    lgh_plan *plan;
    case_buffers device;
} case_problem;

/** Options as LGH_PLAN_OPTIONS_INIT has them with every output wanted, at T = 1. */
case_problem case_of(int64_t tokens, int64_t hidden_size, int64_t vocab_size);

/** The operand dtypes, with which hidden and weight may both be made; the list ends with
 *  LGH_DTYPE_NONE. A BF16 hidden with an FP32 weight comes on top. */
const lgh_dtype *case_operand_dtypes(void);

/** The following are for before case_open. */
void case_set_operands(case_problem *p, lgh_dtype dtype);
void case_set_mixed_operands(case_problem *p); /* a BF16 hidden, an FP32 weight */

/** The dtype of dhidden and dweight: LGH_FP32, or any of 16 bits for the operand's own. */
void case_set_results(case_problem *p, lgh_dtype dtype);

/** A bias, and its gradient in FP32. */
void case_set_bias_dtype(case_problem *p, lgh_dtype dtype);

void case_open(case_problem *p);
void case_close(case_problem *p);

/* ---- Operands ------------------------------------------------------------------------------ */

void case_set_hidden(case_problem *p, int64_t token, int64_t k, double value);
void case_set_weight(case_problem *p, int64_t entry, int64_t k, double value);
void case_set_bias(case_problem *p, int64_t entry, double value);

/** Normal numbers of these standard deviations, random targets, gradients as vectors; the bias is
 *  left as it is. */
void case_fill(case_problem *p, uint64_t seed, double hidden_scale, double weight_scale);
void case_fill_bias(case_problem *p, uint64_t seed, double scale); /* even in [-scale, scale] */
void case_fill_gradient(case_gradient *gradient, case_form form, uint64_t seed, int64_t count);

/** A temperature in [0.4, 2] for each token. */
void case_fill_temperatures(case_problem *p, case_form form, uint64_t seed);

/** The number that the calls give token i; 0 where it is absent. */
double case_gradient_at(const case_gradient *gradient, int64_t token);
double case_temperature_at(const case_problem *p, int64_t token);

/** The list of these rows. */
void case_set_live(case_problem *p, const int32_t *rows, int64_t bound);

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
void case_read_gradients(case_problem *p); /* fails the case if something lies between rows */

/** Fails the case if something was written behind a buffer. */
void case_check_guards(const case_problem *p);

/** Every buffer that the device may hold for the problem. */
#define CASE_BUFFERS 22
void case_list_buffers(case_problem *p, device_buffer *buffers[CASE_BUFFERS]);

/** Gives back the device's buffers; case_upload and case_close do. */
void case_close_buffers(case_problem *p);

#endif
