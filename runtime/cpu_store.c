/* cpu_store.c - rounds float64 sums into the rows of a caller's matrix. */
#include "cpu_store.h"

#include "value.h"

#include <math.h>
#include <string.h>

/* To float towards an odd last bit. That keeps what was cut off from making a tie, so that a second
 * rounding to 16 bits gives what a single one would. */
static float float_towards_odd(double value) {
    const float near = (float)value;
    uint32_t bits = lgh__bits_of_float(near);
    if (isnan(value) || (double)near == value)
        return near;
    bits -= fabs((double)near) > fabs(value);
    return lgh__float_of_bits(bits | 1u);
}

static char *row_of(const lgh_matrix *matrix, int64_t row) {
    return (char *)matrix->data +
           (size_t)(row * matrix->row_stride) * lgh_dtype_size(matrix->dtype);
}

void lgh__cpu_store_row(const lgh_matrix *to, int64_t row, const double *values, int accumulate) {
    void *start = row_of(to, row);
    uint16_t *bits = start;
    float *floats = start;
    for (int64_t k = 0; k < to->columns; k++)
        if (to->dtype == LGH_BF16)
            bits[k] = lgh__bf16_from_float(float_towards_odd(values[k]));
        else if (to->dtype == LGH_FP16)
            bits[k] = lgh__fp16_from_float(float_towards_odd(values[k]));
        else
            floats[k] = (float)(accumulate ? (double)floats[k] + values[k] : values[k]);
}

void lgh__cpu_store_zeros(const lgh_matrix *to, int64_t first, int64_t end) {
    for (int64_t row = first; row < end; row++)
        memset(row_of(to, row), 0, (size_t)to->columns * lgh_dtype_size(to->dtype));
}

void lgh__cpu_store_nan(const lgh_matrix *to, int64_t row) {
    void *start = row_of(to, row);
    uint16_t *bits = start;
    float *floats = start;
    for (int64_t k = 0; k < to->columns; k++)
        if (to->dtype == LGH_FP32)
            floats[k] = NAN;
        else
            bits[k] = to->dtype == LGH_BF16 ? lgh__bf16_from_float(NAN) : lgh__fp16_from_float(NAN);
}
