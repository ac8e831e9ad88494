/* bench_run.h - the order of work of the bench, shape by shape. */
#ifndef LGH_TOOL_BENCH_RUN_H
#define LGH_TOOL_BENCH_RUN_H

#include "bench_shape.h"

#include "loggerhead/loggerhead.h"

typedef struct lgh_tool_bench_settings {
    lgh_tool_shapes shapes;
    int64_t budget_bytes; /* of the backward pass */
    int64_t token_block;  /* 0: what the plan chooses */
    int rounds;
    int quick; /* fewer trials of each product */
    int check;
    int products;
} lgh_tool_bench_settings;

/**
 * Measures every shape on device 0 and prints to stdout. *right is 0 if a result was not as
 * promised; that shape is not timed, and no later shape is run.
 */
lgh_status lgh_tool_bench_run(const lgh_tool_bench_settings *settings, int *right);

#endif
