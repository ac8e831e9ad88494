/* bench_product.c - the bare matrix products that everything is measured against. */
#include "bench_product.h"

#include "error.h"

#include <math.h>
#include <stdlib.h>

#define ALGORITHMS 8
#define WORKSPACE_BYTES ((size_t)32 << 20) /* what NVIDIA advises on Hopper */

/* ---- Operands ------------------------------------------------------------------------------ */

static size_t largest_logits(const lgh_tool_tensors *t) {
    lgh_tool_variant variants[LGH_TOOL_CUTS];
    size_t largest = 0;
    int count = lgh_tool_variants(variants, &t->shape, LGH_TOOL_LOGITS, t->dtypes->operands);
    for (int i = 0; i < count; ++i) {
        size_t bytes = lgh_tool_variant_logits_bytes(&variants[i]);
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

/* Whole logits do not fit every GPU: then the largest variants are left out. */
static lgh_status allocate_logits(lgh_tool_operands *operands) {
    size_t available, total, bytes = largest_logits(operands->buffers->tensors);
    FORWARD(lgh__driver_memory_info(&available, &total));
    if (bytes > available / 10 * 9)
        bytes = available / 10 * 9;
    operands->logits_bytes = bytes;
    FORWARD(lgh__driver_allocate(&operands->logits, bytes));
    return lgh_tool_device_clear(operands->buffers->device, operands->logits, bytes);
}

static lgh_status convert_hidden(lgh_tool_operands *operands) {
    const lgh_tool_tensors *t = operands->buffers->tensors;
    const int64_t count = t->shape.tokens * t->shape.hidden;
    const size_t bytes = (size_t)count * sizeof(float);
    operands->hidden = operands->buffers->hidden;
    if (t->dtypes->hidden == t->dtypes->operands)
        return LGH_SUCCESS;
    float *wide;
    FORWARD(lgh_tool_allocate(&wide, count, sizeof *wide));
    lgh_tool_widen(wide, t->hidden, t->dtypes->hidden, 0, count);
    lgh_status status = lgh__driver_allocate(&operands->converted, bytes);
    if (status == LGH_SUCCESS)
        status = lgh_tool_device_copy(operands->buffers->device, operands->converted, wide, bytes);
    operands->hidden = operands->converted;
    free(wide);
    return status;
}

static lgh_status open_operands(lgh_tool_operands *operands) {
    FORWARD(lgh__cublaslt_open(&operands->cublaslt));
    FORWARD(lgh__driver_allocate(&operands->workspace, WORKSPACE_BYTES));
    FORWARD(convert_hidden(operands));
    return allocate_logits(operands);
}

lgh_status lgh_tool_operands_open(lgh_tool_operands *operands, const lgh_tool_buffers *buffers) {
    *operands = (lgh_tool_operands){.buffers = buffers};
    lgh_status status = open_operands(operands);
    if (status != LGH_SUCCESS)
        lgh_tool_operands_close(operands);
    return status;
}

void lgh_tool_operands_close(lgh_tool_operands *operands) {
    lgh__driver_free(operands->logits);
    lgh__driver_free(operands->converted);
    lgh__driver_free(operands->workspace);
    lgh__cublaslt_close(operands->cublaslt);
    *operands = (lgh_tool_operands){.cublaslt = NULL};
}

/* ---- Running ------------------------------------------------------------------------------- */

static lgh_status run_block(const lgh_tool_operands *on, lgh_tool_product_kind kind,
                            const lgh_tool_block *block, const lgh__algorithm *algorithm,
                            void *stream) {
    const void *a = kind == LGH_TOOL_LOGITS ? on->hidden : on->logits;
    const void *b = kind == LGH_TOOL_DWEIGHT ? on->hidden : on->buffers->weight;
    void *c = kind == LGH_TOOL_LOGITS    ? on->logits
              : kind == LGH_TOOL_DHIDDEN ? on->buffers->dhidden
                                         : on->buffers->dweight;
    const lgh__operands operands = {
        .a = (const char *)a + block->a,
        .b = (const char *)b + block->b,
        .c = (char *)c + block->c,
        .workspace = on->workspace,
        .workspace_bytes = WORKSPACE_BYTES,
    };
    return lgh__cublaslt_run(on->cublaslt, &block->matmul, algorithm, &operands, stream);
}

lgh_status lgh_tool_product_run(void *subject, void *stream) {
    const lgh_tool_product *p = subject;
    int64_t blocks = lgh_tool_variant_blocks(&p->variant);
    for (int64_t i = 0; i < blocks; ++i) {
        lgh_tool_block block = lgh_tool_variant_block(&p->variant, i);
        FORWARD(run_block(p->operands, p->variant.kind, &block,
                          i + 1 < blocks ? &p->algorithm : &p->last, stream));
    }
    return LGH_SUCCESS;
}

/* ---- Selecting ----------------------------------------------------------------------------- */

typedef struct candidate {
    const lgh_tool_operands *operands;
    lgh_tool_product_kind kind;
    lgh_tool_block block;
    lgh__algorithm algorithm;
} candidate;

static lgh_status run_candidate(void *subject, void *stream) {
    const candidate *c = subject;
    return run_block(c->operands, c->kind, &c->block, &c->algorithm, stream);
}

static lgh_status select_algorithm(lgh__algorithm *best, const lgh_tool_product *product,
                                   int64_t index, int runs) {
    candidate c = {product->operands,
                   product->variant.kind,
                   lgh_tool_variant_block(&product->variant, index),
                   {{0}}};
    lgh__algorithm found[ALGORITHMS];
    int count = 0;
    double fastest = INFINITY;
    FORWARD(lgh__cublaslt_any_candidates(c.operands->cublaslt, &c.block.matmul, WORKSPACE_BYTES,
                                         found, ALGORITHMS, &count));
    for (int i = 0; i < count; ++i) {
        double milliseconds;
        c.algorithm = found[i];
        FORWARD(lgh_tool_device_time(product->operands->buffers->device, run_candidate, &c, 1, runs,
                                     &milliseconds));
        if (milliseconds < fastest) {
            fastest = milliseconds;
            *best = found[i];
        }
    }
    return LGH_SUCCESS;
}

static lgh_status prepare_product(lgh_tool_product *product, int runs) {
    int64_t blocks = lgh_tool_variant_blocks(&product->variant);
    lgh_tool_block first = lgh_tool_variant_block(&product->variant, 0);
    lgh_tool_block last = lgh_tool_variant_block(&product->variant, blocks - 1);
    FORWARD(select_algorithm(&product->algorithm, product, 0, runs));
    product->last = product->algorithm;
    if (last.matmul.m == first.matmul.m && last.matmul.n == first.matmul.n &&
        last.matmul.k == first.matmul.k)
        return LGH_SUCCESS;
    return select_algorithm(&product->last, product, blocks - 1, runs);
}

lgh_status lgh_tool_product_select(lgh_tool_product *product, const lgh_tool_operands *operands,
                                   lgh_tool_product_kind kind, int runs) {
    const lgh_tool_tensors *t = operands->buffers->tensors;
    lgh_tool_variant variants[LGH_TOOL_CUTS];
    int count = lgh_tool_variants(variants, &t->shape, kind, t->dtypes->operands);
    double fastest = INFINITY;
    for (int i = 0; i < count; ++i) {
        lgh_tool_product tried = {operands, variants[i], {{0}}, {{0}}};
        double milliseconds;
        if (lgh_tool_variant_logits_bytes(&variants[i]) > operands->logits_bytes)
            continue;
        FORWARD(prepare_product(&tried, runs));
        FORWARD(lgh_tool_device_time(operands->buffers->device, lgh_tool_product_run, &tried, 1,
                                     runs + 1, &milliseconds));
        if (milliseconds < fastest) {
            fastest = milliseconds;
            *product = tried;
        }
    }
    RETURN_IF(fastest == INFINITY, LGH_ERROR_OUT_OF_MEMORY,
              "no cut of the products fits %zu bytes of logits; try fewer tokens or --no-products",
              operands->logits_bytes);
    return LGH_SUCCESS;
}
