/* test_cpu_bits.c - what the CPU device promises bit for bit: a token's results depend on nothing
 * but the token, and dweight is the same from run to run, whatever the thread count. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "value.h"

/* Sizes that no tile divides: two blocks of the hidden dimension, six tiles of the vocabulary. */
enum { TOKENS = 150, HIDDEN = 300, VOCAB = 333 };

typedef struct problem {
    lgh_dtype dtype;
    void *hidden;
    void *weight;
    int64_t *targets;
    float *upstream; /* grad_logp, grad_entropy, grad_lse: TOKENS each */
} problem;

/* Results of both passes over some tokens. */
typedef struct results {
    int64_t tokens;
    float *rows; /* logp, lse, entropy, logp_at_one: `tokens` each */
    float *dhidden;
    float *dweight;
} results;

static void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes);
    assert_non_null(memory);
    return memory;
}

static problem problem_create(lgh_dtype dtype) {
    lgh_random random = {7};
    size_t element = lgh_dtype_size(dtype);
    problem p = {dtype, allocate(TOKENS * HIDDEN * element), allocate(VOCAB * HIDDEN * element),
                 allocate(TOKENS * sizeof(int64_t)), allocate(3 * TOKENS * sizeof(float))};
    double scale = 3 / sqrt(HIDDEN);
    if (dtype == LGH_BF16) {
        lgh_random_fill_bf16(&random, p.hidden, TOKENS * HIDDEN, 1);
        lgh_random_fill_bf16(&random, p.weight, VOCAB * HIDDEN, scale);
    } else {
        lgh_random_fill_fp32(&random, p.hidden, TOKENS * HIDDEN, 1);
        lgh_random_fill_fp32(&random, p.weight, VOCAB * HIDDEN, scale);
    }
    lgh_random_fill_fp32(&random, p.upstream, 3 * TOKENS, 1);
    for (int i = 0; i < TOKENS; i++) {
        p.targets[i] = lgh_random_below(&random, VOCAB);
        if (i % 7 == 3)
            p.targets[i] = -100;
        if (i % 31 == 8)
            p.targets[i] = VOCAB;
        if (i % 11 == 5)
            p.upstream[i] = p.upstream[TOKENS + i] = p.upstream[2 * TOKENS + i] = 0;
    }
    return p;
}

static void problem_destroy(problem *p) {
    free(p->hidden);
    free(p->weight);
    free(p->targets);
    free(p->upstream);
}

static void results_destroy(results *r) {
    free(r->rows);
    free(r->dhidden);
    free(r->dweight);
}

static lgh_context *open_cpu(int threads) {
    lgh_context_options options = LGH_CONTEXT_OPTIONS_INIT;
    options.cpu_threads = threads;
    lgh_context *context;
    lgh_assert_success(lgh_context_create(&context, &options));
    return context;
}

static lgh_plan *make_plan(lgh_context *context, const problem *p, int64_t budget) {
    lgh_plan_options options = LGH_PLAN_OPTIONS_INIT;
    options.hidden_size = HIDDEN;
    options.vocab_size = VOCAB;
    options.max_tokens = TOKENS;
    options.hidden_dtype = options.weight_dtype = p->dtype;
    options.outputs = LGH_OUTPUT_ALL;
    options.backward_budget = budget;
    lgh_plan *plan;
    lgh_assert_success(lgh_plan_create(&plan, context, &options));
    return plan;
}

/* Workspace full of NaN: a result that reads what it did not write shows. */
static void *make_workspace(const lgh_plan *plan, lgh_pass pass, int64_t tokens, size_t *bytes) {
    lgh_assert_success(lgh_plan_workspace_size(plan, pass, tokens, bytes, NULL));
    void *workspace = aligned_alloc(LGH_WORKSPACE_ALIGNMENT, *bytes);
    assert_non_null(workspace);
    memset(workspace, 0xff, *bytes);
    return workspace;
}

