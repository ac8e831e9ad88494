/* threads.h - a pool that runs the items of one job at a time. */
#ifndef LGH_THREADS_H
#define LGH_THREADS_H

#include "loggerhead/loggerhead.h"

typedef struct lgh__threads lgh__threads;

/** Does item `item` of a job on worker `worker` (0 <= worker < lgh__threads_count). */
typedef void (*lgh__job)(void *job, int64_t item, int worker);

/** Starts `count` workers, 0 = one per processor that this process may use. */
lgh_status lgh__threads_create(lgh__threads **threads, int count);
void lgh__threads_destroy(lgh__threads *threads);
int lgh__threads_count(const lgh__threads *threads);

/**
 * Runs items 0 .. items - 1, each once, in any order and on any worker, and returns when all are
 * done. Calls from several threads take turns.
 */
void lgh__threads_run(lgh__threads *threads, lgh__job run, void *job, int64_t items);

#endif
