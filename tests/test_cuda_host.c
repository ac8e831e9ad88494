/* test_cuda_host.c - the CUDA device's host code on fakes of the driver and cuBLASLt: shapes,
 * options, workspaces, contexts, threads. */
#include "cuda_problem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- Shapes -------------------------------------------------------------------------------- */

static void passes_match_reference_over_shapes(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {/* tokens, hidden size, vocabulary */
                                        {1, 8, 1},     {1, 8, 2},    {3, 16, 7},    {5, 8, 127},
                                        {17, 24, 128}, {2, 8, 1000}, {129, 8, 257}, {40, 64, 333}};
    lgh_context *context = open_fake_device();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
        problem p = problem_of(shapes[i][0], shapes[i][1], shapes[i][2]);
        problem_check(&p, context);
    }
    close_fake_device(context);
}

/* A hidden size that is no multiple of 8 leaves rows with less than 16 bytes of alignment. */
static void odd_hidden_sizes_match_reference(void **state) {
    (void)state;
    static const int64_t widths[] = {1, 2, 7, 12, 100};
    lgh_context *context = open_fake_device();
    for (size_t i = 0; i < sizeof widths / sizeof *widths; ++i) {
        problem p = problem_of(9, widths[i], 50);
        problem_check(&p, context);
    }
    close_fake_device(context);
}

/* More than one chunk in each pass, with a last chunk of one column and of a whole chunk. */
static void vocabulary_chunks_match_reference(void **state) {
    (void)state;
    static const int64_t vocabularies[] = {4097, 8192, 8193, 12288};
    lgh_context *context = open_fake_device();
    for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies; ++i) {
        problem p = problem_of(6, 8, vocabularies[i]);
        problem_check(&p, context);
    }
    close_fake_device(context);
}

static void token_blocks_match_reference(void **state) {
    (void)state;
    static const int64_t tokens[] = {1, 15, 16, 17, 48, 50};
    lgh_context *context = open_fake_device();
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; ++i) {
        problem p = problem_of(tokens[i], 16, 100);
        p.options.max_tokens = 64;
        p.options.token_block = 16;
        problem_check(&p, context);
    }
    close_fake_device(context);
}

/* Several blocks and several chunks, in both loop orders of the backward pass. */
static void blocks_and_chunks_match_reference(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    for (int outer = 0; outer < 2; ++outer) {
        problem p = problem_of(21, 8, 8200);
        p.options.token_block = 8;
        p.options.dweight_dtype = outer ? LGH_BF16 : LGH_FP32;
        p.options.dhidden_dtype = LGH_BF16;
        problem_check(&p, context);
    }
    close_fake_device(context);
}

/* ---- Options ------------------------------------------------------------------------------- */

static void result_dtypes_match_reference(void **state) {
    (void)state;
    static const lgh_dtype dtypes[] = {LGH_DTYPE_NONE, LGH_BF16, LGH_FP32};
    lgh_context *context = open_fake_device();
    for (int hidden = 0; hidden < 3; ++hidden)
        for (int weight = 0; weight < 3; ++weight) {
            problem p = problem_of(35, 16, 77);
            p.options.token_block = 16;
            p.options.dhidden_dtype = dtypes[hidden];
            p.options.dweight_dtype = dtypes[weight];
            problem_check(&p, context);
        }
    close_fake_device(context);
}

static void dweight_accumulates(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    for (int64_t tokens = 0; tokens < 40; tokens += 13) {
        problem p = problem_of(tokens, 8, 90);
        p.options.max_tokens = 40;
        p.options.token_block = 16;
        p.accumulate = 1;
        problem_check(&p, context);
    }
    close_fake_device(context);
}

static void no_tokens_write_zeros_to_dweight_alone(void **state) {
    (void)state;
    static const lgh_dtype dtypes[] = {LGH_BF16, LGH_FP32};
    lgh_context *context = open_fake_device();
    for (int64_t most = 0; most < 20; most += 19)
        for (size_t i = 0; i < 2; ++i) {
            problem p = problem_of(0, 8, 90);
            p.options.max_tokens = most;
            p.options.dweight_dtype = dtypes[i];
            problem_check(&p, context);
        }
    close_fake_device(context);
}

static void ignored_targets_may_be_entries(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    problem p = problem_of(19, 16, 65);
    p.options.ignore_index = 3;
    problem_check(&p, context);
    close_fake_device(context);
}

static void fewer_inputs_match_reference(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    problem p = problem_of(19, 16, 65);
    p.without_targets = 1;
    problem_check(&p, context);
    p = problem_of(19, 16, 65);
    p.grad_entropy = PROBLEM_ABSENT;
    p.options.outputs = LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE;
    problem_check(&p, context);
    p = problem_of(19, 16, 65);
    p.padding = 0;
    p.options.token_block = 8;
    p.without_counters = 1;
    problem_check(&p, context);
    close_fake_device(context);
}

