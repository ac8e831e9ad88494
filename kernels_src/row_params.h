/* row_params.h - the parameter struct of each row kernel, read by the host and by NVRTC alike.
 *
 * In the chunk_ kernels rows are tokens of the current token block, and the logits' columns are
 * those of the current vocabulary chunk. chunk_stats gives each row a warp, the others a block of
 * threads.
 */
#ifndef LGH_ROW_PARAMS_H
#define LGH_ROW_PARAMS_H

/* lgh_value of loggerhead.h, with data already moved to the token block's first row. */
typedef struct lgh_device_value {
    const float *data; /* null: host is the value */
    long long stride;
    float host;
} lgh_device_value;

/* A row's statistics between two vocabulary chunks; members as lgh_row_stats in FP32. */
typedef struct lgh_stored_stats {
    float max;
    float sum;
    float weighted;
    float sum_at_one;
    float target; /* the target's logit, once its chunk has passed */
} lgh_stored_stats;

/* What both kernels of a chunk know about their place. */
typedef struct lgh_chunk_place {
    float *logits; /* [rows, skip + columns], 16-byte aligned */
    long long rows;
    long long stride;       /* of the logits' rows, in elements, a multiple of 4 */
    int skip;               /* leading columns that an earlier chunk has counted */
    int columns;            /* that this chunk counts, <= LGH_CHUNK */
    long long first_column; /* the vocabulary entry of column `skip` */
    long long vocab_size;
    const void *targets; /* of the token block, or null: every row counts */
    long long ignore_index;
} lgh_chunk_place;

/* chunk_stats.cu: merges the chunk into stats; the last chunk writes the outputs. */
typedef struct lgh_chunk_stats_params {
    lgh_chunk_place place;
    lgh_device_value temperature;
    lgh_stored_stats *stats; /* [rows] */
    int is_first;            /* stats holds nothing yet */
    int is_last;
    float *logp; /* [rows] each, or null */
    float *lse;
    float *entropy;
    float *logp_at_one;
} lgh_chunk_stats_params;

/* chunk_dx.cu: overwrites each row of FP32 logits with its BF16 gradient, packed at its start. */
typedef struct lgh_chunk_dx_params {
    lgh_chunk_place place;
    lgh_device_value temperature;
    const float *lse;     /* [rows] */
    const float *entropy; /* [rows], or null where grad_entropy is the host value 0 */
    lgh_device_value grad_logp;
    lgh_device_value grad_entropy;
    lgh_device_value grad_lse;
} lgh_chunk_dx_params;

/* round_rows.cu: rounds a staged FP32 matrix to BF16. */
typedef struct lgh_round_rows_params {
    const float *from;
    unsigned short *to;
    long long from_stride; /* in elements */
    long long to_stride;
    long long columns;
} lgh_round_rows_params;

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
