/* chunked_config.c - how the chunked engine divides a plan's work. */
#include "chunked_config.h"

#include "configuration.h"
#include "dtype.h"
#include "error.h"
#include "integers.h"
#include "plan.h"
#include "row_params.h"

/* FP32 logits of 2048 tokens and 6144 columns are 48 MiB: nearly whole waves of a matrix product's
 * tiles on 132 multiprocessors, and most of it is still in the L2 cache when the row kernel reads
 * it. */
#define FORWARD_CHUNK 6144
/* Narrower where gathered rows of hidden lie beside the logits, so that 2048 tokens still fit. */
#define WIDEST_BESIDE_HIDDEN 4096
#define NARROWEST_BESIDE_HIDDEN 2048
#define FORWARD_BLOCK 2048
#define FORWARD_LIMIT ((int64_t)64 << 20)
/* Wider, because each chunk reads and writes the FP32 sums of dhidden once. */
#define BACKWARD_CHUNK 8192
/* Staging of a 16-bit dweight: a chunk's FP32 rows. */
#define DWEIGHT_STAGING_LIMIT ((int64_t)128 << 20)
#define DEFAULT_BUDGET ((int64_t)512 << 20)
/* Tiles of matrix products have up to 256 rows; blocks in multiples of 128 waste little. */
#define BLOCK_UNIT 128
#define SMALLEST_BLOCK 16
/* No layout has more parts; each may need padding to the alignment. */
#define MOST_PARTS 7

int64_t lgh__chunked_widest(const lgh__chunked_config *c) {
    return c->forward_chunk > c->backward_chunk ? c->forward_chunk : c->backward_chunk;
}

int64_t lgh__chunk_stride(int64_t chunk) {
    return lgh__round_up(chunk, 8);
}

int64_t lgh__gradient_stride(const lgh_plan_options *o, int64_t chunk) {
    return lgh__chunk_stride(chunk) * 4 / (int64_t)lgh_dtype_size(o->weight_dtype);
}

static int64_t round_down_to_unit(int64_t rows) {
    return rows > BLOCK_UNIT ? rows / BLOCK_UNIT * BLOCK_UNIT : rows;
}

/* Reserves bytes in a layout whose size so far is *bytes. */
static size_t reserve(size_t *bytes, int64_t wanted) {
    size_t offset = *bytes;
    *bytes += (size_t)lgh__round_up(wanted, LGH_WORKSPACE_ALIGNMENT);
    return offset;
}

static int64_t backward_chunk(const lgh_plan_options *o, int64_t entries) {
    int64_t chunk = BACKWARD_CHUNK;
    if (lgh__is_16_bit(o->dweight_dtype))
        chunk = lgh__least(chunk, DWEIGHT_STAGING_LIMIT / (o->hidden_size * 4) / 256 * 256);
    if (chunk < 256)
        chunk = 256;
    return lgh__least(chunk, entries);
}

/* Bytes of a row of hidden in the workspace. */
static int64_t operand_bytes(const lgh_plan_options *o) {
    return lgh__row_pitch(o, o->weight_dtype) * (int64_t)lgh_dtype_size(o->weight_dtype);
}

static int64_t hidden_bytes(const lgh__chunked_config *c, const lgh_plan_options *o) {
    return c->gathers_hidden ? operand_bytes(o) : 0;
}

static int64_t scaled_hidden_bytes(const lgh__chunked_config *c, const lgh_plan_options *o) {
    return c->scales_hidden ? operand_bytes(o) : 0;
}

/* A sixty-fourth of the workspace is left to what does not grow with the tokens. */
static int64_t forward_chunk(const lgh__chunked_config *c, const lgh_plan_options *o) {
    const int64_t token_bytes = FORWARD_LIMIT / FORWARD_BLOCK * 63 / 64;
    const int64_t fits = (token_bytes - hidden_bytes(c, o)) / 4 / 512 * 512;
    if (!c->gathers_hidden)
        return FORWARD_CHUNK;
    return fits > NARROWEST_BESIDE_HIDDEN ? lgh__least(fits, WIDEST_BESIDE_HIDDEN)
                                          : NARROWEST_BESIDE_HIDDEN;
}

/* The bias in FP32, each chunk's part by itself. */
static int64_t bias_bytes(const lgh_plan_options *o, int64_t chunk) {
    const int64_t chunks = lgh__divide_up(lgh__valid_entries(o), chunk);
    return o->bias_dtype != LGH_DTYPE_NONE ? chunks * lgh__chunk_stride(chunk) * 4 : 0;
}

