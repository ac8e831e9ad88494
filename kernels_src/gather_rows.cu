/* gather_rows.cu - brings the rows of a token block together, in another type if need be, or as
 * FP16 gradients want them. One block of threads per row; rows that are no token become 0.
 *
 * The definitions before the source must give
 *     LGH_THREADS     threads of a block
 *     LGH_FROM        the type (dtypes.cuh) of the rows
 *     LGH_TO          the type of the result
 */
#include "dtypes.cuh"
#include "token_scale.cuh"

#if !defined(LGH_THREADS) || !defined(LGH_FROM) || !defined(LGH_TO)
#error "a definition is missing: see the top of gather_rows.cu"
#endif

/* What a token's row is multiplied by, at most 1. */
__device__ __forceinline__ float factor_of(const lgh_gather_rows_params &p, long long token) {
    if (!p.scale)
        return 1.0f;
    return fminf(1.0f, ldexpf(p.scale->scale, -token_exponent(p.gradients, token)));
}

extern "C" __global__ void __launch_bounds__(LGH_THREADS)
    gather_rows_kernel(const __grid_constant__ lgh_gather_rows_params p) {
    typedef element<LGH_FROM>::word from_word;
    typedef element<LGH_TO>::word to_word;
    const long long token = token_of(p.block, blockIdx.x);
    const from_word *from = static_cast<const from_word *>(p.from) + token * p.from_stride;
    to_word *to = static_cast<to_word *>(p.to) + blockIdx.x * p.to_stride;
    const float factor = token == LGH_NO_TOKEN ? 0.0f : factor_of(p, token);
    for (long long c = threadIdx.x; c < p.columns; c += LGH_THREADS)
        to[c] = narrow<LGH_TO>(token == LGH_NO_TOKEN ? 0.0f : factor * widen<LGH_FROM>(from[c]));
}
