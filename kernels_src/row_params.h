/* row_params.h - the parameter struct of each row kernel, read by the host and by NVRTC alike.
 *
 * In the chunk_ kernels rows are tokens of the current token block, and the logits' columns are
 * those of the current vocabulary chunk. chunk_stats gives each row a warp, the others a block of
 * threads.
 */
#ifndef LGH_ROW_PARAMS_H
#define LGH_ROW_PARAMS_H

/* lgh_value of loggerhead.h. */
typedef struct lgh_device_value {
    const float *data; /* of token 0, or null: host is the value */
    long long stride;
    float host;
} lgh_device_value;

/* Which tokens the rows of a token block are: row r stands at position first + r of the call's
 * list. */
typedef struct lgh_block_rows {
    long long first;
    long long rows;
    long long tokens;      /* N of the call */
    const int *live;       /* the token at each position, or null: the position itself */
    const int *live_count; /* positions that count, or null: all */
} lgh_block_rows;

/* The targets of a call, for kernels that are compiled for either dtype at once. */
typedef struct lgh_token_targets {
    const void *data; /* of token 0, or null: every row counts */
    int are_int32;    /* else int64 */
    long long ignore_index;
} lgh_token_targets;

/* A row's statistics between two vocabulary chunks; members as lgh_row_stats in FP32. */
typedef struct lgh_stored_stats {
    float max;
    float sum;
    float weighted;
    float sum_at_one;
    float target; /* the target's logit, once its chunk has passed */
    int best;     /* column of the shard, -1: none yet */
} lgh_stored_stats;

/* What the kernels of a chunk know about their place. */
typedef struct lgh_chunk_place {
    float *logits;    /* [rows, skip + columns], 16-byte aligned */
    long long stride; /* of the logits' rows, in elements, a multiple of 4 */
    int skip;         /* leading columns that an earlier chunk has counted */
    int columns;      /* that this chunk counts */
    int first_column; /* the shard's column that logits' column `skip` is */
    int is_first;
    int is_last;
    float softcap;
    lgh_block_rows block;
    long long vocab_start; /* the entry of the shard's column 0 */
    long long shard_size;  /* the shard's columns, without padding */
    long long vocab_valid; /* entries of the whole vocabulary */
    const void *targets;   /* of token 0, or null: every row counts */
    long long ignore_index;
    lgh_device_value temperature;
    unsigned long long *foreign_targets; /* counters, or null */
    unsigned long long *invalid_temperatures;
} lgh_chunk_place;

/* chunk_stats.cu: merges the chunk into stats; the last chunk writes the outputs. */
typedef struct lgh_chunk_stats_params {
    lgh_chunk_place place;
    lgh_stored_stats *stats; /* [rows] */
    float *logp;             /* of token 0 each, or null */
    float *lse;
    float *entropy;
    float *logp_at_one;
    long long *best;
} lgh_chunk_stats_params;

/* dL/d of each token's outputs, with what bounds the gradient of its logits:
 * |dx| <= (|grad_logp| + |grad_lse| + entropy_weight |grad_entropy|) / T. */
typedef struct lgh_token_gradients {
    lgh_device_value grad_logp;
    lgh_device_value grad_entropy;
    lgh_device_value grad_lse;
    lgh_device_value temperature;
    float entropy_weight;
} lgh_token_gradients;

/* FP16 gradients of a token's logits are multiplied by a power of two that follows from the token's
 * bound alone, so that dhidden does not depend on other tokens. For dweight, which sums over
 * tokens, hidden is multiplied by `scale` over the token's power, at most 1, and the product by
 * `inverse`: here for the largest bound of a call. The product reads its beta here too. */
typedef struct lgh_gradient_scale {
    float scale;
    float inverse;
    float one;
    float zero;
} lgh_gradient_scale;

/* chunk_dx.cu: overwrites each row of logits with its gradient, packed at its start. */
typedef struct lgh_chunk_dx_params {
    lgh_chunk_place place;
    int softmax_for_foreign; /* LGH_OOV_SOFTMAX */
    const float *lse;        /* of token 0 */
    const float *entropy;    /* likewise, or null where grad_entropy is the host value 0 */
    lgh_token_gradients gradients;
} lgh_chunk_dx_params;

/* gradient_scale.cu: one block of threads over all rows that have a gradient. */
typedef struct lgh_gradient_scale_params {
    lgh_gradient_scale *scale;
    lgh_block_rows rows; /* every position of the call */
    lgh_token_targets targets;
    long long vocab_valid;
    int softmax_for_foreign;
    lgh_token_gradients gradients;
} lgh_gradient_scale_params;

/* gather_rows.cu: brings a block's rows of hidden together; rows that do not count become 0. */
typedef struct lgh_gather_rows_params {
    const void *from;      /* row of token 0 */
    void *to;              /* row 0 of the block */
    long long from_stride; /* in elements, as is the next */
    long long to_stride;
    long long columns;
    lgh_block_rows block;
    const lgh_gradient_scale *scale; /* null: rows are left as they are */
    lgh_token_gradients gradients;   /* where there is a scale */
} lgh_gather_rows_params;

/* finish_rows.cu: rounds staged FP32 rows and puts them at their tokens. Rows that count and have
 * an invalid temperature become NaN; with from null nothing else is written. */
typedef struct lgh_finish_rows_params {
    const float *from; /* row 0 of the block, or null; FP32 rows may be finished in place */
    void *to;          /* row of token 0 */
    long long from_stride;
    long long to_stride;
    long long columns;
    lgh_block_rows block;
    lgh_token_targets targets;
    int is_scaled; /* the rows are sums of FP16 gradients */
    lgh_token_gradients gradients;
} lgh_finish_rows_params;

/* column_sums.cu: dbias of a chunk, from its gradients. */
typedef struct lgh_column_sums_params {
    const void *dx;   /* [block.rows, columns] */
    long long stride; /* in elements */
    int columns;
    int accumulate;
    float *sums; /* [columns] */
    lgh_block_rows block;
    lgh_token_gradients gradients;
} lgh_column_sums_params;

/* widen_bias.cu: one block of threads per chunk of a row of FP32 biases. */
typedef struct lgh_widen_bias_params {
    const void *bias; /* [shard_size] */
    float *to;        /* [chunks, stride] */
    long long stride;
    long long chunk; /* columns of a whole chunk */
    long long shard_size;
} lgh_widen_bias_params;

/* live_rows.cu: one block of threads; the tokens whose target is not ignored, in order. */
typedef struct lgh_live_rows_params {
    const void *targets; /* [tokens] */
    long long tokens;
    long long ignore_index;
    int *rows;  /* [tokens] */
    int *count; /* how many were written */
} lgh_live_rows_params;

/* compare_rows.cu: counts the rows that differ from reference row (row mod period). */
typedef struct lgh_compare_rows_params {
    const unsigned short *rows;
    long long row_stride; /* in 16-bit words, as are the next two */
    const unsigned short *reference;
    long long reference_stride;
    long long words; /* compared of each row */
    int period;
    unsigned *mismatches; /* added to */
} lgh_compare_rows_params;

#endif
