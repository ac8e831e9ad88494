/* context.h - one device and what was loaded for it. */
#ifndef LGH_CONTEXT_H
#define LGH_CONTEXT_H

#include "loggerhead/loggerhead.h"

typedef struct lgh__threads lgh__threads; /* threads.h */
typedef struct lgh__cuda lgh__cuda;       /* cuda_device.h */

struct lgh_context {
    lgh_context_options options; /* as given, defaults filled in */
    lgh__threads *threads;       /* CPU device */
    lgh__cuda *cuda;             /* CUDA device */
};

#endif
