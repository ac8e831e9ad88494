/* cpu_kernels.h - the inner loops of the CPU device, in one set per instruction set.
 *
 * Both passes work on a tile of logits x[row][lane]. The lanes are vectors that stay for a whole
 * sweep (tokens in the forward and dhidden sweeps, vocabulary entries in the dweight sweep), packed
 * so that vector lanes run over them; the rows are vectors of the other side, which pass by.
 */
#ifndef LGH_CPU_KERNELS_H
#define LGH_CPU_KERNELS_H

#include "loggerhead/loggerhead.h"

enum {
    LGH__CPU_PANEL = 8,   /* lanes packed together; tiles are whole multiples of it */
    LGH__CPU_TILE = 64,   /* rows of a tile, and the most lanes; results depend on it, see below */
    LGH__CPU_BLOCK = 256, /* elements of the hidden dimension that are widened at a time */
    LGH__CPU_PITCH = LGH__CPU_TILE + 8 /* of x: an odd number of cache lines, against conflicts */
};

/* c += a b. Each element of c is summed over k in order, one fused multiply-add (where the
 * processor has one) after another, so it depends neither on the tile nor on its place in it. */
typedef struct lgh__cpu_product {
    double *c; /* c(i, j) = c[i * c_pitch + j] */
    int64_t c_pitch;
    const double *a; /* a(i, k) = a[i * a_row + k * a_step] */
    int64_t a_row;
    int64_t a_step;
    const double *b; /* b(k, j) = b[j / 8 * b_panel + k * b_step + j % 8] */
    int64_t b_panel;
    int64_t b_step;
    int64_t rows;    /* a multiple of LGH__CPU_PANEL */
    int64_t columns; /* likewise */
    int64_t depth;
} lgh__cpu_product;

/* Row statistics (formulas.h) of the tokens that are lanes of a tile. The vocabulary is merged tile
 * by tile, so its tiles have LGH__CPU_TILE rows whatever the thread count. */
typedef struct lgh__cpu_stats {
    double max[LGH__CPU_TILE];
    double sum[LGH__CPU_TILE];
    double weighted[LGH__CPU_TILE];
    double sum_at_one[LGH__CPU_TILE];
    int64_t best[LGH__CPU_TILE]; /* the first row of the weight whose logit is max */
} lgh__cpu_stats;

/* Tokens that count, gathered for a tile; all 0 past count. */
typedef struct lgh__cpu_tokens {
    int64_t count;
    int64_t index[LGH__CPU_TILE];  /* the token's row in hidden and in the vectors of the call */
    int64_t target[LGH__CPU_TILE]; /* a row of the weight; -1: none */
    double inverse_temperature[LGH__CPU_TILE];
    double lse[LGH__CPU_TILE]; /* from here on for the backward pass */
    double entropy[LGH__CPU_TILE];
    double grad_logp[LGH__CPU_TILE];
    double grad_entropy[LGH__CPU_TILE];
    double grad_lse[LGH__CPU_TILE];
} lgh__cpu_tokens;

/* Entries are counted as rows of the weight. A softcap of 0 is none; with one, the logits are those
 * that it has capped. */
typedef struct lgh__cpu_kernels {
    const char *name;
    void (*widen)(double *to, const void *from, lgh_dtype dtype, int64_t count);
    void (*multiply)(const lgh__cpu_product *product);
    /** Rounds a tile's logits to float and then to this 16-bit dtype. */
    void (*round_logits)(double *x, int64_t rows, int64_t lanes, lgh_dtype dtype);
    /** Merges a tile's logits into the statistics of its lanes, which have a temperature each; row
     *  0 is entry `first`; at_one adds the sums at T = 1. */
    void (*add_stats)(lgh__cpu_stats *stats, const double *x, int64_t rows, int64_t lanes,
                      const double *inverse_temperature, int64_t first, int at_one);
    /** Replaces logits by their gradients: lanes are tokens, row 0 is entry `first`. */
    void (*token_lanes)(double *x, int64_t rows, int64_t lanes, const lgh__cpu_tokens *tokens,
                        int64_t first, double softcap);
    /** The same where rows are tokens and lane 0 is entry `first`. */
    void (*token_rows)(double *x, int64_t lanes, const lgh__cpu_tokens *tokens, int64_t first,
                       double softcap);
} lgh__cpu_kernels;

/** The sets that this processor can run, best first; NULL for an index past the last. */
const lgh__cpu_kernels *lgh__cpu_kernels_at(int index);

#endif
