/* chunk_stats.cu - merges a vocabulary chunk of logits into each row's running statistics; the last
 * chunk turns them into log-prob, lse and entropy.
 *
 * One block of threads per row. The row's part of the chunk is read once, into registers: its
 * maximum is found first, so that the sums need no rescaling, then the chunk's statistics are
 * merged into the stored ones. All orders are fixed by LGH_CHUNK and LGH_THREADS, so a row's bits
 * do not depend on the other rows.
 *
 * Beside those of row_kernel.cuh, the definitions must give
 *     LGH_WANT_ENTROPY, LGH_WANT_LOGP_AT_ONE      0 or 1
 */
#include "row_kernel.cuh"

#if !defined(LGH_WANT_ENTROPY) || !defined(LGH_WANT_LOGP_AT_ONE)
#error "a definition is missing: see the top of chunk_stats.cu"
#endif

#define WARPS (LGH_THREADS / 32)

/* Blocks that a multiprocessor should hold, so that one row's latencies are hidden by others. 1280
 * threads leave each the 48 registers that it needs; 1536 would spill. */
#define RESIDENT_BLOCKS (LGH_THREADS >= 256 ? 1280 / LGH_THREADS : 5)

/* What the warps of a block tell each other. */
struct exchange {
    float max[WARPS];
    float sum[WARPS];
    float weighted[WARPS];
    float sum_at_one[WARPS];
};

/* fmaxf passes over a NaN, which reaches the sums instead. */
template <bool whole>
__device__ __forceinline__ float chunk_maximum(row_logits &row, int columns, exchange &shared) {
    float maximum = -LGH_REAL_MAX;
    for_each_logit<whole>(row, columns, [&](float x, int) { maximum = fmaxf(maximum, x); });
    maximum = warp_max(maximum);
    if (threadIdx.x % 32 == 0)
        shared.max[threadIdx.x / 32] = maximum;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WARPS; ++w)
        maximum = fmaxf(maximum, shared.max[w]);
    return maximum;
}

/* The first thread receives the block's sums, the others only their warp's. */
__device__ __forceinline__ void sum_block(lgh_row_stats &stats, exchange &shared) {
    stats.sum = warp_sum(stats.sum);
    stats.weighted = LGH_WANT_ENTROPY ? warp_sum(stats.weighted) : 0.0f;
    stats.sum_at_one = LGH_WANT_LOGP_AT_ONE ? warp_sum(stats.sum_at_one) : 0.0f;
    if (threadIdx.x % 32 == 0) {
        shared.sum[threadIdx.x / 32] = stats.sum;
        shared.weighted[threadIdx.x / 32] = stats.weighted;
        shared.sum_at_one[threadIdx.x / 32] = stats.sum_at_one;
    }
    __syncthreads();
    if (threadIdx.x == 0)
#pragma unroll
        for (int w = 1; w < WARPS; ++w) {
            stats.sum += shared.sum[w];
            stats.weighted += shared.weighted[w];
            stats.sum_at_one += shared.sum_at_one[w];
        }
}

template <bool whole>
__device__ __forceinline__ lgh_row_stats chunk_stats(row_logits &logits, int columns,
                                                     float inverse_temperature,
                                                     exchange &shared) {
    lgh_row_stats stats = lgh_row_stats_empty();
    stats.max = chunk_maximum<whole>(logits, columns, shared);
    for_each_logit<whole>(logits, columns, [&](float x, int) {
        lgh_row_stats_add(&stats, x, inverse_temperature);
#if LGH_WANT_LOGP_AT_ONE
        lgh_row_stats_add_at_one(&stats, x);
#endif
    });
    sum_block(stats, shared);
    return stats;
}

__device__ __forceinline__ void write_outputs(const lgh_chunk_stats_params &p, long long row,
                                              const lgh_row_stats &stats, float target,
                                              bool has_target, float inverse_temperature) {
    if (p.logp)
        p.logp[row] = has_target ? lgh_log_prob(stats, target, inverse_temperature) : 0.0f;
    if (p.lse)
        p.lse[row] = lgh_lse(stats, inverse_temperature);
#if LGH_WANT_ENTROPY
    if (p.entropy)
        p.entropy[row] = lgh_entropy(stats);
#endif
#if LGH_WANT_LOGP_AT_ONE
    if (p.logp_at_one)
        p.logp_at_one[row] = has_target ? lgh_log_prob_at_one(stats, target) : 0.0f;
#endif
}

__device__ __forceinline__ void write_ignored(const lgh_chunk_stats_params &p, long long row) {
    if (p.logp)
        p.logp[row] = 0.0f;
    if (p.lse)
        p.lse[row] = 0.0f;
    if (p.entropy)
        p.entropy[row] = 0.0f;
    if (p.logp_at_one)
        p.logp_at_one[row] = 0.0f;
}

/* What earlier chunks left of a row, and the target's logit if it lies in this one. */
__device__ __forceinline__ lgh_stored_stats read_stored(const lgh_chunk_stats_params &p,
                                                        long long row, long long target) {
    const lgh_chunk_place &place = p.place;
    const lgh_stored_stats none = {-LGH_REAL_MAX, 0.0f, 0.0f, 0.0f, 0.0f};
    lgh_stored_stats stored = p.is_first ? none : p.stats[row];
    const long long within = target - place.first_column;
    if (within >= 0 && within < place.columns)
        stored.target = round_logit(place.logits[row * place.stride + place.skip + within]);
    return stored;
}

/* One thread's part: merge with what earlier chunks left, keep it or finish. */
__device__ __forceinline__ void merge_row(const lgh_chunk_stats_params &p, long long row,
                                          lgh_row_stats stats, const lgh_stored_stats &stored,
                                          long long target, float inverse_temperature) {
    const lgh_row_stats before = {stored.max, stored.sum, stored.weighted, stored.sum_at_one};
    stats = lgh_row_stats_merge(before, stats, inverse_temperature);
    if (p.is_last)
        write_outputs(p, row, stats, stored.target, target >= 0 && target < p.place.vocab_size,
                      inverse_temperature);
    else
        p.stats[row] = {stats.max, stats.sum, stats.weighted, stats.sum_at_one, stored.target};
}

/* Reads the logits before anything that must wait for the target: the two latencies overlap. */
template <bool whole>
__device__ __forceinline__ void run_row(const lgh_chunk_stats_params &p, long long row,
                                        exchange &shared) {
    const lgh_chunk_place &place = p.place;
    row_logits logits;
    load_logits<whole>(logits, place, row);
    const long long target = place.targets ? target_at(place.targets, row) : -1;
    if (place.targets && target == place.ignore_index) {
        if (p.is_last && threadIdx.x == 0)
            write_ignored(p, row);
        return;
    }
    lgh_stored_stats stored;
    if (threadIdx.x == 0)
        stored = read_stored(p, row, target);
    const float inverse_temperature = lgh_inverse_temperature(value_at(p.temperature, row));
    const lgh_row_stats stats =
        chunk_stats<whole>(logits, place.columns, inverse_temperature, shared);
    if (threadIdx.x == 0)
        merge_row(p, row, stats, stored, target, inverse_temperature);
}

extern "C" __global__ void __launch_bounds__(LGH_THREADS, RESIDENT_BLOCKS)
    chunk_stats_kernel(const __grid_constant__ lgh_chunk_stats_params p) {
    __shared__ exchange shared;
    if (is_whole(p.place))
        run_row<true>(p, blockIdx.x, shared);
    else
        run_row<false>(p, blockIdx.x, shared);
}
