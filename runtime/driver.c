/* driver.c - the CUDA driver API, loaded at run time. */
#include "driver.h"

#include "error.h"
#include "library.h"

#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The interface version asked of cuGetProcAddress: the first with context-independent libraries
 * (cuLibraryLoadData). */
#define DRIVER_INTERFACE 12000

#define DRIVER_FUNCTIONS(X)                                                                        \
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

/* The once-loaded table. cuda.h defines some names as macros of a newer variant; the member takes
 * the same name, and cuGetProcAddress picks the variant by DRIVER_INTERFACE. */
static struct driver_table {
#define DRIVER_MEMBER(name) __typeof__(name) *name;
    DRIVER_FUNCTIONS(DRIVER_MEMBER)
#undef DRIVER_MEMBER
} driver;

static const char *const sonames[] = {"libcuda.so.1"};
static const lgh__library_name library = {"CUDA", "The CUDA driver (libcuda.so.1)",
                                          "install NVIDIA's driver, 525 or newer", sonames, 1};

static lgh_status driver_failure(CUresult result, const char *call, const char *file, int line) {
    const char *name = NULL, *text = NULL;
    driver.cuGetErrorName(result, &name);
    driver.cuGetErrorString(result, &text);
    lgh_status status = LGH_ERROR_DEVICE;
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        status = LGH_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_ERROR_NO_DEVICE || result == CUDA_ERROR_INVALID_DEVICE)
        status = LGH_ERROR_NO_DEVICE;
    return lgh__fail(status, file, line, "%s gave %s (%s)", call, name ? name : "an unknown error",
                     text ? text : "no text");
}

/* Checks a call of the table; for a sticky error the text of the first failing call counts. */
#define CU_(call)                                                                                  \
    do {                                                                                           \
        CUresult cu_result_ = driver.call;                                                         \
        if (cu_result_ != CUDA_SUCCESS)                                                            \
            return driver_failure(cu_result_, #call, __FILE__, __LINE__);                          \
    } while (0)

static lgh_status load_function(__typeof__(cuGetProcAddress) *get, const char *name, void *into) {
    void *address = NULL;
    CUdriverProcAddressQueryResult found;
    CUresult result = get(name, &address, DRIVER_INTERFACE, CU_GET_PROC_ADDRESS_DEFAULT, &found);
    RETURN_IF(result != CUDA_SUCCESS || !address, LGH_ERROR_LIBRARY_NOT_FOUND,
              "The CUDA driver lacks %s; %s", name, library.hint);
    memcpy(into, &address, sizeof address);
    return LGH_SUCCESS;
}

static lgh_status load_driver(void) {
    void *handle;
    __typeof__(cuGetProcAddress) *get;
    FORWARD(lgh__library_open(&handle, &library));
    FORWARD(lgh__library_symbol(handle, &library, "cuGetProcAddress_v2", &get));
#define DRIVER_LOAD(name) FORWARD(load_function(get, #name, &driver.name));
    DRIVER_FUNCTIONS(DRIVER_LOAD)
#undef DRIVER_LOAD
    CU_(cuInit(0));
    return LGH_SUCCESS;
}

/* Loads on the first call; a failure is tried again, since the user may set a path meanwhile. */
static lgh_status ensure_driver(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int loaded;
    pthread_mutex_lock(&lock);
    lgh_status status = loaded ? LGH_SUCCESS : load_driver();
    loaded = status == LGH_SUCCESS;
    pthread_mutex_unlock(&lock);
    return status;
}

/* wgmma, tcgen05 and their kin exist only in the targets that name the arch with an 'a'. */
static void name_arch(lgh__device *device) {
    int specific = device->major == 9 || device->major == 10;
    snprintf(device->arch, sizeof device->arch, "sm_%d%d%s", device->major, device->minor,
             specific ? "a" : "");
}

static lgh_status read_device(lgh__device *device, int ordinal) {
    int count = 0;
    CU_(cuDeviceGetCount(&count));
    RETURN_IF(ordinal < 0 || ordinal >= count, LGH_ERROR_NO_DEVICE,
              "options->ordinal is %d, but this process sees %d CUDA device(s); "
              "CUDA_VISIBLE_DEVICES may hide some",
              ordinal, count);
    CU_(cuDeviceGet(&device->handle, ordinal));
    CU_(cuDeviceGetName(device->name, sizeof device->name, device->handle));
    CU_(cuDeviceGetAttribute(&device->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                             device->handle));
    CU_(cuDeviceGetAttribute(&device->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                             device->handle));
    CU_(cuDeviceGetAttribute(&device->multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                             device->handle));
    RETURN_IF(device->major < 8, LGH_ERROR_UNSUPPORTED,
              "%s has compute capability %d.%d; BF16 needs 8.0 or newer", device->name,
              device->major, device->minor);
    name_arch(device);
    return LGH_SUCCESS;
}

lgh_status lgh__driver_open(lgh__device *device, int ordinal) {
    memset(device, 0, sizeof *device);
    FORWARD(ensure_driver());
    FORWARD(read_device(device, ordinal));
    CUcontext context;
    CU_(cuDevicePrimaryCtxRetain(&context, device->handle));
    device->context = context;
    return LGH_SUCCESS;
}

void lgh__driver_close(lgh__device *device) {
    if (device->context)
        driver.cuDevicePrimaryCtxRelease(device->handle);
    device->context = NULL;
}

lgh_status lgh__driver_push(const lgh__device *device) {
    CU_(cuCtxPushCurrent(device->context));
    return LGH_SUCCESS;
}

void lgh__driver_pop(void) {
    CUcontext popped;
    driver.cuCtxPopCurrent(&popped);
}

lgh_status lgh__driver_allocate(void **memory, size_t bytes) {
    CUdeviceptr address = 0;
    *memory = NULL;
    if (bytes > 0)
        CU_(cuMemAlloc(&address, bytes));
    *memory = (void *)(uintptr_t)address;
    return LGH_SUCCESS;
}

void lgh__driver_free(void *memory) {
    if (memory)
        driver.cuMemFree((CUdeviceptr)(uintptr_t)memory);
}

lgh_status lgh__driver_memory_info(size_t *available, size_t *total) {
    CU_(cuMemGetInfo(available, total));
    return LGH_SUCCESS;
}

lgh_status lgh__driver_copy(void *to, const void *from, size_t bytes, void *stream) {
    if (bytes > 0)
        CU_(cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, bytes, stream));
    return LGH_SUCCESS;
}

