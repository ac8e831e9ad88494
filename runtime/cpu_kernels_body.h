/* cpu_kernels_body.h - the inner loops, written once and compiled per instruction set.
 *
 * cpu_kernels.c includes this file once per set, each time with these definitions:
 *
 *     KERNEL_NAME      the set's name, a string
 *     KERNEL(name)     the name of a function of this set
 *     KERNEL_TARGET    the attribute that allows the set's instructions
 *     KERNEL_LANES     doubles in a vector register: 2, 4 or 8
 *
 * Not target_clones: GCC lowers vector types for the default target before it makes the clones.
 *
 * Lanes are whole panels, so every lane of a loop takes the same instructions and its result does
 * not depend on its place. The loops become vectors with -O3 -fno-trapping-math.
 */

typedef double KERNEL(vector) __attribute__((vector_size(8 * KERNEL_LANES), aligned(8), may_alias));

KERNEL_TARGET static void KERNEL(widen)(double *restrict to, const void *restrict from,
                                        lgh_dtype dtype, int64_t count) {
    if (dtype == LGH_BF16) {
        const uint16_t *bits = from;
        for (int64_t k = 0; k < count; k++)
            to[k] = (double)lgh__float_from_bf16(bits[k]);
    } else if (dtype == LGH_FP16) {
        const uint16_t *bits = from;
        for (int64_t k = 0; k < count; k++)
            to[k] = (double)lgh__float_from_fp16(bits[k]);
    } else {
        const float *values = from;
        for (int64_t k = 0; k < count; k++)
            to[k] = (double)values[k];
    }
}

/* KERNEL_LANES rows of c by one panel of columns: eight vectors of sums stay in registers. */
KERNEL_TARGET static void KERNEL(multiply_registers)(double *restrict c, int64_t c_pitch,
                                                     const double *restrict a, int64_t a_row,
                                                     int64_t a_step, const double *restrict b,
                                                     int64_t b_step, int64_t depth) {
    enum { vectors = LGH__CPU_PANEL / KERNEL_LANES };
    KERNEL(vector) sums[KERNEL_LANES][vectors];
    for (int i = 0; i < KERNEL_LANES; i++)
        for (int j = 0; j < vectors; j++)
            sums[i][j] = *(const KERNEL(vector) *)(c + i * c_pitch + j * KERNEL_LANES);
    for (int64_t k = 0; k < depth; k++) {
        KERNEL(vector) right[vectors];
        for (int j = 0; j < vectors; j++)
            right[j] = *(const KERNEL(vector) *)(b + k * b_step + j * KERNEL_LANES);
        for (int i = 0; i < KERNEL_LANES; i++)
            for (int j = 0; j < vectors; j++)
                sums[i][j] += a[i * a_row + k * a_step] * right[j];
    }
    for (int i = 0; i < KERNEL_LANES; i++)
        for (int j = 0; j < vectors; j++)
            *(KERNEL(vector) *)(c + i * c_pitch + j * KERNEL_LANES) = sums[i][j];
}

KERNEL_TARGET static void KERNEL(multiply)(const lgh__cpu_product *p) {
    for (int64_t j = 0; j < p->columns; j += LGH__CPU_PANEL) {
        const double *b = p->b + j / LGH__CPU_PANEL * p->b_panel;
        for (int64_t i = 0; i < p->rows; i += KERNEL_LANES) {
            double *c = p->c + i * p->c_pitch + j;
            const double *a = p->a + i * p->a_row;
            KERNEL(multiply_registers)
            (c, p->c_pitch, a, p->a_row, p->a_step, b, p->b_step, p->depth);
        }
    }
}

KERNEL_TARGET static void KERNEL(round_logits)(double *x, int64_t rows, int64_t lanes,
                                               lgh_dtype dtype) {
    for (int64_t row = 0; row < rows; row++) {
        double *logits = x + row * LGH__CPU_PITCH;
        if (dtype == LGH_BF16)
            for (int64_t i = 0; i < lanes; i++)
                logits[i] = (double)lgh__float_from_bf16(lgh__bf16_from_float((float)logits[i]));
        else
            for (int64_t i = 0; i < lanes; i++)
                logits[i] = (double)lgh__float_from_fp16(lgh__fp16_from_float((float)logits[i]));
    }
}

/* The tile's maxima, and the entries that have them. Those start finite, so that a tile of nothing
 * but -inf sums to 0 and not to NaN. */
KERNEL_TARGET static void KERNEL(find_best)(lgh__cpu_stats *restrict tile, const double *restrict x,
                                            int64_t rows, int64_t lanes, int64_t first) {
    for (int64_t lane = 0; lane < lanes; lane++) {
        tile->max[lane] = -LGH_REAL_MAX;
        tile->best[lane] = first;
    }
    for (int64_t row = 0; row < rows; row++)
        for (int64_t lane = 0; lane < lanes; lane++) {
            double logit = x[row * LGH__CPU_PITCH + lane];
            int larger = logit > tile->max[lane];
            tile->max[lane] = larger ? logit : tile->max[lane];
            tile->best[lane] = larger ? first + row : tile->best[lane];
        }
}

