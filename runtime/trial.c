/* trial.c - scratch memory on which a plan's products are tried out before use. */
#include "trial.h"

#include "error.h"
#include "row_params.h"
#include "value.h"

#include <stdlib.h>
#include <string.h>

/* Rows of A repeat with this period, a prime: equal rows then stand at positions that differ in
 * every low bit. */
#define PERIOD 61
/* Enough for the times to tell algorithms apart. */
#define MOST_TOKENS 2048
#define TIMED_RUNS 3

static const lgh__kernel_name compare_name = {"compare_rows.cu", "compare_rows_kernel",
                                              "#define LGH_THREADS 256\n"};

static int64_t greatest(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Uniform in [-1, 1): sums of their products round in every step. */
static void fill_random(uint16_t *values, int64_t count) {
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (int64_t i = 0; i < count; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        values[i] = lgh__bf16_from_float((float)(int32_t)(state >> 32) * 0x1p-31f);
    }
}

/* Repeats the first `have` bytes until `want` are filled; a multiple of `have` precedes each copy,
 * so that the period holds. */
static lgh_status repeat(void *memory, size_t have, size_t want, void *stream) {
    for (size_t filled = have; filled < want; filled *= 2)
        FORWARD(lgh__driver_copy((char *)memory + filled, memory,
                                 filled < want - filled ? filled : want - filled, stream));
    return LGH_SUCCESS;
}

static lgh_status upload_pattern(lgh__trial *t, int64_t count) {
    uint16_t *pattern = malloc((size_t)count * sizeof *pattern);
    RETURN_IF(!pattern, LGH_ERROR_OUT_OF_MEMORY, "no memory for %lld trial values",
              (long long)count);
    fill_random(pattern, count);
    lgh_status status = lgh__driver_copy(t->a, pattern, (size_t)count * sizeof *pattern, t->stream);
    if (status == LGH_SUCCESS)
        status = lgh__driver_synchronize(t->stream);
    free(pattern);
    return status;
}

static lgh_status allocate(lgh__trial *t, const lgh__trial_sizes *s) {
    const int64_t row = greatest(2 * s->stride, s->width); /* of A: hidden, or gradients */
    const int64_t result_row = greatest(s->stride, s->width);
    const int64_t result = greatest(t->tokens * result_row, s->chunk * s->width);
    FORWARD(lgh__driver_allocate(&t->a, (size_t)(greatest(t->tokens, PERIOD) * row) * 2));
    FORWARD(lgh__driver_allocate(&t->b, (size_t)(greatest(s->chunk, t->tokens) * s->width) * 2));
    FORWARD(lgh__driver_allocate(&t->c, (size_t)result * 4));
    FORWARD(lgh__driver_allocate(&t->reference, (size_t)(PERIOD * result_row) * 4));
    return lgh__driver_allocate(&t->mismatches, sizeof(unsigned));
}

static lgh_status fill(lgh__trial *t, const lgh__trial_sizes *s) {
    const int64_t row = greatest(2 * s->stride, s->width);
    const size_t pattern = (size_t)(PERIOD * row) * 2;
    const size_t b_bytes = (size_t)(greatest(s->chunk, t->tokens) * s->width) * 2;
    const size_t copied = pattern < b_bytes ? pattern : b_bytes;
    FORWARD(upload_pattern(t, PERIOD * row));
    FORWARD(lgh__driver_copy(t->b, t->a, copied, t->stream));
    return repeat(t->b, copied, b_bytes, t->stream);
}

lgh_status lgh__trial_open(lgh__trial *t, lgh__cuda *cuda, const lgh__trial_sizes *sizes) {
    t->cuda = cuda;
    t->tokens = sizes->tokens < MOST_TOKENS ? sizes->tokens : MOST_TOKENS;
    FORWARD(lgh__cuda_kernel(cuda, &compare_name, &t->compare));
    FORWARD(lgh__driver_stream_create(&t->stream));
    FORWARD(lgh__driver_event_create(&t->begin));
    FORWARD(lgh__driver_event_create(&t->end));
    FORWARD(allocate(t, sizes));
    return fill(t, sizes);
}

void lgh__trial_close(lgh__trial *t) {
    if (t->stream)
        lgh__driver_synchronize(t->stream);
    lgh__driver_free(t->mismatches);
    lgh__driver_free(t->reference);
    lgh__driver_free(t->c);
    lgh__driver_free(t->b);
    lgh__driver_free(t->a);
    lgh__driver_event_destroy(t->end);
    lgh__driver_event_destroy(t->begin);
    lgh__driver_stream_destroy(t->stream);
    memset(t, 0, sizeof *t);
}

static size_t result_row_bytes(const lgh__matmul *shape) {
    return (size_t)shape->c_stride * lgh_dtype_size(shape->result);
}

/* Rows of the result that a run over `tokens` tokens writes. */
static int64_t result_rows(const lgh__matmul *shape, int64_t tokens) {
    return shape->a_transposed ? shape->m : tokens;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The most tokens that both the scratch and the plan's calls allow. */
static int64_t longest_run(const lgh__trial *t, const lgh__matmul *shape) {
    return least(t->tokens, shape->a_transposed ? shape->k : shape->m);
}

lgh_status lgh__trial_begin(lgh__trial *t, const lgh__matmul *shape, int keep_reference) {
    const size_t row = (size_t)shape->a_stride * 2;
    if (!keep_reference)
        t->has_reference = 0;
    return repeat(t->a, PERIOD * row, (size_t)greatest(t->tokens, PERIOD) * row, t->stream);
}

static lgh_status run(lgh__trial *t, const lgh__product *product, int64_t tokens, int accumulate) {
    const lgh__matmul *s = &product->shape;
    const lgh__operands operands = {t->a, t->b, t->c, s->a_stride, s->b_stride, s->c_stride};
    return lgh__product_run(product, t->cuda->cublaslt, tokens, accumulate, &operands, t->stream);
}

static lgh_status write_reference(lgh__trial *t, const lgh__product *product) {
    const lgh__matmul *s = &product->shape;
    const int64_t tokens = longest_run(t, s);
    FORWARD(run(t, product, tokens, 0));
    t->reference_shape = *s;
    t->has_reference = 1;
    return lgh__driver_copy(t->reference, t->c,
                            (size_t)least(result_rows(s, tokens), PERIOD) * result_row_bytes(s),
                            t->stream);
}

/* Counts the rows that differ from the reference into t->mismatches. */
static lgh_status compare(lgh__trial *t, const lgh__matmul *s, int64_t tokens) {
    const long long words = (long long)lgh_dtype_size(s->result) / 2;
    int64_t rows = result_rows(s, tokens);
    if (s->a_transposed)
        rows = least(rows, PERIOD); /* every row is another one */
    const lgh_compare_rows_params p = {
        .rows = t->c,
        .row_stride = s->c_stride * words,
        .reference = t->reference,
        .reference_stride = t->reference_shape.c_stride * words,
        .words = least(s->n, t->reference_shape.n) * words,
        .period = PERIOD,
        .mismatches = t->mismatches,
    };
    return lgh__driver_launch(t->compare, rows, 256, &p, t->stream);
}

static lgh_status run_and_compare(lgh__trial *t, const lgh__product *product, int64_t tokens) {
    const lgh__matmul *s = &product->shape;
    FORWARD(run(t, product, tokens, 0));
    FORWARD(compare(t, s, tokens));
    if (!s->accumulate)
        return LGH_SUCCESS;
    FORWARD(lgh__driver_zero(t->c, (size_t)result_rows(s, tokens), result_row_bytes(s),
                             result_row_bytes(s), t->stream));
    FORWARD(run(t, product, tokens, 1));
    return compare(t, s, tokens);
}

/* The lengths stand for the kinds of a last tile: one row, one row more or less than a tile. */
static lgh_status run_lengths(lgh__trial *t, const lgh__product *product) {
    static const int64_t lengths[] = {1, 2, 127, 129, 257};
    const int64_t longest = longest_run(t, &product->shape);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i)
        if (lengths[i] < longest && !product->shape.a_transposed)
            FORWARD(run_and_compare(t, product, lengths[i]));
    return run_and_compare(t, product, longest);
}

lgh_status lgh__trial_test(lgh__trial *t, const lgh__product *product, int *passes) {
    unsigned mismatches = 0;
    FORWARD(lgh__driver_zero(t->mismatches, 1, sizeof mismatches, sizeof mismatches, t->stream));
    if (!t->has_reference)
        FORWARD(write_reference(t, product));
    FORWARD(run_lengths(t, product));
    FORWARD(lgh__driver_copy(&mismatches, t->mismatches, sizeof mismatches, t->stream));
    FORWARD(lgh__driver_synchronize(t->stream));
    *passes = mismatches == 0;
    return LGH_SUCCESS;
}

lgh_status lgh__trial_time(lgh__trial *t, const lgh__product *product, float *milliseconds) {
    const int64_t longest = longest_run(t, &product->shape);
    float best = 0.0f, elapsed;
    for (int i = 0; i < TIMED_RUNS; ++i) {
        FORWARD(lgh__driver_event_record(t->begin, t->stream));
        FORWARD(run(t, product, longest, product->shape.accumulate));
        FORWARD(lgh__driver_event_record(t->end, t->stream));
        FORWARD(lgh__driver_event_elapsed(&elapsed, t->begin, t->end));
        if (i == 0 || elapsed < best)
            best = elapsed;
    }
    *milliseconds = best;
    return LGH_SUCCESS;
}
