/* row_launch.h - filling the row kernels' parameter structs from a call's arguments. */
#ifndef LGH_ROW_LAUNCH_H
#define LGH_ROW_LAUNCH_H

#include "chunked_engine.h"
#include "row_params.h"

/** A run of tokens that is worked on at a time. */
typedef struct lgh__block {
    int64_t first;
    int64_t tokens;
} lgh__block;

/** The block of at most `step` tokens that begins at `first`. */
lgh__block lgh__block_at(int64_t tokens, int64_t step, int64_t first);

/** A value as the kernels of the block that begins at token `first` see it. */
lgh_device_value lgh__device_value_at(lgh_value value, int64_t first);

/** The place of a vocabulary chunk for a token block; `width` is that of whole chunks. */
lgh_chunk_place lgh__chunk_place(const lgh_plan *plan, float *logits, int64_t width,
                                 const lgh__chunk *chunk, const void *targets, lgh__block block);

/** Enqueues a kernel with one warp, or one block of threads, per row. */
lgh_status lgh__launch_stats(const lgh__chunked *engine, const lgh_chunk_stats_params *p,
                             void *stream);
lgh_status lgh__launch_dx(const lgh__chunked *engine, const lgh_chunk_dx_params *p, void *stream);
lgh_status lgh__launch_round(const lgh__chunked *engine, const lgh_round_rows_params *p,
                             int64_t rows, void *stream);

#endif
