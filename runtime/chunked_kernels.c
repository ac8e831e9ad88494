/* chunked_kernels.c - the definitions and launches of the chunked engine's row kernels. */
#include "chunked_kernels.h"

#include "context.h"
#include "error.h"
#include "integers.h"

#include <stdio.h>

/* Threads of a block of each kernel. */
#define STATS_THREADS 128
#define ROW_THREADS 256
#define SINGLE_BLOCK_THREADS 512

/* A thread holds 16 columns in registers, more where a block would pass 512 threads. Blocks of 96
 * threads are made larger: with a softcap NVRTC 13.0 spills a few registers there on sm_90a. */
static int dx_threads(int64_t chunk) {
    const int64_t threads = (chunk + 15) / 16, unit = threads > 64 ? 64 : 32;
    return threads > 512 ? 512 : (int)(lgh__round_up(threads, unit));
}

/* ---- Definitions --------------------------------------------------------------------------- */

static void define_stats(lgh__row_kernel *k, const lgh_plan_options *o) {
    *k = (lgh__row_kernel){.source = "chunk_stats.cu", .entry = "chunk_stats_kernel"};
    snprintf(k->definitions, sizeof k->definitions,
             "#define LGH_THREADS %d\n"
             "#define LGH_LOGITS_ROUNDING %d\n"
             "#define LGH_SOFTCAP %d\n"
             "#define LGH_TARGETS_INT32 %d\n"
             "#define LGH_WANT_ENTROPY %d\n"
             "#define LGH_WANT_LOGP_AT_ONE %d\n"
             "#define LGH_WANT_BEST %d\n",
             STATS_THREADS, (int)o->logits_rounding, o->softcap > 0.0f,
             o->targets_dtype == LGH_INT32, (o->outputs & LGH_OUTPUT_ENTROPY) != 0,
             (o->outputs & LGH_OUTPUT_LOGP_AT_ONE) != 0, (o->outputs & LGH_OUTPUT_BEST) != 0);
}

static void define_dx(lgh__row_kernel *k, const lgh_plan_options *o, int64_t chunk) {
    *k = (lgh__row_kernel){.source = "chunk_dx.cu", .entry = "chunk_dx_kernel"};
    snprintf(k->definitions, sizeof k->definitions,
             "#define LGH_THREADS %d\n"
             "#define LGH_CHUNK %lld\n"
             "#define LGH_LOGITS_ROUNDING %d\n"
             "#define LGH_SOFTCAP %d\n"
             "#define LGH_TARGETS_INT32 %d\n"
             "#define LGH_GRADIENT %d\n",
             dx_threads(chunk), (long long)chunk, (int)o->logits_rounding, o->softcap > 0.0f,
             o->targets_dtype == LGH_INT32, (int)o->weight_dtype);
}

/* Kernels that only move or add; a type of none leaves its definition out. */
static void define_simple(lgh__row_kernel *k, const char *source, const char *entry, int threads,
                          lgh_dtype from, lgh_dtype to) {
    *k = (lgh__row_kernel){.source = source, .entry = entry};
    int used = snprintf(k->definitions, sizeof k->definitions, "#define LGH_THREADS %d\n", threads);
    if (from != LGH_DTYPE_NONE)
        used += snprintf(k->definitions + used, sizeof k->definitions - (size_t)used,
                         "#define LGH_FROM %d\n", (int)from);
    if (to != LGH_DTYPE_NONE)
        snprintf(k->definitions + used, sizeof k->definitions - (size_t)used, "#define LGH_TO %d\n",
                 (int)to);
}

static void define_live_rows(lgh__row_kernel *k, const lgh_plan_options *o) {
    *k = (lgh__row_kernel){.source = "live_rows.cu", .entry = "live_rows_kernel"};
    snprintf(k->definitions, sizeof k->definitions,
             "#define LGH_THREADS %d\n#define LGH_TARGETS_INT32 %d\n", SINGLE_BLOCK_THREADS,
             o->targets_dtype == LGH_INT32);
}

