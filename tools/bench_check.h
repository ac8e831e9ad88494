/* bench_check.h - what the bench's results are compared with: float64 on the host, and promises. */
#ifndef LGH_TOOL_BENCH_CHECK_H
#define LGH_TOOL_BENCH_CHECK_H

#include "bench_data.h"
#include "bench_feature.h"

/** Up to `count` distinct indices below `limit`, spread evenly, both ends among them; how many. */
int64_t lgh_tool_spread(int64_t *indices, int64_t count, int64_t limit);

/** Up to `count` distinct vocabulary entries that are some token's target (`wanted` 1), or no
 *  token's (0); *found receives how many. */
lgh_status lgh_tool_vocab_sample(const lgh_tool_tensors *tensors, int wanted, int64_t *entries,
                                 int64_t count, int64_t *found);

/** What the forward pass found out about every token; entropy only where it has a gradient. */
typedef struct lgh_tool_tokens_seen {
    const float *lse;
    const float *entropy;
} lgh_tool_tokens_seen;

/**
 * Rows of dweight = dx^T hidden and of dbias in float64, as the public header defines dx for the
 * feature. dweight[r * D ..] receives the row of entries[r], dbias[r] its sum of dx. *largest is
 * raised to the largest |z| met.
 */
lgh_status lgh_tool_dweight_rows(const lgh_tool_tensors *tensors, const lgh_tool_feature *feature,
                                 const lgh_tool_tokens_seen *seen, const int64_t *entries,
                                 int64_t count, double *dweight, double *dbias, double *largest,
                                 lgh__threads *threads);

/** The softmax temperature of a token. */
double lgh_tool_temperature(const lgh_tool_tensors *tensors, const lgh_tool_feature *feature,
                            int64_t token);

/** hidden_i . weight_v (+ bias_v), before rounding, softcap and temperature. */
lgh_status lgh_tool_logit(double *logit, const lgh_tool_tensors *tensors,
                          const lgh_tool_feature *feature, int64_t token, int64_t entry);

/** The largest |actual - expected|; a NaN if any difference is one. */
double lgh_tool_largest_error(const float *actual, const float *expected, int64_t count);

/** |actual - expected|_2 / |expected|_2; 0 where both are 0, a NaN if any difference is one. */
double lgh_tool_l2_error(const float *actual, const double *expected, int64_t count);

/** The promised bound on the absolute error of logp, lse and entropy, for operands of a dtype. */
double lgh_tool_promise(lgh_dtype operands, double largest, int64_t hidden_size);

/** The promised bound on the relative L2 error of gradients. */
double lgh_tool_promise_gradient(lgh_dtype operands, lgh_dtype result, int64_t hidden_size);

/** The bound that dbias is held to: half a unit in the last place of BF16, where a few terms, each
 *  rounded to it, make up the sums; for other dtypes the promise of gradients. */
double lgh_tool_bound_dbias(lgh_dtype operands, int64_t hidden_size);

/** What rounding the logits may add to a scaled logit: one that is on the edge between two numbers
 *  of `rounding` may fall on either side. */
double lgh_tool_allowance(lgh_dtype rounding, double largest);

/** What it may add to gradients, where a scaled logit is off by as much as `promise`: the share
 *  promise / allowance of the logits changes sides, each by the allowance. */
double lgh_tool_allowance_gradient(double promise, double allowance);

#endif
