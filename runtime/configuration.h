/* configuration.h - reading the "key = value" lines of a plan's description. */
#ifndef LGH_CONFIGURATION_H
#define LGH_CONFIGURATION_H

#include "loggerhead/loggerhead.h"

/** Copies the value of a key. Fails with LGH_ERROR_INVALID_ARGUMENT, naming the key, if it is
 * missing or does not fit. */
lgh_status lgh__configuration_text(const char *configuration, const char *key, char *value,
                                   size_t capacity);

lgh_status lgh__configuration_number(const char *configuration, const char *key, int64_t *value);

/** Fails, naming the key, unless every line of `expected` but those of the key `except` stands in
 * the configuration too. */
lgh_status lgh__configuration_matches(const char *configuration, const char *expected,
                                      const char *except);

#endif