void lgh__chunked_define(lgh__row_kernel k[LGH__ROW_KERNELS], const lgh_plan_options *o,
                         const lgh__chunked_config *c) {
    static const lgh__row_kernel none = {.source = "", .entry = ""};
    for (int i = 0; i < LGH__ROW_KERNELS; ++i)
        k[i] = none;
    define_stats(&k[LGH__STATS], o);
    if (lgh__has_backward(o))
        define_dx(&k[LGH__DX], o, c->backward_chunk);
    if (o->dhidden_dtype != LGH_DTYPE_NONE)
        define_simple(&k[LGH__FINISH_DHIDDEN], "finish_rows.cu", "finish_rows_kernel", ROW_THREADS,
                      LGH_DTYPE_NONE, o->dhidden_dtype);
    if (o->dweight_dtype != LGH_DTYPE_NONE)
        define_simple(&k[LGH__FINISH_DWEIGHT], "finish_rows.cu", "finish_rows_kernel", ROW_THREADS,
                      LGH_DTYPE_NONE, o->dweight_dtype);
    if (c->gathers_hidden || c->scales_hidden)
        define_simple(&k[LGH__GATHER], "gather_rows.cu", "gather_rows_kernel", ROW_THREADS,
                      o->hidden_dtype, o->weight_dtype);
    if (o->bias_dtype != LGH_DTYPE_NONE)
        define_simple(&k[LGH__WIDEN_BIAS], "widen_bias.cu", "widen_bias_kernel", ROW_THREADS,
                      o->bias_dtype, LGH_DTYPE_NONE);
    if (o->dbias_dtype != LGH_DTYPE_NONE)
        define_simple(&k[LGH__COLUMN_SUMS], "column_sums.cu", "column_sums_kernel", ROW_THREADS,
                      o->weight_dtype, LGH_DTYPE_NONE);
    if (c->scales_hidden)
        define_simple(&k[LGH__GRADIENT_SCALE], "gradient_scale.cu", "gradient_scale_kernel",
                      SINGLE_BLOCK_THREADS, LGH_DTYPE_NONE, LGH_DTYPE_NONE);
    if (o->live_lists)
        define_live_rows(&k[LGH__LIVE_ROWS], o);
}

lgh_status lgh__chunked_load_kernels(lgh__chunked *e, const lgh_plan_options *o) {
    lgh__chunked_kernels *k = &e->kernels;
    void **const functions[LGH__ROW_KERNELS] = {
        [LGH__STATS] = &k->stats,
        [LGH__DX] = &k->dx,
        [LGH__FINISH_DHIDDEN] = &k->finish_dhidden,
        [LGH__FINISH_DWEIGHT] = &k->finish_dweight,
        [LGH__GATHER] = &k->gather,
        [LGH__WIDEN_BIAS] = &k->widen_bias,
        [LGH__COLUMN_SUMS] = &k->column_sums,
        [LGH__GRADIENT_SCALE] = &k->gradient_scale,
        [LGH__LIVE_ROWS] = &k->live_rows,
    };
    lgh__row_kernel kernels[LGH__ROW_KERNELS];
    lgh__chunked_define(kernels, o, &e->config);
    for (int i = 0; i < LGH__ROW_KERNELS; ++i) {
        const lgh__kernel_name name = {kernels[i].source, kernels[i].entry, kernels[i].definitions};
        if (*name.entry)
            FORWARD(lgh__cuda_kernel(e->cuda, &name, functions[i]));
    }
    return LGH_SUCCESS;
}

/* ---- Parameters ---------------------------------------------------------------------------- */

lgh__block lgh__block_at(int64_t positions, int64_t step, int64_t first) {
    const int64_t left = positions - first;
    return (lgh__block){first, left < step ? left : step};
}

int64_t lgh__positions(const lgh__row_call *call) {
    return call->live.rows ? call->live.bound : call->tokens;
}

lgh_block_rows lgh__block_rows(const lgh__row_call *call, lgh__block block) {
    return (lgh_block_rows){
        .first = block.first,
        .rows = block.rows,
        .tokens = call->tokens,
        .live = call->live.rows,
        .live_count = call->live.rows ? call->live.count : NULL,
    };
}

lgh_device_value lgh__device_value(lgh_value value) {
    return (lgh_device_value){value.data, value.stride, value.host};
}

lgh_token_targets lgh__token_targets(const lgh__row_call *call) {
    const lgh_plan_options *o = &call->plan->options;
    return (lgh_token_targets){call->targets, o->targets_dtype == LGH_INT32, o->ignore_index};
}

lgh_chunk_place lgh__chunk_place(const lgh__row_call *call, float *logits, int64_t width,
                                 const lgh__chunk *chunk, lgh__block block) {
    const lgh_plan_options *o = &call->plan->options;
    _Static_assert(sizeof(unsigned long long) == sizeof(uint64_t), "counters are 64 bits wide");
    return (lgh_chunk_place){
        .logits = logits,
        .stride = lgh__chunk_stride(width),
        .skip = (int)chunk->skip,
        .columns = (int)chunk->columns,
        .first_column = (int)chunk->first,
        .is_first = chunk->first == 0,
        .is_last = chunk->is_last,
        .softcap = o->softcap,
        .block = lgh__block_rows(call, block),
        .vocab_start = o->vocab_start,
        .shard_size = lgh__valid_entries(o),
        .vocab_valid = o->vocab_valid,
        .targets = call->targets,
        .ignore_index = o->ignore_index,
        .temperature = lgh__device_value(call->temperature),
        .foreign_targets = (unsigned long long *)call->counters.foreign_targets,
        .invalid_temperatures = (unsigned long long *)call->counters.invalid_temperatures,
    };
}

/* ---- Launches ------------------------------------------------------------------------------ */

