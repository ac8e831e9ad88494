/* cpu_backward.c - the backward pass of the CPU device: two sweeps that share no results.
 *
 * A dhidden tile holds some tokens and sweeps the vocabulary; a dweight tile holds some vocabulary
 * entries and sweeps the tokens in order. Each computes the logits it needs by the same sums, so
 * no tile waits for another and each gradient has one fixed order of summation.
 */
#include "cpu_passes.h"

#include "cpu_tile.h"
#include "value.h"

#include "formulas.h"

#include <string.h>

typedef struct backward_job {
    const lgh_plan *plan;
    const lgh_backward_args *args;
    double inverse_temperature;
    int64_t tokens_per_tile;
    int64_t dhidden_tiles; /* come first; dweight tiles follow */
    int64_t entries_per_tile;
} backward_job;

/* ---- Tokens -------------------------------------------------------------------------------- */

/* The token's target, -1 where the call has none. False: the token's gradient is 0. */
static int target_of(const backward_job *job, int64_t token, int64_t *target) {
    const lgh_plan_options *options = &job->plan->options;
    *target = -1;
    if (!job->args->targets)
        return 1;
    *target = lgh__target_at(job->args->targets, options->targets_dtype, token);
    return *target != options->ignore_index && *target >= 0 && *target < options->vocab_size;
}

/* Adds the token unless its gradient is 0; upstream gradients of 0 skip it too. */
static void add_token(lgh__cpu_tokens *tokens, const backward_job *job, int64_t token) {
    const lgh_backward_args *args = job->args;
    int64_t i = tokens->count;
    if (!target_of(job, token, &tokens->target[i]))
        return;
    tokens->index[i] = token;
    tokens->lse[i] = (double)args->lse[token];
    tokens->entropy[i] = args->entropy ? (double)args->entropy[token] : 0.0;
    tokens->grad_logp[i] = lgh__value_at(args->grad_logp, token);
    tokens->grad_entropy[i] = lgh__value_at(args->grad_entropy, token);
    tokens->grad_lse[i] = lgh__value_at(args->grad_lse, token);
    if (tokens->grad_logp[i] != 0 || tokens->grad_entropy[i] != 0 || tokens->grad_lse[i] != 0)
        tokens->count++;
}

/* Gathers the next tokens of first .. end - 1 that have a gradient, as many as a tile takes, and
 * returns the first one not looked at. */
static int64_t gather(lgh__cpu_tokens *tokens, const backward_job *job, int64_t first,
                      int64_t end) {
    memset(tokens, 0, sizeof *tokens);
    while (first < end && tokens->count < LGH__CPU_TILE)
        add_token(tokens, job, first++);
    return first;
}

/* ---- Results ------------------------------------------------------------------------------- */

/* Rounds once: to float towards an odd last bit, which keeps what was cut off from making a tie,
 * and then to BF16. */
static uint16_t bf16_from_double(double value) {
    float near = (float)value;
    uint32_t bits;
    memcpy(&bits, &near, sizeof bits);
    if (value == value && (double)near != value) {
        double size = value < 0 ? -value : value;
        double near_size = near < 0 ? -(double)near : (double)near;
        bits -= near_size > size;
        bits |= 1;
        memcpy(&near, &bits, sizeof near);
    }
    return lgh__bf16_from_float(near);
}

static void store_row(const lgh_matrix *to, int64_t row, const double *values, int accumulate) {
    if (to->dtype == LGH_BF16) {
        uint16_t *bits = (uint16_t *)to->data + row * to->row_stride;
        for (int64_t k = 0; k < to->columns; k++)
            bits[k] = bf16_from_double(values[k]);
        return;
    }
    float *floats = (float *)to->data + row * to->row_stride;
    for (int64_t k = 0; k < to->columns; k++)
        floats[k] = (float)(accumulate ? (double)floats[k] + values[k] : values[k]);
}

static void store_zeros(const lgh_matrix *to, int64_t first, int64_t end) {
    size_t size = lgh_dtype_size(to->dtype);
    for (int64_t row = first; row < end; row++)
        memset((char *)to->data + (size_t)(row * to->row_stride) * size, 0,
               (size_t)to->columns * size);
}

