/* test_context_cases.c - contexts, names and memory with a bad argument: each call returns its
 * status, names the argument in its text, and gives NULL in place of a handle; the arguments just
 * beside it are taken. */
#include "harness.h"
#include "refused_calls.h"

#include <string.h>

/* A pointer that is not NULL, to see it become so; nothing reads through it. */
static void *not_null(void) {
    static char byte;
    return &byte;
}

/* ---- Contexts ------------------------------------------------------------------------------- */

static void refuse_context(const lgh_context_options *options, lgh_status expected,
                           const char *argument) {
    lgh_context *context = not_null();
    assert_names(lgh_context_create(&context, options), expected, argument);
    assert_null(context);
}

static lgh_context_options good_context(void) {
    lgh_context_options options = LGH_CONTEXT_OPTIONS_INIT;
    lgh_test_context(); /* or the case is skipped for want of a device */
    options.type = lgh_test_device();
    return options;
}

#define REFUSE_CONTEXT(change, expected, argument)                                                 \
    do {                                                                                           \
        lgh_context_options options_ = good_context();                                             \
        options_.change;                                                                           \
        refuse_context(&options_, expected, argument);                                             \
    } while (0)

static void bad_contexts_are_refused(void **state) {
    (void)state;
    const lgh_context_options options = good_context();
    assert_names(lgh_context_create(NULL, &options), INVALID, "context is null");
    refuse_context(NULL, INVALID, "options is null");
    REFUSE_CONTEXT(type = (lgh_device_type)7, INVALID, "options->type");
    REFUSE_CONTEXT(type = (lgh_device_type)-1, INVALID, "options->type");
    REFUSE_CONTEXT(size = 0, INVALID, "options->size");
    REFUSE_CONTEXT(size = sizeof options - 1, INVALID, "options->size");
    REFUSE_CONTEXT(size = 65537, INVALID, "options->size");
    if (lgh_test_device() == LGH_DEVICE_CUDA) {
        REFUSE_CONTEXT(ordinal = 1000, LGH_ERROR_NO_DEVICE, "options->ordinal");
        REFUSE_CONTEXT(ordinal = -1, LGH_ERROR_NO_DEVICE, "options->ordinal");
    } else {
        REFUSE_CONTEXT(cpu_threads = -1, INVALID, "options->cpu_threads");
        REFUSE_CONTEXT(cpu_threads = 4097, INVALID, "options->cpu_threads");
        REFUSE_CONTEXT(cpu_threads = INT32_MAX, INVALID, "options->cpu_threads");
    }
    lgh_context_destroy(NULL);
}

/* What the other device reads does not matter. */
static void good_contexts_open(void **state) {
    (void)state;
    struct {
        lgh_context_options options;
        unsigned char later[8];
    } given = {.options = good_context()};
    lgh_context *context = NULL;
    if (lgh_test_device() == LGH_DEVICE_CUDA)
        given.options.cpu_threads = -1;
    else
        given.options.ordinal = -1;
    given.options.size = sizeof given;
    lgh_assert_success(lgh_context_create(&context, &given.options));
    lgh_context_destroy(context);
    given.later[7] = 1;
    refuse_context(&given.options, INVALID, "options sets a field");
}

static void bad_names_are_refused(void **state) {
    (void)state;
    lgh_context *context = lgh_test_context();
    char text[4] = "abc";
    assert_names(lgh_context_device_name(NULL, text, sizeof text), INVALID, "context is null");
    assert_names(lgh_context_device_name(context, NULL, 4), INVALID, "text is null");
    assert_names(lgh_context_device_name(context, text, 0), INVALID, "capacity is 0");
    assert_string_equal(text, "abc");
    lgh_assert_success(lgh_context_device_name(context, text, sizeof text));
    assert_int_equal(strlen(text), 3);
    lgh_assert_success(lgh_context_device_name(context, text, 1));
    assert_string_equal(text, "");
}

/* ---- Memory --------------------------------------------------------------------------------- */

static void refuse_bytes(size_t bytes) {
    void *memory = not_null();
    lgh_assert_status(lgh_memory_allocate(lgh_test_context(), bytes, &memory),
                      LGH_ERROR_OUT_OF_MEMORY);
    lgh_assert_contains(lgh_last_error(), "bytes");
    assert_null(memory);
}

static void bad_allocations_are_refused(void **state) {
    (void)state;
    lgh_context *context = lgh_test_context();
    void *memory = not_null();
    assert_names(lgh_memory_allocate(NULL, 1, &memory), INVALID, "context is null");
    assert_names(lgh_memory_allocate(context, 1, NULL), INVALID, "memory is null");
    refuse_bytes(SIZE_MAX);
    if (lgh_test_device() == LGH_DEVICE_CUDA) /* host allocators of sanitizers abort instead */
        refuse_bytes((size_t)1 << 56);
    memory = not_null();
    lgh_assert_success(lgh_memory_allocate(context, 0, &memory));
    assert_null(memory);
    lgh_assert_success(lgh_memory_allocate(context, 1, &memory)); /* also after a refusal */
    assert_int_equal((uintptr_t)memory % LGH_WORKSPACE_ALIGNMENT, 0);
    lgh_memory_free(context, memory);
    lgh_memory_free(context, NULL);
    lgh_memory_free(NULL, NULL);
}

static void bad_copies_are_refused(void **state) {
    (void)state;
    lgh_context *context = lgh_test_context();
    void *stream = device_stream();
    char byte = 1, other = 2;
    assert_names(lgh_memory_copy(NULL, &byte, &other, 1, stream), INVALID, "context is null");
    assert_names(lgh_memory_copy(context, NULL, &other, 1, stream), INVALID, "to is null");
    assert_names(lgh_memory_copy(context, &byte, NULL, 1, stream), INVALID, "from is null");
    assert_int_equal(byte, 1);
    lgh_assert_success(lgh_memory_copy(context, NULL, NULL, 0, stream));
    lgh_assert_success(lgh_memory_copy(context, &byte, &other, 1, stream));
    assert_int_equal(byte, 2);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_contexts_are_refused), cmocka_unit_test(good_contexts_open),
        cmocka_unit_test(bad_names_are_refused),    cmocka_unit_test(bad_allocations_are_refused),
        cmocka_unit_test(bad_copies_are_refused),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
