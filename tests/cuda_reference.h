/* cuda_reference.h - what a problem's passes have to give: sums over whole rows of logits in
 * double, written as the definitions of loggerhead.h stand there. */
#ifndef LGH_CUDA_REFERENCE_H
#define LGH_CUDA_REFERENCE_H

#include "cuda_problem.h"

typedef enum reference_kind {
    ROW_IGNORED,
    ROW_WITHOUT_TARGET,
    ROW_FOREIGN,
    ROW_REMOTE,
    ROW_LOCAL
} reference_kind;

typedef struct reference_row {
    reference_kind kind; /* ROW_IGNORED for every row that does not count */
    int64_t target;      /* row of the weight of a local one, else -1 */
    double temperature;
    int is_invalid; /* the temperature of a row that counts */
} reference_row;

/** Rows of the weight that are no padding. */
int64_t reference_entries(const problem *p);

reference_row reference_row_of(const problem *p, int64_t token);

double reference_element(const problem_matrix *m, int64_t row, int64_t column);

/** The logits of a row, after the softcap; to be freed. */
double *reference_logits(const problem *p, int64_t token);

typedef struct reference_statistics {
    double lse, lse_at_one, entropy;
    int64_t best;
} reference_statistics;

reference_statistics reference_statistics_of(const problem *p, const double *x, double temperature);

/** What FP16 gradients are multiplied by: the largest power of two that keeps them below 8192. */
double reference_scale(const problem *p);

/** The gradients of the row's logits as the kernel stores them, without their scale; all 0 for a
 * row that has none. lse and entropy are those that the forward pass has written. To be freed. */
double *reference_gradients(const problem *p, int64_t token, double scale);

#endif
