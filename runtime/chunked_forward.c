/* chunked_forward.c - the chunked engine's forward pass. */
#include "chunked_engine.h"

#include "error.h"
#include "row_launch.h"

/* What stays the same over a call. */
typedef struct forward_call {
    const lgh_plan *plan;
    const lgh__chunked *engine;
    const lgh_forward_args *args;
    float *logits;
    lgh_stored_stats *stats;
    void *stream;
} forward_call;

static float *offset_output(float *output, int64_t token) {
    return output ? output + token : NULL;
}

static lgh_chunk_stats_params stats_params(const forward_call *c, lgh__block block,
                                           const lgh__chunk *chunk) {
    const lgh_forward_args *args = c->args;
    return (lgh_chunk_stats_params){
        .place = lgh__chunk_place(c->plan, c->logits, c->engine->config.forward_chunk, chunk,
                                  args->targets, block),
        .temperature = lgh__device_value_at(args->temperature, block.first),
        .stats = c->stats,
        .is_first = chunk->first == 0,
        .is_last = chunk->is_last,
        .logp = offset_output(args->logp, block.first),
        .lse = offset_output(args->lse, block.first),
        .entropy = offset_output(args->entropy, block.first),
        .logp_at_one = offset_output(args->logp_at_one, block.first),
    };
}

static lgh_status forward_chunk(const forward_call *c, lgh__block block, const lgh__chunk *chunk) {
    const lgh__chunked *e = c->engine;
    const lgh__operands logits = {.a = lgh__row_of(&c->args->hidden, block.first),
                                  .b = lgh__row_of(&c->args->weight, chunk->first - chunk->skip),
                                  .c = c->logits,
                                  .a_stride = c->args->hidden.row_stride,
                                  .b_stride = c->args->weight.row_stride,
                                  .c_stride = lgh__chunk_stride(e->config.forward_chunk)};
    FORWARD(lgh__product_run(&e->forward_logits, e->cuda->cublaslt, block.tokens, 0, &logits,
                             c->stream));
    const lgh_chunk_stats_params p = stats_params(c, block, chunk);
    return lgh__launch_stats(e, &p, c->stream);
}

static lgh_status forward_block(const forward_call *c, lgh__block block) {
    const int64_t vocab_size = c->plan->options.vocab_size;
    const int64_t columns = c->engine->config.forward_chunk;
    for (int64_t first = 0; first < vocab_size; first += columns) {
        const lgh__chunk chunk = lgh__chunk_at(vocab_size, columns, first);
        FORWARD(forward_chunk(c, block, &chunk));
    }
    return LGH_SUCCESS;
}

lgh_status lgh__chunked_forward(const lgh_plan *plan, const lgh_forward_args *args, void *workspace,
                                void *stream) {
    const lgh__chunked *e = plan->state;
    const int64_t tokens = args->hidden.rows;
    const lgh__forward_layout layout = lgh__chunked_forward_layout(&e->config, tokens);
    const forward_call call = {plan,
                               e,
                               args,
                               (float *)((char *)workspace + layout.logits),
                               (lgh_stored_stats *)((char *)workspace + layout.stats),
                               stream};
    const int64_t step = lgh__token_block(tokens, e->config.forward_block);
    for (int64_t first = 0; first < tokens; first += step)
        FORWARD(forward_block(&call, lgh__block_at(tokens, step, first)));
    return LGH_SUCCESS;
}