lgh_status lgh__driver_fill(void *data, int byte, size_t rows, size_t row_bytes,
                            size_t stride_bytes, void *stream) {
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)data;
    if (rows == 0 || row_bytes == 0)
        return LGH_SUCCESS;
    if (stride_bytes == row_bytes)
        CU_(cuMemsetD8Async(address, (unsigned char)byte, rows * row_bytes, stream));
    else
        CU_(cuMemsetD2D8Async(address, stride_bytes, (unsigned char)byte, row_bytes, rows, stream));
    return LGH_SUCCESS;
}

lgh_status lgh__driver_stream_create(void **stream) {
    CUstream created;
    CU_(cuStreamCreate(&created, CU_STREAM_NON_BLOCKING));
    *stream = created;
    return LGH_SUCCESS;
}

void lgh__driver_stream_destroy(void *stream) {
    if (stream)
        driver.cuStreamDestroy(stream);
}

lgh_status lgh__driver_synchronize(void *stream) {
    CU_(cuStreamSynchronize(stream));
    return LGH_SUCCESS;
}

lgh_status lgh__driver_event_create(void **event) {
    CUevent created;
    CU_(cuEventCreate(&created, CU_EVENT_DEFAULT));
    *event = created;
    return LGH_SUCCESS;
}

void lgh__driver_event_destroy(void *event) {
    if (event)
        driver.cuEventDestroy(event);
}

lgh_status lgh__driver_event_record(void *event, void *stream) {
    CU_(cuEventRecord(event, stream));
    return LGH_SUCCESS;
}

lgh_status lgh__driver_event_elapsed(float *milliseconds, void *begin, void *end) {
    CU_(cuEventSynchronize(end));
    CU_(cuEventElapsedTime(milliseconds, begin, end));
    return LGH_SUCCESS;
}

lgh_status lgh__driver_module_load(void **module, const void *cubin) {
    CUlibrary loaded;
    CU_(cuLibraryLoadData(&loaded, cubin, NULL, NULL, 0, NULL, NULL, 0));
    *module = loaded;
    return LGH_SUCCESS;
}

void lgh__driver_module_unload(void *module) {
    if (module)
        driver.cuLibraryUnload(module);
}

lgh_status lgh__driver_module_kernel(void **kernel, void *module, const char *entry) {
    CUkernel found;
    CU_(cuLibraryGetKernel(&found, module, entry));
    *kernel = found;
    return LGH_SUCCESS;
}

lgh_status lgh__driver_launch(void *kernel, int64_t blocks, int threads, const void *parameters,
                              void *stream) {
    RETURN_IF(blocks < 1 || blocks > INT32_MAX, LGH_ERROR_INTERNAL, "a grid of %lld blocks",
              (long long)blocks);
    /* The driver copies the parameters before it returns and never writes them. */
    void *arguments[] = {(void *)(uintptr_t)parameters};
    /* A CUkernel may stand where a CUfunction is wanted (cuLaunchKernel). */
    CU_(cuLaunchKernel((CUfunction)kernel, (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1, 0,
                       stream, arguments, NULL));
    return LGH_SUCCESS;
}
