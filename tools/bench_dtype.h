/* bench_dtype.h - the dtypes of what the bench computes on. */
#ifndef LGH_TOOL_BENCH_DTYPE_H
#define LGH_TOOL_BENCH_DTYPE_H

#include "loggerhead/loggerhead.h"

typedef struct lgh_tool_dtypes {
    const char *name;
    lgh_dtype hidden;
    lgh_dtype weight;
    lgh_dtype operands; /* of matrix products: the wider of the two */
} lgh_tool_dtypes;

/* The choices, in the order of lgh_tool_dtypes_of. */
#define LGH_TOOL_DTYPE_WORDS "bf16|fp16|fp32|mixed"
enum { LGH_TOOL_BF16, LGH_TOOL_FP16, LGH_TOOL_FP32, LGH_TOOL_MIXED, LGH_TOOL_DTYPE_CHOICES };

const lgh_tool_dtypes *lgh_tool_dtypes_of(int choice);

/** Elements begin .. begin + count - 1 of an array of BF16, FP16 or FP32, exactly. */
void lgh_tool_widen(float *to, const void *from, lgh_dtype dtype, int64_t begin, int64_t count);

#endif
