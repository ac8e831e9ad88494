/* bench_compare.h - results of the library beside those of float64, and what is promised. */
#ifndef LGH_TOOL_BENCH_COMPARE_H
#define LGH_TOOL_BENCH_COMPARE_H

#include "bench_reference.h"

/* Of each of the two groups: enough for the mean of their 16-bit roundings to be near its limit. */
#define LGH_TOOL_ENTRIES 64

/* What a run wrote, in host memory; 0 where it wrote nothing. */
typedef struct lgh_tool_outputs {
    float *statistics; /* [LGH_TOOL_STATISTICS, N] */
    int64_t *best;     /* [N] */
    void *dhidden;     /* [N, D] */
    float *dweight[2]; /* [rows, D] of the entries that are targets (1) and of those that are not */
    float dbias[2][LGH_TOOL_ENTRIES];
} lgh_tool_outputs;

typedef struct lgh_tool_sample {
    int64_t tokens[LGH_TOOL_REFERENCE_ROWS];
    int64_t token_count;
    int64_t entries[2][LGH_TOOL_ENTRIES]; /* by whether they are targets */
    int64_t entry_counts[2];
} lgh_tool_sample;

/* What is compared with float64. The first are in the order of lgh_tool_subject.statistics. */
enum {
    LGH_TOOL_ERROR_LOGP,
    LGH_TOOL_ERROR_LSE,
    LGH_TOOL_ERROR_ENTROPY,
    LGH_TOOL_ERROR_LOGP_AT_ONE,
    LGH_TOOL_ERROR_BEST, /* how far below the largest logit that of `best` is, over T */
    LGH_TOOL_ERROR_DHIDDEN,
    LGH_TOOL_ERROR_DWEIGHT_OTHERS, /* rows of entries that are no token's target */
    LGH_TOOL_ERROR_DWEIGHT_TARGETS,
    LGH_TOOL_ERROR_DBIAS_OTHERS,
    LGH_TOOL_ERROR_DBIAS_TARGETS,
    LGH_TOOL_ERRORS
};

/* An error against float64 and the most that the library promises. */
typedef struct lgh_tool_error {
    int64_t rows; /* that were compared; 0: there are none */
    double error;
    double promise;
} lgh_tool_error;

/** A NaN is no error within any bound. */
static inline int lgh_tool_error_holds(const lgh_tool_error *error) {
    return error->error <= error->promise;
}

/**
 * Fills in errors[LGH_TOOL_ERRORS] for what the feature asks for:
 * - the outputs and dhidden of the sample's tokens against the CPU device;
 * - dweight and dbias of its entries against lgh_tool_dweight_rows. Their exp(z - lse) needs the
 *   lse of every token: the device's own, which the tokens above vouch for.
 */
lgh_status lgh_tool_compare(lgh_tool_error *errors, const lgh_tool_tensors *tensors,
                            const lgh_tool_feature *feature, const lgh_tool_sample *sample,
                            const lgh_tool_outputs *outputs, lgh__threads *threads);

#endif
