/* bench_data.c - what the bench computes on: random tensors in host memory. */
#include "bench_data.h"

#include "error.h"
#include "random.h"
#include "value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements are drawn from a table of normal numbers by 16 random bits each: a billion of them in
 * well under a second, and as hard on the power budget of a GPU as freshly made ones. */
#define TABLE_SIZE 65536
#define BLOCK ((int64_t)1 << 20) /* elements that a worker fills at a time */
#define PER_DRAW 4               /* elements from one 64-bit random number */

typedef struct fill_job {
    uint16_t table[TABLE_SIZE]; /* BF16 */
    uint16_t *to;
    int64_t count;
    uint64_t seed;
} fill_job;

/* Box and Muller's transform; the 1 keeps the logarithm finite. */
static double normal(uint64_t *state) {
    double u = ((double)(lgh_tool_random(state) >> 11) + 1.0) * 0x1p-53;
    double v = (double)(lgh_tool_random(state) >> 11) * 0x1p-53;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

/* The state of the generator steps by a constant, so that each block can start at its own place in
 * one long sequence. */
static uint64_t state_at(uint64_t seed, int64_t draws) {
    return seed + (uint64_t)draws * 0x9e3779b97f4a7c15u;
}

static void fill_block(void *data, int64_t item, int worker) {
    const fill_job *job = data;
    int64_t begin = item * BLOCK;
    int64_t end = begin + BLOCK < job->count ? begin + BLOCK : job->count;
    uint64_t state = state_at(job->seed, begin / PER_DRAW);
    (void)worker;
    for (int64_t i = begin; i < end;) {
        uint64_t bits = lgh_tool_random(&state);
        for (int j = 0; j < PER_DRAW && i < end; ++j, ++i, bits >>= 16)
            job->to[i] = job->table[bits & 0xffffu];
    }
}

static lgh_status fill_normal(uint16_t *to, int64_t count, double scale, uint64_t seed,
                              lgh__threads *threads) {
    fill_job *job = malloc(sizeof *job);
    RETURN_IF(!job, LGH_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes", sizeof *job);
    uint64_t state = ~seed;
    for (int i = 0; i < TABLE_SIZE; ++i)
        job->table[i] = lgh__bf16_from_float((float)(scale * normal(&state)));
    job->to = to;
    job->count = count;
    job->seed = seed;
    lgh__threads_run(threads, fill_block, job, (count + BLOCK - 1) / BLOCK);
    free(job);
    return LGH_SUCCESS;
}

static lgh_status allocate(void *into, int64_t count, size_t size) {
    void *memory = malloc((size_t)count * size);
    RETURN_IF(!memory, LGH_ERROR_OUT_OF_MEMORY, "no memory for %lld elements of %zu bytes",
              (long long)count, size);
    memcpy(into, &memory, sizeof memory);
    return LGH_SUCCESS;
}

static void fill_rows(lgh_tool_tensors *tensors, uint64_t seed) {
    uint64_t state = seed;
    for (int64_t i = 0; i < tensors->shape.tokens; ++i) {
        tensors->targets[i] = (int64_t)(lgh_tool_random(&state) % (uint64_t)tensors->shape.vocab);
        tensors->grad_logp[i] = (float)normal(&state);
    }
}

static lgh_status create(lgh_tool_tensors *tensors, uint64_t seed, lgh__threads *threads) {
    const lgh_tool_shape *s = &tensors->shape;
    int64_t hidden_count = s->tokens * s->hidden, weight_count = s->vocab * s->hidden;
    FORWARD(allocate(&tensors->hidden, hidden_count, sizeof *tensors->hidden));
    FORWARD(allocate(&tensors->weight, weight_count, sizeof *tensors->weight));
    FORWARD(allocate(&tensors->targets, s->tokens, sizeof *tensors->targets));
    FORWARD(allocate(&tensors->grad_logp, s->tokens, sizeof *tensors->grad_logp));
    uint64_t state = seed;
    FORWARD(fill_normal(tensors->hidden, hidden_count, 1.0, lgh_tool_random(&state), threads));
    FORWARD(fill_normal(tensors->weight, weight_count, 1.0 / sqrt((double)s->hidden),
                        lgh_tool_random(&state), threads));
    fill_rows(tensors, lgh_tool_random(&state));
    return LGH_SUCCESS;
}

lgh_status lgh_tool_tensors_create(lgh_tool_tensors *tensors, const lgh_tool_shape *shape,
                                   uint64_t seed, lgh__threads *threads) {
    *tensors = (lgh_tool_tensors){.shape = *shape};
    lgh_status status = create(tensors, seed, threads);
    if (status != LGH_SUCCESS)
        lgh_tool_tensors_free(tensors);
    return status;
}

void lgh_tool_tensors_free(lgh_tool_tensors *tensors) {
    free(tensors->hidden);
    free(tensors->weight);
    free(tensors->targets);
    free(tensors->grad_logp);
    *tensors = (lgh_tool_tensors){.shape = tensors->shape};
}
