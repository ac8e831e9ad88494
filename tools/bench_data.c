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

/* ---- Matrices ------------------------------------------------------------------------------ */

typedef struct fill_job {
    union {
        uint16_t halves[TABLE_SIZE]; /* BF16 or FP16 */
        float floats[TABLE_SIZE];
    } table;
    lgh_dtype dtype;
    void *to;
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

static void store(const fill_job *job, int64_t i, uint64_t index) {
    if (job->dtype == LGH_FP32)
        ((float *)job->to)[i] = job->table.floats[index];
    else
        ((uint16_t *)job->to)[i] = job->table.halves[index];
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
            store(job, i, bits & 0xffffu);
    }
}

static void fill_table(fill_job *job, double scale) {
    uint64_t state = ~job->seed;
    for (int i = 0; i < TABLE_SIZE; ++i) {
        float number = (float)(scale * normal(&state));
        if (job->dtype == LGH_FP32)
            job->table.floats[i] = number;
        else
            job->table.halves[i] = job->dtype == LGH_BF16 ? lgh__bf16_from_float(number)
                                                          : lgh__fp16_from_float(number);
    }
}

static lgh_status fill_normal(void *to, lgh_dtype dtype, int64_t count, double scale, uint64_t seed,
                              lgh__threads *threads) {
    fill_job *job = malloc(sizeof *job);
    RETURN_IF(!job, LGH_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes", sizeof *job);
    job->dtype = dtype;
    job->to = to;
    job->count = count;
    job->seed = seed;
    fill_table(job, scale);
    lgh__threads_run(threads, fill_block, job, (count + BLOCK - 1) / BLOCK);
    free(job);
    return LGH_SUCCESS;
}

/* ---- Vectors ------------------------------------------------------------------------------- */

static void fill_tokens(lgh_tool_tensors *t, uint64_t seed) {
    uint64_t state = seed;
    for (int64_t i = 0; i < t->shape.tokens; ++i) {
        t->targets[i] = (int64_t)(lgh_tool_random(&state) % (uint64_t)t->shape.vocab);
        t->grad_logp[i] = (float)normal(&state);
        t->grad_entropy[i] = (float)normal(&state);
        t->grad_lse[i] = (float)normal(&state);
        t->temperatures[i] = 0.75f + 0.25f * lgh_tool_random_symmetric(&state);
    }
}

/* One bias for both dtypes, so that they give the same logits. */
static void fill_bias(lgh_tool_tensors *t, uint64_t seed) {
    uint64_t state = seed;
    for (int64_t v = 0; v < t->shape.vocab; ++v) {
        t->bias_bf16[v] = lgh__bf16_from_float((float)(0.25 * normal(&state)));
        t->bias[v] = lgh__float_from_bf16(t->bias_bf16[v]);
    }
}

/* ---- Tensors ------------------------------------------------------------------------------- */

/* A TiB is more than any host of one GPU has; allocators that trap are not asked for more. */
#define MOST_BYTES ((size_t)1 << 40)

lgh_status lgh_tool_allocate(void *into, int64_t count, size_t size) {
    const size_t elements = count > 0 ? (size_t)count : 1, bytes = size > 0 ? size : 1;
    void *memory = elements <= MOST_BYTES / bytes ? calloc(elements, bytes) : NULL;
    RETURN_IF(!memory, LGH_ERROR_OUT_OF_MEMORY, "no memory for %lld elements of %zu bytes",
              (long long)count, size);
    memcpy(into, &memory, sizeof memory);
    return LGH_SUCCESS;
}

static lgh_status allocate_tokens(lgh_tool_tensors *t) {
    const int64_t n = t->shape.tokens;
    FORWARD(lgh_tool_allocate(&t->hidden, n * t->shape.hidden, lgh_dtype_size(t->dtypes->hidden)));
    FORWARD(lgh_tool_allocate(&t->targets, n, sizeof *t->targets));
    FORWARD(lgh_tool_allocate(&t->temperatures, n, sizeof *t->temperatures));
    FORWARD(lgh_tool_allocate(&t->grad_logp, n, sizeof *t->grad_logp));
    FORWARD(lgh_tool_allocate(&t->grad_entropy, n, sizeof *t->grad_entropy));
    return lgh_tool_allocate(&t->grad_lse, n, sizeof *t->grad_lse);
}

static lgh_status create(lgh_tool_tensors *t, uint64_t seed, lgh__threads *threads) {
    const int64_t d = t->shape.hidden, v = t->shape.vocab;
    FORWARD(allocate_tokens(t));
    FORWARD(lgh_tool_allocate(&t->weight, v * d, lgh_dtype_size(t->dtypes->weight)));
    FORWARD(lgh_tool_allocate(&t->bias, v, sizeof *t->bias));
    FORWARD(lgh_tool_allocate(&t->bias_bf16, v, sizeof *t->bias_bf16));
    uint64_t state = seed;
    FORWARD(fill_normal(t->hidden, t->dtypes->hidden, t->shape.tokens * d, 1.0,
                        lgh_tool_random(&state), threads));
    FORWARD(fill_normal(t->weight, t->dtypes->weight, v * d, 1.0 / sqrt((double)d),
                        lgh_tool_random(&state), threads));
    fill_tokens(t, lgh_tool_random(&state));
    fill_bias(t, lgh_tool_random(&state));
    return LGH_SUCCESS;
}

lgh_status lgh_tool_tensors_create(lgh_tool_tensors *tensors, const lgh_tool_shape *shape,
                                   const lgh_tool_dtypes *dtypes, uint64_t seed,
                                   lgh__threads *threads) {
    *tensors = (lgh_tool_tensors){.shape = *shape, .dtypes = dtypes};
    lgh_status status = create(tensors, seed, threads);
    if (status != LGH_SUCCESS)
        lgh_tool_tensors_free(tensors);
    return status;
}

static void copy_tokens(lgh_tool_tensors *few, const lgh_tool_tensors *from,
                        const int64_t *tokens) {
    const size_t row = (size_t)from->shape.hidden * lgh_dtype_size(from->dtypes->hidden);
    for (int64_t r = 0; r < few->shape.tokens; ++r) {
        const int64_t i = tokens[r];
        memcpy((char *)few->hidden + (size_t)r * row, (const char *)from->hidden + (size_t)i * row,
               row);
        few->targets[r] = from->targets[i];
        few->temperatures[r] = from->temperatures[i];
        few->grad_logp[r] = from->grad_logp[i];
        few->grad_entropy[r] = from->grad_entropy[i];
        few->grad_lse[r] = from->grad_lse[i];
    }
}

lgh_status lgh_tool_tensors_gather(lgh_tool_tensors *few, const lgh_tool_tensors *tensors,
                                   const int64_t *tokens, int64_t count) {
    *few = (lgh_tool_tensors){.shape = tensors->shape,
                              .dtypes = tensors->dtypes,
                              .weight = tensors->weight,
                              .bias = tensors->bias,
                              .bias_bf16 = tensors->bias_bf16};
    few->shape.tokens = count;
    lgh_status status = allocate_tokens(few);
    if (status == LGH_SUCCESS)
        copy_tokens(few, tensors, tokens);
    else
        lgh_tool_tensors_free_gathered(few);
    return status;
}

void lgh_tool_tensors_free(lgh_tool_tensors *t) {
    free(t->weight);
    free(t->bias);
    free(t->bias_bf16);
    lgh_tool_tensors_free_gathered(t);
}

void lgh_tool_tensors_free_gathered(lgh_tool_tensors *t) {
    free(t->hidden);
    free(t->targets);
    free(t->temperatures);
    free(t->grad_logp);
    free(t->grad_entropy);
    free(t->grad_lse);
    *t = (lgh_tool_tensors){.shape = t->shape};
}
