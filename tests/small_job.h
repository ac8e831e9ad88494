/* small_job.h - a small problem that any thread may work on: unlike the fixture's calls, every step
 * gives a status, and nothing leaves with longjmp. */
#ifndef LGH_SMALL_JOB_H
#define LGH_SMALL_JOB_H

#include "loggerhead/loggerhead.h"

enum { JOB_TOKENS = 40, JOB_WIDTH = 16, JOB_VOCAB = 301 };

/** Inputs and results, on the host and, in the same layout, on the device. */
typedef struct job_data {
    _Alignas(16) uint16_t hidden[JOB_TOKENS * JOB_WIDTH]; /* BF16 */
    _Alignas(16) uint16_t weight[JOB_VOCAB * JOB_WIDTH];
    _Alignas(16) int64_t targets[JOB_TOKENS];
    float temperatures[JOB_TOKENS];
    float grad_logp[JOB_TOKENS];
    float grad_entropy[JOB_TOKENS];
    float logp[JOB_TOKENS];
    float lse[JOB_TOKENS];
    float entropy[JOB_TOKENS];
    _Alignas(16) float dhidden[JOB_TOKENS * JOB_WIDTH];
    _Alignas(16) float dweight[JOB_VOCAB * JOB_WIDTH];
} job_data;

typedef struct small_job {
    lgh_device_type type; /* of the context that it opens, where it is given none */
    lgh_context *context; /* NULL: opens one for itself */
    const lgh_plan *plan; /* NULL: makes one for itself */
    void *stream;
    int rounds; /* how often it makes both calls */
    job_data data;
    lgh_status status;
    char error[1024]; /* the thread's last error, where the status is one */
} small_job;

/** Random inputs of this seed, results that nobody wrote, one round. */
void small_job_fill(small_job *job, lgh_device_type type, uint64_t seed);

lgh_plan_options small_job_options(void);

/** Does all of it and sets the status; fit for pthread_create. */
void *small_job_run(void *job);

/** The case fails unless the job succeeded with results that are within the promises. */
void small_job_check(const small_job *job);

/** The case fails unless both jobs' results have the same bits. */
void small_job_check_same(const small_job *a, const small_job *b);

/** Whether all results are the same. */
int small_job_equals(const small_job *a, const small_job *b);

#endif
