/* cpu_tile.c - memory, products and threads of the CPU device's tiles. */
#include "cpu_tile.h"

#include "context.h"
#include "integers.h"
#include "threads.h"

#include "formulas.h"

#include <stdatomic.h>
#include <string.h>

enum {
    /* An odd number of cache lines, so that a column of rows does not share a cache set. */
    BLOCK_PITCH = LGH__CPU_BLOCK + 8,
    /* Bytes of workspace, as the public header promises. */
    FORWARD_LIMIT = 64 << 20,
    BACKWARD_DEFAULT = 512 << 20
};

/* ---- Layout -------------------------------------------------------------------------------- */

static size_t slice_bytes(int64_t hidden_size, lgh_pass pass, int64_t lanes) {
    int64_t packed = lanes * hidden_size;
    int64_t block = (int64_t)LGH__CPU_TILE * BLOCK_PITCH;
    int64_t x = (int64_t)LGH__CPU_TILE * LGH__CPU_PITCH;
    int64_t sum =
        pass == LGH_PASS_BACKWARD ? lanes * lgh__round_up(hidden_size, LGH__CPU_PANEL) : 0;
    int64_t bytes = (packed + block + x + sum) * (int64_t)sizeof(double);
    return (size_t)lgh__round_up(bytes, LGH_WORKSPACE_ALIGNMENT);
}

static int64_t limit_of(const lgh_plan *plan, lgh_pass pass) {
    if (pass == LGH_PASS_FORWARD)
        return FORWARD_LIMIT;
    int64_t budget = plan->options.backward_budget;
    return budget > 0 ? budget : BACKWARD_DEFAULT;
}

lgh__cpu_layout lgh__cpu_layout_of(const lgh_plan *plan, lgh_pass pass) {
    int64_t limit = limit_of(plan, pass);
    int64_t threads = lgh__threads_count(plan->context->threads);
    lgh__cpu_layout layout = {LGH__CPU_TILE, threads, 0};
    for (;; layout.lanes /= 2) {
        layout.slice = slice_bytes(plan->options.hidden_size, pass, layout.lanes);
        if (layout.lanes == LGH__CPU_PANEL || threads <= limit / (int64_t)layout.slice)
            break;
    }
    layout.workers = lgh__least(threads, limit / (int64_t)layout.slice);
    return layout;
}

int64_t lgh__cpu_lanes_per_tile(const lgh__cpu_layout *layout, int64_t total) {
    if (total == 0)
        return LGH__CPU_PANEL;
    int64_t rounds = lgh__divide_up(total, layout->workers * layout->lanes);
    return lgh__round_up(lgh__divide_up(total, layout->workers * rounds), LGH__CPU_PANEL);
}

/* ---- Threads ------------------------------------------------------------------------------- */

typedef struct tile_queue {
    lgh__cpu_tile_work work;
    const void *job;
    int64_t count;
    _Atomic int64_t next;
    lgh__cpu_tile prototype; /* what every worker's tile has in common */
    int64_t lanes;
    double *workspace;
    size_t slice;
} tile_queue;

/* An item of the pool is a slice of the workspace that takes tiles until none is left: there may be
 * fewer slices than threads. */
static void work_in_slice(void *argument, int64_t slice, int worker) {
    (void)worker;
    tile_queue *queue = argument;
    lgh__cpu_tile tile = queue->prototype;
    tile.packed = queue->workspace + (size_t)slice * (queue->slice / sizeof(double));
    tile.block = tile.packed + queue->lanes * tile.hidden_size;
    tile.x = tile.block + (int64_t)LGH__CPU_TILE * BLOCK_PITCH;
    tile.sum = tile.x + (int64_t)LGH__CPU_TILE * LGH__CPU_PITCH;
    int64_t index;
    while ((index = atomic_fetch_add(&queue->next, 1)) < queue->count)
        queue->work(queue->job, index, &tile);
}

void lgh__cpu_run_tiles(const lgh_plan *plan, const lgh__cpu_layout *layout, void *workspace,
                        lgh__cpu_tile_work work, const void *job, int64_t count) {
    tile_queue queue = {.work = work,
                        .job = job,
                        .count = count,
                        .lanes = layout->lanes,
                        .workspace = workspace,
                        .slice = layout->slice};
    atomic_init(&queue.next, 0);
    queue.prototype.kernels = lgh__cpu_kernels_at(0);
    queue.prototype.options = &plan->options;
    queue.prototype.hidden_size = plan->options.hidden_size;
    queue.prototype.sum_pitch = lgh__round_up(plan->options.hidden_size, LGH__CPU_PANEL);
    lgh__threads_run(plan->context->threads, work_in_slice, &queue,
                     lgh__least(layout->workers, count));
}

/* ---- Products ------------------------------------------------------------------------------ */

static const char *element_at(const lgh_const_matrix *matrix, int64_t row, int64_t column) {
    return (const char *)matrix->data +
           (row * matrix->row_stride + column) * (int64_t)lgh_dtype_size(matrix->dtype);
}

void lgh__cpu_set_lanes(lgh__cpu_tile *tile, const lgh_const_matrix *matrix, const int64_t *index,
                        int64_t count) {
    tile->lanes = lgh__round_up(count, LGH__CPU_PANEL);
    for (int64_t lane = 0; lane < tile->lanes; lane++) {
        double *to = tile->packed + lane / LGH__CPU_PANEL * LGH__CPU_PANEL * tile->hidden_size +
                     lane % LGH__CPU_PANEL;
        for (int64_t k = 0; k < tile->hidden_size; k += LGH__CPU_BLOCK) {
            int64_t depth = lgh__least(LGH__CPU_BLOCK, tile->hidden_size - k);
            if (lane < count)
                tile->kernels->widen(tile->block, element_at(matrix, index[lane], k), matrix->dtype,
                                     depth);
            else
                memset(tile->block, 0, (size_t)depth * sizeof(double));
            for (int64_t i = 0; i < depth; i++)
                to[(k + i) * LGH__CPU_PANEL] = tile->block[i];
        }
    }
}

