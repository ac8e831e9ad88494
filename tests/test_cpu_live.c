/* test_cpu_live.c - live lists and counters on the CPU device: a list gives the bits that ignoring
 * all other rows gives, and every row is counted once. */
#include "harness.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_problem.h"

/* More than two tiles of tokens. */
enum { TOKENS = 150, HIDDEN = 20, VOCAB = 150, LIVE = 67 };

/* Every kind of target, invalid temperatures, and rows without an upstream gradient. */
static cpu_problem mixed(void) {
    cpu_problem p = cpu_problem_of(TOKENS, HIDDEN, VOCAB);
    p.options.vocab_start = 1000;
    p.options.vocab_valid = 5000;
    p.options.bias_dtype = p.options.dbias_dtype = LGH_FP32;
    p.options.oov_policy = LGH_OOV_SOFTMAX;
    p.options.live_lists = 1;
    cpu_problem_open(&p);
    cpu_problem_vary_temperature(&p);
    for (int i = 0; i < TOKENS; i++) {
        if (i % 7 == 3)
            cpu_problem_set_target(&p, i, -100);
        if (i % 11 == 4)
            cpu_problem_set_target(&p, i, 7);
        if (i % 13 == 5)
            cpu_problem_set_target(&p, i, -1);
        if (i % 17 == 6)
            p.temperatures[i * CPU_PROBLEM_STRIDE] = NAN;
        if (i % 19 == 7)
            for (int k = 0; k < 3; k++)
                p.upstream[k][i * CPU_PROBLEM_STRIDE] = 0;
    }
    return p;
}

/* LIVE rows in rising order. */
static void choose_rows(int32_t list[LIVE]) {
    lgh_random random = {3};
    int chosen = 0;
    for (int i = 0; i < TOKENS; i++)
        if (lgh_random_below(&random, TOKENS - i) < LIVE - chosen)
            list[chosen++] = i;
    assert_int_equal(chosen, LIVE);
}

static int contains(const int32_t *list, int count, int row) {
    for (int i = 0; i < count; i++)
        if (list[i] == row)
            return 1;
    return 0;
}

/* The same rows, by targets: all others are ignored. */
static cpu_results run_dense(cpu_problem *p, const int32_t *list, int count) {
    const lgh_live live = p->live;
    const size_t bytes = TOKENS * lgh_dtype_size(p->options.targets_dtype);
    void *targets = malloc(bytes);
    assert_non_null(targets);
    memcpy(targets, p->targets, bytes);
    for (int i = 0; i < TOKENS; i++)
        if (!contains(list, count, i))
            cpu_problem_set_target(p, i, p->options.ignore_index);
    p->live = (lgh_live){NULL, 0, NULL};
    cpu_results r = cpu_problem_run(p);
    p->live = live;
    memcpy(p->targets, targets, bytes);
    free(targets);
    return r;
}

static void check_counts_same(const cpu_results *a, const cpu_results *b) {
    lgh_assert_same_bytes(a->foreign_targets, b->foreign_targets, sizeof a->foreign_targets,
                          "foreign_targets");
    lgh_assert_same_bytes(a->invalid_temperatures, b->invalid_temperatures,
                          sizeof a->invalid_temperatures, "invalid_temperatures");
}

/* A call with the problem's list against one that ignores what is not in `list`. */
static void check_list(cpu_problem *p, const int32_t *list, int count) {
    cpu_results live = cpu_problem_run(p);
    cpu_results dense = run_dense(p, list, count);
    cpu_problem_check(p, &live);
    cpu_problem_check_same(p, &live, &dense);
    check_counts_same(&live, &dense);
    cpu_results_close(&live);
    cpu_results_close(&dense);
}

