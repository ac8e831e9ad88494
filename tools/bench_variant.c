/* bench_variant.c - the ways to cut one of the three big products into matrix products. */
#include "bench_variant.h"

#include <stdio.h>

int lgh_tool_variants(lgh_tool_variant *variants, const lgh_tool_shape *shape,
                      lgh_tool_product_kind kind, lgh_dtype operands) {
    static const struct {
        lgh_tool_cut cut;
        int64_t step;
    } cuts[LGH_TOOL_CUTS] = {{LGH_TOOL_WHOLE, 0},
                             {LGH_TOOL_CUT_VOCAB, 8192},
                             {LGH_TOOL_CUT_VOCAB, 16384},
                             {LGH_TOOL_CUT_VOCAB, 32768},
                             {LGH_TOOL_CUT_TOKENS, 2048}};
    int count = 0;
    for (int i = 0; i < LGH_TOOL_CUTS; ++i) {
        int64_t whole = cuts[i].cut == LGH_TOOL_CUT_VOCAB ? shape->vocab : shape->tokens;
        if (cuts[i].step < whole)
            variants[count++] =
                (lgh_tool_variant){*shape, kind, cuts[i].cut, cuts[i].step, operands};
    }
    return count;
}

int64_t lgh_tool_variant_blocks(const lgh_tool_variant *v) {
    if (v->cut == LGH_TOOL_WHOLE)
        return 1;
    int64_t whole = v->cut == LGH_TOOL_CUT_VOCAB ? v->shape.vocab : v->shape.tokens;
    return (whole + v->step - 1) / v->step;
}

/* The part of [0, whole) that block `index` covers. */
typedef struct span {
    int64_t begin, count;
} span;

static span cover(int64_t whole, int64_t step, int64_t index, int is_cut) {
    if (!is_cut)
        return (span){0, whole};
    int64_t left = whole - index * step;
    return (span){index * step, left < step ? left : step};
}

/* Rows of logits start 16-byte aligned, so that an odd vocabulary is no handicap. */
static int64_t logits_stride(const lgh_tool_variant *v) {
    int64_t columns = v->cut == LGH_TOOL_CUT_VOCAB ? v->step : v->shape.vocab;
    return (columns + 7) / 8 * 8;
}

size_t lgh_tool_variant_logits_bytes(const lgh_tool_variant *v) {
    int64_t rows = v->cut == LGH_TOOL_CUT_TOKENS ? v->step : v->shape.tokens;
    return (size_t)(rows * logits_stride(v)) * lgh_dtype_size(v->operands);
}

static int alignment(int64_t stride, lgh_dtype dtype) {
    int64_t bytes = stride * (int64_t)lgh_dtype_size(dtype);
    int power = 16;
    while (bytes % power != 0)
        power /= 2;
    return power;
}

static void align(lgh__matmul *m) {
    m->a_alignment = alignment(m->a_stride, m->operands);
    m->b_alignment = alignment(m->b_stride, m->operands);
    m->c_alignment = alignment(m->c_stride, m->result);
}

static lgh_tool_block logits_block(const lgh_tool_variant *v, span rows, span columns) {
    int64_t d = v->shape.hidden;
    return (lgh_tool_block){.matmul = {.m = rows.count,
                                       .n = columns.count,
                                       .k = d,
                                       .b_transposed = 1,
                                       .operands = v->operands,
                                       .result = v->operands,
                                       .a_stride = d,
                                       .b_stride = d,
                                       .c_stride = logits_stride(v)},
                            .a = (size_t)(rows.begin * d) * lgh_dtype_size(v->operands),
                            .b = (size_t)(columns.begin * d) * lgh_dtype_size(v->operands)};
}

static lgh_tool_block dhidden_block(const lgh_tool_variant *v, span rows, span columns) {
    int64_t d = v->shape.hidden;
    lgh_dtype result = v->cut == LGH_TOOL_CUT_VOCAB ? LGH_FP32 : v->operands;
    return (lgh_tool_block){.matmul = {.m = rows.count,
                                       .n = d,
                                       .k = columns.count,
                                       .accumulate = columns.begin > 0,
                                       .operands = v->operands,
                                       .result = result,
                                       .a_stride = logits_stride(v),
                                       .b_stride = d,
                                       .c_stride = d},
                            .b = (size_t)(columns.begin * d) * lgh_dtype_size(v->operands),
                            .c = (size_t)(rows.begin * d) * lgh_dtype_size(result)};
}

static lgh_tool_block dweight_block(const lgh_tool_variant *v, span rows, span columns) {
    int64_t d = v->shape.hidden;
    return (lgh_tool_block){.matmul = {.m = columns.count,
                                       .n = d,
                                       .k = rows.count,
                                       .a_transposed = 1,
                                       .accumulate = 1,
                                       .operands = v->operands,
                                       .result = LGH_FP32,
                                       .a_stride = logits_stride(v),
                                       .b_stride = d,
                                       .c_stride = d},
                            .b = (size_t)(rows.begin * d) * lgh_dtype_size(v->operands),
                            .c = (size_t)(columns.begin * d) * sizeof(float)};
}

lgh_tool_block lgh_tool_variant_block(const lgh_tool_variant *v, int64_t index) {
    span rows = cover(v->shape.tokens, v->step, index, v->cut == LGH_TOOL_CUT_TOKENS);
    span columns = cover(v->shape.vocab, v->step, index, v->cut == LGH_TOOL_CUT_VOCAB);
    lgh_tool_block block = v->kind == LGH_TOOL_LOGITS    ? logits_block(v, rows, columns)
                           : v->kind == LGH_TOOL_DHIDDEN ? dhidden_block(v, rows, columns)
                                                         : dweight_block(v, rows, columns);
    align(&block.matmul);
    return block;
}

void lgh_tool_variant_name(const lgh_tool_variant *v, char *text, size_t capacity) {
    if (v->cut == LGH_TOOL_WHOLE)
        snprintf(text, capacity, "whole");
    else
        snprintf(text, capacity, "%s chunks of %lld",
                 v->cut == LGH_TOOL_CUT_VOCAB ? "vocabulary" : "token", (long long)v->step);
}
