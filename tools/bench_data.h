/* bench_data.h - what the bench computes on: random tensors in host memory. */
#ifndef LGH_TOOL_BENCH_DATA_H
#define LGH_TOOL_BENCH_DATA_H

#include "bench_dtype.h"
#include "bench_shape.h"

#include "threads.h"

/* The softmax temperature of everything that the bench runs, apart from per-token ones. */
#define LGH_TOOL_BENCH_TEMPERATURE 0.7f

typedef struct lgh_tool_tensors {
    lgh_tool_shape shape;
    const lgh_tool_dtypes *dtypes;
    void *hidden;        /* [N, D], N(0, 1) */
    void *weight;        /* [V, D], N(0, 1/D), so that a logit is N(0, 1) */
    int64_t *targets;    /* [N], uniform */
    float *temperatures; /* [N], uniform in [0.5, 1) */
    float *grad_logp;    /* [N], N(0, 1), as are grad_entropy and grad_lse */
    float *grad_entropy;
    float *grad_lse;
    float *bias;         /* [V], N(0, 1/16) rounded to BF16: logits stay about N(0, 1) */
    uint16_t *bias_bf16; /* the same numbers */
} lgh_tool_tensors;

/** Equal seeds give equal tensors, whatever the number of threads. */
lgh_status lgh_tool_tensors_create(lgh_tool_tensors *tensors, const lgh_tool_shape *shape,
                                   const lgh_tool_dtypes *dtypes, uint64_t seed,
                                   lgh__threads *threads);

/** A few of the tokens by themselves: hidden and what else is per token are copies, the rest stays
 *  that of `tensors`. */
lgh_status lgh_tool_tensors_gather(lgh_tool_tensors *few, const lgh_tool_tensors *tensors,
                                   const int64_t *tokens, int64_t count);

/** Host memory, all zero; `into` is the address of the pointer. Freed with free. */
lgh_status lgh_tool_allocate(void *into, int64_t count, size_t size);

void lgh_tool_tensors_free(lgh_tool_tensors *tensors);
void lgh_tool_tensors_free_gathered(lgh_tool_tensors *few);

#endif
