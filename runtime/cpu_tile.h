/* cpu_tile.h - the tile of logits that the CPU device's sweeps share: its memory, its products and
 * the threads that work on tiles. cpu_kernels.h says what lanes and rows are. */
#ifndef LGH_CPU_TILE_H
#define LGH_CPU_TILE_H

#include "loggerhead/loggerhead.h"

#include "cpu_kernels.h"
#include "plan.h"

/* How a pass spreads over threads and memory. Only speed depends on it, no result does. */
typedef struct lgh__cpu_layout {
    int64_t lanes;   /* most lanes of a tile */
    int64_t workers; /* tiles worked on at a time, each in a slice of the workspace; 0: the limit
                        leaves no room for one */
    size_t slice;    /* bytes of workspace per worker, a multiple of LGH_WORKSPACE_ALIGNMENT */
} lgh__cpu_layout;

/** The layout that keeps a pass within its memory limit: narrower tiles first, then fewer of them
 *  at a time. */
lgh__cpu_layout lgh__cpu_layout_of(const lgh_plan *plan, lgh_pass pass);

/** How many lanes each tile takes so that `total` of them spread evenly; a multiple of
 *  LGH__CPU_PANEL, and at least that. */
int64_t lgh__cpu_lanes_per_tile(const lgh__cpu_layout *layout, int64_t total);

/* A worker's tile. */
typedef struct lgh__cpu_tile {
    const lgh__cpu_kernels *kernels;
    const lgh_plan_options *options;
    int64_t hidden_size; /* D */
    int64_t lanes;       /* of the tile at hand, up to a multiple of LGH__CPU_PANEL */
    int64_t sum_pitch;   /* D up to a multiple of LGH__CPU_PANEL */
    double *packed;      /* the lanes' vectors: [lane / 8][k][lane % 8] */
    double *block;       /* widened rows: [LGH__CPU_TILE] at a pitch of an odd number of lines */
    double *x;           /* logits, then their gradients: [row][lane] at LGH__CPU_PITCH */
    double *sum;         /* backward: the lanes' gradients, [lane][D] at sum_pitch */
} lgh__cpu_tile;

/** Carries out tile `index` of a job in this worker's memory. */
typedef void (*lgh__cpu_tile_work)(const void *job, int64_t index, lgh__cpu_tile *tile);

/** Does tiles 0 .. count - 1 on the context's threads. */
void lgh__cpu_run_tiles(const lgh_plan *plan, const lgh__cpu_layout *layout, void *workspace,
                        lgh__cpu_tile_work work, const void *job, int64_t count);

/** Makes rows index[0 .. count - 1] of a matrix the tile's lanes. */
void lgh__cpu_set_lanes(lgh__cpu_tile *tile, const lgh_const_matrix *matrix, const int64_t *index,
                        int64_t count);

/* What is added to each dot product: a number per row, or a number per lane, or nothing. */
typedef struct lgh__cpu_bias {
    const double *of_rows;  /* or NULL */
    const double *of_lanes; /* or NULL */
} lgh__cpu_bias;

/** Widens the call's bias of entries first .. first + count - 1, and fills up with zeros. NULL
 * where the plan has none. */
const double *lgh__cpu_widen_bias(const lgh__cpu_tile *tile, double to[LGH__CPU_TILE],
                                  const void *bias, int64_t first, int64_t count);

/** Fills x with the logits of the lanes and rows index[0 .. count - 1] of a matrix: with bias,
 *  rounding and softcap. */
void lgh__cpu_compute_logits(lgh__cpu_tile *tile, const lgh_const_matrix *matrix,
                             const int64_t *index, int64_t count, lgh__cpu_bias bias);

/** Adds x^T rows to sum, for the rows that lgh__cpu_compute_logits was just given. */
void lgh__cpu_add_product(lgh__cpu_tile *tile, const lgh_const_matrix *matrix, const int64_t *index,
                          int64_t count);

/** Fills index with first, first + 1, ... below end; the count is at most LGH__CPU_TILE. */
int64_t lgh__cpu_count_up(int64_t index[LGH__CPU_TILE], int64_t first, int64_t end);

#endif
