/* product.h - a matrix product with an algorithm that was tested for the bitwise promise. */
#ifndef LGH_PRODUCT_H
#define LGH_PRODUCT_H

#include "cublaslt.h"

typedef struct lgh__product {
    lgh__matmul shape; /* the largest; a run may have fewer tokens and other strides */
    lgh__algorithm algorithm;
    int candidate; /* which of the heuristic's it is, for descriptions */
} lgh__product;

/** Operands and result of one run, each a pointer and a row stride in elements. */
typedef struct lgh__operands {
    const void *a, *b;
    void *c;
    int64_t a_stride, b_stride, c_stride;
} lgh__operands;

/** Enqueues the product for `tokens` tokens: m where A holds them as rows, k where transposed. */
lgh_status lgh__product_run(const lgh__product *product, void *cublaslt, int64_t tokens,
                            int accumulate, const lgh__operands *operands, void *stream);

#endif
