/* harness.c - the main of a test program: which cases run, on which device, and how it exits. */
#include "harness.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_PASSED = 0, EXIT_FAILED = 1, EXIT_SKIPPED = 77 };

static struct {
    lgh_device_type device;
    lgh_context *context;
    const struct CMUnitTest *test; /* the one that runs */
    bool finished;                 /* it came to its end: neither skipped nor failed */
} current;

typedef struct tally {
    int passed;
    int failed;
    int skipped;
} tally;

/* ---- Device -------------------------------------------------------------------------------- */

lgh_device_type lgh_test_device(void) {
    return current.device;
}

__attribute__((format(printf, 1, 0))) static void print_reason(const char *format,
                                                               va_list arguments) {
    char reason[2048];
    vsnprintf(reason, sizeof reason, format, arguments);
    print_message("skipped: %s\n", reason);
}

void lgh_test_skip(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_reason(format, arguments);
    va_end(arguments);
    skip();
    abort(); /* skip does not return, but does not say so to the compiler */
}

void lgh_test_skip_gpu(const char *format, ...) {
    const char *required = getenv("LGH_REQUIRE_GPU");
    va_list arguments;
    va_start(arguments, format);
    print_reason(format, arguments);
    va_end(arguments);
    if (required && strcmp(required, "1") == 0)
        fail_msg("LGH_REQUIRE_GPU=1 does not allow this skip");
    skip();
    abort();
}

/* Statuses of a machine without a usable GPU. Anything else, once there is one, is a fault. */
static bool lacks_gpu(lgh_status status) {
    return status == LGH_ERROR_LIBRARY_NOT_FOUND || status == LGH_ERROR_NO_DEVICE ||
           status == LGH_ERROR_UNSUPPORTED;
}

lgh_context *lgh_test_context(void) {
    if (current.context)
        return current.context;
    lgh_context_options options = LGH_CONTEXT_OPTIONS_INIT;
    options.type = current.device;
    lgh_status status = lgh_context_create(&current.context, &options);
    if (current.device == LGH_DEVICE_CUDA && lacks_gpu(status))
        lgh_test_skip_gpu("%s", lgh_last_error());
    lgh_assert_status(status, LGH_SUCCESS);
    return current.context;
}

/* ---- Main ---------------------------------------------------------------------------------- */

static void run_current(void **state) {
    current.test->test_func(state);
    current.finished = true;
}

/* A group of its own for each case: cmocka counts failures, but not what it skipped. */
static void run_case(const struct CMUnitTest *test, tally *counts) {
    const struct CMUnitTest group[] = {
        {test->name, run_current, test->setup_func, test->teardown_func, test->initial_state}};
    current.test = test;
    current.finished = false;
    if (cmocka_run_group_tests_name(test->name, group, NULL, NULL) != 0)
        counts->failed++;
    else if (current.finished)
        counts->passed++;
    else
        counts->skipped++;
}

static const struct CMUnitTest *find_test(const struct CMUnitTest *tests, size_t count,
                                          const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(tests[i].name, name) == 0)
            return &tests[i];
    return NULL;
}

static int list_tests(const struct CMUnitTest *tests, size_t count) {
    for (size_t i = 0; i < count; i++)
        puts(tests[i].name);
    return count > 0 ? EXIT_PASSED : EXIT_FAILED;
}

static bool parse_device(const char *name) {
    if (strcmp(name, "cpu") == 0)
        current.device = LGH_DEVICE_CPU;
    else if (strcmp(name, "cuda") == 0)
        current.device = LGH_DEVICE_CUDA;
    else
        return false;
    return true;
}

/* A failed case may have left plans behind that still point to the context. No case at all is a
 * failure too, since it would otherwise look like a pass. */
static int finish(tally counts) {
    if (counts.failed > 0 || counts.passed + counts.skipped == 0)
        return EXIT_FAILED;
    lgh_context_destroy(current.context);
    current.context = NULL;
    return counts.passed > 0 ? EXIT_PASSED : EXIT_SKIPPED;
}

int lgh_test_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count) {
    tally counts = {0, 0, 0};
    int first = 1;

    if (argc == 2 && strcmp(argv[1], "--list") == 0)
        return list_tests(tests, count);
    if (argc >= 3 && strcmp(argv[1], "--device") == 0) {
        if (!parse_device(argv[2])) {
            fprintf(stderr, "%s: --device takes cpu or cuda, not %s\n", argv[0], argv[2]);
            return EXIT_FAILED;
        }
        first = 3;
    }
    for (int i = first; i < argc; i++) {
        const struct CMUnitTest *test = find_test(tests, count, argv[i]);
        if (!test) {
            fprintf(stderr, "%s: no case %s; --list gives the names\n", argv[0], argv[i]);
            return EXIT_FAILED;
        }
        run_case(test, &counts);
    }
    for (size_t i = 0; first == argc && i < count; i++)
        run_case(&tests[i], &counts);
    return finish(counts);
}
