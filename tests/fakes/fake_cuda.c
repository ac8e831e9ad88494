/* fake_cuda.c - the driver API of libfake_cuda: one device, whose work is done on the host.
 *
 * As the real driver since 12.0, it hands out everything through cuGetProcAddress. The device is
 * called "Fake GPU" and has the compute capability FAKE_CUDA_ARCH, 9.0 by default.
 */
#include "fake_cubin.h"
#include "fake_kernels.h"
#include "fake_state.h"

#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MULTIPROCESSORS 132
#define MOST_SHARED_BYTES (227 * 1024)
#define MOST_STATIC_SHARED_BYTES (48 * 1024)

typedef struct fake_event {
    fake_object object;
    int recorded;
    float time;
} fake_event;

typedef struct fake_kernel {
    fake_object object;
    fake_entry entry;
    fake_definitions definitions;
    _Atomic int was_launched;
} fake_kernel;

typedef struct fake_library {
    fake_object object;
    fake_cubin cubin;
    fake_kernel *kernels[FAKE_MOST_ENTRIES];
} fake_library;

/* Every function starts with it: counts the call, judges it, and returns an injected error. */
#define ENTER(name, rules)                                                                         \
    do {                                                                                           \
        CUresult entered_ = enter(name, rules);                                                    \
        if (entered_ != CUDA_SUCCESS)                                                              \
            return entered_;                                                                       \
    } while (0)

static CUresult enter(const char *name, unsigned rules) {
    int result = fake_enter(name, rules);
    return result == FAKE_NO_CONTEXT ? CUDA_ERROR_INVALID_CONTEXT : (CUresult)result;
}

/* ---- Device -------------------------------------------------------------------------------- */

static CUresult fake_cuInit(unsigned flags) {
    ENTER("cuInit", FAKE_NOT_IN_RUN);
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_cuGetErrorName(CUresult error, const char **name) {
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "FAKE_CUDA_ERROR_%d", (int)error);
    *name = text;
    return CUDA_SUCCESS;
}

