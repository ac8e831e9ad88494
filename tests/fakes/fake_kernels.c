/* fake_kernels.c - the row kernels on the host: those that move, round and add. The kernels over
 * rows of logits are in fake_chunks.c.
 *
 * Each judges its parameters first: every range with its full extent, alignments, and what
 * row_params.h says of their values. A launch that breaks a rule does nothing.
 */
#include "fake_kernels.h"

#include "fake_numbers.h"
#include "fake_rows.h"
#include "fake_state.h"
#include "formulas.h"

#include <math.h>
#include <string.h>

/* Rows of a type, `stride` elements apart. */
static fake_rows rows_of(const void *data, int64_t rows, int64_t columns, int64_t stride,
                         int type) {
    return (fake_rows){data, rows, columns * fake_size_of(type), stride * fake_size_of(type)};
}

static void *row_at(void *data, int64_t row, int64_t stride, int type) {
    return (char *)data + row * stride * fake_size_of(type);
}

/* ---- gather_rows.cu ------------------------------------------------------------------------ */

/* What a token's row is multiplied by. */
static double factor_of(const lgh_gather_rows_params *p, int64_t token) {
    if (!p->scale || token == FAKE_NO_TOKEN)
        return 1;
    return fmin(1, (double)p->scale->scale / fake_token_scale(&p->gradients, token));
}

static void gather_row(const lgh_gather_rows_params *p, const fake_launch *l, int64_t row) {
    const int from_type = l->definitions.from, to_type = l->definitions.to;
    const int64_t token = fake_token_of(&p->block, row);
    const void *from = (const char *)p->from + token * p->from_stride * fake_size_of(from_type);
    void *to = row_at(p->to, row, p->to_stride, to_type);
    if (token != FAKE_NO_TOKEN &&
        !fake_access(rows_of(from, 1, p->columns, 0, from_type), FAKE_READ, "gather_rows from"))
        return;
    const float factor = (float)factor_of(p, token);
    for (int64_t c = 0; c < p->columns; ++c)
        fake_store(to, c, to_type,
                   token == FAKE_NO_TOKEN ? 0 : factor * fake_load(from, c, from_type));
}

static void run_gather_rows(const fake_launch *l) {
    lgh_gather_rows_params p;
    memcpy(&p, l->parameters, sizeof p);
    if (!fake_block_fits(&p.block, l->blocks, l->entry) ||
        (p.scale && !fake_vector(p.scale, 1, sizeof *p.scale, FAKE_READ, "gather_rows scale")) ||
        !fake_access(rows_of(p.to, l->blocks, p.columns, p.to_stride, l->definitions.to),
                     FAKE_WRITE, "gather_rows to"))
        return;
    for (int64_t row = 0; row < l->blocks; ++row)
        gather_row(&p, l, row);
}

/* ---- finish_rows.cu ------------------------------------------------------------------------ */

static int64_t target_of(const lgh_token_targets *t, int64_t token) {
    if (!t->data || !fake_element(t->data, token, t->are_int32 ? 4 : 8, FAKE_READ, "targets"))
        return 0;
    return lgh__target_at(t->data, t->are_int32 ? LGH_INT32 : LGH_INT64, token);
}

static int is_ignored(const lgh_token_targets *t, int64_t token) {
    return t->data && target_of(t, token) == t->ignore_index;
}

static int is_invalid(const lgh_finish_rows_params *p, int64_t token) {
    const double temperature =
        (double)fake_value_of(&p->gradients.temperature, token, "temperature");
    return !lgh_temperature_is_valid(temperature) && !is_ignored(&p->targets, token);
}

static void finish_row(const lgh_finish_rows_params *p, const fake_launch *l, int64_t row) {
    const int type = l->definitions.to;
    const int64_t token = fake_token_of(&p->block, row);
    const int invalid = token != FAKE_NO_TOKEN && is_invalid(p, token);
    if (token == FAKE_NO_TOKEN || (!invalid && !p->from))
        return;
    void *to = row_at(p->to, token, p->to_stride, type);
    if (!fake_access(rows_of(to, 1, p->columns, 0, type), FAKE_WRITE, "finish_rows to"))
        return;
    const float scale = p->is_scaled ? (float)fake_token_scale(&p->gradients, token) : 1.0f;
    for (int64_t c = 0; c < p->columns; ++c)
        fake_store(to, c, type, invalid ? NAN : p->from[row * p->from_stride + c] / scale);
}

