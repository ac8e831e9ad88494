/* test_threads_and_contexts.c - where calls may come from: a thread that never made one, two
 * contexts of one device, two threads with one plan, and the child of a fork. A first call on a
 * fresh thread that failed was seen in verl. */
#include "harness.h"
#include "small_job.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if LGH_WITH_CUDA
#include "context.h"
#include "cuda_device.h"
#endif

#if defined(__SANITIZE_THREAD__)
#define WITH_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_THREAD_SANITIZER 1
#endif
#endif
#ifndef WITH_THREAD_SANITIZER
#define WITH_THREAD_SANITIZER 0
#endif

enum { WORKERS = 3, ROUNDS = 20 };

/* ---- Jobs ---------------------------------------------------------------------------------- */

static void fill(small_job *job, uint64_t seed) {
    small_job_fill(job, lgh_test_device(), seed);
}

static void run_on_fresh_thread(small_job *job) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, small_job_run, job), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void run_at_once(small_job *jobs, int count) {
    pthread_t threads[WORKERS];
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, small_job_run, &jobs[i]), 0);
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static lgh_context *open_context(void) {
    lgh_context_options options = LGH_CONTEXT_OPTIONS_INIT;
    lgh_context *context;
    options.type = lgh_test_device();
    lgh_assert_success(lgh_context_create(&context, &options));
    return context;
}

static lgh_plan *make_plan(lgh_context *context) {
    const lgh_plan_options options = small_job_options();
    lgh_plan *plan;
    lgh_assert_success(lgh_plan_create(&plan, context, &options));
    return plan;
}

/* A stream of its own on CUDA, so that work of several threads is under way at once. */
static void *create_stream(const lgh_context *context) {
    void *stream = NULL;
#if LGH_WITH_CUDA
    if (context->cuda) {
        lgh_assert_success(lgh__driver_push(&context->cuda->device));
        lgh_status status = lgh__driver_stream_create(&stream);
        lgh__driver_pop();
        lgh_assert_success(status);
    }
#else
    (void)context;
#endif
    return stream;
}

static void destroy_stream(const lgh_context *context, void *stream) {
#if LGH_WITH_CUDA
    if (context->cuda) {
        lgh_assert_success(lgh__driver_push(&context->cuda->device));
        lgh__driver_stream_destroy(stream);
        lgh__driver_pop();
    }
#else
    (void)context;
    (void)stream;
#endif
}

/* ---- Threads ------------------------------------------------------------------------------- */

/* The job opens the context too: nothing of the library ran on any other thread before, where the
 * case has a process of its own. */
static void everything_works_on_a_fresh_thread(void **state) {
    (void)state;
    static small_job fresh, other;
    fill(&fresh, 31);
    run_on_fresh_thread(&fresh);
    lgh_test_context(); /* skips the case without a GPU */
    small_job_check(&fresh);
    fill(&other, 32);
    run_on_fresh_thread(&other);
    small_job_check(&other);
    assert_false(small_job_equals(&fresh, &other));
}

static void a_thread_may_use_what_another_one_made(void **state) {
    (void)state;
    static small_job here, there;
    fill(&here, 33);
    fill(&there, 33);
    here.context = there.context = lgh_test_context();
    lgh_plan *plan = make_plan(here.context);
    here.plan = there.plan = plan;
    run_on_fresh_thread(&there);
    small_job_run(&here);
    small_job_check(&here);
    small_job_check_same(&there, &here);
    lgh_plan_destroy(plan);
}

/* Each with inputs of its own, so that a mix-up shows. */
static void threads_share_a_plan_with_a_workspace_each(void **state) {
    (void)state;
    static small_job jobs[WORKERS], alone;
    lgh_context *context = lgh_test_context();
    lgh_plan *plan = make_plan(context);
    for (int i = 0; i < WORKERS; i++) {
        fill(&jobs[i], 40 + (uint64_t)i);
        jobs[i].context = context;
        jobs[i].plan = plan;
        jobs[i].rounds = ROUNDS;
        jobs[i].stream = create_stream(context);
    }
    run_at_once(jobs, WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        small_job_check(&jobs[i]);
        fill(&alone, 40 + (uint64_t)i);
        alone.context = context;
        alone.plan = plan;
        small_job_run(&alone);
        small_job_check_same(&jobs[i], &alone);
        assert_false(small_job_equals(&jobs[i], &jobs[(i + 1) % WORKERS]));
        destroy_stream(context, jobs[i].stream);
    }
    lgh_plan_destroy(plan);
}

/* ---- Contexts ------------------------------------------------------------------------------ */

