/* bench_report.h - what the bench prints: Markdown, to be pasted as it is. */
#ifndef LGH_TOOL_BENCH_REPORT_H
#define LGH_TOOL_BENCH_REPORT_H

#include "bench_measure.h"
#include "bench_variant.h"
#include "bench_verify.h"

/* What was measured of one shape. */
typedef struct lgh_tool_result {
    lgh_tool_shape shape;
    int is_checked;
    lgh_tool_verdict verdicts[2]; /* of what is timed; of every output and gradient */
    int has_products;
    lgh_tool_variant variants[LGH_TOOL_PRODUCT_KINDS]; /* the fastest of each kind */
    lgh_tool_times products[LGH_TOOL_PRODUCT_KINDS];
    lgh_tool_times forward;
    lgh_tool_times both; /* forward and backward */
    double host_forward; /* seconds to enqueue */
    double host_backward;
    lgh_tool_plan_times plan;
    char engine[64];      /* the first line of the plan's description */
    size_t forward_bytes; /* of workspace */
    size_t backward_bytes;
    size_t beyond_budget;
} lgh_tool_result;

void lgh_tool_report_header(const char *device, const lgh_tool_dtypes *dtypes);
void lgh_tool_report_shape(const lgh_tool_shape *shape);

/** What was checked, and its errors beside what is promised. */
void lgh_tool_report_verdict(const char *what, const lgh_tool_verdict *verdict);

void lgh_tool_report_times(const lgh_tool_result *result);

/** One row per shape. */
void lgh_tool_report_summary(const lgh_tool_result *results, size_t count);

#endif
