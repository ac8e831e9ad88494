/* integers.h - small arithmetic on sizes. */
#ifndef LGH_INTEGERS_H
#define LGH_INTEGERS_H

#include <stdint.h>

static inline int64_t lgh__least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t lgh__greatest(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/** How many units hold a value >= 0. */
static inline int64_t lgh__divide_up(int64_t value, int64_t unit) {
    return (value + unit - 1) / unit;
}

/** The least multiple of unit that is no less than a value >= 0. */
static inline int64_t lgh__round_up(int64_t value, int64_t unit) {
    return lgh__divide_up(value, unit) * unit;
}

#endif
