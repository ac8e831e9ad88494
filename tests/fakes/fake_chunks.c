/* fake_chunks.c - the kernels over rows of logits on the host, with the arithmetic of formulas.h in
 * double. A logit is rounded to FP32 after each of its steps, as on the device. */
#include "fake_kernels.h"

#include "fake_numbers.h"
#include "fake_rows.h"
#include "fake_state.h"
#include "formulas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- A chunk's place ----------------------------------------------------------------------- */

/* The scratch on which a plan tries its kernels out holds no particular logits. */
static unsigned how_logits_are_read(void) {
    return fake_run_stream() ? FAKE_READ : 0;
}

static int logits_in_place(const lgh_chunk_place *p, const char *what) {
    const int64_t row_bytes = (p->skip + p->columns) * 4ll, stride = p->stride * 4;
    if (!fake_rule((uintptr_t)p->logits % 16 == 0, what, "logits are not 16-byte aligned") ||
        !fake_rule(p->stride % 4 == 0 && stride >= row_bytes, what,
                   "the logits' stride is no multiple of 4 or below the columns"))
        return 0;
    return p->columns == 0 ||
           (fake_access((fake_rows){p->logits, p->block.rows, row_bytes, stride}, 0, what) &&
            fake_access((fake_rows){p->logits + p->skip, p->block.rows, p->columns * 4ll, stride},
                        how_logits_are_read(), what));
}

/* A run call's chunks are those of a plan's shard. */
static int chunk_of_shard(const lgh_chunk_place *p, const char *what) {
    const int64_t end = p->first_column + p->columns;
    return fake_rule(p->columns >= (p->shard_size > 0), what, "no columns") &&
           fake_rule(p->skip >= 0 && p->first_column >= p->skip && end <= p->shard_size, what,
                     "columns outside the shard") &&
           fake_rule(!p->is_first == (p->first_column > 0), what, "is_first is wrong") &&
           fake_rule(!p->is_last == (end < p->shard_size), what, "is_last is wrong") &&
           fake_rule(p->vocab_start >= 0 &&
                         (p->shard_size == 0 || p->vocab_start + p->shard_size <= p->vocab_valid),
                     what, "a shard past the vocabulary's end");
}

static int place_fits(const lgh_chunk_place *p, const fake_launch *l, int64_t rows) {
    return fake_rule(!(p->softcap > 0) == !l->definitions.softcap, l->entry,
                     "a softcap where it was compiled without, or none where with") &&
           fake_rule(l->threads == l->definitions.threads, l->entry,
                     "another number of threads than it was compiled for") &&
           fake_block_fits(&p->block, rows, l->entry) &&
           (!fake_run_stream() || chunk_of_shard(p, l->entry)) && logits_in_place(p, l->entry);
}

/* ---- Rows ---------------------------------------------------------------------------------- */

typedef enum target_kind { IGNORED, NO_TARGET, FOREIGN, REMOTE, LOCAL } target_kind;

typedef struct row {
    int64_t token;
    target_kind kind;
    int64_t column; /* the shard's column of a local target, else -1 */
    double temperature;
    int valid_temperature;
} row;

static int64_t target_at(const lgh_chunk_place *p, const fake_launch *l, int64_t token) {
    const int size = l->definitions.targets_int32 ? 4 : 8;
    if (!fake_element(p->targets, token, size, FAKE_READ, "targets"))
        return p->ignore_index;
    return lgh__target_at(p->targets, size == 4 ? LGH_INT32 : LGH_INT64, token);
}

static target_kind kind_of(const lgh_chunk_place *p, int64_t entry) {
    const int64_t column = entry - p->vocab_start;
    if (entry == p->ignore_index)
        return IGNORED;
    if (entry < 0 || entry >= p->vocab_valid)
        return FOREIGN;
    return column < 0 || column >= p->shard_size ? REMOTE : LOCAL;
}

