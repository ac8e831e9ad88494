/* round_rows.cu - rounds a staged FP32 matrix to BF16. One block of threads per row. */
#include "row_params.h"

#ifndef LGH_THREADS
#error "LGH_THREADS, the threads of a block, must be defined"
#endif

__device__ __forceinline__ unsigned short round_bf16(float x) {
    unsigned short rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
    return rounded;
}

extern "C" __global__ void __launch_bounds__(LGH_THREADS)
    round_rows_kernel(const __grid_constant__ lgh_round_rows_params p) {
    const long long row = blockIdx.x;
    const float *from = p.from + row * p.from_stride;
    unsigned short *to = p.to + row * p.to_stride;
    for (long long c = threadIdx.x; c < p.columns; c += LGH_THREADS)
        to[c] = round_bf16(from[c]);
}
