/* cpu_backward.c - the backward pass of the CPU device: two sweeps that share no results.
 *
 * A dhidden tile holds some tokens and sweeps the vocabulary; a dweight tile holds some vocabulary
 * entries and sweeps the tokens in order, for dbias too. Each computes the logits it needs by the
 * same sums, so no tile waits for another and each gradient has one fixed order of summation.
 */
#include "cpu_passes.h"

#include "cpu_rows.h"
#include "cpu_store.h"
#include "cpu_tile.h"
#include "integers.h"
#include "value.h"

#include <math.h>
#include <string.h>

typedef struct backward_job {
    const lgh_backward_args *args;
    lgh__cpu_rows rows;
    int64_t rows_per_tile;
    int64_t dhidden_tiles; /* come first; dweight tiles follow */
    int64_t entries_per_tile;
} backward_job;

/* ---- Tokens -------------------------------------------------------------------------------- */

static int has_gradient(const lgh__cpu_row *row, const backward_job *job) {
    if (row->kind == LGH__CPU_IGNORED || !row->valid_temperature)
        return 0;
    return row->kind != LGH__CPU_OUT_OF_VOCABULARY ||
           job->rows.options->oov_policy == LGH_OOV_SOFTMAX;
}

/* Adds the token unless its gradient is 0; upstream gradients of 0 skip it too. */
static void add_token(lgh__cpu_tokens *tokens, const backward_job *job, int64_t position) {
    const lgh_backward_args *args = job->args;
    const lgh__cpu_row row = lgh__cpu_row_at(&job->rows, position);
    const int64_t i = tokens->count;
    if (!has_gradient(&row, job))
        return;
    tokens->index[i] = row.token;
    tokens->target[i] = row.target;
    tokens->inverse_temperature[i] = row.inverse_temperature;
    tokens->lse[i] = (double)args->lse[row.token];
    tokens->entropy[i] = args->entropy ? (double)args->entropy[row.token] : 0.0;
    tokens->grad_logp[i] = lgh__value_at(args->grad_logp, row.token);
    tokens->grad_entropy[i] = lgh__value_at(args->grad_entropy, row.token);
    tokens->grad_lse[i] = lgh__value_at(args->grad_lse, row.token);
    const int has_softmax = tokens->lse[i] != -(double)INFINITY;
    if (has_softmax &&
        (tokens->grad_logp[i] != 0 || tokens->grad_entropy[i] != 0 || tokens->grad_lse[i] != 0))
        tokens->count++;
}

/* Gathers the next tokens at positions first .. end - 1 that have a gradient, as many as a tile
 * takes, and returns the first position not looked at. */
static int64_t gather(lgh__cpu_tokens *tokens, const backward_job *job, int64_t first,
                      int64_t end) {
    memset(tokens, 0, sizeof *tokens);
    while (first < end && tokens->count < LGH__CPU_TILE)
        add_token(tokens, job, first++);
    return first;
}

/* ---- dhidden ------------------------------------------------------------------------------- */

static void clear_sum(lgh__cpu_tile *tile) {
    memset(tile->sum, 0, (size_t)(tile->lanes * tile->sum_pitch) * sizeof(double));
}

static void store_invalid(const backward_job *job, int64_t first, int64_t end) {
    for (int64_t position = first; position < end; position++) {
        const lgh__cpu_row row = lgh__cpu_row_at(&job->rows, position);
        if (!row.valid_temperature)
            lgh__cpu_store_nan(&job->args->dhidden, row.token);
    }
}

static void sweep_vocabulary(lgh__cpu_tile *tile, const lgh__cpu_tokens *tokens,
                             const backward_job *job) {
    const lgh_backward_args *args = job->args;
    for (int64_t entry = 0; entry < job->rows.entries; entry += LGH__CPU_TILE) {
        int64_t rows[LGH__CPU_TILE];
        double wide[LGH__CPU_TILE];
        const int64_t count = lgh__cpu_count_up(rows, entry, job->rows.entries);
        const lgh__cpu_bias bias = {lgh__cpu_widen_bias(tile, wide, args->bias, entry, count),
                                    NULL};
        lgh__cpu_compute_logits(tile, &args->weight, rows, count, bias);
        tile->kernels->token_lanes(tile->x, count, tile->lanes, tokens, entry,
                                   (double)tile->options->softcap);
        lgh__cpu_add_product(tile, &args->weight, rows, count);
    }
}

static void dhidden_tile(const backward_job *job, int64_t index, lgh__cpu_tile *tile) {
    const lgh_backward_args *args = job->args;
    const int64_t first = index * job->rows_per_tile;
    const int64_t end = lgh__least(first + job->rows_per_tile, job->rows.positions);
    lgh__cpu_tokens tokens;
    store_invalid(job, first, end);
    gather(&tokens, job, first, end);
    if (tokens.count == 0)
        return;
    lgh__cpu_set_lanes(tile, &args->hidden, tokens.index, tokens.count);
    clear_sum(tile);
    sweep_vocabulary(tile, &tokens, job);
    for (int64_t i = 0; i < tokens.count; i++)
        lgh__cpu_store_row(&args->dhidden, tokens.index[i], tile->sum + i * tile->sum_pitch, 0);
}

