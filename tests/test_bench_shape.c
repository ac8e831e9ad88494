/* test_bench_shape.c - what the bench measures: shapes, cuts of products, times, a cold cache. */
#include "harness.h"

#include "../tools/bench_cache.h"
#include "../tools/bench_dtype.h"
#include "../tools/bench_measure.h"
#include "../tools/bench_variant.h"
#include "value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Shapes -------------------------------------------------------------------------------- */

static void shapes_are_found_by_name_numbers_and_group(void **state) {
    lgh_tool_shapes shapes = {.count = 0};
    char problem[256] = "";
    (void)state;
    assert_int_equal(lgh_tool_shapes_parse(&shapes, "deepseek-v3,3x5x7,held", problem, 256), 0);
    assert_int_equal(shapes.count, 8);
    assert_string_equal(shapes.items[0].name, "deepseek-v3");
    assert_int_equal(shapes.items[0].hidden, 7168);
    assert_string_equal(shapes.items[1].name, "3x5x7");
    assert_int_equal(shapes.items[1].tokens, 3);
    assert_int_equal(shapes.items[1].vocab, 7);
    assert_string_equal(shapes.items[2].name, "4096x3584x152064");
    assert_int_equal(shapes.items[7].vocab, 32000);
}

static void every_known_name_is_its_shape(void **state) {
    lgh_tool_shapes shapes = {.count = 0}, again = {.count = 0};
    char problem[256] = "";
    (void)state;
    assert_int_equal(lgh_tool_shapes_parse(&shapes, "models,held", problem, 256), 0);
    assert_int_equal(shapes.count, 12);
    for (size_t i = 0; i < shapes.count; ++i)
        assert_int_equal(lgh_tool_shapes_parse(&again, shapes.items[i].name, problem, 256), 0);
    assert_int_equal(again.count, 12);
    for (size_t i = 0; i < shapes.count; ++i) {
        assert_string_equal(again.items[i].name, shapes.items[i].name);
        assert_int_equal(again.items[i].tokens, shapes.items[i].tokens);
        assert_int_equal(again.items[i].hidden, shapes.items[i].hidden);
        assert_int_equal(again.items[i].vocab, shapes.items[i].vocab);
    }
}

static void wrong_shapes_are_explained(void **state) {
    static const char *const wrong[] = {
        "",      "qwen3-8b,", ",qwen3-8b",        "0x8x8",         "8x8",    "8x8x8x8", "8x8x",
        "axbxc", "-1x8x8",    "8x8x999999999999", "8x8x268435457", " 8x8x8", "8x8x1"};
    char problem[512];
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
        lgh_tool_shapes shapes = {.count = 0};
        assert_int_equal(lgh_tool_shapes_parse(&shapes, wrong[i], problem, sizeof problem), -1);
        lgh_assert_contains(problem, "no shape '");
    }
    lgh_tool_shapes shapes = {.count = 0};
    assert_int_equal(lgh_tool_shapes_parse(&shapes, "qwen3-8", problem, sizeof problem), -1);
    lgh_assert_contains(problem, "did you mean 'qwen3-8b'");
    assert_int_equal(
        lgh_tool_shapes_parse(&shapes, "held,held,held,held,held,held", problem, sizeof problem),
        -1);
    lgh_assert_contains(problem, "more than 32");
}

/* ---- Cuts of products ---------------------------------------------------------------------- */

static double value(const void *matrix, lgh_dtype dtype, int64_t index) {
    float number;
    lgh_tool_widen(&number, matrix, dtype, index, 1);
    return (double)number;
}

static void store(void *matrix, lgh_dtype dtype, int64_t index, double number) {
    if (dtype == LGH_FP32)
        ((float *)matrix)[index] = (float)number;
    else
        ((uint16_t *)matrix)[index] = dtype == LGH_BF16 ? lgh__bf16_from_float((float)number)
                                                        : lgh__fp16_from_float((float)number);
}

/* What lgh__cublaslt_run computes, as its header defines it. */
static void multiply(const lgh__matmul *m, const void *a, const void *b, void *c) {
    for (int64_t i = 0; i < m->m; ++i)
        for (int64_t j = 0; j < m->n; ++j) {
            int64_t at = i * m->c_stride + j;
            double sum = m->accumulate ? value(c, m->result, at) : 0.0;
            for (int64_t k = 0; k < m->k; ++k)
                sum += value(a, m->operands,
                             m->a_transposed ? k * m->a_stride + i : i * m->a_stride + k) *
                       value(b, m->operands,
                             m->b_transposed ? j * m->b_stride + k : k * m->b_stride + j);
            store(c, m->result, at, sum);
        }
}

enum { TOKENS = 9, HIDDEN = 6, VOCAB = 21 };

