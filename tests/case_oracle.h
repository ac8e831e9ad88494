/* case_oracle.h - what a problem's results must be, right or with a fault, and whether they are
 * within the promises of it.
 *
 * A fault that is another problem needs no oracle that is wrong: change a copy of the problem, and
 * expect of that. */
#ifndef LGH_CASE_ORACLE_H
#define LGH_CASE_ORACLE_H

#include "case_problem.h"
#include "reference.h"

/** Results of the oracle, or worked out by hand. */
typedef struct case_expected {
    double *logp, *lse, *entropy, *logp_at_one; /* [N] */
    int64_t *best;                              /* [N]; those of 0 tokens where by hand */
    double *dhidden;                            /* [N, D] */
    double *dweight;                            /* [V, D] */
    double *dbias;                              /* [V] */
    uint64_t foreign_targets;                   /* what each call counts */
    uint64_t invalid_temperatures;
    double max_abs_x; /* of the finite logits at T = 1 */
} case_expected;

/** The oracle's results; faults NULL: none. case_expect_outputs leaves the gradients 0. */
case_expected case_expect_outputs(const case_problem *p, const reference_faults *faults);
case_expected case_expect(const case_problem *p, const reference_faults *faults);
void case_expected_destroy(case_expected *e);

/** The results with W / T, rounded to this dtype, as the weight at a temperature of 1. */
case_expected case_expect_divided_weight(const case_problem *p, lgh_dtype rounding);

/** Room for results that the case works out, all 0. */
case_expected case_expected_create(const case_problem *p, double max_abs_x);

/** The arguments that the oracle, or the library on the CPU device, reads in host memory, with
 *  these options. The targets are INT64. */
lgh_plan_options case_host_options(const case_problem *p);
lgh_forward_args case_host_forward_args(const case_problem *p);
lgh_backward_args case_host_backward_args(const case_problem *p);

/** x in float64, with bias and softcap, as it is before any rounding. */
double case_logit(const case_problem *p, int64_t token, int64_t entry);

/** The dtype that the promises are about: that of the product. */
lgh_dtype case_product_dtype(const case_problem *p);

/** logp, lse, entropy and logp_at_one that the plan has are within their promises; NaNs where they
 *  are expected. */
void case_assert_outputs(const case_problem *p, const case_expected *e);

/** The same with this tolerance in place of the promises. */
void case_assert_outputs_close(const case_problem *p, const case_expected *e, double tolerance);

/** Each of these outputs (LGH_OUTPUT_ bits) is outside its promise, for some token. */
void case_assert_outputs_outside(const case_problem *p, const case_expected *faulty,
                                 uint32_t outputs);

/** best is the expected one, or one whose logit the promise cannot tell from that one's. */
void case_assert_best(const case_problem *p, const case_expected *e);

/** Both passes counted what is expected. */
void case_assert_counters(const case_problem *p, const case_expected *e);

/** What the gradient promise is about, each by itself. */
enum {
    CASE_DHIDDEN = 1,
    CASE_TARGET_ROWS = 2, /* dweight rows that are the target of a token that counts */
    CASE_OTHER_ROWS = 4,
    CASE_DWEIGHT = 6,
    CASE_GRADIENTS = 7,
    CASE_DBIAS = 8,
    CASE_ALL_GRADIENTS = 15
};

/** Relative L2 error of one of them; 0 where there is nothing of it, infinite where a NaN or an
 *  infinity is not the expected one. */
double case_gradient_error(const case_problem *p, const case_expected *e, int part);

/** Each of these parts (CASE_ bits) that the plan has is within its promise. */
void case_assert_gradients(const case_problem *p, const case_expected *e, int parts);

/** Each of these parts is outside. */
void case_assert_gradients_outside(const case_problem *p, const case_expected *faulty, int parts);

#endif
