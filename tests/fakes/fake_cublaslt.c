/* fake_cublaslt.c - libfake_cublaslt: the part of cuBLASLt that the library uses, on the host.
 *
 * The descriptors are the caller's memory, but their content is this file's own. An algorithm holds
 * what the query promised, so that a run can be held to it: dtypes, transpositions, alignments.
 */
#include "fake_product.h"
#include "fake_state.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CANDIDATES 32
#define VERSION 130100
#define CANDIDATE_WORKSPACE 4096

/* What a descriptor begins with, so that one that was not initialised is noticed. */
enum { IS_LAYOUT = 0x4c41594f, IS_MATMUL = 0x4d41544d, IS_PREFERENCE = 0x50524546, IS_ALGO = 0x41 };

typedef struct layout {
    int32_t is;
    int32_t type;
    int64_t rows, columns, stride;
} layout;

typedef struct matmul {
    int32_t is;
    int32_t operations[2]; /* of A and B */
} matmul;

typedef struct preference {
    int32_t is;
    uint32_t alignments[4]; /* of A, B, C, D in bytes */
    uint32_t reductions;
    uint64_t workspace_bytes;
} preference;

typedef struct algorithm {
    int32_t is;
    int16_t candidate;
    int16_t splits_k;
    uint8_t types[4]; /* of A, B, C, D */
    uint8_t operations[2];
    uint16_t alignments[4];
    uint32_t workspace_bytes;
} algorithm;

_Static_assert(sizeof(layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "");
_Static_assert(sizeof(matmul) <= sizeof(cublasLtMatmulDescOpaque_t), "");
_Static_assert(sizeof(preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "");
_Static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "");

static struct {
    pthread_mutex_t lock;
    int offered; /* 0: not set */
    fake_breakage breakages[MOST_CANDIDATES];
    float costs[MOST_CANDIDATES];
    int64_t runs[MOST_CANDIDATES];
    algorithm used[256]; /* kernels that ran before, each once */
    int used_count;
} lt = {.lock = PTHREAD_MUTEX_INITIALIZER};

#define ENTER(name, rules)                                                                         \
    do {                                                                                           \
        cublasStatus_t entered_ = enter(name, rules);                                              \
        if (entered_ != CUBLAS_STATUS_SUCCESS)                                                     \
            return entered_;                                                                       \
    } while (0)

static cublasStatus_t enter(const char *name, unsigned rules) {
    int result = fake_enter(name, rules);
    return result == FAKE_NO_CONTEXT ? CUBLAS_STATUS_NOT_INITIALIZED : (cublasStatus_t)result;
}

/* ---- Handle -------------------------------------------------------------------------------- */

FAKE_API cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    ENTER("cublasLtCreate", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    *handle = fake_object_create(FAKE_CUBLASLT, sizeof(fake_object));
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

FAKE_API cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    cublasStatus_t result = enter("cublasLtDestroy", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    return fake_object_destroy(handle, FAKE_CUBLASLT) ? result : CUBLAS_STATUS_NOT_INITIALIZED;
}

FAKE_API size_t cublasLtGetVersion(void) {
    return VERSION;
}

FAKE_API const char *cublasLtGetStatusString(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    default:
        return "another status of the fake cuBLASLt";
    }
}

/* ---- Descriptors --------------------------------------------------------------------------- */

FAKE_API cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t out, size_t size,
                                                          cudaDataType type, uint64_t rows,
                                                          uint64_t columns, int64_t stride) {
    ENTER("cublasLtMatrixLayoutInit", 0);
    if (size != sizeof(cublasLtMatrixLayoutOpaque_t) || rows == 0 || columns == 0 ||
        stride < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    const layout made = {IS_LAYOUT, (int32_t)type, (int64_t)rows, (int64_t)columns, stride};
    memcpy(out, &made, sizeof made);
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_API cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t out, size_t size,
                                                        cublasComputeType_t compute,
                                                        cudaDataType_t scale) {
    ENTER("cublasLtMatmulDescInit", 0);
    if (size != sizeof(cublasLtMatmulDescOpaque_t) || compute != CUBLAS_COMPUTE_32F ||
        scale != CUDA_R_32F)
        return CUBLAS_STATUS_INVALID_VALUE;
    const matmul made = {IS_MATMUL, {CUBLAS_OP_N, CUBLAS_OP_N}};
    memcpy(out, &made, sizeof made);
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t out,
                                                       cublasLtMatmulDescAttributes_t attribute,
                                                       const void *value, size_t bytes) {
    ENTER("cublasLtMatmulDescSetAttribute", 0);
    matmul made;
    memcpy(&made, out, sizeof made);
    const int known =
        attribute == CUBLASLT_MATMUL_DESC_TRANSA || attribute == CUBLASLT_MATMUL_DESC_TRANSB;
    if (made.is != IS_MATMUL || !known || bytes != sizeof(int32_t))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&made.operations[attribute == CUBLASLT_MATMUL_DESC_TRANSB], value, bytes);
    memcpy(out, &made, sizeof made);
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_API cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t out,
                                                              size_t size) {
    ENTER("cublasLtMatmulPreferenceInit", 0);
    if (size != sizeof(cublasLtMatmulPreferenceOpaque_t))
        return CUBLAS_STATUS_INVALID_VALUE;
    const preference made = {
        IS_PREFERENCE, {256, 256, 256, 256}, CUBLASLT_REDUCTION_SCHEME_MASK, 0};
    memcpy(out, &made, sizeof made);
    return CUBLAS_STATUS_SUCCESS;
}

