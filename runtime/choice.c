/* choice.c - choosing an algorithm for a product. */
#include "choice.h"

#include "configuration.h"
#include "error.h"

#define MOST_CANDIDATES 8
/* A later candidate must be faster by more than two timings of one algorithm differ. */
#define WORTHWHILE 0.98f

/* Tests and times a candidate. One that cuBLASLt refuses at some length is no candidate; any other
 * failure is one. */
static lgh_status try_candidate(lgh__trial *trial, const lgh__product *candidate, int *passes,
                                float *time) {
    lgh_status status = lgh__trial_test(trial, candidate, passes);
    if (status == LGH_SUCCESS && *passes)
        status = lgh__trial_time(trial, candidate, time);
    if (status != LGH_ERROR_CUBLASLT)
        return status;
    *passes = 0;
    return LGH_SUCCESS;
}

/* Tries the candidates in order; the first to pass has left the reference for the others. *found
 * counts those that pass. */
static lgh_status choose_fastest(lgh__product *best, lgh__trial *trial, const lgh__matmul *shape,
                                 const lgh__algorithm *candidates, int count, int keep_reference,
                                 int *found) {
    float best_time = 0.0f, time = 0.0f;
    for (int i = 0; i < count; ++i) {
        const lgh__product candidate = {*shape, candidates[i]};
        int passes;
        if (*found == 0 && !keep_reference)
            trial->has_reference = 0; /* of a candidate that failed */
        FORWARD(try_candidate(trial, &candidate, &passes, &time));
        if (!passes)
            continue;
        if (*found == 0 || time < best_time * WORTHWHILE) {
            *best = candidate;
            best_time = time;
        }
        ++*found;
    }
    return LGH_SUCCESS;
}

lgh_status lgh__choose_product(lgh__product *product, lgh__trial *trial, const lgh__matmul *shape,
                               const lgh__product *twin) {
    lgh__algorithm candidates[MOST_CANDIDATES + 1];
    int count, found = 0;
    FORWARD(lgh__cublaslt_candidates(trial->cuda->cublaslt, shape, candidates, MOST_CANDIDATES,
                                     &count));
    if (twin)
        candidates[count++] = twin->algorithm;
    FORWARD(lgh__trial_begin(trial, shape, twin != NULL));
    FORWARD(choose_fastest(product, trial, shape, candidates, count, twin != NULL, &found));
    RETURN_IF(found == 0, LGH_ERROR_CUBLASLT,
              "none of cuBLASLt's %d algorithms for m=%lld n=%lld k=%lld gives a row the same bits "
              "at every length; another cuBLASLt version may",
              count, (long long)shape->m, (long long)shape->n, (long long)shape->k);
    return LGH_SUCCESS;
}

lgh_status lgh__choose_like(lgh__product *product, lgh__trial *trial, const lgh__matmul *shape,
                            const lgh__product *model) {
    const lgh__product candidate = {*shape, model->algorithm};
    int passes;
    float time;
    FORWARD(lgh__trial_begin(trial, shape, 0));
    FORWARD(try_candidate(trial, &candidate, &passes, &time));
    if (!passes)
        return lgh__choose_product(product, trial, shape, NULL);
    *product = candidate;
    return LGH_SUCCESS;
}

lgh_status lgh__choose_named(lgh__product *product, lgh__trial *trial, const lgh__matmul *shape,
                             const lgh__product *twin, const char *configuration, const char *key) {
    char algorithm[LGH__ALGORITHM_TEXT];
    int passes = 0;
    float time;
    product->shape = *shape;
    FORWARD(lgh__configuration_text(configuration, key, algorithm, sizeof algorithm));
    FORWARD(lgh__algorithm_read(&product->algorithm, algorithm, key));
    FORWARD(lgh__trial_begin(trial, shape, twin != NULL));
    if (!lgh__cublaslt_splits_k(&product->algorithm))
        FORWARD(try_candidate(trial, product, &passes, &time));
    RETURN_IF(
        !passes, LGH_ERROR_UNSUPPORTED,
        "options->configuration: the %s is an algorithm that this cuBLASLt or GPU cannot run with "
        "the promised bits (m=%lld n=%lld k=%lld)",
        key, (long long)shape->m, (long long)shape->n, (long long)shape->k);
    return LGH_SUCCESS;
}
