/* cuda_device.c - an open CUDA device. */
#include "cuda_device.h"

#include "cublaslt.h"
#include "error.h"

#include <stdlib.h>

static lgh_status open_cublaslt(lgh__cuda *cuda) {
    FORWARD(lgh__driver_push(&cuda->device));
    lgh_status status = lgh__cublaslt_open(&cuda->cublaslt);
    lgh__driver_pop();
    return status;
}

lgh_status lgh__cuda_open(lgh__cuda **cuda, const lgh_context_options *options) {
    lgh_status status;
    lgh__cuda *opened = calloc(1, sizeof *opened);
    RETURN_IF(!opened, LGH_ERROR_OUT_OF_MEMORY, "no memory for a context");
    opened->log = options->log;
    opened->log_user = options->log_user;
    lgh__kernels_init(&opened->kernels);
    GOTO_IF(status, lgh__driver_open(&opened->device, options->ordinal), fail);
    GOTO_IF(status, open_cublaslt(opened), fail);
    *cuda = opened;
    return LGH_SUCCESS;
fail:
    lgh__cuda_close(opened);
    return status;
}

/* Also takes a device that is open in part. */
void lgh__cuda_close(lgh__cuda *cuda) {
    if (!cuda)
        return;
    int pushed = cuda->device.context && lgh__driver_push(&cuda->device) == LGH_SUCCESS;
    lgh__kernels_release(&cuda->kernels);
    if (pushed) {
        lgh__cublaslt_close(cuda->cublaslt); /* wants the context that it was made in */
        lgh__driver_pop();
    }
    lgh__driver_close(&cuda->device);
    free(cuda);
}

lgh_status lgh__cuda_kernel(lgh__cuda *cuda, const lgh__kernel_name *name, void **function) {
    const char *note;
    FORWARD(lgh__kernels_get(&cuda->kernels, &cuda->device, name, function, &note));
    if (note && cuda->log)
        cuda->log(cuda->log_user, note);
    return LGH_SUCCESS;
}
