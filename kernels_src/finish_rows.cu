/* finish_rows.cu - rounds staged FP32 rows and puts them at their tokens. One block of threads per
 * row. Rows that count and have an invalid temperature become NaN.
 *
 * The definitions before the source must give
 *     LGH_THREADS     threads of a block
 *     LGH_TO          the type (dtypes.cuh) of the result
 */
#include "dtypes.cuh"
#include "rows.cuh"

#if !defined(LGH_THREADS) || !defined(LGH_TO)
#error "a definition is missing: see the top of finish_rows.cu"
#endif

__device__ __forceinline__ bool is_ignored(const lgh_finish_rows_params &p, long long token) {
    if (!p.targets)
        return false;
    const long long target = p.targets_are_int32 ? static_cast<const int *>(p.targets)[token]
                                                 : static_cast<const long long *>(p.targets)[token];
    return target == p.ignore_index;
}

extern "C" __global__ void __launch_bounds__(LGH_THREADS)
    finish_rows_kernel(const __grid_constant__ lgh_finish_rows_params p) {
    typedef element<LGH_TO>::word word;
    const long long token = token_of(p.block, blockIdx.x);
    if (token == LGH_NO_TOKEN)
        return;
    const bool valid =
        lgh_temperature_is_valid(value_at(p.temperature, token)) || is_ignored(p, token);
    if (valid && !p.from)
        return;
    const float *from = p.from + blockIdx.x * p.from_stride;
    word *to = static_cast<word *>(p.to) + token * p.to_stride;
    for (long long c = threadIdx.x; c < p.columns; c += LGH_THREADS)
        to[c] = narrow<LGH_TO>(valid ? from[c] : LGH_NAN);
}
