/* dtype.h - element types. */
#ifndef LGH_DTYPE_H
#define LGH_DTYPE_H

#include "loggerhead/loggerhead.h"

/** BF16 or FP16. */
static inline int lgh__is_16_bit(lgh_dtype dtype) {
    return lgh_dtype_size(dtype) == 2;
}

/** Lower-case name, such as "bf16", for messages and descriptions. */
const char *lgh__dtype_name(lgh_dtype dtype);

#endif