/* What the row is, counted with the last chunk. */
static row read_row(const lgh_chunk_place *p, const fake_launch *l, int64_t index) {
    row r = {fake_token_of(&p->block, index), NO_TARGET, -1, 0, 0};
    if (r.token == FAKE_NO_TOKEN)
        r.kind = IGNORED;
    else if (p->targets) {
        const int64_t entry = target_at(p, l, r.token);
        r.kind = kind_of(p, entry);
        r.column = r.kind == LOCAL ? entry - p->vocab_start : -1;
    }
    if (r.kind == IGNORED)
        return r;
    r.temperature = (double)fake_value_of(&p->temperature, r.token, "temperature");
    r.valid_temperature = lgh_temperature_is_valid(r.temperature);
    if (p->is_last && (r.kind == FOREIGN || r.kind == REMOTE))
        fake_count(p->foreign_targets, "foreign_targets");
    if (p->is_last && !r.valid_temperature)
        fake_count(p->invalid_temperatures, "invalid_temperatures");
    return r;
}

static double capped(double x, const lgh_chunk_place *p, const fake_launch *l) {
    return l->definitions.softcap ? (double)(float)lgh_softcap(x, (double)p->softcap) : x;
}

/* The row's logits that the chunk counts, before the softcap; to be freed. */
static double *read_logits(const lgh_chunk_place *p, const fake_launch *l, int64_t index) {
    const float *from = p->logits + index * p->stride + p->skip;
    double *logits = calloc((size_t)p->columns + 1, sizeof *logits);
    if (!logits)
        fake_violation("no host memory for a row of logits");
    for (int64_t c = 0; logits && c < p->columns; ++c)
        logits[c] = (double)fake_round(from[c], l->definitions.logits_rounding);
    return logits;
}

/* ---- chunk_stats.cu ------------------------------------------------------------------------ */

/* The lowest column of the maximum goes to *best, -1 where there is none. */
static lgh_row_stats chunk_stats(const double *logits, int64_t columns, double inverse,
                                 int64_t *best) {
    lgh_row_stats stats = lgh_row_stats_empty();
    *best = -1;
    for (int64_t c = 0; c < columns; ++c)
        if (logits[c] > stats.max) {
            stats.max = logits[c];
            *best = c;
        }
    for (int64_t c = 0; c < columns; ++c) {
        lgh_row_stats_add(&stats, logits[c], inverse);
        lgh_row_stats_add_at_one(&stats, logits[c]);
    }
    return stats;
}

static void put(float *output, int64_t token, double value, const char *what) {
    if (output && fake_element(output, token, 4, FAKE_WRITE, what))
        output[token] = (float)value;
}

static void put_best(const lgh_chunk_stats_params *p, int64_t token, int64_t best) {
    if (p->best && fake_element(p->best, token, 8, FAKE_WRITE, "best"))
        p->best[token] = best;
}

static void put_empty(const lgh_chunk_stats_params *p, int64_t token, double lse, double others) {
    put(p->logp, token, others, "logp");
    put(p->lse, token, lse, "lse");
    put(p->entropy, token, others, "entropy");
    put(p->logp_at_one, token, others, "logp_at_one");
    put_best(p, token, -1);
}

static void put_results(const lgh_chunk_stats_params *p, const row *r, lgh_row_stats stats,
                        const lgh_stored_stats *stored, double inverse) {
    const double target = (double)stored->target;
    double logp = 0, at_one = 0;
    if (stats.sum == 0) {
        put_empty(p, r->token, -INFINITY, 0);
        return;
    }
    if (r->kind == LOCAL) {
        logp = lgh_log_prob(stats, target, inverse);
        at_one = lgh_log_prob_at_one(stats, target);
    } else if (r->kind == REMOTE) {
        logp = -lgh_lse(stats, inverse);
        at_one = -(stats.max + lgh_log(stats.sum_at_one));
    }
    put(p->logp, r->token, logp, "logp");
    put(p->lse, r->token, lgh_lse(stats, inverse), "lse");
    put(p->entropy, r->token, lgh_entropy(stats), "entropy");
    put(p->logp_at_one, r->token, at_one, "logp_at_one");
    put_best(p, r->token, p->place.vocab_start + (stored->best < 0 ? 0 : stored->best));
}

