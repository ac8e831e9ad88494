/* cuda_problem.h - one forward and backward call on the fakes of fakes/fakes.h, with a reference.
 *
 * Every buffer is an allocation of its own and as large as it must be; rows have padding that no
 * one may touch. Operands are multiples of 1/8, so that every logit is exact in FP32, and the
 * reference rounds the gradients of the logits to BF16 as the kernel does: what remains is the
 * order of sums.
 */
#ifndef LGH_CUDA_PROBLEM_H
#define LGH_CUDA_PROBLEM_H

#include "harness.h"

#include "fakes/fakes.h"

/** Set by problem_of; change what the case is about before problem_open. */
typedef struct problem {
    lgh_plan_options options;
    int64_t tokens;
    int64_t padding;         /* elements between rows: a multiple of 8 keeps the alignment */
    int64_t gradient_stride; /* of the upstream gradients */
    int accumulate;
    int without_targets;
    int without_entropy_gradient;
    float temperature;
    /* Set by problem_open. */
    int64_t row_stride;
    void *hidden, *weight, *targets;
    float *logp, *lse, *entropy, *logp_at_one;
    float *grad_logp, *grad_entropy, *grad_lse;
    void *dhidden, *dweight;
    void *stream;
} problem;

/** Tokens, hidden size and vocabulary, everything else as INIT says, all outputs wanted. */
problem problem_of(int64_t tokens, int64_t hidden_size, int64_t vocab_size);

/** Allocates and fills the buffers, and tells the fakes the definitions of the plan's kernels. */
void problem_open(problem *p);
void problem_close(problem *p);

/** The arguments of both passes. */
lgh_forward_args problem_forward_args(const problem *p);
lgh_backward_args problem_backward_args(const problem *p);

/** Run a pass as a run call, with a workspace of exactly the bytes that the plan asks for, and
 *  check that it wrote all results, nothing else, and the right numbers. */
void problem_check_forward(const problem *p, const lgh_plan *plan);
void problem_check_backward(const problem *p, const lgh_plan *plan);

/** Opens, creates a plan, checks both passes, destroys the plan, closes; fails on any violation. */
void problem_check(problem *p, lgh_context *context);

/** The case fails with the last error and the fakes' violations unless the call succeeded. */
void assert_call_succeeds(lgh_status status);

/** The case fails with the fakes' violations if there is one. */
void assert_no_violations(void);

/** Opens the fake device for a test of its own; skips the case without NVRTC. */
lgh_context *open_fake_device(void);

/** Destroys it; the fakes must then hold nothing for the library. */
void close_fake_device(lgh_context *context);

#endif
