/* chunk_stats.cu - merges a vocabulary chunk of logits into each row's running statistics; the last
 * chunk turns them into log-prob, lse, entropy and the best entry.
 *
 * One warp per row, so that nothing waits for a barrier. Each lane reads batches of logits, the
 * next one in flight while it adds the current one to statistics of its own; at the end the lanes
 * agree on a maximum and add up. All orders are fixed by the chunk, so a row's bits do not depend
 * on the other rows.
 *
 * Beside those of row_kernel.cuh, the definitions must give
 *     LGH_WANT_ENTROPY, LGH_WANT_LOGP_AT_ONE, LGH_WANT_BEST      0 or 1
 */
#include "row_kernel.cuh"

#if !defined(LGH_WANT_ENTROPY) || !defined(LGH_WANT_LOGP_AT_ONE) || !defined(LGH_WANT_BEST)
#error "a definition is missing: see the top of chunk_stats.cu"
#endif

/* Fewer with a softcap, which takes registers of its own and most of the compiler's time. */
#define LANE_LOGITS (LGH_SOFTCAP ? 16 : 32)
#define BATCH (32 * LANE_LOGITS) /* columns that a warp reads at a time */
#define NO_COLUMN 0x7fffffff

struct batch {
    float x[LANE_LOGITS];
};

/* What a lane, a warp or a chunk knows of a row. */
struct row_state {
    lgh_row_stats stats;
    int best; /* the column of the maximum, counted from the chunk's first; NO_COLUMN: none */
};

/* The column of the lane's logit i in a batch. */
__device__ __forceinline__ int batch_column(int begin, int i) {
    const int lane = (int)threadIdx.x & 31;
    return begin + 32 * (i & ~3) + 4 * lane + (i & 3);
}

/* Reads the columns from `begin` on. Those past the chunk's end become -inf, which adds nothing. A
 * whole batch starts at a multiple of 16 bytes. */
