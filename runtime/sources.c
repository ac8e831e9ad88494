/* sources.c - finding an embedded kernel source. */
#include "sources.h"

#include <string.h>

const lgh__source *lgh__source_find(const char *name) {
    for (size_t i = 0; i < lgh__source_count; ++i)
        if (strcmp(lgh__sources[i].name, name) == 0)
            return &lgh__sources[i];
    return NULL;
}
