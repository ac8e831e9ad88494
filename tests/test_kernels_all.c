/* test_kernels_all.c - every kernel with every combination of definitions that a plan can ask for,
 * through the real NVRTC for every arch. Slow; test_kernels_compile.c has the pairs. */
#include "harness.h"
#include "kernel_variants.h"

static void compile_all(const char *arch) {
    static lgh__row_kernel variants[MOST_KERNEL_VARIANTS];
    assert_variants_compile(variants, kernel_variants(variants, 1), arch);
}

static void all_kernels_compile_for_sm_80(void **state) {
    (void)state;
    compile_all("sm_80");
}

static void all_kernels_compile_for_sm_89(void **state) {
    (void)state;
    compile_all("sm_89");
}

static void all_kernels_compile_for_sm_90a(void **state) {
    (void)state;
    compile_all("sm_90a");
}

static void all_kernels_compile_for_sm_100a(void **state) {
    (void)state;
    compile_all("sm_100a");
}

static void all_kernels_compile_for_sm_120(void **state) {
    (void)state;
    compile_all("sm_120");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_kernels_compile_for_sm_80),
        cmocka_unit_test(all_kernels_compile_for_sm_89),
        cmocka_unit_test(all_kernels_compile_for_sm_90a),
        cmocka_unit_test(all_kernels_compile_for_sm_100a),
        cmocka_unit_test(all_kernels_compile_for_sm_120),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
