/* cpu_problem.h - one call of each pass on the CPU device, and how far its results are from the
 * oracle's.
 *
 * Every matrix has gaps between its rows and every vector of values between its elements: those of
 * inputs hold NaN, those of outputs must stay as they were.
 */
#ifndef LGH_CPU_PROBLEM_H
#define LGH_CPU_PROBLEM_H

#include "harness.h"

#include "reference.h"

enum { CPU_PROBLEM_STRIDE = 2 }; /* of temperatures and upstream gradients */

/** Set by cpu_problem_of; change what the case is about, open it, and change the inputs. */
typedef struct cpu_problem {
    lgh_plan_options options;
    int64_t tokens;
    int threads;
    uint64_t seed;    /* of the inputs */
    double scale;     /* of the logits */
    uint32_t outputs; /* LGH_OUTPUT_ bits that the forward call asks for; without lse and entropy
                         there is no backward call */
    int without_targets;
    int without_dhidden, without_dweight;
    int accumulate_dweight, accumulate_dbias;
    lgh_value temperature; /* the host value 0.7, until a case takes `temperatures` */
    lgh_live live;
    const float *lse, *entropy; /* of the backward pass; NULL: what the forward pass gave */
    /* Set by cpu_problem_open. */
    int64_t row_stride;
    void *hidden, *weight, *targets, *bias;
    float *temperatures; /* in [0.4, 2] */
    lgh_value grad_logp, grad_entropy, grad_lse;
    float *upstream[3];   /* what those read */
    void *dweight_before; /* what the results start from */
    float *dbias_before;
} cpu_problem;

/** BF16 operands, int64 targets, FP32 gradients, every output; nothing else. */
cpu_problem cpu_problem_of(int64_t tokens, int64_t hidden_size, int64_t vocab_size);

/** Allocates the inputs and fills them at random; every target is an entry of the weight. */
void cpu_problem_open(cpu_problem *p);
void cpu_problem_close(cpu_problem *p);

/** Gives each token the temperature that it has in `temperatures`. */
void cpu_problem_vary_temperature(cpu_problem *p);

void cpu_problem_set_target(cpu_problem *p, int64_t token, int64_t entry);
void cpu_problem_set_bias(cpu_problem *p, int64_t row, double value);
void cpu_problem_set_weight(cpu_problem *p, int64_t row, int64_t column, double value);
void cpu_problem_set_hidden(cpu_problem *p, int64_t token, int64_t column, double value);

/** The inputs of both passes, whose outputs are not set. */
lgh_forward_args cpu_problem_forward_args(const cpu_problem *p);
lgh_backward_args cpu_problem_backward_args(const cpu_problem *p);

typedef struct cpu_results {
    float *outputs[4]; /* logp, lse, entropy, logp_at_one */
    int64_t *best;
    void *dhidden; /* rows at the problem's row_stride, as dweight's */
    void *dweight;
    float *dbias;
    uint64_t foreign_targets[2]; /* what the forward and the backward pass counted */
    uint64_t invalid_temperatures[2];
} cpu_results;

/** Runs both passes in a context of their own, in workspaces full of NaN. */
cpu_results cpu_problem_run(const cpu_problem *p);
void cpu_results_close(cpu_results *r);

/** Element of a gradient that a run gave. */
double cpu_results_dhidden(const cpu_problem *p, const cpu_results *r, int64_t token, int64_t k);
double cpu_results_dweight(const cpu_problem *p, const cpu_results *r, int64_t row, int64_t k);

/**
 * The largest error of the results against the oracle with these faults, in units of what a single
 * rounding to the result's dtype allows; infinite where an integer, an infinity or a NaN differs.
 * `print` tells which one it was.
 */
double cpu_problem_distance(const cpu_problem *p, const cpu_results *r,
                            const reference_faults *faults, int print);

/** The results are the oracle's, rounded once. */
void cpu_problem_check(const cpu_problem *p, const cpu_results *r);

/** They are far from the oracle's with this fault. */
void cpu_problem_check_fault(const cpu_problem *p, const cpu_results *r, reference_faults faults);

/** Every bit of every result is equal. */
void cpu_problem_check_same(const cpu_problem *p, const cpu_results *a, const cpu_results *b);

/** Runs, checks, and sees each fault: a problem's usual life. */
void cpu_problem_check_all(const cpu_problem *p, const reference_faults *faults, size_t count);

#endif
