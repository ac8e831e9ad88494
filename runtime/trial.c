/* trial.c - scratch memory on which a plan's products are tried out before use. */
#include "trial.h"

#include "error.h"
#include "integers.h"
#include "row_params.h"

#include <stdlib.h>
#include <string.h>

/* Rows of A repeat with this period, a prime: equal rows then stand at positions that differ in
 * every low bit. */
#define PERIOD 61
#define TIMED_RUNS 3

static const lgh__kernel_name compare_name = {"compare_rows.cu", "compare_rows_kernel",
                                              "#define LGH_THREADS 256\n"};

/* A number of either sign with absolute value in [0.5, 1): sums of products round in every step. */
static void put_random(void *values, int64_t i, lgh_dtype dtype, uint64_t bits) {
    const uint32_t sign = (uint32_t)(bits >> 63), low = (uint32_t)(bits >> 40);
    if (dtype == LGH_BF16)
        ((uint16_t *)values)[i] = (uint16_t)(sign << 15 | 0x3f00u | (low & 0x7fu));
    else if (dtype == LGH_FP16)
        ((uint16_t *)values)[i] = (uint16_t)(sign << 15 | 0x3800u | (low & 0x3ffu));
    else
        ((uint32_t *)values)[i] = sign << 31 | 0x3f000000u | (low & 0x7fffffu);
}

