/* status.c - names and texts of the status codes, and the version. */
#include "loggerhead/loggerhead.h"

int lgh_version(void) {
    return LGH_VERSION_NUMBER;
}

const char *lgh_status_name(lgh_status status) {
    switch (status) {
#define STATUS_NAME(name, value, text)                                                             \
    case name:                                                                                     \
        return #name;
        LGH_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    }
    return "unknown status";
}

const char *lgh_status_text(lgh_status status) {
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                             \
    case name:                                                                                     \
        return text;
        LGH_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}
