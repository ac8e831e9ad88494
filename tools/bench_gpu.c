/* bench_gpu.c - the GPU as the bench uses it: a stream and a stopwatch on it. */
#include "bench_gpu.h"

#include "error.h"

static lgh_status open_stream(lgh_tool_gpu *gpu) {
    FORWARD(lgh__driver_push(&gpu->device));
    gpu->is_current = 1;
    FORWARD(lgh__driver_stream_create(&gpu->stream));
    FORWARD(lgh__driver_event_create(&gpu->begin));
    return lgh__driver_event_create(&gpu->end);
}

lgh_status lgh_tool_gpu_open(lgh_tool_gpu *gpu) {
    *gpu = (lgh_tool_gpu){.is_current = 0};
    FORWARD(lgh__driver_open(&gpu->device, 0));
    lgh_status status = open_stream(gpu);
    if (status != LGH_SUCCESS)
        lgh_tool_gpu_close(gpu);
    return status;
}

void lgh_tool_gpu_close(lgh_tool_gpu *gpu) {
    if (gpu->is_current) {
        lgh__driver_event_destroy(gpu->end);
        lgh__driver_event_destroy(gpu->begin);
        lgh__driver_stream_destroy(gpu->stream);
        lgh__driver_pop();
    }
    lgh__driver_close(&gpu->device);
    *gpu = (lgh_tool_gpu){.is_current = 0};
}

lgh_status lgh_tool_gpu_upload(const lgh_tool_gpu *gpu, void **memory, const void *from,
                               size_t bytes) {
    FORWARD(lgh__driver_allocate(memory, bytes));
    FORWARD(lgh__driver_copy(*memory, from, bytes, gpu->stream));
    return lgh__driver_synchronize(gpu->stream);
}

lgh_status lgh_tool_gpu_download(const lgh_tool_gpu *gpu, void *to, const void *from,
                                 size_t bytes) {
    FORWARD(lgh__driver_copy(to, from, bytes, gpu->stream));
    return lgh__driver_synchronize(gpu->stream);
}

lgh_status lgh_tool_gpu_used(const lgh_tool_gpu *gpu, size_t *bytes) {
    size_t available, total;
    FORWARD(lgh__driver_synchronize(gpu->stream));
    FORWARD(lgh__driver_memory_info(&available, &total));
    *bytes = total - available;
    return LGH_SUCCESS;
}

lgh_status lgh_tool_gpu_time(const lgh_tool_gpu *gpu, lgh_tool_work work, void *subject,
                             int lead_in, int runs, double *milliseconds) {
    float elapsed = 0.0f;
    for (int i = 0; i < lead_in; ++i)
        FORWARD(work(subject, gpu->stream));
    FORWARD(lgh__driver_event_record(gpu->begin, gpu->stream));
    for (int i = 0; i < runs; ++i)
        FORWARD(work(subject, gpu->stream));
    FORWARD(lgh__driver_event_record(gpu->end, gpu->stream));
    FORWARD(lgh__driver_event_elapsed(&elapsed, gpu->begin, gpu->end));
    *milliseconds = (double)elapsed / runs;
    return LGH_SUCCESS;
}
