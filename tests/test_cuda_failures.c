/* test_cuda_failures.c - every call of the driver and of cuBLASLt fails in turn, on the fakes: the
 * library must return a status with a text, leak nothing and stay usable. */
#include "cuda_problem.h"

#include <stdlib.h>
#include <string.h>

#define FAILURE 719 /* CUDA_ERROR_LAUNCH_FAILED; to cuBLASLt any number that is not 0 */
#define OUT_OF_MEMORY 2

/* Everything that a call can make use of: every kernel, bias and scales in the products. */
static problem problem_with_everything(int64_t tokens) {
    problem p = problem_of(tokens, 8, 50);
    lgh_plan_options *o = &p.options;
    o->hidden_dtype = o->weight_dtype = o->dhidden_dtype = o->dweight_dtype = LGH_FP16;
    o->bias_dtype = LGH_BF16;
    o->dbias_dtype = LGH_FP32;
    o->vocab_valid = 40;
    o->live_lists = 1;
    p.temperature = PROBLEM_VECTOR;
    p.live = PROBLEM_COUNTED;
    return p;
}

/* How often each function is called by what is to be walked. */
typedef struct call_counts {
    const char *names[64];
    int64_t calls[64];
    int count;
} call_counts;

static call_counts count_calls(void) {
    call_counts counts = {.count = 0};
    const char *name;
    for (int i = 0; (name = fake_cuda_function(i)) != NULL; ++i)
        if (fake_cuda_calls(name) > 0) {
            assert_in_range(counts.count, 0, 63);
            counts.names[counts.count] = name;
            counts.calls[counts.count++] = fake_cuda_calls(name);
        }
    return counts;
}

/* Each of the first calls, some of the others, the last. */
static int64_t next_call(int64_t k, int64_t calls) {
    const int64_t next = k + (k < 4 ? 1 : calls / 5 + 1);
    return next > calls && k < calls ? calls : next;
}

static int starts_with(const char *name, const char *start) {
    return strncmp(name, start, strlen(start)) == 0;
}

/* What releases something cannot do more than go on. */
static int releases(const char *name) {
    return strstr(name, "Destroy") || strstr(name, "Free") || strstr(name, "Unload") ||
           strstr(name, "Pop") || strstr(name, "Release");
}

static void assert_nothing_left(fake_cuda_live before) {
    const fake_cuda_live live = fake_cuda_count_live();
    assert_int_equal(live.allocations, before.allocations);
    assert_int_equal(live.bytes, before.bytes);
    assert_int_equal(live.streams, before.streams);
    assert_int_equal(live.events, before.events);
    assert_int_equal(live.cublaslt_handles, before.cublaslt_handles);
    assert_int_equal(live.retained, before.retained);
    assert_int_equal(fake_cuda_depth(), 0);
    assert_no_violations();
}

/* A status of the right kind, and a text that says which call it was. */
static void assert_reported(lgh_status status, const char *function, int64_t k) {
    const lgh_status expected =
        starts_with(function, "cublasLt") ? LGH_ERROR_CUBLASLT : LGH_ERROR_DEVICE;
    if (status != expected)
        fail_msg("call %lld of %s failed, and this gave %s: %s", (long long)k, function,
                 lgh_status_name(status), lgh_last_error());
    lgh_assert_contains(lgh_last_error(), function);
}

/* ---- Context ----------------------------------------------------------------------------------
 */

static lgh_status create_and_destroy_context(void) {
    lgh_context_options options = LGH_CONTEXT_OPTIONS_INIT;
    lgh_context *context;
    options.type = LGH_DEVICE_CUDA;
    lgh_status status = lgh_context_create(&context, &options);
    assert_true((status == LGH_SUCCESS) == (context != NULL));
    lgh_context_destroy(context);
    return status;
}

static void context_creation_survives_every_failure(void **state) {
    (void)state;
    close_fake_device(open_fake_device()); /* loads the driver, once for the process */
    fake_cuda_reset();
    lgh_assert_success(create_and_destroy_context());
    const call_counts counts = count_calls();
    const fake_cuda_live before = fake_cuda_count_live();
    assert_in_range(counts.count, 8, 64);
    for (int i = 0; i < counts.count; ++i)
        for (int64_t k = 1; k <= counts.calls[i]; ++k) {
            fake_cuda_reset();
            /* Without a context to push, the handle cannot be closed as it should. */
            if (strcmp(counts.names[i], "cuCtxPushCurrent") == 0 && k > 1)
                continue;
            fake_cuda_fail(counts.names[i], k, FAILURE);
            lgh_status status = create_and_destroy_context();
            if (!releases(counts.names[i]))
                assert_reported(status, counts.names[i], k);
            assert_nothing_left(before);
        }
}

/* ---- Plan -------------------------------------------------------------------------------------
 */

/* A candidate that fails is passed over; the last wait is for the clean-up alone. */
static int plan_may_succeed(const char *function, int64_t k, int64_t calls) {
    return releases(function) || starts_with(function, "cublasLt") ||
           (strcmp(function, "cuStreamSynchronize") == 0 && k == calls);
}

static void check_plan_failure(const problem *p, const char *function, int64_t k, int64_t calls) {
    lgh_context *context = open_fake_device();
    const fake_cuda_live before = fake_cuda_count_live();
    lgh_plan *plan = NULL;
    fake_cuda_fail(function, k, FAILURE);
    lgh_status status = lgh_plan_create(&plan, context, &p->options);
    assert_true((status == LGH_SUCCESS) == (plan != NULL));
    if (status != LGH_SUCCESS || !plan_may_succeed(function, k, calls))
        assert_reported(status, function, k);
    lgh_plan_destroy(plan);
    print_message("after call %lld of %s\n", (long long)k, function);
    assert_nothing_left(before);
    lgh_assert_success(lgh_plan_create(&plan, context, &p->options));
    lgh_plan_destroy(plan);
    close_fake_device(context);
}

