/* test_chunked_config.c - how the chunked engine divides a plan's work: arithmetic over many
 * shapes, without any device. */
#include "chunked_config.h"
#include "chunked_engine.h"
#include "harness.h"
#include "row_params.h"

#include <stdlib.h>
#include <string.h>

#define FORWARD_LIMIT ((int64_t)64 << 20)
#define DEFAULT_BUDGET ((int64_t)512 << 20)
#define COUNT(array) (sizeof(array) / sizeof *(array))

static const int64_t widths[] = {1, 7, 64, 896, 4096, 7168, 16384};
static const int64_t vocabularies[] = {1, 100, 6145, 8192, 32000, 151936, 262144};
static const int64_t counts[] = {1, 17, 127, 2048, 2049, 8192, 131072};

/* What a plan was asked for, with the defaults that lgh_plan_create fills in. */
static lgh_plan_options options_of(int64_t hidden_size, int64_t vocab_size, int64_t max_tokens) {
    lgh_plan_options o = LGH_PLAN_OPTIONS_INIT;
    o.hidden_size = hidden_size;
    o.vocab_size = o.vocab_valid = vocab_size;
    o.max_tokens = max_tokens;
    return o;
}

/* Operands, results and features that take workspace, a bit or a few each. */
#define VARIANTS 240
static void choose_variant(lgh_plan_options *o, int variant) {
    static const lgh_dtype hidden[] = {LGH_BF16, LGH_FP16, LGH_FP32, LGH_BF16};
    static const lgh_dtype weight[] = {LGH_BF16, LGH_FP16, LGH_FP32, LGH_FP32};
    const int operands = variant % 4, results = variant / 4 % 12;
    o->hidden_dtype = hidden[operands];
    o->weight_dtype = weight[operands];
    o->dhidden_dtype = results % 3 == 0   ? LGH_DTYPE_NONE
                       : results % 3 == 1 ? LGH_FP32
                                          : hidden[operands];
    o->dweight_dtype = results / 3 % 2 ? LGH_FP32 : weight[operands];
    if (results >= 6)
        o->row_alignment = variant / 48 % 2 ? 4 : 16;
    o->live_lists = variant / 48 % 2;
    if (variant / 96) {
        o->bias_dtype = LGH_BF16;
        o->dbias_dtype = LGH_FP32;
    }
    if (variant / 192) /* dbias alone */
        o->dhidden_dtype = o->dweight_dtype = LGH_DTYPE_NONE;
}

static lgh__chunked_config choose(const lgh_plan_options *o) {
    lgh__chunked_config c = {0};
    lgh_assert_success(lgh__chunked_config_choose(&c, o));
    return c;
}

/* ---- Chunks -------------------------------------------------------------------------------- */

static void check_same_chunks(lgh_plan_options o) {
    static const int64_t budgets[] = {0, (int64_t)1 << 30, (int64_t)8 << 30};
    const lgh__chunked_config expected = choose(&o);
    assert_in_range(expected.forward_chunk, 1, o.vocab_size);
    assert_in_range(expected.backward_chunk, 1, o.vocab_size < 8192 ? o.vocab_size : 8192);
    for (size_t n = 0; n < COUNT(counts); ++n)
        for (size_t b = 0; b < COUNT(budgets); ++b) {
            o.max_tokens = counts[n];
            o.backward_budget = budgets[b];
            o.token_block = n % 2 ? 48 : 0;
            const lgh__chunked_config c = choose(&o);
            assert_int_equal(c.forward_chunk, expected.forward_chunk);
            assert_int_equal(c.backward_chunk, expected.backward_chunk);
        }
}

static void chunks_depend_on_shape_and_dtypes_alone(void **state) {
    (void)state;
    for (size_t d = 0; d < COUNT(widths); ++d)
        for (size_t v = 0; v < COUNT(vocabularies); ++v)
            for (int variant = 0; variant < VARIANTS; ++variant) {
                lgh_plan_options o = options_of(widths[d], vocabularies[v], 1);
                choose_variant(&o, variant);
                check_same_chunks(o);
            }
}

/* Each column is counted once, in a chunk of which every product has the same shape. */
static void check_chunks(int64_t entries, int64_t width) {
    int64_t counted = 0;
    for (int64_t first = 0; first < entries; first += width) {
        const lgh__chunk chunk = lgh__chunk_at(entries, width, first);
        assert_int_equal(chunk.first, counted);
        assert_int_equal(chunk.skip + chunk.columns, width);
        assert_in_range(chunk.columns, 1, width);
        assert_true(chunk.first >= chunk.skip);
        counted += chunk.columns;
        assert_int_equal(chunk.is_last != 0, counted == entries);
    }
    assert_int_equal(counted, entries);
}

static void chunks_count_every_column_once(void **state) {
    (void)state;
    for (int64_t width = 1; width < 40; ++width)
        for (int64_t entries = width; entries < 130; ++entries)
            check_chunks(entries, width);
    check_chunks(151936, 6144);
    check_chunks(151936, 8192);
}

