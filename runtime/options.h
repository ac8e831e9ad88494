/* options.h - reading structs that grow from version to version. */
#ifndef LGH_OPTIONS_H
#define LGH_OPTIONS_H

#include "loggerhead/loggerhead.h"

/**
 * Copies a caller's struct, whose first member is its size, into one of this library's version,
 * which already holds the defaults. A caller built against an older header gives fewer bytes, at
 * least `smallest`; one built against a newer header may give more, if the rest is zero.
 * `what` names the struct in the message.
 */
lgh_status lgh__options_read(void *into, size_t known, size_t smallest, const void *from,
                             const char *what);

#endif