static int64_t scale_bytes(const lgh__chunked_config *c) {
    return c->scales_hidden ? (int64_t)sizeof(lgh_gradient_scale) : 0;
}

static int64_t dweight_bytes(const lgh__chunked_config *c, const lgh_plan_options *o) {
    return lgh__is_16_bit(o->dweight_dtype) ? c->backward_chunk * lgh__row_pitch(o, LGH_FP32) * 4
                                            : 0;
}

static int64_t dhidden_bytes(const lgh__chunked_config *c, const lgh_plan_options *o) {
    return c->stages_dhidden ? lgh__row_pitch(o, LGH_FP32) * 4 : 0;
}

/* Bytes that one token of a block takes. */
static int64_t forward_token_bytes(const lgh__chunked_config *c, const lgh_plan_options *o) {
    return lgh__chunk_stride(c->forward_chunk) * 4 + (int64_t)sizeof(lgh_stored_stats) +
           hidden_bytes(c, o);
}

static int64_t backward_token_bytes(const lgh__chunked_config *c, const lgh_plan_options *o) {
    return lgh__chunk_stride(c->backward_chunk) * 4 + hidden_bytes(c, o) +
           scaled_hidden_bytes(c, o) + dhidden_bytes(c, o);
}

static lgh_status choose_forward_block(lgh__chunked_config *c, const lgh_plan_options *o) {
    const int64_t fixed = bias_bytes(o, c->forward_chunk) + MOST_PARTS * LGH_WORKSPACE_ALIGNMENT;
    const int64_t fits = (FORWARD_LIMIT - fixed) / forward_token_bytes(c, o);
    const int64_t wanted = lgh__least(SMALLEST_BLOCK, o->max_tokens);
    RETURN_IF(fits < wanted, LGH_ERROR_UNSUPPORTED,
              "options->hidden_size %lld and options->vocab_size %lld leave no room for a token "
              "block in a forward pass's 64 MiB",
              (long long)o->hidden_size, (long long)o->vocab_size);
    c->forward_block =
        round_down_to_unit(lgh__least(lgh__least(fits, FORWARD_BLOCK), o->max_tokens));
    return LGH_SUCCESS;
}

static lgh_status choose_backward_block(lgh__chunked_config *c, const lgh_plan_options *o) {
    if (!lgh__has_backward(o)) {
        c->backward_block = o->max_tokens; /* there is no pass to fit */
        return LGH_SUCCESS;
    }
    const int64_t budget = o->backward_budget > 0 ? o->backward_budget : DEFAULT_BUDGET;
    const int64_t token_bytes = backward_token_bytes(c, o);
    const int64_t fixed = dweight_bytes(c, o) + bias_bytes(o, c->backward_chunk) + scale_bytes(c) +
                          MOST_PARTS * LGH_WORKSPACE_ALIGNMENT;
    const int64_t fits = (budget - fixed) / token_bytes;
    const int64_t wanted = lgh__least(SMALLEST_BLOCK, o->max_tokens);
    RETURN_IF(
        budget < fixed || fits < wanted, LGH_ERROR_WORKSPACE,
        "options->backward_budget is %lld bytes, but D = %lld and V = %lld need at least %lld",
        (long long)budget, (long long)o->hidden_size, (long long)o->vocab_size,
        (long long)(fixed + wanted * token_bytes));
    c->backward_block = round_down_to_unit(lgh__least(fits, o->max_tokens));
    return LGH_SUCCESS;
}

/* Repeats the choices of a configuration's text; the workspace still has the last word on blocks.
 */
static lgh_status pin(lgh__chunked_config *c, const lgh_plan_options *o) {
    int64_t forward_block, backward_block;
    FORWARD(lgh__configuration_number(o->configuration, "forward_chunk", &c->forward_chunk));
    FORWARD(lgh__configuration_number(o->configuration, "backward_chunk", &c->backward_chunk));
    FORWARD(lgh__configuration_number(o->configuration, "forward_block", &forward_block));
    FORWARD(lgh__configuration_number(o->configuration, "backward_block", &backward_block));
    const int64_t entries = lgh__valid_entries(o);
    RETURN_IF(c->forward_chunk < 1 || c->forward_chunk > entries || c->backward_chunk < 1 ||
                  c->backward_chunk > entries || c->backward_chunk > BACKWARD_CHUNK,
              LGH_ERROR_INVALID_ARGUMENT,
              "options->configuration: forward_chunk = %lld and backward_chunk = %lld do not fit",
              (long long)c->forward_chunk, (long long)c->backward_chunk);
    RETURN_IF(
        o->max_tokens > 0 && (forward_block < 1 || backward_block < 1), LGH_ERROR_INVALID_ARGUMENT,
        "options->configuration: forward_block = %lld and backward_block = %lld leave no room "
        "for tokens",
        (long long)forward_block, (long long)backward_block);
    FORWARD(choose_forward_block(c, o));
    FORWARD(choose_backward_block(c, o));
    c->forward_block = lgh__least(c->forward_block, forward_block);
    c->backward_block = lgh__least(c->backward_block, backward_block);
    return LGH_SUCCESS;
}