static CUresult fake_cuGetErrorString(CUresult error, const char **text) {
    *text = error == CUDA_SUCCESS ? "no error" : "an error of the fake driver";
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGetCount(int *count) {
    ENTER("cuDeviceGetCount", 0);
    *count = 1;
    return CUDA_SUCCESS;
}

static CUresult fake_cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER("cuDeviceGet", 0);
    *device = 0;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_cuDeviceGetName(char *name, int capacity, CUdevice device) {
    ENTER("cuDeviceGetName", 0);
    snprintf(name, (size_t)capacity, "Fake GPU");
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* 10 * major + minor */
static int device_arch(void) {
    int major = 9, minor = 0;
    const char *given = getenv("FAKE_CUDA_ARCH");
    if (given && sscanf(given, "%d.%d", &major, &minor) != 2)
        fake_violation("FAKE_CUDA_ARCH is \"%s\", not like 9.0", given);
    return 10 * major + minor;
}

static CUresult fake_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                                          CUdevice device) {
    ENTER("cuDeviceGetAttribute", 0);
    if (device != 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        *value = device_arch() / 10;
    else if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        *value = device_arch() % 10;
    else if (attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        *value = MULTIPROCESSORS;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* ---- Contexts ------------------------------------------------------------------------------ */

static CUresult fake_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER("cuDevicePrimaryCtxRetain", FAKE_NOT_IN_RUN);
    if (device != 0)
        return CUDA_ERROR_INVALID_DEVICE;
    fake_context_retain(1);
    *context = fake_context_primary();
    return CUDA_SUCCESS;
}

static CUresult fake_cuDevicePrimaryCtxRelease(CUdevice device) {
    CUresult result = enter("cuDevicePrimaryCtxRelease", FAKE_NOT_IN_RUN);
    if (device != 0 || fake_context_retain(0) == 0) {
        fake_violation("the primary context is released more often than retained");
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    fake_context_retain(-1);
    return result;
}

static CUresult fake_cuCtxPushCurrent(CUcontext context) {
    ENTER("cuCtxPushCurrent", 0);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return fake_context_push(context) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

static CUresult fake_cuCtxPopCurrent(CUcontext *context) {
    CUresult result = enter("cuCtxPopCurrent", 0);
    void *popped = fake_context_pop();
    if (!popped) {
        fake_violation("cuCtxPopCurrent without a context");
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (context)
        *context = popped;
    return result;
}

/* ---- Memory -------------------------------------------------------------------------------- */

static CUresult fake_cuMemAlloc(CUdeviceptr *address, size_t bytes) {
    ENTER("cuMemAlloc", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    void *memory = fake_memory_allocate(bytes, 0);
    *address = (CUdeviceptr)(uintptr_t)memory;
    return memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_cuMemFree(CUdeviceptr address) {
    CUresult result = enter("cuMemFree", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    if (!fake_memory_free((void *)(uintptr_t)address, "cuMemFree"))
        return CUDA_ERROR_INVALID_VALUE;
    return result;
}

static CUresult fake_cuMemGetInfo(size_t *available, size_t *total) {
    ENTER("cuMemGetInfo", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    *total = fake_memory_total();
    *available = *total - fake_cuda_count_live().bytes;
    return CUDA_SUCCESS;
}

/* A copy from or to pageable host memory may wait, so a run call may not make one. */
static int judge_copy(const void *memory, size_t bytes, unsigned how) {
    if (fake_is_device(memory))
        return fake_access((fake_rows){memory, 1, (int64_t)bytes, 0}, how, "cuMemcpyAsync");
    if (fake_run_stream())
        fake_violation("cuMemcpyAsync with host memory");
    return 1;
}

static CUresult fake_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                   CUstream stream) {
    ENTER("cuMemcpyAsync", FAKE_NEEDS_CONTEXT);
    fake_check_stream(stream, "cuMemcpyAsync");
    void *target = (void *)(uintptr_t)to;
    const void *source = (const void *)(uintptr_t)from;
    if (bytes == 0)
        return CUDA_SUCCESS;
    /* A copy within the device may take along what nobody wrote, such as rows' padding. */
    const int within = fake_is_device(source) && fake_is_device(target);
    if (!judge_copy(source, bytes, within ? 0 : FAKE_READ) ||
        !judge_copy(target, bytes, within ? 0 : FAKE_WRITE))
        return CUDA_ERROR_INVALID_VALUE;
    memmove(target, source, bytes);
    if (within)
        fake_copy_marks(target, source, bytes);
    return CUDA_SUCCESS;
}

static CUresult set_rows(const char *what, CUdeviceptr address, size_t stride, unsigned char byte,
                         size_t row_bytes, size_t rows, CUstream stream) {
    char *data = (char *)(uintptr_t)address;
    fake_check_stream(stream, what);
    if (row_bytes == 0 || rows == 0)
        return CUDA_SUCCESS;
    if (stride < row_bytes) {
        fake_violation("%s: rows of %zu bytes, %zu apart", what, row_bytes, stride);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!fake_access((fake_rows){data, (int64_t)rows, (int64_t)row_bytes, (int64_t)stride},
                     FAKE_WRITE, what))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t row = 0; row < rows; ++row)
        memset(data + row * stride, byte, row_bytes);
    return CUDA_SUCCESS;
}

static CUresult fake_cuMemsetD8Async(CUdeviceptr address, unsigned char byte, size_t count,
                                     CUstream stream) {
    ENTER("cuMemsetD8Async", FAKE_NEEDS_CONTEXT);
    return set_rows("cuMemsetD8Async", address, count, byte, count, 1, stream);
}

static CUresult fake_cuMemsetD2D8Async(CUdeviceptr address, size_t pitch, unsigned char byte,
                                       size_t width, size_t height, CUstream stream) {
    ENTER("cuMemsetD2D8Async", FAKE_NEEDS_CONTEXT);
    return set_rows("cuMemsetD2D8Async", address, pitch, byte, width, height, stream);
}

/* ---- Streams and events -------------------------------------------------------------------- */

static CUresult fake_cuStreamCreate(CUstream *stream, unsigned flags) {
    ENTER("cuStreamCreate", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    if (flags != CU_STREAM_NON_BLOCKING)
        fake_violation("cuStreamCreate: a stream that waits for the default stream");
    *stream = fake_object_create(FAKE_STREAM, sizeof(fake_object));
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_cuStreamDestroy(CUstream stream) {
    CUresult result = enter("cuStreamDestroy", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    return fake_object_destroy(stream, FAKE_STREAM) ? result : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult fake_cuStreamSynchronize(CUstream stream) {
    ENTER("cuStreamSynchronize", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    fake_check_stream(stream, "cuStreamSynchronize");
    return CUDA_SUCCESS;
}

static CUresult fake_cuEventCreate(CUevent *event, unsigned flags) {
    ENTER("cuEventCreate", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    (void)flags;
    *event = fake_object_create(FAKE_EVENT, sizeof(fake_event));
    return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_cuEventDestroy(CUevent event) {
    CUresult result = enter("cuEventDestroy", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    return fake_object_destroy(event, FAKE_EVENT) ? result : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult fake_cuEventRecord(CUevent event, CUstream stream) {
    ENTER("cuEventRecord", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    fake_check_stream(stream, "cuEventRecord");
    if (!fake_object_check(event, FAKE_EVENT, "cuEventRecord"))
        return CUDA_ERROR_INVALID_HANDLE;
    fake_event *recorded = (fake_event *)event;
    recorded->recorded = 1;
    recorded->time = fake_clock();
    return CUDA_SUCCESS;
}

static CUresult fake_cuEventSynchronize(CUevent event) {
    ENTER("cuEventSynchronize", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    return fake_object_check(event, FAKE_EVENT, "cuEventSynchronize") ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult fake_cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end) {
    ENTER("cuEventElapsedTime", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    const fake_event *from = (const fake_event *)begin, *to = (const fake_event *)end;
    if (!fake_object_check(from, FAKE_EVENT, "cuEventElapsedTime") ||
        !fake_object_check(to, FAKE_EVENT, "cuEventElapsedTime") || !from->recorded ||
        !to->recorded)
        return CUDA_ERROR_INVALID_HANDLE;
    *milliseconds = to->time - from->time;
    return CUDA_SUCCESS;
}

/* ---- Kernels ------------------------------------------------------------------------------- */

static CUresult create_kernels(fake_library *library, const fake_definitions *definitions) {
    for (int i = 0; i < library->cubin.entry_count; ++i) {
        fake_kernel *kernel = fake_object_create(FAKE_KERNEL, sizeof *kernel);
        if (!kernel)
            return CUDA_ERROR_OUT_OF_MEMORY;
        kernel->entry = library->cubin.entries[i];
        kernel->definitions = *definitions;
        library->kernels[i] = kernel;
    }
    return CUDA_SUCCESS;
}

static CUresult fake_cuLibraryLoadData(CUlibrary *out, const void *code, CUjit_option *jit_options,
                                       void **jit_values, unsigned jit_count,
                                       CUlibraryOption *options, void **values, unsigned count) {
    ENTER("cuLibraryLoadData", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    (void)jit_options, (void)jit_values, (void)options, (void)values;
    fake_cubin cubin;
    fake_definitions definitions;
    if (jit_count != 0 || count != 0 || !fake_cubin_read(&cubin, code))
        return CUDA_ERROR_INVALID_IMAGE;
    if (cubin.arch != device_arch()) {
        fake_violation("a cubin for sm_%d is loaded on sm_%d", cubin.arch, device_arch());
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    if (!fake_definitions_find(&definitions, code, cubin.bytes))
        return CUDA_ERROR_INVALID_IMAGE;
    fake_library *library = fake_object_create(FAKE_LIBRARY, sizeof *library);
    if (!library)
        return CUDA_ERROR_OUT_OF_MEMORY;
    library->cubin = cubin;
    *out = (CUlibrary)library;
    return create_kernels(library, &definitions);
}

static CUresult fake_cuLibraryUnload(CUlibrary unloaded) {
    CUresult result = enter("cuLibraryUnload", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    fake_library *library = (fake_library *)unloaded;
    if (!fake_object_check(library, FAKE_LIBRARY, "cuLibraryUnload"))
        return CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; i < library->cubin.entry_count; ++i)
        fake_object_destroy(library->kernels[i], FAKE_KERNEL);
    fake_object_destroy(library, FAKE_LIBRARY);
    return result;
}

static CUresult fake_cuLibraryGetKernel(CUkernel *kernel, CUlibrary loaded, const char *name) {
    ENTER("cuLibraryGetKernel", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    const fake_library *library = (const fake_library *)loaded;
    if (!fake_object_check(library, FAKE_LIBRARY, "cuLibraryGetKernel"))
        return CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; i < library->cubin.entry_count; ++i)
        if (strcmp(library->cubin.entries[i].name, name) == 0) {
            *kernel = (CUkernel)library->kernels[i];
            return CUDA_SUCCESS;
        }
    fake_violation("cuLibraryGetKernel: the cubin has no kernel %s", name);
    return CUDA_ERROR_NOT_FOUND;
}

static int judge_size(const fake_entry *entry, unsigned blocks, unsigned threads,
                      unsigned shared_bytes) {
    if (blocks >= 1 && blocks <= INT32_MAX && threads >= 1 && threads <= 1024 &&
        threads == (unsigned)entry->max_threads && shared_bytes <= MOST_SHARED_BYTES &&
        entry->shared_bytes <= MOST_STATIC_SHARED_BYTES)
        return 1;
    fake_violation("%s: a launch of %u blocks of %u threads with %u bytes of shared memory; it was "
                   "compiled for %d threads",
                   entry->name, blocks, threads, shared_bytes, entry->max_threads);
    return 0;
}

static CUresult fake_cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z,
                                    unsigned threads_x, unsigned threads_y, unsigned threads_z,
                                    unsigned shared_bytes, CUstream stream, void **parameters,
                                    void **extra) {
    ENTER("cuLaunchKernel", FAKE_NEEDS_CONTEXT);
    fake_kernel *kernel = (fake_kernel *)function;
    if (!fake_object_check(kernel, FAKE_KERNEL, "cuLaunchKernel"))
        return CUDA_ERROR_INVALID_HANDLE;
    fake_check_stream(stream, kernel->entry.name);
    if (y != 1 || z != 1 || threads_y != 1 || threads_z != 1 || extra ||
        !judge_size(&kernel->entry, x, threads_x, shared_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (fake_run_stream() && !kernel->was_launched)
        fake_violation("%s runs for the first time: the driver may load it now",
                       kernel->entry.name);
    kernel->was_launched = 1;
    const fake_launch launch = {
        kernel->entry.name, parameters[0],      kernel->entry.parameter_bytes, x,
        (int)threads_x,     kernel->definitions};
    fake_kernel_run(&launch);
    return CUDA_SUCCESS;
}

/* ---- The way in ---------------------------------------------------------------------------- */

#define FAKE_FUNCTIONS(X)                                                                          \
    X(cuInit)                                                                                      \
    X(cuGetErrorName)                                                                              \
    X(cuGetErrorString)                                                                            \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetName)                                                                             \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease)                                                                   \
    X(cuCtxPushCurrent)                                                                            \
    X(cuCtxPopCurrent)                                                                             \
    X(cuMemAlloc)                                                                                  \
    X(cuMemFree)                                                                                   \
    X(cuMemGetInfo)                                                                                \
    X(cuMemcpyAsync)                                                                               \
    X(cuMemsetD8Async)                                                                             \
    X(cuMemsetD2D8Async)                                                                           \
    X(cuStreamCreate)                                                                              \
    X(cuStreamDestroy)                                                                             \
    X(cuStreamSynchronize)                                                                         \
    X(cuEventCreate)                                                                               \
    X(cuEventDestroy)                                                                              \
    X(cuEventRecord)                                                                               \
    X(cuEventSynchronize)                                                                          \
    X(cuEventElapsedTime)                                                                          \
    X(cuLibraryLoadData)                                                                           \
    X(cuLibraryUnload)                                                                             \
    X(cuLibraryGetKernel)                                                                          \
    X(cuLaunchKernel)

/* The comparison with cuda.h's type makes a wrong signature a compile error. */
#define FIND(function)                                                                             \
    if (strcmp(name, #function) == 0) {                                                            \
        __typeof__(function) *address = fake_##function;                                           \
        memcpy(found, &address, sizeof address);                                                   \
        return CUDA_SUCCESS;                                                                       \
    }

FAKE_API CUresult cuGetProcAddress_v2(const char *name, void **found, int version, cuuint64_t flags,
                                      CUdriverProcAddressQueryResult *result) {
    ENTER("cuGetProcAddress", FAKE_NOT_IN_RUN);
    if (result)
        *result = CU_GET_PROC_ADDRESS_SUCCESS;
    if (version < 12000 || flags != CU_GET_PROC_ADDRESS_DEFAULT)
        return CUDA_ERROR_INVALID_VALUE;
    FAKE_FUNCTIONS(FIND)
    *found = NULL;
    if (result)
        *result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_ERROR_NOT_FOUND;
}