static void a_list_gives_the_bits_of_ignored_rows(void **state) {
    (void)state;
    const lgh_dtype operands[] = {LGH_BF16, LGH_FP16, LGH_FP32};
    int32_t list[LIVE];
    choose_rows(list);
    cpu_problem p = mixed();
    p.live = (lgh_live){list, LIVE, NULL};
    for (int threads = 1; threads <= 3; threads++) {
        p.threads = threads;
        check_list(&p, list, LIVE);
    }
    cpu_problem_check_all(&p, &(reference_faults){.every_row = 1}, 1);
    cpu_problem_close(&p);
    for (int i = 0; i < 3; i++) {
        p = cpu_problem_of(TOKENS, HIDDEN, VOCAB);
        p.options.live_lists = 1;
        p.options.hidden_dtype = p.options.weight_dtype = operands[i];
        cpu_problem_open(&p);
        p.live = (lgh_live){list, LIVE, NULL};
        check_list(&p, list, LIVE);
        cpu_problem_close(&p);
    }
}

static void all_rows_in_a_list_give_the_bits_of_no_list(void **state) {
    (void)state;
    int32_t list[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        list[i] = i;
    cpu_problem p = mixed();
    cpu_results without = cpu_problem_run(&p);
    p.live = (lgh_live){list, TOKENS, NULL};
    cpu_results with = cpu_problem_run(&p);
    cpu_problem_check_same(&p, &with, &without);
    check_counts_same(&with, &without);
    cpu_results_close(&without);
    cpu_results_close(&with);
    cpu_problem_close(&p);
}

/* Sums over tokens follow the list's order; everything else has the same bits in any order. */
static void the_order_of_a_list_moves_no_token(void **state) {
    (void)state;
    int32_t list[LIVE], backwards[LIVE];
    choose_rows(list);
    for (int i = 0; i < LIVE; i++)
        backwards[i] = list[LIVE - 1 - i];
    cpu_problem p = mixed();
    p.live = (lgh_live){list, LIVE, NULL};
    cpu_results rising = cpu_problem_run(&p);
    p.live.rows = backwards;
    cpu_results falling = cpu_problem_run(&p);
    cpu_problem_check(&p, &falling);
    check_counts_same(&rising, &falling);
    memcpy(falling.dweight, rising.dweight, (size_t)(VOCAB * p.row_stride) * sizeof(float));
    memcpy(falling.dbias, rising.dbias, VOCAB * sizeof(float));
    cpu_problem_check_same(&p, &rising, &falling);
    cpu_results_close(&rising);
    cpu_results_close(&falling);
    cpu_problem_close(&p);
}

static void a_list_ends_at_its_bound_or_count(void **state) {
    (void)state;
    const struct {
        int64_t bound;
        int32_t count;
        int length;
    } cases[] = {{LIVE, 10, 10}, {10, LIVE, 10},          {LIVE, 0, 0}, {0, LIVE, 0},
                 {LIVE, -5, 0},  {LIVE, INT32_MAX, LIVE}, {LIVE, 1, 1}, {LIVE, INT32_MIN, 0}};
    int32_t list[LIVE];
    choose_rows(list);
    cpu_problem p = mixed();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        p.live = (lgh_live){list, cases[i].bound, &cases[i].count};
        check_list(&p, list, cases[i].length);
    }
    cpu_problem_close(&p);
}

static void numbers_that_are_no_row_are_passed_over(void **state) {
    (void)state;
    const int32_t list[] = {-1, 3, TOKENS, 5, INT32_MIN, 77, INT32_MAX, 149};
    cpu_problem p = mixed();
    p.live = (lgh_live){list, 8, NULL};
    check_list(&p, list, 8);
    cpu_problem_close(&p);
}

