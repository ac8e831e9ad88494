/* cublaslt.h - cuBLASLt: matrix products. The only file that calls it is cublaslt.c.
 *
 * Everything here is row-major, as the rest of the library is. cuBLASLt is column-major, where a
 * row-major matrix is its own transpose; cublaslt.c swaps the operands accordingly:
 * C = A B in rows is C^T = B^T A^T in columns.
 */
#ifndef LGH_CUBLASLT_H
#define LGH_CUBLASLT_H

#include "loggerhead/loggerhead.h"

/** C[m, n] = op(A)[m, k] op(B)[k, n] + (accumulate ? C : 0) (+ bias[n]), FP32 accumulation. */
typedef struct lgh__matmul {
    int64_t m, n, k;
    int a_transposed; /* A is stored as [k, m] */
    int b_transposed; /* B is stored as [n, k] */
    int accumulate;
    int has_bias;       /* adds a vector of n to every row */
    int scales;         /* alpha and beta are read from device memory */
    lgh_dtype operands; /* of A and B: LGH_BF16, LGH_FP16 or LGH_FP32, never TF32 */
    lgh_dtype result;   /* of C */
    int64_t a_stride, b_stride, c_stride;      /* row strides in elements */
    int a_alignment, b_alignment, c_alignment; /* of every row's start, in bytes, 2 to 16 */
} lgh__matmul;

/** One of cuBLASLt's ways to compute a product. Plain data; restorable with the same version. */
typedef struct lgh__algorithm {
    uint64_t opaque[8];
} lgh__algorithm;

/** Opens cuBLASLt for the current device. */
lgh_status lgh__cublaslt_open(void **handle);
void lgh__cublaslt_close(void *handle);

/** The version in use, such as 130100; 0 before the first open. */
size_t lgh__cublaslt_version(void);

/**
 * The heuristic's candidates for a product, best first: no workspace, no split over k, so that each
 * element is one sum in one order. *count receives how many of at most `capacity` there are;
 * fails with LGH_ERROR_CUBLASLT if there is none.
 */
lgh_status lgh__cublaslt_candidates(void *handle, const lgh__matmul *shape,
                                    lgh__algorithm *candidates, int capacity, int *count);

/** The same without these limits, for measuring the bare product; needs workspace_bytes to run. */
lgh_status lgh__cublaslt_any_candidates(void *handle, const lgh__matmul *shape,
                                        size_t workspace_bytes, lgh__algorithm *candidates,
                                        int capacity, int *count);

/** Whether an algorithm splits the sum over k, or nothing is known about it. */
int lgh__cublaslt_splits_k(const lgh__algorithm *algorithm);

/** What a product works on; everything lies in device memory. */
typedef struct lgh__operands {
    const void *a, *b;
    void *c;
    const float *bias;         /* [n], where the shape has one; at a multiple of 16 bytes */
    const float *alpha, *beta; /* where the shape scales */
    void *workspace;
    size_t workspace_bytes;
} lgh__operands;

/** Enqueues the product. Allocates nothing, on the host neither. */
lgh_status lgh__cublaslt_run(void *handle, const lgh__matmul *shape,
                             const lgh__algorithm *algorithm, const lgh__operands *operands,
                             void *stream);

#endif
