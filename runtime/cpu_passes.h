/* cpu_passes.h - the two passes of the CPU device. */
#ifndef LGH_CPU_PASSES_H
#define LGH_CPU_PASSES_H

#include "plan.h"

lgh_status lgh__cpu_forward(const lgh_plan *plan, const lgh_forward_args *args, void *workspace,
                            void *stream);
lgh_status lgh__cpu_backward(const lgh_plan *plan, const lgh_backward_args *args, void *workspace,
                             void *stream);

#endif