static void run_forward(const lgh_plan *plan, const lgh_const_matrix *hidden,
                        const lgh_const_matrix *weight, const int64_t *targets, results *r) {
    lgh_forward_args args = LGH_FORWARD_ARGS_INIT;
    args.hidden = *hidden;
    args.weight = *weight;
    args.targets = targets;
    args.temperature.host = 0.7f;
    args.logp = r->rows;
    args.lse = r->rows + r->tokens;
    args.entropy = r->rows + 2 * r->tokens;
    args.logp_at_one = r->rows + 3 * r->tokens;
    size_t bytes;
    void *workspace = make_workspace(plan, LGH_PASS_FORWARD, r->tokens, &bytes);
    lgh_assert_success(lgh_forward(plan, &args, workspace, bytes, NULL));
    free(workspace);
}

static void run_backward(const lgh_plan *plan, const lgh_const_matrix *hidden,
                         const lgh_const_matrix *weight, const int64_t *targets,
                         const float *upstream, results *r) {
    lgh_backward_args args = LGH_BACKWARD_ARGS_INIT;
    args.hidden = *hidden;
    args.weight = *weight;
    args.targets = targets;
    args.temperature.host = 0.7f;
    args.lse = r->rows + r->tokens;
    args.entropy = r->rows + 2 * r->tokens;
    args.grad_logp = (lgh_value){upstream, 1, 0};
    args.grad_entropy = (lgh_value){upstream + TOKENS, 1, 0};
    args.grad_lse = (lgh_value){upstream + 2 * TOKENS, 1, 0};
    args.dhidden = (lgh_matrix){r->dhidden, r->tokens, HIDDEN, HIDDEN, LGH_FP32};
    args.dweight = (lgh_matrix){r->dweight, VOCAB, HIDDEN, HIDDEN, LGH_FP32};
    size_t bytes;
    void *workspace = make_workspace(plan, LGH_PASS_BACKWARD, r->tokens, &bytes);
    lgh_assert_success(lgh_backward(plan, &args, workspace, bytes, NULL));
    free(workspace);
}

/* Both passes over tokens first .. first + tokens - 1. */
static results run(const problem *p, int threads, int64_t budget, int64_t first, int64_t tokens) {
    lgh_context *context = open_cpu(threads);
    lgh_plan *plan = make_plan(context, p, budget);
    results r = {tokens, allocate((size_t)tokens * 4 * sizeof(float)),
                 allocate((size_t)tokens * HIDDEN * sizeof(float)),
                 allocate(VOCAB * HIDDEN * sizeof(float))};
    const char *start =
        (const char *)p->hidden + (size_t)(first * HIDDEN) * lgh_dtype_size(p->dtype);
    lgh_const_matrix hidden = {start, tokens, HIDDEN, HIDDEN, p->dtype};
    lgh_const_matrix weight = {p->weight, VOCAB, HIDDEN, HIDDEN, p->dtype};
    run_forward(plan, &hidden, &weight, p->targets + first, &r);
    run_backward(plan, &hidden, &weight, p->targets + first, p->upstream + first, &r);
    lgh_plan_destroy(plan);
    lgh_context_destroy(context);
    return r;
}

/* The part's tokens against the same tokens of the whole. */
static void assert_same_tokens(const results *part, const results *whole, int64_t first) {
    static const char *const names[] = {"logp", "lse", "entropy", "logp_at_one"};
    for (int i = 0; i < 4; i++)
        lgh_assert_same_bytes(part->rows + i * part->tokens,
                              whole->rows + i * whole->tokens + first,
                              (size_t)part->tokens * sizeof(float), names[i]);
    lgh_assert_same_bytes(part->dhidden, whole->dhidden + first * HIDDEN,
                          (size_t)part->tokens * HIDDEN * sizeof(float), "dhidden");
}

static void assert_same_dweight(const results *a, const results *b) {
    lgh_assert_same_bytes(a->dweight, b->dweight, VOCAB * HIDDEN * sizeof(float), "dweight");
}

/* ---- Cases --------------------------------------------------------------------------------- */

static void check_thread_counts(lgh_dtype dtype) {
    problem p = problem_create(dtype);
    results one = run(&p, 1, 0, 0, TOKENS);
    assert_true(one.rows[0] < 0); /* something was computed */
    for (int threads = 1; threads <= 3; threads++) {
        results other = run(&p, threads, 0, 0, TOKENS);
        assert_same_tokens(&other, &one, 0);
        assert_same_dweight(&other, &one);
        results_destroy(&other);
    }
    results_destroy(&one);
    problem_destroy(&p);
}

