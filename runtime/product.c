/* product.c - running a chosen matrix product, and writing the choice down. */
#include "product.h"

#include "error.h"

#include <inttypes.h>
#include <stdio.h>

lgh_status lgh__product_run(const lgh__product *product, void *cublaslt, const lgh__run *run,
                            void *stream) {
    lgh__matmul shape = product->shape;
    if (shape.a_transposed)
        shape.k = run->tokens;
    else
        shape.m = run->tokens;
    shape.accumulate = run->accumulate;
    shape.a_stride = run->a_stride;
    shape.b_stride = run->b_stride;
    shape.c_stride = run->c_stride;
    return lgh__cublaslt_run(cublaslt, &shape, &product->algorithm, &run->operands, stream);
}

void lgh__algorithm_write(char text[LGH__ALGORITHM_TEXT], const lgh__algorithm *algorithm) {
    int used = 0;
    for (int i = 0; i < 8; ++i)
        used += snprintf(text + used, (size_t)(LGH__ALGORITHM_TEXT - used), "%s%" PRIx64,
                         i ? "." : "", algorithm->opaque[i]);
}

lgh_status lgh__algorithm_read(lgh__algorithm *algorithm, const char *text, const char *key) {
    uint64_t *w = algorithm->opaque;
    int used = 0;
    const int words = sscanf(text,
                             "%" SCNx64 ".%" SCNx64 ".%" SCNx64 ".%" SCNx64 ".%" SCNx64 ".%" SCNx64
                             ".%" SCNx64 ".%" SCNx64 "%n",
                             &w[0], &w[1], &w[2], &w[3], &w[4], &w[5], &w[6], &w[7], &used);
    RETURN_IF(words != 8 || text[used] != 0, LGH_ERROR_INVALID_ARGUMENT,
              "options->configuration: %s = %s is no algorithm of cuBLASLt", key, text);
    return LGH_SUCCESS;
}
