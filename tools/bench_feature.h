/* bench_feature.h - what is asked of a plan and its calls: outputs, gradients and features. */
#ifndef LGH_TOOL_BENCH_FEATURE_H
#define LGH_TOOL_BENCH_FEATURE_H

#include "bench_dtype.h"
#include "bench_shape.h"

/* Which calls a run consists of. */
typedef enum lgh_tool_calls {
    LGH_TOOL_FORWARD,
    LGH_TOOL_BACKWARD, /* after one lgh_forward that is not part of it */
    LGH_TOOL_BOTH
} lgh_tool_calls;

typedef struct lgh_tool_feature {
    const char *name;
    lgh_tool_calls calls;
    uint32_t outputs;  /* LGH_OUTPUT_ bits */
    lgh_dtype dhidden; /* LGH_DTYPE_NONE: not wanted */
    lgh_dtype dweight; /* likewise */
    lgh_dtype bias;    /* likewise */
    int dbias;
    int accumulates;  /* dweight is added to */
    int grad_entropy; /* beside grad_logp, one number per token */
    int grad_lse;
    int token_temperatures;
    float softcap;      /* 0: none */
    lgh_dtype rounding; /* of logits */
    int64_t padding;    /* entries at the end of the vocabulary that are none */
    lgh_oov_policy oov_policy;
    int counters;
    int live_step; /* a live list names every such row, from row 0; 0: no list */
} lgh_tool_feature;

/** The features whose cost `loggerhead bench --features` measures. The first with given calls
 *  is what the others with these calls are compared with. */
extern const lgh_tool_feature lgh_tool_features[];
extern const size_t lgh_tool_feature_count;

/** The options of the plan that a feature needs, apart from budget and token block. */
lgh_plan_options lgh_tool_feature_options(const lgh_tool_feature *feature,
                                          const lgh_tool_shape *shape,
                                          const lgh_tool_dtypes *dtypes);

/** Entries of the vocabulary that are no padding, at least one. */
int64_t lgh_tool_feature_valid(const lgh_tool_feature *feature, int64_t vocab);

/** Rows that are worked on, and whether token i is one of them. */
int64_t lgh_tool_feature_live(const lgh_tool_feature *feature, int64_t tokens);
int lgh_tool_feature_is_live(const lgh_tool_feature *feature, int64_t token);

/** Whether lgh_backward is called at all. */
static inline int lgh_tool_feature_has_backward(const lgh_tool_feature *feature) {
    return feature->calls != LGH_TOOL_FORWARD;
}

#endif
