/* finish_rows.cu - rounds staged FP32 rows and puts them at their tokens. One block of threads per
 * row. Rows that count and have an invalid temperature become NaN.
 *
 * The definitions before the source must give
 *     LGH_THREADS     threads of a block
 *     LGH_TO          the type (dtypes.cuh) of the result
 */
#include "dtypes.cuh"
#include "token_scale.cuh"

#if !defined(LGH_THREADS) || !defined(LGH_TO)
#error "a definition is missing: see the top of finish_rows.cu"
#endif

extern "C" __global__ void __launch_bounds__(LGH_THREADS)
    finish_rows_kernel(const __grid_constant__ lgh_finish_rows_params p) {
    typedef element<LGH_TO>::word word;
    const long long token = token_of(p.block, blockIdx.x);
    if (token == LGH_NO_TOKEN)
        return;
    const bool valid = lgh_temperature_is_valid(value_at(p.gradients.temperature, token)) ||
                       is_ignored(p.targets, token);
    if (valid && !p.from)
        return;
    const float *from = p.from + blockIdx.x * p.from_stride;
    word *to = static_cast<word *>(p.to) + token * p.to_stride;
    const float factor = p.is_scaled ? ldexpf(1.0f, -token_exponent(p.gradients, token)) : 1.0f;
    for (long long c = threadIdx.x; c < p.columns; c += LGH_THREADS)
        to[c] = narrow<LGH_TO>(valid ? factor * from[c] : LGH_NAN);
}
