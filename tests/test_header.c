/* test_header.c - the public header, alone and first, as a C11 program sees it. */
#include "loggerhead/loggerhead.h"

/* What the header itself promises to provide, used before anything else is included. */
static const lgh_context_options context_options = LGH_CONTEXT_OPTIONS_INIT;
static const lgh_plan_options plan_options = LGH_PLAN_OPTIONS_INIT;
static const lgh_forward_args forward_args = LGH_FORWARD_ARGS_INIT;
static const lgh_backward_args backward_args = LGH_BACKWARD_ARGS_INIT;
static const size_t one_byte = 1;
static const int64_t ignore_index = -100;

#include <stdio.h>

static int failures;

static void check(int condition, const char *what) {
    if (condition)
        return;
    fprintf(stderr, "test_header: not so: %s\n", what);
    failures++;
}

#define CHECK(condition) check((condition), #condition)

static void check_sizes(void) {
    CHECK(context_options.size == sizeof(lgh_context_options) * one_byte);
    CHECK(plan_options.size == sizeof(lgh_plan_options));
    CHECK(forward_args.size == sizeof(lgh_forward_args));
    CHECK(backward_args.size == sizeof(lgh_backward_args));
}

static void check_defaults(void) {
    CHECK(context_options.type == LGH_DEVICE_CPU);
    CHECK(plan_options.ignore_index == ignore_index);
    CHECK(plan_options.hidden_dtype == LGH_BF16);
    CHECK(plan_options.weight_dtype == LGH_BF16);
    CHECK(plan_options.targets_dtype == LGH_INT64);
    CHECK(plan_options.dhidden_dtype == LGH_FP32);
    CHECK(plan_options.dweight_dtype == LGH_FP32);
    CHECK(plan_options.logits_rounding == LGH_DTYPE_NONE);
    CHECK(plan_options.outputs == (LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE | LGH_OUTPUT_ENTROPY));
    CHECK(forward_args.temperature.data == NULL && forward_args.temperature.host == 1.0f);
    CHECK(backward_args.temperature.data == NULL && backward_args.temperature.host == 1.0f);
    CHECK(backward_args.grad_logp.host == 0.0f && backward_args.grad_entropy.host == 0.0f);
    CHECK(backward_args.grad_lse.host == 0.0f && backward_args.accumulate_dweight == 0);
}

/* Calls into the shared library, so that it has to link and load. */
static void check_library(void) {
    CHECK(lgh_version() == LGH_VERSION_NUMBER);
    CHECK(lgh_dtype_size(LGH_BF16) == 2 && lgh_dtype_size(LGH_FP32) == 4);
    CHECK(lgh_dtype_size(LGH_INT32) == 4 && lgh_dtype_size(LGH_INT64) == 8);
    CHECK(lgh_dtype_size(LGH_DTYPE_NONE) == 0 && lgh_dtype_size((lgh_dtype)99) == 0);
    lgh_plan_destroy(NULL);
    lgh_context_destroy(NULL);
}

int main(void) {
    check_sizes();
    check_defaults();
    check_library();
    return failures > 0;
}
