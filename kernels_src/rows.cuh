/* rows.cuh - which token a row is, and the values that belong to a token. */
#ifndef LGH_ROWS_CUH
#define LGH_ROWS_CUH

#include "formulas.h"
#include "row_params.h"

#define LGH_NO_TOKEN (-1ll)
#define LGH_NAN __int_as_float(0x7fffffff)
#define LGH_INFINITY __int_as_float(0x7f800000)

/* The token of a row of the block, or LGH_NO_TOKEN past the list's end and for numbers that are no
 * token. */
__device__ __forceinline__ long long token_of(const lgh_block_rows &block, long long row) {
    const long long position = block.first + row;
    if (!block.live)
        return position;
    if (block.live_count && position >= *block.live_count)
        return LGH_NO_TOKEN;
    const long long token = block.live[position];
    return token >= 0 && token < block.tokens ? token : LGH_NO_TOKEN;
}

__device__ __forceinline__ float value_at(const lgh_device_value &value, long long token) {
    return value.data ? value.data[token * value.stride] : value.host;
}

/* A token's target; without targets an entry that every vocabulary has. */
__device__ __forceinline__ long long target_of_token(const lgh_token_targets &targets,
                                                     long long token) {
    if (!targets.data)
        return 0;
    return targets.are_int32 ? static_cast<const int *>(targets.data)[token]
                             : static_cast<const long long *>(targets.data)[token];
}

__device__ __forceinline__ bool is_ignored(const lgh_token_targets &targets, long long token) {
    return targets.data && target_of_token(targets, token) == targets.ignore_index;
}

#endif
