/* value.h - reading an lgh_value on the host, and bit-level number formats. */
#ifndef LGH_VALUE_H
#define LGH_VALUE_H

#include "loggerhead/loggerhead.h"

#include <string.h>

/** The value of token i, for values whose data the host may read. */
static inline double lgh__value_at(lgh_value value, int64_t i) {
    return value.data ? (double)value.data[i * value.stride] : (double)value.host;
}

/** False where the value is the host number 0 and so contributes nothing. */
static inline int lgh__value_present(lgh_value value) {
    return value.data != NULL || value.host != 0.0f;
}

static inline float lgh__float_from_bf16(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/** Rounds to nearest, ties to even; a NaN stays a NaN. */
static inline uint16_t lgh__bf16_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/** The target of token i, from targets of either integer dtype. */
static inline int64_t lgh__target_at(const void *targets, lgh_dtype dtype, int64_t i) {
    return dtype == LGH_INT32 ? ((const int32_t *)targets)[i] : ((const int64_t *)targets)[i];
}

#endif