/* Merges the chunk with what earlier ones stored, and stores it again or finishes. */
static void merge_row(const lgh_chunk_stats_params *p, const fake_launch *l, int64_t index,
                      const row *r) {
    const lgh_chunk_place *at = &p->place;
    const double inverse = lgh_inverse_temperature(r->temperature);
    lgh_stored_stats stored = {-FLT_MAX, 0, 0, 0, 0, -1};
    if (!at->is_first) {
        if (!fake_element(p->stats, index, sizeof stored, FAKE_READ, "stats"))
            return;
        stored = p->stats[index];
    }
    double *logits = read_logits(at, l, index);
    int64_t best = -1;
    if (!logits)
        return;
    for (int64_t c = 0; c < at->columns; ++c)
        logits[c] = capped(logits[c], at, l);
    const lgh_row_stats before = {(double)stored.max, (double)stored.sum, (double)stored.weighted,
                                  (double)stored.sum_at_one};
    lgh_row_stats stats = chunk_stats(logits, at->columns, inverse, &best);
    if (best >= 0 && stats.max > before.max)
        stored.best = (int)(at->first_column + best);
    if (r->column >= at->first_column && r->column < at->first_column + at->columns)
        stored.target = (float)logits[r->column - at->first_column];
    free(logits);
    stats = lgh_row_stats_merge(before, stats, inverse);
    if (at->is_last) {
        put_results(p, r, stats, &stored, inverse);
        return;
    }
    p->stats[index] =
        (lgh_stored_stats){(float)stats.max,        (float)stats.sum,     (float)stats.weighted,
                           (float)stats.sum_at_one, (float)stored.target, stored.best};
    fake_element(p->stats, index, sizeof stored, FAKE_WRITE, "stats");
}

static void run_stats_row(const lgh_chunk_stats_params *p, const fake_launch *l, int64_t index) {
    const row r = read_row(&p->place, l, index);
    if (r.kind != IGNORED && r.valid_temperature && p->place.shard_size > 0)
        merge_row(p, l, index, &r);
    else if (!p->place.is_last || r.token == FAKE_NO_TOKEN)
        return;
    else if (r.kind == IGNORED)
        put_empty(p, r.token, 0, 0);
    else if (!r.valid_temperature)
        put_empty(p, r.token, NAN, NAN);
    else
        put_empty(p, r.token, -INFINITY, 0);
}

void fake_run_chunk_stats(const fake_launch *l) {
    lgh_chunk_stats_params p;
    memcpy(&p, l->parameters, sizeof p);
    const fake_definitions *d = &l->definitions;
    const int64_t rows = p.place.block.rows, rows_of_block = l->threads / 32;
    const int stores = !p.place.is_first || !p.place.is_last;
    if (!fake_rule(l->blocks == (rows + rows_of_block - 1) / rows_of_block, l->entry,
                   "not one warp for each row") ||
        !fake_rule((!p.entropy || d->want_entropy) && (!p.logp_at_one || d->want_logp_at_one) &&
                       (!p.best || d->want_best),
                   l->entry, "an output that it was compiled without") ||
        !fake_rule(p.place.targets || (!p.logp && !p.logp_at_one), l->entry,
                   "a log-prob without targets") ||
        !place_fits(&p.place, l, rows) ||
        (stores && !fake_vector(p.stats, rows, sizeof *p.stats, 0, "stats")))
        return;
    for (int64_t index = 0; index < rows; ++index)
        run_stats_row(&p, l, index);
}

/* ---- chunk_dx.cu --------------------------------------------------------------------------- */

