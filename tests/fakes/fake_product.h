/* fake_product.h - a matrix product on the host, in columns as cuBLASLt has it. */
#ifndef LGH_FAKE_PRODUCT_H
#define LGH_FAKE_PRODUCT_H

#include "fakes.h"

/** A matrix whose element (row, column) lies at data[row + column * stride]. */
typedef struct fake_matrix {
    void *data;
    int64_t rows;
    int64_t columns;
    int64_t stride; /* in elements */
    int type;       /* of lgh_dtype: BF16, FP16 or FP32 */
} fake_matrix;

/** result = alpha op(left) op(right) + beta result (+ bias, one number for each row). */
typedef struct fake_product {
    fake_matrix left, right, result;
    int left_transposed, right_transposed;
    float alpha, beta;
    const float *bias; /* or NULL */
    fake_breakage breakage;
    int64_t runs; /* of this candidate before */
} fake_product;

/**
 * Computes it: each element is one FP32 sum in the order of k. Where a column of the result takes
 * more than 2^21 steps, only the first 4 values of k count: what depends on the operands still
 * depends on them, and equal columns stay equal.
 */
void fake_product_run(const fake_product *product);

#endif
