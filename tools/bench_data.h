/* bench_data.h - what the bench computes on: random tensors in host memory. */
#ifndef LGH_TOOL_BENCH_DATA_H
#define LGH_TOOL_BENCH_DATA_H

#include "bench_shape.h"

#include "threads.h"

/* The softmax temperature of everything that the bench runs. */
#define LGH_TOOL_BENCH_TEMPERATURE 0.7f

typedef struct lgh_tool_tensors {
    lgh_tool_shape shape;
    uint16_t *hidden; /* [N, D] BF16, N(0, 1) */
    uint16_t *weight; /* [V, D] BF16, N(0, 1/D), so that a logit is N(0, 1) */
    int64_t *targets; /* [N], uniform */
    float *grad_logp; /* [N], N(0, 1) */
} lgh_tool_tensors;

/** Equal seeds give equal tensors, whatever the number of threads. */
lgh_status lgh_tool_tensors_create(lgh_tool_tensors *tensors, const lgh_tool_shape *shape,
                                   uint64_t seed, lgh__threads *threads);

void lgh_tool_tensors_free(lgh_tool_tensors *tensors);

#endif
