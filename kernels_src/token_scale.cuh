/* token_scale.cuh - the power of two by which a token's FP16 gradients are multiplied before they
 * are rounded, so that small ones stay above FP16's smallest number. */
#ifndef LGH_TOKEN_SCALE_CUH
#define LGH_TOKEN_SCALE_CUH

#include "rows.cuh"

/* No gradient of the token's logits is larger; 0 for a token that has none. */
__device__ __forceinline__ float gradient_bound(const lgh_token_gradients &g, long long token) {
    const float temperature = value_at(g.temperature, token);
    const float sum = fabsf(value_at(g.grad_logp, token)) + fabsf(value_at(g.grad_lse, token)) +
                      g.entropy_weight * fabsf(value_at(g.grad_entropy, token));
    const float bound = sum * lgh_inverse_temperature(temperature);
    return lgh_temperature_is_valid(temperature) && bound <= LGH_REAL_MAX ? bound : 0.0f;
}

__device__ __forceinline__ int token_exponent(const lgh_token_gradients &g, long long token) {
    return lgh_scale_exponent(gradient_bound(g, token));
}

#endif
