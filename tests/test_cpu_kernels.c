/* test_cpu_kernels.c - the CPU device's inner loops, in every instruction set that runs here,
 * against loops that do one thing at a time. */
#include "harness.h"

#include <math.h>
#include <string.h>

#include "cpu_exp.h"
#include "cpu_kernels.h"
#include "reference.h"

/* Calls a check for every set. */
static void for_each_set(void (*check)(const lgh__cpu_kernels *kernels)) {
    int sets = 0;
    for (const lgh__cpu_kernels *k; (k = lgh__cpu_kernels_at(sets)) != NULL; sets++) {
        print_message("instructions: %s\n", k->name);
        check(k);
    }
    assert_true(sets >= 1);
}

static void fill(double *to, size_t count, uint64_t seed, double scale) {
    lgh_random random = {seed};
    for (size_t i = 0; i < count; i++)
        to[i] = scale * lgh_random_normal(&random);
}

static void exp_is_within_two_units_in_the_last_place(void **state) {
    (void)state;
    lgh_random random = {1};
    for (int i = 0; i < 200000; i++) {
        double u =
            i % 2 ? 1417 * lgh_random_uniform(&random) - 708 : -30 * lgh_random_uniform(&random);
        double right = exp(u);
        lgh_assert_close(lgh__cpu_exp(u), right, 2 * (nextafter(right, INFINITY) - right), "exp");
    }
    assert_true(lgh__cpu_exp(0) == 1);
    assert_true(lgh__cpu_exp(-1e4) == 0);
    assert_true(lgh__cpu_exp(-INFINITY) == 0);
    assert_true(isinf(lgh__cpu_exp(INFINITY)));
    assert_true(isnan(lgh__cpu_exp(NAN)));
}

/* Every 16-bit number, and as many floats. */
enum { PATTERNS = 1 << 16 };

static void check_widen_dtype(const lgh__cpu_kernels *kernels, const void *array, lgh_dtype dtype) {
    static double wide[PATTERNS + 1];
    const int64_t counts[] = {0, 1, 2, 7, 8, 9, 67, PATTERNS}; /* whole vectors, and rests */
    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
        wide[counts[n]] = 42;
        kernels->widen(wide, array, dtype, counts[n]);
        for (int64_t i = 0; i < counts[n]; i++) {
            const double right = reference_element(array, dtype, i);
            assert_true(wide[i] == right || (isnan(wide[i]) && isnan(right)));
        }
        assert_true(wide[counts[n]] == 42);
    }
}

static void check_widen(const lgh__cpu_kernels *kernels) {
    static uint16_t bits[PATTERNS];
    static float floats[PATTERNS];
    lgh_random random = {2};
    for (int i = 0; i < PATTERNS; i++)
        bits[i] = (uint16_t)i;
    lgh_random_fill_fp32(&random, floats, PATTERNS, 3);
    check_widen_dtype(kernels, bits, LGH_BF16);
    check_widen_dtype(kernels, bits, LGH_FP16);
    check_widen_dtype(kernels, floats, LGH_FP32);
}

static void widening_is_exact(void **state) {
    (void)state;
    for_each_set(check_widen);
}

/* One element as the kernel promises to sum it, with or without fused multiply-adds. */
static int is_ordered_sum(const lgh__cpu_product *p, int64_t i, int64_t j, double before) {
    double fused = before;
    double separate = before;
    for (int64_t k = 0; k < p->depth; k++) {
        double a = p->a[i * p->a_row + k * p->a_step];
        double b = p->b[j / 8 * p->b_panel + k * p->b_step + j % 8];
        volatile double product = a * b; /* keeps the compiler from fusing these two */
        fused = fma(a, b, fused);
        separate += product;
    }
    double actual = p->c[i * p->c_pitch + j];
    return actual == fused || actual == separate;
}

