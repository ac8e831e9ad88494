/* row_kernel.cuh - what the kernels over rows of logits share: a row's place and its values.
 *
 * The definitions before the source must give
 *     LGH_THREADS            threads of a block, a multiple of 32, at most 1024
 *     LGH_LOGITS_BF16        1: round each logit to BF16 first
 *     LGH_TARGETS_INT32      1: targets are int32, 0: int64
 */
#ifndef LGH_ROW_KERNEL_CUH
#define LGH_ROW_KERNEL_CUH

#include "formulas.h"
#include "row_params.h"

#if !defined(LGH_THREADS) || !defined(LGH_LOGITS_BF16) || !defined(LGH_TARGETS_INT32)
#error "a definition is missing: see the top of row_kernel.cuh"
#endif

static_assert(LGH_THREADS % 32 == 0 && LGH_THREADS <= 1024, "a block is 1 to 32 whole warps");

#define LGH_INFINITY __int_as_float(0x7f800000)

/* The first logit of a row that the chunk counts. */
__device__ __forceinline__ const float *row_start(const lgh_chunk_place &place, long long row) {
    return place.logits + row * place.stride + place.skip;
}

__device__ __forceinline__ float value_at(const lgh_device_value &value, long long row) {
    return value.data ? value.data[row * value.stride] : value.host;
}

__device__ __forceinline__ long long target_at(const void *targets, long long row) {
#if LGH_TARGETS_INT32
    return static_cast<const int *>(targets)[row];
#else
    return static_cast<const long long *>(targets)[row];
#endif
}

/* Two FP32 values as two BF16 values, rounded to nearest even; `low` comes first in memory. */
__device__ __forceinline__ unsigned pack_bf16(float low, float high) {
    unsigned packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ float round_logit(float x) {
#if LGH_LOGITS_BF16
    return __uint_as_float(pack_bf16(0.0f, x) & 0xffff0000u);
#else
    return x;
#endif
}

/* Over the 32 lanes of a warp, in a fixed order; every lane receives the result. */
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

#endif
