/* test_live_rows.c - the list of rows that count: made from targets on the device, and followed by
 * both passes. Rows on it have the bits that they have without a list, all others are exactly 0.
 * A mask that cost as much as no mask was seen in prime-rl and trl, gradients lost on live rows in
 * unsloth. */
#include "case_copy.h"
#include "case_oracle.h"
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#include "promises.h"

/* ---- Making a list -------------------------------------------------------------------------- */

/* Which tokens are ignored. */
typedef enum mask { NONE, ALL, EACH_THIRD, ALL_BUT_FIRST, ALL_BUT_LAST, MOST, MASKS } mask;

static int is_ignored(mask which, int64_t i, int64_t tokens, lgh_random *random) {
    switch (which) {
    case EACH_THIRD:
        return i % 3 == 0;
    case ALL_BUT_FIRST:
        return i > 0;
    case ALL_BUT_LAST:
        return i < tokens - 1;
    case MOST:
        return lgh_random_below(random, 10) > 0;
    default:
        return which == ALL;
    }
}

/* Targets that are no vocabulary entry count as live: only ignore_index does not. */
static int64_t other_target(int64_t i) {
    static const int64_t targets[] = {0, 8, -1, 99, -99, 1000000, 5};
    return targets[i % 7];
}

/* What the targets' list must be. */
static int32_t list_of(const int64_t *targets, int64_t tokens, int64_t ignore_index,
                       int32_t *rows) {
    int32_t count = 0;
    for (int64_t i = 0; i < tokens; i++)
        if (targets[i] != ignore_index)
            rows[count++] = (int32_t)i;
    return count;
}

static device_buffer upload_targets(const case_problem *p) {
    const size_t size = lgh_dtype_size(p->options.targets_dtype);
    device_buffer buffer = device_buffer_create((size_t)p->tokens * size);
    int32_t *narrow = calloc((size_t)p->tokens + 1, sizeof *narrow);
    assert_non_null(narrow);
    for (int64_t i = 0; i < p->tokens; i++)
        narrow[i] = (int32_t)p->targets[i];
    device_buffer_upload(&buffer, size == 4 ? (const void *)narrow : p->targets);
    free(narrow);
    return buffer;
}

/* Calls lgh_live_rows with room for no more than it may write, in front of a guard. */
static int32_t make_list(const case_problem *p, int32_t *rows) {
    int32_t count = -1;
    device_buffer targets = upload_targets(p);
    device_buffer list = device_buffer_create((size_t)p->tokens * sizeof *rows);
    device_buffer length = device_buffer_create(sizeof count);
    lgh_assert_success(
        lgh_live_rows(p->plan, targets.data, p->tokens, list.data, length.data, device_stream()));
    device_buffer_download(&list, rows);
    device_buffer_download(&length, &count);
    device_buffer_destroy(&targets);
    device_buffer_destroy(&list);
    device_buffer_destroy(&length);
    return count;
}

/* Negative control: the right list begins a token later or earlier than a shifted one. */
static void assert_shift_shows(const int32_t *rows, const int32_t *right, int32_t count) {
    int same = 1;
    for (int32_t i = 0; i < count; i++)
        same = same && rows[i] == right[i] + 1;
    assert_true(count == 0 || !same);
}

static void check_list(case_problem *p, mask which) {
    int32_t *rows = calloc((size_t)p->tokens + 1, sizeof *rows);
    int32_t *right = calloc((size_t)p->tokens + 1, sizeof *right);
    lgh_random random = {(uint64_t)p->tokens};
    assert_true(rows && right);
    for (int64_t i = 0; i < p->tokens; i++)
        p->targets[i] =
            is_ignored(which, i, p->tokens, &random) ? p->options.ignore_index : other_target(i);
    const int32_t expected = list_of(p->targets, p->tokens, p->options.ignore_index, right);
    const int32_t count = make_list(p, rows);
    assert_int_equal(count, expected);
    lgh_assert_same_bytes(rows, right, (size_t)count * sizeof *rows, "the list");
    assert_shift_shows(rows, right, count);
    free(rows);
    free(right);
}

/* Up to the ends of warps, of the kernel's block of threads, and past them. */
static void check_lists(lgh_dtype targets, int64_t ignore_index) {
    static const int64_t counts[] = {0,   1,   2,   15,  16,   31,   32,   33,
                                     500, 511, 512, 513, 1000, 4097, 8192, 20011};
    case_problem p = case_of(20011, 8, 100);
    p.options.targets_dtype = targets;
    p.options.ignore_index = ignore_index;
    p.options.live_lists = 1;
    case_open(&p);
    case_plan(&p);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int m = 0; m < MASKS; m++) {
            p.tokens = counts[i];
            check_list(&p, (mask)m);
        }
    case_close(&p);
}