/* Where a preference's attribute is kept; NULL if it is not known here. */
static void *preference_member(preference *p, cublasLtMatmulPreferenceAttributes_t attribute,
                               size_t bytes) {
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return bytes == sizeof p->workspace_bytes ? &p->workspace_bytes : NULL;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return bytes == sizeof p->reductions ? &p->reductions : NULL;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return bytes == sizeof *p->alignments
                   ? &p->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES]
                   : NULL;
    default:
        return NULL;
    }
}

FAKE_API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t out, cublasLtMatmulPreferenceAttributes_t attribute,
    const void *value, size_t bytes) {
    ENTER("cublasLtMatmulPreferenceSetAttribute", 0);
    preference made;
    memcpy(&made, out, sizeof made);
    void *member = preference_member(&made, attribute, bytes);
    if (made.is != IS_PREFERENCE || !member)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(member, value, bytes);
    memcpy(out, &made, sizeof made);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- A product's description --------------------------------------------------------------- */

typedef struct description {
    matmul matmul;
    layout layouts[4]; /* of A, B, C, D */
} description;

static int read_description(description *d, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                            cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                            cublasLtMatrixLayout_t result) {
    const void *const layouts[4] = {a, b, c, result};
    memcpy(&d->matmul, desc, sizeof d->matmul);
    int valid = d->matmul.is == IS_MATMUL;
    for (int i = 0; i < 4; ++i) {
        memcpy(&d->layouts[i], layouts[i], sizeof d->layouts[i]);
        valid = valid && d->layouts[i].is == IS_LAYOUT;
    }
    return valid;
}

static int type_is_known(int32_t type) {
    return type == CUDA_R_16BF || type == CUDA_R_32F;
}

static int64_t type_size(int32_t type) {
    return type == CUDA_R_16BF ? 2 : 4;
}

static int64_t rows_of(const description *d, int i) {
    return d->matmul.operations[i] == CUBLAS_OP_N ? d->layouts[i].rows : d->layouts[i].columns;
}

static int64_t columns_of(const description *d, int i) {
    return d->matmul.operations[i] == CUBLAS_OP_N ? d->layouts[i].columns : d->layouts[i].rows;
}

static int shapes_fit(const description *d) {
    const layout *c = &d->layouts[2], *result = &d->layouts[3];
    int known = 1;
    for (int i = 0; i < 4; ++i)
        known = known && type_is_known(d->layouts[i].type);
    return known && d->layouts[0].type == d->layouts[1].type && columns_of(d, 0) == rows_of(d, 1) &&
           rows_of(d, 0) == result->rows && columns_of(d, 1) == result->columns &&
           c->rows == result->rows && c->columns == result->columns && c->type == result->type;
}

/* Whether every column of a layout can start at this alignment, and an element needs no more. */
static int alignment_fits(const layout *l, uint32_t alignment) {
    return alignment >= (uint32_t)type_size(l->type) &&
           l->stride * type_size(l->type) % (int64_t)alignment == 0;
}

/* ---- Heuristic ----------------------------------------------------------------------------- */

static int offered(void) {
    const char *given = getenv("FAKE_CUBLASLT_CANDIDATES");
    if (lt.offered > 0)
        return lt.offered;
    return given && atoi(given) > 0 ? atoi(given) : 4;
}

static algorithm make_algorithm(const description *d, const preference *p, int candidate) {
    algorithm made = {.is = IS_ALGO, .candidate = (int16_t)candidate, .splits_k = 1};
    for (int i = 0; i < 4; ++i) {
        made.types[i] = (uint8_t)d->layouts[i].type;
        made.alignments[i] = (uint16_t)p->alignments[i];
    }
    for (int i = 0; i < 2; ++i)
        made.operations[i] = (uint8_t)d->matmul.operations[i];
    if (lt.breakages[candidate] == FAKE_SPLITS_K)
        made.splits_k = 4;
    if (candidate % 2 == 1 && p->workspace_bytes >= CANDIDATE_WORKSPACE)
        made.workspace_bytes = CANDIDATE_WORKSPACE;
    return made;
}

FAKE_API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t result,
    cublasLtMatmulPreference_t wanted, int capacity, cublasLtMatmulHeuristicResult_t results[],
    int *count) {
    ENTER("cublasLtMatmulAlgoGetHeuristic", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    description d;
    preference p;
    memcpy(&p, wanted, sizeof p);
    *count = 0;
    if (!fake_object_check(handle, FAKE_CUBLASLT, "cublasLtMatmulAlgoGetHeuristic") ||
        !read_description(&d, desc, a, b, c, result) || p.is != IS_PREFERENCE || !shapes_fit(&d))
        return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < 4; ++i)
        if (!alignment_fits(&d.layouts[i], p.alignments[i]))
            return CUBLAS_STATUS_NOT_SUPPORTED;
    pthread_mutex_lock(&lt.lock);
    for (int i = 0; i < offered() && i < capacity && i < MOST_CANDIDATES; ++i) {
        const algorithm made = make_algorithm(&d, &p, i);
        memset(&results[i], 0, sizeof results[i]);
        memcpy(&results[i].algo, &made, sizeof made);
        results[i].workspaceSize = made.workspace_bytes;
        *count = i + 1;
    }
    pthread_mutex_unlock(&lt.lock);
    return *count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

FAKE_API cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
    size_t bytes, size_t *written) {
    ENTER("cublasLtMatmulAlgoConfigGetAttribute", 0);
    algorithm made;
    memcpy(&made, algo, sizeof made);
    const int32_t splits = made.splits_k;
    if (made.is != IS_ALGO || attribute != CUBLASLT_ALGO_CONFIG_SPLITK_NUM ||
        bytes != sizeof splits)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &splits, sizeof splits);
    *written = sizeof splits;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- Matmul -------------------------------------------------------------------------------- */

