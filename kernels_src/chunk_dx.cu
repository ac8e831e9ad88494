/* chunk_dx.cu - turns a vocabulary chunk of logits into the gradient of the loss in them.
 *
 * One block of threads per row. The BF16 gradients replace the FP32 logits in place: they are
 * packed at the start of their own row, whose logits are all in registers before the first write.
 * Rows that do not count get exact zeros.
 */
#include "row_kernel.cuh"

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

/* A row's BF16 gradients are padded to a group of four, within the row. */
template <bool whole>
__device__ __forceinline__ void store_gradients(float *start, const row_logits &row, int columns) {
#pragma unroll
    for (int g = 0; g < LGH_GROUPS; ++g)
        if (whole || group_column(g) < columns)
            reinterpret_cast<uint2 *>(start)[group_column(g) / 4] = make_uint2(
                pack_bf16(row.x[g][0], row.x[g][1]), pack_bf16(row.x[g][2], row.x[g][3]));
}

template <bool whole>
__device__ __forceinline__ void differentiate_row(const lgh_chunk_dx_params &p, long long row,
                                                  long long target, bool counts) {
    const lgh_chunk_place &place = p.place;
    row_logits values = {};
    if (counts) {
        load_logits<whole>(values, place, row);
        const lgh_row_gradient r = read_row(p, row);
        const long long within = place.targets ? target - place.first_column : -1;
        for_each_logit<whole>(values, place.columns, [&](float &x, int column) {
            x = lgh_logit_gradient(r, x, column == within);
        });
        __syncthreads(); /* every logit is read before the first gradient overwrites one */
    }
    store_gradients<whole>(place.logits + row * place.stride, values, place.columns);
}

extern "C" __global__ void __launch_bounds__(LGH_THREADS)
    chunk_dx_kernel(const __grid_constant__ lgh_chunk_dx_params p) {
    const lgh_chunk_place &place = p.place;
    const long long row = blockIdx.x;
    const long long target = place.targets ? target_at(place.targets, row) : 0;
    const bool counts = !place.targets || (target != place.ignore_index && target >= 0 &&
                                           target < place.vocab_size);
    if (is_whole(place))
        differentiate_row<true>(p, row, target, counts);
    else
        differentiate_row<false>(p, row, target, counts);
}
