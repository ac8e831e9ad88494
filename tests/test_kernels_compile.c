/* test_kernels_compile.c - every kernel, with pairs of the definitions that the engine uses,
 * through the real NVRTC for every arch: without errors, spills and the assembler's performance
 * advisories; and kernels that have each of these, which the same check must refuse. Needs no GPU.
 */
#include "harness.h"
#include "kernel_variants.h"
#include "nvrtc_compiler.h"
#include "sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Kernels of the library ----------------------------------------------------------------- */

/* So many for an arch that the no-device tests stay quick. */
#define MOST_COMPILATIONS 60

static void compile_pairs(const char *arch) {
    static lgh__row_kernel variants[MOST_KERNEL_VARIANTS];
    const size_t count = kernel_variants(variants, 0);
    assert_in_range(count, 1, MOST_COMPILATIONS);
    assert_variants_compile(variants, count, arch);
}

static int ends_with(const char *name, const char *end) {
    const size_t length = strlen(name), end_length = strlen(end);
    return length >= end_length && strcmp(name + length - end_length, end) == 0;
}

static int has_source(const lgh__row_kernel *variants, size_t count, const char *name) {
    size_t i = 0;
    while (i < count && strcmp(variants[i].source, name) != 0)
        ++i;
    return i < count;
}

static void every_source_is_among_the_variants(void **state) {
    (void)state;
    static lgh__row_kernel variants[MOST_KERNEL_VARIANTS];
    for (int all = 0; all < 2; ++all) {
        const size_t count = kernel_variants(variants, all);
        print_message("%zu variants\n", count);
        for (size_t i = 0; i < lgh__source_count; ++i)
            if (ends_with(lgh__sources[i].name, ".cu") &&
                !has_source(variants, count, lgh__sources[i].name))
                fail_msg("%s: kernel_variants.c does not have it", lgh__sources[i].name);
    }
}

static void kernels_compile_for_sm_80(void **state) {
    (void)state;
    compile_pairs("sm_80");
}

static void kernels_compile_for_sm_89(void **state) {
    (void)state;
    compile_pairs("sm_89");
}

static void kernels_compile_for_sm_90a(void **state) {
    (void)state;
    compile_pairs("sm_90a");
}

static void kernels_compile_for_sm_100a(void **state) {
    (void)state;
    compile_pairs("sm_100a");
}

static void kernels_compile_for_sm_120(void **state) {
    (void)state;
    compile_pairs("sm_120");
}

/* ---- Kernels that must be refused ------------------------------------------------------------ */

/* The definitions stand before the source, so they can hold a kernel of their own. */
static void assert_refused(const char *kernel, const char *arch, const char *reason) {
    char definitions[4096];
    const lgh__compilation what = {"compare_rows.cu", definitions, arch};
    lgh__compiled compiled;
    require_nvrtc();
    snprintf(definitions, sizeof definitions, "#define LGH_THREADS 256\n%s", kernel);
    lgh_assert_status(lgh__nvrtc_compile(&compiled, &what), LGH_ERROR_COMPILE);
    lgh_assert_contains(lgh_last_error(), reason);
    lgh_assert_contains(lgh_last_error(), "compare_rows.cu");
    lgh_assert_contains(lgh_last_error(), arch);
    assert_null(compiled.cubin);
    assert_null(compiled.log);
}

static void compile_error_carries_the_log(void **state) {
    (void)state;
    assert_refused("#error broken on purpose\n", "sm_90a", "#error directive: broken on purpose");
}

static void missing_definition_is_an_error(void **state) {
    (void)state;
    const lgh__compilation what = {"chunk_dx.cu", "#define LGH_THREADS 256\n", "sm_90a"};
    lgh__compiled compiled;
    require_nvrtc();
    lgh_assert_status(lgh__nvrtc_compile(&compiled, &what), LGH_ERROR_COMPILE);
    lgh_assert_contains(lgh_last_error(), "a definition is missing");
}

