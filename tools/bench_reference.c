/* bench_reference.c - what the CPU device, in float64, makes of a few tokens. */
#include "bench_reference.h"

#include "error.h"

#include <stdlib.h>
#include <string.h>

/* A subject on the CPU device that sees a few tokens only. */
typedef struct run {
    lgh_tool_device device;
    lgh_tool_tensors few;
    lgh_tool_buffers buffers;
    lgh_tool_feature feature;
    lgh_tool_subject subject;
} run;

/* Each result is rounded once, to FP32. Which rows are live is applied afterwards. */
static lgh_tool_feature plain_feature(const lgh_tool_feature *feature) {
    const int has_backward = lgh_tool_feature_has_backward(feature);
    lgh_tool_feature plain = *feature;
    plain.calls = has_backward ? LGH_TOOL_BOTH : LGH_TOOL_FORWARD;
    plain.outputs = LGH_OUTPUT_ALL;
    plain.dhidden = has_backward ? LGH_FP32 : LGH_DTYPE_NONE;
    plain.dweight = LGH_DTYPE_NONE;
    plain.dbias = 0;
    plain.accumulates = 0;
    plain.counters = 0;
    plain.live_step = 0;
    return plain;
}

static lgh_status keep(lgh_tool_reference *reference, const run *r) {
    const int64_t n = r->few.shape.tokens;
    const int64_t elements = n * r->few.shape.hidden;
    for (int which = 0; which < LGH_TOOL_STATISTICS; ++which)
        memcpy(reference->statistics[which], r->subject.statistics + which * n,
               (size_t)n * sizeof(float));
    memcpy(reference->best, r->subject.best, (size_t)n * sizeof(int64_t));
    if (!lgh_tool_feature_has_backward(&r->feature))
        return LGH_SUCCESS;
    FORWARD(lgh_tool_allocate(&reference->dhidden, elements, sizeof(float)));
    memcpy(reference->dhidden, r->buffers.dhidden, (size_t)elements * sizeof(float));
    return LGH_SUCCESS;
}

static lgh_status compute(lgh_tool_reference *reference, run *r) {
    const lgh_tool_limits limits = {0, 0};
    FORWARD(lgh_tool_device_open(&r->device, LGH_DEVICE_CPU));
    FORWARD(lgh_tool_buffers_open(&r->buffers, &r->device, &r->few, 0));
    FORWARD(lgh_tool_subject_open(&r->subject, &r->buffers, &r->feature, &limits));
    FORWARD(lgh_tool_subject_run(&r->subject, NULL));
    return keep(reference, r);
}

static void clear_row(lgh_tool_reference *reference, int64_t r, int64_t hidden_size) {
    for (int which = 0; which < LGH_TOOL_STATISTICS; ++which)
        reference->statistics[which][r] = 0.0f;
    reference->best[r] = -1;
    if (reference->dhidden)
        memset(reference->dhidden + r * hidden_size, 0, (size_t)hidden_size * sizeof(float));
}

lgh_status lgh_tool_reference_compute(lgh_tool_reference *reference,
                                      const lgh_tool_tensors *tensors,
                                      const lgh_tool_feature *feature, const int64_t *tokens,
                                      int64_t count) {
    run r = {.feature = plain_feature(feature)};
    *reference = (lgh_tool_reference){.dhidden = NULL};
    RETURN_IF(count < 1 || count > LGH_TOOL_REFERENCE_ROWS, LGH_ERROR_INVALID_ARGUMENT,
              "%lld rows for a reference of 1 to %d", (long long)count, LGH_TOOL_REFERENCE_ROWS);
    FORWARD(lgh_tool_tensors_gather(&r.few, tensors, tokens, count));
    lgh_status status = compute(reference, &r);
    for (int64_t i = 0; status == LGH_SUCCESS && i < count; ++i)
        if (!lgh_tool_feature_is_live(feature, tokens[i]))
            clear_row(reference, i, tensors->shape.hidden);
    lgh_tool_subject_close(&r.subject);
    lgh_tool_buffers_close(&r.buffers);
    lgh_tool_tensors_free_gathered(&r.few);
    return status;
}

void lgh_tool_reference_free(lgh_tool_reference *reference) {
    free(reference->dhidden);
    *reference = (lgh_tool_reference){.dhidden = NULL};
}
