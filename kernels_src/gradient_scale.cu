/* gradient_scale.cu - the power of two that the largest gradient of a call is multiplied by, where
 * gradients are FP16. One block of threads over all tokens.
 *
 * The definitions before the source must give
 *     LGH_THREADS     threads of a block, a multiple of 32
 */
#include "token_scale.cuh"

#ifndef LGH_THREADS
#error "LGH_THREADS, the threads of a block, must be defined"
#endif

/* Over the block, of values >= 0; the first thread receives the result. */
__device__ __forceinline__ float block_max(float value) {
    __shared__ float of_warp[LGH_THREADS / 32];
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    for (int w = 0; w < LGH_THREADS / 32; ++w)
        value = fmaxf(value, of_warp[w]);
    return value;
}

/* Garbage in the gradients of rows that have none must not move the scale. */
__device__ __forceinline__ bool has_gradient(const lgh_gradient_scale_params &p, long long token) {
    if (token == LGH_NO_TOKEN || is_ignored(p.targets, token))
        return false;
    const long long entry = target_of_token(p.targets, token);
    return p.softmax_for_foreign || (entry >= 0 && entry < p.vocab_valid);
}

extern "C" __global__ void __launch_bounds__(LGH_THREADS)
    gradient_scale_kernel(const __grid_constant__ lgh_gradient_scale_params p) {
    float bound = 0.0f;
#pragma unroll 1 /* more at a time spill registers */
    for (long long row = threadIdx.x; row < p.rows.rows; row += LGH_THREADS) {
        const long long token = token_of(p.rows, row);
        if (has_gradient(p, token))
            bound = fmaxf(bound, gradient_bound(p.gradients, token));
    }
    bound = block_max(bound);
    if (threadIdx.x != 0)
        return;
    const int exponent = lgh_scale_exponent(bound);
    *p.scale = {ldexpf(1.0f, exponent), ldexpf(1.0f, -exponent), 1.0f, 0.0f};
}
