/* context.c - opening and closing a device. */
#include "context.h"

#include "error.h"
#include "options.h"
#include "threads.h"

#if LGH_WITH_CUDA
#include "cuda_device.h"
#endif

#include <stdio.h>
#include <stdlib.h>

static lgh_status open_cuda(lgh_context *context) {
#if LGH_WITH_CUDA
    return lgh__cuda_open(&context->cuda, &context->options);
#else
    (void)context;
    return FAIL(LGH_ERROR_UNSUPPORTED,
                "this libloggerhead was built without CUDA headers and has the CPU device alone");
#endif
}

static lgh_status open_device(lgh_context *context) {
    const lgh_context_options *o = &context->options;
    if (o->type == LGH_DEVICE_CUDA)
        return open_cuda(context);
    RETURN_IF(o->type != LGH_DEVICE_CPU, LGH_ERROR_INVALID_ARGUMENT,
              "options->type is %d, which is no device type", (int)o->type);
    RETURN_IF(o->cpu_threads < 0 || o->cpu_threads > 4096, LGH_ERROR_INVALID_ARGUMENT,
              "options->cpu_threads is %d; it must lie in [0, 4096]", o->cpu_threads);
    return lgh__threads_create(&context->threads, o->cpu_threads);
}

lgh_status lgh_context_create(lgh_context **context, const lgh_context_options *options) {
    RETURN_IF(!context, LGH_ERROR_INVALID_ARGUMENT, "context is null");
    *context = NULL;
    lgh_context_options filled = LGH_CONTEXT_OPTIONS_INIT;
    FORWARD(lgh__options_read(&filled, sizeof filled, sizeof filled, options, "options"));
    lgh_context *created = calloc(1, sizeof *created);
    RETURN_IF(!created, LGH_ERROR_OUT_OF_MEMORY, "no memory for a context");
    created->options = filled;
    lgh_status status = open_device(created);
    if (status != LGH_SUCCESS) {
        free(created);
        return status;
    }
    *context = created;
    return LGH_SUCCESS;
}

void lgh_context_destroy(lgh_context *context) {
    if (!context)
        return;
#if LGH_WITH_CUDA
    lgh__cuda_close(context->cuda);
#endif
    lgh__threads_destroy(context->threads);
    free(context);
}

lgh_status lgh_context_device_name(const lgh_context *context, char *text, size_t capacity) {
    RETURN_IF(!context, LGH_ERROR_INVALID_ARGUMENT, "context is null");
    RETURN_IF(!text, LGH_ERROR_INVALID_ARGUMENT, "text is null");
    RETURN_IF(capacity == 0, LGH_ERROR_INVALID_ARGUMENT, "capacity is 0, no room for text");
#if LGH_WITH_CUDA
    if (context->cuda) {
        const lgh__device *device = &context->cuda->device;
        snprintf(text, capacity, "%s (%s)", device->name, device->arch);
        return LGH_SUCCESS;
    }
#endif
    snprintf(text, capacity, "CPU (%d threads)", lgh__threads_count(context->threads));
    return LGH_SUCCESS;
}
