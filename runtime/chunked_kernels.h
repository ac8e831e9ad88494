/* chunked_kernels.h - the definitions and launches of the chunked engine's row kernels. */
#ifndef LGH_CHUNKED_KERNELS_H
#define LGH_CHUNKED_KERNELS_H

#include "chunked_engine.h"
#include "row_params.h"

/** A kernel's source, entry and definitions; the entry is "" where a plan needs no such kernel. */
typedef struct lgh__row_kernel {
    const char *source;
    const char *entry;
    char definitions[320];
} lgh__row_kernel;

/** What each kernel of a plan is for; lgh__chunked_kernels has a member for each. */
enum {
    LGH__STATS,
    LGH__DX,
    LGH__FINISH_DHIDDEN,
    LGH__FINISH_DWEIGHT,
    LGH__GATHER,
    LGH__WIDEN_BIAS,
    LGH__COLUMN_SUMS,
    LGH__GRADIENT_SCALE,
    LGH__LIVE_ROWS,
    LGH__ROW_KERNELS
};
void lgh__chunked_define(lgh__row_kernel kernels[LGH__ROW_KERNELS], const lgh_plan_options *options,
                         const lgh__chunked_config *config);

/** A run of positions in a call's list of rows that is worked on at a time. */
typedef struct lgh__block {
    int64_t first;
    int64_t rows;
} lgh__block;

/** The block of at most `step` positions that begins at `first`. */
lgh__block lgh__block_at(int64_t positions, int64_t step, int64_t first);

/** What the row kernels of a call have in common. */
typedef struct lgh__row_call {
    const lgh_plan *plan;
    const lgh__chunked *engine;
    int64_t tokens; /* N */
    const void *targets;
    lgh_value temperature;
    lgh_live live;
    lgh_counters counters;
    void *stream;
} lgh__row_call;

/** How many positions the call's list has: its bound, or N. */
int64_t lgh__positions(const lgh__row_call *call);

lgh_block_rows lgh__block_rows(const lgh__row_call *call, lgh__block block);
lgh_device_value lgh__device_value(lgh_value value);
lgh_token_targets lgh__token_targets(const lgh__row_call *call);

/** The place of a vocabulary chunk for a block; `width` is that of whole chunks. */
lgh_chunk_place lgh__chunk_place(const lgh__row_call *call, float *logits, int64_t width,
                                 const lgh__chunk *chunk, lgh__block block);

/** Launches; each kernel has one warp or one block of threads per row, chunk or group of columns.
 */
lgh_status lgh__launch_stats(const lgh__row_call *call, const lgh_chunk_stats_params *p);
lgh_status lgh__launch_dx(const lgh__row_call *call, const lgh_chunk_dx_params *p);
lgh_status lgh__launch_finish_dhidden(const lgh__row_call *call, const lgh_finish_rows_params *p);
lgh_status lgh__launch_finish_dweight(const lgh__row_call *call, const lgh_finish_rows_params *p);
lgh_status lgh__launch_gather(const lgh__row_call *call, const lgh_gather_rows_params *p);
lgh_status lgh__launch_widen_bias(const lgh__row_call *call, const lgh_widen_bias_params *p);
lgh_status lgh__launch_column_sums(const lgh__row_call *call, const lgh_column_sums_params *p);
lgh_status lgh__launch_gradient_scale(const lgh__row_call *call,
                                      const lgh_gradient_scale_params *p);

lgh_status lgh__launch_live_rows(const lgh__row_call *call, const lgh_live_rows_params *p);

/** What brings a block's rows of hidden together in `room`; `rows` is told so. */
lgh_gather_rows_params lgh__gather_rows(const lgh__row_call *call, const lgh_const_matrix *hidden,
                                        lgh__block block, void *room, lgh_const_matrix *rows);

/** A block's rows of hidden as the products want them: in place, or gathered into `room`. */
lgh_status lgh__block_hidden(const lgh__row_call *call, const lgh_const_matrix *hidden,
                             lgh__block block, void *room, lgh_const_matrix *rows);

/** The bias as the products want it, laid out in `room`; NULL without a bias. */
lgh_status lgh__chunk_biases(const lgh__row_call *call, const void *bias, int64_t chunk, void *room,
                             const float **biases);

#endif
