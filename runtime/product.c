/* product.c - running a chosen matrix product. */
#include "product.h"

lgh_status lgh__product_run(const lgh__product *product, void *cublaslt, int64_t tokens,
                            int accumulate, const lgh__operands *operands, void *stream) {
    lgh__matmul shape = product->shape;
    if (shape.a_transposed)
        shape.k = tokens;
    else
        shape.m = tokens;
    shape.accumulate = accumulate;
    shape.a_stride = operands->a_stride;
    shape.b_stride = operands->b_stride;
    shape.c_stride = operands->c_stride;
    return lgh__cublaslt_run(cublaslt, &shape, &product->algorithm, operands->a, operands->b,
                             operands->c, NULL, 0, stream);
}
