/* error.h - how a failure travels: a status by return, its text in the calling thread. */
#ifndef LGH_ERROR_H
#define LGH_ERROR_H

#include "loggerhead/loggerhead.h"

/** Sets the thread's last-error text from a printf format and returns status. Use the macros. */
lgh_status lgh__fail(lgh_status status, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5), cold));

#define FAIL(status, ...) lgh__fail((status), __FILE__, __LINE__, __VA_ARGS__)

/** Returns from the calling function with a status and its text if the condition holds. */
#define RETURN_IF(condition, status, ...)                                                          \
    do {                                                                                           \
        if (condition)                                                                             \
            return FAIL((status), __VA_ARGS__);                                                    \
    } while (0)

/** Returns the status of a failed call as it is; its text is already set. */
#define FORWARD(call)                                                                              \
    do {                                                                                           \
        lgh_status forward_status_ = (call);                                                       \
        if (forward_status_ != LGH_SUCCESS)                                                        \
            return forward_status_;                                                                \
    } while (0)

/** The same for a function with a clean-up ladder: keeps the status and jumps to its step. */
#define GOTO_IF(status, call, label)                                                               \
    do {                                                                                           \
        (status) = (call);                                                                         \
        if ((status) != LGH_SUCCESS)                                                               \
            goto label;                                                                            \
    } while (0)

#endif
