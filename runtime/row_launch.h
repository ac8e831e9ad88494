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

/** The place of a vocabulary chunk for the block that begins at token `first`; `width` is that of
 *  whole chunks. */
lgh_chunk_place lgh__chunk_place(const lgh_plan *plan, float *logits, int64_t width,
                                 const lgh__chunk *chunk, const void *targets, int64_t first);

#endif
