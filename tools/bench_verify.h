/* bench_verify.h - whether the results are right, before any time is taken. */
#ifndef LGH_TOOL_BENCH_VERIFY_H
#define LGH_TOOL_BENCH_VERIFY_H

#include "bench_compare.h"

typedef struct lgh_tool_verdict {
    lgh_tool_error errors[LGH_TOOL_ERRORS];
    int equal;          /* a second run gave the same bits */
    int intact;         /* nothing was written behind a workspace */
    size_t used_before; /* bytes of device memory, before the first calls and after */
    size_t used_after;  /* 0 on the CPU device */
    int right;          /* all of this is as promised */
} lgh_tool_verdict;

/**
 * Runs the feature's calls twice, a forward pass always among them, and compares a sample of tokens
 * and entries with lgh_tool_compare.
 */
lgh_status lgh_tool_verify(lgh_tool_verdict *verdict, lgh_tool_subject *subject,
                           lgh__threads *threads);

/** The largest share of a promise that an error takes; a NaN if an error is one. */
double lgh_tool_verdict_share(const lgh_tool_verdict *verdict);

#endif