static void run_finish_rows(const fake_launch *l) {
    lgh_finish_rows_params p;
    memcpy(&p, l->parameters, sizeof p);
    if (!fake_block_fits(&p.block, l->blocks, l->entry) ||
        (p.from && !fake_access(rows_of(p.from, l->blocks, p.columns, p.from_stride, LGH_FP32),
                                FAKE_READ, "finish_rows from")))
        return;
    for (int64_t row = 0; row < l->blocks; ++row)
        finish_row(&p, l, row);
}

/* ---- column_sums.cu ------------------------------------------------------------------------ */

/* Of one column; each row without the power of two that FP16 takes. */
static double column_sum(const lgh_column_sums_params *p, int type, int64_t column) {
    double sum = 0;
    for (int64_t row = 0; row < p->block.rows; ++row) {
        const double dx = (double)fake_load(p->dx, row * p->stride + column, type);
        const int64_t token = fake_token_of(&p->block, row);
        if (token != FAKE_NO_TOKEN)
            sum += type == LGH_FP16 ? dx / fake_token_scale(&p->gradients, token) : dx;
    }
    return sum;
}

static void run_column_sums(const fake_launch *l) {
    lgh_column_sums_params p;
    memcpy(&p, l->parameters, sizeof p);
    const int type = l->definitions.from;
    if (!fake_rule(p.columns >= 1 && l->blocks == (p.columns + 31) / 32, l->entry,
                   "not one block for 32 columns") ||
        !fake_block_fits(&p.block, p.block.rows, l->entry) ||
        !fake_access(rows_of(p.dx, p.block.rows, p.columns, p.stride, type), FAKE_READ,
                     "column_sums dx") ||
        (p.accumulate && !fake_vector(p.sums, p.columns, 4, FAKE_READ, "column_sums sums")) ||
        !fake_vector(p.sums, p.columns, 4, FAKE_WRITE, "column_sums sums"))
        return;
    for (int64_t c = 0; c < p.columns; ++c) {
        const double sum = column_sum(&p, type, c);
        p.sums[c] = (float)(p.accumulate ? (double)p.sums[c] + sum : sum);
    }
}

/* ---- widen_bias.cu ------------------------------------------------------------------------- */

static void run_widen_bias(const fake_launch *l) {
    lgh_widen_bias_params p;
    memcpy(&p, l->parameters, sizeof p);
    const int type = l->definitions.from;
    if (!fake_rule(p.chunk >= 1 && p.chunk <= p.shard_size && p.chunk <= p.stride, l->entry,
                   "a chunk wider than the shard or than its room") ||
        !fake_rule(l->blocks == (p.shard_size + p.chunk - 1) / p.chunk, l->entry,
                   "not one block for each chunk") ||
        !fake_vector(p.bias, p.shard_size, fake_size_of(type), FAKE_READ, "widen_bias bias") ||
        !fake_access(rows_of(p.to, l->blocks, p.chunk, p.stride, LGH_FP32), FAKE_WRITE,
                     "widen_bias to"))
        return;
    for (int64_t i = 0; i < l->blocks; ++i) {
        const int64_t begin = i * p.chunk, last = p.shard_size - p.chunk;
        for (int64_t c = 0; c < p.chunk; ++c)
            p.to[i * p.stride + c] = fake_load(p.bias, (begin < last ? begin : last) + c, type);
    }
}

/* ---- gradient_scale.cu --------------------------------------------------------------------- */

static int has_gradient(const lgh_gradient_scale_params *p, int64_t token) {
    if (token == FAKE_NO_TOKEN || is_ignored(&p->targets, token))
        return 0;
    const int64_t entry = target_of(&p->targets, token);
    return p->softmax_for_foreign || (entry >= 0 && entry < p->vocab_valid);
}

