/* test_cpu_values.c - conversions between number formats, and float64 sums stored in each of them,
 * against the oracle's. */
#include "harness.h"

#include <math.h>
#include <string.h>

#include "cpu_store.h"
#include "reference.h"
#include "value.h"

enum { PATTERNS = 1 << 16 };

static double widened(uint16_t bits, lgh_dtype dtype) {
    return (double)(dtype == LGH_BF16 ? lgh__float_from_bf16(bits) : lgh__float_from_fp16(bits));
}

static uint16_t narrowed(float value, lgh_dtype dtype) {
    return dtype == LGH_BF16 ? lgh__bf16_from_float(value) : lgh__fp16_from_float(value);
}

static const lgh_dtype short_dtypes[] = {LGH_BF16, LGH_FP16};

/* ---- To and from float --------------------------------------------------------------------- */

static void every_16_bit_number_survives_a_float(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < PATTERNS; i++) {
            const uint16_t bits = (uint16_t)i;
            const double right = reference_element(&bits, short_dtypes[d], 0);
            const double wide = widened(bits, short_dtypes[d]);
            const uint16_t back = narrowed((float)wide, short_dtypes[d]);
            if (isnan(right)) {
                assert_true(isnan(wide) && isnan(widened(back, short_dtypes[d])));
                assert_int_equal(back & 0x8000, bits & 0x8000);
            } else {
                assert_true(wide == right && signbit(wide) == signbit(right));
                assert_int_equal(back, bits);
            }
        }
}

static void check_narrowing(float value, lgh_dtype dtype) {
    const double right = reference_round((double)value, dtype);
    const double actual = widened(narrowed(value, dtype), dtype);
    if (actual != right && !(isnan(actual) && isnan(right)))
        fail_msg("%a became %a, expected %a", (double)value, actual, right);
    assert_int_equal(narrowed(value, dtype) >> 15, signbit(value) != 0);
}

/* The midpoints between neighbours, the floats next to them, and numbers of every exponent. */
static void floats_round_to_nearest_even(void **state) {
    (void)state;
    lgh_random random = {4};
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < PATTERNS - 1; i++) {
            const double low = widened((uint16_t)i, short_dtypes[d]);
            const double high = widened((uint16_t)(i + 1), short_dtypes[d]);
            const float middle = (float)((low + high) / 2);
            if (!isfinite(middle))
                continue;
            check_narrowing(middle, short_dtypes[d]);
            check_narrowing(nextafterf(middle, INFINITY), short_dtypes[d]);
            check_narrowing(nextafterf(middle, -INFINITY), short_dtypes[d]);
        }
        for (int i = 0; i < 200000; i++)
            check_narrowing(lgh__float_of_bits((uint32_t)lgh_random_bits(&random)),
                            short_dtypes[d]);
    }
}

static void the_ends_of_fp16_are_where_they_should_be(void **state) {
    (void)state;
    assert_int_equal(lgh__fp16_from_float(65504), 0x7bff);
    assert_int_equal(lgh__fp16_from_float(nextafterf(65520, 0)), 0x7bff);
    assert_int_equal(lgh__fp16_from_float(65520), 0x7c00);
    assert_int_equal(lgh__fp16_from_float(-INFINITY), 0xfc00);
    assert_int_equal(lgh__fp16_from_float(0x1p-25f), 0);
    assert_int_equal(lgh__fp16_from_float(nextafterf(0x1p-25f, 1)), 1);
    assert_int_equal(lgh__fp16_from_float(-0x1.8p-24f), 0x8002);
    assert_int_equal(lgh__fp16_from_float(0x1.ffcp-15f), 0x0400);
    assert_int_equal(lgh__fp16_from_float(-0.0f), 0x8000);
}

/* ---- Sums ---------------------------------------------------------------------------------- */

/* Numbers that a rounding to float on the way would turn into ties. */
static double near_tie(lgh_random *random, lgh_dtype dtype) {
    const uint16_t bits =
        (uint16_t)(lgh_random_below(random, 0x7b00) | (1 << 15) * (int)lgh_random_below(random, 2));
    const double low = widened(bits, dtype), high = widened((uint16_t)(bits + 1), dtype);
    const double middle = (low + high) / 2;
    return middle * (1 + (double)(lgh_random_below(random, 3) - 1) * 0x1p-45);
}

static void sums_are_rounded_once(void **state) {
    (void)state;
    enum { COUNT = 100000 };
    static double sums[COUNT];
    static uint16_t stored[COUNT];
    lgh_random random = {5};
    for (int d = 0; d < 2; d++) {
        const lgh_matrix matrix = {stored, 1, COUNT, COUNT, short_dtypes[d]};
        int spoilt = 0;
        for (int i = 0; i < COUNT; i++)
            sums[i] = near_tie(&random, short_dtypes[d]);
        sums[0] = NAN;
        sums[1] = -INFINITY;
        sums[2] = 1e300;
        sums[3] = -1e-300;
        sums[4] = 0;
        lgh__cpu_store_row(&matrix, 0, sums, 0);
        for (int i = 0; i < COUNT; i++) {
            const double right = reference_round(sums[i], short_dtypes[d]);
            const double actual = reference_element(stored, short_dtypes[d], i);
            assert_true(actual == right || (isnan(actual) && isnan(right)));
            spoilt += reference_round((double)(float)sums[i], short_dtypes[d]) != right;
        }
        assert_true(spoilt > COUNT / 10); /* so many would have been wrong by way of a float */
    }
}

static void fp32_sums_accumulate(void **state) {
    (void)state;
    float stored[] = {1, 16777216, 42};
    const double sums[] = {0x1p-25, 1 + 0x1p-20};
    const lgh_matrix matrix = {stored, 1, 2, 2, LGH_FP32};
    lgh__cpu_store_row(&matrix, 0, sums, 1);
    assert_true(stored[0] == 1 && stored[1] == 16777218 && stored[2] == 42);
    lgh__cpu_store_row(&matrix, 0, sums, 0);
    assert_true(stored[0] == 0x1p-25f && stored[1] == 1 + 0x1p-20f && stored[2] == 42);
}

static void rows_of_zeros_and_nans_end_where_they_should(void **state) {
    (void)state;
    const lgh_dtype dtypes[] = {LGH_FP32, LGH_BF16, LGH_FP16};
    for (int d = 0; d < 3; d++) {
        float memory[15];
        const lgh_matrix matrix = {memory, 3, 3, 5, dtypes[d]};
        memset(memory, 0x11, sizeof memory);
        const double guard = reference_element(memory, dtypes[d], 0);
        lgh__cpu_store_zeros(&matrix, 1, 2);
        lgh__cpu_store_nan(&matrix, 2);
        for (int i = 0; i < 13; i++) {
            const double value = reference_element(memory, dtypes[d], i);
            const int row = i / 5, inside = i % 5 < 3;
            assert_true(inside && row == 2 ? isnan(value)
                                           : value == (inside && row == 1 ? 0 : guard));
        }
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_16_bit_number_survives_a_float),
        cmocka_unit_test(floats_round_to_nearest_even),
        cmocka_unit_test(the_ends_of_fp16_are_where_they_should_be),
        cmocka_unit_test(sums_are_rounded_once),
        cmocka_unit_test(fp32_sums_accumulate),
        cmocka_unit_test(rows_of_zeros_and_nans_end_where_they_should)};
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
