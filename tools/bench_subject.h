/* bench_subject.h - the library as the bench measures it: a plan, its buffers, its two calls. */
#ifndef LGH_TOOL_BENCH_SUBJECT_H
#define LGH_TOOL_BENCH_SUBJECT_H

#include "bench_data.h"
#include "bench_gpu.h"

/* Seconds that making a plan took, with the shared libraries already loaded. */
typedef struct lgh_tool_plan_times {
    double cold; /* nothing in the disk cache */
    double warm; /* the cold plan's kernels in it, in a new context */
} lgh_tool_plan_times;

/* Workspace of exactly the size that the plan asks for, with a pattern behind it. */
typedef struct lgh_tool_workspace {
    void *memory;
    size_t bytes;
} lgh_tool_workspace;

typedef struct lgh_tool_subject {
    lgh_context *context;
    lgh_plan *plan;
    lgh_tool_plan_times plan_times;
    lgh_forward_args forward; /* every pointer in these two is device memory owned here */
    lgh_backward_args backward;
    void *hidden;  /* BF16 */
    void *weight;  /* BF16 */
    void *targets; /* INT64 */
    float *grad_logp;
    float *statistics; /* logp, lse and entropy of every token, one vector after the other */
    void *dhidden;     /* BF16 */
    float *dweight;    /* FP32, accumulated into, as a trainer's main_grad is */
    lgh_tool_workspace workspaces[2]; /* by lgh_pass */
    size_t beyond_budget;             /* of the backward pass */
} lgh_tool_subject;

/**
 * Makes the plan twice against a fresh cache folder that is removed again, so that the times in
 * plan_times are of a cold and of a warm cache; keeps the second. 0 stands for a default.
 */
lgh_status lgh_tool_subject_open(lgh_tool_subject *subject, const lgh_tool_shape *shape,
                                 int64_t budget_bytes, int64_t token_block);

/** Copies the tensors to the device and allocates everything that the calls need. */
lgh_status lgh_tool_subject_load(lgh_tool_subject *subject, const lgh_tool_gpu *gpu,
                                 const lgh_tool_tensors *tensors);

void lgh_tool_subject_close(lgh_tool_subject *subject);

/** Each a lgh_tool_work on a lgh_tool_subject: one lgh_forward; one lgh_backward; both. */
lgh_status lgh_tool_subject_forward(void *subject, void *stream);
lgh_status lgh_tool_subject_backward(void *subject, void *stream);
lgh_status lgh_tool_subject_both(void *subject, void *stream);

/** Zeroes every output. */
lgh_status lgh_tool_subject_clear(const lgh_tool_subject *subject, const lgh_tool_gpu *gpu);

/** Whether the pattern behind both workspaces is as it was. */
lgh_status lgh_tool_subject_intact(const lgh_tool_subject *subject, const lgh_tool_gpu *gpu,
                                   int *intact);

/** Opens a context; a device that logs about lost speed does so on stderr. */
lgh_status lgh_tool_context_open(lgh_context **context, lgh_device_type type);

#endif
