/* live_rows.cu - lists the tokens whose target is not ignored, in rising order.
 *
 * One block of threads. Each warp has a contiguous stretch of tokens: it counts its live ones,
 * waits for the counts of the warps before it, and writes its own behind theirs.
 *
 * The definitions before the source must give
 *     LGH_THREADS           threads of the block, a multiple of 32, at most 1024
 *     LGH_TARGETS_INT32     1: targets are int32, 0: int64
 */
#include "row_params.h"

#if !defined(LGH_THREADS) || !defined(LGH_TARGETS_INT32)
#error "a definition is missing: see the top of live_rows.cu"
#endif

#define WARPS (LGH_THREADS / 32)
#define ALL_LANES 0xffffffffu

__device__ __forceinline__ bool is_live(const lgh_live_rows_params &p, long long token) {
#if LGH_TARGETS_INT32
    return static_cast<const int *>(p.targets)[token] != p.ignore_index;
#else
    return static_cast<const long long *>(p.targets)[token] != p.ignore_index;
#endif
}

/* Visits a warp's tokens 32 at a time; `visit` gets the token and the lanes that are live. */
template <class Visit>
__device__ __forceinline__ void for_each_stretch(const lgh_live_rows_params &p, long long begin,
                                                 long long end, Visit visit) {
    const int lane = (int)threadIdx.x % 32;
    for (long long first = begin; first < end; first += 32) {
        const long long token = first + lane;
        visit(token, __ballot_sync(ALL_LANES, token < end && is_live(p, token)));
    }
}

extern "C" __global__ void __launch_bounds__(LGH_THREADS)
    live_rows_kernel(const __grid_constant__ lgh_live_rows_params p) {
    __shared__ int of_warp[WARPS];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const long long stretch = (p.tokens + WARPS - 1) / WARPS;
    const long long begin = min(warp * stretch, p.tokens), end = min(begin + stretch, p.tokens);
    int count = 0;
    for_each_stretch(p, begin, end, [&](long long, unsigned live) { count += __popc(live); });
    if (lane == 0)
        of_warp[warp] = count;
    __syncthreads();
    int position = 0;
    for (int w = 0; w < warp; ++w)
        position += of_warp[w];
    for_each_stretch(p, begin, end, [&](long long token, unsigned live) {
        if (live >> lane & 1)
            p.rows[position + __popc(live & ((1u << lane) - 1))] = (int)token;
        position += __popc(live);
    });
    if (warp == WARPS - 1 && lane == 0)
        *p.count = position;
}
