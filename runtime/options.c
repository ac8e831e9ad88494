/* options.c - reading structs that grow from version to version. */
#include "options.h"

#include "error.h"

#include <string.h>

static size_t nonzero_from(const unsigned char *bytes, size_t begin, size_t end) {
    while (begin < end && bytes[begin] == 0)
        ++begin;
    return begin;
}

lgh_status lgh__options_read(void *into, size_t known, size_t smallest, const void *from,
                             const char *what) {
    RETURN_IF(!from, LGH_ERROR_INVALID_ARGUMENT, "%s is null", what);
    size_t given;
    memcpy(&given, from, sizeof given);
    RETURN_IF(given < smallest || given > 65536, LGH_ERROR_INVALID_ARGUMENT,
              "%s->size is %zu, which no version of this library has; start from its INIT macro",
              what, given);
    RETURN_IF(
        given > known && nonzero_from(from, known, given) < given, LGH_ERROR_INVALID_ARGUMENT,
        "%s sets a field that this version (%d) does not know; a newer libloggerhead is needed",
        what, lgh_version());
    memcpy(into, from, given < known ? given : known);
    memcpy(into, &known, sizeof known);
    return LGH_SUCCESS;
}
