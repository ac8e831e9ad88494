/* driver.h - the CUDA driver API: the only file that calls it is driver.c.
 *
 * Device pointers are void *, streams are the caller's CUstream or cudaStream_t as void *. Apart
 * from open, close, push and pop, every function wants the device's context to be current.
 */
#ifndef LGH_DRIVER_H
#define LGH_DRIVER_H

#include "loggerhead/loggerhead.h"

/** What is known about an open device. */
typedef struct lgh__device {
    int handle;    /* CUdevice */
    void *context; /* the retained primary CUcontext */
    int major;     /* compute capability */
    int minor;
    int multiprocessors;
    char name[96];
    char arch[16]; /* for NVRTC, such as "sm_90a" */
} lgh__device;

/** Loads the driver once per process, and retains the primary context of device `ordinal`. */
lgh_status lgh__driver_open(lgh__device *device, int ordinal);
void lgh__driver_close(lgh__device *device);

/** Makes the device's context current for this thread; pop restores what was current before. */
lgh_status lgh__driver_push(const lgh__device *device);
void lgh__driver_pop(void);

lgh_status lgh__driver_allocate(void **memory, size_t bytes);
void lgh__driver_free(void *memory);

/** Free and total bytes of device memory. */
lgh_status lgh__driver_memory_info(size_t *available, size_t *total);

/** Copies between any two places in stream order, without waiting. */
lgh_status lgh__driver_copy(void *to, const void *from, size_t bytes, void *stream);

/** Fills `rows` rows of `row_bytes`, `stride_bytes` apart, with a byte, in stream order. */
lgh_status lgh__driver_fill(void *data, int byte, size_t rows, size_t row_bytes,
                            size_t stride_bytes, void *stream);

lgh_status lgh__driver_stream_create(void **stream); /* does not wait for the default stream */
void lgh__driver_stream_destroy(void *stream);
lgh_status lgh__driver_synchronize(void *stream);

lgh_status lgh__driver_event_create(void **event);
void lgh__driver_event_destroy(void *event);
lgh_status lgh__driver_event_record(void *event, void *stream);
/** Milliseconds between two recorded events; waits for the later one. */
lgh_status lgh__driver_event_elapsed(float *milliseconds, void *begin, void *end);

/** Loads a cubin; lgh__driver_module_kernel finds an entry in it. */
lgh_status lgh__driver_module_load(void **module, const void *cubin);
void lgh__driver_module_unload(void *module);
lgh_status lgh__driver_module_kernel(void **kernel, void *module, const char *entry);

/** Launches a one-dimensional grid of a kernel whose one parameter is the struct at `parameters`.
 */
lgh_status lgh__driver_launch(void *kernel, int64_t blocks, int threads, const void *parameters,
                              void *stream);

#endif
