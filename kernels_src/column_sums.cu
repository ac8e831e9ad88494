/* column_sums.cu - the sums of the columns of a chunk's gradients: dbias.
 *
 * A block of 32 x WARPS threads has 32 columns. Each warp adds every WARPS-th group of 32 rows in
 * order, then one warp adds the others' sums in order: the result is equal from run to run.
 *
 * The definitions before the source must give
 *     LGH_THREADS     threads of a block, a multiple of 32
 *     LGH_FROM        the type (dtypes.cuh) of the gradients
 */
#include "dtypes.cuh"
#include "token_scale.cuh"

#if !defined(LGH_THREADS) || !defined(LGH_FROM)
#error "a definition is missing: see the top of column_sums.cu"
#endif

#define WARPS (LGH_THREADS / 32)

/* What undoes the power of two of a row's FP16 gradients; rows that are no token hold zeros. */
__device__ __forceinline__ float inverse_scale(const lgh_column_sums_params &p, long long row) {
    const long long token = row < p.block.rows ? token_of(p.block, row) : LGH_NO_TOKEN;
    if (LGH_FROM != LGH_TYPE_FP16 || token == LGH_NO_TOKEN)
        return 1.0f;
    return ldexpf(1.0f, -token_exponent(p.gradients, token));
}

/* The sum of a column over the 32 rows from `first`. Each lane works out one row's scale for all.
 */
__device__ __forceinline__ float sum_rows(const lgh_column_sums_params &p, int column,
                                          long long first) {
    typedef element<LGH_FROM>::word word;
    const word *dx = static_cast<const word *>(p.dx) + first * p.stride + column;
    const int rows = (int)min(32ll, p.block.rows - first);
    const float inverse = inverse_scale(p, first + threadIdx.x % 32);
    float sum = 0.0f;
#pragma unroll 4 /* more at a time spill registers */
    for (int r = 0; r < rows; ++r) {
        const float scale = LGH_FROM == LGH_TYPE_FP16 ? __shfl_sync(0xffffffffu, inverse, r) : 1.0f;
        if (column < p.columns)
            sum += scale * widen<LGH_FROM>(dx[r * p.stride]);
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(LGH_THREADS)
    column_sums_kernel(const __grid_constant__ lgh_column_sums_params p) {
    __shared__ float of_warp[WARPS][32];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int column = (int)blockIdx.x * 32 + lane;
    float sum = 0.0f;
    for (long long row = 32 * warp; row < p.block.rows; row += 32 * WARPS)
        sum += sum_rows(p, column, row);
    of_warp[warp][lane] = sum;
    __syncthreads();
    if (warp != 0 || column >= p.columns)
        return;
    for (int w = 1; w < WARPS; ++w)
        sum += of_warp[w][lane];
    p.sums[column] = p.accumulate ? p.sums[column] + sum : sum;
}
