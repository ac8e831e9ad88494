/* bench_reference.h - what the CPU device, in float64, makes of a few tokens. */
#ifndef LGH_TOOL_BENCH_REFERENCE_H
#define LGH_TOOL_BENCH_REFERENCE_H

#include "bench_subject.h"

/* Enough for the mean of their 16-bit roundings to be near its limit, also where a live list leaves
 * out half of them. */
#define LGH_TOOL_REFERENCE_ROWS 64

typedef struct lgh_tool_reference {
    float statistics[LGH_TOOL_STATISTICS][LGH_TOOL_REFERENCE_ROWS];
    int64_t best[LGH_TOOL_REFERENCE_ROWS];
    float *dhidden; /* [count, D]; NULL if the feature has no backward pass */
} lgh_tool_reference;

/** Runs up to LGH_TOOL_REFERENCE_ROWS tokens on every processor, with every output that there is
 *  and the feature's gradients; rows that are not live give what the header says of them. */
lgh_status lgh_tool_reference_compute(lgh_tool_reference *reference,
                                      const lgh_tool_tensors *tensors,
                                      const lgh_tool_feature *feature, const int64_t *tokens,
                                      int64_t count);
void lgh_tool_reference_free(lgh_tool_reference *reference);

#endif
