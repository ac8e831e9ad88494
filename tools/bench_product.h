/* bench_product.h - the bare matrix products that everything is measured against. */
#ifndef LGH_TOOL_BENCH_PRODUCT_H
#define LGH_TOOL_BENCH_PRODUCT_H

#include "bench_buffers.h"
#include "bench_variant.h"

/* Where products read and write: device memory. */
typedef struct lgh_tool_operands {
    void *cublaslt;
    const lgh_tool_buffers *buffers; /* weight, and dweight, whose content is lost */
    const void *hidden;              /* of the buffers, or converted */
    void *converted;
    void *logits;        /* holds logits once the logits product has run */
    size_t logits_bytes; /* variants that need more are left out */
    void *workspace;
} lgh_tool_operands;

/* A variant with the fastest algorithm of its blocks. */
typedef struct lgh_tool_product {
    const lgh_tool_operands *operands;
    lgh_tool_variant variant;
    lgh__algorithm algorithm; /* of every block but a shorter last one */
    lgh__algorithm last;      /* of the last block */
} lgh_tool_product;

/** Allocates what products need beside the buffers, which are on a GPU. A hidden that is narrower
 *  than the weight is converted here, once. */
lgh_status lgh_tool_operands_open(lgh_tool_operands *operands, const lgh_tool_buffers *buffers);
void lgh_tool_operands_close(lgh_tool_operands *operands);

/**
 * Finds the fastest variant of a kind: of each block the best of the heuristic's first 8
 * algorithms, then of the variants the best. Select LGH_TOOL_LOGITS first: its whole fills the
 * buffer that the others read.
 */
lgh_status lgh_tool_product_select(lgh_tool_product *product, const lgh_tool_operands *operands,
                                   lgh_tool_product_kind kind, int runs);

/** A lgh_tool_work on a lgh_tool_product: all of its blocks. */
lgh_status lgh_tool_product_run(void *product, void *stream);

#endif
