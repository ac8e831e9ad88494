/* assertions.c - comparisons that print what they compared. */
#include "harness.h"

#include <math.h>
#include <string.h>

/* The distance of two numbers: 0 for equal infinities, a NaN for a NaN. */
static double distance(double actual, double expected) {
    return actual == expected ? 0.0 : fabs(actual - expected);
}

void lgh__assert_close(double actual, double expected, double tolerance, const char *what,
                       const char *file, int line) {
    double error = distance(actual, expected);
    if (error <= tolerance)
        return;
    print_error("%s: actual %.9g, expected %.9g, error %.3g > tolerance %.3g\n", what, actual,
                expected, error, tolerance);
    _fail(file, line);
}

void lgh__assert_array_close(const float *actual, const double *expected, size_t count,
                             double tolerance, const char *what, const char *file, int line) {
    size_t worst = 0;
    size_t above = 0;
    double largest = 0.0;
    for (size_t i = 0; i < count; i++) {
        double error = distance((double)actual[i], expected[i]);
        above += !(error <= tolerance);
        /* The first NaN stays the worst: no comparison with it is true. */
        if (error > largest || (isnan(error) && !isnan(largest))) {
            largest = error;
            worst = i;
        }
    }
    if (above == 0)
        return;
    print_error("%s: %zu of %zu above the tolerance %.3g; largest error %.3g at [%zu]: "
                "actual %.9g, expected %.9g\n",
                what, above, count, tolerance, largest, worst, (double)actual[worst],
                expected[worst]);
    _fail(file, line);
}

double lgh_relative_l2(const float *actual, const double *expected, size_t count) {
    double difference = 0.0;
    double reference = 0.0;
    for (size_t i = 0; i < count; i++) {
        double error = distance((double)actual[i], expected[i]);
        difference += error * error;
        reference += expected[i] * expected[i];
    }
    return difference == 0.0 ? 0.0 : sqrt(difference / reference);
}

void lgh__assert_relative_l2(const float *actual, const double *expected, size_t count,
                             double tolerance, const char *what, const char *file, int line) {
    double error = lgh_relative_l2(actual, expected, count);
    if (error <= tolerance)
        return;
    print_error("%s: relative L2 error %.3g > tolerance %.3g over %zu numbers\n", what, error,
                tolerance, count);
    lgh__assert_array_close(actual, expected, count, 0.0, what, file, line);
    _fail(file, line);
}

void lgh__assert_same_bytes(const void *actual, const void *expected, size_t bytes,
                            const char *what, const char *file, int line) {
    const unsigned char *a = actual;
    const unsigned char *b = expected;
    for (size_t i = 0; i < bytes; i++) {
        if (a[i] == b[i])
            continue;
        print_error("%s: byte %zu of %zu is 0x%02x, expected 0x%02x\n", what, i, bytes,
                    (unsigned)a[i], (unsigned)b[i]);
        _fail(file, line);
    }
}

void lgh__assert_status(lgh_status actual, lgh_status expected, const char *call, const char *file,
                        int line) {
    if (actual == expected)
        return;
    print_error("%s\n    gave %s, expected %s; last error: %s\n", call, lgh_status_name(actual),
                lgh_status_name(expected), lgh_last_error());
    _fail(file, line);
}

void lgh__assert_contains(const char *text, const char *part, const char *file, int line) {
    if (strstr(text, part))
        return;
    print_error("\"%s\" is not in \"%s\"\n", part, text);
    _fail(file, line);
}
