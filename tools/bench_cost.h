/* bench_cost.h - what each optional output and feature costs, in per cent of the pass without. */
#ifndef LGH_TOOL_BENCH_COST_H
#define LGH_TOOL_BENCH_COST_H

#include "bench_run.h"
#include "bench_subject.h"

/**
 * Checks and measures every feature of lgh_tool_features on the buffers, those of the same calls in
 * turn, and prints a table for each kind of call. *right is 0 if a result was not as promised;
 * nothing more is run then.
 */
lgh_status lgh_tool_costs_run(const lgh_tool_buffers *buffers,
                              const lgh_tool_bench_settings *settings, lgh__threads *threads,
                              int *right);

#endif
