/* error.c - the calling thread's last-error text. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Long enough for a compiler's log with the definitions and options it came from. */
#define ERROR_TEXT_CAPACITY 16384

static _Thread_local char last_error[ERROR_TEXT_CAPACITY];

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

lgh_status lgh__fail(lgh_status status, const char *file, int line, const char *format, ...) {
    /* The arguments may point into last_error: compose aside. */
    static _Thread_local char composed[ERROR_TEXT_CAPACITY];
    int used = snprintf(composed, sizeof composed, "%s: ", lgh_status_name(status));
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(composed + used, sizeof composed - (size_t)used, format, arguments);
    va_end(arguments);
    size_t length = strlen(composed);
    snprintf(composed + length, sizeof composed - length, " [%s:%d]", base_name(file), line);
    memcpy(last_error, composed, sizeof last_error);
    return status;
}

const char *lgh_last_error(void) {
    return last_error;
}
