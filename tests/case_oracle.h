/* case_oracle.h - what a problem's results must be, right or with a fault, and whether they are
 * within the promises of it. */
#ifndef LGH_CASE_ORACLE_H
#define LGH_CASE_ORACLE_H

#include "case_problem.h"
#include "reference.h"

/** Results of the oracle, or worked out by hand. */
typedef struct case_expected {
    double *logp, *lse, *entropy, *logp_at_one; /* [N] */
    double *dhidden;                            /* [N, D]; NULL without gradients */
    double *dweight;                            /* [V, D] likewise */
    double max_abs_x;                           /* of the logits at T = 1 */
} case_expected;

/** What the problem asks for, without faults. */
reference_options case_options(const case_problem *p);

/** The oracle's results; options NULL: without faults. */
case_expected case_expect_outputs(const case_problem *p, const reference_options *options);
case_expected case_expect(const case_problem *p, const reference_options *options);
void case_expected_destroy(case_expected *e);

/** Room for results that the case works out, all 0. */
case_expected case_expected_create(const case_problem *p, double max_abs_x);

/** Every output that the plan has is within its promise. */
void case_assert_outputs(const case_problem *p, const case_expected *e);

/** Negative control: each of these outputs (LGH_OUTPUT_ bits) is outside, for some token. */
void case_assert_outputs_outside(const case_problem *p, const case_expected *faulty,
                                 uint32_t outputs);

/** What the gradient promise is about, each by itself. */
enum {
    CASE_DHIDDEN = 1,
    CASE_TARGET_ROWS = 2, /* dweight rows that are the target of a token that counts */
    CASE_OTHER_ROWS = 4,
    CASE_DWEIGHT = 6,
    CASE_GRADIENTS = 7
};

/** Relative L2 error of one of them; 0 where there is nothing of it. */
double case_gradient_error(const case_problem *p, const case_expected *e, int part);

/** Each of these parts (CASE_ bits) that the plan has is within its promise. */
void case_assert_gradients(const case_problem *p, const case_expected *e, int parts);

/** Negative control: each of these parts is outside. */
void case_assert_gradients_outside(const case_problem *p, const case_expected *faulty, int parts);

#endif
