/* bench_buffers.h - device memory that subjects share: inputs, and gradients. */
#ifndef LGH_TOOL_BENCH_BUFFERS_H
#define LGH_TOOL_BENCH_BUFFERS_H

#include "bench_data.h"
#include "bench_device.h"
#include "bench_feature.h"

typedef struct lgh_tool_buffers {
    const lgh_tool_device *device;
    const lgh_tool_tensors *tensors; /* what the inputs are copies of */
    int borrows;                     /* on the CPU device the inputs are the tensors themselves */
    void *hidden;
    void *weight;
    void *targets;
    void *temperatures;
    void *grad_logp, *grad_entropy, *grad_lse;
    void *bias, *bias_bf16;
    void *dhidden;  /* [N, D], as wide as FP32 */
    float *dweight; /* [V, D] */
    float *dbias;   /* [V] */
    uint64_t *counters;
} lgh_tool_buffers;

/** Copies the tensors to the device and allocates the gradients; dweight only if wanted. */
lgh_status lgh_tool_buffers_open(lgh_tool_buffers *buffers, const lgh_tool_device *device,
                                 const lgh_tool_tensors *tensors, int has_dweight);
void lgh_tool_buffers_close(lgh_tool_buffers *buffers);

/** Zeroes the gradients and counters. */
lgh_status lgh_tool_buffers_clear(const lgh_tool_buffers *buffers);

#endif
