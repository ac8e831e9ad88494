/* case_copy.h - a copy of a problem's results, with which those of later calls are compared bit for
 * bit. */
#ifndef LGH_CASE_COPY_H
#define LGH_CASE_COPY_H

#include "case_problem.h"

/** What the passes wrote; gradients of 16 bits are widened, which keeps their bits. */
typedef struct case_copy {
    float *outputs[4]; /* logp, lse, entropy, logp_at_one */
    int64_t *best;
    float *dhidden;
    float *dweight;
    float *dbias;
} case_copy;

case_copy case_copy_of(const case_problem *p);
void case_copy_destroy(case_copy *copy);

/** Whether token `i` has the outputs and, unless that is absent, the row of dhidden that token
 *  `there` has in the copy. */
int case_token_is_same(const case_problem *p, int64_t i, const case_copy *copy, int64_t there);

/** Whether every output of token `i` and its row of dhidden are 0, and best is -1. */
int case_token_is_zero(const case_problem *p, int64_t i);

/** Fail the case unless all tokens, the sums over tokens, or both are the same. */
void case_assert_same_tokens(const case_problem *p, const case_copy *copy);
void case_assert_same_sums(const case_problem *p, const case_copy *copy);
void case_assert_same(const case_problem *p, const case_copy *copy);

#endif