static const char *const matrix_names[] = {"A of a product", "B of a product", "C of a product",
                                           "D of a product"};

/* The algorithm must have been offered for this kind of product, and be run as it was offered. */
static int algorithm_fits(const algorithm *made, const description *d) {
    int fits = made->is == IS_ALGO;
    for (int i = 0; i < 4; ++i)
        fits = fits && made->types[i] == (uint8_t)d->layouts[i].type;
    for (int i = 0; i < 2; ++i)
        fits = fits && made->operations[i] == (uint8_t)d->matmul.operations[i];
    if (!fits)
        fake_violation("a product runs with an algorithm of another kind of product");
    return fits;
}

static int keeps_promise(const algorithm *made, const description *d, int i, const void *data) {
    const int64_t size = type_size(d->layouts[i].type), alignment = made->alignments[i];
    const int kept = (int64_t)((uintptr_t)data % (uintptr_t)alignment) == 0 &&
                     d->layouts[i].stride * size % alignment == 0;
    if (!kept)
        fake_violation("%s at %p with columns of %lld bytes breaks the promised alignment of %lld",
                       matrix_names[i], data, (long long)(d->layouts[i].stride * size),
                       (long long)alignment);
    return kept;
}

static fake_rows rows_in_memory(const layout *l, const void *data) {
    const int64_t size = type_size(l->type);
    return (fake_rows){data, l->columns, l->rows * size, l->stride * size};
}

