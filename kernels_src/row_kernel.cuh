/* row_kernel.cuh - what the row kernels share: a row's place, its values, sums over a block.
 *
 * The definitions before the source must give
 *     LGH_THREADS            threads of a block, a multiple of 32, at most 1024
 *     LGH_CHUNK              most columns of a vocabulary chunk
 *     LGH_LOGITS_BF16        1: round each logit to BF16 first
 *     LGH_TARGETS_INT32      1: targets are int32, 0: int64
 */
#ifndef LGH_ROW_KERNEL_CUH
#define LGH_ROW_KERNEL_CUH

#include "formulas.h"
#include "row_params.h"

#if !defined(LGH_THREADS) || !defined(LGH_CHUNK) || !defined(LGH_LOGITS_BF16) ||                   \
    !defined(LGH_TARGETS_INT32)
#error "a definition is missing: see the top of row_kernel.cuh"
#endif

static_assert(LGH_THREADS % 32 == 0 && LGH_THREADS <= 1024, "a block is 1 to 32 whole warps");

/* A thread holds every LGH_THREADS-th group of four columns of its row. */
#define LGH_GROUPS ((LGH_CHUNK + 4 * LGH_THREADS - 1) / (4 * LGH_THREADS))

struct row_logits {
    float x[LGH_GROUPS][4];
};

__device__ __forceinline__ int group_column(int group) {
    return 4 * (group * LGH_THREADS + (int)threadIdx.x);
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

/* A whole chunk fills every thread's groups and skips nothing: it needs no bounds, and its groups
 * are aligned. */
__device__ __forceinline__ bool is_whole(const lgh_chunk_place &place) {
    return LGH_CHUNK % (4 * LGH_THREADS) == 0 && place.columns == LGH_CHUNK;
}

/* Calls visit(logit, column) for each of the thread's columns that lie in the chunk. */
template <bool whole, class Visit>
__device__ __forceinline__ void for_each_logit(row_logits &row, int columns, Visit visit) {
#pragma unroll
    for (int g = 0; g < LGH_GROUPS; ++g)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (whole || group_column(g) + i < columns)
                visit(row.x[g][i], group_column(g) + i);
}

/* Reads the row's logits, rounded if asked; those past the chunk's end become 0. */
template <bool whole>
__device__ __forceinline__ void load_logits(row_logits &row, const lgh_chunk_place &place,
                                            long long index) {
    const float *logits = place.logits + index * place.stride + place.skip;
#pragma unroll
    for (int g = 0; g < LGH_GROUPS; ++g) {
        if (whole) {
            float4 four = *reinterpret_cast<const float4 *>(logits + group_column(g));
            row.x[g][0] = four.x;
            row.x[g][1] = four.y;
            row.x[g][2] = four.z;
            row.x[g][3] = four.w;
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                row.x[g][i] = group_column(g) + i < place.columns ? logits[group_column(g) + i] : 0;
        }
    }
    for_each_logit<true>(row, LGH_CHUNK, [](float &x, int) { x = round_logit(x); });
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