static void smallest_budget_is_kept(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    for (int outer = 0; outer < 2; ++outer) {
        problem p = problem_of(50, 16, 600);
        p.options.dweight_dtype = outer ? LGH_BF16 : LGH_FP32;
        p.options.backward_budget = 100 * 1024;
        problem_check(&p, context);
    }
    close_fake_device(context);
}

/* ---- A row's bits -------------------------------------------------------------------------- */

static void logp_does_not_depend_on_neighbours_or_blocks(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    float alone[3], among[3];
    for (int many = 0; many < 2; ++many) {
        lgh_plan *plan;
        problem p = problem_of(33, 16, 4100);
        p.options.token_block = many ? 8 : 0;
        problem_open(&p);
        p.tokens = many ? 33 : 3;
        lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
        problem_check_forward(&p, plan);
        memcpy(many ? among : alone, p.logp, sizeof alone);
        lgh_plan_destroy(plan);
        problem_close(&p);
    }
    lgh_assert_same_bytes(among, alone, sizeof alone, "logp");
    close_fake_device(context);
}

/* ---- Workspace ----------------------------------------------------------------------------- */

/* Neither pass takes this workspace, and neither enqueues anything. */
static void assert_workspace_refused(const problem *p, const lgh_plan *plan, lgh_pass pass,
                                     void *workspace, size_t bytes) {
    const lgh_forward_args forward = problem_forward_args(p);
    const lgh_backward_args backward = problem_backward_args(p);
    const int64_t launches = fake_cuda_calls("cuLaunchKernel");
    const int64_t products = fake_cuda_calls("cublasLtMatmul");
    fake_cuda_begin_run(p->stream, "a refused call");
    lgh_status status = pass == LGH_PASS_FORWARD
                            ? lgh_forward(plan, &forward, workspace, bytes, p->stream)
                            : lgh_backward(plan, &backward, workspace, bytes, p->stream);
    fake_cuda_end_run();
    lgh_assert_status(status, LGH_ERROR_WORKSPACE);
    lgh_assert_contains(lgh_last_error(), "workspace");
    assert_int_equal(fake_cuda_calls("cuLaunchKernel"), launches);
    assert_int_equal(fake_cuda_calls("cublasLtMatmul"), products);
}

static void small_or_misaligned_workspace_is_refused(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    lgh_plan *plan;
    problem p = problem_of(20, 16, 100);
    problem_open(&p);
    lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
    for (int pass = 0; pass < 2; ++pass) {
        size_t bytes;
        lgh_assert_success(lgh_plan_workspace_size(plan, (lgh_pass)pass, p.tokens, &bytes, NULL));
        char *workspace = fake_cuda_allocate(bytes + LGH_WORKSPACE_ALIGNMENT);
        assert_workspace_refused(&p, plan, (lgh_pass)pass, workspace, bytes - 1);
        assert_workspace_refused(&p, plan, (lgh_pass)pass, workspace + 128, bytes);
        assert_workspace_refused(&p, plan, (lgh_pass)pass, NULL, bytes);
        assert_workspace_refused(&p, plan, (lgh_pass)pass, workspace, 0);
        fake_cuda_free(workspace);
    }
    lgh_plan_destroy(plan);
    problem_close(&p);
    close_fake_device(context);
}

/* A workspace that suffices for some tokens suffices for fewer. */
static void check_workspace_limits(const lgh_plan *plan, int64_t most, size_t budget,
                                   int has_backward, int may_stage_all) {
    size_t forward, backward, beyond, least_forward = 0, least_backward = 0;
    for (int64_t tokens = 0; tokens <= most; tokens += tokens < 40 ? 1 : 37) {
        lgh_assert_success(
            lgh_plan_workspace_size(plan, LGH_PASS_FORWARD, tokens, &forward, &beyond));
        assert_in_range(forward, least_forward, 64 << 20);
        assert_int_equal(beyond, 0);
        lgh_assert_success(
            lgh_plan_workspace_size(plan, LGH_PASS_BACKWARD, tokens, &backward, &beyond));
        assert_true(backward >= least_backward);
        assert_in_range(backward - beyond, 0, budget);
        assert_true(beyond == 0 || may_stage_all);
        least_forward = forward;
        least_backward = backward;
    }
    assert_true(least_forward > 0);
    assert_int_equal(least_backward > 0, has_backward);
}