static int overlap(const layout *l, const void *data, const layout *other, const void *other_data) {
    const fake_rows a = rows_in_memory(l, data), b = rows_in_memory(other, other_data);
    const char *from = data, *other_from = other_data;
    return from < other_from + (b.rows - 1) * b.stride + b.row_bytes &&
           other_from < from + (a.rows - 1) * a.stride + a.row_bytes;
}

static int matrices_in_place(const description *d, const void *const data[4], float beta) {
    for (int i = 0; i < 2; ++i) {
        if (!fake_access(rows_in_memory(&d->layouts[i], data[i]), FAKE_READ, matrix_names[i]))
            return 0;
        if (overlap(&d->layouts[i], data[i], &d->layouts[3], data[3])) {
            fake_violation("a product overwrites its own operand");
            return 0;
        }
    }
    if (data[2] != data[3] || memcmp(&d->layouts[2], &d->layouts[3], sizeof(layout)) != 0) {
        fake_violation("a product with C apart from D, which the fake does not compute");
        return 0;
    }
    return (beta == 0.0f ||
            fake_access(rows_in_memory(&d->layouts[2], data[2]), FAKE_READ, matrix_names[2])) &&
           fake_access(rows_in_memory(&d->layouts[3], data[3]), FAKE_WRITE, matrix_names[3]);
}

static int workspace_in_place(const algorithm *made, const void *workspace, size_t bytes) {
    if (made->workspace_bytes == 0)
        return 1;
    if (bytes >= made->workspace_bytes && (uintptr_t)workspace % 256 == 0)
        return fake_cuda_check_range(workspace, bytes, "workspace of a product");
    fake_violation("a product with a workspace of %zu bytes at %p, where it needs %u", bytes,
                   workspace, made->workspace_bytes);
    return 0;
}

/* Kernels are loaded when they first run: one for each candidate and kind of product. Returns how
 * often the candidate ran before. */
static int64_t note_use(const algorithm *made) {
    algorithm kind = *made;
    kind.workspace_bytes = 0;
    pthread_mutex_lock(&lt.lock);
    int i = 0;
    while (i < lt.used_count && memcmp(&lt.used[i], &kind, sizeof kind) != 0)
        ++i;
    const int is_first = i == lt.used_count;
    if (is_first && lt.used_count < (int)(sizeof lt.used / sizeof *lt.used))
        lt.used[lt.used_count++] = kind;
    const int64_t runs = lt.runs[made->candidate]++;
    pthread_mutex_unlock(&lt.lock);
    if (is_first && fake_run_stream())
        fake_violation("a product's algorithm runs for the first time: cuBLASLt may load it now");
    return runs;
}

