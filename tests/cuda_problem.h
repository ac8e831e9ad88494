/* cuda_problem.h - one forward and backward call on the fakes of fakes/fakes.h, with a reference.
 *
 * Every buffer is an allocation of its own and as large as it must be; rows have padding that no
 * one may touch, and what a call may not read was never written. Operands are such fractions that
 * every logit is exact in FP32, and the reference rounds the gradients of the logits to the
 * operands' dtype as the kernel does: what remains is the order of sums.
 */
#ifndef LGH_CUDA_PROBLEM_H
#define LGH_CUDA_PROBLEM_H

#include "harness.h"

#include "fakes/fakes.h"

/** How a value that a call reads is given. */
typedef enum problem_mode {
    PROBLEM_HOST,
    PROBLEM_DEVICE, /* one number in device memory */
    PROBLEM_VECTOR,
    PROBLEM_STRIDED, /* a vector with numbers in between that are not the call's */
    PROBLEM_ABSENT,  /* a gradient: the host value 0 */
    PROBLEM_MODES
} problem_mode;

/** Which rows of a call count. */
typedef enum problem_rows {
    PROBLEM_ALL,
    PROBLEM_LISTED,  /* a list of some, in no order, with numbers that are no tokens */
    PROBLEM_COUNTED, /* likewise, its length in device memory and below its bound */
    PROBLEM_BOUNDED, /* likewise, but above its bound */
    PROBLEM_NONE,    /* an empty list */
    PROBLEM_ROW_KINDS
} problem_rows;

/** Rows in device memory. */
typedef struct problem_matrix {
    void *memory;   /* the allocation; NULL where there is no such matrix */
    char *data;     /* its first row */
    int64_t stride; /* in elements */
    lgh_dtype dtype;
} problem_matrix;

/** Set by problem_of; change what the case is about before problem_open. */
typedef struct problem {
    lgh_plan_options options;
    int64_t tokens;
    int64_t padding; /* elements between rows; not used where the plan has a row_alignment */
    problem_mode temperature, grad_logp, grad_entropy, grad_lse;
    int invalid_temperatures; /* vectors of temperatures have some */
    problem_rows live;
    int accumulate; /* to dbias, and to dweight where it is FP32 */
    int without_targets;
    int without_counters;
    float gradient_scale; /* of the upstream gradients */
    /* Set by problem_open. */
    problem_matrix hidden, weight, dhidden, dweight;
    void *targets, *bias;
    float *logp, *lse, *entropy, *logp_at_one, *dbias;
    int64_t *best;
    lgh_value temperatures, grads_logp, grads_entropy, grads_lse;
    lgh_live live_list;
    lgh_counters counters;
    void *stream;
    void *memory[24]; /* allocations of vectors */
    int memory_count;
} problem;

/** Tokens, hidden size and vocabulary, everything else as INIT says, all outputs wanted. */
problem problem_of(int64_t tokens, int64_t hidden_size, int64_t vocab_size);

/** Allocates and fills the buffers. */
void problem_open(problem *p);
void problem_close(problem *p);

/** Whether the call adds to dweight. */
int problem_adds_to_dweight(const problem *p);

/** The arguments of both passes. */
lgh_forward_args problem_forward_args(const problem *p);
lgh_backward_args problem_backward_args(const problem *p);

/** What dweight and dbias hold before a call that accumulates. */
#define PROBLEM_START 0.25f

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

/** The description of a plan, to be freed. */
char *describe_plan(const lgh_plan *plan);

/** Which of the fake's candidates a plan has taken for the product of that key. */
int chosen_candidate(const lgh_plan *plan, const char *key);

/** Opens the fake device for a test of its own; skips the case without NVRTC. */
lgh_context *open_fake_device(void);

/** Destroys it; the fakes must then hold nothing for the library. */
void close_fake_device(lgh_context *context);

#endif
