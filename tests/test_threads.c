/* test_threads.c - the worker pool: every item once, one job at a time, any number of callers. */
#include "harness.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "threads.h"

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

enum { MOST_ITEMS = 1000, MOST_WORKERS = 16 };

/* What the items of a job saw. */
typedef struct record {
    int workers;
    _Atomic int runs[MOST_ITEMS];
    _Atomic int inside[MOST_WORKERS]; /* items that run on a worker right now */
    _Atomic int faults;
} record;

static void note_item(void *job, int64_t item, int worker) {
    record *seen = job;
    if (worker < 0 || worker >= seen->workers || item < 0 || item >= MOST_ITEMS) {
        atomic_fetch_add(&seen->faults, 1);
        return;
    }
    if (atomic_fetch_add(&seen->inside[worker], 1) != 0)
        atomic_fetch_add(&seen->faults, 1);
    atomic_fetch_add(&seen->runs[item], 1);
    atomic_fetch_sub(&seen->inside[worker], 1);
}

static lgh__threads *create(int count) {
    lgh__threads *threads;
    lgh_assert_success(lgh__threads_create(&threads, count));
    return threads;
}

static void check_items(lgh__threads *threads, int64_t items) {
    static record seen;
    seen = (record){.workers = lgh__threads_count(threads)};
    lgh__threads_run(threads, note_item, &seen, items);
    assert_int_equal(atomic_load(&seen.faults), 0);
    for (int64_t i = 0; i < MOST_ITEMS; i++)
        assert_int_equal(atomic_load(&seen.runs[i]), i < items ? 1 : 0);
}

static void each_item_runs_exactly_once(void **state) {
    (void)state;
    static const int counts[] = {1, 2, 3, 8};
    static const int64_t items[] = {0, 1, 2, 3, 7, 64, MOST_ITEMS};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        lgh__threads *threads = create(counts[c]);
        assert_int_equal(lgh__threads_count(threads), counts[c]);
        for (int round = 0; round < 20; round++)
            for (size_t i = 0; i < sizeof items / sizeof items[0]; i++)
                check_items(threads, items[i]);
        lgh__threads_destroy(threads);
    }
}

static void note_thread(void *job, int64_t item, int worker) {
    pthread_t *ran_on = job;
    (void)worker;
    ran_on[item] = pthread_self();
}

static void pool_of_one_works_on_the_caller(void **state) {
    (void)state;
    pthread_t ran_on[50];
    lgh__threads *threads = create(1);
    lgh__threads_run(threads, note_thread, ran_on, 50);
    for (int i = 0; i < 50; i++)
        assert_true(pthread_equal(ran_on[i], pthread_self()));
    lgh__threads_destroy(threads);
}

/* Callers, each with jobs of its own; an item of one that meets an item of another is a fault. */
enum { CALLERS = 4, JOBS = 50, ITEMS = 20 };

typedef struct caller {
    int index;
    lgh__threads *threads;
    _Atomic int *inside; /* items that run right now, per caller */
    _Atomic int items;
    _Atomic int faults;
} caller;

static void meet_others(void *job, int64_t item, int worker) {
    caller *self = job;
    (void)item;
    (void)worker;
    atomic_fetch_add(&self->inside[self->index], 1);
    for (int other = 0; other < CALLERS; other++)
        if (other != self->index && atomic_load(&self->inside[other]) != 0)
            atomic_fetch_add(&self->faults, 1);
    sched_yield();
    atomic_fetch_add(&self->items, 1);
    atomic_fetch_sub(&self->inside[self->index], 1);
}

static void *call_repeatedly(void *argument) {
    caller *self = argument;
    for (int job = 0; job < JOBS; job++)
        lgh__threads_run(self->threads, meet_others, self, ITEMS);
    return NULL;
}

static void callers_take_turns(void **state) {
    (void)state;
    _Atomic int inside[CALLERS] = {0};
    caller callers[CALLERS] = {0};
    pthread_t caller_threads[CALLERS];
    lgh__threads *threads = create(3);
    for (int i = 0; i < CALLERS; i++) {
        callers[i].index = i;
        callers[i].threads = threads;
        callers[i].inside = inside;
        assert_int_equal(pthread_create(&caller_threads[i], NULL, call_repeatedly, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++)
        pthread_join(caller_threads[i], NULL);
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(atomic_load(&callers[i].items), JOBS * ITEMS);
        assert_int_equal(atomic_load(&callers[i].faults), 0);
    }
    lgh__threads_destroy(threads);
}

static void default_count_is_the_affinity_mask(void **state) {
    (void)state;
    cpu_set_t before;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    lgh__threads *threads = create(0);
    assert_int_equal(lgh__threads_count(threads), CPU_COUNT(&before));
    lgh__threads_destroy(threads);

    int first = 0;
    while (!CPU_ISSET(first, &before))
        first++;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    threads = create(0);
    int count = lgh__threads_count(threads);
    lgh__threads_destroy(threads);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(count, 1);
}

static void negative_count_is_refused(void **state) {
    (void)state;
    lgh__threads *threads = (lgh__threads *)state;
    lgh_assert_status(lgh__threads_create(&threads, -1), LGH_ERROR_INVALID_ARGUMENT);
    assert_null(threads);
    lgh_assert_contains(lgh_last_error(), "cpu_threads");
}

static void destroying_nothing_is_a_no_op(void **state) {
    (void)state;
    lgh__threads_destroy(NULL);
}

static int child_can_work(void) {
    record *seen = calloc(1, sizeof *seen);
    lgh__threads *threads;
    if (!seen || lgh__threads_create(&threads, 3) != LGH_SUCCESS)
        return 0;
    seen->workers = 3;
    lgh__threads_run(threads, note_item, seen, 100);
    lgh__threads_destroy(threads);
    int right = atomic_load(&seen->faults) == 0;
    for (int i = 0; i < 100; i++)
        right = right && atomic_load(&seen->runs[i]) == 1;
    free(seen);
    return right;
}

static void child_of_fork_has_a_pool_of_its_own(void **state) {
    (void)state;
    if (WITH_THREAD_SANITIZER)
        lgh_test_skip("the thread sanitizer starts no threads after a fork");
    lgh__threads *threads = create(3);
    check_items(threads, 10);
    pid_t child = fork();
    if (child == 0)
        _exit(child_can_work() ? 0 : 1);
    assert_true(child > 0);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check_items(threads, 10);
    lgh__threads_destroy(threads);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_item_runs_exactly_once),
                                       cmocka_unit_test(pool_of_one_works_on_the_caller),
                                       cmocka_unit_test(callers_take_turns),
                                       cmocka_unit_test(default_count_is_the_affinity_mask),
                                       cmocka_unit_test(negative_count_is_refused),
                                       cmocka_unit_test(destroying_nothing_is_a_no_op),
                                       cmocka_unit_test(child_of_fork_has_a_pool_of_its_own)};
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
