/* test_kernels_compile.c - every kernel, with the definitions that the engine uses, through the
 * real NVRTC for every arch: without errors, spills and the assembler's performance advisories; and
 * kernels that have each of these, which the same check must refuse. Needs no GPU. */
#include "chunked_config.h"
#include "chunked_engine.h"
#include "harness.h"
#include "nvrtc_compiler.h"
#include "sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require_nvrtc(void) {
    char identity[64];
    if (lgh__nvrtc_identity(identity, sizeof identity) != LGH_SUCCESS)
        lgh_test_skip("%s", lgh_last_error());
}

/* ---- Kernels of the library ----------------------------------------------------------------- */

static void assert_compiles(const char *source, const char *definitions, const char *arch) {
    const lgh__compilation what = {source, definitions, arch};
    lgh__compiled compiled;
    lgh_assert_success(lgh__nvrtc_compile(&compiled, &what));
    assert_true(compiled.cubin_bytes > 0);
    if (compiled.log[0])
        print_message("%s for %s: %s\n", source, arch, compiled.log);
    free(compiled.cubin);
    free(compiled.log);
}

/* Every combination of options that changes the kernel's text. */
static void compile_stats(const char *arch) {
    const lgh__chunked_config config = {0}; /* has no part in this kernel's definitions */
    for (int i = 0; i < 16; ++i) {
        lgh__chunked_definitions definitions;
        lgh_plan_options options = LGH_PLAN_OPTIONS_INIT;
        options.logits_rounding = i & 1 ? LGH_BF16 : LGH_DTYPE_NONE;
        options.targets_dtype = i & 2 ? LGH_INT32 : LGH_INT64;
        options.outputs = LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE;
        options.outputs |= i & 4 ? LGH_OUTPUT_ENTROPY : 0;
        options.outputs |= i & 8 ? LGH_OUTPUT_LOGP_AT_ONE : 0;
        lgh__chunked_define(&definitions, &options, &config);
        assert_compiles("chunk_stats.cu", definitions.stats, arch);
    }
}

/* Vocabularies at which a thread holds 4, 8, 12 or 16 columns, in blocks of different sizes, up to
 * the widest chunk. */
static const int64_t vocabularies[] = {100, 200, 300, 512, 600, 1500, 3000, 5000, 200000};

static void compile_dx(const char *arch) {
    for (size_t i = 0; i < 2 * sizeof vocabularies / sizeof *vocabularies; ++i) {
        lgh__chunked_config config;
        lgh__chunked_definitions definitions;
        lgh_plan_options options = LGH_PLAN_OPTIONS_INIT;
        options.hidden_size = options.max_tokens = 1024;
        options.vocab_size = vocabularies[i / 2];
        options.logits_rounding = i & 1 ? LGH_BF16 : LGH_DTYPE_NONE;
        options.targets_dtype = i & 1 ? LGH_INT32 : LGH_INT64;
        lgh_assert_success(lgh__chunked_config_choose(&config, &options));
        lgh__chunked_define(&definitions, &options, &config);
        assert_compiles("chunk_dx.cu", definitions.dx, arch);
    }
}

static void compile_round(const char *arch) {
    const lgh_plan_options options = LGH_PLAN_OPTIONS_INIT;
    const lgh__chunked_config config = {0};
    lgh__chunked_definitions definitions;
    lgh__chunked_define(&definitions, &options, &config);
    assert_compiles("round_rows.cu", definitions.round, arch);
}

static int ends_with(const char *name, const char *end) {
    const size_t length = strlen(name), end_length = strlen(end);
    return length >= end_length && strcmp(name + length - end_length, end) == 0;
}

static void compile_source(const char *name, const char *arch) {
    if (strcmp(name, "chunk_stats.cu") == 0)
        compile_stats(arch);
    else if (strcmp(name, "chunk_dx.cu") == 0)
        compile_dx(arch);
    else if (strcmp(name, "round_rows.cu") == 0)
        compile_round(arch);
    else if (strcmp(name, "compare_rows.cu") == 0)
        assert_compiles(name, "#define LGH_THREADS 256\n", arch);
    else
        fail_msg("%s is a kernel that this test does not compile: add it", name);
}

static void compile_all(const char *arch) {
    require_nvrtc();
    for (size_t i = 0; i < lgh__source_count; ++i)
        if (ends_with(lgh__sources[i].name, ".cu"))
            compile_source(lgh__sources[i].name, arch);
}

static void kernels_compile_for_sm_80(void **state) {
    (void)state;
    compile_all("sm_80");
}

static void kernels_compile_for_sm_89(void **state) {
    (void)state;
    compile_all("sm_89");
}

static void kernels_compile_for_sm_90a(void **state) {
    (void)state;
    compile_all("sm_90a");
}

static void kernels_compile_for_sm_100a(void **state) {
    (void)state;
    compile_all("sm_100a");
}

static void kernels_compile_for_sm_120(void **state) {
    (void)state;
    compile_all("sm_120");
}

/* ---- Kernels that must be refused ------------------------------------------------------------ */

/* The definitions stand before the source, so they can hold a kernel of their own. */
static void assert_refused(const char *kernel, const char *arch, const char *reason) {
    char definitions[4096];
    const lgh__compilation what = {"round_rows.cu", definitions, arch};
    lgh__compiled compiled;
    require_nvrtc();
    snprintf(definitions, sizeof definitions, "#define LGH_THREADS 256\n%s", kernel);
    lgh_assert_status(lgh__nvrtc_compile(&compiled, &what), LGH_ERROR_COMPILE);
    lgh_assert_contains(lgh_last_error(), reason);
    lgh_assert_contains(lgh_last_error(), "round_rows.cu");
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
    assert_compiles("round_rows.cu",
                    "#define LGH_THREADS 256\n" WGMMA_KERNEL(
                        "asm volatile(\"wgmma.fence.sync.aligned;\");\n" WGMMA WGMMA_WAIT),
                    "sm_90a");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
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