/* ---- dweight and dbias --------------------------------------------------------------------- */

/* Entries first .. end - 1 of dbias. */
static lgh_matrix dbias_of(const lgh_backward_args *args, int64_t first, int64_t end) {
    return (lgh_matrix){args->dbias + first, 1, end - first, end - first, LGH_FP32};
}

/* Adds the gradients of the logits, token after token, to the lanes' entries. */
static void add_rows(double *bias_sum, const lgh__cpu_tile *tile, int64_t count) {
    for (int64_t row = 0; row < count; row++)
        for (int64_t lane = 0; lane < tile->lanes; lane++)
            bias_sum[lane] += tile->x[row * LGH__CPU_PITCH + lane];
}

static void sweep_tokens(lgh__cpu_tile *tile, double *bias_sum, const backward_job *job,
                         int64_t first, lgh__cpu_bias bias) {
    const lgh_backward_args *args = job->args;
    for (int64_t position = 0; position < job->rows.positions;) {
        lgh__cpu_tokens tokens;
        position = gather(&tokens, job, position, job->rows.positions);
        if (tokens.count == 0)
            return;
        lgh__cpu_compute_logits(tile, &args->hidden, tokens.index, tokens.count, bias);
        tile->kernels->token_rows(tile->x, tile->lanes, &tokens, first,
                                  (double)tile->options->softcap);
        if (args->dbias)
            add_rows(bias_sum, tile, tokens.count);
        if (args->dweight.data)
            lgh__cpu_add_product(tile, &args->hidden, tokens.index, tokens.count);
    }
}

static void dweight_tile(const backward_job *job, int64_t index, lgh__cpu_tile *tile) {
    const lgh_backward_args *args = job->args;
    const int64_t first = index * job->entries_per_tile;
    const int64_t end = lgh__least(first + job->entries_per_tile, job->rows.entries);
    int64_t entries[LGH__CPU_TILE];
    double wide[LGH__CPU_TILE], bias_sum[LGH__CPU_TILE] = {0};
    const int64_t count = lgh__cpu_count_up(entries, first, end);
    const lgh__cpu_bias bias = {NULL, lgh__cpu_widen_bias(tile, wide, args->bias, first, count)};
    lgh__cpu_set_lanes(tile, &args->weight, entries, count);
    clear_sum(tile);
    sweep_tokens(tile, bias_sum, job, first, bias);
    for (int64_t i = 0; args->dweight.data && i < count; i++)
        lgh__cpu_store_row(&args->dweight, first + i, tile->sum + i * tile->sum_pitch,
                           args->accumulate_dweight);
    if (args->dbias) {
        const lgh_matrix dbias = dbias_of(args, first, end);
        lgh__cpu_store_row(&dbias, 0, bias_sum, args->accumulate_dbias);
    }
}

/* ---- Pass ---------------------------------------------------------------------------------- */

/* Rows of dhidden that have no gradient, and rows of dweight and dbias that are padding. */
static void clear_results(const backward_job *job) {
    const lgh_backward_args *args = job->args;
    const int64_t entries = job->rows.entries, vocab_size = job->rows.options->vocab_size;
    if (args->dhidden.data)
        lgh__cpu_store_zeros(&args->dhidden, 0, job->rows.tokens);
    if (args->dweight.data && !args->accumulate_dweight)
        lgh__cpu_store_zeros(&args->dweight, entries, vocab_size);
    if (args->dbias && !args->accumulate_dbias) {
        const lgh_matrix padding = dbias_of(args, entries, vocab_size);
        lgh__cpu_store_zeros(&padding, 0, 1);
    }
}

static void backward_tile(const void *argument, int64_t index, lgh__cpu_tile *tile) {
    const backward_job *job = argument;
    if (index < job->dhidden_tiles)
        dhidden_tile(job, index, tile);
    else
        dweight_tile(job, index - job->dhidden_tiles, tile);
}

lgh_status lgh__cpu_backward(const lgh_plan *plan, const lgh_backward_args *args, void *workspace,
                             void *stream) {
    (void)stream;
    const lgh__cpu_layout layout = lgh__cpu_layout_of(plan, LGH_PASS_BACKWARD);
    backward_job job = {.args = args};
    job.rows =
        lgh__cpu_rows_of(plan, args->hidden.rows, &args->live, args->targets, args->temperature);
    job.rows_per_tile = lgh__cpu_lanes_per_tile(&layout, job.rows.positions);
    job.entries_per_tile = lgh__cpu_lanes_per_tile(&layout, job.rows.entries);
    if (args->dhidden.data)
        job.dhidden_tiles = lgh__divide_up(job.rows.positions, job.rows_per_tile);
    int64_t tiles = job.dhidden_tiles;
    if (args->dweight.data || args->dbias)
        tiles += lgh__divide_up(job.rows.entries, job.entries_per_tile);
    clear_results(&job);
    lgh__cpu_count_rows(&job.rows, &args->counters);
    lgh__cpu_run_tiles(plan, &layout, workspace, backward_tile, &job, tiles);
    return LGH_SUCCESS;
}