static void two_contexts_of_a_device_live_side_by_side(void **state) {
    (void)state;
    static small_job first, second, after;
    lgh_test_context();
    lgh_context *contexts[] = {open_context(), open_context()};
    lgh_plan *plans[] = {make_plan(contexts[0]), make_plan(contexts[1])};
    fill(&first, 50);
    fill(&second, 50);
    fill(&after, 50);
    first.context = contexts[0];
    first.plan = plans[0];
    second.context = after.context = contexts[1];
    second.plan = after.plan = plans[1];
    small_job_run(&first);
    small_job_run(&second);
    small_job_check(&first);
    small_job_check_same(&first, &second);
    lgh_plan_destroy(plans[0]);
    lgh_context_destroy(contexts[0]);
    small_job_run(&after);
    small_job_check(&after);
    small_job_check_same(&after, &second);
    lgh_plan_destroy(plans[1]);
    lgh_context_destroy(contexts[1]);
}

/* Each thread opens a context, makes a plan, works and closes, while the others do. */
static void threads_with_a_context_each_work_at_once(void **state) {
    (void)state;
    static small_job jobs[WORKERS], alone;
    lgh_test_context();
    for (int i = 0; i < WORKERS; i++) {
        fill(&jobs[i], 60 + (uint64_t)i);
        jobs[i].rounds = ROUNDS;
    }
    run_at_once(jobs, WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        small_job_check(&jobs[i]);
        fill(&alone, 60 + (uint64_t)i);
        small_job_run(&alone);
        small_job_check_same(&jobs[i], &alone);
    }
}

/* ---- Fork ---------------------------------------------------------------------------------- */

/* How a child's work ended. */
enum { CHILD_RIGHT = 0, CHILD_WRONG = 1, CHILD_REFUSED = 2, CHILD_LACKS_GPU = 3 };

/* Right: the bits of `expected`, where there is one. Refused: a status with a text. */
static int work_as_child(uint64_t seed, const small_job *expected) {
    static small_job job;
    small_job_fill(&job, lgh_test_device(), seed);
    small_job_run(&job);
    if (job.status == LGH_ERROR_NO_DEVICE || job.status == LGH_ERROR_LIBRARY_NOT_FOUND)
        return CHILD_LACKS_GPU;
    if (job.status != LGH_SUCCESS) {
        print_message("the child was refused: %s\n", job.error);
        fflush(stdout);
        return strlen(job.error) > 20 ? CHILD_REFUSED : CHILD_WRONG;
    }
    if (expected)
        return small_job_equals(&job, expected) ? CHILD_RIGHT : CHILD_WRONG;
    for (int i = 0; i < JOB_TOKENS; i++)
        if (!(job.data.logp[i] < 0))
            return CHILD_WRONG;
    return CHILD_RIGHT;
}

/* The exit code of a child that works; a child that was killed fails the case. */
static int fork_and_work(uint64_t seed, const small_job *expected) {
    int status = -1;
    if (WITH_THREAD_SANITIZER)
        lgh_test_skip("the thread sanitizer starts no threads after a fork");
    fflush(NULL); /* or the child would print it once more */
    const pid_t child = fork();
    if (child == 0)
        _exit(work_as_child(seed, expected));
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* First of the list: in a process that used the device before, it would be the next case. */
static void a_child_of_fork_that_is_first_to_use_the_device_works(void **state) {
    (void)state;
    static small_job job;
    const int code = fork_and_work(70, NULL);
    lgh_test_context(); /* skips the case without a GPU */
    assert_int_equal(code, CHILD_RIGHT);
    fill(&job, 70);
    small_job_run(&job);
    small_job_check(&job);
}

/* CUDA's driver cannot be used in the child of a process that used it: there a clear status will
 * do. In neither case is the parent any the worse. */
static void a_child_of_fork_works_with_its_own_context_or_is_refused(void **state) {
    (void)state;
    static small_job before, after;
    fill(&before, 71);
    fill(&after, 71);
    before.context = after.context = lgh_test_context();
    small_job_run(&before);
    small_job_check(&before);
    const int code = fork_and_work(71, &before);
    if (lgh_test_device() == LGH_DEVICE_CPU)
        assert_int_equal(code, CHILD_RIGHT);
    else
        assert_true(code == CHILD_RIGHT || code == CHILD_REFUSED);
    small_job_run(&after);
    small_job_check_same(&after, &before);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_of_fork_that_is_first_to_use_the_device_works),
        cmocka_unit_test(everything_works_on_a_fresh_thread),
        cmocka_unit_test(a_thread_may_use_what_another_one_made),
        cmocka_unit_test(threads_share_a_plan_with_a_workspace_each),
        cmocka_unit_test(two_contexts_of_a_device_live_side_by_side),
        cmocka_unit_test(threads_with_a_context_each_work_at_once),
        cmocka_unit_test(a_child_of_fork_works_with_its_own_context_or_is_refused),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