/* Widens columns k .. k + depth - 1 of the rows and fills up with zeros to whole panels. */
static void widen_rows(lgh__cpu_tile *tile, const lgh_const_matrix *matrix, const int64_t *index,
                       int64_t count, int64_t k, int64_t depth) {
    int64_t columns = lgh__round_up(depth, LGH__CPU_PANEL);
    for (int64_t row = 0; row < count; row++) {
        double *to = tile->block + row * BLOCK_PITCH;
        tile->kernels->widen(to, element_at(matrix, index[row], k), matrix->dtype, depth);
        memset(to + depth, 0, (size_t)(columns - depth) * sizeof(double));
    }
    for (int64_t row = count; row < lgh__round_up(count, LGH__CPU_PANEL); row++)
        memset(tile->block + row * BLOCK_PITCH, 0, (size_t)columns * sizeof(double));
}

const double *lgh__cpu_widen_bias(const lgh__cpu_tile *tile, double to[LGH__CPU_TILE],
                                  const void *bias, int64_t first, int64_t count) {
    lgh_dtype dtype = tile->options->bias_dtype;
    if (dtype == LGH_DTYPE_NONE)
        return NULL;
    memset(to, 0, LGH__CPU_TILE * sizeof *to);
    tile->kernels->widen(to, (const char *)bias + (size_t)first * lgh_dtype_size(dtype), dtype,
                         count);
    return to;
}

static void add_bias(lgh__cpu_tile *tile, int64_t rows, lgh__cpu_bias bias) {
    for (int64_t row = 0; row < rows; row++) {
        double *x = tile->x + row * LGH__CPU_PITCH;
        for (int64_t lane = 0; bias.of_rows && lane < tile->lanes; lane++)
            x[lane] += bias.of_rows[row];
        for (int64_t lane = 0; bias.of_lanes && lane < tile->lanes; lane++)
            x[lane] += bias.of_lanes[lane];
    }
}

static void cap_logits(lgh__cpu_tile *tile, int64_t rows) {
    for (int64_t row = 0; row < rows; row++) {
        double *x = tile->x + row * LGH__CPU_PITCH;
        for (int64_t lane = 0; lane < tile->lanes; lane++)
            x[lane] = lgh_softcap(x[lane], (double)tile->options->softcap);
    }
}

void lgh__cpu_compute_logits(lgh__cpu_tile *tile, const lgh_const_matrix *matrix,
                             const int64_t *index, int64_t count, lgh__cpu_bias bias) {
    int64_t rows = lgh__round_up(count, LGH__CPU_PANEL);
    memset(tile->x, 0, (size_t)rows * LGH__CPU_PITCH * sizeof(double));
    for (int64_t k = 0; k < tile->hidden_size; k += LGH__CPU_BLOCK) {
        int64_t depth = lgh__least(LGH__CPU_BLOCK, tile->hidden_size - k);
        widen_rows(tile, matrix, index, count, k, depth);
        lgh__cpu_product product = {.c = tile->x,
                                    .c_pitch = LGH__CPU_PITCH,
                                    .a = tile->block,
                                    .a_row = BLOCK_PITCH,
                                    .a_step = 1,
                                    .b = tile->packed + k * LGH__CPU_PANEL,
                                    .b_panel = tile->hidden_size * LGH__CPU_PANEL,
                                    .b_step = LGH__CPU_PANEL,
                                    .rows = rows,
                                    .columns = tile->lanes,
                                    .depth = depth};
        tile->kernels->multiply(&product);
    }
    add_bias(tile, rows, bias);
    if (tile->options->logits_rounding != LGH_DTYPE_NONE)
        tile->kernels->round_logits(tile->x, rows, tile->lanes, tile->options->logits_rounding);
    if (tile->options->softcap > 0)
        cap_logits(tile, rows);
}

void lgh__cpu_add_product(lgh__cpu_tile *tile, const lgh_const_matrix *matrix, const int64_t *index,
                          int64_t count) {
    for (int64_t k = 0; k < tile->hidden_size; k += LGH__CPU_BLOCK) {
        int64_t columns = lgh__least(LGH__CPU_BLOCK, tile->hidden_size - k);
        if (tile->hidden_size > LGH__CPU_BLOCK) /* else the whole rows are still there */
            widen_rows(tile, matrix, index, count, k, columns);
        lgh__cpu_product product = {.c = tile->sum + k,
                                    .c_pitch = tile->sum_pitch,
                                    .a = tile->x,
                                    .a_row = 1,
                                    .a_step = LGH__CPU_PITCH,
                                    .b = tile->block,
                                    .b_panel = LGH__CPU_PANEL,
                                    .b_step = BLOCK_PITCH,
                                    .rows = tile->lanes,
                                    .columns = lgh__round_up(columns, LGH__CPU_PANEL),
                                    .depth = count};
        tile->kernels->multiply(&product);
    }
}

int64_t lgh__cpu_count_up(int64_t index[LGH__CPU_TILE], int64_t first, int64_t end) {
    int64_t count = lgh__least(LGH__CPU_TILE, end - first);
    for (int64_t i = 0; i < count; i++)
        index[i] = first + i;
    return count;
}
