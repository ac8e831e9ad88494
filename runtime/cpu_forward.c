/* cpu_forward.c - the forward pass of the CPU device: per tile of tokens, one sweep over the
 * vocabulary. */
#include "cpu_passes.h"

#include "cpu_tile.h"
#include "value.h"

#include "formulas.h"

typedef struct forward_job {
    const lgh_plan *plan;
    const lgh_forward_args *args;
    double inverse_temperature;
    int at_one; /* sums at T = 1 are wanted and differ from those at T */
    int64_t tokens_per_tile;
} forward_job;

/* The statistics of a tile's tokens, and their targets' logits. */
typedef struct token_results {
    lgh__cpu_stats stats;
    double target_logit[LGH__CPU_TILE];
} token_results;

static void write_zeros(const lgh_forward_args *args, int64_t first, int64_t end) {
    float *outputs[4] = {args->logp, args->lse, args->entropy, args->logp_at_one};
    for (int i = 0; i < 4; i++)
        for (int64_t token = first; outputs[i] && token < end; token++)
            outputs[i][token] = 0.0f;
}

/* Gathers the tokens of first .. end - 1 that have a result other than 0. */
static void gather(lgh__cpu_tokens *tokens, const forward_job *job, int64_t first, int64_t end) {
    const lgh_plan_options *options = &job->plan->options;
    const lgh_forward_args *args = job->args;
    tokens->count = 0;
    for (int64_t token = first; token < end; token++) {
        int64_t target = -1;
        if (args->targets) {
            target = lgh__target_at(args->targets, options->targets_dtype, token);
            if (target == options->ignore_index)
                continue;
            if (target < 0 || target >= options->vocab_size)
                target = -1;
        }
        if (target < 0 && !args->lse && !args->entropy)
            continue;
        tokens->index[tokens->count] = token;
        tokens->target[tokens->count++] = target;
    }
}

/* Adds the tile's logits, of the vocabulary entries first .. first + count - 1. */
static void add_tile(token_results *results, const lgh__cpu_tile *tile,
                     const lgh__cpu_tokens *tokens, const forward_job *job, int64_t first,
                     int64_t count) {
    tile->kernels->add_stats(&results->stats, tile->x, count, tile->lanes, job->inverse_temperature,
                             job->at_one);
    for (int64_t i = 0; i < tokens->count; i++) {
        int64_t row = tokens->target[i] - first;
        if (row >= 0 && row < count)
            results->target_logit[i] = tile->x[row * LGH__CPU_PITCH + i];
    }
}

static void write_results(const token_results *results, const lgh__cpu_tokens *tokens,
                          const forward_job *job) {
    const lgh_forward_args *args = job->args;
    for (int64_t i = 0; i < tokens->count; i++) {
        lgh_row_stats stats = {results->stats.max[i], results->stats.sum[i],
                               results->stats.weighted[i], results->stats.sum_at_one[i]};
        if (!job->at_one)
            stats.sum_at_one = stats.sum; /* read only where T = 1 */
        int64_t token = tokens->index[i];
        int has_target = tokens->target[i] >= 0;
        if (args->lse)
            args->lse[token] = (float)lgh_lse(stats, job->inverse_temperature);
        if (args->entropy)
            args->entropy[token] = (float)lgh_entropy(stats);
        if (args->logp && has_target)
            args->logp[token] =
                (float)lgh_log_prob(stats, results->target_logit[i], job->inverse_temperature);
        if (args->logp_at_one && has_target)
            args->logp_at_one[token] = (float)lgh_log_prob_at_one(stats, results->target_logit[i]);
    }
}

static void forward_tile(const void *argument, int64_t index, lgh__cpu_tile *tile) {
    const forward_job *job = argument;
    const lgh_forward_args *args = job->args;
    int64_t first = index * job->tokens_per_tile;
    int64_t end = first + job->tokens_per_tile;
    if (end > args->hidden.rows)
        end = args->hidden.rows;
    write_zeros(args, first, end);
    lgh__cpu_tokens tokens;
    gather(&tokens, job, first, end);
    if (tokens.count == 0)
        return;

    lgh__cpu_set_lanes(tile, &args->hidden, tokens.index, tokens.count);
    token_results results = {0};
    lgh_row_stats empty = lgh_row_stats_empty();
    for (int64_t lane = 0; lane < tile->lanes; lane++)
        results.stats.max[lane] = empty.max;
    for (int64_t entry = 0; entry < job->plan->options.vocab_size; entry += LGH__CPU_TILE) {
        int64_t rows[LGH__CPU_TILE];
        int64_t count = lgh__cpu_count_up(rows, entry, job->plan->options.vocab_size);
        lgh__cpu_compute_logits(tile, &args->weight, rows, count);
        add_tile(&results, tile, &tokens, job, entry, count);
    }
    write_results(&results, &tokens, job);
}

lgh_status lgh__cpu_forward(const lgh_plan *plan, const lgh_forward_args *args, void *workspace,
                            void *stream) {
    (void)stream;
    lgh__cpu_layout layout = lgh__cpu_layout_of(plan, LGH_PASS_FORWARD);
    forward_job job = {.plan = plan, .args = args};
    job.inverse_temperature = lgh_inverse_temperature(lgh__value_at(args->temperature, 0));
    job.at_one = args->logp_at_one != NULL && job.inverse_temperature != 1.0;
    job.tokens_per_tile = lgh__cpu_lanes_per_tile(&layout, args->hidden.rows);
    int64_t tiles = (args->hidden.rows + job.tokens_per_tile - 1) / job.tokens_per_tile;
    lgh__cpu_run_tiles(plan, &layout, workspace, forward_tile, &job, tiles);
    return LGH_SUCCESS;
}
