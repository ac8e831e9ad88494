/* harness.h - what every test program shares: its main, the device under test, assertions that
 * print what they compared, and numbers that are the same in every run.
 *
 * A test program lists its cases and hands them over:
 *
 *     int main(int argc, char **argv) {
 *         const struct CMUnitTest tests[] = {cmocka_unit_test(temperature_scales_logits)};
 *         return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
 *     }
 *
 * and CTest runs each case as a process of its own (lgh_test in CMakeLists.txt):
 *
 *     test_x --list                               names, one a line
 *     test_x [--device cpu|cuda] [NAME...]        these cases; all without a name
 *
 * Exit code: 0 passed, 1 failed, 77 when every case was skipped. Assertions leave a case with
 * longjmp, so they belong to the case's own thread.
 */
#ifndef LGH_HARNESS_H
#define LGH_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "loggerhead/loggerhead.h"

int lgh_test_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count);

/* ---- Device -------------------------------------------------------------------------------- */

/** The device that --device named; the CPU without it. */
lgh_device_type lgh_test_device(void);

/**
 * The context of the device under test, opened by the first call and closed after the last case.
 * Without a GPU, the case is skipped with the reason; a fault of any other kind fails it.
 */
lgh_context *lgh_test_context(void);

/** Ends the case as skipped, with a reason. */
void lgh_test_skip(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/** The same for want of a GPU, which LGH_REQUIRE_GPU=1 turns into a failure. */
void lgh_test_skip_gpu(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* ---- Assertions ---------------------------------------------------------------------------- */

/** |actual - expected| <= tolerance; equal infinities pass, a NaN never does. */
#define lgh_assert_close(actual, expected, tolerance, what)                                        \
    lgh__assert_close((actual), (expected), (tolerance), (what), __FILE__, __LINE__)

/** The same for every element; a failure names the worst one. */
#define lgh_assert_array_close(actual, expected, count, tolerance, what)                           \
    lgh__assert_array_close((actual), (expected), (count), (tolerance), (what), __FILE__, __LINE__)

/** |actual - expected|_2 <= tolerance |expected|_2. */
#define lgh_assert_relative_l2(actual, expected, count, tolerance, what)                           \
    lgh__assert_relative_l2((actual), (expected), (count), (tolerance), (what), __FILE__, __LINE__)

/** Bit-equal; a failure names the first byte that differs. */
#define lgh_assert_same_bytes(actual, expected, bytes, what)                                       \
    lgh__assert_same_bytes((actual), (expected), (bytes), (what), __FILE__, __LINE__)

/** A failure prints both names and lgh_last_error(). */
#define lgh_assert_status(actual, expected)                                                        \
    lgh__assert_status((actual), (expected), #actual, __FILE__, __LINE__)

#define lgh_assert_success(actual) lgh_assert_status((actual), LGH_SUCCESS)

/** The text holds the part. */
#define lgh_assert_contains(text, part) lgh__assert_contains((text), (part), __FILE__, __LINE__)

void lgh__assert_close(double actual, double expected, double tolerance, const char *what,
                       const char *file, int line);
void lgh__assert_array_close(const float *actual, const double *expected, size_t count,
                             double tolerance, const char *what, const char *file, int line);
void lgh__assert_relative_l2(const float *actual, const double *expected, size_t count,
                             double tolerance, const char *what, const char *file, int line);
void lgh__assert_same_bytes(const void *actual, const void *expected, size_t bytes,
                            const char *what, const char *file, int line);
void lgh__assert_status(lgh_status actual, lgh_status expected, const char *call, const char *file,
                        int line);
void lgh__assert_contains(const char *text, const char *part, const char *file, int line);

/** |actual - expected|_2 / |expected|_2; 0 where both are 0. */
double lgh_relative_l2(const float *actual, const double *expected, size_t count);

/* ---- Numbers ------------------------------------------------------------------------------- */

/** A splitmix64 generator: any seed will do, and equal seeds give equal numbers. */
typedef struct lgh_random {
    uint64_t state;
} lgh_random;

uint64_t lgh_random_bits(lgh_random *random);
double lgh_random_uniform(lgh_random *random); /* [0, 1) */
double lgh_random_normal(lgh_random *random);  /* mean 0, variance 1 */
int64_t lgh_random_below(lgh_random *random, int64_t limit);

/** Normal numbers of this standard deviation, rounded to the array's dtype. */
void lgh_random_fill_fp32(lgh_random *random, float *to, size_t count, double scale);
void lgh_random_fill_bf16(lgh_random *random, uint16_t *to, size_t count, double scale);

/** Exact conversions, so that a reference works on the operands as they were rounded. */
void lgh_widen_fp32(double *to, const float *from, size_t count);
void lgh_widen_bf16(double *to, const uint16_t *from, size_t count);

#endif