/* Statistics of the tile alone; max is already the tile's. */
KERNEL_TARGET static void KERNEL(sum_tile)(lgh__cpu_stats *restrict tile, const double *restrict x,
                                           int64_t rows, int64_t lanes,
                                           const double *restrict inverse_temperature, int at_one) {
    for (int64_t lane = 0; lane < lanes; lane++)
        tile->sum[lane] = tile->weighted[lane] = tile->sum_at_one[lane] = 0;
    for (int64_t row = 0; row < rows; row++) {
        const double *logits = x + row * LGH__CPU_PITCH;
        for (int64_t lane = 0; lane < lanes; lane++) {
            lgh_row_stats s = {tile->max[lane], tile->sum[lane], tile->weighted[lane], 0};
            lgh_row_stats_add(&s, logits[lane], inverse_temperature[lane]);
            tile->sum[lane] = s.sum;
            tile->weighted[lane] = s.weighted;
        }
        for (int64_t lane = 0; at_one && lane < lanes; lane++) {
            lgh_row_stats s = {tile->max[lane], 0, 0, tile->sum_at_one[lane]};
            lgh_row_stats_add_at_one(&s, logits[lane]);
            tile->sum_at_one[lane] = s.sum_at_one;
        }
    }
}

KERNEL_TARGET static void KERNEL(add_stats)(lgh__cpu_stats *restrict stats,
                                            const double *restrict x, int64_t rows, int64_t lanes,
                                            const double *restrict inverse_temperature,
                                            int64_t first, int at_one) {
    lgh__cpu_stats tile;
    KERNEL(find_best)(&tile, x, rows, lanes, first);
    KERNEL(sum_tile)(&tile, x, rows, lanes, inverse_temperature, at_one);
    for (int64_t lane = 0; lane < lanes; lane++) {
        lgh_row_stats a = {stats->max[lane], stats->sum[lane], stats->weighted[lane],
                           stats->sum_at_one[lane]};
        lgh_row_stats b = {tile.max[lane], tile.sum[lane], tile.weighted[lane],
                           tile.sum_at_one[lane]};
        if (b.max > a.max)
            stats->best[lane] = tile.best[lane];
        a = lgh_row_stats_merge(a, b, inverse_temperature[lane]);
        stats->max[lane] = a.max;
        stats->sum[lane] = a.sum;
        stats->weighted[lane] = a.weighted;
        stats->sum_at_one[lane] = a.sum_at_one;
    }
}

static inline lgh_row_gradient KERNEL(row_gradient)(const lgh__cpu_tokens *tokens, int64_t i) {
    lgh_row_gradient row = {
        tokens->inverse_temperature[i], tokens->lse[i],          tokens->entropy[i],
        tokens->grad_logp[i],           tokens->grad_entropy[i], tokens->grad_lse[i]};
    return row;
}

/* The softcap's slope from its value, for which float64 has the digits: it is off by 1e-16 only. */
static inline double KERNEL(differentiate)(lgh_row_gradient row, double x, int is_target,
                                           double softcap) {
    double dx = lgh_logit_gradient(row, x, is_target);
    return softcap > 0 ? dx * (1 - x / softcap * (x / softcap)) : dx;
}

KERNEL_TARGET static void KERNEL(token_lanes)(double *restrict x, int64_t rows, int64_t lanes,
                                              const lgh__cpu_tokens *restrict tokens, int64_t first,
                                              double softcap) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t lane = 0; lane < lanes; lane++) {
            double *logit = x + row * LGH__CPU_PITCH + lane;
            *logit = KERNEL(differentiate)(KERNEL(row_gradient)(tokens, lane), *logit,
                                           tokens->target[lane] == first + row, softcap);
        }
}

KERNEL_TARGET static void KERNEL(token_rows)(double *restrict x, int64_t lanes,
                                             const lgh__cpu_tokens *restrict tokens, int64_t first,
                                             double softcap) {
    for (int64_t row = 0; row < tokens->count; row++) {
        lgh_row_gradient gradient = KERNEL(row_gradient)(tokens, row);
        for (int64_t lane = 0; lane < lanes; lane++) {
            double *logit = x + row * LGH__CPU_PITCH + lane;
            *logit = KERNEL(differentiate)(gradient, *logit, tokens->target[row] == first + lane,
                                           softcap);
        }
    }
}

static const lgh__cpu_kernels KERNEL(set) = {
    KERNEL_NAME,       KERNEL(widen),       KERNEL(multiply),  KERNEL(round_logits),
    KERNEL(add_stats), KERNEL(token_lanes), KERNEL(token_rows)};
