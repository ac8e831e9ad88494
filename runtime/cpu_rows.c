/* cpu_rows.c - the rows of a call and their kinds. */
#include "cpu_rows.h"

#include "value.h"

#include "formulas.h"

static int64_t list_length(const lgh_live *live) {
    int64_t length = live->bound;
    if (live->count && *live->count < length)
        length = *live->count;
    return length > 0 ? length : 0;
}

lgh__cpu_rows lgh__cpu_rows_of(const lgh_plan *plan, int64_t tokens, const lgh_live *live,
                               const void *targets, lgh_value temperature) {
    return (lgh__cpu_rows){.options = &plan->options,
                           .entries = lgh__valid_entries(&plan->options),
                           .tokens = tokens,
                           .list = live->rows,
                           .positions = live->rows ? list_length(live) : tokens,
                           .targets = targets,
                           .temperature = temperature};
}

static void read_target(lgh__cpu_row *row, const lgh__cpu_rows *rows) {
    const lgh_plan_options *options = rows->options;
    row->kind = LGH__CPU_NO_TARGET;
    row->target = -1;
    if (!rows->targets)
        return;
    const int64_t entry = lgh__target_at(rows->targets, options->targets_dtype, row->token);
    if (entry == options->ignore_index) {
        row->kind = LGH__CPU_IGNORED;
    } else if (entry < 0 || entry >= options->vocab_valid) {
        row->kind = LGH__CPU_OUT_OF_VOCABULARY;
    } else if (entry < options->vocab_start || entry - options->vocab_start >= rows->entries) {
        row->kind = LGH__CPU_REMOTE;
    } else {
        row->kind = LGH__CPU_LOCAL;
        row->target = entry - options->vocab_start;
    }
}

lgh__cpu_row lgh__cpu_row_at(const lgh__cpu_rows *rows, int64_t position) {
    lgh__cpu_row row = {LGH__CPU_IGNORED, rows->list ? rows->list[position] : position, -1, 1, 0};
    if (row.token < 0 || row.token >= rows->tokens)
        return row;
    read_target(&row, rows);
    if (row.kind == LGH__CPU_IGNORED)
        return row;
    const double temperature = lgh__value_at(rows->temperature, row.token);
    row.valid_temperature = lgh_temperature_is_valid(temperature);
    if (row.valid_temperature)
        row.inverse_temperature = lgh_inverse_temperature(temperature);
    return row;
}

/* Calls that run at once may share a counter. C11 has atomic additions for _Atomic objects only,
 * which the caller's is not. */
static void add(uint64_t *counter, uint64_t count) {
    if (counter)
        __atomic_fetch_add(counter, count, __ATOMIC_RELAXED);
}

void lgh__cpu_count_rows(const lgh__cpu_rows *rows, const lgh_counters *counters) {
    uint64_t foreign = 0, invalid = 0;
    if (!counters->foreign_targets && !counters->invalid_temperatures)
        return;
    for (int64_t position = 0; position < rows->positions; position++) {
        const lgh__cpu_row row = lgh__cpu_row_at(rows, position);
        foreign += row.kind == LGH__CPU_REMOTE || row.kind == LGH__CPU_OUT_OF_VOCABULARY;
        invalid += !row.valid_temperature;
    }
    add(counters->foreign_targets, foreign);
    add(counters->invalid_temperatures, invalid);
}
