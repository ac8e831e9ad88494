/* test_cuda_features.c - the features of plans and calls in pairs, on the fakes: dtypes, results,
 * bias, softcap, rounding, values, vocabularies, live lists, alignments, blocks. */
#include "cuda_problem.h"
#include "pairwise.h"

#include <math.h>
#include <string.h>

/* ---- All pairs ----------------------------------------------------------------------------- */

enum operands { BF16, FP16, FP32, MIXED, OPERANDS };

/* What the row kernels are compiled for: few combinations, since each costs a compilation, in which
 * all pairs occur too. */
typedef struct kernel_choice {
    enum operands operands;
    lgh_dtype rounding;
    int softcap;
    int is_int32;
    uint32_t outputs; /* beside the log-prob and the lse */
    int is_wide;      /* several vocabulary chunks */
} kernel_choice;

#define ENTROPY LGH_OUTPUT_ENTROPY
#define ONE LGH_OUTPUT_LOGP_AT_ONE
#define BEST LGH_OUTPUT_BEST

static const kernel_choice kernels[] = {
    {BF16, LGH_DTYPE_NONE, 0, 0, ENTROPY | ONE | BEST, 1},
    {BF16, LGH_BF16, 1, 1, ENTROPY, 0},
    {BF16, LGH_FP16, 0, 1, ENTROPY | BEST, 1},
    {FP16, LGH_DTYPE_NONE, 0, 0, ENTROPY | ONE | BEST, 0},
    {FP16, LGH_BF16, 1, 1, ENTROPY, 1},
    {FP16, LGH_FP16, 0, 1, ENTROPY | BEST, 0},
    {FP32, LGH_DTYPE_NONE, 1, 1, 0, 0},
    {FP32, LGH_BF16, 0, 0, ENTROPY | ONE | BEST, 1},
    {FP32, LGH_FP16, 1, 0, ENTROPY | ONE, 0},
    {MIXED, LGH_DTYPE_NONE, 1, 1, ENTROPY, 1},
    {MIXED, LGH_BF16, 0, 0, ONE | BEST, 0},
    {MIXED, LGH_FP16, 1, 0, ENTROPY | ONE, 1},
};

enum factor {
    KERNELS,
    DHIDDEN,
    DWEIGHT,
    BIAS,
    ACCUMULATE,
    TEMPERATURE,
    GRAD_LOGP,
    GRAD_ENTROPY,
    GRAD_LSE,
    POLICY,
    SHARD,
    LIVE,
    ALIGNMENT,
    BLOCKS,
    FACTORS
};

enum shard { WHOLE, LATER_SHARD, PADDED, LAST_SHARD, SHARDS };
enum live { NO_LISTS, ALL_ROWS, LISTED, COUNTED, BOUNDED, LIVE_LEVELS };
#define INVALID_TEMPERATURES PROBLEM_ABSENT

static const int levels[FACTORS] = {
    [KERNELS] = sizeof kernels / sizeof *kernels,
    [DHIDDEN] = 2,
    [DWEIGHT] = 2,
    [BIAS] = 4,
    [ACCUMULATE] = 2,
    [TEMPERATURE] = INVALID_TEMPERATURES + 1,
    [GRAD_LOGP] = PROBLEM_MODES,
    [GRAD_ENTROPY] = PROBLEM_MODES,
    [GRAD_LSE] = PROBLEM_MODES,
    [POLICY] = 2,
    [SHARD] = SHARDS,
    [LIVE] = LIVE_LEVELS,
    [ALIGNMENT] = 5,
    [BLOCKS] = 2,
};