static void plan_creation_survives_every_failure(void **state) {
    (void)state;
    problem p = problem_with_everything(20);
    lgh_context *context = open_fake_device();
    lgh_plan *plan;
    lgh_assert_success(lgh_plan_create(&plan, context, &p.options)); /* compiles the kernels */
    lgh_plan_destroy(plan);
    close_fake_device(context);
    context = open_fake_device();
    fake_cuda_reset();
    lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
    const call_counts counts = count_calls();
    lgh_plan_destroy(plan);
    close_fake_device(context);
    assert_in_range(counts.count, 15, 64);
    for (int i = 0; i < counts.count; ++i)
        for (int64_t k = 1; k <= counts.calls[i]; k = next_call(k, counts.calls[i]))
            check_plan_failure(&p, counts.names[i], k, counts.calls[i]);
}

static void lack_of_memory_has_its_own_status(void **state) {
    (void)state;
    lgh_context *context = open_fake_device();
    const fake_cuda_live before = fake_cuda_count_live();
    problem p = problem_of(20, 8, 50);
    for (int64_t k = 1; k <= 7; ++k) {
        lgh_plan *plan;
        fake_cuda_fail("cuMemAlloc", k, OUT_OF_MEMORY);
        lgh_assert_status(lgh_plan_create(&plan, context, &p.options), LGH_ERROR_OUT_OF_MEMORY);
        assert_nothing_left(before);
    }
    void *memory = &memory;
    fake_cuda_fail("cuMemAlloc", 1, OUT_OF_MEMORY);
    lgh_assert_status(lgh_memory_allocate(context, 100, &memory), LGH_ERROR_OUT_OF_MEMORY);
    assert_null(memory);
    close_fake_device(context);
}

/* ---- Passes -----------------------------------------------------------------------------------
 */

typedef struct pass_call {
    const problem *problem;
    const lgh_plan *plan;
    lgh_pass pass;
    void *workspace;
    size_t bytes;
} pass_call;

static lgh_status run_pass(const pass_call *c) {
    const lgh_forward_args forward = problem_forward_args(c->problem);
    const lgh_backward_args backward = problem_backward_args(c->problem);
    void *stream = c->problem->stream;
    fake_cuda_begin_run(stream, c->pass == LGH_PASS_FORWARD ? "lgh_forward" : "lgh_backward");
    lgh_status status = c->pass == LGH_PASS_FORWARD
                            ? lgh_forward(c->plan, &forward, c->workspace, c->bytes, stream)
                            : lgh_backward(c->plan, &backward, c->workspace, c->bytes, stream);
    fake_cuda_end_run();
    return status;
}

static void walk_pass(pass_call c) {
    lgh_assert_success(lgh_plan_workspace_size(c.plan, c.pass, c.problem->tokens, &c.bytes, NULL));
    c.workspace = fake_cuda_allocate(c.bytes);
    fake_cuda_reset();
    lgh_assert_success(run_pass(&c));
    const call_counts counts = count_calls();
    const fake_cuda_live before = fake_cuda_count_live();
    assert_in_range(counts.count, 4, 64);
    for (int i = 0; i < counts.count; ++i)
        for (int64_t k = 1; k <= counts.calls[i]; k = next_call(k, counts.calls[i])) {
            fake_cuda_reset();
            fake_cuda_fail(counts.names[i], k, FAILURE);
            lgh_status status = run_pass(&c);
            if (!releases(counts.names[i]))
                assert_reported(status, counts.names[i], k);
            assert_nothing_left(before);
        }
    fake_cuda_free(c.workspace);
}

static void passes_survive_every_failure(void **state) {
    (void)state;
    problem p = problem_with_everything(40);
    lgh_context *context = open_fake_device();
    lgh_plan *plan;
    p.options.token_block = 16;
    problem_open(&p);
    lgh_assert_success(lgh_plan_create(&plan, context, &p.options));
    walk_pass((pass_call){.problem = &p, .plan = plan, .pass = LGH_PASS_FORWARD});
    walk_pass((pass_call){.problem = &p, .plan = plan, .pass = LGH_PASS_BACKWARD});
    fake_cuda_reset();
    problem_check_forward(&p, plan);
    problem_check_backward(&p, plan);
    lgh_plan_destroy(plan);
    problem_close(&p);
    close_fake_device(context);
}

static void memory_functions_survive_every_failure(void **state) {
    (void)state;
    static const char *const functions[] = {"cuCtxPushCurrent", "cuMemAlloc", "cuMemcpyAsync",
                                            "cuStreamSynchronize"};
    lgh_context *context = open_fake_device();
    void *stream = fake_cuda_stream_create();
    const fake_cuda_live before = fake_cuda_count_live();
    for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i) {
        void *memory = NULL;
        char byte = 7;
        fake_cuda_fail(functions[i], 1, FAILURE);
        lgh_status status = lgh_memory_allocate(context, 16, &memory);
        if (status == LGH_SUCCESS)
            status = lgh_memory_copy(context, memory, &byte, 1, stream);
        assert_reported(status, functions[i], 1);
        lgh_memory_free(context, memory);
        assert_nothing_left(before);
    }
    fake_cuda_stream_destroy(stream);
    close_fake_device(context);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_creation_survives_every_failure),
        cmocka_unit_test(plan_creation_survives_every_failure),
        cmocka_unit_test(lack_of_memory_has_its_own_status),
        cmocka_unit_test(passes_survive_every_failure),
        cmocka_unit_test(memory_functions_survive_every_failure),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
