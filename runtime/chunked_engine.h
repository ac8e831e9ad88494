/* chunked_engine.h - the engine for any GPU that cuBLASLt knows: a product of [token block,
 * vocabulary chunk] logits into the workspace, then row kernels over it. */
#ifndef LGH_CHUNKED_ENGINE_H
#define LGH_CHUNKED_ENGINE_H

#include "chunked_config.h"
#include "cuda_device.h"
#include "plan.h"
#include "product.h"

/** A product for the plan's whole chunks and one for its last, which may count fewer columns. */
typedef struct lgh__chunk_product {
    lgh__product whole;
    lgh__product last; /* the same as whole where the chunks come out even */
} lgh__chunk_product;

/** The row kernels of a plan; those that it never needs stay NULL. */
typedef struct lgh__chunked_kernels {
    void *stats;
    void *dx;
    void *finish_dhidden;
    void *finish_dweight;
    void *gather;
    void *widen_bias;
    void *column_sums;
    void *gradient_scale;
    void *live_rows;
} lgh__chunked_kernels;

/** The state of a plan of this engine. */
typedef struct lgh__chunked {
    lgh__cuda *cuda;
    lgh__chunked_config config;
    lgh__product forward_logits;
    lgh__product backward_logits;
    lgh__chunk_product dhidden;
    lgh__chunk_product dweight;
    lgh__chunked_kernels kernels;
} lgh__chunked;

/**
 * One vocabulary chunk of a plan. The logits of every chunk are a product of the same shape, since
 * another shape may round differently: the last chunk begins early enough to be whole, and skips
 * the columns that the chunk before has counted.
 */
typedef struct lgh__chunk {
    int64_t first;   /* the first of the shard's columns that it counts */
    int64_t columns; /* that it counts */
    int64_t skip;    /* columns of logits before them */
    int is_last;
} lgh__chunk;

/** The chunk of at most `chunk` of `entries` columns that begins at column `first`. */
lgh__chunk lgh__chunk_at(int64_t entries, int64_t chunk, int64_t first);

/** The product of the pair that fits the chunk. */
const lgh__product *lgh__chunk_product_of(const lgh__chunk_product *pair, const lgh__chunk *chunk);

/** The address of row `row` of a matrix. */
const void *lgh__row_of(const lgh_const_matrix *matrix, int64_t row);

/** The engine's parts; chunked_kernels.c, chunked_products.c, chunked_forward.c,
 * chunked_backward.c. */
lgh_status lgh__chunked_load_kernels(lgh__chunked *engine, const lgh_plan_options *options);
lgh_status lgh__chunked_choose_products(lgh__chunked *engine, const lgh_plan *plan);
void lgh__chunked_describe_products(const lgh__chunked *engine, const lgh_plan_options *options,
                                    lgh__text *text);
lgh_status lgh__chunked_forward(const lgh_plan *plan, const lgh_forward_args *args, void *workspace,
                                void *stream);
lgh_status lgh__chunked_live_rows(const lgh_plan *plan, const void *targets, int64_t tokens,
                                  int32_t *rows, int32_t *count, void *stream);
lgh_status lgh__chunked_backward(const lgh_plan *plan, const lgh_backward_args *args,
                                 void *workspace, void *stream);

#endif