static void choose_dtypes(lgh_plan_options *o, const pairwise_row *row) {
    static const lgh_dtype hidden[OPERANDS] = {LGH_BF16, LGH_FP16, LGH_FP32, LGH_BF16};
    static const lgh_dtype weight[OPERANDS] = {LGH_BF16, LGH_FP16, LGH_FP32, LGH_FP32};
    static const lgh_dtype bias[] = {LGH_DTYPE_NONE, LGH_FP32, LGH_BF16, LGH_FP16};
    const kernel_choice *k = &kernels[row->levels[KERNELS]];
    o->hidden_dtype = hidden[k->operands];
    o->weight_dtype = weight[k->operands];
    o->dhidden_dtype = row->levels[DHIDDEN] ? o->hidden_dtype : LGH_FP32;
    o->dweight_dtype = row->levels[DWEIGHT] ? o->weight_dtype : LGH_FP32;
    o->bias_dtype = bias[row->levels[BIAS]];
    o->dbias_dtype = LGH_FP32;
    o->targets_dtype = k->is_int32 ? LGH_INT32 : LGH_INT64;
    o->logits_rounding = k->rounding;
    o->softcap = k->softcap ? 3.0f : 0.0f;
    o->outputs = LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE | k->outputs;
    o->oov_policy = row->levels[POLICY] ? LGH_OOV_SOFTMAX : LGH_OOV_ZERO;
}

/* A later shard is followed by another, the last by padding. */
static void choose_shard(lgh_plan_options *o, enum shard shard) {
    const int64_t entries = o->vocab_size;
    o->vocab_start = shard == LATER_SHARD ? 1000 : shard == LAST_SHARD ? 500 : 0;
    if (shard == LATER_SHARD)
        o->vocab_valid = o->vocab_start + 2 * entries;
    if (shard == PADDED || shard == LAST_SHARD) {
        o->vocab_valid = o->vocab_start + entries;
        o->vocab_size = entries + entries / 4;
    }
}

static void choose_rows(problem *p, const pairwise_row *row) {
    static const problem_rows live[LIVE_LEVELS] = {PROBLEM_ALL, PROBLEM_ALL, PROBLEM_LISTED,
                                                   PROBLEM_COUNTED, PROBLEM_BOUNDED};
    static const int32_t alignments[] = {0, 2, 4, 8, 16};
    p->options.token_block = row->levels[BLOCKS] ? 8 : 0;
    p->options.live_lists = row->levels[LIVE] != NO_LISTS;
    p->live = live[row->levels[LIVE]];
    p->options.row_alignment = alignments[row->levels[ALIGNMENT]];
}

static void choose_values(problem *p, const pairwise_row *row) {
    const int has_entropy = (p->options.outputs & LGH_OUTPUT_ENTROPY) != 0;
    p->invalid_temperatures = row->levels[TEMPERATURE] == INVALID_TEMPERATURES;
    p->temperature =
        p->invalid_temperatures ? PROBLEM_VECTOR : (problem_mode)row->levels[TEMPERATURE];
    p->grad_logp = (problem_mode)row->levels[GRAD_LOGP];
    p->grad_entropy = has_entropy ? (problem_mode)row->levels[GRAD_ENTROPY] : PROBLEM_ABSENT;
    p->grad_lse = (problem_mode)row->levels[GRAD_LSE];
}

static problem problem_of_row(const pairwise_row *row) {
    const kernel_choice *k = &kernels[row->levels[KERNELS]];
    problem p = problem_of(23, k->is_wide ? 8 : 11, k->is_wide ? 8300 : 40);
    choose_dtypes(&p.options, row);
    choose_shard(&p.options, (enum shard)row->levels[SHARD]);
    choose_rows(&p, row);
    choose_values(&p, row);
    p.accumulate = row->levels[ACCUMULATE];
    return p;
}

/* Less than there could be: each leaves other features with nothing to do, so it is no factor. */
static void take_away(problem *p, size_t number) {
    lgh_plan_options *o = &p->options;
    switch (number % 8) {
    case 0:
    case 1:
        p->tokens = (int64_t)number % 8;
        break;
    case 2:
        p->live = o->live_lists ? PROBLEM_NONE : PROBLEM_ALL;
        o->dweight_dtype = LGH_DTYPE_NONE;
        break;
    case 3:
        o->vocab_start = 300;
        o->vocab_valid = 270;
        break;
    case 4:
        p->without_targets = 1;
        break;
    case 5:
        o->dhidden_dtype = LGH_DTYPE_NONE;
        break;
    case 6:
        o->dbias_dtype = LGH_DTYPE_NONE;
        p->without_counters = 1;
        break;
    default:
        o->dhidden_dtype = o->dweight_dtype = LGH_DTYPE_NONE;
    }
}

