/* kernel_variants.c - the kernels of the library, each with definitions that plans give it. */
#include "kernel_variants.h"

#include "chunked_config.h"
#include "harness.h"
#include "nvrtc_compiler.h"
#include "pairwise.h"

#include <stdlib.h>
#include <string.h>

enum factor {
    ROUNDING,
    SOFTCAP,
    TARGETS,
    ENTROPY,
    LOGP_AT_ONE,
    BEST,
    CHUNK,
    OPERANDS,
    RESULTS,
    BIAS,
    FACTORS
};

/* Vocabularies at which a thread of chunk_dx holds 4, 8, 12 or 16 columns, in blocks of different
 * sizes, up to the widest chunk. */
static const int64_t vocabularies[] = {200000, 100, 200, 300, 512, 600, 1500, 3000, 5000};

/* How many levels of each factor change a kernel's definitions; 0 where it changes nothing. */
static const struct family {
    const char *source;
    int levels[FACTORS];
} families[] = {
    {"chunk_stats.cu",
     {[ROUNDING] = 3, [SOFTCAP] = 2, [TARGETS] = 2, [ENTROPY] = 2, [LOGP_AT_ONE] = 2, [BEST] = 2}},
    {"chunk_dx.cu",
     {[ROUNDING] = 3,
      [SOFTCAP] = 2,
      [TARGETS] = 2,
      [OPERANDS] = 3,
      [CHUNK] = sizeof vocabularies / sizeof *vocabularies}},
    {"column_sums.cu", {[OPERANDS] = 3}},
    {"finish_rows.cu", {[OPERANDS] = 3, [RESULTS] = 2}},
    {"gather_rows.cu", {[OPERANDS] = 4}},
    {"gradient_scale.cu", {[OPERANDS] = 1}},
    {"live_rows.cu", {[TARGETS] = 2}},
    {"widen_bias.cu", {[BIAS] = 3}},
};

/* A plan with every feature, whose kernels these choices change. */
static lgh_plan_options options_of(const pairwise_row *row) {
    static const lgh_dtype rounding[] = {LGH_DTYPE_NONE, LGH_BF16, LGH_FP16};
    static const lgh_dtype hidden[] = {LGH_FP16, LGH_BF16, LGH_FP32, LGH_BF16};
    static const lgh_dtype weight[] = {LGH_FP16, LGH_BF16, LGH_FP32, LGH_FP32};
    static const lgh_dtype bias[] = {LGH_FP32, LGH_BF16, LGH_FP16};
    const int *l = row->levels;
    lgh_plan_options o = LGH_PLAN_OPTIONS_INIT;
    o.hidden_size = o.max_tokens = 1024;
    o.vocab_size = o.vocab_valid = vocabularies[l[CHUNK]];
    o.hidden_dtype = hidden[l[OPERANDS]];
    o.weight_dtype = weight[l[OPERANDS]];
    o.dhidden_dtype = l[RESULTS] ? LGH_FP32 : o.hidden_dtype;
    o.dweight_dtype = LGH_FP32;
    o.bias_dtype = bias[l[BIAS]];
    o.dbias_dtype = LGH_FP32;
    o.live_lists = 1;
    o.targets_dtype = l[TARGETS] ? LGH_INT32 : LGH_INT64;
    o.logits_rounding = rounding[l[ROUNDING]];
    o.softcap = l[SOFTCAP] ? 30.0f : 0.0f;
    o.outputs = LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE;
    o.outputs |= l[ENTROPY] ? LGH_OUTPUT_ENTROPY : 0;
    o.outputs |= l[LOGP_AT_ONE] ? LGH_OUTPUT_LOGP_AT_ONE : 0;
    o.outputs |= l[BEST] ? LGH_OUTPUT_BEST : 0;
    return o;
}

/* ---- The list ------------------------------------------------------------------------------ */

typedef struct list {
    lgh__row_kernel *variants;
    size_t count;
} list;

static void add(list *l, const lgh__row_kernel *kernel) {
    for (size_t i = 0; i < l->count; ++i)
        if (strcmp(l->variants[i].source, kernel->source) == 0 &&
            strcmp(l->variants[i].definitions, kernel->definitions) == 0)
            return;
    assert_in_range(l->count, 0, MOST_KERNEL_VARIANTS - 1);
    l->variants[l->count++] = *kernel;
}

/* Adds the kernels of that source which such a plan has. */
static void add_row(list *l, const char *source, const pairwise_row *row) {
    const lgh_plan_options options = options_of(row);
    lgh__chunked_config config;
    lgh__row_kernel kernels[LGH__ROW_KERNELS];
    lgh_assert_success(lgh__chunked_config_choose(&config, &options));
    lgh__chunked_define(kernels, &options, &config);
    for (int i = 0; i < LGH__ROW_KERNELS; ++i)
        if (strcmp(kernels[i].source, source) == 0)
            add(l, &kernels[i]);
}

/* Goes on to the next combination, the first factor fastest; 0 after the last. */
static int next_row(pairwise_row *row, const int *levels) {
    for (int f = 0; f < FACTORS; ++f) {
        if (++row->levels[f] < levels[f])
            return 1;
        row->levels[f] = 0;
    }
    return 0;
}

static void add_family(list *l, const struct family *family, int all) {
    static pairwise_row rows[100];
    pairwise_row row = {.levels = {0}};
    int levels[FACTORS];
    for (int f = 0; f < FACTORS; ++f)
        levels[f] = family->levels[f] > 0 ? family->levels[f] : 1;
    if (all) {
        do
            add_row(l, family->source, &row);
        while (next_row(&row, levels));
        return;
    }
    const size_t count = pairwise_cover(rows, sizeof rows / sizeof *rows, levels, FACTORS);
    for (size_t i = 0; i < count; ++i)
        add_row(l, family->source, &rows[i]);
}

size_t kernel_variants(lgh__row_kernel variants[MOST_KERNEL_VARIANTS], int all) {
    /* The trial of products, trial.c, has this one. */
    static const lgh__row_kernel compare = {"compare_rows.cu", "compare_rows_kernel",
                                            "#define LGH_THREADS 256\n"};
    list l = {variants, 0};
    for (size_t i = 0; i < sizeof families / sizeof *families; ++i)
        add_family(&l, &families[i], all);
    add(&l, &compare);
    return l.count;
}

/* ---- Compiling ----------------------------------------------------------------------------- */

void require_nvrtc(void) {
    char identity[64];
    if (lgh__nvrtc_identity(identity, sizeof identity) != LGH_SUCCESS)
        lgh_test_skip("%s", lgh_last_error());
}

void assert_compiles(const char *source, const char *definitions, const char *arch) {
    const lgh__compilation what = {source, definitions, arch};
    lgh__compiled compiled;
    lgh_assert_success(lgh__nvrtc_compile(&compiled, &what));
    assert_true(compiled.cubin_bytes > 0);
    if (compiled.log[0])
        print_message("%s for %s: %s\n", source, arch, compiled.log);
    free(compiled.cubin);
    free(compiled.log);
}

void assert_variants_compile(const lgh__row_kernel *variants, size_t count, const char *arch) {
    require_nvrtc();
    for (size_t i = 0; i < count; ++i)
        assert_compiles(variants[i].source, variants[i].definitions, arch);
}
