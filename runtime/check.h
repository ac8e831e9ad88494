/* check.h - what the public functions ask of their arguments, before any engine sees them. */
#ifndef LGH_CHECK_H
#define LGH_CHECK_H

#include "plan.h"

/** Copies the options with defaults filled in, and rejects what no engine of the device can do. */
lgh_status lgh__check_plan(lgh_plan_options *filled, const lgh_context *context,
                           const lgh_plan_options *given);

lgh_status lgh__check_forward(lgh_forward_args *filled, const lgh_plan *plan,
                              const lgh_forward_args *given);
lgh_status lgh__check_backward(lgh_backward_args *filled, const lgh_plan *plan,
                               const lgh_backward_args *given);
lgh_status lgh__check_live_rows(const lgh_plan *plan, const void *targets, int64_t tokens,
                                const int32_t *rows, const int32_t *count);

/** Fails with LGH_ERROR_WORKSPACE unless the workspace suffices for the pass. */
lgh_status lgh__check_workspace(const lgh_plan *plan, lgh_pass pass, int64_t tokens,
                                const void *workspace, size_t bytes);

#endif
