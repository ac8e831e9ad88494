/* cpu_kernels.c - compiles the inner loops of the CPU device per instruction set.
 *
 * The build gives this file -O3 -ffp-contract=fast -fno-trapping-math: it is right without them,
 * and slow.
 */
#include "cpu_kernels.h"

#include "cpu_exp.h"
#include "value.h"
#define LGH_HOST_EXP lgh__cpu_exp /* what formulas.h takes in place of libm's exp */
#include "formulas.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define KERNEL_NAME "avx512"
#define KERNEL(name) name##_avx512
#define KERNEL_TARGET __attribute__((target("avx512f,fma")))
#define KERNEL_LANES 8
#include "cpu_kernels_body.h"
#undef KERNEL_NAME
#undef KERNEL
#undef KERNEL_TARGET
#undef KERNEL_LANES

#define KERNEL_NAME "avx2"
#define KERNEL(name) name##_avx2
#define KERNEL_TARGET __attribute__((target("avx2,fma")))
#define KERNEL_LANES 4
#include "cpu_kernels_body.h"
#undef KERNEL_NAME
#undef KERNEL
#undef KERNEL_TARGET
#undef KERNEL_LANES
#endif

#define KERNEL_NAME "baseline"
#define KERNEL(name) name##_baseline
#define KERNEL_TARGET
#define KERNEL_LANES 2
#include "cpu_kernels_body.h"

const lgh__cpu_kernels *lgh__cpu_kernels_at(int index) {
    const lgh__cpu_kernels *sets[4] = {NULL};
    int count = 0;
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma"))
        sets[count++] = &set_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        sets[count++] = &set_avx2;
#endif
    sets[count++] = &set_baseline;
    return index >= 0 && index < count ? sets[index] : NULL;
}