static lgh_row_gradient gradient_of(const lgh_chunk_dx_params *p, const row *r) {
    const lgh_token_gradients *g = &p->gradients;
    const int readable =
        fake_element(p->lse, r->token, 4, FAKE_READ, "lse") &&
        (!p->entropy || fake_element(p->entropy, r->token, 4, FAKE_READ, "entropy"));
    return (lgh_row_gradient){
        .inverse_temperature = lgh_inverse_temperature(r->temperature),
        .lse = readable ? (double)p->lse[r->token] : NAN,
        .entropy = readable && p->entropy ? (double)p->entropy[r->token] : 0,
        .grad_logp = (double)fake_value_of(&g->grad_logp, r->token, "grad_logp"),
        .grad_entropy = (double)fake_value_of(&g->grad_entropy, r->token, "grad_entropy"),
        .grad_lse = (double)fake_value_of(&g->grad_lse, r->token, "grad_lse"),
    };
}

/* All logits of a row are read before its first gradient is stored. */
static void run_dx_row(const lgh_chunk_dx_params *p, const fake_launch *l, int64_t index) {
    const lgh_chunk_place *at = &p->place;
    const row r = read_row(at, l, index);
    const int is_wanted =
        r.kind != IGNORED && r.valid_temperature && (r.kind != FOREIGN || p->softmax_for_foreign);
    const lgh_row_gradient gradient = is_wanted ? gradient_of(p, &r) : (lgh_row_gradient){0};
    const int counts = is_wanted && gradient.lse != -(double)INFINITY;
    const int is_scaled = counts && l->definitions.gradient == LGH_FP16;
    const double scale = is_scaled ? fake_token_scale(&p->gradients, r.token) : 1;
    double *logits = read_logits(at, l, index);
    for (int64_t c = 0; logits && c < at->columns; ++c) {
        const int is_target = r.kind == LOCAL && c == r.column - at->first_column;
        const double x = capped(logits[c], at, l);
        double dx = counts ? lgh_logit_gradient(gradient, x, is_target) : 0;
        if (counts && l->definitions.softcap)
            dx *= lgh_softcap_slope(logits[c], (double)at->softcap);
        fake_store(at->logits + index * at->stride, c, l->definitions.gradient,
                   (float)(scale * dx));
    }
    free(logits);
}

/* A thread stores its columns four at a time, as many as the kernel was compiled for. */
static int gradients_in_place(const lgh_chunk_place *p, const fake_launch *l) {
    const int step = 4 * l->threads, capacity = (l->definitions.chunk + step - 1) / step * step;
    const int64_t row_bytes = (p->columns + 3) / 4 * 4ll * fake_size_of(l->definitions.gradient);
    return fake_rule(p->columns <= capacity, l->entry, "more columns than it was compiled for") &&
           fake_rule(row_bytes <= p->stride * 4, l->entry,
                     "the gradients of a row reach into the next") &&
           (p->columns == 0 ||
            fake_access((fake_rows){p->logits, p->block.rows, row_bytes, p->stride * 4}, 0,
                        l->entry));
}

/* What is left of the logits is no result of anything. */
static void mark_gradients(const lgh_chunk_place *p, const fake_launch *l) {
    fake_rows logits = {p->logits, p->block.rows, (p->skip + p->columns) * 4ll, p->stride * 4};
    if (p->columns == 0)
        return;
    if (fake_run_stream())
        fake_access(logits, FAKE_FORGET, l->entry);
    logits.row_bytes = p->columns * fake_size_of(l->definitions.gradient);
    fake_access(logits, FAKE_WRITE, l->entry);
}

void fake_run_chunk_dx(const fake_launch *l) {
    lgh_chunk_dx_params p;
    memcpy(&p, l->parameters, sizeof p);
    const int64_t rows = p.place.block.rows;
    const lgh_device_value *grad_entropy = &p.gradients.grad_entropy;
    const int has_entropy_gradient = grad_entropy->data || grad_entropy->host != 0;
    if (!fake_rule(l->blocks == rows, l->entry, "not one block for each row") ||
        !fake_rule(p.entropy || !has_entropy_gradient, l->entry,
                   "a gradient of the entropy without the entropy") ||
        !place_fits(&p.place, l, rows) || !gradients_in_place(&p.place, l))
        return;
    for (int64_t index = 0; index < rows; ++index)
        run_dx_row(&p, l, index);
    mark_gradients(&p.place, l);
}