/* Neither hidden, targets, temperatures nor upstream gradients of other rows matter. */
static void rows_left_out_are_not_read(void **state) {
    (void)state;
    int32_t list[LIVE];
    choose_rows(list);
    cpu_problem p = mixed();
    p.live = (lgh_live){list, LIVE, NULL};
    cpu_results clean = cpu_problem_run(&p);
    for (int i = 0; i < TOKENS; i++) {
        if (contains(list, LIVE, i))
            continue;
        for (int k = 0; k < HIDDEN; k++)
            cpu_problem_set_hidden(&p, i, k, NAN);
        cpu_problem_set_target(&p, i, INT64_MAX);
        p.temperatures[i * CPU_PROBLEM_STRIDE] = 0;
        for (int k = 0; k < 3; k++)
            p.upstream[k][i * CPU_PROBLEM_STRIDE] = NAN;
    }
    cpu_results poisoned = cpu_problem_run(&p);
    cpu_problem_check_same(&p, &clean, &poisoned);
    check_counts_same(&clean, &poisoned);
    cpu_results_close(&clean);
    cpu_results_close(&poisoned);
    cpu_problem_close(&p);
}

/* ---- Counters ------------------------------------------------------------------------------ */

static void every_row_is_counted_once(void **state) {
    (void)state;
    uint64_t foreign = 0, invalid = 0;
    cpu_problem p = mixed();
    for (int i = 0; i < TOKENS; i++) {
        const int ignored = i % 7 == 3 && i % 11 != 4 && i % 13 != 5;
        foreign += i % 11 == 4 || i % 13 == 5;
        invalid += i % 17 == 6 && !ignored;
    }
    for (int threads = 1; threads <= 4; threads++) {
        p.threads = threads;
        cpu_results r = cpu_problem_run(&p);
        for (int pass = 0; pass < 2; pass++) {
            assert_int_equal(r.foreign_targets[pass], foreign);
            assert_int_equal(r.invalid_temperatures[pass], invalid);
        }
        cpu_results_close(&r);
    }
    cpu_problem_close(&p);
}

enum { CALLS = 20, CALLERS = 3 };

/* A thread that calls lgh_forward with a workspace and results of its own. */
typedef struct caller {
    const cpu_problem *problem;
    const lgh_plan *plan;
    lgh_counters counters;
    int failures;
} caller;

static void *call_repeatedly(void *argument) {
    caller *c = argument;
    float lse[TOKENS];
    size_t bytes = 0;
    c->failures = lgh_plan_workspace_size(c->plan, LGH_PASS_FORWARD, TOKENS, &bytes, NULL) != 0;
    void *workspace = aligned_alloc(LGH_WORKSPACE_ALIGNMENT, bytes);
    lgh_forward_args args = cpu_problem_forward_args(c->problem);
    args.lse = lse;
    args.counters = c->counters;
    for (int i = 0; i < CALLS; i++)
        c->failures += lgh_forward(c->plan, &args, workspace, bytes, NULL) != LGH_SUCCESS;
    free(workspace);
    return NULL;
}

static void calls_may_share_a_counter(void **state) {
    (void)state;
    cpu_problem p = mixed();
    cpu_results one = cpu_problem_run(&p);
    lgh_plan *plan;
    lgh_assert_success(lgh_plan_create(&plan, lgh_test_context(), &p.options));
    uint64_t foreign = 0, invalid = 0;
    caller callers[CALLERS];
    pthread_t threads[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (caller){&p, plan, {&foreign, &invalid}, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, call_repeatedly, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(callers[i].failures, 0);
    }
    assert_int_equal(foreign, CALLS * CALLERS * one.foreign_targets[0]);
    assert_int_equal(invalid, CALLS * CALLERS * one.invalid_temperatures[0]);
    lgh_plan_destroy(plan);
    cpu_results_close(&one);
    cpu_problem_close(&p);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_gives_the_bits_of_ignored_rows),
        cmocka_unit_test(all_rows_in_a_list_give_the_bits_of_no_list),
        cmocka_unit_test(the_order_of_a_list_moves_no_token),
        cmocka_unit_test(a_list_ends_at_its_bound_or_count),
        cmocka_unit_test(numbers_that_are_no_row_are_passed_over),
        cmocka_unit_test(rows_left_out_are_not_read),
        cmocka_unit_test(every_row_is_counted_once),
        cmocka_unit_test(calls_may_share_a_counter)};
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
