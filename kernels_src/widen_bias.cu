/* widen_bias.cu - lays a bias out in FP32, each vocabulary chunk's part where its product wants it.
 * One block of threads per chunk.
 *
 * The definitions before the source must give
 *     LGH_THREADS     threads of a block
 *     LGH_FROM        the type (dtypes.cuh) of the bias
 */
#include "dtypes.cuh"
#include "row_params.h"

#if !defined(LGH_THREADS) || !defined(LGH_FROM)
#error "a definition is missing: see the top of widen_bias.cu"
#endif

extern "C" __global__ void __launch_bounds__(LGH_THREADS)
    widen_bias_kernel(const __grid_constant__ lgh_widen_bias_params p) {
    typedef element<LGH_FROM>::word word;
    const long long begin = blockIdx.x * p.chunk;
    /* The last chunk begins early enough to be whole. */
    const long long first = begin + p.chunk > p.shard_size ? p.shard_size - p.chunk : begin;
    const word *bias = static_cast<const word *>(p.bias) + first;
    for (long long i = threadIdx.x; i < p.chunk; i += LGH_THREADS)
        p.to[blockIdx.x * p.stride + i] = widen<LGH_FROM>(bias[i]);
}
