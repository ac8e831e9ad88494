/* fake_kernels.c - the row kernels on the host, with the arithmetic of formulas.h in double.
 *
 * Each judges its parameters first: every range with its full extent, alignments, and what
 * row_params.h says of their values. A launch that breaks a rule does nothing.
 */
#include "fake_kernels.h"

#include "fake_state.h"
#include "formulas.h"
#include "row_params.h"
#include "value.h"

#include <string.h>

static _Atomic int widest;

/* ---- Judging ------------------------------------------------------------------------------- */

static int rule(int holds, const char *what, const char *rule_text) {
    if (!holds)
        fake_violation("%s: %s", what, rule_text);
    return holds;
}

/* So many bytes for each row. */
static int vector(const void *data, int64_t rows, int64_t bytes, unsigned how, const char *what) {
    return fake_access((fake_rows){data, rows, bytes, bytes}, how, what);
}

static int optional_vector(const void *data, int64_t rows, unsigned how, const char *what) {
    return !data || vector(data, rows, 4, how, what);
}

static int device_value(const lgh_device_value *value, int64_t rows, const char *what) {
    return !value->data ||
           (rule(value->stride >= 0, what, "a stride below 0") &&
            fake_access((fake_rows){value->data, rows, 4, value->stride * 4}, FAKE_READ, what));
}

static int logits_in_place(const lgh_chunk_place *p, const char *what) {
    const int64_t row_bytes = (p->skip + p->columns) * 4ll, stride = p->stride * 4;
    return rule((uintptr_t)p->logits % 16 == 0, what, "logits are not 16-byte aligned") &&
           rule(p->stride % 4 == 0 && stride >= row_bytes, what,
                "the logits' stride is no multiple of 4 or below the columns") &&
           fake_access((fake_rows){p->logits, p->rows, row_bytes, stride}, 0, what) &&
           fake_access((fake_rows){p->logits + p->skip, p->rows, p->columns * 4ll, stride},
                       FAKE_READ, what);
}

static int place(const lgh_chunk_place *p, const fake_launch *l) {
    const int64_t target_bytes = l->definitions.targets_int32 ? 4 : 8;
    return rule(p->columns >= 1 && p->skip >= 0, l->entry, "no columns, or fewer skipped than 0") &&
           rule(p->first_column >= 0 && p->first_column + p->columns <= p->vocab_size, l->entry,
                "columns outside the vocabulary") &&
           logits_in_place(p, l->entry) &&
           (!p->targets || vector(p->targets, p->rows, target_bytes, FAKE_READ, l->entry));
}

/* ---- Rows ---------------------------------------------------------------------------------- */

static double value_of_row(const lgh_device_value *value, int64_t row) {
    return value->data ? (double)value->data[row * value->stride] : (double)value->host;
}

static int64_t target_of_row(const lgh_chunk_place *p, const fake_launch *l, int64_t row) {
    return lgh__target_at(p->targets, l->definitions.targets_int32 ? LGH_INT32 : LGH_INT64, row);
}

static double logit(const lgh_chunk_place *p, const fake_launch *l, int64_t row, int64_t column) {
    const float x = p->logits[row * p->stride + p->skip + column];
    return l->definitions.logits_bf16 ? (double)lgh__float_from_bf16(lgh__bf16_from_float(x))
                                      : (double)x;
}

/* ---- chunk_stats.cu ------------------------------------------------------------------------ */

static lgh_row_stats chunk_stats(const lgh_chunk_place *p, const fake_launch *l, int64_t row,
                                 double inverse_temperature) {
    lgh_row_stats stats = lgh_row_stats_empty();
    for (int64_t c = 0; c < p->columns; ++c)
        stats.max = fmax(stats.max, logit(p, l, row, c));
    for (int64_t c = 0; c < p->columns; ++c) {
        lgh_row_stats_add(&stats, logit(p, l, row, c), inverse_temperature);
        lgh_row_stats_add_at_one(&stats, logit(p, l, row, c));
    }
    return stats;
}

static void put(float *output, int64_t row, double value) {
    if (output)
        output[row] = (float)value;
}

static void finish_row(const lgh_chunk_stats_params *p, int64_t row, lgh_row_stats stats,
                       double target, int has_target, double inverse_temperature) {
    put(p->logp, row, has_target ? lgh_log_prob(stats, target, inverse_temperature) : 0);
    put(p->lse, row, lgh_lse(stats, inverse_temperature));
    put(p->entropy, row, lgh_entropy(stats));
    put(p->logp_at_one, row, has_target ? lgh_log_prob_at_one(stats, target) : 0);
}

