/* fake_numbers.h - numbers of every element type, as cuBLASLt and the row kernels hold them. The
 * types are those of lgh_dtype; FAKE_EXACT, where a kernel rounds to no type at all. */
#ifndef LGH_FAKE_NUMBERS_H
#define LGH_FAKE_NUMBERS_H

#include "value.h"

enum { FAKE_EXACT = LGH_DTYPE_NONE };

static inline int64_t fake_size_of(int type) {
    return type == LGH_FP32 ? 4 : 2;
}

static inline float fake_load(const void *data, int64_t i, int type) {
    if (type == LGH_BF16)
        return lgh__float_from_bf16(((const uint16_t *)data)[i]);
    if (type == LGH_FP16)
        return lgh__float_from_fp16(((const uint16_t *)data)[i]);
    return ((const float *)data)[i];
}

static inline void fake_store(void *data, int64_t i, int type, float value) {
    if (type == LGH_BF16)
        ((uint16_t *)data)[i] = lgh__bf16_from_float(value);
    else if (type == LGH_FP16)
        ((uint16_t *)data)[i] = lgh__fp16_from_float(value);
    else
        ((float *)data)[i] = value;
}

static inline float fake_round(float value, int type) {
    float rounded = value;
    if (type == LGH_BF16 || type == LGH_FP16) {
        uint16_t bits;
        fake_store(&bits, 0, type, value);
        rounded = fake_load(&bits, 0, type);
    }
    return rounded;
}

#endif