static void print_row(const problem *p, size_t number) {
    const lgh_plan_options *o = &p->options;
    print_message("row %zu: N=%lld V=%lld of %lld to %lld, dtypes %d %d %d %d bias %d dbias %d, "
                  "rounding %d softcap %g outputs %u, modes %d %d %d %d invalid %d, live %d of %d, "
                  "targets %d, alignment %d, block %lld, accumulate %d, policy %d\n",
                  number, (long long)p->tokens, (long long)o->vocab_size, (long long)o->vocab_start,
                  (long long)o->vocab_valid, o->hidden_dtype, o->weight_dtype, o->dhidden_dtype,
                  o->dweight_dtype, o->bias_dtype, o->dbias_dtype, o->logits_rounding,
                  (double)o->softcap, o->outputs, p->temperature, p->grad_logp, p->grad_entropy,
                  p->grad_lse, p->invalid_temperatures, p->live, o->live_lists, !p->without_targets,
                  o->row_alignment, (long long)o->token_block, p->accumulate, o->oov_policy);
}

/* The rows of the covering whose operands are these. */
static void check_pairs(enum operands operands) {
    static pairwise_row rows[200];
    const size_t count = pairwise_cover(rows, sizeof rows / sizeof *rows, levels, FACTORS);
    lgh_context *context = open_fake_device();
    for (size_t i = 0; i < count; ++i) {
        if (kernels[rows[i].levels[KERNELS]].operands != operands)
            continue;
        problem p = problem_of_row(&rows[i]);
        print_row(&p, i);
        problem_check(&p, context);
        p = problem_of_row(&rows[i]);
        take_away(&p, i);
        print_row(&p, i);
        problem_check(&p, context);
    }
    close_fake_device(context);
}

static void pairs_with_bf16_match_reference(void **state) {
    (void)state;
    check_pairs(BF16);
}

static void pairs_with_fp16_match_reference(void **state) {
    (void)state;
    check_pairs(FP16);
}

static void pairs_with_fp32_match_reference(void **state) {
    (void)state;
    check_pairs(FP32);
}

static void pairs_with_mixed_operands_match_reference(void **state) {
    (void)state;
    check_pairs(MIXED);
}

/* ---- One by one ---------------------------------------------------------------------------- */

/* Far below the smallest FP16 number, and far above the largest. */
static void fp16_gradients_keep_their_digits(void **state) {
    (void)state;
    static const float scales[] = {1e-12f, 1e-5f, 1.0f, 1e6f, 1e12f};
    lgh_context *context = open_fake_device();
    for (size_t i = 0; i < sizeof scales / sizeof *scales; ++i) {
        problem p = problem_of(23, 8, 300);
        p.options.hidden_dtype = p.options.weight_dtype = LGH_FP16;
        p.options.dbias_dtype = LGH_FP32;
        p.gradient_scale = scales[i];
        problem_check(&p, context);
    }
    close_fake_device(context);
}

/* No power of two is larger than any other times 0. */
static void fp16_gradients_of_zero_are_zero(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    problem p = problem_of(23, 8, 300);
    p.options.hidden_dtype = p.options.weight_dtype = LGH_FP16;
    p.gradient_scale = 0.0f;
    problem_check(&p, context);
    close_fake_device(context);
}

/* No entry of the vocabulary at all, padding alone, or no row of the weight. */
static void empty_shards_have_no_probabilities(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    for (int i = 0; i < 12; ++i) {
        problem p = problem_of(23, 8, i % 3 == 2 ? 0 : 30);
        p.options.vocab_start = i % 3 ? 300 : 0;
        p.options.vocab_valid = 300;
        if (i % 3 == 0)
            p.options.vocab_start = 301;
        p.options.bias_dtype = i % 2 ? LGH_BF16 : LGH_DTYPE_NONE;
        p.options.dbias_dtype = LGH_FP32;
        p.options.dhidden_dtype = i % 4 < 2 ? LGH_FP32 : LGH_BF16;
        p.options.live_lists = i >= 6;
        p.options.token_block = 8;
        p.live = i >= 6 ? PROBLEM_COUNTED : PROBLEM_ALL;
        p.temperature = PROBLEM_VECTOR;
        p.invalid_temperatures = 1;
        problem_check(&p, context);
    }
    close_fake_device(context);
}