static void check_multiply(const lgh__cpu_kernels *kernels) {
    enum { ROWS = 24, COLUMNS = 16, DEPTH = 37, PITCH = 19 };
    static double a[ROWS * DEPTH], b[COLUMNS * DEPTH], c[ROWS * PITCH], before[ROWS * PITCH];
    fill(a, ROWS * DEPTH, 3, 1);
    fill(b, COLUMNS * DEPTH, 4, 1);
    fill(before, ROWS * PITCH, 5, 1);
    const lgh__cpu_product products[] = {
        {c, PITCH, a, DEPTH, 1, b, 8 * DEPTH, 8, ROWS, COLUMNS, DEPTH}, /* packed b */
        {c, PITCH, a, 1, ROWS, b, 8, COLUMNS, ROWS, COLUMNS, DEPTH},    /* a transposed */
        {c, PITCH, a, DEPTH, 1, b, 8, COLUMNS, ROWS - 8, COLUMNS - 8, 1},
        {c, PITCH, a, DEPTH, 1, b, 8, COLUMNS, ROWS, COLUMNS, 0}};
    for (size_t n = 0; n < sizeof products / sizeof products[0]; n++) {
        memcpy(c, before, sizeof c);
        kernels->multiply(&products[n]);
        for (int64_t i = 0; i < ROWS; i++)
            for (int64_t j = 0; j < PITCH; j++) {
                int inside = i < products[n].rows && j < products[n].columns;
                double old = before[i * PITCH + j];
                assert_true(inside ? is_ordered_sum(&products[n], i, j, old)
                                   : c[i * PITCH + j] == old);
            }
    }
}

static void products_are_summed_in_order(void **state) {
    (void)state;
    for_each_set(check_multiply);
}

static void check_rounding_to(const lgh__cpu_kernels *kernels, lgh_dtype dtype) {
    static double x[LGH__CPU_TILE * LGH__CPU_PITCH], before[LGH__CPU_TILE * LGH__CPU_PITCH];
    fill(before, LGH__CPU_TILE * LGH__CPU_PITCH, 6, 10);
    before[0] = 1e39;
    before[1] = -65520;     /* where FP16 ends */
    before[2] = 1e-7;       /* a subnormal FP16 number */
    before[3] = 1 + 0x1p-8; /* ties */
    before[4] = 1 + 0x1p-11;
    before[5] = NAN;
    memcpy(x, before, sizeof x);
    kernels->round_logits(x, LGH__CPU_TILE, LGH__CPU_TILE, dtype);
    for (int row = 0; row < LGH__CPU_TILE; row++)
        for (int lane = 0; lane < LGH__CPU_TILE; lane++) {
            int i = row * LGH__CPU_PITCH + lane;
            double right = reference_round((double)(float)before[i], dtype);
            assert_true(x[i] == right || (isnan(x[i]) && isnan(right)));
        }
}

static void check_rounding(const lgh__cpu_kernels *kernels) {
    check_rounding_to(kernels, LGH_BF16);
    check_rounding_to(kernels, LGH_FP16);
}

static void logits_are_rounded_to_16_bits(void **state) {
    (void)state;
    for_each_set(check_rounding);
}

/* Logits of three tiles, of entries 1000 on. */
enum { STATS_ROWS = 2 * LGH__CPU_TILE + 11, STATS_LANES = 24, STATS_FIRST = 1000 };

/* The statistics of one lane's logits, by definition. */
static void assert_stats(const lgh__cpu_stats *stats, const double *x, int64_t lane,
                         double inverse) {
    double max = -INFINITY, sum = 0, weighted = 0, at_one = 0;
    int64_t best = 0;
    for (int64_t row = 0; row < STATS_ROWS; row++)
        if (x[row * LGH__CPU_PITCH + lane] > max) {
            max = x[row * LGH__CPU_PITCH + lane];
            best = STATS_FIRST + row;
        }
    for (int64_t row = 0; row < STATS_ROWS; row++) {
        double below = x[row * LGH__CPU_PITCH + lane] - max;
        sum += exp(below * inverse);
        weighted += below > -INFINITY ? exp(below * inverse) * below * inverse : 0;
        at_one += exp(below);
    }
    assert_true(stats->max[lane] == max);
    assert_int_equal(stats->best[lane], best);
    lgh_assert_close(stats->sum[lane], sum, 1e-13 * sum, "sum");
    lgh_assert_close(stats->weighted[lane], weighted, 1e-13 * fabs(weighted) + 1e-300, "weighted");
    lgh_assert_close(stats->sum_at_one[lane], at_one, 1e-13 * at_one, "sum_at_one");
}