static void ignore_row(const lgh_chunk_stats_params *p, int64_t row) {
    put(p->logp, row, 0);
    put(p->lse, row, 0);
    put(p->entropy, row, 0);
    put(p->logp_at_one, row, 0);
}

static void merge_row(const lgh_chunk_stats_params *p, const fake_launch *l, int64_t row) {
    const int64_t target = p->place.targets ? target_of_row(&p->place, l, row) : -1;
    const double inverse = lgh_inverse_temperature(value_of_row(&p->temperature, row));
    if (p->place.targets && target == p->place.ignore_index) {
        if (p->is_last)
            ignore_row(p, row);
        return;
    }
    lgh_row_stats stats = chunk_stats(&p->place, l, row, inverse);
    lgh_stored_stats stored = {0, 0, 0, 0, 0};
    if (!p->is_first) {
        vector(&p->stats[row], 1, sizeof stored, FAKE_READ, l->entry);
        stored = p->stats[row];
        const lgh_row_stats before = {(double)stored.max, (double)stored.sum,
                                      (double)stored.weighted, (double)stored.sum_at_one};
        stats = lgh_row_stats_merge(before, stats, inverse);
    }
    const int64_t within = target - p->place.first_column;
    if (within >= 0 && within < p->place.columns)
        stored.target = (float)logit(&p->place, l, row, within);
    if (p->is_last) {
        finish_row(p, row, stats, (double)stored.target,
                   target >= 0 && target < p->place.vocab_size, inverse);
        return;
    }
    p->stats[row] = (lgh_stored_stats){(float)stats.max, (float)stats.sum, (float)stats.weighted,
                                       (float)stats.sum_at_one, stored.target};
    vector(&p->stats[row], 1, sizeof stored, FAKE_WRITE, l->entry);
}

static int outputs_in_place(const lgh_chunk_stats_params *p, int64_t rows) {
    return optional_vector(p->logp, rows, FAKE_WRITE, "logp") &&
           optional_vector(p->lse, rows, FAKE_WRITE, "lse") &&
           optional_vector(p->entropy, rows, FAKE_WRITE, "entropy") &&
           optional_vector(p->logp_at_one, rows, FAKE_WRITE, "logp_at_one");
}

static void run_chunk_stats(const fake_launch *l) {
    lgh_chunk_stats_params p;
    memcpy(&p, l->parameters, sizeof p);
    const int64_t rows = p.place.rows, rows_of_block = l->threads / 32;
    const int stores = !p.is_first || !p.is_last;
    if (!rule(l->blocks == (rows + rows_of_block - 1) / rows_of_block, l->entry,
              "not one warp for each row") ||
        !place(&p.place, l) || !device_value(&p.temperature, rows, "temperature") ||
        (stores && !vector(p.stats, rows, sizeof *p.stats, 0, "stats")) ||
        (p.is_last && !outputs_in_place(&p, rows)))
        return;
    for (int64_t row = 0; row < rows; ++row)
        merge_row(&p, l, row);
}

/* ---- chunk_dx.cu --------------------------------------------------------------------------- */

static lgh_row_gradient gradient_of_row(const lgh_chunk_dx_params *p, int64_t row) {
    return (lgh_row_gradient){
        .inverse_temperature = lgh_inverse_temperature(value_of_row(&p->temperature, row)),
        .lse = (double)p->lse[row],
        .entropy = p->entropy ? (double)p->entropy[row] : 0,
        .grad_logp = value_of_row(&p->grad_logp, row),
        .grad_entropy = value_of_row(&p->grad_entropy, row),
        .grad_lse = value_of_row(&p->grad_lse, row),
    };
}

/* Column c is read before the gradient of column c, which lies at or before it, is written. */
static void differentiate_row(const lgh_chunk_dx_params *p, const fake_launch *l, int64_t row) {
    const lgh_chunk_place *at = &p->place;
    const int64_t target = at->targets ? target_of_row(at, l, row) : -1;
    const int counts =
        !at->targets || (target != at->ignore_index && target >= 0 && target < at->vocab_size);
    const lgh_row_gradient gradient = gradient_of_row(p, row);
    char *gradients = (char *)(at->logits + row * at->stride);
    for (int64_t c = 0; c < at->columns; ++c) {
        const int is_target = at->targets && c == target - at->first_column;
        const double dx =
            counts ? lgh_logit_gradient(gradient, logit(at, l, row, c), is_target) : 0;
        const uint16_t rounded = lgh__bf16_from_float((float)dx);
        memcpy(gradients + 2 * c, &rounded, sizeof rounded);
    }
}