/* What a token's results are made of: outputs and its row of dhidden. */
typedef struct results {
    float logp[23], lse[23], entropy[23], logp_at_one[23];
    int64_t best[23];
    float dhidden[23][16];
} results;

static void run_for_results(lgh_context *context, problem *p, results *r) {
    lgh_plan *plan;
    problem_open(p);
    lgh_assert_success(lgh_plan_create(&plan, context, &p->options));
    problem_check_forward(p, plan);
    problem_check_backward(p, plan);
    memcpy(r->logp, p->logp, sizeof r->logp);
    memcpy(r->lse, p->lse, sizeof r->lse);
    memcpy(r->entropy, p->entropy, sizeof r->entropy);
    memcpy(r->logp_at_one, p->logp_at_one, sizeof r->logp_at_one);
    memcpy(r->best, p->best, sizeof r->best);
    for (int token = 0; token < 23; ++token)
        memcpy(r->dhidden[token], (float *)(void *)p->dhidden.data + token * p->dhidden.stride,
               sizeof r->dhidden[token]);
    lgh_plan_destroy(plan);
    problem_close(p);
}

static void live_lists_change_no_bit(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    static results all, listed;
    problem p = problem_of(23, 16, 8300);
    p.options.live_lists = 1;
    run_for_results(context, &p, &all);
    for (int64_t block = 0; block < 16; block += 5) {
        p = problem_of(23, 16, 8300);
        p.options.live_lists = 1;
        p.options.token_block = block;
        p.live = PROBLEM_LISTED;
        run_for_results(context, &p, &listed);
        for (int token = 0; token < 23; ++token) {
            if (token % 3 == 2) /* not listed: cuda_problem.c */
                continue;
            lgh_assert_same_bytes(&listed.logp[token], &all.logp[token], 4, "logp");
            lgh_assert_same_bytes(&listed.lse[token], &all.lse[token], 4, "lse");
            lgh_assert_same_bytes(&listed.entropy[token], &all.entropy[token], 4, "entropy");
            lgh_assert_same_bytes(&listed.logp_at_one[token], &all.logp_at_one[token], 4, "at 1");
            lgh_assert_same_bytes(&listed.best[token], &all.best[token], 8, "best");
            lgh_assert_same_bytes(listed.dhidden[token], all.dhidden[token], 64, "dhidden");
        }
    }
    close_fake_device(context);
}

static void live_rows_are_listed_in_order(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    for (int is_int32 = 0; is_int32 < 2; ++is_int32) {
        lgh_plan *plan;
        problem p = problem_of(23, 8, 40);
        p.options.live_lists = 1;
        p.options.targets_dtype = is_int32 ? LGH_INT32 : LGH_INT64;
        problem_open(&p);
        lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
        int32_t *rows = fake_cuda_allocate(23 * sizeof *rows);
        int32_t *count = fake_cuda_allocate(sizeof *count);
        fake_cuda_begin_run(p.stream, "lgh_live_rows");
        lgh_assert_success(lgh_live_rows(plan, p.targets, 23, rows, count, p.stream));
        fake_cuda_end_run();
        int32_t expected = 0;
        for (int32_t token = 0; token < 23; ++token)
            if (token % 5 != 4) /* ignored: cuda_problem.c */
                assert_int_equal(rows[expected++], token);
        assert_int_equal(*count, expected);
        lgh_assert_success(lgh_live_rows(plan, NULL, 0, NULL, count, p.stream));
        assert_int_equal(*count, 0);
        fake_cuda_free(rows);
        fake_cuda_free(count);
        lgh_plan_destroy(plan);
        problem_close(&p);
    }
    close_fake_device(context);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_with_bf16_match_reference),
        cmocka_unit_test(pairs_with_fp16_match_reference),
        cmocka_unit_test(pairs_with_fp32_match_reference),
        cmocka_unit_test(pairs_with_mixed_operands_match_reference),
        cmocka_unit_test(fp16_gradients_keep_their_digits),
        cmocka_unit_test(fp16_gradients_of_zero_are_zero),
        cmocka_unit_test(empty_shards_have_no_probabilities),
        cmocka_unit_test(live_lists_change_no_bit),
        cmocka_unit_test(live_rows_are_listed_in_order),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
