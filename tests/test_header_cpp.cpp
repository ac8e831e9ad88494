/* test_header_cpp.cpp - the public header, alone and first, as a C++17 program sees it. */
#include "loggerhead/loggerhead.h"

static const lgh_context_options context_options = LGH_CONTEXT_OPTIONS_INIT;
static const lgh_plan_options plan_options = LGH_PLAN_OPTIONS_INIT;
static const lgh_forward_args forward_args = LGH_FORWARD_ARGS_INIT;
static const lgh_backward_args backward_args = LGH_BACKWARD_ARGS_INIT;

#include <cstdio>
#include <cstring>

int main() {
    const bool sizes = context_options.size == sizeof context_options &&
                       plan_options.size == sizeof plan_options &&
                       forward_args.size == sizeof forward_args &&
                       backward_args.size == sizeof backward_args;
    // C linkage: without it these names would not be found in the shared library.
    const bool linked =
        lgh_version() == LGH_VERSION_NUMBER &&
        std::strcmp(lgh_status_name(LGH_ERROR_WORKSPACE), "LGH_ERROR_WORKSPACE") == 0;
    if (!sizes)
        std::fprintf(stderr, "test_header_cpp: an INIT macro has the wrong size\n");
    if (!linked)
        std::fprintf(stderr, "test_header_cpp: the library is not the header's\n");
    return sizes && linked ? 0 : 1;
}
