/* bench_device.c - the device as the bench uses it: memory, a stream and a stopwatch on it. */
#include "bench_device.h"

#include "error.h"
#include "progress.h"

#include <stdlib.h>
#include <string.h>

static int is_cpu(const lgh_tool_device *device) {
    return device->type == LGH_DEVICE_CPU;
}

static lgh_status open_stream(lgh_tool_device *device) {
    FORWARD(lgh__driver_push(&device->cuda));
    device->is_current = 1;
    FORWARD(lgh__driver_stream_create(&device->stream));
    FORWARD(lgh__driver_event_create(&device->begin));
    return lgh__driver_event_create(&device->end);
}

lgh_status lgh_tool_device_open(lgh_tool_device *device, lgh_device_type type) {
    *device = (lgh_tool_device){.type = type};
    if (is_cpu(device))
        return LGH_SUCCESS;
    FORWARD(lgh__driver_open(&device->cuda, 0));
    lgh_status status = open_stream(device);
    if (status != LGH_SUCCESS)
        lgh_tool_device_close(device);
    return status;
}

void lgh_tool_device_close(lgh_tool_device *device) {
    if (device->is_current) {
        lgh__driver_event_destroy(device->end);
        lgh__driver_event_destroy(device->begin);
        lgh__driver_stream_destroy(device->stream);
        lgh__driver_pop();
    }
    if (!is_cpu(device))
        lgh__driver_close(&device->cuda);
    *device = (lgh_tool_device){.type = LGH_DEVICE_CPU};
}

/* ---- Memory -------------------------------------------------------------------------------- */

lgh_status lgh_tool_device_allocate(const lgh_tool_device *device, void **memory, size_t bytes) {
    const size_t unit = LGH_WORKSPACE_ALIGNMENT;
    if (!is_cpu(device))
        return lgh__driver_allocate(memory, bytes);
    *memory = aligned_alloc(unit, (bytes / unit + 1) * unit);
    RETURN_IF(!*memory, LGH_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes", bytes);
    return LGH_SUCCESS;
}

void lgh_tool_device_free(const lgh_tool_device *device, void *memory) {
    if (is_cpu(device))
        free(memory);
    else
        lgh__driver_free(memory);
}

lgh_status lgh_tool_device_copy(const lgh_tool_device *device, void *to, const void *from,
                                size_t bytes) {
    if (is_cpu(device)) {
        memcpy(to, from, bytes);
        return LGH_SUCCESS;
    }
    FORWARD(lgh__driver_copy(to, from, bytes, device->stream));
    return lgh__driver_synchronize(device->stream);
}

lgh_status lgh_tool_device_clear(const lgh_tool_device *device, void *memory, size_t bytes) {
    if (is_cpu(device)) {
        memset(memory, 0, bytes);
        return LGH_SUCCESS;
    }
    FORWARD(lgh__driver_fill(memory, 0, 1, bytes, bytes, device->stream));
    return lgh__driver_synchronize(device->stream);
}

lgh_status lgh_tool_device_wait(const lgh_tool_device *device) {
    return is_cpu(device) ? LGH_SUCCESS : lgh__driver_synchronize(device->stream);
}

lgh_status lgh_tool_device_used(const lgh_tool_device *device, size_t *bytes) {
    size_t available, total;
    *bytes = 0;
    if (is_cpu(device))
        return LGH_SUCCESS;
    FORWARD(lgh__driver_synchronize(device->stream));
    FORWARD(lgh__driver_memory_info(&available, &total));
    *bytes = total - available;
    return LGH_SUCCESS;
}

/* ---- Time ---------------------------------------------------------------------------------- */

static lgh_status repeat(const lgh_tool_device *device, lgh_tool_work work, void *subject,
                         int runs) {
    for (int i = 0; i < runs; ++i)
        FORWARD(work(subject, device->stream));
    return LGH_SUCCESS;
}

static lgh_status time_on_cpu(const lgh_tool_device *device, lgh_tool_work work, void *subject,
                              int runs, double *milliseconds) {
    double begin = lgh_tool_now();
    FORWARD(repeat(device, work, subject, runs));
    *milliseconds = 1e3 * (lgh_tool_now() - begin) / runs;
    return LGH_SUCCESS;
}

static lgh_status time_on_gpu(const lgh_tool_device *device, lgh_tool_work work, void *subject,
                              int runs, double *milliseconds) {
    float elapsed = 0.0f;
    FORWARD(lgh__driver_event_record(device->begin, device->stream));
    FORWARD(repeat(device, work, subject, runs));
    FORWARD(lgh__driver_event_record(device->end, device->stream));
    FORWARD(lgh__driver_event_elapsed(&elapsed, device->begin, device->end));
    *milliseconds = (double)elapsed / runs;
    return LGH_SUCCESS;
}

lgh_status lgh_tool_device_time(const lgh_tool_device *device, lgh_tool_work work, void *subject,
                                int lead_in, int runs, double *milliseconds) {
    FORWARD(repeat(device, work, subject, lead_in));
    return is_cpu(device) ? time_on_cpu(device, work, subject, runs, milliseconds)
                          : time_on_gpu(device, work, subject, runs, milliseconds);
}
