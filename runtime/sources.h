/* sources.h - the kernel sources, embedded by tools/embed.c when the library is built. */
#ifndef LGH_SOURCES_H
#define LGH_SOURCES_H

#include <stddef.h>

typedef struct lgh__source {
    const char *name; /* the bare file name, as an #include names it */
    const char *text; /* zero-terminated */
    size_t length;    /* without the zero */
} lgh__source;

extern const lgh__source lgh__sources[];
extern const size_t lgh__source_count;

/** The source of that name, or NULL. */
const lgh__source *lgh__source_find(const char *name);

#endif
