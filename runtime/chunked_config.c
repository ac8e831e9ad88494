/* chunked_config.c - how the chunked engine divides a plan's work. */
#include "chunked_config.h"

#include "error.h"
#include "row_params.h"

/* FP32 logits of 2048 tokens and 6144 columns are 48 MiB: nearly whole waves of a matrix product's
 * tiles on 132 multiprocessors, and most of it is still in the L2 cache when the row kernel reads
 * it. */
#define FORWARD_CHUNK 6144
#define FORWARD_BLOCK 2048
/* Wider, because each chunk reads and writes the FP32 sums of dhidden once. */
#define BACKWARD_CHUNK 8192
/* Staging of a BF16 dweight: a chunk's FP32 rows. */
#define DWEIGHT_STAGING_LIMIT ((int64_t)128 << 20)
#define DEFAULT_BUDGET ((int64_t)512 << 20)
/* Tiles of matrix products have up to 256 rows; blocks in multiples of 128 waste little. */
#define BLOCK_UNIT 128
#define SMALLEST_BLOCK 16

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t round_up(int64_t value, int64_t unit) {
    return (value + unit - 1) / unit * unit;
}

int64_t lgh__chunked_widest(const lgh__chunked_config *c) {
    return c->forward_chunk > c->backward_chunk ? c->forward_chunk : c->backward_chunk;
}

int64_t lgh__chunk_stride(int64_t chunk) {
    return round_up(chunk, 8);
}

static int64_t round_down_to_unit(int64_t rows) {
    return rows > BLOCK_UNIT ? rows / BLOCK_UNIT * BLOCK_UNIT : rows;
}

/* Reserves bytes in a layout whose size so far is *bytes. */
static size_t reserve(size_t *bytes, int64_t wanted) {
    size_t offset = *bytes;
    *bytes += (size_t)round_up(wanted, LGH_WORKSPACE_ALIGNMENT);
    return offset;
}

static int64_t backward_chunk(const lgh_plan_options *o) {
    int64_t chunk = BACKWARD_CHUNK;
    if (o->dweight_dtype == LGH_BF16)
        chunk = least(chunk, DWEIGHT_STAGING_LIMIT / (o->hidden_size * 4) / 256 * 256);
    if (chunk < 256)
        chunk = 256;
    return least(chunk, o->vocab_size);
}

/* Bytes that one token of a block takes in the backward pass. */
static int64_t backward_token_bytes(const lgh__chunked_config *c, const lgh_plan_options *o) {
    return lgh__chunk_stride(c->backward_chunk) * 4 +
           (o->dhidden_dtype == LGH_BF16 ? o->hidden_size * 4 : 0);
}

static int64_t dweight_staging(const lgh__chunked_config *c, const lgh_plan_options *o) {
    return o->dweight_dtype == LGH_BF16 ? c->backward_chunk * o->hidden_size * 4 : 0;
}

static lgh_status choose_backward_block(lgh__chunked_config *c, const lgh_plan_options *o) {
    if (o->dhidden_dtype == LGH_DTYPE_NONE && o->dweight_dtype == LGH_DTYPE_NONE) {
        c->backward_block = o->max_tokens; /* there is no backward pass to fit */
        return LGH_SUCCESS;
    }
    const int64_t budget = o->backward_budget > 0 ? o->backward_budget : DEFAULT_BUDGET;
    const int64_t token_bytes = backward_token_bytes(c, o);
    /* Each of the three parts of the layout may need padding to the alignment. */
    const int64_t fixed = dweight_staging(c, o) + 3 * LGH_WORKSPACE_ALIGNMENT;
    const int64_t fits = (budget - fixed) / token_bytes;
    const int64_t wanted = least(SMALLEST_BLOCK, o->max_tokens);
    RETURN_IF(
        budget < fixed || fits < wanted, LGH_ERROR_WORKSPACE,
        "options->backward_budget is %lld bytes, but D = %lld and V = %lld need at least %lld",
        (long long)budget, (long long)o->hidden_size, (long long)o->vocab_size,
        (long long)(fixed + wanted * token_bytes));
    c->backward_block = round_down_to_unit(least(fits, o->max_tokens));
    return LGH_SUCCESS;
}

lgh_status lgh__chunked_config_choose(lgh__chunked_config *c, const lgh_plan_options *o) {
    c->forward_chunk = least(FORWARD_CHUNK, o->vocab_size);
    c->backward_chunk = backward_chunk(o);
    c->vocab_outer = o->dweight_dtype == LGH_BF16;
    c->forward_block = least(FORWARD_BLOCK, o->max_tokens);
    FORWARD(choose_backward_block(c, o));
    if (o->token_block > 0) {
        c->forward_block = least(c->forward_block, o->token_block);
        c->backward_block = least(c->backward_block, o->token_block);
    }
    return LGH_SUCCESS;
}

lgh__forward_layout lgh__chunked_forward_layout(const lgh__chunked_config *c, int64_t tokens) {
    const int64_t block = least(tokens, c->forward_block);
    lgh__forward_layout layout = {0};
    layout.logits = reserve(&layout.bytes, block * lgh__chunk_stride(c->forward_chunk) * 4);
    layout.stats = reserve(&layout.bytes, block * (int64_t)sizeof(lgh_stored_stats));
    return layout;
}

lgh__backward_layout lgh__chunked_backward_layout(const lgh__chunked_config *c,
                                                  const lgh_plan_options *o, int64_t tokens) {
    const int64_t block = least(tokens, c->backward_block);
    lgh__backward_layout layout = {0};
    layout.logits = reserve(&layout.bytes, block * lgh__chunk_stride(c->backward_chunk) * 4);
    if (tokens > 0)
        layout.dweight = reserve(&layout.bytes, dweight_staging(c, o));
    if (o->dhidden_dtype == LGH_BF16) {
        const size_t before = layout.bytes;
        layout.dhidden =
            reserve(&layout.bytes, (c->vocab_outer ? tokens : block) * o->hidden_size * 4);
        if (c->vocab_outer && tokens > block)
            layout.beyond_budget = layout.bytes - before;
    }
    return layout;
}

int64_t lgh__token_block(int64_t tokens, int64_t most) {
    if (tokens <= most)
        return tokens;
    const int64_t blocks = (tokens + most - 1) / most;
    const int64_t even = (tokens + blocks - 1) / blocks;
    return least(round_up(even, BLOCK_UNIT), most);
}

void lgh__chunked_config_describe(const lgh__chunked_config *c, lgh__text *text) {
    lgh__text_append(text, "forward_chunk = %lld\nforward_block = %lld\n",
                     (long long)c->forward_chunk, (long long)c->forward_block);
    lgh__text_append(text, "backward_chunk = %lld\nbackward_block = %lld\nbackward_outer = %s\n",
                     (long long)c->backward_chunk, (long long)c->backward_block,
                     c->vocab_outer ? "vocabulary" : "tokens");
}
