/* column_sums.cu - the sums of the columns of a chunk's gradients: dbias.
 *
 * A block of 32 x WARPS threads has 32 columns. Each warp adds every WARPS-th row in order, then
 * one warp adds the others' sums in order: the result is equal from run to run.
 *
 * The definitions before the source must give
 *     LGH_THREADS     threads of a block, a multiple of 32
 *     LGH_FROM        the type (dtypes.cuh) of the gradients
 */
#include "dtypes.cuh"
#include "row_params.h"

#if !defined(LGH_THREADS) || !defined(LGH_FROM)
#error "a definition is missing: see the top of column_sums.cu"
#endif

#define WARPS (LGH_THREADS / 32)

extern "C" __global__ void __launch_bounds__(LGH_THREADS)
    column_sums_kernel(const __grid_constant__ lgh_column_sums_params p) {
    typedef element<LGH_FROM>::word word;
    __shared__ float of_warp[WARPS][32];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int column = (int)blockIdx.x * 32 + lane;
    const word *gradients = static_cast<const word *>(p.gradients) + column;
    float sum = 0.0f;
    if (column < p.columns)
        for (long long row = warp; row < p.rows; row += WARPS)
            sum += widen<LGH_FROM>(gradients[row * p.stride]);
    of_warp[warp][lane] = sum;
    __syncthreads();
    if (warp != 0 || column >= p.columns)
        return;
    for (int w = 1; w < WARPS; ++w)
        sum += of_warp[w][lane];
    sum *= p.scale ? p.scale->inverse : 1.0f;
    p.sums[column] = p.accumulate ? p.sums[column] + sum : sum;
}