static void bf16_results_do_not_depend_on_the_thread_count(void **state) {
    (void)state;
    check_thread_counts(LGH_BF16);
}

static void fp32_results_do_not_depend_on_the_thread_count(void **state) {
    (void)state;
    check_thread_counts(LGH_FP32);
}

static void check_neighbours(lgh_dtype dtype) {
    static const struct {
        int64_t first;
        int64_t tokens;
    } parts[] = {{0, 1}, {1, 1}, {13, 8}, {40, 9}, {63, 3}, {77, 64}, {99, 51}, {149, 1}};
    problem p = problem_create(dtype);
    results whole = run(&p, 2, 0, 0, TOKENS);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        results part = run(&p, 2, 0, parts[i].first, parts[i].tokens);
        assert_same_tokens(&part, &whole, parts[i].first);
        results_destroy(&part);
    }
    results_destroy(&whole);
    problem_destroy(&p);
}

static void bf16_tokens_do_not_depend_on_n_or_position(void **state) {
    (void)state;
    check_neighbours(LGH_BF16);
}

static void fp32_tokens_do_not_depend_on_n_or_position(void **state) {
    (void)state;
    check_neighbours(LGH_FP32);
}

static void narrow_tiles_change_nothing(void **state) {
    (void)state;
    problem p = problem_create(LGH_BF16);
    results wide = run(&p, 3, 0, 0, TOKENS);
    /* Room for three narrow tiles, and for one: then two of the three threads are idle. */
    static const int64_t budgets[] = {700000, 230000};
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        results narrow = run(&p, 3, budgets[i], 0, TOKENS);
        assert_same_tokens(&narrow, &wide, 0);
        assert_same_dweight(&narrow, &wide);
        results_destroy(&narrow);
    }
    results_destroy(&wide);
    problem_destroy(&p);
}

static void rows_without_a_gradient_do_not_change_dweight(void **state) {
    (void)state;
    problem p = problem_create(LGH_BF16);
    results with = run(&p, 2, 0, 0, TOKENS);
    int64_t live = 0;
    uint16_t *hidden = p.hidden;
    for (int64_t i = 0; i < TOKENS; i++) {
        if (p.targets[i] < 0 || p.targets[i] >= VOCAB || p.upstream[i] == 0)
            continue;
        memmove(hidden + live * HIDDEN, hidden + i * HIDDEN, HIDDEN * sizeof *hidden);
        p.targets[live] = p.targets[i];
        for (int k = 0; k < 3; k++)
            p.upstream[k * TOKENS + live] = p.upstream[k * TOKENS + i];
        live++;
    }
    assert_in_range(live, TOKENS / 2, TOKENS - 20);
    results without = run(&p, 2, 0, 0, live);
    assert_same_dweight(&with, &without);
    results_destroy(&with);
    results_destroy(&without);
    problem_destroy(&p);
}

static void ignored_rows_are_exactly_zero(void **state) {
    (void)state;
    problem p = problem_create(LGH_BF16);
    results r = run(&p, 2, 0, 0, TOKENS);
    static const float zeros[HIDDEN];
    for (int64_t i = 0; i < TOKENS; i++) {
        if (p.targets[i] >= 0 && p.targets[i] < VOCAB && p.upstream[i] != 0)
            continue;
        lgh_assert_same_bytes(r.dhidden + i * HIDDEN, zeros, sizeof zeros, "dhidden");
        for (int k = 0; k < 4 && p.targets[i] == -100; k++)
            lgh_assert_same_bytes(r.rows + k * TOKENS + i, zeros, sizeof(float), "output");
    }
    results_destroy(&r);
    problem_destroy(&p);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_results_do_not_depend_on_the_thread_count),
        cmocka_unit_test(fp32_results_do_not_depend_on_the_thread_count),
        cmocka_unit_test(bf16_tokens_do_not_depend_on_n_or_position),
        cmocka_unit_test(fp32_tokens_do_not_depend_on_n_or_position),
        cmocka_unit_test(narrow_tiles_change_nothing),
        cmocka_unit_test(rows_without_a_gradient_do_not_change_dweight),
        cmocka_unit_test(ignored_rows_are_exactly_zero)};
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