static void check_stats(const lgh__cpu_kernels *kernels) {
    static double x[3 * LGH__CPU_TILE * LGH__CPU_PITCH];
    double inverse[LGH__CPU_TILE];
    fill(x, sizeof x / sizeof x[0], 8, 20);
    for (int row = 0; row < LGH__CPU_TILE; row++)
        x[row * LGH__CPU_PITCH + 5] = -INFINITY; /* lane 5: a tile of nothing, then numbers */
    for (int row = 0; row < STATS_ROWS; row++)
        x[row * LGH__CPU_PITCH + 6] = floor(x[row * LGH__CPU_PITCH + 6] / 20); /* and ties */
    lgh__cpu_stats stats = {{0}, {0}, {0}, {0}, {0}};
    for (int lane = 0; lane < LGH__CPU_TILE; lane++) {
        stats.max[lane] = -INFINITY;
        inverse[lane] = 1 / (0.5 + 0.1 * lane);
    }
    for (int row = 0; row < STATS_ROWS; row += LGH__CPU_TILE)
        kernels->add_stats(&stats, x + row * LGH__CPU_PITCH,
                           row + LGH__CPU_TILE < STATS_ROWS ? LGH__CPU_TILE : STATS_ROWS - row,
                           STATS_LANES, inverse, STATS_FIRST + row, 1);
    for (int64_t lane = 0; lane < STATS_LANES; lane++)
        assert_stats(&stats, x, lane, inverse[lane]);
}

static void statistics_of_tiles_merge(void **state) {
    (void)state;
    for_each_set(check_stats);
}

static lgh__cpu_tokens some_tokens(int64_t count) {
    lgh_random random = {9};
    lgh__cpu_tokens tokens = {.count = count};
    for (int64_t i = 0; i < count; i++) {
        tokens.target[i] = 100 + lgh_random_below(&random, 16);
        tokens.inverse_temperature[i] = 0.5 + lgh_random_uniform(&random);
        tokens.lse[i] = 5 + lgh_random_uniform(&random);
        tokens.entropy[i] = 2 + lgh_random_uniform(&random);
        tokens.grad_logp[i] = lgh_random_normal(&random);
        tokens.grad_entropy[i] = lgh_random_normal(&random);
        tokens.grad_lse[i] = lgh_random_normal(&random);
    }
    return tokens;
}

/* dL/dx by definition. */
static double gradient(const lgh__cpu_tokens *t, int64_t i, int64_t entry, double x,
                       double softcap) {
    double inverse = t->inverse_temperature[i];
    double log_p = x * inverse - t->lse[i];
    double p = exp(log_p);
    double dz = t->grad_logp[i] * ((t->target[i] == entry ? 1 : 0) - p) -
                t->grad_entropy[i] * p * (log_p + t->entropy[i]) + t->grad_lse[i] * p;
    return dz * inverse * (softcap > 0 ? 1 - (x / softcap) * (x / softcap) : 1);
}

static void check_gradients_under(const lgh__cpu_kernels *kernels, double softcap) {
    enum { SIDE = 16 }; /* tokens, and entries 100 .. 115 */
    static double before[SIDE * LGH__CPU_PITCH], by_lane[SIDE * LGH__CPU_PITCH],
        by_row[SIDE * LGH__CPU_PITCH];
    const lgh__cpu_tokens tokens = some_tokens(SIDE);
    fill(before, SIDE * LGH__CPU_PITCH, 10, 3);
    memcpy(by_lane, before, sizeof before);
    memcpy(by_row, before, sizeof before);
    kernels->token_lanes(by_lane, SIDE, SIDE, &tokens, 100, softcap);
    kernels->token_rows(by_row, SIDE, &tokens, 100, softcap);
    for (int row = 0; row < SIDE; row++)
        for (int lane = 0; lane < SIDE; lane++) {
            int i = row * LGH__CPU_PITCH + lane;
            double of_lane = gradient(&tokens, lane, 100 + row, before[i], softcap);
            double of_row = gradient(&tokens, row, 100 + lane, before[i], softcap);
            lgh_assert_close(by_lane[i], of_lane, 1e-13 * (1 + fabs(of_lane)), "a lane's token");
            lgh_assert_close(by_row[i], of_row, 1e-13 * (1 + fabs(of_row)), "a row's token");
        }
}

static void check_gradients(const lgh__cpu_kernels *kernels) {
    check_gradients_under(kernels, 0);
    check_gradients_under(kernels, 15);
}

static void gradients_follow_the_formula(void **state) {
    (void)state;
    for_each_set(check_gradients);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(exp_is_within_two_units_in_the_last_place),
                                       cmocka_unit_test(widening_is_exact),
                                       cmocka_unit_test(products_are_summed_in_order),
                                       cmocka_unit_test(logits_are_rounded_to_16_bits),
                                       cmocka_unit_test(statistics_of_tiles_merge),
                                       cmocka_unit_test(gradients_follow_the_formula)};
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
