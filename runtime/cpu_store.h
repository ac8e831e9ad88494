/* cpu_store.h - float64 sums into the rows of a caller's matrix, rounded once. */
#ifndef LGH_CPU_STORE_H
#define LGH_CPU_STORE_H

#include "loggerhead/loggerhead.h"

/** Stores a row of numbers; accumulate adds them to an FP32 matrix. */
void lgh__cpu_store_row(const lgh_matrix *to, int64_t row, const double *values, int accumulate);

/** Stores zeros in rows first .. end - 1. */
void lgh__cpu_store_zeros(const lgh_matrix *to, int64_t first, int64_t end);

/** Stores NaN all along a row. */
void lgh__cpu_store_nan(const lgh_matrix *to, int64_t row);

#endif
