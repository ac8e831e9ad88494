/* device_buffer.h - memory of the device under test, with guard bytes behind it. */
#ifndef LGH_DEVICE_BUFFER_H
#define LGH_DEVICE_BUFFER_H

#include "harness.h"

/** Host code never reads or writes through data: it may be a GPU's. */
typedef struct device_buffer {
    void *data; /* not NULL, also for 0 bytes */
    size_t bytes;
} device_buffer;

/** Every byte is 0xff, which is a NaN as FP32 and as BF16: what nobody wrote shows. */
device_buffer device_buffer_create(size_t bytes);

/** Fails the case unless the guard is as it was. */
void device_buffer_destroy(device_buffer *buffer);

/** Copies all of it; waits for what was enqueued on device_stream before. */
void device_buffer_upload(const device_buffer *buffer, const void *from);
void device_buffer_download(const device_buffer *buffer, void *to);

void device_buffer_fill(const device_buffer *buffer, int byte);

/** Whether all of it holds this byte. */
int device_buffer_holds(const device_buffer *buffer, int byte);

/** Whether nothing wrote behind it. */
int device_buffer_guard_is_intact(const device_buffer *buffer);

/** Fails the case unless it holds these bytes. */
void device_buffer_assert_same(const device_buffer *buffer, const void *expected, const char *what);

/** The stream of all calls and copies; NULL on the CPU device. Lives as long as the process. */
void *device_stream(void);

/** Bytes of the GPU that all its users hold; skips the case on the CPU device. */
size_t device_memory_in_use(void);

#endif