static lgh_status choose(lgh__chunked_config *c, const lgh_plan_options *o) {
    const int64_t entries = lgh__valid_entries(o) > 0 ? lgh__valid_entries(o) : 1;
    c->forward_chunk = lgh__least(forward_chunk(c, o), entries);
    c->backward_chunk = backward_chunk(o, entries);
    FORWARD(choose_forward_block(c, o));
    return choose_backward_block(c, o);
}

lgh_status lgh__chunked_config_choose(lgh__chunked_config *c, const lgh_plan_options *o) {
    c->vocab_outer = lgh__is_16_bit(o->dweight_dtype);
    c->gathers_hidden = o->live_lists || o->hidden_dtype != o->weight_dtype;
    c->scales_hidden = o->weight_dtype == LGH_FP16 && o->dweight_dtype != LGH_DTYPE_NONE;
    c->stages_dhidden =
        lgh__is_16_bit(o->dhidden_dtype) || (o->live_lists && o->dhidden_dtype != LGH_DTYPE_NONE);
    FORWARD(o->configuration && lgh__valid_entries(o) > 0 ? pin(c, o) : choose(c, o));
    if (o->token_block > 0) {
        c->forward_block = lgh__least(c->forward_block, o->token_block);
        c->backward_block = lgh__least(c->backward_block, o->token_block);
    }
    return LGH_SUCCESS;
}

lgh__forward_layout lgh__chunked_forward_layout(const lgh__chunked_config *c,
                                                const lgh_plan_options *o, int64_t tokens) {
    const int64_t block = lgh__least(tokens, c->forward_block);
    lgh__forward_layout layout = {0};
    layout.logits = reserve(&layout.bytes, block * lgh__chunk_stride(c->forward_chunk) * 4);
    layout.stats = reserve(&layout.bytes, block * (int64_t)sizeof(lgh_stored_stats));
    layout.hidden = reserve(&layout.bytes, block * hidden_bytes(c, o));
    layout.bias = reserve(&layout.bytes, bias_bytes(o, c->forward_chunk));
    return layout;
}

lgh__backward_layout lgh__chunked_backward_layout(const lgh__chunked_config *c,
                                                  const lgh_plan_options *o, int64_t tokens) {
    const int64_t block = lgh__least(tokens, c->backward_block);
    lgh__backward_layout layout = {0};
    layout.logits = reserve(&layout.bytes, block * lgh__chunk_stride(c->backward_chunk) * 4);
    layout.hidden = reserve(&layout.bytes, block * hidden_bytes(c, o));
    layout.bias = reserve(&layout.bytes, bias_bytes(o, c->backward_chunk));
    layout.scale = reserve(&layout.bytes, scale_bytes(c));
    layout.scaled = reserve(&layout.bytes, block * scaled_hidden_bytes(c, o));
    layout.dweight = reserve(&layout.bytes, dweight_bytes(c, o));
    const size_t before = layout.bytes;
    layout.dhidden =
        reserve(&layout.bytes, (c->vocab_outer ? tokens : block) * dhidden_bytes(c, o));
    if (c->vocab_outer && tokens > block)
        layout.beyond_budget = layout.bytes - before;
    return layout;
}

int64_t lgh__token_block(int64_t tokens, int64_t most) {
    if (tokens <= most)
        return tokens;
    const int64_t blocks = lgh__divide_up(tokens, most);
    const int64_t even = lgh__divide_up(tokens, blocks);
    return lgh__least(lgh__round_up(even, BLOCK_UNIT), most);
}

void lgh__chunked_config_describe(const lgh__chunked_config *c, lgh__text *text) {
    lgh__text_append(text, "forward_chunk = %lld\nforward_block = %lld\n",
                     (long long)c->forward_chunk, (long long)c->forward_block);
    lgh__text_append(text, "backward_chunk = %lld\nbackward_block = %lld\nbackward_outer = %s\n",
                     (long long)c->backward_chunk, (long long)c->backward_block,
                     c->vocab_outer ? "vocabulary" : "tokens");
}