/* Gradients are stored four at a time, so a row's reach to the next multiple of four. */
static int gradients_in_place(const lgh_chunk_place *p, const char *what) {
    const fake_rows gradients = {p->logits, p->rows, (p->columns + 3) / 4 * 8ll, p->stride * 4};
    return rule(gradients.row_bytes <= gradients.stride, what,
                "the gradients of a row reach into the next") &&
           fake_access(gradients, 0, what);
}

static void run_chunk_dx(const fake_launch *l) {
    lgh_chunk_dx_params p;
    memcpy(&p, l->parameters, sizeof p);
    const int64_t rows = p.place.rows;
    if (!rule(l->blocks == rows, l->entry, "not one block for each row") || !place(&p.place, l) ||
        !device_value(&p.temperature, rows, "temperature") ||
        !vector(p.lse, rows, 4, FAKE_READ, "lse") ||
        !optional_vector(p.entropy, rows, FAKE_READ, "entropy") ||
        !device_value(&p.grad_logp, rows, "grad_logp") ||
        !device_value(&p.grad_entropy, rows, "grad_entropy") ||
        !device_value(&p.grad_lse, rows, "grad_lse") || !gradients_in_place(&p.place, l->entry))
        return;
    widest = p.place.columns > widest ? p.place.columns : widest;
    for (int64_t row = 0; row < rows; ++row)
        differentiate_row(&p, l, row);
    fake_rows logits = {p.place.logits, rows, (p.place.skip + p.place.columns) * 4ll,
                        p.place.stride * 4};
    if (fake_run_stream()) /* what is left of the logits is no result of anything */
        fake_access(logits, FAKE_FORGET, l->entry);
    logits.row_bytes = p.place.columns * 2ll;
    fake_access(logits, FAKE_WRITE, l->entry);
}

/* ---- round_rows.cu ------------------------------------------------------------------------- */

static void run_round_rows(const fake_launch *l) {
    lgh_round_rows_params p;
    memcpy(&p, l->parameters, sizeof p);
    if (!fake_access((fake_rows){p.from, l->blocks, p.columns * 4, p.from_stride * 4}, FAKE_READ,
                     "round_rows from") ||
        !fake_access((fake_rows){p.to, l->blocks, p.columns * 2, p.to_stride * 2}, FAKE_WRITE,
                     "round_rows to"))
        return;
    for (int64_t row = 0; row < l->blocks; ++row)
        for (int64_t c = 0; c < p.columns; ++c)
            p.to[row * p.to_stride + c] = lgh__bf16_from_float(p.from[row * p.from_stride + c]);
}

/* ---- compare_rows.cu ----------------------------------------------------------------------- */

static void run_compare_rows(const fake_launch *l) {
    lgh_compare_rows_params p;
    memcpy(&p, l->parameters, sizeof p);
    if (!rule(p.period >= 1, l->entry, "a period below 1"))
        return;
    const int64_t references = l->blocks < p.period ? l->blocks : p.period;
    if (!fake_access((fake_rows){p.rows, l->blocks, p.words * 2, p.row_stride * 2}, FAKE_READ,
                     "compare_rows rows") ||
        !fake_access((fake_rows){p.reference, references, p.words * 2, p.reference_stride * 2},
                     FAKE_READ, "compare_rows reference") ||
        !vector(p.mismatches, 1, 4, FAKE_READ, "compare_rows mismatches"))
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
    {"chunk_stats_kernel", sizeof(lgh_chunk_stats_params), run_chunk_stats},
    {"chunk_dx_kernel", sizeof(lgh_chunk_dx_params), run_chunk_dx},
    {"round_rows_kernel", sizeof(lgh_round_rows_params), run_round_rows},
    {"compare_rows_kernel", sizeof(lgh_compare_rows_params), run_compare_rows},
};

void fake_kernel_run(const fake_launch *l) {
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; ++i) {
        if (strcmp(kernels[i].entry, l->entry) != 0)
            continue;
        if (rule(l->parameter_bytes == kernels[i].parameter_bytes, l->entry,
                 "its parameters have another size in the cubin than on the host"))
            kernels[i].run(l);
        return;
    }
    fake_violation("%s is launched, but fake_kernels.c does not know it", l->entry);
}

void fake_kernels_reset(void) {
    widest = 0;
}

int fake_cuda_widest_gradients(void) {
    return widest;
}