/* Small whole numbers: every sum is exact in every dtype, so that any cut gives equal bits. */
static void fill_whole(void *numbers, lgh_dtype dtype, int count, uint64_t seed) {
    lgh_random random = {seed};
    for (int i = 0; i < count; ++i)
        store(numbers, dtype, i, (double)(lgh_random_below(&random, 3) - 1));
}

/* Large enough for FP32. */
typedef struct products {
    lgh_dtype operands;
    float hidden[TOKENS * HIDDEN], weight[VOCAB * HIDDEN];
    float logits[TOKENS * 24]; /* whole or a chunk */
    float dhidden[TOKENS * HIDDEN], dweight[VOCAB * HIDDEN];
} products;

/* The logits of one block as the product of kind LOGITS leaves them. */
static void make_logits(products *p, lgh_tool_variant variant, int64_t index) {
    variant.kind = LGH_TOOL_LOGITS;
    lgh_tool_block block = lgh_tool_variant_block(&variant, index);
    multiply(&block.matmul, (char *)p->hidden + block.a, (char *)p->weight + block.b,
             (char *)p->logits + block.c);
}

static void run_gradients(products *p, lgh_tool_cut cut, int64_t step) {
    lgh_tool_variant v = {lgh_tool_shape_make(TOKENS, HIDDEN, VOCAB), LGH_TOOL_LOGITS, cut, step,
                          p->operands};
    fill_whole(p->hidden, p->operands, TOKENS * HIDDEN, 11);
    fill_whole(p->weight, p->operands, VOCAB * HIDDEN, 12);
    memset(p->dhidden, 0x7f, sizeof p->dhidden); /* to be overwritten */
    memset(p->dweight, 0, sizeof p->dweight);    /* to be added to */
    assert_true(lgh_tool_variant_logits_bytes(&v) <= sizeof p->logits);
    for (int64_t i = 0; i < lgh_tool_variant_blocks(&v); ++i) {
        make_logits(p, v, i);
        v.kind = LGH_TOOL_DHIDDEN;
        lgh_tool_block block = lgh_tool_variant_block(&v, i);
        multiply(&block.matmul, p->logits, (char *)p->weight + block.b,
                 (char *)p->dhidden + block.c);
        v.kind = LGH_TOOL_DWEIGHT;
        block = lgh_tool_variant_block(&v, i);
        multiply(&block.matmul, p->logits, (char *)p->hidden + block.b,
                 (char *)p->dweight + block.c);
    }
}

static double dhidden_at(const products *p, lgh_tool_cut cut, int i) {
    return value(p->dhidden, cut == LGH_TOOL_CUT_VOCAB ? LGH_FP32 : p->operands, i);
}

static double logit(const products *p, int i, int v) {
    double x = 0.0;
    for (int k = 0; k < HIDDEN; ++k)
        x += value(p->hidden, p->operands, i * HIDDEN + k) *
             value(p->weight, p->operands, v * HIDDEN + k);
    return x;
}

static void expect_gradients(const products *p, lgh_tool_cut cut) {
    for (int k = 0; k < HIDDEN; ++k) {
        for (int i = 0; i < TOKENS; ++i) {
            double sum = 0.0;
            for (int v = 0; v < VOCAB; ++v)
                sum += logit(p, i, v) * value(p->weight, p->operands, v * HIDDEN + k);
            lgh_assert_close(dhidden_at(p, cut, i * HIDDEN + k), sum, 0.0, "dhidden");
        }
        for (int v = 0; v < VOCAB; ++v) {
            double sum = 0.0;
            for (int i = 0; i < TOKENS; ++i)
                sum += logit(p, i, v) * value(p->hidden, p->operands, i * HIDDEN + k);
            lgh_assert_close((double)p->dweight[v * HIDDEN + k], sum, 0.0, "dweight");
        }
    }
}

static void check_cuts(lgh_dtype operands) {
    static const struct {
        lgh_tool_cut cut;
        int64_t step;
    } cuts[] = {{LGH_TOOL_WHOLE, 0},     {LGH_TOOL_CUT_VOCAB, 8},  {LGH_TOOL_CUT_VOCAB, 7},
                {LGH_TOOL_CUT_VOCAB, 5}, {LGH_TOOL_CUT_TOKENS, 4}, {LGH_TOOL_CUT_TOKENS, 3}};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; ++i) {
        products p = {.operands = operands};
        run_gradients(&p, cuts[i].cut, cuts[i].step);
        expect_gradients(&p, cuts[i].cut);
    }
}

static void every_cut_computes_the_same_products(void **state) {
    (void)state;
    check_cuts(LGH_BF16);
    check_cuts(LGH_FP16);
    check_cuts(LGH_FP32);
}

