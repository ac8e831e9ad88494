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
    lgh__product last; /* the same as whole where V is a multiple of the chunk */
} lgh__chunk_product;

/** The state of a plan of this engine. */
typedef struct lgh__chunked {
    lgh__cuda *cuda;
    lgh__chunked_config config;
    lgh__product forward_logits;
    lgh__product backward_logits;
    lgh__chunk_product dhidden;
    lgh__chunk_product dweight;
    void *stats; /* kernels */
    void *dx;
    void *round;
} lgh__chunked;

/** Threads of a block of each row kernel. */
#define LGH__STATS_THREADS 128
#define LGH__ROUND_THREADS 256
int lgh__dx_threads(int64_t chunk);

/** The definitions that specialise a plan's row kernels. */
typedef struct lgh__chunked_definitions {
    char stats[256];
    char dx[256];
    char round[64];
} lgh__chunked_definitions;

void lgh__chunked_define(lgh__chunked_definitions *definitions, const lgh_plan_options *options,
                         const lgh__chunked_config *config);

/**
 * One vocabulary chunk of a plan. The logits of every chunk are a product of the same shape, since
 * another shape may round differently: the last chunk begins early enough to be whole, and skips
 * the columns that the chunk before has counted.
 */
typedef struct lgh__chunk {
    int64_t first;   /* the first vocabulary entry that it counts */
    int64_t columns; /* that it counts */
    int64_t skip;    /* columns of logits before them */
    int is_last;
} lgh__chunk;

/** The chunk that begins at entry `first`. */
lgh__chunk lgh__chunk_at(int64_t vocab_size, int64_t chunk, int64_t first);

/** The product of the pair that fits the chunk. */
const lgh__product *lgh__chunk_product_of(const lgh__chunk_product *pair, const lgh__chunk *chunk);

/** The address of row `row` of a matrix. */
const void *lgh__row_of(const lgh_const_matrix *matrix, int64_t row);

/** The engine's passes; chunked_forward.c, chunked_backward.c. */
lgh_status lgh__chunked_forward(const lgh_plan *plan, const lgh_forward_args *args, void *workspace,
                                void *stream);
lgh_status lgh__chunked_backward(const lgh_plan *plan, const lgh_backward_args *args,
                                 void *workspace, void *stream);

#endif
