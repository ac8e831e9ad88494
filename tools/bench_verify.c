/* bench_verify.c - whether the results are right, before any time is taken. */
#include "bench_verify.h"

#include "bench_check.h"
#include "bench_reference.h"
#include "error.h"

#include <stdlib.h>
#include <string.h>

#define DWEIGHT_ROWS 16 /* of each of the two groups */

/* What one run of forward and backward wrote, in host memory. */
typedef struct outputs {
    float *statistics; /* logp, lse, entropy: [3, N] */
    uint16_t *dhidden; /* [N, D] */
    float *dweight[2]; /* [rows, D] of the entries that are targets (1) and of those that are not */
} outputs;

typedef struct sample {
    int64_t tokens[LGH_TOOL_REFERENCE_ROWS];
    int64_t token_count;
    int64_t entries[2][DWEIGHT_ROWS]; /* by whether they are targets */
    int64_t entry_counts[2];
} sample;

typedef struct verification {
    lgh_tool_verdict *verdict;
    lgh_tool_subject *subject;
    const lgh_tool_gpu *gpu;
    const lgh_tool_tensors *tensors;
    lgh__threads *threads;
    sample sample;
    outputs first, second;
} verification;

/* ---- Running ------------------------------------------------------------------------------- */

static lgh_status allocate(void *into, size_t bytes) {
    void *memory = malloc(bytes > 0 ? bytes : 1);
    RETURN_IF(!memory, LGH_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes", bytes);
    memcpy(into, &memory, sizeof memory);
    return LGH_SUCCESS;
}

static size_t statistics_bytes(const lgh_tool_shape *shape) {
    return 3 * (size_t)shape->tokens * sizeof(float);
}

static size_t dhidden_bytes(const lgh_tool_shape *shape) {
    return (size_t)(shape->tokens * shape->hidden) * sizeof(uint16_t);
}

static size_t row_bytes(const lgh_tool_shape *shape) {
    return (size_t)shape->hidden * sizeof(float);
}

static lgh_status allocate_outputs(outputs *o, const lgh_tool_shape *shape) {
    FORWARD(allocate(&o->statistics, statistics_bytes(shape)));
    FORWARD(allocate(&o->dhidden, dhidden_bytes(shape)));
    FORWARD(allocate(&o->dweight[0], DWEIGHT_ROWS * row_bytes(shape)));
    return allocate(&o->dweight[1], DWEIGHT_ROWS * row_bytes(shape));
}

static void free_outputs(outputs *o) {
    free(o->statistics);
    free(o->dhidden);
    free(o->dweight[0]);
    free(o->dweight[1]);
}

static lgh_status download_rows(const verification *v, int wanted, float *rows) {
    const int64_t d = v->tensors->shape.hidden;
    for (int64_t r = 0; r < v->sample.entry_counts[wanted]; ++r)
        FORWARD(lgh_tool_gpu_download(v->gpu, rows + r * d,
                                      v->subject->dweight + v->sample.entries[wanted][r] * d,
                                      row_bytes(&v->tensors->shape)));
    return LGH_SUCCESS;
}

static lgh_status download(const verification *v, outputs *o) {
    const lgh_tool_shape *shape = &v->tensors->shape;
    FORWARD(lgh_tool_gpu_download(v->gpu, o->statistics, v->subject->statistics,
                                  statistics_bytes(shape)));
    FORWARD(lgh_tool_gpu_download(v->gpu, o->dhidden, v->subject->dhidden, dhidden_bytes(shape)));
    FORWARD(download_rows(v, 0, o->dweight[0]));
    return download_rows(v, 1, o->dweight[1]);
}

static int same_outputs(const verification *v) {
    const lgh_tool_shape *shape = &v->tensors->shape;
    const outputs *a = &v->first, *b = &v->second;
    int same = memcmp(a->statistics, b->statistics, statistics_bytes(shape)) == 0 &&
               memcmp(a->dhidden, b->dhidden, dhidden_bytes(shape)) == 0;
    for (int wanted = 0; wanted < 2; ++wanted)
        same &= memcmp(a->dweight[wanted], b->dweight[wanted],
                       (size_t)v->sample.entry_counts[wanted] * row_bytes(shape)) == 0;
    return same;
}

/* The memory in use is read around the very first calls: later ones could hide what those took. The
 * outputs are cleared between, so that nothing of the first run is taken for the second's. */
static lgh_status run_twice(verification *v) {
    lgh_tool_verdict *verdict = v->verdict;
    FORWARD(lgh_tool_gpu_used(v->gpu, &verdict->used_before));
    FORWARD(lgh_tool_subject_both(v->subject, v->gpu->stream));
    FORWARD(lgh_tool_gpu_used(v->gpu, &verdict->used_after));
    FORWARD(download(v, &v->first));
    FORWARD(lgh_tool_subject_clear(v->subject, v->gpu));
    FORWARD(lgh_tool_subject_both(v->subject, v->gpu->stream));
    FORWARD(download(v, &v->second));
    verdict->equal = same_outputs(v);
    return lgh_tool_subject_intact(v->subject, v->gpu, &verdict->intact);
}

/* ---- Comparing ----------------------------------------------------------------------------- */

/* The bound grows with the largest |z|. That of all N V logits is not known; the largest of those
 * computed here is no larger, which only makes the bound stricter. */
static void compare_statistics(verification *v, const lgh_tool_reference *reference,
                               double largest) {
    const int64_t n = v->tensors->shape.tokens, count = v->sample.token_count;
    const double promise = lgh_tool_promise(largest, v->tensors->shape.hidden);
    for (int which = 0; which < 3; ++which) {
        float actual[LGH_TOOL_REFERENCE_ROWS];
        for (int64_t r = 0; r < count; ++r)
            actual[r] = v->first.statistics[which * n + v->sample.tokens[r]];
        v->verdict->errors[LGH_TOOL_ERROR_LOGP + which] = (lgh_tool_error){
            count, lgh_tool_largest_error(actual, reference->statistics[which], count), promise};
    }
}

static lgh_status compare_dhidden(verification *v, const lgh_tool_reference *reference) {
    const int64_t d = v->tensors->shape.hidden, count = v->sample.token_count;
    float *actual = NULL;
    FORWARD(allocate(&actual, (size_t)(count * d) * sizeof *actual));
    lgh_tool_gather_bf16(actual, v->first.dhidden, v->sample.tokens, count, d);
    v->verdict->errors[LGH_TOOL_ERROR_DHIDDEN] =
        (lgh_tool_error){count, lgh_tool_l2_error(actual, reference->dhidden, count * d),
                         LGH_TOOL_PROMISE_GRADIENT_BF16};
    free(actual);
    return LGH_SUCCESS;
}

static lgh_status compare_dweight(verification *v, int wanted, double *largest) {
    const int64_t n = v->tensors->shape.tokens, d = v->tensors->shape.hidden;
    const int64_t count = v->sample.entry_counts[wanted];
    double *rows = NULL;
    if (count == 0)
        return LGH_SUCCESS; /* every entry, or none, is a target */
    FORWARD(allocate(&rows, (size_t)(count * d) * sizeof *rows));
    lgh_status status =
        lgh_tool_dweight_rows(v->tensors, v->first.statistics + n, v->sample.entries[wanted], count,
                              rows, largest, v->threads);
    if (status == LGH_SUCCESS)
        v->verdict->errors[LGH_TOOL_ERROR_DWEIGHT_OTHERS + wanted] =
            (lgh_tool_error){count, lgh_tool_l2_error(v->first.dweight[wanted], rows, count * d),
                             LGH_TOOL_PROMISE_GRADIENT_FP32};
    free(rows);
    return status;
}

static lgh_status compare(verification *v) {
    lgh_tool_reference reference;
    double largest = 0.0;
    FORWARD(lgh_tool_reference_compute(&reference, v->tensors, v->sample.tokens,
                                       v->sample.token_count));
    lgh_status status = compare_dhidden(v, &reference);
    if (status == LGH_SUCCESS)
        status = compare_dweight(v, 1, &largest);
    if (status == LGH_SUCCESS)
        status = compare_dweight(v, 0, &largest);
    if (status == LGH_SUCCESS)
        compare_statistics(v, &reference, largest);
    lgh_tool_reference_free(&reference);
    return status;
}

/* ---- Verdict ------------------------------------------------------------------------------- */

/* A NaN is no error within any bound. */
static void judge(lgh_tool_verdict *verdict) {
    verdict->right =
        verdict->equal && verdict->intact && verdict->used_before == verdict->used_after;
    for (int i = 0; i < LGH_TOOL_ERRORS; ++i)
        verdict->right &= verdict->errors[i].error <= verdict->errors[i].promise;
}

static lgh_status verify(verification *v) {
    sample *s = &v->sample;
    s->token_count = lgh_tool_spread(s->tokens, LGH_TOOL_REFERENCE_ROWS, v->tensors->shape.tokens);
    for (int wanted = 0; wanted < 2; ++wanted)
        FORWARD(lgh_tool_vocab_sample(v->tensors, wanted, s->entries[wanted], DWEIGHT_ROWS,
                                      &s->entry_counts[wanted]));
    FORWARD(allocate_outputs(&v->first, &v->tensors->shape));
    FORWARD(allocate_outputs(&v->second, &v->tensors->shape));
    FORWARD(run_twice(v));
    FORWARD(compare(v));
    judge(v->verdict);
    return LGH_SUCCESS;
}

lgh_status lgh_tool_verify(lgh_tool_verdict *verdict, lgh_tool_subject *subject,
                           const lgh_tool_gpu *gpu, const lgh_tool_tensors *tensors,
                           lgh__threads *threads) {
    verification v = {
        .verdict = verdict, .subject = subject, .gpu = gpu, .tensors = tensors, .threads = threads};
    *verdict = (lgh_tool_verdict){.right = 0};
    lgh_status status = verify(&v);
    free_outputs(&v.first);
    free_outputs(&v.second);
    return status;
}
