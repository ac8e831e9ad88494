/* gradient_scale.cu - the power of two by which FP16 gradients are multiplied before rounding,
 * chosen so that the largest possible one stays below FP16's largest number and small ones stay
 * above its smallest. One block of threads over all tokens.
 *
 * The definitions before the source must give
 *     LGH_THREADS     threads of a block, a multiple of 32
 */
#include "rows.cuh"

#ifndef LGH_THREADS
#error "LGH_THREADS, the threads of a block, must be defined"
#endif

/* Gradients stay below this, a quarter of FP16's largest power of two. */
#define LARGEST_SCALED 8192.0f

/* Over the block, of values >= 0; the first thread receives the result. */
__device__ float block_max(float value) {
    __shared__ float of_warp[32];
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    __syncthreads(); /* an earlier call may still be reading */
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    for (int w = 0; w < LGH_THREADS / 32; ++w)
        value = fmaxf(value, of_warp[w]);
    return value;
}

__device__ __forceinline__ float largest(const lgh_device_value &value, long long tokens) {
    if (!value.data || value.stride == 0)
        return fabsf(value_at(value, 0));
    float most = 0.0f;
    for (long long i = threadIdx.x; i < tokens; i += LGH_THREADS)
        most = fmaxf(most, fabsf(value_at(value, i)));
    return block_max(most);
}

/* The largest 1 / T of the valid temperatures. */
__device__ __forceinline__ float largest_inverse(const lgh_device_value &value, long long tokens) {
    float most = 0.0f;
    for (long long i = threadIdx.x; i < tokens; i += LGH_THREADS) {
        const float temperature = value_at(value, i);
        if (lgh_temperature_is_valid(temperature))
            most = fmaxf(most, lgh_inverse_temperature(temperature));
    }
    return block_max(most);
}

extern "C" __global__ void __launch_bounds__(LGH_THREADS)
    gradient_scale_kernel(const __grid_constant__ lgh_gradient_scale_params p) {
    const float gradients = largest(p.grad_logp, p.tokens) + largest(p.grad_lse, p.tokens) +
                            p.entropy_weight * largest(p.grad_entropy, p.tokens);
    const float bound = gradients * largest_inverse(p.temperature, p.tokens);
    if (threadIdx.x != 0)
        return;
    int exponent = 0;
    if (bound > 0.0f && bound <= LGH_REAL_MAX)
        exponent = (int)floorf(log2f(LARGEST_SCALED / bound));
    exponent = max(-100, min(100, exponent));
    *p.scale = {ldexpf(1.0f, exponent), ldexpf(1.0f, -exponent), 1.0f, 0.0f};
}
