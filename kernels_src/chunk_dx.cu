/* chunk_dx.cu - turns a vocabulary chunk of logits into the gradient of the loss in them.
 *
 * One block of threads per row. The gradients, of the operands' type, replace the FP32 logits in
 * place: they are packed at the start of their own row, whose logits are all in registers before
 * the first write. Rows that do not count get exact zeros.
 *
 * Beside those of row_kernel.cuh, the definitions must give
 *     LGH_CHUNK        most columns of a vocabulary chunk
 *     LGH_GRADIENT     the type of the gradients
 */
#include "row_kernel.cuh"
#include "token_scale.cuh"

#if !defined(LGH_CHUNK) || !defined(LGH_GRADIENT)
#error "a definition is missing: see the top of chunk_dx.cu"
#endif

/* A thread holds every LGH_THREADS-th group of four columns of its row. */
#define GROUPS ((LGH_CHUNK + 4 * LGH_THREADS - 1) / (4 * LGH_THREADS))

struct row_values {
    float x[GROUPS][4];
};

typedef element<LGH_GRADIENT>::word gradient;

/* Four gradients, stored at once. */
struct __align__(4 * sizeof(gradient)) four_gradients {
    gradient of[4];
};

__device__ __forceinline__ int group_column(int group) {
    return 4 * (group * LGH_THREADS + (int)threadIdx.x);
}

/* A whole chunk fills every thread's groups and skips nothing: it needs no bounds, and its groups
 * are aligned. */
__device__ __forceinline__ bool is_whole(const lgh_chunk_place &place) {
    return LGH_CHUNK % (4 * LGH_THREADS) == 0 && place.columns == LGH_CHUNK;
}

/* Values past the chunk's end become 0. */
template <bool whole>
__device__ __forceinline__ void load_logits(row_values &row, const float *logits, int columns) {
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        const int column = group_column(g);
        if (whole) {
            const float4 four = *reinterpret_cast<const float4 *>(logits + column);
            row.x[g][0] = four.x;
            row.x[g][1] = four.y;
            row.x[g][2] = four.z;
            row.x[g][3] = four.w;
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                row.x[g][i] = column + i < columns ? logits[column + i] : 0.0f;
        }
    }
}

__device__ __forceinline__ lgh_row_gradient read_row(const lgh_chunk_dx_params &p, long long token,
                                                     float temperature) {
    lgh_row_gradient r;
    r.inverse_temperature = lgh_inverse_temperature(temperature);
    r.lse = p.lse[token];
    r.entropy = p.entropy ? p.entropy[token] : 0.0f;
    r.grad_logp = value_at(p.gradients.grad_logp, token);
    r.grad_entropy = value_at(p.gradients.grad_entropy, token);
    r.grad_lse = value_at(p.gradients.grad_lse, token);
    return r;
}

__device__ __forceinline__ float differentiate(float x, const lgh_row_gradient &r, float softcap,
                                               bool is_target) {
    float dx = lgh_logit_gradient(r, finish_logit(x, softcap), is_target);
#if LGH_SOFTCAP
    dx *= lgh_softcap_slope(round_to<LGH_LOGITS_ROUNDING>(x), softcap);
#endif
    return dx;
}

/* A row's gradients are padded to a group of four, within the row; no product reads there. */
template <bool whole>
__device__ __forceinline__ void store_gradients(float *start, const row_values &row, int columns) {
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        if (!whole && group_column(g) >= columns)
            continue;
        four_gradients four;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            four.of[i] = narrow<LGH_GRADIENT>(row.x[g][i]);
        reinterpret_cast<four_gradients *>(start)[group_column(g) / 4] = four;
    }
}

/* `within` is the target's column of the chunk; `scale` multiplies each gradient. */
template <bool whole>
__device__ __forceinline__ void differentiate_row(row_values &values, const lgh_chunk_dx_params &p,
                                                  long long row, const lgh_row_gradient &r,
                                                  int within, float scale) {
    load_logits<whole>(values, row_start(p.place, row), p.place.columns);
#pragma unroll
    for (int g = 0; g < GROUPS; ++g)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            values.x[g][i] = scale * differentiate(values.x[g][i], r, p.place.softcap,
                                                   group_column(g) + i == within);
}

template <bool whole>
__device__ __forceinline__ void run_row(const lgh_chunk_dx_params &p, long long row,
                                        long long token, row_target target, bool counts) {
    const lgh_chunk_place &place = p.place;
    row_values values = {};
    if (counts) {
        const lgh_row_gradient r = read_row(p, token, value_at(place.temperature, token));
        const int within = target.kind == TARGET_LOCAL ? target.column - place.first_column : -1;
        const float scale =
            LGH_GRADIENT == LGH_TYPE_FP16 ? ldexpf(1.0f, token_exponent(p.gradients, token)) : 1.0f;
        differentiate_row<whole>(values, p, row, r, within, scale);
        __syncthreads(); /* every logit is read before the first gradient overwrites one */
    }
    store_gradients<whole>(place.logits + row * place.stride, values, place.columns);
}

extern "C" __global__ void __launch_bounds__(LGH_THREADS)
    chunk_dx_kernel(const __grid_constant__ lgh_chunk_dx_params p) {
    const lgh_chunk_place &place = p.place;
    const long long row = blockIdx.x;
    const long long token = token_of(place.block, row);
    const row_target target = target_of(place, token);
    bool counts = target.kind != TARGET_IGNORED;
    if (counts) {
        const bool valid = lgh_temperature_is_valid(value_at(place.temperature, token));
        if (threadIdx.x == 0)
            count_row(place, target, valid);
        counts = valid && (target.kind != TARGET_FOREIGN || p.softmax_for_foreign) &&
                 p.lse[token] != -LGH_INFINITY; /* without a softmax there is no gradient */
    }
    if (is_whole(place))
        run_row<true>(p, row, token, target, counts);
    else
        run_row<false>(p, row, token, target, counts);
}
