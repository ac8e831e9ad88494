/* compare_rows.cu - counts the rows of a matrix that differ from the reference row of their number
 * modulo a period. One block of threads per row; compares 16-bit words, so any dtype fits. */
#include "row_params.h"

#ifndef LGH_THREADS
#error "LGH_THREADS, the threads of a block, must be defined"
#endif

extern "C" __global__ void __launch_bounds__(LGH_THREADS)
    compare_rows_kernel(const __grid_constant__ lgh_compare_rows_params p) {
    const long long row = blockIdx.x;
    const unsigned short *words = p.rows + row * p.row_stride;
    const unsigned short *reference = p.reference + (row % p.period) * p.reference_stride;
    int differs = 0;
    for (long long w = threadIdx.x; w < p.words; w += LGH_THREADS)
        differs |= words[w] != reference[w];
    if (__syncthreads_or(differs) && threadIdx.x == 0)
        atomicAdd(p.mismatches, 1u);
}
