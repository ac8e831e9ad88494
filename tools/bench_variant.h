/* bench_variant.h - the ways to cut one of the three big products into matrix products.
 *
 * What the bench calls the product, everywhere: the fastest of the whole, of vocabulary chunks of
 * 8192, 16384 or 32768 columns, and of token chunks of 2048 rows, for each of
 *
 *     logits   [N, V]  = hidden weight^T     result of the operands' dtype
 *     dhidden  [N, D]  = logits weight       likewise; FP32 and accumulated over vocabulary
 *                                            chunks, where 16 bits would round every partial sum
 *     dweight  [V, D] += logits^T hidden     FP32 result, accumulated into what is there
 *
 * The logits stand for dx, which has their shape and dtype. Chunks share one buffer, as they do in
 * any implementation that keeps no whole logits.
 */
#ifndef LGH_TOOL_BENCH_VARIANT_H
#define LGH_TOOL_BENCH_VARIANT_H

#include "bench_shape.h"

#include "cublaslt.h"

typedef enum lgh_tool_product_kind {
    LGH_TOOL_LOGITS,
    LGH_TOOL_DHIDDEN,
    LGH_TOOL_DWEIGHT,
    LGH_TOOL_PRODUCT_KINDS
} lgh_tool_product_kind;

typedef enum lgh_tool_cut { LGH_TOOL_WHOLE, LGH_TOOL_CUT_VOCAB, LGH_TOOL_CUT_TOKENS } lgh_tool_cut;

typedef struct lgh_tool_variant {
    lgh_tool_shape shape;
    lgh_tool_product_kind kind;
    lgh_tool_cut cut;
    int64_t step; /* columns or rows of a chunk, the last one apart */
    lgh_dtype operands;
} lgh_tool_variant;

/* One matrix product of a variant; offsets are in bytes from the start of a, b and c. */
typedef struct lgh_tool_block {
    lgh__matmul matmul;
    size_t a, b, c;
} lgh_tool_block;

#define LGH_TOOL_CUTS 5

/** The cuts of a kind, at most LGH_TOOL_CUTS; those that would leave one chunk are left out. */
int lgh_tool_variants(lgh_tool_variant *variants, const lgh_tool_shape *shape,
                      lgh_tool_product_kind kind, lgh_dtype operands);

int64_t lgh_tool_variant_blocks(const lgh_tool_variant *variant);
lgh_tool_block lgh_tool_variant_block(const lgh_tool_variant *variant, int64_t index);

/** The bytes of the buffer for logits that the variant needs. */
size_t lgh_tool_variant_logits_bytes(const lgh_tool_variant *variant);

/** Such as "whole" or "vocabulary chunks of 8192". */
void lgh_tool_variant_name(const lgh_tool_variant *variant, char *text, size_t capacity);

#endif
