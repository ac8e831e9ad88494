/* bench_check.h - what the bench's results are compared with: float64 on the host, and promises. */
#ifndef LGH_TOOL_BENCH_CHECK_H
#define LGH_TOOL_BENCH_CHECK_H

#include "bench_data.h"

/** Up to `count` distinct indices below `limit`, spread evenly, both ends among them; how many. */
int64_t lgh_tool_spread(int64_t *indices, int64_t count, int64_t limit);

/** Up to `count` distinct vocabulary entries that are some token's target (`wanted` 1), or no
 *  token's (0); *found receives how many. */
lgh_status lgh_tool_vocab_sample(const lgh_tool_tensors *tensors, int wanted, int64_t *entries,
                                 int64_t count, int64_t *found);

/**
 * Rows of dweight = dx^T hidden in float64, for g = dL/dlogp alone:
 *
 *     dx_iv = g_i (1[v = target(i)] - exp(x_iv / T - lse_i)) / T
 *
 * rows[r * D ..] receives the row of entries[r]. *largest, if not NULL, is raised to the largest
 * |x_iv / T| met. `lse` is that of every token.
 */
lgh_status lgh_tool_dweight_rows(const lgh_tool_tensors *tensors, const float *lse,
                                 const int64_t *entries, int64_t count, double *rows,
                                 double *largest, lgh__threads *threads);

/** The largest |actual - expected|; a NaN if any difference is one. */
double lgh_tool_largest_error(const float *actual, const double *expected, int64_t count);

/** |actual - expected|_2 / |expected|_2; 0 where both are 0, a NaN if any difference is one. */
double lgh_tool_l2_error(const float *actual, const double *expected, int64_t count);

/** The promised bound on the absolute error of logp, lse and entropy of BF16 operands. */
double lgh_tool_promise(double largest, int64_t hidden_size);

/* The promised bounds on the relative L2 error of gradients of BF16 operands. */
#define LGH_TOOL_PROMISE_GRADIENT_FP32 2.5e-3
#define LGH_TOOL_PROMISE_GRADIENT_BF16 4e-3

#endif
