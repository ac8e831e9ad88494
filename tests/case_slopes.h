/* case_slopes.h - the gradients of a problem as central differences of the float64 oracle. */
#ifndef LGH_CASE_SLOPES_H
#define LGH_CASE_SLOPES_H

#include "case_oracle.h"

/** dhidden, dweight and, where the problem has a bias, dbias of the loss
 *  sum_i g_i logp_i + e_i entropy_i + l_i lse_i; the outputs are left 0. */
case_expected case_expect_slopes(const case_problem *p);

#endif
