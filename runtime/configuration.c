/* configuration.c - reading the lines of a plan's description. */
#include "configuration.h"

#include "error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The value of the line "key = value", and its length; NULL if there is none. */
static const char *find(const char *configuration, const char *key, size_t key_length,
                        size_t *length) {
    for (const char *line = configuration; line && *line;) {
        const char *end = strchr(line, '\n');
        const size_t line_length = end ? (size_t)(end - line) : strlen(line);
        if (line_length >= key_length + 3 && memcmp(line, key, key_length) == 0 &&
            memcmp(line + key_length, " = ", 3) == 0) {
            *length = line_length - key_length - 3;
            return line + key_length + 3;
        }
        line = end ? end + 1 : NULL;
    }
    return NULL;
}

lgh_status lgh__configuration_text(const char *configuration, const char *key, char *value,
                                   size_t capacity) {
    size_t length;
    const char *found = find(configuration, key, strlen(key), &length);
    RETURN_IF(!found, LGH_ERROR_INVALID_ARGUMENT, "options->configuration has no line \"%s = ...\"",
              key);
    RETURN_IF(length >= capacity, LGH_ERROR_INVALID_ARGUMENT,
              "options->configuration: the value of %s is too long", key);
    memcpy(value, found, length);
    value[length] = 0;
    return LGH_SUCCESS;
}

lgh_status lgh__configuration_number(const char *configuration, const char *key, int64_t *value) {
    char text[32], *end;
    FORWARD(lgh__configuration_text(configuration, key, text, sizeof text));
    errno = 0;
    *value = strtoll(text, &end, 10);
    RETURN_IF(errno != 0 || end == text || *end != 0, LGH_ERROR_INVALID_ARGUMENT,
              "options->configuration: %s = %s is no number", key, text);
    return LGH_SUCCESS;
}

lgh_status lgh__configuration_matches(const char *configuration, const char *expected,
                                      const char *except) {
    for (const char *line = expected; *line;) {
        const char *end = strchr(line, '\n'), *separator = strstr(line, " = ");
        if (!end || !separator || separator > end)
            return FAIL(LGH_ERROR_INTERNAL, "a description without \"key = value\" lines");
        const size_t key = (size_t)(separator - line), value = (size_t)(end - separator) - 3;
        size_t length;
        const char *found = find(configuration, line, key, &length);
        const int excepted = strlen(except) == key && memcmp(line, except, key) == 0;
        RETURN_IF(!excepted &&
                      (!found || length != value || memcmp(found, separator + 3, value) != 0),
                  LGH_ERROR_INVALID_ARGUMENT,
                  "options->configuration is of another problem: this one has \"%.*s\"",
                  (int)(end - line), line);
        line = end + 1;
    }
    return LGH_SUCCESS;
}
