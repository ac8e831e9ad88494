/* memory.c - device memory for programs without CUDA code of their own. */
#include "context.h"
#include "error.h"

#if LGH_WITH_CUDA
#include "cuda_device.h"
#endif

#include <stdlib.h>
#include <string.h>

#if LGH_WITH_CUDA
static lgh_status allocate_cuda(const lgh__cuda *cuda, size_t bytes, void **memory) {
    FORWARD(lgh__driver_push(&cuda->device));
    lgh_status status = lgh__driver_allocate(memory, bytes);
    lgh__driver_pop();
    return status;
}

static void free_cuda(const lgh__cuda *cuda, void *memory) {
    if (lgh__driver_push(&cuda->device) != LGH_SUCCESS)
        return;
    lgh__driver_free(memory);
    lgh__driver_pop();
}

static lgh_status copy_cuda(const lgh__cuda *cuda, void *to, const void *from, size_t bytes,
                            void *stream) {
    FORWARD(lgh__driver_push(&cuda->device));
    lgh_status status = lgh__driver_copy(to, from, bytes, stream);
    if (status == LGH_SUCCESS)
        status = lgh__driver_synchronize(stream);
    lgh__driver_pop();
    return status;
}
#endif

lgh_status lgh_memory_allocate(lgh_context *context, size_t bytes, void **memory) {
    RETURN_IF(!context, LGH_ERROR_INVALID_ARGUMENT, "context is null");
    RETURN_IF(!memory, LGH_ERROR_INVALID_ARGUMENT, "memory is null");
    *memory = NULL;
    if (bytes == 0)
        return LGH_SUCCESS;
    const size_t padding = LGH_WORKSPACE_ALIGNMENT - 1;
    RETURN_IF(bytes > SIZE_MAX - padding, LGH_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes",
              bytes);
#if LGH_WITH_CUDA
    if (context->cuda)
        return allocate_cuda(context->cuda, bytes, memory);
#endif
    *memory = aligned_alloc(LGH_WORKSPACE_ALIGNMENT, (bytes + padding) & ~padding);
    RETURN_IF(!*memory, LGH_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes", bytes);
    return LGH_SUCCESS;
}

void lgh_memory_free(lgh_context *context, void *memory) {
    if (!context || !memory)
        return;
#if LGH_WITH_CUDA
    if (context->cuda) {
        free_cuda(context->cuda, memory);
        return;
    }
#endif
    free(memory);
}

lgh_status lgh_memory_copy(lgh_context *context, void *to, const void *from, size_t bytes,
                           void *stream) {
    RETURN_IF(!context, LGH_ERROR_INVALID_ARGUMENT, "context is null");
    if (bytes == 0)
        return LGH_SUCCESS;
    RETURN_IF(!to, LGH_ERROR_INVALID_ARGUMENT, "to is null");
    RETURN_IF(!from, LGH_ERROR_INVALID_ARGUMENT, "from is null");
#if LGH_WITH_CUDA
    if (context->cuda)
        return copy_cuda(context->cuda, to, from, bytes, stream);
#endif
    (void)stream;
    memmove(to, from, bytes);
    return LGH_SUCCESS;
}
