/* test_dtype_cases.c - every dtype that operands and results can have, at sizes around those that
 * tiles are made of. */
#include "case_oracle.h"
#include "harness.h"
#include "pairwise.h"

#include <math.h>
#include <string.h>

/* ---- Shapes ---------------------------------------------------------------------------------
 * Sizes that were refused, or wrong, elsewhere; seen in quack and verl. */

static const int64_t vocabularies[] = {1, 2, 127, 129, 257, 1000};
static const int64_t widths[] = {8, 64, 100, 896};
static const int64_t counts[] = {1, 127, 129};
static const lgh_dtype biases[] = {LGH_DTYPE_NONE, LGH_FP32, LGH_BF16, LGH_FP16};

enum { VOCABULARY, WIDTH, COUNT, RESULTS, BIAS, TARGETS, FACTORS };
static const int levels[FACTORS] = {6, 4, 3, 2, 4, 2};

/* BF16, FP16, FP32, and a BF16 hidden with an FP32 weight. */
enum { MIXED = LGH_DTYPE_NONE };

static void set_operands(case_problem *p, lgh_dtype dtype) {
    if (dtype == (lgh_dtype)MIXED)
        case_set_mixed_operands(p);
    else
        case_set_operands(p, dtype);
}

static case_problem problem_of(const pairwise_row *row, lgh_dtype operands) {
    const int *l = row->levels;
    case_problem p = case_of(counts[l[COUNT]], widths[l[WIDTH]], vocabularies[l[VOCABULARY]]);
    set_operands(&p, operands);
    case_set_results(&p, l[RESULTS] ? LGH_BF16 : LGH_FP32);
    case_set_bias_dtype(&p, biases[l[BIAS]]);
    p.options.targets_dtype = l[TARGETS] ? LGH_INT32 : LGH_INT64;
    p.temperature = 0.7f;
    case_open(&p);
    case_fill(&p, 7, 1.0, 1.2 / sqrt((double)p.options.hidden_size));
    if (p.bias)
        case_fill_bias(&p, 8, 1);
    return p;
}

/* Sums over tokens of few entries may cancel to less than their rounding to 16 bits. */
static int parts_of(const case_problem *p) {
    const int is_rounded = case_product_dtype(p) != LGH_FP32;
    return is_rounded && p->options.vocab_size < 100 ? CASE_GRADIENTS : CASE_ALL_GRADIENTS;
}

static void check_shape(const pairwise_row *row, lgh_dtype operands) {
    const reference_faults padded = {.padded_columns = 1};
    case_problem p = problem_of(row, operands), at_one;
    case_run(&p);
    at_one = p;
    at_one.temperature = 1.0f;
    case_expected right = case_expect(&p, NULL), cooler = case_expect(&at_one, NULL);
    case_expected longer = case_expect_outputs(&p, &padded);
    case_assert_outputs(&p, &right);
    case_assert_best(&p, &right);
    case_assert_gradients(&p, &right, parts_of(&p));
    case_assert_outputs_outside(&p, &longer, LGH_OUTPUT_LSE | LGH_OUTPUT_LOGP_AT_ONE);
    case_assert_gradients_outside(&p, &cooler, CASE_DHIDDEN);
    case_expected_destroy(&right);
    case_expected_destroy(&cooler);
    case_expected_destroy(&longer);
    case_close(&p);
}

static void check_shapes(lgh_dtype operands) {
    enum { MOST = 100 };
    pairwise_row rows[MOST];
    const size_t count = pairwise_cover(rows, MOST, levels, FACTORS);
    for (size_t i = 0; i < count; i++) {
        const int *l = rows[i].levels;
        print_message("V %lld, D %lld, N %lld, 16-bit results %d, bias %d\n",
                      (long long)vocabularies[l[VOCABULARY]], (long long)widths[l[WIDTH]],
                      (long long)counts[l[COUNT]], l[RESULTS], l[BIAS]);
        check_shape(&rows[i], operands);
    }
}

static void bf16_operands_at_any_shape(void **state) {
    (void)state;
    check_shapes(LGH_BF16);
}

static void fp16_operands_at_any_shape(void **state) {
    (void)state;
    check_shapes(LGH_FP16);
}

static void fp32_operands_at_any_shape(void **state) {
    (void)state;
    check_shapes(LGH_FP32);
}

static void a_bf16_hidden_with_an_fp32_weight_at_any_shape(void **state) {
    (void)state;
    check_shapes((lgh_dtype)MIXED);
}

/* ---- FP16 gradients beside others ---------------------------------------------------------- */

/* A gradient of the logits that is far below FP16's smallest number, beside one that is far above
 * its largest: dhidden of each token is right by itself, as if the others were not there. */
