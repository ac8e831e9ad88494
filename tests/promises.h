/* promises.h - the accuracy that the library promises, and what follows from it: every tolerance of
 * the numeric tests. */
#ifndef LGH_PROMISES_H
#define LGH_PROMISES_H

#include "loggerhead/loggerhead.h"

/* Accumulators lose more the longer the sums are; the bounds hold as they are up to D = 1024. */
static inline double promise_depth(int64_t hidden_size) {
    return hidden_size > 1024 ? (double)hidden_size / 1024.0 : 1.0;
}

/** Absolute error of logp, lse and entropy; max_abs_z is the largest scaled logit's magnitude. */
static inline double promise_outputs(double max_abs_z, int64_t hidden_size, lgh_dtype operands) {
    double at_zero = operands == LGH_FP32 ? 1e-5 : 2e-5;
    return at_zero * (1.0 + max_abs_z / 8.0) * promise_depth(hidden_size);
}

/** Relative L2 error of dhidden, of the dweight rows that are some token's target, and of those
 *  that are none, each by itself. */
static inline double promise_gradients(lgh_dtype operands, lgh_dtype result, int64_t hidden_size) {
    if (result != LGH_FP32)
        return 4e-3;
    return operands == LGH_FP32 ? 1e-5 * promise_depth(hidden_size) : 2.5e-3;
}

/** The same against central differences of the float64 oracle, which have an error of their own. */
static inline double promise_slopes(lgh_dtype operands) {
    return operands == LGH_FP32 ? 1e-4 : 2.5e-3;
}

/** How many units in the last place of its format a rounded logit may be off the float64 one, where
 *  the sum before the rounding is not exact. */
#define PROMISE_ROUNDED_ULPS 1

/** |sum of dbias| of one token without grad_lse, against the sum of magnitudes; and |sum of p - 1|.
 *  16-bit operands round each dx. */
static inline double promise_dbias_sum(lgh_dtype operands) {
    return operands == LGH_FP32 ? 3e-5 : 0x1p-8;
}
#define PROMISE_PROBABILITY_SUM 3e-5

/** Absolute error of logp at D = 4096, V = 151936 and max|z| about 30, which 16-bit logits miss. */
#define PROMISE_WIDE_LOGP 4e-4

/** Absolute error against the unfused path, where every logit is exact before it is rounded. */
static inline double promise_unfused(double max_abs_z) {
    return 1e-6 * (1.0 + max_abs_z);
}

/** What dividing a BF16 weight by the temperature costs at least, on the operands of that test. */
#define PROMISE_DIVIDED_WEIGHT_SHOWS 1e-2

/** Absolute error of logp where 2^18 logits are equal and exact. */
#define PROMISE_UNIFORM_LOGP 1e-5

/** A column sum of dweight that is 0, against the sum of its magnitudes, for temperatures whose
 *  softmax derivatives are exact in 16 bits. */
#define PROMISE_COLUMN_SUM 1e-4

#endif