/* ---- Sweeps -------------------------------------------------------------------------------- */

static void clear_sum(lgh__cpu_tile *tile) {
    memset(tile->sum, 0, (size_t)(tile->lanes * tile->sum_pitch) * sizeof(double));
}

static void dhidden_tile(const backward_job *job, int64_t index, lgh__cpu_tile *tile) {
    const lgh_backward_args *args = job->args;
    int64_t vocab_size = job->plan->options.vocab_size;
    int64_t first = index * job->tokens_per_tile;
    int64_t end = first + job->tokens_per_tile;
    if (end > args->hidden.rows)
        end = args->hidden.rows;
    store_zeros(&args->dhidden, first, end);
    lgh__cpu_tokens tokens;
    gather(&tokens, job, first, end);
    if (tokens.count == 0)
        return;

    lgh__cpu_set_lanes(tile, &args->hidden, tokens.index, tokens.count);
    clear_sum(tile);
    for (int64_t entry = 0; entry < vocab_size; entry += LGH__CPU_TILE) {
        int64_t rows[LGH__CPU_TILE];
        int64_t count = lgh__cpu_count_up(rows, entry, vocab_size);
        lgh__cpu_compute_logits(tile, &args->weight, rows, count);
        tile->kernels->token_lanes(tile->x, count, tile->lanes, &tokens, entry,
                                   job->inverse_temperature);
        lgh__cpu_add_product(tile, &args->weight, rows, count);
    }
    for (int64_t i = 0; i < tokens.count; i++)
        store_row(&args->dhidden, tokens.index[i], tile->sum + i * tile->sum_pitch, 0);
}

static void dweight_tile(const backward_job *job, int64_t index, lgh__cpu_tile *tile) {
    const lgh_backward_args *args = job->args;
    int64_t first = index * job->entries_per_tile;
    int64_t end = first + job->entries_per_tile;
    if (end > job->plan->options.vocab_size)
        end = job->plan->options.vocab_size;
    int64_t entries[LGH__CPU_TILE];
    int64_t count = lgh__cpu_count_up(entries, first, end);

    lgh__cpu_set_lanes(tile, &args->weight, entries, count);
    clear_sum(tile);
    for (int64_t token = 0; token < args->hidden.rows;) {
        lgh__cpu_tokens tokens;
        token = gather(&tokens, job, token, args->hidden.rows);
        if (tokens.count == 0)
            break;
        lgh__cpu_compute_logits(tile, &args->hidden, tokens.index, tokens.count);
        tile->kernels->token_rows(tile->x, tile->lanes, &tokens, first, job->inverse_temperature);
        lgh__cpu_add_product(tile, &args->hidden, tokens.index, tokens.count);
    }
    for (int64_t i = 0; i < count; i++)
        store_row(&args->dweight, first + i, tile->sum + i * tile->sum_pitch,
                  args->accumulate_dweight);
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
    int64_t tokens = args->hidden.rows;
    int64_t vocab_size = plan->options.vocab_size;
    lgh__cpu_layout layout = lgh__cpu_layout_of(plan, LGH_PASS_BACKWARD);
    backward_job job = {.plan = plan, .args = args};
    job.inverse_temperature = lgh_inverse_temperature(lgh__value_at(args->temperature, 0));
    job.tokens_per_tile = lgh__cpu_lanes_per_tile(&layout, tokens);
    job.entries_per_tile = lgh__cpu_lanes_per_tile(&layout, vocab_size);
    if (args->dhidden.data)
        job.dhidden_tiles = (tokens + job.tokens_per_tile - 1) / job.tokens_per_tile;
    int64_t tiles = job.dhidden_tiles;
    if (args->dweight.data)
        tiles += (vocab_size + job.entries_per_tile - 1) / job.entries_per_tile;
    lgh__cpu_run_tiles(plan, &layout, workspace, backward_tile, &job, tiles);
    return LGH_SUCCESS;
}
