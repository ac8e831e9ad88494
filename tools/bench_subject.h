/* bench_subject.h - the library as the bench measures it: a plan with its features, its calls. */
#ifndef LGH_TOOL_BENCH_SUBJECT_H
#define LGH_TOOL_BENCH_SUBJECT_H

#include "bench_buffers.h"

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

/* The vectors of lgh_tool_subject.statistics. */
enum { LGH_TOOL_LOGP, LGH_TOOL_LSE, LGH_TOOL_ENTROPY, LGH_TOOL_LOGP_AT_ONE, LGH_TOOL_STATISTICS };

typedef struct lgh_tool_subject {
    const lgh_tool_feature *feature;
    const lgh_tool_buffers *buffers;
    lgh_context *context;
    lgh_plan *plan;
    lgh_forward_args forward; /* every pointer in these two is of the buffers or of this struct */
    lgh_backward_args backward;
    void *rows;                       /* the live list */
    float *statistics;                /* [LGH_TOOL_STATISTICS, N] */
    int64_t *best;                    /* [N] */
    lgh_tool_workspace workspaces[2]; /* by lgh_pass */
    size_t beyond_budget;             /* of the backward pass */
} lgh_tool_subject;

typedef struct lgh_tool_limits {
    int64_t budget_bytes; /* of the backward pass; 0 stands for a default */
    int64_t token_block;  /* likewise */
} lgh_tool_limits;

/** Makes a plan for the buffers' tensors on their device, and what its calls need beside them. */
lgh_status lgh_tool_subject_open(lgh_tool_subject *subject, const lgh_tool_buffers *buffers,
                                 const lgh_tool_feature *feature, const lgh_tool_limits *limits);

void lgh_tool_subject_close(lgh_tool_subject *subject);

/** Makes the plan twice against a fresh cache folder that is removed again. */
lgh_status lgh_tool_subject_time_plan(lgh_tool_plan_times *times, const lgh_tool_buffers *buffers,
                                      const lgh_tool_feature *feature,
                                      const lgh_tool_limits *limits);

/** Each a lgh_tool_work on a lgh_tool_subject: one lgh_forward; one lgh_backward; both; and those
 *  of these that the feature is about. */
lgh_status lgh_tool_subject_forward(void *subject, void *stream);
lgh_status lgh_tool_subject_backward(void *subject, void *stream);
lgh_status lgh_tool_subject_both(void *subject, void *stream);
lgh_status lgh_tool_subject_run(void *subject, void *stream);

/** Zeroes every output. */
lgh_status lgh_tool_subject_clear(const lgh_tool_subject *subject);

/** Whether the pattern behind the workspaces is as it was. */
lgh_status lgh_tool_subject_intact(const lgh_tool_subject *subject, int *intact);

/** Opens a context; a device that logs about lost speed does so on stderr. */
lgh_status lgh_tool_context_open(lgh_context **context, lgh_device_type type);

#endif