/* 64 values live at once, where two blocks of 1024 threads leave 32 registers each. */
static void spill_is_refused(void **state) {
    (void)state;
    static const char kernel[] =
        "extern \"C\" __global__ void __launch_bounds__(1024, 2) spills(float *p) {\n"
        "    float x[64];\n"
        "    for (int i = 0; i < 64; ++i) x[i] = p[i * 1024 + threadIdx.x];\n"
        "    __syncthreads();\n"
        "    for (int i = 0; i < 64; ++i)\n"
        "        for (int k = 0; k < 64; ++k)\n"
        "            p[(i * 64 + k) * 1024 + threadIdx.x] = x[i] * x[k];\n"
        "}\n";
    assert_refused(kernel, "sm_80", "Registers are spilled");
    assert_refused(kernel, "sm_90a", "Registers are spilled");
}

static void ignored_register_budget_is_refused(void **state) {
    (void)state;
    assert_refused("extern \"C\" __global__ void unbounded(int *p) {\n"
                   "    asm volatile(\"setmaxnreg.dec.sync.aligned.u32 40;\");\n"
                   "    p[threadIdx.x] = 1;\n"
                   "}\n",
                   "sm_90a", "C7508");
}

#define WGMMA                                                                                      \
    "asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 \"\n"                      \
    "             \"{%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;\"\n"                                  \
    "             : \"+f\"(x), \"+f\"(y), \"+f\"(z), \"+f\"(w) : \"l\"(a + i), \"l\"(b + i));\n"   \
    "asm volatile(\"wgmma.commit_group.sync.aligned;\");\n"

#define WGMMA_WAIT "asm volatile(\"wgmma.wait_group.sync.aligned 0;\");\n"

#define WGMMA_KERNEL(body)                                                                         \
    "extern \"C\" __global__ void __launch_bounds__(128)\n"                                        \
    "    multiplies(float *p, unsigned long long a, unsigned long long b, int n) {\n"              \
    "    float x = 1.0f, y = 2.0f, z = 3.0f, w = 4.0f;\n"                                          \
    "    for (int i = 0; i < n; ++i) {\n" body "    }\n"                                           \
    "    p[threadIdx.x] = x + y + z + w;\n"                                                        \
    "}\n"

static void missing_wgmma_fence_is_refused(void **state) {
    (void)state;
    assert_refused(WGMMA_KERNEL(WGMMA WGMMA_WAIT), "sm_90a", "C7519");
}

/* Sums that are touched while the product that adds to them still runs. */
static void serialised_wgmma_is_refused(void **state) {
    (void)state;
    assert_refused(
        WGMMA_KERNEL("asm volatile(\"wgmma.fence.sync.aligned;\");\n" WGMMA "x *= p[i];\n"),
        "sm_90a", "C7511");
}

/* The same kernels are taken without the fault, so it was the fault that was refused. */
static void sound_wgmma_is_taken(void **state) {
    (void)state;
    require_nvrtc();
    assert_compiles("compare_rows.cu",
                    "#define LGH_THREADS 256\n" WGMMA_KERNEL(
                        "asm volatile(\"wgmma.fence.sync.aligned;\");\n" WGMMA WGMMA_WAIT),
                    "sm_90a");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_source_is_among_the_variants),
        cmocka_unit_test(kernels_compile_for_sm_80),
        cmocka_unit_test(kernels_compile_for_sm_89),
        cmocka_unit_test(kernels_compile_for_sm_90a),
        cmocka_unit_test(kernels_compile_for_sm_100a),
        cmocka_unit_test(kernels_compile_for_sm_120),
        cmocka_unit_test(compile_error_carries_the_log),
        cmocka_unit_test(missing_definition_is_an_error),
        cmocka_unit_test(spill_is_refused),
        cmocka_unit_test(ignored_register_budget_is_refused),
        cmocka_unit_test(missing_wgmma_fence_is_refused),
        cmocka_unit_test(serialised_wgmma_is_refused),
        cmocka_unit_test(sound_wgmma_is_taken),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
