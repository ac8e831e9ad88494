/* bench_measure.c - times of several things, taken in turn so that all meet the same clocks. */
#include "bench_measure.h"

#include "error.h"
#include "progress.h"

#include <stdlib.h>
#include <string.h>

/* A sample and the run before it are long enough for the GPU's power control to settle on the thing
 * that runs: a short burst after something lighter would be faster than it can last. */
#define SAMPLE_MILLISECONDS 20.0
#define RUNS_MOST 32
#define HOST_SAMPLES 5

static int compare_numbers(const void *a, const void *b) {
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

lgh_tool_times lgh_tool_times_of(const double *samples, int count) {
    double sorted[LGH_TOOL_ROUNDS_MOST];
    memcpy(sorted, samples, (size_t)count * sizeof *samples);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_numbers);
    return (lgh_tool_times){0.5 * (sorted[(count - 1) / 2] + sorted[count / 2]), sorted[0],
                            sorted[count - 1]};
}

static lgh_status choose_runs(lgh_tool_measured *thing, const lgh_tool_device *device) {
    double milliseconds;
    FORWARD(lgh_tool_device_time(device, thing->work, thing->subject, 1, 1, &milliseconds));
    double runs = SAMPLE_MILLISECONDS / (milliseconds > 0.0 ? milliseconds : 1.0);
    thing->runs = runs > RUNS_MOST ? RUNS_MOST : (int)runs + 1;
    return LGH_SUCCESS;
}

lgh_status lgh_tool_measure(lgh_tool_measured *things, size_t count, int rounds,
                            const lgh_tool_device *device) {
    for (size_t i = 0; i < count; ++i)
        FORWARD(choose_runs(&things[i], device));
    for (int round = 0; round < rounds; ++round)
        for (size_t i = 0; i < count; ++i) {
            lgh_tool_measured *thing = &things[round % 2 == 0 ? i : count - 1 - i];
            FORWARD(lgh_tool_device_time(device, thing->work, thing->subject, 1, thing->runs,
                                         &thing->samples[round]));
        }
    return LGH_SUCCESS;
}

lgh_status lgh_tool_measure_host(lgh_tool_work work, void *subject, const lgh_tool_device *device,
                                 double *seconds) {
    double samples[HOST_SAMPLES];
    for (int i = 0; i < HOST_SAMPLES; ++i) {
        FORWARD(lgh_tool_device_wait(device));
        double begin = lgh_tool_now();
        FORWARD(work(subject, device->stream));
        samples[i] = lgh_tool_now() - begin;
    }
    FORWARD(lgh_tool_device_wait(device));
    *seconds = lgh_tool_times_of(samples, HOST_SAMPLES).median;
    return LGH_SUCCESS;
}
