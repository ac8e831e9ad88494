/* bench_measure.h - times of several things, taken in turn so that all meet the same clocks. */
#ifndef LGH_TOOL_BENCH_MEASURE_H
#define LGH_TOOL_BENCH_MEASURE_H

#include "bench_device.h"

#include <stddef.h>

#define LGH_TOOL_ROUNDS_MOST 101

/* One thing that is measured. */
typedef struct lgh_tool_measured {
    lgh_tool_work work;
    void *subject;
    int runs;                             /* per round, chosen by lgh_tool_measure */
    double samples[LGH_TOOL_ROUNDS_MOST]; /* milliseconds of a run, one per round */
} lgh_tool_measured;

/** The middle, the least and the most of the rounds, in milliseconds. */
typedef struct lgh_tool_times {
    double median, least, most;
} lgh_tool_times;

/** Takes `rounds` samples of each thing, every second round in reverse order. */
lgh_status lgh_tool_measure(lgh_tool_measured *things, size_t count, int rounds,
                            const lgh_tool_device *device);

lgh_tool_times lgh_tool_times_of(const double *samples, int count);

/** Host seconds that enqueueing a run takes while the stream is empty: the median of 5. */
lgh_status lgh_tool_measure_host(lgh_tool_work work, void *subject, const lgh_tool_device *device,
                                 double *seconds);

#endif
