/* reference.h - the oracle: float64 results of both passes for the arguments that the library gets,
 * written to be obviously right and nothing else, and wrong on purpose where a test wants to see a
 * fault found. It shares no code with the library.
 */
#ifndef LGH_REFERENCE_H
#define LGH_REFERENCE_H

#include "loggerhead/loggerhead.h"

/* Faults for negative controls; all zero is right. */
typedef struct reference_faults {
    int divided_weight;          /* uses weight / T, rounded to BF16, in place of logits / T */
    int shared_temperature;      /* uses token 0's T for every token */
    int64_t padded_columns;      /* counts so many columns past the weight, of logit 0 */
    int padding_left_in;         /* counts the weight's rows at and past vocab_valid */
    int max_from_zero;           /* never lets the subtracted maximum fall below 0; sums in float */
    int exact_logits;            /* does not round them */
    int rounded_after_softcap;   /* rounds the capped logit */
    int bias_after_softcap;      /* adds the bias to the rounded and capped logit */
    int highest_best;            /* takes the highest entry on ties */
    int local_best;              /* counts best from the weight's first row */
    int first_entry_for_foreign; /* takes the weight's first row for a target that it lacks */
    int remote_as_unknown;       /* takes another shard's target as out of vocabulary */
    int every_row;               /* works on rows that the live list leaves out */
    int shared_gradient;         /* uses token 0's grad_logp for every token */
    int flat_softcap;            /* leaves the softcap's slope out of the gradient */
    lgh_dtype rounded_gradients; /* rounds each dx to this dtype, as the CUDA device does */
} reference_faults;

/* Results of the forward pass, one per token; NULL: not wanted. */
typedef struct reference_outputs {
    double *logp;
    double *lse;
    double *entropy;
    double *logp_at_one;
    int64_t *best;
    uint64_t foreign_targets; /* what the call adds to its counters */
    uint64_t invalid_temperatures;
} reference_outputs;

/** Reads the inputs in args, all of them in host memory, and none of its outputs. Where neither
 *  targets nor a log-prob are given, every token counts. faults NULL: none. */
void reference_forward(const lgh_plan_options *options, const lgh_forward_args *args,
                       const reference_faults *faults, reference_outputs *outputs);

/* What lgh_backward would write where it overwrites, contiguous; NULL: not wanted. */
typedef struct reference_gradients {
    double *dhidden; /* [N, D] */
    double *dweight; /* [V, D] */
    double *dbias;   /* [V] */
} reference_gradients;

/** lse and entropy are those of args, where args has them, and the oracle's own otherwise. */
void reference_backward(const lgh_plan_options *options, const lgh_backward_args *args,
                        const reference_faults *faults, const reference_gradients *gradients);

/** Element i of an array of numbers. */
double reference_element(const void *array, lgh_dtype dtype, int64_t i);

/** The nearest number of the dtype, ties to even; infinity past the largest. */
double reference_round(double value, lgh_dtype dtype);

#endif