static void chunks_have_aligned_rows(void **state) {
    (void)state;
    for (int64_t chunk = 1; chunk < 300; ++chunk) {
        assert_int_equal(lgh__chunk_stride(chunk) % 8, 0);
        assert_in_range(lgh__chunk_stride(chunk), chunk, chunk + 7);
    }
}

/* ---- Layouts ------------------------------------------------------------------------------- */

/* A part of a workspace. */
typedef struct part {
    size_t offset;
    int64_t bytes;
} part;

/* Parts are aligned, in order, apart, and end where the workspace does. */
static void check_parts(const part *parts, size_t count, size_t bytes) {
    for (size_t i = 0; i < count; ++i) {
        const size_t end = i + 1 < count ? parts[i + 1].offset : bytes;
        assert_int_equal(parts[i].offset % LGH_WORKSPACE_ALIGNMENT, 0);
        assert_true(parts[i].offset + (size_t)parts[i].bytes <= end);
        assert_true(end - parts[i].offset < (size_t)parts[i].bytes + LGH_WORKSPACE_ALIGNMENT);
    }
    assert_int_equal(bytes % LGH_WORKSPACE_ALIGNMENT, 0);
}

/* Bytes of D elements, from row to row: aligned as the plan's rows are, and no better. */
static int64_t pitch_bytes(const lgh_plan_options *o, lgh_dtype dtype) {
    const int64_t bytes = o->hidden_size * (int64_t)lgh_dtype_size(dtype);
    const int64_t size = (int64_t)lgh_dtype_size(dtype);
    const int64_t unit = o->row_alignment > size ? o->row_alignment : size;
    const int64_t units = (bytes + unit - 1) / unit;
    if (o->row_alignment == 0)
        return bytes;
    return (unit < 16 ? units | 1 : units) * unit;
}

static int is_16_bit(lgh_dtype dtype) {
    return lgh_dtype_size(dtype) == 2;
}

static int64_t bias_bytes(const lgh_plan_options *o, int64_t chunk) {
    const int64_t chunks = (o->vocab_size + chunk - 1) / chunk;
    return o->bias_dtype != LGH_DTYPE_NONE ? chunks * lgh__chunk_stride(chunk) * 4 : 0;
}

static int64_t hidden_bytes(const lgh_plan_options *o) {
    return o->live_lists || o->hidden_dtype != o->weight_dtype ? pitch_bytes(o, o->weight_dtype)
                                                               : 0;
}

