/* chunk_dx.cu - turns a vocabulary chunk of logits into the gradient of the loss in them.
 *
 * One block of threads per row. The BF16 gradients replace the FP32 logits in place: they are
 * packed at the start of their own row, whose logits are all in registers before the first write.
 * Rows that do not count get exact zeros.
 *
 * Beside those of row_kernel.cuh, the definitions must give
 *     LGH_CHUNK      most columns of a vocabulary chunk
 */
#include "row_kernel.cuh"

#ifndef LGH_CHUNK
#error "a definition is missing: see the top of chunk_dx.cu"
#endif

/* A thread holds every LGH_THREADS-th group of four columns of its row. */
#define GROUPS ((LGH_CHUNK + 4 * LGH_THREADS - 1) / (4 * LGH_THREADS))

struct row_values {
    float x[GROUPS][4];
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

__device__ __forceinline__ lgh_row_gradient read_row(const lgh_chunk_dx_params &p, long long row) {
    lgh_row_gradient r;
    r.inverse_temperature = lgh_inverse_temperature(value_at(p.temperature, row));
    r.lse = p.lse[row];
    r.entropy = p.entropy ? p.entropy[row] : 0.0f;
    r.grad_logp = value_at(p.grad_logp, row);
    r.grad_entropy = value_at(p.grad_entropy, row);
    r.grad_lse = value_at(p.grad_lse, row);
    return r;
}

/* `within` is the target's column in the chunk. */
__device__ __forceinline__ void differentiate(row_values &row, const lgh_row_gradient &r,
                                              long long within) {
#pragma unroll
    for (int g = 0; g < GROUPS; ++g)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            row.x[g][i] =
                lgh_logit_gradient(r, round_logit(row.x[g][i]), group_column(g) + i == within);
}

/* A row's BF16 gradients are padded to a group of four, within the row; no product reads there. */
template <bool whole>
__device__ __forceinline__ void store_gradients(float *start, const row_values &row, int columns) {
#pragma unroll
    for (int g = 0; g < GROUPS; ++g)
        if (whole || group_column(g) < columns)
            reinterpret_cast<uint2 *>(start)[group_column(g) / 4] = make_uint2(
                pack_bf16(row.x[g][0], row.x[g][1]), pack_bf16(row.x[g][2], row.x[g][3]));
}

template <bool whole>
__device__ __forceinline__ void run_row(const lgh_chunk_dx_params &p, long long row,
                                        long long target, bool counts) {
    const lgh_chunk_place &place = p.place;
    row_values values = {};
    if (counts) {
        load_logits<whole>(values, row_start(place, row), place.columns);
        differentiate(values, read_row(p, row), place.targets ? target - place.first_column : -1);
        __syncthreads(); /* every logit is read before the first gradient overwrites one */
    }
    store_gradients<whole>(place.logits + row * place.stride, values, place.columns);
}

extern "C" __global__ void __launch_bounds__(LGH_THREADS)
    chunk_dx_kernel(const __grid_constant__ lgh_chunk_dx_params p) {
    const lgh_chunk_place &place = p.place;
    const long long row = blockIdx.x;
    const long long target = place.targets ? target_at(place.targets, row) : 0;
    const bool counts = !place.targets ||
                        (target != place.ignore_index && target >= 0 && target < place.vocab_size);
    if (is_whole(place))
        run_row<true>(p, row, target, counts);
    else
        run_row<false>(p, row, target, counts);
}
