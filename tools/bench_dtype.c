/* bench_dtype.c - the dtypes of what the bench computes on. */
#include "bench_dtype.h"

#include "value.h"

#include <string.h>

const lgh_tool_dtypes *lgh_tool_dtypes_of(int choice) {
    static const lgh_tool_dtypes dtypes[LGH_TOOL_DTYPE_CHOICES] = {
        [LGH_TOOL_BF16] = {"BF16 hidden and weight", LGH_BF16, LGH_BF16, LGH_BF16},
        [LGH_TOOL_FP16] = {"FP16 hidden and weight", LGH_FP16, LGH_FP16, LGH_FP16},
        [LGH_TOOL_FP32] = {"FP32 hidden and weight", LGH_FP32, LGH_FP32, LGH_FP32},
        [LGH_TOOL_MIXED] = {"BF16 hidden, FP32 weight", LGH_BF16, LGH_FP32, LGH_FP32},
    };
    return &dtypes[choice];
}

void lgh_tool_widen(float *to, const void *from, lgh_dtype dtype, int64_t begin, int64_t count) {
    const uint16_t *halves = (const uint16_t *)from + begin;
    if (dtype == LGH_FP32)
        memcpy(to, (const float *)from + begin, (size_t)count * sizeof *to);
    else if (dtype == LGH_BF16)
        for (int64_t k = 0; k < count; ++k)
            to[k] = lgh__float_from_bf16(halves[k]);
    else
        for (int64_t k = 0; k < count; ++k)
            to[k] = lgh__float_from_fp16(halves[k]);
}
