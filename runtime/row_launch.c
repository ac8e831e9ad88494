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
                                 const lgh__chunk *chunk, const void *targets, int64_t first) {
    const size_t target_bytes = lgh_dtype_size(plan->options.targets_dtype);
    return (lgh_chunk_place){
        .logits = logits,
        .stride = lgh__chunk_stride(width),
        .skip = (int)chunk->skip,
        .columns = (int)chunk->columns,
        .first_column = chunk->first,
        .vocab_size = plan->options.vocab_size,
        .targets = targets ? (const char *)targets + (size_t)first * target_bytes : NULL,
        .ignore_index = plan->options.ignore_index,
    };
}
