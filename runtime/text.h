/* text.h - text that grows into a fixed buffer and remembers how long it wanted to be. */
#ifndef LGH_TEXT_H
#define LGH_TEXT_H

#include <stddef.h>

typedef struct lgh__text {
    char *data;      /* may be NULL when capacity is 0 */
    size_t capacity; /* bytes, the terminating zero included */
    size_t length;   /* of the whole text, cut or not, without the zero */
} lgh__text;

/** Appends printf output, cut to the capacity and always terminated. */
void lgh__text_append(lgh__text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
