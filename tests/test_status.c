/* test_status.c - the status list's names, values and texts, and the version. */
#include "harness.h"

#include <string.h>

#define LGH_TEST_ENTRY(name, value, text) {name, #name, value, text},

static const struct {
    lgh_status status;
    const char *name;
    int value;
    const char *text;
} statuses[] = {LGH_STATUS_LIST(LGH_TEST_ENTRY)};

enum { STATUS_COUNT = sizeof statuses / sizeof statuses[0] };

static void every_status_has_its_name_and_text(void **state) {
    (void)state;
    for (size_t i = 0; i < STATUS_COUNT; i++) {
        assert_string_equal(lgh_status_name(statuses[i].status), statuses[i].name);
        assert_string_equal(lgh_status_text(statuses[i].status), statuses[i].text);
    }
}

static void values_are_never_renumbered(void **state) {
    (void)state;
    assert_int_equal(LGH_SUCCESS, 0);
    assert_int_equal(LGH_ERROR_INVALID_ARGUMENT, 1);
    assert_int_equal(LGH_ERROR_UNSUPPORTED, 2);
    assert_int_equal(LGH_ERROR_WORKSPACE, 3);
    assert_int_equal(LGH_ERROR_OUT_OF_MEMORY, 4);
    assert_int_equal(LGH_ERROR_LIBRARY_NOT_FOUND, 5);
    assert_int_equal(LGH_ERROR_NO_DEVICE, 6);
    assert_int_equal(LGH_ERROR_COMPILE, 7);
    assert_int_equal(LGH_ERROR_DEVICE, 8);
    assert_int_equal(LGH_ERROR_CUBLASLT, 9);
    assert_int_equal(LGH_ERROR_SYSTEM, 10);
    assert_int_equal(LGH_ERROR_INTERNAL, 11);
}

static void values_and_names_are_distinct(void **state) {
    (void)state;
    for (size_t i = 0; i < STATUS_COUNT; i++) {
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(statuses[i].value, statuses[j].value);
            assert_string_not_equal(statuses[i].name, statuses[j].name);
            assert_string_not_equal(statuses[i].text, statuses[j].text);
        }
    }
}

static void unknown_status_says_so(void **state) {
    (void)state;
    const int unknown[] = {-1, STATUS_COUNT, 1000};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        assert_string_equal(lgh_status_name((lgh_status)unknown[i]), "unknown status");
        assert_non_null(lgh_status_text((lgh_status)unknown[i]));
        assert_true(strlen(lgh_status_text((lgh_status)unknown[i])) > 0);
    }
}

static void last_error_is_empty_before_the_first_failure(void **state) {
    (void)state;
    assert_string_equal(lgh_last_error(), "");
}

static void version_is_the_headers(void **state) {
    (void)state;
    assert_int_equal(lgh_version(), LGH_VERSION_NUMBER);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_name_and_text),
        cmocka_unit_test(values_are_never_renumbered),
        cmocka_unit_test(values_and_names_are_distinct),
        cmocka_unit_test(unknown_status_says_so),
        cmocka_unit_test(last_error_is_empty_before_the_first_failure),
        cmocka_unit_test(version_is_the_headers),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