static void live_rows_are_listed_in_order(void **state) {
    (void)state;
    check_lists(LGH_INT64, -100);
    check_lists(LGH_INT64, 7);
    check_lists(LGH_INT32, -100);
    check_lists(LGH_INT32, INT32_MIN);
}

/* An ignore_index of 2^32 + 8 must not ignore entry 8, nor the other way round. */
static void an_ignore_index_is_compared_as_a_whole(void **state) {
    (void)state;
    check_lists(LGH_INT64, ((int64_t)1 << 32) + 8);
    check_lists(LGH_INT64, INT64_MIN);
}

/* ---- Following a list ----------------------------------------------------------------------- */

enum { TOKENS = 150, WIDTH = 24, VOCAB = 8300, LIVE = 67 };

static case_problem random_problem(lgh_dtype operands, lgh_dtype results) {
    case_problem p = case_of(TOKENS, WIDTH, VOCAB);
    case_set_operands(&p, operands);
    case_set_results(&p, results);
    case_set_bias_dtype(&p, LGH_FP32);
    p.options.token_block = 32;
    p.options.live_lists = 1;
    case_open(&p);
    case_fill(&p, 24, 1.0, 0.4);
    case_fill_bias(&p, 25, 1.0);
    case_fill_temperatures(&p, CASE_VECTOR, 26);
    p.targets[40] = -100;
    p.targets[41] = -1;
    return p;
}

/* LIVE rows in rising order, the first and the last among them. */
static void choose_rows(int32_t rows[LIVE]) {
    lgh_random random = {3};
    int chosen = 0;
    rows[chosen++] = 0;
    for (int i = 1; i < TOKENS - 1; i++)
        if (lgh_random_below(&random, TOKENS - 1 - i) < LIVE - 1 - chosen)
            rows[chosen++] = i;
    rows[chosen++] = TOKENS - 1;
    assert_int_equal(chosen, LIVE);
}

static void run(case_problem *p) {
    case_upload(p);
    case_forward(p);
    case_backward(p);
}

/* The first `count` numbers of the list are the live rows. */
static void assert_live_and_dead(const case_problem *p, const case_copy *dense, const int32_t *list,
                                 int count) {
    char is_live[TOKENS] = {0};
    for (int i = 0; i < count; i++)
        if (list[i] >= 0 && list[i] < TOKENS)
            is_live[list[i]] = 1;
    for (int i = 0; i < TOKENS; i++) {
        if (is_live[i] && !case_token_is_same(p, i, dense, i))
            fail_msg("token %d, which is live, has other bits than without a list", i);
        if (!is_live[i] && !case_token_is_zero(p, i))
            fail_msg("token %d, which is not live, has results other than 0", i);
    }
}

/* The sums over tokens are those of the oracle, which works on the listed rows alone. */
static void assert_sums(const case_problem *p, int with_control) {
    case_expected right = case_expect(p, NULL);
    const reference_faults every_row = {.every_row = 1};
    case_assert_outputs(p, &right);
    case_assert_gradients(p, &right, CASE_ALL_GRADIENTS);
    case_expected_destroy(&right);
    if (!with_control)
        return;
    case_expected faulty = case_expect(p, &every_row);
    case_assert_outputs_outside(p, &faulty, LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE | LGH_OUTPUT_ENTROPY);
    case_assert_gradients_outside(p, &faulty, CASE_ALL_GRADIENTS);
    case_expected_destroy(&faulty);
}

static void check_live(lgh_dtype operands, lgh_dtype results) {
    int32_t list[LIVE];
    choose_rows(list);
    case_problem p = random_problem(operands, results);
    case_run(&p);
    case_copy dense = case_copy_of(&p);
    for (int with_count = 0; with_count < 2; with_count++) {
        case_set_live(&p, list, LIVE);
        p.live.with_count = with_count;
        p.live.count = 50;
        run(&p);
        assert_live_and_dead(&p, &dense, list, with_count ? 50 : LIVE);
        assert_sums(&p, with_count);
    }
    case_copy_destroy(&dense);
    case_close(&p);
}

static void listed_rows_are_what_they_are_without_a_list(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++) {
        check_live(*dtype, LGH_FP32);
        if (*dtype != LGH_FP32)
            check_live(*dtype, LGH_BF16);
    }
}

