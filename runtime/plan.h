/* plan.h - the plan and the engines behind it. */
#ifndef LGH_PLAN_H
#define LGH_PLAN_H

#include "loggerhead/loggerhead.h"

#include "text.h"

/** What an engine's workspace holds. */
typedef struct lgh__workspace_need {
    size_t bytes;         /* everything, a multiple of LGH_WORKSPACE_ALIGNMENT */
    size_t beyond_budget; /* the part that lgh_plan_workspace_size reports by itself */
} lgh__workspace_need;

/**
 * An engine carries out the passes. Its functions get checked arguments: shapes and dtypes that fit
 * the plan, pointers present where needed, tokens >= 1, a workspace that suffices.
 */
typedef struct lgh__engine {
    const char *name;
    /** Fills plan->state; on failure leaves nothing behind. */
    lgh_status (*prepare)(lgh_plan *plan);
    void (*release)(lgh_plan *plan);
    lgh__workspace_need (*workspace)(const lgh_plan *plan, lgh_pass pass, int64_t tokens);
    lgh_status (*forward)(const lgh_plan *plan, const lgh_forward_args *args, void *workspace,
                          void *stream);
    lgh_status (*backward)(const lgh_plan *plan, const lgh_backward_args *args, void *workspace,
                           void *stream);
    /** Zeroes an output of `rows` rows of `row_bytes` that start `stride_bytes` apart. */
    lgh_status (*zero)(const lgh_plan *plan, void *data, size_t rows, size_t row_bytes,
                       size_t stride_bytes, void *stream);
    /** lgh_live_rows. */
    lgh_status (*live_rows)(const lgh_plan *plan, const void *targets, int64_t tokens,
                            int32_t *rows, int32_t *count, void *stream);
    /** Appends the "name = value" lines of the machine, which the plan's bits hang on beside its
     * choices: a configuration must have been made on its like. Called before prepare, too. */
    void (*describe_machine)(const lgh_plan *plan, lgh__text *text);
    /** Appends the lines of the choices. */
    void (*describe)(const lgh_plan *plan, lgh__text *text);
} lgh__engine;

struct lgh_plan {
    lgh_context *context;
    lgh_plan_options options; /* as given, defaults filled in */
    const lgh__engine *engine;
    void *state; /* the engine's own, set by prepare */
};

/** Whether lgh_backward can be asked for anything. */
int lgh__has_backward(const lgh_plan_options *options);

/** Rows of this weight that are vocabulary entries; the rest is padding. */
int64_t lgh__valid_entries(const lgh_plan_options *options);

/** The alignment, in bytes, of every start of a row that the plan may count on. */
int lgh__row_alignment(const lgh_plan_options *options, int64_t columns, lgh_dtype dtype);

/** Elements from row to row of D elements in the workspace: as few as that alignment allows. */
int64_t lgh__row_pitch(const lgh_plan_options *options, lgh_dtype dtype);

extern const lgh__engine lgh__cpu_engine;     /* cpu_engine.c */
extern const lgh__engine lgh__chunked_engine; /* chunked_engine.c, CUDA */

#endif
