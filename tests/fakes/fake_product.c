/* fake_product.c - a matrix product on the host, and the ways to spoil it.
 *
 * A column of cuBLASLt's result is a token's row to the library, since it computes the transpose.
 */
#include "fake_product.h"

#include "fake_numbers.h"
#include "fake_state.h"

#include <stdlib.h>

#define MOST_STEPS ((int64_t)1 << 21) /* of one column */
#define FEW_TERMS 4

static float load(const fake_matrix *m, int64_t row, int64_t column) {
    return fake_load(m->data, row + column * m->stride, m->type);
}

static int64_t terms(const fake_product *p) {
    const int64_t k = p->left_transposed ? p->left.rows : p->left.columns;
    return k <= FEW_TERMS || p->result.rows * k <= MOST_STEPS ? k : FEW_TERMS;
}

/* op(left) as FP32, the rows of each k beside one another. */
static float *unpack_left(const fake_product *p, int64_t k) {
    const int64_t rows = p->result.rows;
    float *unpacked = malloc((size_t)(rows * k) * sizeof *unpacked);
    for (int64_t l = 0; unpacked && l < k; ++l)
        for (int64_t row = 0; row < rows; ++row)
            unpacked[l * rows + row] =
                p->left_transposed ? load(&p->left, l, row) : load(&p->left, row, l);
    return unpacked;
}

static int log2_of(int64_t value) {
    int log = 0;
    for (; value > 1; value /= 2)
        ++log;
    return log;
}

/* How many units in the last place a column's results are off. */
static uint32_t error_of_column(const fake_product *p, int64_t column, float neighbour) {
    uint32_t bits;
    switch (p->breakage) {
    case FAKE_DIFFERS:
        return 1;
    case FAKE_BREAKS_BY_LENGTH:
        return (uint32_t)log2_of(p->result.columns);
    case FAKE_BREAKS_BY_POSITION:
        return column % 64 == 63;
    case FAKE_BREAKS_BY_NEIGHBOURS:
        memcpy(&bits, &neighbour, sizeof bits);
        return bits % 7;
    case FAKE_BREAKS_BY_RUN:
        return (uint32_t)(p->runs % 3);
    case FAKE_BREAKS_BY_ADDING:
        return p->beta != 0.0f;
    default:
        return 0;
    }
}

/* A result of 16 bits loses units that are not its own. */
static float spoil(float value, uint32_t units, int type) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits += type == LGH_FP32 ? units : units << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void run_column(const fake_product *p, const float *left, float *sums, int64_t column,
                       int64_t k) {
    const int64_t rows = p->result.rows, last = p->result.columns - 1;
    const float neighbour =
        p->right_transposed ? load(&p->right, last, 0) : load(&p->right, 0, last);
    const uint32_t units = error_of_column(p, column, neighbour);
    memset(sums, 0, (size_t)rows * sizeof *sums);
    for (int64_t l = 0; l < k; ++l) {
        const float right =
            p->right_transposed ? load(&p->right, column, l) : load(&p->right, l, column);
        for (int64_t row = 0; row < rows; ++row)
            sums[row] += left[l * rows + row] * right;
    }
    for (int64_t row = 0; row < rows; ++row) {
        float value = p->alpha * sums[row];
        if (p->beta != 0.0f)
            value += p->beta * load(&p->result, row, column);
        value += p->bias ? p->bias[row] : 0.0f;
        fake_store(p->result.data, row + column * p->result.stride, p->result.type,
                   spoil(value, units, p->result.type));
    }
}

void fake_product_run(const fake_product *p) {
    const int64_t k = terms(p);
    float *left = unpack_left(p, k);
    float *sums = malloc((size_t)p->result.rows * sizeof *sums);
    if (!left || !sums)
        fake_violation("no host memory for a product");
    for (int64_t column = 0; left && sums && column < p->result.columns; ++column)
        run_column(p, left, sums, column, k);
    free(sums);
    free(left);
}
