/* text.c - text that grows into a fixed buffer. */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>

void lgh__text_append(lgh__text *text, const char *format, ...) {
    size_t room = text->length < text->capacity ? text->capacity - text->length : 0;
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(room ? text->data + text->length : NULL, room, format, arguments);
    va_end(arguments);
    if (wanted > 0)
        text->length += (size_t)wanted;
}
