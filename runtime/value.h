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

static inline uint32_t lgh__bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float lgh__float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float lgh__float_from_bf16(uint16_t bits) {
    return lgh__float_of_bits((uint32_t)bits << 16);
}

/** Rounds to nearest, ties to even; a NaN stays a NaN. */
static inline uint16_t lgh__bf16_from_float(float value) {
    uint32_t bits = lgh__bits_of_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/** Exact. No step goes through a subnormal float, which a program may have told the processor to
 *  take for 0. */
static inline float lgh__float_from_fp16(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t size = (uint32_t)(bits & 0x7fffu) << 13; /* the fields where a float has them */
    uint32_t exponent = size & 0x0f800000u;
    /* The exponent's bias grows from 15 to 127; that of infinities and NaNs, 31, becomes 255. */
    uint32_t wide = size + (exponent == 0x0f800000u ? 224u << 23 : 112u << 23);
    /* A subnormal is f units of 2^-24: what 2^-14 (1 + f / 1024) has beyond 2^-14. */
    float small = lgh__float_of_bits(0x38800000u | size) - 0x1p-14f;
    uint32_t magnitude = exponent == 0 ? lgh__bits_of_float(small) : wide;
    return lgh__float_of_bits(sign | magnitude);
}

/** Rounds to nearest, ties to even; from 65520 on to infinity; a NaN stays a NaN. */
static inline uint16_t lgh__fp16_from_float(float value) {
    uint32_t bits = lgh__bits_of_float(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t size = bits & 0x7fffffffu;
    uint32_t normal = (size + 0xfffu + ((size >> 13) & 1u) - (112u << 23)) >> 13;
    /* Below 2^-14 a unit is 2^-24, which is the last place of numbers in [0.5, 1). */
    uint32_t small = lgh__bits_of_float(lgh__float_of_bits(size) + 0.5f) - 0x3f000000u;
    uint32_t half = size < 0x38800000u ? small : normal;
    half = size >= 0x477ff000u ? 0x7c00u : half;
    half = size > 0x7f800000u ? 0x7e00u | ((size >> 13) & 0x1ffu) : half;
    return (uint16_t)(sign | half);
}

/** The target of token i, from targets of either integer dtype. */
static inline int64_t lgh__target_at(const void *targets, lgh_dtype dtype, int64_t i) {
    return dtype == LGH_INT32 ? ((const int32_t *)targets)[i] : ((const int64_t *)targets)[i];
}

#endif