static void fp16_gradients_of_any_size_keep_their_digits(void **state) {
    (void)state;
    static const float sizes[] = {1e-30f, 1e-9f, 1.0f / 8192, 1.0f, 1e9f};
    enum { TOKENS = sizeof sizes / sizeof *sizes };
    case_problem p = case_of(TOKENS, 64, 1000);
    case_set_operands(&p, LGH_FP16);
    case_open(&p);
    case_fill(&p, 27, 1.0, 0.15);
    p.grad_entropy.form = p.grad_lse.form = CASE_ABSENT;
    memcpy(p.grad_logp.values, sizes, sizeof sizes);
    case_run(&p);
    case_expected right = case_expect(&p, NULL), one = right;
    float *const dhidden = p.dhidden;
    p.tokens = 1;
    for (int i = 0; i < TOKENS; i++) {
        p.dhidden = dhidden + i * 64;
        one.dhidden = right.dhidden + i * 64;
        case_assert_gradients(&p, &one, CASE_DHIDDEN);
        one.dhidden = right.dhidden + (i + 1) % TOKENS * 64;
        case_assert_gradients_outside(&p, &one, CASE_DHIDDEN);
    }
    p.tokens = TOKENS;
    p.dhidden = dhidden;
    case_assert_gradients(&p, &right, CASE_GRADIENTS);
    case_expected_destroy(&right);
    case_close(&p);
}

/* Garbage in the upstream gradient of a row that has none does not drown dweight. */
static void fp16_gradients_of_dead_rows_do_not_matter(void **state) {
    (void)state;
    enum { TOKENS = 40 };
    int32_t rows[TOKENS - 1];
    case_problem p = case_of(TOKENS, 64, 1000);
    case_set_operands(&p, LGH_FP16);
    p.options.live_lists = 1;
    case_open(&p);
    case_fill(&p, 28, 1.0, 0.15);
    for (int32_t i = 0; i < TOKENS - 1; i++)
        rows[i] = i;
    case_set_live(&p, rows, TOKENS - 1);
    p.targets[3] = p.options.ignore_index;
    p.targets[5] = 1000;
    p.targets[7] = -1;
    p.grad_logp.values[3] = p.grad_logp.values[5] = p.grad_logp.values[7] = 1e10f;
    p.grad_logp.values[TOKENS - 1] = 1e10f;
    case_run(&p);
    case_expected right = case_expect(&p, NULL);
    case_assert_gradients(&p, &right, CASE_GRADIENTS);
    p.live.given = 0;
    case_expected all = case_expect(&p, NULL);
    case_assert_gradients_outside(&p, &all, CASE_TARGET_ROWS);
    case_expected_destroy(&all);
    case_expected_destroy(&right);
    case_close(&p);
}

/* ---- Rows with gaps --------------------------------------------------------------------------
 * Views whose rows do not follow each other were read as if they did; seen in TransformerEngine. */

enum { GAP_TOKENS = 37, GAP_WIDTH = 40, GAP_VOCAB = 301 };

static case_problem spaced(lgh_dtype operands, lgh_dtype results, int64_t gap, int64_t offset,
                           int32_t alignment) {
    const case_layout layout = {gap, offset}, other = {2 * gap, 3 * offset};
    case_problem p = case_of(GAP_TOKENS, GAP_WIDTH, GAP_VOCAB);
    set_operands(&p, operands);
    case_set_results(&p, results);
    p.options.row_alignment = alignment;
    p.options.token_block = 16;
    p.temperature = 0.7f;
    p.hidden_layout = p.dweight_layout = layout;
    p.weight_layout = p.dhidden_layout = other;
    case_open(&p);
    case_fill(&p, 25, 1.0, 0.25);
    return p;
}

/* Adds to a dweight whose rows lie apart. */
static void check_spaced_sum(case_problem *p, const case_expected *right) {
    lgh_random random = {26};
    lgh_random_fill_fp32(&random, p->dweight_start, GAP_VOCAB * GAP_WIDTH, 0.1);
    p->accumulate = 1;
    case_backward(p);
    case_assert_gradients_outside(p, right, CASE_DWEIGHT);
    for (int64_t k = 0; k < GAP_VOCAB * GAP_WIDTH; k++)
        p->dweight[k] = (float)((double)p->dweight[k] - (double)p->dweight_start[k]);
    case_assert_gradients(p, right, CASE_GRADIENTS);
}

/* A row read from where the row before ends would bring NaNs; one written there would show. */
static void check_spaced(lgh_dtype operands, lgh_dtype results) {
    static const struct {
        int64_t gap, offset;
        int32_t alignment;
    } layouts[] = {{0, 0, 0}, {8, 0, 0}, {8, 8, 16}, {4, 4, 8},
                   {2, 2, 4}, {1, 0, 2}, {0, 1, 2},  {3, 5, 2}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        case_problem p =
            spaced(operands, results, layouts[i].gap, layouts[i].offset, layouts[i].alignment);
        case_run(&p);
        case_expected right = case_expect(&p, NULL);
        case_assert_outputs(&p, &right);
        case_assert_gradients(&p, &right, CASE_GRADIENTS);
        if (results == LGH_FP32)
            check_spaced_sum(&p, &right);
        case_expected_destroy(&right);
        case_close(&p);
    }
}

static void rows_may_lie_apart(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_spaced(*dtype, LGH_FP32);
        check_spaced(*dtype, LGH_BF16);
    }
    check_spaced((lgh_dtype)MIXED, LGH_FP32);
    check_spaced((lgh_dtype)MIXED, LGH_BF16);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_operands_at_any_shape),
        cmocka_unit_test(fp16_operands_at_any_shape),
        cmocka_unit_test(fp32_operands_at_any_shape),
        cmocka_unit_test(a_bf16_hidden_with_an_fp32_weight_at_any_shape),
        cmocka_unit_test(fp16_gradients_of_any_size_keep_their_digits),
        cmocka_unit_test(fp16_gradients_of_dead_rows_do_not_matter),
        cmocka_unit_test(rows_may_lie_apart),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