static void workspace_stays_within_its_limits(void **state) {
    (void)state;
    static const lgh_dtype dtypes[] = {LGH_DTYPE_NONE, LGH_BF16, LGH_FP32};
    lgh_context *context = open_fake_device();
    fake_cublaslt_offer(1);
    for (int i = 0; i < 9; ++i) {
        lgh_plan *plan;
        problem p = problem_of(3000, 8, 600);
        p.options.dhidden_dtype = dtypes[i % 3];
        p.options.dweight_dtype = dtypes[i / 3];
        p.options.backward_budget = 3 << 20;
        lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
        check_workspace_limits(plan, 3000, 3 << 20, i > 0,
                               p.options.dhidden_dtype == LGH_BF16 &&
                                   p.options.dweight_dtype == LGH_BF16);
        lgh_plan_destroy(plan);
    }
    close_fake_device(context);
}

/* ---- Rows that a plan's products cannot take ------------------------------------------------ */

/* The plan counts on more than the problem's rows have. */
static void check_rows_are_refused(lgh_context *context, problem *p, int32_t promised) {
    lgh_plan *plan;
    size_t bytes;
    problem_open(p);
    p->options.row_alignment = promised;
    lgh_assert_success(lgh_plan_create(&plan, context, &p->options));
    const lgh_forward_args args = problem_forward_args(p);
    lgh_assert_success(lgh_plan_workspace_size(plan, LGH_PASS_FORWARD, p->tokens, &bytes, NULL));
    void *workspace = fake_cuda_allocate(bytes);
    fake_cuda_begin_run(p->stream, "a refused call");
    lgh_status status = lgh_forward(plan, &args, workspace, bytes, p->stream);
    fake_cuda_end_run();
    lgh_assert_status(status, LGH_ERROR_UNSUPPORTED);
    lgh_assert_contains(lgh_last_error(), "args->hidden");
    lgh_assert_contains(lgh_last_error(), "row_alignment");
    fake_cuda_free(workspace);
    lgh_plan_destroy(plan);
    problem_close(p);
}

static void rows_off_the_plan_s_alignment_are_refused(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    problem p = problem_of(20, 16, 100);
    p.padding = 3;
    check_rows_are_refused(context, &p, 0);
    for (int32_t alignment = 2; alignment <= 8; alignment *= 2) {
        p = problem_of(20, 12, 100);
        p.options.row_alignment = alignment;
        check_rows_are_refused(context, &p, 2 * alignment);
    }
    close_fake_device(context);
}

/* ---- Contexts, devices, threads ------------------------------------------------------------- */

static void caller_s_context_stays_current(void **state) {
    (void)state;
    assert_true(fake_cublaslt_install());
    void *foreign = fake_cuda_push_foreign();
    lgh_context *context = open_fake_device();
    lgh_plan *plan;
    problem p = problem_of(20, 16, 100);
    problem_open(&p);
    lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
    problem_check_forward(&p, plan);
    problem_check_backward(&p, plan);
    lgh_plan_destroy(plan);
    problem_close(&p);
    close_fake_device(context);
    assert_int_equal(fake_cuda_depth(), 1);
    assert_ptr_equal(fake_cuda_pop(), foreign);
}

static void memory_functions_restore_the_context(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    void *stream = fake_cuda_stream_create(), *memory;
    float numbers[] = {1.0f, 2.0f, 3.0f}, read[3];
    lgh_assert_success(lgh_memory_allocate(context, sizeof numbers, &memory));
    assert_int_equal((uintptr_t)memory % LGH_WORKSPACE_ALIGNMENT, 0);
    lgh_assert_success(lgh_memory_copy(context, memory, numbers, sizeof numbers, stream));
    lgh_assert_success(lgh_memory_copy(context, read, memory, sizeof read, stream));
    lgh_assert_same_bytes(read, numbers, sizeof read, "copied numbers");
    lgh_memory_free(context, memory);
    assert_int_equal(fake_cuda_depth(), 0);
    fake_cuda_stream_destroy(stream);
    close_fake_device(context);
}

static void second_plan_loads_no_kernel_again(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    lgh_plan *plans[2];
    problem p = problem_of(20, 16, 100);
    lgh_assert_success(lgh_plan_create(&plans[0], context, &p.options));
    const int64_t loads = fake_cuda_calls("cuLibraryLoadData");
    assert_true(loads > 0);
    lgh_assert_success(lgh_plan_create(&plans[1], context, &p.options));
    assert_int_equal(fake_cuda_calls("cuLibraryLoadData"), loads);
    lgh_plan_destroy(plans[0]);
    lgh_plan_destroy(plans[1]);
    close_fake_device(context);
}

