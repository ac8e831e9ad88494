/* dtype.h - element types. */
#ifndef LGH_DTYPE_H
#define LGH_DTYPE_H

#include "loggerhead/loggerhead.h"

/** Lower-case name, such as "bf16", for messages and descriptions. */
const char *lgh__dtype_name(lgh_dtype dtype);

#endif
