/* row_launch.c - filling the row kernels' parameter structs. */
#include "row_launch.h"

lgh__block lgh__block_at(int64_t tokens, int64_t step, int64_t first) {
    const int64_t left = tokens - first;
    return (lgh__block){first, left < step ? left : step};
}

lgh_device_value lgh__device_value_at(lgh_value value, int64_t first) {
    return (lgh_device_value){value.data ? value.data + first * value.stride : NULL, value.stride,
                              value.host};
}

lgh_chunk_place lgh__chunk_place(const lgh_plan *plan, float *logits, int64_t width,
                                 const lgh__chunk *chunk, const void *targets, lgh__block block) {
    const size_t target_bytes = lgh_dtype_size(plan->options.targets_dtype);
    return (lgh_chunk_place){
        .logits = logits,
        .rows = block.tokens,
        .stride = lgh__chunk_stride(width),
        .skip = (int)chunk->skip,
        .columns = (int)chunk->columns,
        .first_column = chunk->first,
        .vocab_size = plan->options.vocab_size,
        .targets = targets ? (const char *)targets + (size_t)block.first * target_bytes : NULL,
        .ignore_index = plan->options.ignore_index,
    };
}

lgh_status lgh__launch_stats(const lgh__chunked *e, const lgh_chunk_stats_params *p, void *stream) {
    const int rows_of_block = LGH__STATS_THREADS / 32;
    return lgh__driver_launch(e->stats, (p->place.rows + rows_of_block - 1) / rows_of_block,
                              LGH__STATS_THREADS, p, stream);
}

lgh_status lgh__launch_dx(const lgh__chunked *e, const lgh_chunk_dx_params *p, void *stream) {
    return lgh__driver_launch(e->dx, p->place.rows, lgh__dx_threads(e->config.backward_chunk), p,
                              stream);
}

lgh_status lgh__launch_round(const lgh__chunked *e, const lgh_round_rows_params *p, int64_t rows,
                             void *stream) {
    return lgh__driver_launch(e->round, rows, LGH__ROUND_THREADS, p, stream);
}