static int scales_hidden(const lgh_plan_options *o) {
    return o->weight_dtype == LGH_FP16 && o->dweight_dtype != LGH_DTYPE_NONE;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static size_t check_forward(const lgh_plan_options *o, const lgh__chunked_config *c,
                            int64_t tokens) {
    const lgh__forward_layout l = lgh__chunked_forward_layout(c, o, tokens);
    const int64_t block = least(tokens, c->forward_block);
    const part parts[] = {{l.logits, block * lgh__chunk_stride(c->forward_chunk) * 4},
                          {l.stats, block * (int64_t)sizeof(lgh_stored_stats)},
                          {l.hidden, block * hidden_bytes(o)},
                          {l.bias, bias_bytes(o, c->forward_chunk)}};
    check_parts(parts, COUNT(parts), l.bytes);
    assert_in_range(l.bytes, 1, FORWARD_LIMIT);
    return l.bytes;
}

static int64_t staged_dhidden_bytes(const lgh_plan_options *o) {
    const int wanted = o->dhidden_dtype != LGH_DTYPE_NONE;
    return is_16_bit(o->dhidden_dtype) || (wanted && o->live_lists) ? pitch_bytes(o, LGH_FP32) : 0;
}

/* A 16-bit dweight makes the vocabulary the outer loop, and then all tokens' dhidden is staged. */
static size_t check_backward(const lgh_plan_options *o, const lgh__chunked_config *c,
                             int64_t tokens) {
    const lgh__backward_layout l = lgh__chunked_backward_layout(c, o, tokens);
    const int64_t block = least(tokens, c->backward_block);
    const int64_t budget = o->backward_budget > 0 ? o->backward_budget : DEFAULT_BUDGET;
    const int64_t staged = is_16_bit(o->dweight_dtype) ? tokens : block;
    const part parts[] = {
        {l.logits, block * lgh__chunk_stride(c->backward_chunk) * 4},
        {l.hidden, block * hidden_bytes(o)},
        {l.bias, bias_bytes(o, c->backward_chunk)},
        {l.scale, scales_hidden(o) ? (int64_t)sizeof(lgh_gradient_scale) : 0},
        {l.scaled, scales_hidden(o) ? block * pitch_bytes(o, LGH_FP16) : 0},
        {l.dweight, is_16_bit(o->dweight_dtype) ? c->backward_chunk * pitch_bytes(o, LGH_FP32) : 0},
        {l.dhidden, staged * staged_dhidden_bytes(o)}};
    check_parts(parts, COUNT(parts), l.bytes);
    assert_true(l.beyond_budget <= l.bytes);
    assert_true(l.bytes - l.beyond_budget <= (size_t)budget);
    if (tokens <= c->backward_block || !is_16_bit(o->dweight_dtype) || staged_dhidden_bytes(o) == 0)
        assert_int_equal(l.beyond_budget, 0);
    return l.bytes;
}

/* Workspaces of up to max_tokens tokens; more tokens never take less. */
static void check_layouts(const lgh_plan_options *o) {
    const lgh__chunked_config c = choose(o);
    size_t forward = 0, backward = 0;
    assert_in_range(c.forward_block, 1, o->max_tokens);
    assert_in_range(c.backward_block, 1, o->max_tokens);
    for (size_t n = 0; n < COUNT(counts) && counts[n] <= o->max_tokens; ++n) {
        const size_t next_forward = check_forward(o, &c, counts[n]);
        const size_t next_backward = check_backward(o, &c, counts[n]);
        assert_true(next_forward >= forward && next_backward >= backward);
        forward = next_forward;
        backward = next_backward;
    }
}

static void layouts_stay_within_their_limits(void **state) {
    (void)state;
    for (size_t d = 0; d < COUNT(widths); ++d)
        for (size_t v = 0; v < COUNT(vocabularies); ++v)
            for (size_t n = 0; n < COUNT(counts); ++n)
                for (int variant = 0; variant < VARIANTS; ++variant) {
                    lgh_plan_options o = options_of(widths[d], vocabularies[v], counts[n]);
                    choose_variant(&o, variant);
                    check_layouts(&o);
                    o.backward_budget = (int64_t)1 << 30;
                    check_layouts(&o);
                }
}

/* The text of the failure gives the least budget, which is enough, and one byte less is not. */
static void check_least_budget(lgh_plan_options o) {
    lgh__chunked_config c;
    o.backward_budget = 1;
    lgh_assert_status(lgh__chunked_config_choose(&c, &o), LGH_ERROR_WORKSPACE);
    lgh_assert_contains(lgh_last_error(), "options->backward_budget");
    const char *number = strstr(lgh_last_error(), "need at least ");
    assert_non_null(number);
    o.backward_budget = strtoll(number + strlen("need at least "), NULL, 10);
    check_layouts(&o);
    --o.backward_budget;
    lgh_assert_status(lgh__chunked_config_choose(&c, &o), LGH_ERROR_WORKSPACE);
}

static void least_budget_is_given_and_suffices(void **state) {
    (void)state;
    for (size_t d = 0; d < COUNT(widths); ++d)
        for (size_t v = 0; v < COUNT(vocabularies); ++v)
            for (int variant = 0; variant < VARIANTS; variant += 5) {
                lgh_plan_options o = options_of(widths[d], vocabularies[v], 300);
                choose_variant(&o, variant);
                check_least_budget(o);
            }
}

/* A bias of more than 16 million entries does not fit a forward pass. */
static void vocabularies_without_room_are_refused(void **state) {
    (void)state;
    lgh__chunked_config c;
    lgh_plan_options o = options_of(64, INT32_MAX, 100);
    check_layouts(&o);
    o.bias_dtype = LGH_FP32;
    lgh_assert_status(lgh__chunked_config_choose(&c, &o), LGH_ERROR_UNSUPPORTED);
    lgh_assert_contains(lgh_last_error(), "options->vocab_size");
    lgh_assert_contains(lgh_last_error(), "64 MiB");
}

/* ---- Blocks -------------------------------------------------------------------------------- */

static void usual_shapes_have_whole_forward_blocks(void **state) {
    (void)state;
    for (size_t d = 0; d < COUNT(widths); ++d)
        for (size_t v = 0; v < COUNT(vocabularies); ++v) {
            const lgh_plan_options o = options_of(widths[d], vocabularies[v], 8192);
            assert_int_equal(choose(&o).forward_block, 2048);
        }
}

/* No more blocks than must be, and none much smaller than the others. */
static void check_blocks(int64_t tokens, int64_t most) {
    const int64_t block = lgh__token_block(tokens, most);
    const int64_t blocks = (tokens + most - 1) / most;
    assert_in_range(block, 1, most);
    assert_int_equal((tokens + block - 1) / block, blocks);
    assert_true(block * blocks - tokens < 128 * blocks);
    assert_true(block % 128 == 0 || block == most || block == tokens);
}

static void blocks_are_even(void **state) {
    (void)state;
    static const int64_t most[] = {1, 5, 16, 100, 127, 128, 129, 1000, 1024, 2048, 15360};
    for (size_t m = 0; m < COUNT(most); ++m)
        for (int64_t tokens = 1; tokens < 9 * most[m] && tokens < 20000; tokens += 1 + tokens / 50)
            check_blocks(tokens, most[m]);
    assert_int_equal(lgh__token_block(0, 16), 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_depend_on_shape_and_dtypes_alone),
        cmocka_unit_test(chunks_count_every_column_once),
        cmocka_unit_test(chunks_have_aligned_rows),
        cmocka_unit_test(layouts_stay_within_their_limits),
        cmocka_unit_test(least_budget_is_given_and_suffices),
        cmocka_unit_test(vocabularies_without_room_are_refused),
        cmocka_unit_test(usual_shapes_have_whole_forward_blocks),
        cmocka_unit_test(blocks_are_even),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
