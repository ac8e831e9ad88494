/* bench_gpu.h - the GPU as the bench uses it: a stream and a stopwatch on it. */
#ifndef LGH_TOOL_BENCH_GPU_H
#define LGH_TOOL_BENCH_GPU_H

#include "driver.h"

typedef struct lgh_tool_gpu {
    lgh__device device;
    int is_current; /* the device's context was pushed */
    void *stream;
    void *begin; /* events */
    void *end;
} lgh_tool_gpu;

/** Enqueues one run of what is measured. */
typedef lgh_status (*lgh_tool_work)(void *subject, void *stream);

/** Opens device 0 and makes it current for this thread until it is closed. */
lgh_status lgh_tool_gpu_open(lgh_tool_gpu *gpu);
void lgh_tool_gpu_close(lgh_tool_gpu *gpu);

/** Allocates bytes and copies them from host memory. */
lgh_status lgh_tool_gpu_upload(const lgh_tool_gpu *gpu, void **memory, const void *from,
                               size_t bytes);

/** Copies to host memory and waits for it. */
lgh_status lgh_tool_gpu_download(const lgh_tool_gpu *gpu, void *to, const void *from, size_t bytes);

/** Bytes of device memory in use, by any process. */
lgh_status lgh_tool_gpu_used(const lgh_tool_gpu *gpu, size_t *bytes);

/**
 * Milliseconds of one run, the mean of `runs` back to back. `lead_in` runs come before them on a
 * busy stream, so that neither clocks nor the first launch count.
 */
lgh_status lgh_tool_gpu_time(const lgh_tool_gpu *gpu, lgh_tool_work work, void *subject,
                             int lead_in, int runs, double *milliseconds);

#endif
