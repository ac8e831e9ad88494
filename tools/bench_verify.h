/* bench_verify.h - whether the results are right, before any time is taken. */
#ifndef LGH_TOOL_BENCH_VERIFY_H
#define LGH_TOOL_BENCH_VERIFY_H

#include "bench_subject.h"

/* What is compared with float64. */
enum {
    LGH_TOOL_ERROR_LOGP,
    LGH_TOOL_ERROR_LSE,
    LGH_TOOL_ERROR_ENTROPY,
    LGH_TOOL_ERROR_DHIDDEN,
    LGH_TOOL_ERROR_DWEIGHT_OTHERS, /* rows of entries that are no token's target */
    LGH_TOOL_ERROR_DWEIGHT_TARGETS,
    LGH_TOOL_ERRORS
};

/* An error against float64 and the most that the library promises. */
typedef struct lgh_tool_error {
    int64_t rows; /* that were compared; 0: there are none */
    double error;
    double promise;
} lgh_tool_error;

typedef struct lgh_tool_verdict {
    lgh_tool_error errors[LGH_TOOL_ERRORS];
    int equal;          /* a second run gave the same bits */
    int intact;         /* nothing was written behind a workspace */
    size_t used_before; /* bytes of device memory, before the first calls and after */
    size_t used_after;
    int right; /* all of this is as promised */
} lgh_tool_verdict;

/**
 * Runs forward and backward twice and compares with float64:
 * - logp, lse, entropy and dhidden of 32 tokens with the CPU device;
 * - dweight of 16 entries that are targets and 16 that are not with lgh_tool_dweight_rows. Their
 *   exp(z - lse) needs the lse of every token: the GPU's own, which the 32 tokens vouch for.
 */
lgh_status lgh_tool_verify(lgh_tool_verdict *verdict, lgh_tool_subject *subject,
                           const lgh_tool_gpu *gpu, const lgh_tool_tensors *tensors,
                           lgh__threads *threads);

#endif
