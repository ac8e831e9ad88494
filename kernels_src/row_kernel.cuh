/* row_kernel.cuh - what the kernels over rows of logits share: what a row is, and its logits.
 *
 * The definitions before the source must give
 *     LGH_THREADS            threads of a block, a multiple of 32, at most 1024
 *     LGH_LOGITS_ROUNDING    the type (dtypes.cuh) to which each logit is rounded first
 *     LGH_SOFTCAP            1: logits pass through the softcap
 *     LGH_TARGETS_INT32      1: targets are int32, 0: int64
 */
#ifndef LGH_ROW_KERNEL_CUH
#define LGH_ROW_KERNEL_CUH

#include "dtypes.cuh"
#include "rows.cuh"

#if !defined(LGH_THREADS) || !defined(LGH_LOGITS_ROUNDING) || !defined(LGH_SOFTCAP) ||             \
    !defined(LGH_TARGETS_INT32)
#error "a definition is missing: see the top of row_kernel.cuh"
#endif

static_assert(LGH_THREADS % 32 == 0 && LGH_THREADS <= 1024, "a block is 1 to 32 whole warps");

/* What kind of target a row has. */
enum target_kind {
    TARGET_IGNORED, /* or the row is no token */
    TARGET_NONE,    /* the call has no targets */
    TARGET_FOREIGN, /* no entry of the vocabulary */
    TARGET_REMOTE,  /* another shard's entry */
    TARGET_LOCAL
};

struct row_target {
    target_kind kind;
    int column; /* the shard's column of a local target, else -1 */
};

__device__ __forceinline__ long long target_at(const void *targets, long long token) {
#if LGH_TARGETS_INT32
    return static_cast<const int *>(targets)[token];
#else
    return static_cast<const long long *>(targets)[token];
#endif
}

__device__ __forceinline__ row_target target_of(const lgh_chunk_place &place, long long token) {
    if (token == LGH_NO_TOKEN)
        return {TARGET_IGNORED, -1};
    if (!place.targets)
        return {TARGET_NONE, -1};
    const long long entry = target_at(place.targets, token);
    if (entry == place.ignore_index)
        return {TARGET_IGNORED, -1};
    if (entry < 0 || entry >= place.vocab_valid)
        return {TARGET_FOREIGN, -1};
    const long long column = entry - place.vocab_start;
    if (column < 0 || column >= place.shard_size)
        return {TARGET_REMOTE, -1};
    return {TARGET_LOCAL, (int)column};
}

/* Counts a row once, with its last chunk. */
__device__ __forceinline__ void count_row(const lgh_chunk_place &place, row_target target,
                                          bool valid_temperature) {
    if (!place.is_last)
        return;
    if (place.foreign_targets && (target.kind == TARGET_FOREIGN || target.kind == TARGET_REMOTE))
        atomicAdd(place.foreign_targets, 1ull);
    if (place.invalid_temperatures && !valid_temperature)
        atomicAdd(place.invalid_temperatures, 1ull);
}

/* The first logit of a row that the chunk counts. */
__device__ __forceinline__ const float *row_start(const lgh_chunk_place &place, long long row) {
    return place.logits + row * place.stride + place.skip;
}

/* From the product's element to the logit that the mathematics speaks of. */
__device__ __forceinline__ float finish_logit(float x, float softcap) {
    x = round_to<LGH_LOGITS_ROUNDING>(x);
#if LGH_SOFTCAP
    x = lgh_softcap(x, softcap);
#endif
    return x;
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

__device__ __forceinline__ int warp_min(int value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        value = min(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

#endif