/* Negative control: every row of the list one token further on. */
static void a_shifted_list_gives_other_results(void **state) {
    (void)state;
    int32_t list[LIVE], shifted[LIVE];
    choose_rows(list);
    for (int i = 0; i < LIVE; i++)
        shifted[i] = (list[i] + 1) % TOKENS;
    case_problem p = random_problem(LGH_BF16, LGH_FP32);
    case_set_live(&p, list, LIVE);
    case_run(&p);
    case_copy right = case_copy_of(&p);
    case_expected expected = case_expect(&p, NULL);
    case_set_live(&p, shifted, LIVE);
    run(&p);
    case_assert_outputs_outside(&p, &expected,
                                LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE | LGH_OUTPUT_ENTROPY);
    case_assert_gradients_outside(&p, &expected, CASE_ALL_GRADIENTS);
    int differ = 0;
    for (int i = 0; i < TOKENS; i++)
        differ += !case_token_is_same(&p, i, &right, i);
    assert_true(differ > LIVE / 4);
    case_expected_destroy(&expected);
    case_copy_destroy(&right);
    case_close(&p);
}

static void the_shorter_of_bound_and_count_ends_a_list(void **state) {
    (void)state;
    static const struct {
        int64_t bound;
        int32_t count;
        int live;
    } ends[] = {{LIVE, 0, 0},          {LIVE, 1, 1},         {LIVE, 31, 31},   {LIVE, 32, 32},
                {LIVE, 33, 33},        {LIVE, LIVE - 1, 66}, {LIVE, LIVE, 67}, {10, LIVE, 10},
                {LIVE, INT32_MAX, 67}, {LIVE, INT32_MIN, 0}, {LIVE, -5, 0},    {0, 5, 0}};
    int32_t list[LIVE];
    choose_rows(list);
    case_problem p = random_problem(LGH_BF16, LGH_FP32);
    case_run(&p);
    case_copy dense = case_copy_of(&p);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        case_set_live(&p, list, ends[i].bound);
        p.live.with_count = 1;
        p.live.count = ends[i].count;
        run(&p);
        assert_live_and_dead(&p, &dense, list, ends[i].live);
        if (ends[i].live >= 10) /* the error of one row is not yet that of many roundings */
            assert_sums(&p, 0);
    }
    case_copy_destroy(&dense);
    case_close(&p);
}

static void a_list_of_no_rows_gives_zeros(void **state) {
    (void)state;
    static const lgh_dtype results[] = {LGH_FP32, LGH_BF16};
    for (int r = 0; r < 2; r++) {
        case_problem p = random_problem(LGH_BF16, results[r]);
        int32_t none = 0;
        case_set_live(&p, &none, 0);
        case_run(&p);
        for (int i = 0; i < TOKENS; i++)
            assert_true(case_token_is_zero(&p, i));
        for (int i = 0; i < VOCAB * WIDTH; i++)
            assert_true(p.dweight[i] == 0);
        for (int i = 0; i < VOCAB; i++)
            assert_true(p.dbias[i] == 0);
        case_close(&p);
    }
}

/* An empty list adds nothing to sums that accumulate. */
static void a_list_of_no_rows_adds_nothing(void **state) {
    (void)state;
    case_problem p = random_problem(LGH_BF16, LGH_FP32);
    lgh_random random = {6};
    int32_t none = 0;
    lgh_random_fill_fp32(&random, p.dweight_start, VOCAB * WIDTH, 1.0);
    lgh_random_fill_fp32(&random, p.dbias_start, VOCAB, 1.0);
    p.accumulate = p.accumulate_dbias = 1;
    case_set_live(&p, &none, 0);
    case_run(&p);
    lgh_assert_same_bytes(p.dweight, p.dweight_start, VOCAB * WIDTH * sizeof(float), "dweight");
    lgh_assert_same_bytes(p.dbias, p.dbias_start, VOCAB * sizeof(float), "dbias");
    case_close(&p);
}

static void numbers_that_are_no_token_are_passed_over(void **state) {
    (void)state;
    static const int32_t list[] = {-1, 3, TOKENS, 5, INT32_MIN, 77, INT32_MAX, 149, TOKENS + 1, 0};
    case_problem p = random_problem(LGH_BF16, LGH_FP32);
    case_run(&p);
    case_copy dense = case_copy_of(&p);
    case_set_live(&p, list, 10);
    run(&p);
    assert_live_and_dead(&p, &dense, list, 10);
    assert_sums(&p, 1);
    case_copy_destroy(&dense);
    case_close(&p);
}

/* Of a list in another order, sums over tokens alone may differ. */
static void the_order_of_a_list_moves_no_token(void **state) {
    (void)state;
    int32_t list[LIVE], backwards[LIVE];
    choose_rows(list);
    for (int i = 0; i < LIVE; i++)
        backwards[i] = list[LIVE - 1 - i];
    case_problem p = random_problem(LGH_BF16, LGH_FP32);
    case_run(&p);
    case_copy dense = case_copy_of(&p);
    case_set_live(&p, backwards, LIVE);
    run(&p);
    assert_live_and_dead(&p, &dense, list, LIVE);
    assert_sums(&p, 1);
    case_copy_destroy(&dense);
    case_close(&p);
}

