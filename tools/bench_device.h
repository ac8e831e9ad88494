/* bench_device.h - the device as the bench uses it: memory, a stream and a stopwatch on it. */
#ifndef LGH_TOOL_BENCH_DEVICE_H
#define LGH_TOOL_BENCH_DEVICE_H

#include "driver.h"

typedef struct lgh_tool_device {
    lgh_device_type type;
    lgh__device cuda;
    int is_current; /* the GPU's context was pushed */
    void *stream;   /* NULL on the CPU device, where work is done when it is enqueued */
    void *begin;    /* events */
    void *end;
} lgh_tool_device;

/** Enqueues one run of what is measured. */
typedef lgh_status (*lgh_tool_work)(void *subject, void *stream);

/** Opens the CPU device or GPU 0, which is current for this thread until it is closed. */
lgh_status lgh_tool_device_open(lgh_tool_device *device, lgh_device_type type);
void lgh_tool_device_close(lgh_tool_device *device);

/** Memory of the device, aligned as a workspace is. */
lgh_status lgh_tool_device_allocate(const lgh_tool_device *device, void **memory, size_t bytes);
void lgh_tool_device_free(const lgh_tool_device *device, void *memory);

/** Each waits until it is done; a copy is from or to the host. */
lgh_status lgh_tool_device_copy(const lgh_tool_device *device, void *to, const void *from,
                                size_t bytes);
lgh_status lgh_tool_device_clear(const lgh_tool_device *device, void *memory, size_t bytes);
lgh_status lgh_tool_device_wait(const lgh_tool_device *device);

/** Bytes of device memory in use, by any process; 0 on the CPU device, where it is not known. */
lgh_status lgh_tool_device_used(const lgh_tool_device *device, size_t *bytes);

/**
 * Milliseconds of one run, the mean of `runs` back to back. `lead_in` runs come before them on a
 * busy stream, so that neither clocks nor the first launch count.
 */
lgh_status lgh_tool_device_time(const lgh_tool_device *device, lgh_tool_work work, void *subject,
                                int lead_in, int runs, double *milliseconds);

#endif
