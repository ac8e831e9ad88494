/* fake_rows.h - what the row kernels on the host share: judging ranges, and the tokens, values and
 * counters of a call. */
#ifndef LGH_FAKE_ROWS_H
#define LGH_FAKE_ROWS_H

#include "fakes.h"

#include "row_params.h"

#define FAKE_NO_TOKEN (-1)

/** A violation unless it holds. */
int fake_rule(int holds, const char *what, const char *rule_text);

/** fake_access of `rows` rows of so many bytes that follow each other; no rows are fine. */
int fake_vector(const void *data, int64_t rows, int64_t bytes, unsigned how, const char *what);

/** Element `i` of a vector of such elements. */
int fake_element(const void *data, int64_t i, int64_t bytes, unsigned how, const char *what);

/** Whether a block describes as many rows as are launched, and its part of the list can be read. */
int fake_block_fits(const lgh_block_rows *block, int64_t launched, const char *what);

/** The token of a row, or FAKE_NO_TOKEN. */
int64_t fake_token_of(const lgh_block_rows *block, int64_t row);

/** The value of a token; NaN and a violation where it may not be read. */
float fake_value_of(const lgh_device_value *value, int64_t token, const char *what);

/** The bound of a token's gradients, and the power of two that FP16 gradients are multiplied by. */
double fake_gradient_bound(const lgh_token_gradients *gradients, int64_t token);
double fake_token_scale(const lgh_token_gradients *gradients, int64_t token);

/** Adds 1 to a counter, if there is one. */
void fake_count(unsigned long long *counter, const char *what);

#endif
