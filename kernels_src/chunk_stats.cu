/* chunk_stats.cu - merges a vocabulary chunk of logits into each row's running statistics; the last
 * chunk turns them into log-prob, lse and entropy.
 *
 * One warp per row, so that nothing waits for a barrier. Each lane reads batches of 32 logits, the
 * next one in flight while it adds the current one to statistics of its own; at the end the lanes
 * agree on a maximum and add up. All orders are fixed by the chunk, so a row's bits do not depend
 * on the other rows.
 *
 * Beside those of row_kernel.cuh, the definitions must give
 *     LGH_WANT_ENTROPY, LGH_WANT_LOGP_AT_ONE      0 or 1
 */
#include "row_kernel.cuh"

#if !defined(LGH_WANT_ENTROPY) || !defined(LGH_WANT_LOGP_AT_ONE)
#error "a definition is missing: see the top of chunk_stats.cu"
#endif

#define LANE_LOGITS 32
#define BATCH (32 * LANE_LOGITS) /* columns that a warp reads at a time */

struct batch {
    float x[LANE_LOGITS];
};

/* Reads the columns from `begin` on. Those past the chunk's end become -inf, which adds nothing. A
 * whole batch starts at a multiple of 16 bytes. */
template <bool whole>
__device__ __forceinline__ void load_batch(batch &b, const float *logits, int begin, int columns) {
    const int lane = (int)threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < LANE_LOGITS; i += 4) {
        const int column = begin + 32 * i + 4 * lane;
        if (whole) {
            const float4 four = *reinterpret_cast<const float4 *>(logits + column);
            b.x[i] = four.x;
            b.x[i + 1] = four.y;
            b.x[i + 2] = four.z;
            b.x[i + 3] = four.w;
        } else {
#pragma unroll
            for (int j = 0; j < 4; ++j)
                b.x[i + j] = column + j < columns ? logits[column + j] : -LGH_INFINITY;
        }
    }
}

/* fmaxf passes over a NaN, which reaches the sums instead. */
__device__ __forceinline__ void add_batch(lgh_row_stats &stats, batch &b,
                                          float inverse_temperature) {
    float maximum = stats.max;
#pragma unroll
    for (int i = 0; i < LANE_LOGITS; ++i) {
        b.x[i] = round_logit(b.x[i]);
        maximum = fmaxf(maximum, b.x[i]);
    }
    stats = lgh_row_stats_rebase(stats, maximum, inverse_temperature);
#pragma unroll
    for (int i = 0; i < LANE_LOGITS; ++i) {
        lgh_row_stats_add(&stats, b.x[i], inverse_temperature);
#if LGH_WANT_LOGP_AT_ONE
        lgh_row_stats_add_at_one(&stats, b.x[i]);
#endif
    }
}

/* The union of the lanes' statistics, in every lane. */
__device__ __forceinline__ lgh_row_stats merge_lanes(lgh_row_stats stats,
                                                     float inverse_temperature) {
    stats = lgh_row_stats_rebase(stats, warp_max(stats.max), inverse_temperature);
    stats.sum = warp_sum(stats.sum);
#if LGH_WANT_ENTROPY
    stats.weighted = warp_sum(stats.weighted);
#endif
#if LGH_WANT_LOGP_AT_ONE
    stats.sum_at_one = warp_sum(stats.sum_at_one);
#endif
    return stats;
}

/* `next` holds the first batch. */
template <bool whole>
__device__ __forceinline__ lgh_row_stats chunk_stats(batch &next, const float *logits, int columns,
                                                     float inverse_temperature) {
    lgh_row_stats stats = lgh_row_stats_empty();
#pragma unroll 1
    for (int begin = 0; begin < columns; begin += BATCH) {
        batch current = next;
        if (begin + BATCH < columns)
            load_batch<whole>(next, logits, begin + BATCH, columns);
        add_batch(stats, current, inverse_temperature);
    }
    return merge_lanes(stats, inverse_temperature);
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
        stored.target = round_logit(row_start(place, row)[within]);
    return stored;
}

/* One lane's part: merge with what earlier chunks left, keep it or finish. */
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

/* Begins to read the logits before anything waits for the target: the latencies overlap. */
template <bool whole>
__device__ __forceinline__ void run_row(const lgh_chunk_stats_params &p, long long row) {
    const lgh_chunk_place &place = p.place;
    const bool is_first_lane = threadIdx.x % 32 == 0;
    const float *logits = row_start(place, row);
    batch first;
    load_batch<whole>(first, logits, 0, place.columns);
    const long long target = place.targets ? target_at(place.targets, row) : -1;
    if (place.targets && target == place.ignore_index) {
        if (p.is_last && is_first_lane)
            write_ignored(p, row);
        return;
    }
    lgh_stored_stats stored;
    if (is_first_lane)
        stored = read_stored(p, row, target);
    const float inverse_temperature = lgh_inverse_temperature(value_at(p.temperature, row));
    const lgh_row_stats stats =
        chunk_stats<whole>(first, logits, place.columns, inverse_temperature);
    if (is_first_lane)
        merge_row(p, row, stats, stored, target, inverse_temperature);
}

extern "C" __global__ void __launch_bounds__(LGH_THREADS)
    chunk_stats_kernel(const __grid_constant__ lgh_chunk_stats_params p) {
    const lgh_chunk_place &place = p.place;
    const long long row = blockIdx.x * (long long)(LGH_THREADS / 32) + threadIdx.x / 32;
    if (row >= place.rows)
        return;
    if (place.skip % 4 == 0 && place.columns % BATCH == 0)
        run_row<true>(p, row);
    else
        run_row<false>(p, row);
}