static fake_matrix matrix_of(const layout *l, const void *data) {
    return (fake_matrix){(void *)(uintptr_t)data, l->rows, l->columns, l->stride,
                         l->type == CUDA_R_16BF};
}

FAKE_API cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       const void *alpha, const void *a, cublasLtMatrixLayout_t a_l,
                                       const void *b, cublasLtMatrixLayout_t b_l, const void *beta,
                                       const void *c, cublasLtMatrixLayout_t c_l, void *result,
                                       cublasLtMatrixLayout_t result_l,
                                       const cublasLtMatmulAlgo_t *algo, void *workspace,
                                       size_t workspace_bytes, cudaStream_t stream) {
    ENTER("cublasLtMatmul", FAKE_NEEDS_CONTEXT);
    description d;
    algorithm made;
    fake_product p = {.alpha = *(const float *)alpha, .beta = *(const float *)beta};
    const void *const data[4] = {a, b, c, result};
    fake_check_stream(stream, "cublasLtMatmul");
    if (!fake_object_check(handle, FAKE_CUBLASLT, "cublasLtMatmul") || !algo ||
        !read_description(&d, desc, a_l, b_l, c_l, result_l) || !shapes_fit(&d))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&made, algo, sizeof made);
    if (!algorithm_fits(&made, &d))
        return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < 4; ++i)
        if (!keeps_promise(&made, &d, i, data[i]))
            return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!matrices_in_place(&d, data, p.beta) ||
        !workspace_in_place(&made, workspace, workspace_bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    p.left = matrix_of(&d.layouts[0], a);
    p.right = matrix_of(&d.layouts[1], b);
    p.result = matrix_of(&d.layouts[3], result);
    p.left_transposed = d.matmul.operations[0] != CUBLAS_OP_N;
    p.right_transposed = d.matmul.operations[1] != CUBLAS_OP_N;
    p.runs = note_use(&made);
    p.breakage = lt.breakages[made.candidate];
    fake_product_run(&p);
    fake_clock_advance(lt.costs[made.candidate]);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- For tests ----------------------------------------------------------------------------- */

static int set_path(const char *variable, const void *symbol) {
    Dl_info info;
    return dladdr(symbol, &info) && setenv(variable, info.dli_fname, 1) == 0;
}

int fake_cublaslt_install(void) {
    void *reset, *offer;
    void (*const reset_function)(void) = fake_cuda_reset;
    void (*const offer_function)(int) = fake_cublaslt_offer;
    memcpy(&reset, &reset_function, sizeof reset);
    memcpy(&offer, &offer_function, sizeof offer);
    return set_path("LGH_CUDA_PATH", reset) && set_path("LGH_CUBLASLT_PATH", offer);
}

void fake_cublaslt_break(int i, fake_breakage breakage) {
    pthread_mutex_lock(&lt.lock);
    for (int k = 0; k < MOST_CANDIDATES; ++k)
        if (i < 0 || k == i)
            lt.breakages[k] = breakage;
    pthread_mutex_unlock(&lt.lock);
}

void fake_cublaslt_break_candidate(int i) {
    fake_cublaslt_break(i, FAKE_BREAKS_BY_LENGTH);
}

void fake_cublaslt_cost(int i, float milliseconds) {
    pthread_mutex_lock(&lt.lock);
    for (int k = 0; k < MOST_CANDIDATES; ++k)
        if (i < 0 || k == i)
            lt.costs[k] = milliseconds;
    pthread_mutex_unlock(&lt.lock);
}

void fake_cublaslt_offer(int candidates) {
    pthread_mutex_lock(&lt.lock);
    lt.offered = candidates;
    pthread_mutex_unlock(&lt.lock);
}

int64_t fake_cublaslt_runs(int i) {
    pthread_mutex_lock(&lt.lock);
    const int64_t runs = lt.runs[i];
    lt.runs[i] = 0;
    pthread_mutex_unlock(&lt.lock);
    return runs;
}
