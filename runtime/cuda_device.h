/* cuda_device.h - an open CUDA device: its context, cuBLASLt handle and kernels. */
#ifndef LGH_CUDA_DEVICE_H
#define LGH_CUDA_DEVICE_H

#include "driver.h"
#include "kernel.h"

typedef struct lgh__cuda {
    lgh__device device;
    void *cublaslt;
    lgh__kernels kernels;
    lgh_log_callback log;
    void *log_user;
} lgh__cuda;

lgh_status lgh__cuda_open(lgh__cuda **cuda, const lgh_context_options *options);
void lgh__cuda_close(lgh__cuda *cuda);

/** lgh__kernels_get, with a note handed to the log callback. */
lgh_status lgh__cuda_kernel(lgh__cuda *cuda, const lgh__kernel_name *name, void **function);

#endif
