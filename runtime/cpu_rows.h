/* cpu_rows.h - which rows of a call the CPU device works on, and what their targets and
 * temperatures say. */
#ifndef LGH_CPU_ROWS_H
#define LGH_CPU_ROWS_H

#include "plan.h"

/* What kind of target a row has. */
typedef enum lgh__cpu_target {
    LGH__CPU_IGNORED,   /* the row does not count, or is no row of the call */
    LGH__CPU_NO_TARGET, /* the call has no targets */
    LGH__CPU_OUT_OF_VOCABULARY,
    LGH__CPU_REMOTE, /* another shard's entry */
    LGH__CPU_LOCAL
} lgh__cpu_target;

typedef struct lgh__cpu_row {
    lgh__cpu_target kind;
    int64_t token;              /* its place in hidden and in the vectors of the call */
    int64_t target;             /* a row of the weight; -1 unless LOCAL */
    int valid_temperature;      /* an IGNORED row's is not looked at, and counts as valid */
    double inverse_temperature; /* where T is valid */
} lgh__cpu_row;

/* The rows that a call looks at: those of the live list, or all. */
typedef struct lgh__cpu_rows {
    const lgh_plan_options *options;
    int64_t entries;     /* rows of the weight that are no padding */
    int64_t tokens;      /* N */
    const int32_t *list; /* the token at each position; NULL: the position itself */
    int64_t positions;
    const void *targets;
    lgh_value temperature;
} lgh__cpu_rows;

lgh__cpu_rows lgh__cpu_rows_of(const lgh_plan *plan, int64_t tokens, const lgh_live *live,
                               const void *targets, lgh_value temperature);

lgh__cpu_row lgh__cpu_row_at(const lgh__cpu_rows *rows, int64_t position);

/** Adds the call's rows to the counters that are wanted. */
void lgh__cpu_count_rows(const lgh__cpu_rows *rows, const lgh_counters *counters);

#endif
