/* chunked_forward.c - the chunked engine's forward pass. */
#include "chunked_engine.h"

#include "chunked_kernels.h"
#include "error.h"

/* What stays the same over a call. */
typedef struct forward_call {
    lgh__row_call rows;
    const lgh_forward_args *args;
    float *logits;
    lgh_stored_stats *stats;
    void *hidden;        /* room for a block's gathered rows */
    const float *biases; /* or NULL */
} forward_call;

static lgh_status forward_logits(const forward_call *c, const lgh_const_matrix *hidden,
                                 const lgh__chunk *chunk) {
    const lgh__chunked *e = c->rows.engine;
    const int64_t stride = lgh__chunk_stride(e->config.forward_chunk);
    const int64_t index = chunk->first / e->config.forward_chunk;
    const lgh_const_matrix *weight = &c->args->weight;
    const lgh__run run = {
        .tokens = hidden->rows,
        .a_stride = hidden->row_stride,
        .b_stride = weight->row_stride,
        .c_stride = stride,
        .operands = {.a = hidden->data,
                     .b = lgh__row_of(weight, chunk->first - chunk->skip),
                     .c = c->logits,
                     .bias = c->biases ? c->biases + index * stride : NULL},
    };
    return lgh__product_run(&e->forward_logits, e->cuda->cublaslt, &run, c->rows.stream);
}

static lgh_status merge_stats(const forward_call *c, lgh__block block, const lgh__chunk *chunk) {
    const lgh_forward_args *args = c->args;
    _Static_assert(sizeof(long long) == sizeof(int64_t), "entries are 64 bits wide");
    const lgh_chunk_stats_params p = {
        .place = lgh__chunk_place(&c->rows, c->logits, c->rows.engine->config.forward_chunk, chunk,
                                  block),
        .stats = c->stats,
        .logp = args->logp,
        .lse = args->lse,
        .entropy = args->entropy,
        .logp_at_one = args->logp_at_one,
        .best = (long long *)args->best,
    };
    return lgh__launch_stats(&c->rows, &p);
}

static lgh_status forward_block(const forward_call *c, lgh__block block) {
    static const lgh__chunk empty = {0, 0, 0, 1};
    const int64_t entries = lgh__valid_entries(&c->rows.plan->options);
    const int64_t columns = c->rows.engine->config.forward_chunk;
    lgh_const_matrix hidden;
    if (entries == 0)
        return merge_stats(c, block, &empty);
    FORWARD(lgh__block_hidden(&c->rows, &c->args->hidden, block, c->hidden, &hidden));
    hidden.rows = block.rows;
    for (int64_t first = 0; first < entries; first += columns) {
        const lgh__chunk chunk = lgh__chunk_at(entries, columns, first);
        FORWARD(forward_logits(c, &hidden, &chunk));
        FORWARD(merge_stats(c, block, &chunk));
    }
    return LGH_SUCCESS;
}

static lgh_status fill_output(void *output, size_t element, int byte, int64_t tokens,
                              void *stream) {
    const size_t bytes = (size_t)tokens * element;
    return output ? lgh__driver_fill(output, byte, 1, bytes, bytes, stream) : LGH_SUCCESS;
}

/* Rows that the live list leaves out: 0, and -1 for the best entry. */
static lgh_status fill_outputs(const lgh_forward_args *a, void *stream) {
    const int64_t tokens = a->hidden.rows;
    FORWARD(fill_output(a->logp, sizeof(float), 0, tokens, stream));
    FORWARD(fill_output(a->lse, sizeof(float), 0, tokens, stream));
    FORWARD(fill_output(a->entropy, sizeof(float), 0, tokens, stream));
    FORWARD(fill_output(a->logp_at_one, sizeof(float), 0, tokens, stream));
    return fill_output(a->best, sizeof(int64_t), 0xff, tokens, stream);
}

lgh_status lgh__chunked_forward(const lgh_plan *plan, const lgh_forward_args *args, void *workspace,
                                void *stream) {
    const lgh__chunked *e = plan->state;
    const lgh__forward_layout layout =
        lgh__chunked_forward_layout(&e->config, &plan->options, args->hidden.rows);
    char *base = workspace;
    forward_call call = {
        .rows = {plan, e, args->hidden.rows, args->targets, args->temperature, args->live,
                 args->counters, stream},
        .args = args,
        .logits = (float *)(base + layout.logits),
        .stats = (lgh_stored_stats *)(base + layout.stats),
        .hidden = base + layout.hidden,
    };
    const int64_t positions = lgh__positions(&call.rows);
    const int64_t step = lgh__token_block(positions, e->config.forward_block);
    if (args->live.rows)
        FORWARD(fill_outputs(args, stream));
    FORWARD(lgh__chunk_biases(&call.rows, args->bias, e->config.forward_chunk, base + layout.bias,
                              &call.biases));
    for (int64_t first = 0; first < positions; first += step)
        FORWARD(forward_block(&call, lgh__block_at(positions, step, first)));
    return LGH_SUCCESS;
}