static void cuts_that_leave_one_chunk_are_left_out(void **state) {
    lgh_tool_variant variants[LGH_TOOL_CUTS];
    lgh_tool_shape shape = lgh_tool_shape_make(8192, 4096, 151936);
    char name[64];
    (void)state;
    assert_int_equal(lgh_tool_variants(variants, &shape, LGH_TOOL_LOGITS, LGH_BF16), 5);
    assert_int_equal(lgh_tool_variant_blocks(&variants[1]), 19);
    lgh_tool_variant_name(&variants[1], name, sizeof name);
    assert_string_equal(name, "vocabulary chunks of 8192");
    shape = lgh_tool_shape_make(2048, 4096, 32000);
    assert_int_equal(lgh_tool_variants(variants, &shape, LGH_TOOL_DHIDDEN, LGH_BF16), 3);
    shape = lgh_tool_shape_make(1, 1, 1);
    assert_int_equal(lgh_tool_variants(variants, &shape, LGH_TOOL_DWEIGHT, LGH_BF16), 1);
}

static void alignments_follow_from_strides(void **state) {
    lgh_tool_variant v = {lgh_tool_shape_make(4, 6, 5), LGH_TOOL_DWEIGHT, LGH_TOOL_WHOLE, 0,
                          LGH_BF16};
    lgh__matmul m = lgh_tool_variant_block(&v, 0).matmul;
    (void)state;
    assert_int_equal(m.a_stride, 8); /* 5 logits, padded */
    assert_int_equal(m.a_alignment, 16);
    assert_int_equal(m.b_alignment, 4); /* 6 BF16 */
    assert_int_equal(m.c_alignment, 8); /* 6 FP32 */
    v.operands = LGH_FP32;
    assert_int_equal(lgh_tool_variant_block(&v, 0).matmul.b_alignment, 8);
    assert_int_equal(lgh_tool_variant_logits_bytes(&v), 4 * 8 * sizeof(float));
}

/* ---- Times --------------------------------------------------------------------------------- */

static void times_are_sorted(void **state) {
    const double odd[] = {3.0, 1.0, 2.0}, even[] = {4.0, 1.0, 2.0, 3.0};
    lgh_tool_times t = lgh_tool_times_of(odd, 3);
    (void)state;
    lgh_assert_close(t.median, 2.0, 0.0, "median of three");
    lgh_assert_close(t.least, 1.0, 0.0, "least");
    lgh_assert_close(t.most, 3.0, 0.0, "most");
    lgh_assert_close(lgh_tool_times_of(even, 4).median, 2.5, 0.0, "median of four");
    lgh_assert_close(lgh_tool_times_of(odd, 1).median, 3.0, 0.0, "median of one");
}

/* ---- Cache of a cold start ----------------------------------------------------------------- */

static void enter_and_leave(const char *before) {
    lgh_tool_cache cache;
    struct stat info;
    char inside[1200];
    lgh_assert_success(lgh_tool_cache_enter(&cache));
    assert_string_equal(getenv("LGH_CACHE_DIR"), cache.folder);
    snprintf(inside, sizeof inside, "%s/entry", cache.folder);
    assert_int_equal(mkdir(inside, 0700), 0);
    strcat(inside, "/file");
    FILE *file = fopen(inside, "w");
    assert_non_null(file);
    fclose(file);
    lgh_tool_cache_leave(&cache);
    assert_int_equal(stat(cache.folder, &info), -1);
    if (before)
        assert_string_equal(getenv("LGH_CACHE_DIR"), before);
    else
        assert_null(getenv("LGH_CACHE_DIR"));
}

static void a_cold_cache_leaves_nothing_behind(void **state) {
    lgh_tool_cache cache;
    (void)state;
    setenv("LGH_CACHE_DIR", "/some/where", 1);
    enter_and_leave("/some/where");
    unsetenv("LGH_CACHE_DIR");
    enter_and_leave(NULL);
    setenv("TMPDIR", "/nonexistent", 1);
    lgh_assert_status(lgh_tool_cache_enter(&cache), LGH_ERROR_SYSTEM);
    lgh_assert_contains(lgh_last_error(), "TMPDIR");
    unsetenv("TMPDIR");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_found_by_name_numbers_and_group),
        cmocka_unit_test(every_known_name_is_its_shape),
        cmocka_unit_test(wrong_shapes_are_explained),
        cmocka_unit_test(every_cut_computes_the_same_products),
        cmocka_unit_test(cuts_that_leave_one_chunk_are_left_out),
        cmocka_unit_test(alignments_follow_from_strides),
        cmocka_unit_test(times_are_sorted),
        cmocka_unit_test(a_cold_cache_leaves_nothing_behind),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
