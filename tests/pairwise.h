/* pairwise.h - few combinations of many choices in which each pair of choices occurs. */
#ifndef LGH_PAIRWISE_H
#define LGH_PAIRWISE_H

#include <stddef.h>

#define PAIRWISE_FACTORS 24 /* at most */
#define PAIRWISE_LEVELS 16

/** A choice for each factor, in [0, levels). */
typedef struct pairwise_row {
    int levels[PAIRWISE_FACTORS];
} pairwise_row;

/**
 * Writes rows, at most `capacity`, in which each pair of levels of two factors stands together in
 * at least one; the same rows in every run. The case fails where they are more.
 * @return how many rows there are
 */
size_t pairwise_cover(pairwise_row *rows, size_t capacity, const int *levels, size_t factors);

#endif