lgh_status lgh__launch_stats(const lgh__row_call *c, const lgh_chunk_stats_params *p) {
    return lgh__driver_launch(c->engine->kernels.stats,
                              lgh__divide_up(p->place.block.rows, STATS_THREADS / 32),
                              STATS_THREADS, p, c->stream);
}

lgh_status lgh__launch_dx(const lgh__row_call *c, const lgh_chunk_dx_params *p) {
    return lgh__driver_launch(c->engine->kernels.dx, p->place.block.rows,
                              dx_threads(c->engine->config.backward_chunk), p, c->stream);
}

lgh_status lgh__launch_finish_dhidden(const lgh__row_call *c, const lgh_finish_rows_params *p) {
    return lgh__driver_launch(c->engine->kernels.finish_dhidden, p->block.rows, ROW_THREADS, p,
                              c->stream);
}

lgh_status lgh__launch_finish_dweight(const lgh__row_call *c, const lgh_finish_rows_params *p) {
    return lgh__driver_launch(c->engine->kernels.finish_dweight, p->block.rows, ROW_THREADS, p,
                              c->stream);
}

lgh_status lgh__launch_gather(const lgh__row_call *c, const lgh_gather_rows_params *p) {
    return lgh__driver_launch(c->engine->kernels.gather, p->block.rows, ROW_THREADS, p, c->stream);
}

lgh_status lgh__launch_widen_bias(const lgh__row_call *c, const lgh_widen_bias_params *p) {
    return lgh__driver_launch(c->engine->kernels.widen_bias,
                              lgh__divide_up(p->shard_size, p->chunk), ROW_THREADS, p, c->stream);
}

lgh_status lgh__launch_column_sums(const lgh__row_call *c, const lgh_column_sums_params *p) {
    return lgh__driver_launch(c->engine->kernels.column_sums, lgh__divide_up(p->columns, 32),
                              ROW_THREADS, p, c->stream);
}

lgh_status lgh__launch_gradient_scale(const lgh__row_call *c, const lgh_gradient_scale_params *p) {
    return lgh__driver_launch(c->engine->kernels.gradient_scale, 1, SINGLE_BLOCK_THREADS, p,
                              c->stream);
}

lgh_status lgh__launch_live_rows(const lgh__row_call *c, const lgh_live_rows_params *p) {
    return lgh__driver_launch(c->engine->kernels.live_rows, 1, SINGLE_BLOCK_THREADS, p, c->stream);
}

lgh_status lgh__chunked_live_rows(const lgh_plan *plan, const void *targets, int64_t tokens,
                                  int32_t *rows, int32_t *count, void *stream) {
    const lgh__row_call call = {.plan = plan, .engine = plan->state, .stream = stream};
    if (plan->options.max_tokens == 0) /* such a plan has no kernels */
        return lgh__driver_fill(count, 0, 1, sizeof *count, sizeof *count, stream);
    const lgh_live_rows_params p = {
        .targets = targets,
        .tokens = tokens,
        .ignore_index = plan->options.ignore_index,
        .rows = rows,
        .count = count,
    };
    return lgh__launch_live_rows(&call, &p);
}

/* ---- Operands ------------------------------------------------------------------------------ */

lgh_gather_rows_params lgh__gather_rows(const lgh__row_call *c, const lgh_const_matrix *hidden,
                                        lgh__block block, void *room, lgh_const_matrix *rows) {
    const lgh_plan_options *o = &c->plan->options;
    rows->data = room;
    rows->row_stride = lgh__row_pitch(o, o->weight_dtype);
    return (lgh_gather_rows_params){
        .from = hidden->data,
        .to = room,
        .from_stride = hidden->row_stride,
        .to_stride = rows->row_stride,
        .columns = o->hidden_size,
        .block = lgh__block_rows(c, block),
    };
}

lgh_status lgh__block_hidden(const lgh__row_call *c, const lgh_const_matrix *hidden,
                             lgh__block block, void *room, lgh_const_matrix *rows) {
    const lgh_plan_options *o = &c->plan->options;
    const int as_it_is = !c->live.rows && o->hidden_dtype == o->weight_dtype;
    *rows = *hidden;
    if (as_it_is) {
        rows->data = lgh__row_of(hidden, block.first);
        return LGH_SUCCESS;
    }
    const lgh_gather_rows_params p = lgh__gather_rows(c, hidden, block, room, rows);
    return lgh__launch_gather(c, &p);
}

lgh_status lgh__chunk_biases(const lgh__row_call *c, const void *bias, int64_t chunk, void *room,
                             const float **biases) {
    *biases = NULL;
    if (c->plan->options.bias_dtype == LGH_DTYPE_NONE || lgh__valid_entries(&c->plan->options) == 0)
        return LGH_SUCCESS;
    *biases = room;
    const lgh_widen_bias_params p = {
        .bias = bias,
        .to = room,
        .stride = lgh__chunk_stride(chunk),
        .chunk = chunk,
        .shard_size = lgh__valid_entries(&c->plan->options),
    };
    return lgh__launch_widen_bias(c, &p);
}
