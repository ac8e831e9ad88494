/* threads.c - a pool of workers that sleep between jobs.
 *
 * The thread that calls lgh__threads_run is worker 0, so a pool of one has no thread of its own.
 * fork() copies only the calling thread: a pool made before it must not be used or destroyed in the
 * child, where a pool of its own works.
 */
#include "threads.h"

#include "error.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct worker {
    struct lgh__threads *pool;
    int index; /* >= 1 */
    pthread_t thread;
    pthread_cond_t start;
    bool called; /* to a job that it has not taken yet */
} worker;

struct lgh__threads {
    int count;
    pthread_mutex_t turn; /* held by the caller whose job runs */
    pthread_mutex_t lock; /* guards the fields below up to next_item, and every worker's called */
    pthread_cond_t done;
    int busy; /* workers other than 0 that were called and have not finished */
    bool stop;
    lgh__job run;
    void *job;
    int64_t items;
    _Atomic int64_t next_item;
    worker workers[]; /* count; [0] has no thread */
};

static void run_items(lgh__threads *pool, lgh__job run, void *job, int64_t items, int index) {
    int64_t item;
    while ((item = atomic_fetch_add(&pool->next_item, 1)) < items)
        run(job, item, index);
}

static void *work(void *argument) {
    worker *self = argument;
    lgh__threads *pool = self->pool;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!self->called && !pool->stop)
            pthread_cond_wait(&self->start, &pool->lock);
        if (pool->stop)
            break;
        self->called = false;
        lgh__job run = pool->run;
        void *job = pool->job;
        int64_t items = pool->items;
        pthread_mutex_unlock(&pool->lock);
        run_items(pool, run, job, items, self->index);
        pthread_mutex_lock(&pool->lock);
        if (--pool->busy == 0)
            pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* Processors in this process's affinity mask, however many the machine has. */
static int processors(void) {
    for (int capacity = 1024; capacity <= 1 << 20; capacity *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)capacity);
        size_t bytes = CPU_ALLOC_SIZE((size_t)capacity);
        int count = 0;
        if (set && sched_getaffinity(0, bytes, set) == 0)
            count = CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
        if (count > 0)
            return count;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

/* Ends the workers 1 .. started - 1. */
static void stop_workers(lgh__threads *pool, int started) {
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    for (int i = 1; i < started; i++)
        pthread_cond_signal(&pool->workers[i].start);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 1; i < started; i++) {
        pthread_join(pool->workers[i].thread, NULL);
        pthread_cond_destroy(&pool->workers[i].start);
    }
}

/* Starts every worker, or none. They take no signals: handlers run on the program's own threads. */
static lgh_status start_workers(lgh__threads *pool) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    int started = 1;
    while (started < pool->count && error == 0) {
        worker *next = &pool->workers[started];
        next->pool = pool;
        next->index = started;
        pthread_cond_init(&next->start, NULL);
        error = pthread_create(&next->thread, NULL, work, next);
        if (error == 0)
            started++;
        else
            pthread_cond_destroy(&next->start);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        return LGH_SUCCESS;
    stop_workers(pool, started);
    return FAIL(
        LGH_ERROR_SYSTEM,
        "thread %d of %d did not start (error %d); ask for fewer with cpu_threads, or raise "
        "the limit on processes",
        started + 1, pool->count, error);
}

static void release(lgh__threads *pool) {
    pthread_cond_destroy(&pool->done);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->turn);
    free(pool);
}

lgh_status lgh__threads_create(lgh__threads **threads, int count) {
    *threads = NULL;
    RETURN_IF(count < 0, LGH_ERROR_INVALID_ARGUMENT,
              "cpu_threads is %d; give a number of threads, or 0 for one per processor", count);
    if (count == 0)
        count = processors();
    lgh__threads *pool = calloc(1, sizeof *pool + (size_t)count * sizeof pool->workers[0]);
    RETURN_IF(!pool, LGH_ERROR_OUT_OF_MEMORY, "no memory for a pool of %d threads", count);
    pool->count = count;
    pthread_mutex_init(&pool->turn, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->done, NULL);
    lgh_status status;
    GOTO_IF(status, start_workers(pool), start_failed);
    *threads = pool;
    return LGH_SUCCESS;

start_failed:
    release(pool);
    return status;
}

void lgh__threads_destroy(lgh__threads *threads) {
    if (!threads)
        return;
    stop_workers(threads, threads->count);
    release(threads);
}

int lgh__threads_count(const lgh__threads *threads) {
    return threads->count;
}

/* Hands a job to workers 1 .. helpers. */
static void call_workers(lgh__threads *pool, lgh__job run, void *job, int64_t items, int helpers) {
    pthread_mutex_lock(&pool->lock);
    pool->run = run;
    pool->job = job;
    pool->items = items;
    pool->busy = helpers;
    for (int i = 1; i <= helpers; i++) {
        pool->workers[i].called = true;
        pthread_cond_signal(&pool->workers[i].start);
    }
    pthread_mutex_unlock(&pool->lock);
}

static void wait_for_workers(lgh__threads *pool) {
    pthread_mutex_lock(&pool->lock);
    while (pool->busy > 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void lgh__threads_run(lgh__threads *threads, lgh__job run, void *job, int64_t items) {
    if (items <= 0)
        return;
    int helpers = (items < threads->count ? (int)items : threads->count) - 1;
    pthread_mutex_lock(&threads->turn);
    atomic_store(&threads->next_item, 0);
    if (helpers > 0)
        call_workers(threads, run, job, items, helpers);
    run_items(threads, run, job, items, 0);
    if (helpers > 0)
        wait_for_workers(threads);
    pthread_mutex_unlock(&threads->turn);
}