static void every_arch_gets_its_own_cubins(void **state) {
    (void)state;
    static const char *const archs[][2] = {{"8.0", "sm_80"},
                                           {"8.9", "sm_89"},
                                           {"9.0", "sm_90a"},
                                           {"10.0", "sm_100a"},
                                           {"12.0", "sm_120"}};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; ++i) {
        char name[96];
        setenv("FAKE_CUDA_ARCH", archs[i][0], 1);
        lgh_context *context = open_fake_device();
        lgh_assert_success(lgh_context_device_name(context, name, sizeof name));
        lgh_assert_contains(name, "Fake GPU");
        lgh_assert_contains(name, archs[i][1]);
        problem p = problem_of(5, 8, 40);
        problem_check(&p, context);
        close_fake_device(context);
    }
    unsetenv("FAKE_CUDA_ARCH");
}

static void old_devices_and_wrong_ordinals_are_refused(void **state) {
    (void)state;
    lgh_context_options options = LGH_CONTEXT_OPTIONS_INIT;
    lgh_context *context = open_fake_device();
    close_fake_device(context);
    options.type = LGH_DEVICE_CUDA;
    options.ordinal = 1;
    lgh_assert_status(lgh_context_create(&context, &options), LGH_ERROR_NO_DEVICE);
    lgh_assert_contains(lgh_last_error(), "ordinal");
    options.ordinal = 0;
    setenv("FAKE_CUDA_ARCH", "7.5", 1);
    lgh_assert_status(lgh_context_create(&context, &options), LGH_ERROR_UNSUPPORTED);
    lgh_assert_contains(lgh_last_error(), "7.5");
    assert_null(context);
    unsetenv("FAKE_CUDA_ARCH");
    close_fake_device(NULL);
}

/* Assertions belong to the case's own thread, so this one reports instead. */
typedef struct worker {
    const problem *problem;
    const lgh_plan *plan;
    void *workspace;
    size_t bytes;
    int failures;
} worker;

static void *run_repeatedly(void *data) {
    worker *w = data;
    const lgh_forward_args args = problem_forward_args(w->problem);
    for (int i = 0; i < 5; ++i) {
        fake_cuda_begin_run(w->problem->stream, "lgh_forward in a thread");
        w->failures += lgh_forward(w->plan, &args, w->workspace, w->bytes, w->problem->stream) != 0;
        fake_cuda_end_run();
    }
    return NULL;
}

static void threads_share_a_plan(void **state) {
    (void)state;
    enum { THREADS = 3 };
    lgh_context *context = open_fake_device();
    lgh_plan *plan;
    problem problems[THREADS];
    worker workers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; ++i) {
        problems[i] = problem_of(10 + i, 16, 100);
        problems[i].options.max_tokens = 20;
        problem_open(&problems[i]);
    }
    lgh_assert_success(lgh_plan_create(&plan, context, &problems[0].options));
    for (int i = 0; i < THREADS; ++i) {
        worker w = {.problem = &problems[i], .plan = plan};
        lgh_assert_success(
            lgh_plan_workspace_size(plan, LGH_PASS_FORWARD, problems[i].tokens, &w.bytes, NULL));
        w.workspace = fake_cuda_allocate(w.bytes);
        workers[i] = w;
        assert_int_equal(pthread_create(&threads[i], NULL, run_repeatedly, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; ++i) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].failures, 0);
        fake_cuda_free(workers[i].workspace);
        problem_check_forward(&problems[i], plan);
        problem_close(&problems[i]);
    }
    lgh_plan_destroy(plan);
    close_fake_device(context);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_match_reference_over_shapes),
        cmocka_unit_test(odd_hidden_sizes_match_reference),
        cmocka_unit_test(vocabulary_chunks_match_reference),
        cmocka_unit_test(token_blocks_match_reference),
        cmocka_unit_test(blocks_and_chunks_match_reference),
        cmocka_unit_test(result_dtypes_match_reference),
        cmocka_unit_test(dweight_accumulates),
        cmocka_unit_test(no_tokens_write_zeros_to_dweight_alone),
        cmocka_unit_test(ignored_targets_may_be_entries),
        cmocka_unit_test(fewer_inputs_match_reference),
        cmocka_unit_test(smallest_budget_is_kept),
        cmocka_unit_test(logp_does_not_depend_on_neighbours_or_blocks),
        cmocka_unit_test(small_or_misaligned_workspace_is_refused),
        cmocka_unit_test(workspace_stays_within_its_limits),
        cmocka_unit_test(rows_off_the_plan_s_alignment_are_refused),
        cmocka_unit_test(caller_s_context_stays_current),
        cmocka_unit_test(memory_functions_restore_the_context),
        cmocka_unit_test(second_plan_loads_no_kernel_again),
        cmocka_unit_test(every_arch_gets_its_own_cubins),
        cmocka_unit_test(old_devices_and_wrong_ordinals_are_refused),
        cmocka_unit_test(threads_share_a_plan),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
