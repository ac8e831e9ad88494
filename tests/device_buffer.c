/* device_buffer.c - device memory with guard bytes. */
#include "device_buffer.h"

#include <stdlib.h>
#include <string.h>

#if LGH_WITH_CUDA
#include "context.h"
#include "cuda_device.h"
#endif

enum { FRESH = 0xff, GUARD = 0xa5, GUARD_BYTES = 256 };

static void copy(void *to, const void *from, size_t bytes) {
    lgh_assert_success(lgh_memory_copy(lgh_test_context(), to, from, bytes, device_stream()));
}

static void *repeat_byte(int byte, size_t bytes) {
    void *memory = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(memory);
    return memset(memory, byte, bytes);
}

static void fill(void *data, int byte, size_t bytes) {
    void *filled = repeat_byte(byte, bytes);
    copy(data, filled, bytes);
    free(filled);
}

static int holds(const void *data, int byte, size_t bytes) {
    unsigned char *read = repeat_byte(~byte & 0xff, bytes);
    copy(read, data, bytes);
    size_t i = 0;
    while (i < bytes && read[i] == byte)
        i++;
    free(read);
    return i == bytes;
}

static void *guard_of(const device_buffer *buffer) {
    return (char *)buffer->data + buffer->bytes;
}

device_buffer device_buffer_create(size_t bytes) {
    device_buffer buffer = {NULL, bytes};
    lgh_assert_success(lgh_memory_allocate(lgh_test_context(), bytes + GUARD_BYTES, &buffer.data));
    device_buffer_fill(&buffer, FRESH);
    fill(guard_of(&buffer), GUARD, GUARD_BYTES);
    return buffer;
}

void device_buffer_destroy(device_buffer *buffer) {
    if (!buffer->data)
        return;
    assert_true(device_buffer_guard_is_intact(buffer));
    lgh_memory_free(lgh_test_context(), buffer->data);
    *buffer = (device_buffer){NULL, 0};
}

void device_buffer_upload(const device_buffer *buffer, const void *from) {
    copy(buffer->data, from, buffer->bytes);
}

void device_buffer_download(const device_buffer *buffer, void *to) {
    copy(to, buffer->data, buffer->bytes);
}

void device_buffer_fill(const device_buffer *buffer, int byte) {
    fill(buffer->data, byte, buffer->bytes);
}

int device_buffer_holds(const device_buffer *buffer, int byte) {
    return holds(buffer->data, byte, buffer->bytes);
}

int device_buffer_guard_is_intact(const device_buffer *buffer) {
    return holds(guard_of(buffer), GUARD, GUARD_BYTES);
}

void device_buffer_assert_same(const device_buffer *buffer, const void *expected,
                               const char *what) {
    void *read = repeat_byte(FRESH, buffer->bytes);
    device_buffer_download(buffer, read);
    lgh_assert_same_bytes(read, expected, buffer->bytes, what);
    free(read);
}

#if LGH_WITH_CUDA
/* Not the default stream, so that work that strays there is not in order with the rest. */
void *device_stream(void) {
    static void *stream;
    const lgh__cuda *cuda = lgh_test_context()->cuda;
    if (!cuda || stream)
        return stream;
    lgh_assert_success(lgh__driver_push(&cuda->device));
    lgh_status status = lgh__driver_stream_create(&stream);
    lgh__driver_pop();
    lgh_assert_success(status);
    return stream;
}

size_t device_memory_in_use(void) {
    const lgh__cuda *cuda = lgh_test_context()->cuda;
    size_t available = 0, total = 0;
    if (!cuda)
        lgh_test_skip("the CPU device has no memory of its own");
    lgh_assert_success(lgh__driver_push(&cuda->device));
    lgh_status status = lgh__driver_memory_info(&available, &total);
    lgh__driver_pop();
    lgh_assert_success(status);
    return total - available;
}
#else
void *device_stream(void) {
    return NULL;
}

size_t device_memory_in_use(void) {
    lgh_test_skip("built without a CUDA device");
}
#endif
