/* bench_reference.h - what the CPU device, in float64, makes of a few tokens. */
#ifndef LGH_TOOL_BENCH_REFERENCE_H
#define LGH_TOOL_BENCH_REFERENCE_H

#include "bench_data.h"

#define LGH_TOOL_REFERENCE_ROWS 32

typedef struct lgh_tool_reference {
    double statistics[3][LGH_TOOL_REFERENCE_ROWS]; /* logp, lse, entropy */
    double *dhidden;                               /* [count, D], for g = dL/dlogp alone */
} lgh_tool_reference;

/** Runs up to LGH_TOOL_REFERENCE_ROWS tokens on every processor. */
lgh_status lgh_tool_reference_compute(lgh_tool_reference *reference,
                                      const lgh_tool_tensors *tensors, const int64_t *tokens,
                                      int64_t count);
void lgh_tool_reference_free(lgh_tool_reference *reference);

/** Rows `rows` of a BF16 matrix of `columns` columns, as floats. */
void lgh_tool_gather_bf16(float *to, const uint16_t *from, const int64_t *rows, int64_t count,
                          int64_t columns);

#endif
