/* cpu_forward.c - the forward pass of the CPU device: per tile of tokens, one sweep over the
 * vocabulary. */
#include "cpu_passes.h"

#include "cpu_rows.h"
#include "cpu_tile.h"
#include "integers.h"

#include "formulas.h"

#include <string.h>

typedef struct forward_job {
    const lgh_forward_args *args;
    lgh__cpu_rows rows;
    int64_t rows_per_tile;
} forward_job;

/* A tile's tokens, their statistics and their targets' logits. */
typedef struct token_results {
    lgh__cpu_tokens tokens;
    lgh__cpu_target kind[LGH__CPU_TILE];
    lgh__cpu_stats stats;
    double target_logit[LGH__CPU_TILE];
} token_results;

/* ---- Rows without a softmax ---------------------------------------------------------------- */

/* What rows that do not count have; the others are written over. */
static void clear_outputs(const lgh_forward_args *args) {
    float *outputs[4] = {args->logp, args->lse, args->entropy, args->logp_at_one};
    for (int i = 0; i < 4; i++)
        if (outputs[i])
            memset(outputs[i], 0, (size_t)args->hidden.rows * sizeof *outputs[i]);
    for (int64_t token = 0; args->best && token < args->hidden.rows; token++)
        args->best[token] = -1;
}

static void write_invalid(const lgh_forward_args *args, int64_t token) {
    float *outputs[4] = {args->logp, args->lse, args->entropy, args->logp_at_one};
    for (int i = 0; i < 4; i++)
        if (outputs[i])
            outputs[i][token] = NAN;
}

/* ---- Tiles --------------------------------------------------------------------------------- */

/* False where everything that is asked for is 0. */
static int needs_softmax(const lgh_forward_args *args, lgh__cpu_target kind) {
    if (kind == LGH__CPU_IGNORED)
        return 0;
    return args->lse || args->entropy || args->best || kind == LGH__CPU_LOCAL ||
           kind == LGH__CPU_REMOTE;
}

/* Gathers the tokens at positions first .. end - 1 that need a softmax. */
static void gather(token_results *results, const forward_job *job, int64_t first, int64_t end) {
    memset(results, 0, sizeof *results);
    lgh__cpu_tokens *tokens = &results->tokens;
    for (int64_t position = first; position < end; position++) {
        const lgh__cpu_row row = lgh__cpu_row_at(&job->rows, position);
        if (!row.valid_temperature) {
            write_invalid(job->args, row.token);
        } else if (needs_softmax(job->args, row.kind)) {
            results->kind[tokens->count] = row.kind;
            tokens->index[tokens->count] = row.token;
            tokens->target[tokens->count] = row.target;
            tokens->inverse_temperature[tokens->count++] = row.inverse_temperature;
        }
    }
}

/* Sums at T = 1 are wanted and not those at T. */
static int needs_sums_at_one(const token_results *results, const forward_job *job) {
    int differ = 0;
    for (int64_t i = 0; i < results->tokens.count; i++)
        differ |= results->tokens.inverse_temperature[i] != 1.0;
    return job->args->logp_at_one && differ;
}

static void sweep(token_results *results, const forward_job *job, lgh__cpu_tile *tile) {
    const lgh__cpu_tokens *tokens = &results->tokens;
    const lgh_row_stats empty = lgh_row_stats_empty();
    const int at_one = needs_sums_at_one(results, job);
    lgh__cpu_set_lanes(tile, &job->args->hidden, tokens->index, tokens->count);
    for (int64_t lane = 0; lane < tile->lanes; lane++)
        results->stats.max[lane] = empty.max;
    for (int64_t entry = 0; entry < job->rows.entries; entry += LGH__CPU_TILE) {
        int64_t rows[LGH__CPU_TILE];
        double wide[LGH__CPU_TILE];
        const int64_t count = lgh__cpu_count_up(rows, entry, job->rows.entries);
        const lgh__cpu_bias bias = {lgh__cpu_widen_bias(tile, wide, job->args->bias, entry, count),
                                    NULL};
        lgh__cpu_compute_logits(tile, &job->args->weight, rows, count, bias);
        tile->kernels->add_stats(&results->stats, tile->x, count, tile->lanes,
                                 tokens->inverse_temperature, entry, at_one);
        for (int64_t i = 0; i < tokens->count; i++) {
            const int64_t row = tokens->target[i] - entry;
            if (row >= 0 && row < count)
                results->target_logit[i] = tile->x[row * LGH__CPU_PITCH + i];
        }
    }
}

/* ---- Results ------------------------------------------------------------------------------- */

/* A remote target's own term is added by whoever has it. */
static double log_prob(const token_results *results, int64_t i, lgh_row_stats stats,
                       double inverse_temperature) {
    if (results->kind[i] == LGH__CPU_LOCAL)
        return lgh_log_prob(stats, results->target_logit[i], inverse_temperature);
    return results->kind[i] == LGH__CPU_REMOTE ? -lgh_lse(stats, inverse_temperature) : 0.0;
}

static void write_result(const token_results *results, int64_t i, const forward_job *job) {
    const lgh_forward_args *args = job->args;
    const lgh__cpu_stats *s = &results->stats;
    const int64_t token = results->tokens.index[i];
    const double inverse_temperature = results->tokens.inverse_temperature[i];
    const lgh_row_stats stats = {s->max[i], s->sum[i], s->weighted[i], 0};
    const lgh_row_stats at_one = {s->max[i],
                                  inverse_temperature == 1.0 ? s->sum[i] : s->sum_at_one[i], 0, 0};
    if (args->lse)
        args->lse[token] = (float)lgh_lse(stats, inverse_temperature);
    if (stats.sum == 0) /* no entries, or all of them -inf: there is nothing else to know */
        return;
    if (args->entropy)
        args->entropy[token] = (float)lgh_entropy(stats);
    if (args->logp)
        args->logp[token] = (float)log_prob(results, i, stats, inverse_temperature);
    if (args->logp_at_one)
        args->logp_at_one[token] = (float)log_prob(results, i, at_one, 1.0);
    if (args->best)
        args->best[token] = job->rows.options->vocab_start + s->best[i];
}

static void forward_tile(const void *argument, int64_t index, lgh__cpu_tile *tile) {
    const forward_job *job = argument;
    const int64_t first = index * job->rows_per_tile;
    int64_t end = first + job->rows_per_tile;
    if (end > job->rows.positions)
        end = job->rows.positions;
    token_results results;
    gather(&results, job, first, end);
    if (results.tokens.count == 0)
        return;
    sweep(&results, job, tile);
    for (int64_t i = 0; i < results.tokens.count; i++)
        write_result(&results, i, job);
}

lgh_status lgh__cpu_forward(const lgh_plan *plan, const lgh_forward_args *args, void *workspace,
                            void *stream) {
    (void)stream;
    const lgh__cpu_layout layout = lgh__cpu_layout_of(plan, LGH_PASS_FORWARD);
    forward_job job = {.args = args};
    job.rows =
        lgh__cpu_rows_of(plan, args->hidden.rows, &args->live, args->targets, args->temperature);
    job.rows_per_tile = lgh__cpu_lanes_per_tile(&layout, job.rows.positions);
    const int64_t tiles = lgh__divide_up(job.rows.positions, job.rows_per_tile);
    clear_outputs(args);
    lgh__cpu_count_rows(&job.rows, &args->counters);
    lgh__cpu_run_tiles(plan, &layout, workspace, forward_tile, &job, tiles);
    return LGH_SUCCESS;
}
