/* product.h - a matrix product with the algorithm that was chosen for it. */
#ifndef LGH_PRODUCT_H
#define LGH_PRODUCT_H

#include "cublaslt.h"

typedef struct lgh__product {
    lgh__matmul shape; /* the largest; a run may have fewer tokens and other strides */
    lgh__algorithm algorithm;
} lgh__product;

/** What differs from run to run. */
typedef struct lgh__run {
    int64_t tokens; /* m where A holds them as rows, k where it is transposed */
    int accumulate;
    int64_t a_stride, b_stride, c_stride;
    lgh__operands operands;
} lgh__run;

/** Enqueues the product. */
lgh_status lgh__product_run(const lgh__product *product, void *cublaslt, const lgh__run *run,
                            void *stream);

/** An algorithm as text without blanks, and back; a failure names the configuration's key. */
#define LGH__ALGORITHM_TEXT 160
void lgh__algorithm_write(char text[LGH__ALGORITHM_TEXT], const lgh__algorithm *algorithm);
lgh_status lgh__algorithm_read(lgh__algorithm *algorithm, const char *text, const char *key);

#endif
