/* trial.h - scratch memory on which a plan's products are tried out before use. */
#ifndef LGH_TRIAL_H
#define LGH_TRIAL_H

#include "cuda_device.h"
#include "product.h"

/** Tokens of the products that are chosen: not those of a plan's blocks, so that plans which differ
 * in them alone are offered the same algorithms in the same order, and so give the same bits. */
#define LGH__TRIAL_TOKENS 2048

/** Sizes of the products that are to be tried. */
typedef struct lgh__trial_sizes {
    int64_t tokens; /* of the largest block; a trial runs LGH__TRIAL_TOKENS at most */
    int64_t chunk;  /* columns of the widest vocabulary chunk */
    int64_t stride; /* of that chunk's rows of logits */
    int64_t width;  /* elements from row to row of the hidden size */
    lgh_dtype operands;
} lgh__trial_sizes;

/** Zero-initialise, then lgh__trial_open. */
typedef struct lgh__trial {
    lgh__cuda *cuda;
    int64_t tokens; /* of the longest run */
    size_t element; /* bytes of one of the operands' elements */
    void *stream;
    void *begin, *end; /* events */
    void *compare;     /* the compare_rows kernel */
    void *a, *b, *c;   /* operands: random rows, repeated; result */
    void *reference;   /* rows that every later run must repeat */
    void *bias;        /* random, of a chunk's stride */
    void *scalars;     /* 1 and 0, where alpha and beta are read from device memory */
    void *mismatches;
    lgh__matmul reference_shape; /* of the product that wrote the reference */
    int has_reference;
} lgh__trial;

/** Allocates the scratch and fills the operands. */
lgh_status lgh__trial_open(lgh__trial *trial, lgh__cuda *cuda, const lgh__trial_sizes *sizes);

/** Frees all of it; also after a failed open. */
void lgh__trial_close(lgh__trial *trial);

/** Begins the trials of a shape: lays A's rows out at its stride. The reference is kept, for a
 * shape that must repeat the results of the one before, or dropped: then the first run writes it.
 */
lgh_status lgh__trial_begin(lgh__trial *trial, const lgh__matmul *shape, int keep_reference);

/**
 * Runs the product at lengths around its tiles' ends, overwriting and adding to zeros. *passes
 * tells whether each row came out bit for bit as the reference has it, at every length and
 * position. A product over tokens (a_transposed) must only repeat itself.
 */
lgh_status lgh__trial_test(lgh__trial *trial, const lgh__product *product, int *passes);

/** The shortest of a few runs at the largest length. */
lgh_status lgh__trial_time(lgh__trial *trial, const lgh__product *product, float *milliseconds);

#endif