template <bool whole>
__device__ __forceinline__ void load_batch(batch &b, const float *logits, int begin, int columns) {
#pragma unroll
    for (int i = 0; i < LANE_LOGITS; i += 4) {
        const int column = batch_column(begin, i);
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

/* The lane visits its columns in rising order, so the first with the maximum is the lowest. */
__device__ __forceinline__ int find_column(const batch &b, float maximum, int begin) {
    int column = NO_COLUMN;
#pragma unroll
    for (int i = LANE_LOGITS - 1; i >= 0; --i)
        if (b.x[i] == maximum)
            column = batch_column(begin, i);
    return column;
}

/* Columns past the chunk's end stay -inf: the softcap of it would be a logit like any other. fmaxf
 * passes over a NaN, which reaches the sums instead. */
template <bool whole>
__device__ __forceinline__ void add_batch(row_state &row, batch &b, int begin,
                                          const lgh_chunk_place &place, float inverse_temperature) {
    float maximum = row.stats.max;
#pragma unroll
    for (int i = 0; i < LANE_LOGITS; ++i) {
        if (whole || batch_column(begin, i) < place.columns)
            b.x[i] = finish_logit(b.x[i], place.softcap);
        maximum = fmaxf(maximum, b.x[i]);
    }
#if LGH_WANT_BEST
    if (maximum > row.stats.max)
        row.best = find_column(b, maximum, begin);
#endif
    row.stats = lgh_row_stats_rebase(row.stats, maximum, inverse_temperature);
#pragma unroll
    for (int i = 0; i < LANE_LOGITS; ++i) {
        lgh_row_stats_add(&row.stats, b.x[i], inverse_temperature);
#if LGH_WANT_LOGP_AT_ONE
        lgh_row_stats_add_at_one(&row.stats, b.x[i]);
#endif
    }
}

/* The union of what the lanes know, in every lane. */
__device__ __forceinline__ row_state merge_lanes(row_state row, float inverse_temperature) {
    const float maximum = warp_max(row.stats.max);
#if LGH_WANT_BEST
    row.best = warp_min(row.stats.max == maximum ? row.best : NO_COLUMN);
#endif
    row.stats = lgh_row_stats_rebase(row.stats, maximum, inverse_temperature);
    row.stats.sum = warp_sum(row.stats.sum);
#if LGH_WANT_ENTROPY
    row.stats.weighted = warp_sum(row.stats.weighted);
#endif
#if LGH_WANT_LOGP_AT_ONE
    row.stats.sum_at_one = warp_sum(row.stats.sum_at_one);
#endif
    return row;
}

/* `next` holds the first batch. */
template <bool whole>
__device__ __forceinline__ row_state chunk_stats(batch &next, const lgh_chunk_place &place,
                                                 const float *logits, float inverse_temperature) {
    row_state row = {lgh_row_stats_empty(), NO_COLUMN};
#pragma unroll 1
    for (int begin = 0; begin < place.columns; begin += BATCH) {
        batch current = next;
        if (begin + BATCH < place.columns)
            load_batch<whole>(next, logits, begin + BATCH, place.columns);
        add_batch<whole>(row, current, begin, place, inverse_temperature);
    }
    return merge_lanes(row, inverse_temperature);
}

/* A row without a result of its own. */
__device__ __forceinline__ void write_constant(const lgh_chunk_stats_params &p, long long token,
                                               float lse, float others) {
    if (p.logp)
        p.logp[token] = others;
    if (p.lse)
        p.lse[token] = lse;
    if (p.entropy)
        p.entropy[token] = others;
    if (p.logp_at_one)
        p.logp_at_one[token] = others;
    if (p.best)
        p.best[token] = -1;
}

/* A remote target's own term is added by whoever has it. */
__device__ __forceinline__ float log_prob(const lgh_row_stats &stats, row_target target, float x,
                                          float inverse_temperature) {
    if (target.kind == TARGET_LOCAL)
        return lgh_log_prob(stats, x, inverse_temperature);
    return target.kind == TARGET_REMOTE ? -lgh_lse(stats, inverse_temperature) : 0.0f;
}

__device__ __forceinline__ float log_prob_at_one(const lgh_row_stats &stats, row_target target,
                                                 float x) {
    if (target.kind == TARGET_LOCAL)
        return lgh_log_prob_at_one(stats, x);
    return target.kind == TARGET_REMOTE ? -(stats.max + lgh_log(stats.sum_at_one)) : 0.0f;
}

__device__ __forceinline__ void write_outputs(const lgh_chunk_stats_params &p, long long token,
                                              const row_state &row, row_target target, float x,
                                              float inverse_temperature) {
    if (row.stats.sum == 0.0f) { /* a shard without entries, or all of them -inf */
        write_constant(p, token, -LGH_INFINITY, 0.0f);
        return;
    }
    if (p.logp)
        p.logp[token] = log_prob(row.stats, target, x, inverse_temperature);
    if (p.lse)
        p.lse[token] = lgh_lse(row.stats, inverse_temperature);
#if LGH_WANT_ENTROPY
    if (p.entropy)
        p.entropy[token] = lgh_entropy(row.stats);
#endif
#if LGH_WANT_LOGP_AT_ONE
    if (p.logp_at_one)
        p.logp_at_one[token] = log_prob_at_one(row.stats, target, x);
#endif
#if LGH_WANT_BEST
    if (p.best)
        p.best[token] = p.place.vocab_start + (row.best == NO_COLUMN ? 0 : row.best);
#endif
}

/* What earlier chunks left of a row, and the target's logit if it lies in this one. */
__device__ __forceinline__ lgh_stored_stats read_stored(const lgh_chunk_stats_params &p,
                                                        long long row, row_target target) {
    const lgh_chunk_place &place = p.place;
    const lgh_stored_stats none = {-LGH_REAL_MAX, 0.0f, 0.0f, 0.0f, 0.0f, NO_COLUMN};
    lgh_stored_stats stored = place.is_first ? none : p.stats[row];
    const int within = target.column - place.first_column;
    if (target.kind == TARGET_LOCAL && within >= 0 && within < place.columns)
        stored.target = finish_logit(row_start(place, row)[within], place.softcap);
    return stored;
}

/* One lane's part: merge with what earlier chunks left, keep it or finish. The best of an earlier
 * chunk wins a tie. */
__device__ __forceinline__ void merge_row(const lgh_chunk_stats_params &p, long long row,
                                          long long token, row_state state,
                                          const lgh_stored_stats &stored, row_target target,
                                          float inverse_temperature) {
    const lgh_row_stats before = {stored.max, stored.sum, stored.weighted, stored.sum_at_one};
    if (state.stats.max > stored.max && state.best != NO_COLUMN)
        state.best += p.place.first_column;
    else
        state.best = stored.best;
    state.stats = lgh_row_stats_merge(before, state.stats, inverse_temperature);
    if (p.place.is_last)
        write_outputs(p, token, state, target, stored.target, inverse_temperature);
    else
        p.stats[row] = {state.stats.max,        state.stats.sum, state.stats.weighted,
                        state.stats.sum_at_one, stored.target,   state.best};
}

/* Begins to read the logits before anything waits for the target: the latencies overlap. */
template <bool whole>
__device__ __forceinline__ void run_row(const lgh_chunk_stats_params &p, long long row) {
    const lgh_chunk_place &place = p.place;
    const bool is_first_lane = threadIdx.x % 32 == 0;
    const float *logits = row_start(place, row);
    batch first;
    load_batch<whole>(first, logits, 0, place.columns);
    const long long token = token_of(place.block, row);
    const row_target target = target_of(place, token);
    if (target.kind == TARGET_IGNORED) {
        if (place.is_last && is_first_lane && token != LGH_NO_TOKEN)
            write_constant(p, token, 0.0f, 0.0f);
        return;
    }
    const float temperature = value_at(place.temperature, token);
    const bool valid_temperature = lgh_temperature_is_valid(temperature);
    if (is_first_lane)
        count_row(place, target, valid_temperature);
    if (!valid_temperature) {
        if (place.is_last && is_first_lane)
            write_constant(p, token, LGH_NAN, LGH_NAN);
        return;
    }
    lgh_stored_stats stored;
    if (is_first_lane)
        stored = read_stored(p, row, target);
    const float inverse_temperature = lgh_inverse_temperature(temperature);
    const row_state state = chunk_stats<whole>(first, place, logits, inverse_temperature);
    if (is_first_lane)
        merge_row(p, row, token, state, stored, target, inverse_temperature);
}

extern "C" __global__ void __launch_bounds__(LGH_THREADS)
    chunk_stats_kernel(const __grid_constant__ lgh_chunk_stats_params p) {
    const lgh_chunk_place &place = p.place;
    const long long row = blockIdx.x * (long long)(LGH_THREADS / 32) + threadIdx.x / 32;
    if (row >= place.block.rows)
        return;
    if (place.skip % 4 == 0 && place.columns % BATCH == 0 && place.columns > 0)
        run_row<true>(p, row);
    else
        run_row<false>(p, row);
}