/* ---- Few live rows among many --------------------------------------------------------------- */

enum { MANY = 8192, FEW = 8, MANY_WIDTH = 64, MANY_VOCAB = 500 };

/* How the other rows are left out. */
typedef enum way { BY_TARGETS, BY_LIST, BY_COUNTED_LIST, WAYS } way;

static void leave_out(case_problem *p, const int32_t rows[FEW], way how) {
    int32_t longer[2 * FEW];
    for (int i = 0; i < 2 * FEW;
         i++) /* past the count stand numbers that must not be read as rows */
        longer[i] = rows[i % FEW] + i / FEW;
    if (how == BY_LIST)
        case_set_live(p, rows, FEW);
    if (how == BY_COUNTED_LIST) {
        case_set_live(p, longer, 2 * FEW);
        p->live.with_count = 1;
        p->live.count = FEW;
    }
    for (int i = 0, next = 0; i < MANY && how == BY_TARGETS; i++) {
        const int is_live = next < FEW && rows[next] == i;
        next += is_live;
        if (!is_live)
            p->targets[i] = -100;
    }
}

static void check_few(lgh_dtype dtype, way how) {
    static const int32_t rows[FEW] = {0, 127, 128, 2047, 4096, 4097, 6000, MANY - 1};
    case_problem p = case_of(MANY, MANY_WIDTH, MANY_VOCAB);
    case_set_operands(&p, dtype);
    p.options.live_lists = how != BY_TARGETS;
    p.temperature = 0.7f;
    case_open(&p);
    case_fill(&p, 19, 1.0, 0.2);
    leave_out(&p, rows, how);
    case_run(&p);
    for (int i = 0, next = 0; i < MANY; i++) {
        const int is_live = next < FEW && rows[next] == i;
        next += is_live;
        assert_int_equal(case_token_is_zero(&p, i), !is_live);
        for (int k = 0; k < MANY_WIDTH && is_live; k++)
            assert_true(p.dhidden[i * MANY_WIDTH + k] != 0);
    }
    case_expected right = case_expect(&p, NULL);
    case_assert_outputs(&p, &right);
    case_assert_gradients(&p, &right, CASE_ALL_GRADIENTS);
    case_expected_destroy(&right);
    case_close(&p);
}

static void few_live_rows_among_many_keep_their_gradients(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        for (int w = 0; w < WAYS; w++)
            check_few(*dtype, (way)w);
}

/* The list that lgh_live_rows makes, with its count where it was written, is what the passes take:
 * no number of it goes through the host. */
static void a_list_made_on_the_device_is_followed(void **state) {
    (void)state;
    case_problem p = random_problem(LGH_BF16, LGH_FP32);
    int32_t rows[TOKENS] = {0};
    for (int i = 0; i < TOKENS; i++)
        if (i % 4 != 1)
            p.targets[i] = -100;
    case_run(&p);
    case_copy dense = case_copy_of(&p);
    case_set_live(&p, rows, TOKENS);
    p.live.with_count = 1;
    p.live.count = -1;
    case_upload(&p);
    lgh_assert_success(lgh_live_rows(p.plan, p.device.targets.data, TOKENS, p.device.live_rows.data,
                                     p.device.live_count.data, device_stream()));
    case_forward(&p);
    case_backward(&p);
    p.live.count = list_of(p.targets, TOKENS, -100, p.live.rows);
    case_assert_same_tokens(&p, &dense);
    assert_sums(&p, 0);
    assert_int_equal(p.live.count, (TOKENS + 2) / 4);
    case_copy_destroy(&dense);
    case_close(&p);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live_rows_are_listed_in_order),
        cmocka_unit_test(an_ignore_index_is_compared_as_a_whole),
        cmocka_unit_test(listed_rows_are_what_they_are_without_a_list),
        cmocka_unit_test(a_shifted_list_gives_other_results),
        cmocka_unit_test(the_shorter_of_bound_and_count_ends_a_list),
        cmocka_unit_test(a_list_of_no_rows_gives_zeros),
        cmocka_unit_test(a_list_of_no_rows_adds_nothing),
        cmocka_unit_test(numbers_that_are_no_token_are_passed_over),
        cmocka_unit_test(the_order_of_a_list_moves_no_token),
        cmocka_unit_test(few_live_rows_among_many_keep_their_gradients),
        cmocka_unit_test(a_list_made_on_the_device_is_followed),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
