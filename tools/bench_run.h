/* bench_run.h - the order of work of the bench, shape by shape. */
#ifndef LGH_TOOL_BENCH_RUN_H
#define LGH_TOOL_BENCH_RUN_H

#include "bench_subject.h"

typedef struct lgh_tool_bench_settings {
    lgh_tool_shapes shapes;
    lgh_device_type device;
    const lgh_tool_dtypes *dtypes;
    lgh_tool_limits limits;
    int rounds;
    int quick; /* fewer trials of each product */
    int check;
    int products;
    int features; /* measure what each feature costs, in place of all else */
} lgh_tool_bench_settings;

/**
 * Measures every shape on the CPU device or GPU 0 and prints to stdout. *right is 0 if a result was
 * not as promised; that shape is not timed, and no later shape is run.
 */
lgh_status lgh_tool_bench_run(const lgh_tool_bench_settings *settings, int *right);

#endif