static void fill_random(void *values, int64_t count, lgh_dtype dtype) {
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (int64_t i = 0; i < count; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        put_random(values, i, dtype, state);
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

static lgh_status upload_random(void *to, int64_t count, lgh_dtype dtype, void *stream) {
    const size_t bytes = (size_t)count * lgh_dtype_size(dtype);
    void *values = malloc(bytes);
    RETURN_IF(!values, LGH_ERROR_OUT_OF_MEMORY, "no memory for %lld trial values",
              (long long)count);
    fill_random(values, count, dtype);
    lgh_status status = lgh__driver_copy(to, values, bytes, stream);
    if (status == LGH_SUCCESS)
        status = lgh__driver_synchronize(stream);
    free(values);
    return status;
}

static lgh_status allocate(lgh__trial *t, const lgh__trial_sizes *s) {
    const int64_t row = lgh__greatest(2 * s->stride, s->width); /* of A: hidden, or gradients */
    const int64_t result_row = lgh__greatest(s->stride, s->width);
    const int64_t result = lgh__greatest(t->tokens * result_row, s->chunk * s->width);
    const int64_t b_rows = lgh__greatest(s->chunk, t->tokens);
    FORWARD(
        lgh__driver_allocate(&t->a, (size_t)(lgh__greatest(t->tokens, PERIOD) * row) * t->element));
    FORWARD(lgh__driver_allocate(&t->b, (size_t)(b_rows * s->width) * t->element));
    FORWARD(lgh__driver_allocate(&t->c, (size_t)result * 4));
    FORWARD(lgh__driver_allocate(&t->reference, (size_t)(PERIOD * result_row) * 4));
    FORWARD(lgh__driver_allocate(&t->bias, (size_t)s->stride * 4));
    FORWARD(lgh__driver_allocate(&t->scalars, sizeof(lgh_gradient_scale)));
    return lgh__driver_allocate(&t->mismatches, sizeof(unsigned));
}

static lgh_status fill(lgh__trial *t, const lgh__trial_sizes *s) {
    static const lgh_gradient_scale unscaled = {1.0f, 1.0f, 1.0f, 0.0f};
    const int64_t pattern = PERIOD * lgh__greatest(2 * s->stride, s->width);
    const size_t pattern_bytes = (size_t)pattern * t->element;
    const size_t b_bytes = (size_t)(lgh__greatest(s->chunk, t->tokens) * s->width) * t->element;
    const size_t copied = pattern_bytes < b_bytes ? pattern_bytes : b_bytes;
    FORWARD(upload_random(t->a, pattern, s->operands, t->stream));
    FORWARD(upload_random(t->bias, s->stride, LGH_FP32, t->stream));
    FORWARD(lgh__driver_copy(t->scalars, &unscaled, sizeof unscaled, t->stream));
    FORWARD(lgh__driver_copy(t->b, t->a, copied, t->stream));
    return repeat(t->b, copied, b_bytes, t->stream);
}

lgh_status lgh__trial_open(lgh__trial *t, lgh__cuda *cuda, const lgh__trial_sizes *sizes) {
    t->cuda = cuda;
    t->tokens = sizes->tokens < LGH__TRIAL_TOKENS ? sizes->tokens : LGH__TRIAL_TOKENS;
    t->element = lgh_dtype_size(sizes->operands);
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
    lgh__driver_free(t->scalars);
    lgh__driver_free(t->bias);
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

lgh_status lgh__trial_begin(lgh__trial *t, const lgh__matmul *shape, int keep_reference) {
    const size_t row = (size_t)shape->a_stride * t->element;
    if (!keep_reference)
        t->has_reference = 0;
    return repeat(t->a, PERIOD * row, (size_t)lgh__greatest(t->tokens, PERIOD) * row, t->stream);
}

static lgh_status run(lgh__trial *t, const lgh__product *product, int64_t tokens, int accumulate) {
    const lgh__matmul *s = &product->shape;
    const lgh_gradient_scale *scalars = t->scalars;
    const lgh__run run = {
        .tokens = tokens,
        .accumulate = accumulate,
        .a_stride = s->a_stride,
        .b_stride = s->b_stride,
        .c_stride = s->c_stride,
        .operands = {.a = t->a,
                     .b = t->b,
                     .c = t->c,
                     .bias = t->bias,
                     .alpha = &scalars->one,
                     .beta = accumulate ? &scalars->one : &scalars->zero},
    };
    return lgh__product_run(product, t->cuda->cublaslt, &run, t->stream);
}

static lgh_status write_reference(lgh__trial *t, const lgh__product *product) {
    const lgh__matmul *s = &product->shape;
    const int64_t tokens = t->tokens;
    FORWARD(run(t, product, tokens, 0));
    t->reference_shape = *s;
    t->has_reference = 1;
    return lgh__driver_copy(
        t->reference, t->c,
        (size_t)lgh__least(result_rows(s, tokens), PERIOD) * result_row_bytes(s), t->stream);
}

/* Counts the rows that differ from the reference into t->mismatches. */
static lgh_status compare(lgh__trial *t, const lgh__matmul *s, int64_t tokens) {
    const long long words = (long long)lgh_dtype_size(s->result) / 2;
    int64_t rows = result_rows(s, tokens);
    if (s->a_transposed)
        rows = lgh__least(rows, PERIOD); /* every row is another one */
    const lgh_compare_rows_params p = {
        .rows = t->c,
        .row_stride = s->c_stride * words,
        .reference = t->reference,
        .reference_stride = t->reference_shape.c_stride * words,
        .words = lgh__least(s->n, t->reference_shape.n) * words,
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
    FORWARD(lgh__driver_fill(t->c, 0, (size_t)result_rows(s, tokens), result_row_bytes(s),
                             result_row_bytes(s), t->stream));
    FORWARD(run(t, product, tokens, 1));
    return compare(t, s, tokens);
}

/* The lengths stand for the kinds of a last tile: one row, one row more or less than a tile. */
static lgh_status run_lengths(lgh__trial *t, const lgh__product *product) {
    static const int64_t lengths[] = {1, 2, 127, 129, 257};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i)
        if (lengths[i] < t->tokens && !product->shape.a_transposed)
            FORWARD(run_and_compare(t, product, lengths[i]));
    return run_and_compare(t, product, t->tokens);
}

lgh_status lgh__trial_test(lgh__trial *t, const lgh__product *product, int *passes) {
    unsigned mismatches = 0;
    FORWARD(lgh__driver_fill(t->mismatches, 0, 1, sizeof mismatches, sizeof mismatches, t->stream));
    if (!t->has_reference)
        FORWARD(write_reference(t, product));
    FORWARD(run_lengths(t, product));
    FORWARD(lgh__driver_copy(&mismatches, t->mismatches, sizeof mismatches, t->stream));
    FORWARD(lgh__driver_synchronize(t->stream));
    *passes = mismatches == 0;
    return LGH_SUCCESS;
}

lgh_status lgh__trial_time(lgh__trial *t, const lgh__product *product, float *milliseconds) {
    float best = 0.0f, elapsed;
    for (int i = 0; i < TIMED_RUNS; ++i) {
        FORWARD(lgh__driver_event_record(t->begin, t->stream));
        FORWARD(run(t, product, t->tokens, product->shape.accumulate));
        FORWARD(lgh__driver_event_record(t->end, t->stream));
        FORWARD(lgh__driver_event_elapsed(&elapsed, t->begin, t->end));
        if (i == 0 || elapsed < best)
            best = elapsed;
    }
    *milliseconds = best;
    return LGH_SUCCESS;
}