static void run_gradient_scale(const fake_launch *l) {
    lgh_gradient_scale_params p;
    memcpy(&p, l->parameters, sizeof p);
    if (!fake_rule(l->blocks == 1, l->entry, "more than one block") ||
        !fake_block_fits(&p.rows, p.rows.rows, l->entry) ||
        !fake_vector(p.scale, 1, sizeof *p.scale, FAKE_WRITE, l->entry))
        return;
    double bound = 0;
    for (int64_t row = 0; row < p.rows.rows; ++row) {
        const int64_t token = fake_token_of(&p.rows, row);
        if (has_gradient(&p, token))
            bound = fmax(bound, fake_gradient_bound(&p.gradients, token));
    }
    const float scale = (float)exp2(lgh_scale_exponent(bound));
    *p.scale = (lgh_gradient_scale){scale, 1 / scale, 1.0f, 0.0f};
}

/* ---- live_rows.cu -------------------------------------------------------------------------- */

static void run_live_rows(const fake_launch *l) {
    lgh_live_rows_params p;
    memcpy(&p, l->parameters, sizeof p);
    const int is_int32 = l->definitions.targets_int32 == 1;
    const lgh_dtype dtype = is_int32 ? LGH_INT32 : LGH_INT64;
    int count = 0;
    if (!fake_rule(l->blocks == 1, l->entry, "more than one block") ||
        !fake_vector(p.targets, p.tokens, is_int32 ? 4 : 8, FAKE_READ, "targets") ||
        !fake_vector(p.rows, p.tokens, 4, 0, "live rows") ||
        !fake_vector(p.count, 1, 4, FAKE_WRITE, "the count of live rows"))
        return;
    for (int64_t token = 0; token < p.tokens; ++token)
        if (lgh__target_at(p.targets, dtype, token) != p.ignore_index)
            p.rows[count++] = (int)token;
    fake_vector(p.rows, count, 4, FAKE_WRITE, "live rows");
    *p.count = count;
}

/* ---- compare_rows.cu ----------------------------------------------------------------------- */

static void run_compare_rows(const fake_launch *l) {
    lgh_compare_rows_params p;
    memcpy(&p, l->parameters, sizeof p);
    if (!fake_rule(p.period >= 1, l->entry, "a period below 1"))
        return;
    const int64_t references = l->blocks < p.period ? l->blocks : p.period;
    if (!fake_access((fake_rows){p.rows, l->blocks, p.words * 2, p.row_stride * 2}, FAKE_READ,
                     "compare_rows rows") ||
        !fake_access((fake_rows){p.reference, references, p.words * 2, p.reference_stride * 2},
                     FAKE_READ, "compare_rows reference") ||
        !fake_vector(p.mismatches, 1, 4, FAKE_READ, "compare_rows mismatches"))
        return;
    for (int64_t row = 0; row < l->blocks; ++row)
        *p.mismatches +=
            memcmp(p.rows + row * p.row_stride, p.reference + row % p.period * p.reference_stride,
                   (size_t)p.words * 2) != 0;
}

/* ---- All of them --------------------------------------------------------------------------- */

static const struct {
    const char *entry;
    int parameter_bytes;
    void (*run)(const fake_launch *launch);
} kernels[] = {
    {"chunk_stats_kernel", sizeof(lgh_chunk_stats_params), fake_run_chunk_stats},
    {"chunk_dx_kernel", sizeof(lgh_chunk_dx_params), fake_run_chunk_dx},
    {"gather_rows_kernel", sizeof(lgh_gather_rows_params), run_gather_rows},
    {"finish_rows_kernel", sizeof(lgh_finish_rows_params), run_finish_rows},
    {"column_sums_kernel", sizeof(lgh_column_sums_params), run_column_sums},
    {"widen_bias_kernel", sizeof(lgh_widen_bias_params), run_widen_bias},
    {"gradient_scale_kernel", sizeof(lgh_gradient_scale_params), run_gradient_scale},
    {"live_rows_kernel", sizeof(lgh_live_rows_params), run_live_rows},
    {"compare_rows_kernel", sizeof(lgh_compare_rows_params), run_compare_rows},
};

void fake_kernel_run(const fake_launch *l) {
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; ++i) {
        if (strcmp(kernels[i].entry, l->entry) != 0)
            continue;
        if (fake_rule(l->parameter_bytes == kernels[i].parameter_bytes, l->entry,
                      "its parameters have another size in the cubin than on the host"))
            kernels[i].run(l);
        return;
    }
    fake_violation("%s is launched, but fake_kernels.c does not know it", l->entry);
}
