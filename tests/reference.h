/* reference.h - the oracle: float64 log-probs, entropies and gradients, written to be obviously
 * right and nothing else, and wrong on purpose where a test wants to see a fault found. */
#ifndef LGH_REFERENCE_H
#define LGH_REFERENCE_H

#include "loggerhead/loggerhead.h"

typedef enum reference_rounding {
    REFERENCE_EXACT = 0,
    REFERENCE_BF16, /* what the plan option logits_rounding = LGH_BF16 asks for */
    REFERENCE_FP16
} reference_rounding;

/* Faults for negative controls; all zero is right. */
typedef struct reference_faults {
    int divided_weight;     /* uses weight / T, rounded to BF16, in place of logits / T */
    int64_t padded_columns; /* counts so many columns past the vocabulary, of logit 0 */
    int shared_gradient;    /* uses token 0's grad_logp for every token */
    int max_from_zero;      /* never lets the subtracted maximum fall below 0; sums in float */
} reference_faults;

typedef struct reference_options {
    double temperature; /* as the call's float holds it: (double)0.7f, not 0.7 */
    lgh_dtype targets_dtype;
    int64_t ignore_index;
    reference_rounding logits_rounding;
    reference_faults faults;
} reference_options;

#define REFERENCE_OPTIONS_INIT                                                                     \
    {                                                                                              \
        1.0, LGH_INT64, -100, REFERENCE_EXACT, {                                                   \
            0, 0, 0, 0                                                                             \
        }                                                                                          \
    }

/* Results of the forward pass, one per token; NULL: not wanted. */
typedef struct reference_outputs {
    double *logp;
    double *lse;
    double *entropy;
    double *logp_at_one;
} reference_outputs;

/** targets NULL: every token counts and has no log-prob (0). */
void reference_forward(const lgh_const_matrix *hidden, const lgh_const_matrix *weight,
                       const void *targets, const reference_options *options,
                       const reference_outputs *outputs);

/* Upstream gradients, one per token; NULL: 0. */
typedef struct reference_upstream {
    const double *grad_logp;
    const double *grad_entropy;
    const double *grad_lse;
} reference_upstream;

/** Overwrites dhidden [N, D] and dweight [V, D], both contiguous; NULL: not wanted. */
void reference_backward(const lgh_const_matrix *hidden, const lgh_const_matrix *weight,
                        const void *targets, const reference_options *options,
                        const reference_upstream *upstream, double *dhidden, double *dweight);

/** The nearest FP16 number, ties to even; infinity past the largest. */
double reference_round_fp16(double value);

#endif
