/* fake_cublaslt.c - libfake_cublaslt: the part of cuBLASLt that the library uses, on the host.
 *
 * An algorithm holds what the query promised, so that a run can be held to it: dtypes,
 * transpositions, alignments, epilogue, pointer mode.
 */
#include "fake_descriptors.h"
#include "fake_numbers.h"
#include "fake_product.h"
#include "fake_state.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CANDIDATES 32
#define VERSION 130100
#define CANDIDATE_WORKSPACE 4096

/* What an algorithm begins with, so that one that is none of these is noticed. */
enum { IS_ALGO = 0x41 };

typedef struct algorithm {
    int32_t is;
    int16_t candidate;
    int16_t splits_k;
    uint8_t types[4]; /* of A, B, C, D */
    uint8_t operations[2];
    uint8_t epilogue;
    uint8_t pointer_mode;
    uint16_t alignments[4];
    uint32_t workspace_bytes;
} algorithm;

_Static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "");

static struct {
    pthread_mutex_t lock;
    int offered; /* 0: not set */
    fake_breakage breakages[MOST_CANDIDATES];
    int64_t broken_rows[MOST_CANDIDATES]; /* of D in cuBLASLt's terms; 0: any number */
    float costs[MOST_CANDIDATES];
    int64_t runs[MOST_CANDIDATES];
    algorithm used[256]; /* kernels that ran before, each once */
    int used_count;
} lt = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- Handle -------------------------------------------------------------------------------- */

FAKE_API cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    FAKE_ENTER("cublasLtCreate", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    *handle = fake_object_create(FAKE_CUBLASLT, sizeof(fake_object));
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

FAKE_API cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    cublasStatus_t result =
        fake_cublaslt_enter("cublasLtDestroy", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
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

/* ---- Heuristic ----------------------------------------------------------------------------- */

static int offered(void) {
    const char *given = getenv("FAKE_CUBLASLT_CANDIDATES");
    if (lt.offered > 0)
        return lt.offered;
    return given && atoi(given) > 0 ? atoi(given) : 4;
}

static algorithm make_algorithm(const fake_description *d, const fake_preference *p,
                                int candidate) {
    algorithm made = {.is = IS_ALGO, .candidate = (int16_t)candidate, .splits_k = 1};
    for (int i = 0; i < 4; ++i) {
        made.types[i] = (uint8_t)d->layouts[i].type;
        made.alignments[i] = (uint16_t)p->alignments[i];
    }
    for (int i = 0; i < 2; ++i)
        made.operations[i] = (uint8_t)d->matmul.operations[i];
    made.epilogue = (uint8_t)d->matmul.epilogue;
    made.pointer_mode = (uint8_t)d->matmul.pointer_mode;
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
    FAKE_ENTER("cublasLtMatmulAlgoGetHeuristic", FAKE_NEEDS_CONTEXT | FAKE_NOT_IN_RUN);
    fake_description d;
    fake_preference p;
    memcpy(&p, wanted, sizeof p);
    *count = 0;
    if (!fake_object_check(handle, FAKE_CUBLASLT, "cublasLtMatmulAlgoGetHeuristic") ||
        !fake_description_read(&d, desc, a, b, c, result) || p.is != FAKE_IS_PREFERENCE ||
        !fake_shapes_fit(&d))
        return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < 4; ++i)
        if (!fake_alignment_fits(&d.layouts[i], p.alignments[i]))
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
    FAKE_ENTER("cublasLtMatmulAlgoConfigGetAttribute", 0);
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

/* The algorithm must have been offered for this kind of product, and be run as it was offered.
 * While a plan is made it may be what somebody wrote down, and is refused like any other that does
 * not suit. */
static int algorithm_fits(const algorithm *made, const fake_description *d) {
    int fits = made->is == IS_ALGO && made->candidate >= 0 && made->candidate < MOST_CANDIDATES &&
               made->epilogue == (uint8_t)d->matmul.epilogue &&
               made->pointer_mode == (uint8_t)d->matmul.pointer_mode;
    for (int i = 0; i < 4; ++i)
        fits = fits && made->types[i] == (uint8_t)d->layouts[i].type && made->alignments[i] > 0;
    for (int i = 0; i < 2; ++i)
        fits = fits && made->operations[i] == (uint8_t)d->matmul.operations[i];
    if (!fits && fake_run_stream())
        fake_violation("a product runs with an algorithm of another kind of product");
    return fits;
}

static int keeps_promise(const algorithm *made, const fake_description *d, int i,
                         const void *data) {
    const int64_t size = fake_type_size(d->layouts[i].type), alignment = made->alignments[i];
    const int kept = (int64_t)((uintptr_t)data % (uintptr_t)alignment) == 0 &&
                     d->layouts[i].stride * size % alignment == 0;
    if (!kept && fake_run_stream())
        fake_violation("%s at %p with columns of %lld bytes breaks the promised alignment of %lld",
                       matrix_names[i], data, (long long)(d->layouts[i].stride * size),
                       (long long)alignment);
    return kept;
}

static fake_rows rows_in_memory(const fake_layout *l, const void *data) {
    const int64_t size = fake_type_size(l->type);
    return (fake_rows){data, l->columns, l->rows * size, l->stride * size};
}

static int overlap(const fake_layout *l, const void *data, const fake_layout *other,
                   const void *other_data) {
    const fake_rows a = rows_in_memory(l, data), b = rows_in_memory(other, other_data);
    const char *from = data, *other_from = other_data;
    return from < other_from + (b.rows - 1) * b.stride + b.row_bytes &&
           other_from < from + (a.rows - 1) * a.stride + a.row_bytes;
}

static int matrices_in_place(const fake_description *d, const void *const data[4], float beta) {
    for (int i = 0; i < 2; ++i) {
        if (!fake_access(rows_in_memory(&d->layouts[i], data[i]), FAKE_READ, matrix_names[i]))
            return 0;
        if (overlap(&d->layouts[i], data[i], &d->layouts[3], data[3])) {
            fake_violation("a product overwrites its own operand");
            return 0;
        }
    }
    if (data[2] != data[3] || memcmp(&d->layouts[2], &d->layouts[3], sizeof(fake_layout)) != 0) {
        fake_violation("a product with C apart from D, which the fake does not compute");
        return 0;
    }
    return (beta == 0.0f ||
            fake_access(rows_in_memory(&d->layouts[2], data[2]), FAKE_READ, matrix_names[2])) &&
           fake_access(rows_in_memory(&d->layouts[3], data[3]), FAKE_WRITE, matrix_names[3]);
}

/* Alpha or beta, from where the pointer mode says; NaN and a violation where it may not be read. */
static float read_scalar(const fake_matmul *m, const void *scalar, const char *what) {
    float value = NAN;
    const int on_device = m->pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
    if (!scalar || fake_is_device(scalar) != on_device)
        fake_violation("%s at %p is not where the pointer mode says", what, scalar);
    else if (!on_device || fake_access((fake_rows){scalar, 1, sizeof value, 0}, FAKE_READ, what))
        memcpy(&value, scalar, sizeof value);
    return value;
}

/* One FP32 number for each row of the result. */
static int bias_in_place(const fake_description *d) {
    const fake_matmul *m = &d->matmul;
    if (m->epilogue != CUBLASLT_EPILOGUE_BIAS)
        return 1;
    if ((uintptr_t)m->bias % 16 == 0 && d->layouts[3].type == CUDA_R_32F)
        return fake_access((fake_rows){m->bias, 1, d->layouts[3].rows * 4, 0}, FAKE_READ,
                           "bias of a product");
    fake_violation("a bias at %p, not at a multiple of 16 bytes, or for a 16-bit result",
                   (const void *)m->bias);
    return 0;
}

static int workspace_in_place(const algorithm *made, const void *workspace, size_t bytes) {
    if (made->workspace_bytes == 0)
        return 1;
    if (bytes >= made->workspace_bytes && (uintptr_t)workspace % 256 == 0)
        return fake_cuda_check_range(workspace, bytes, "workspace of a product");
    if (fake_run_stream())
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

static fake_matrix matrix_of(const fake_layout *l, const void *data) {
    return (fake_matrix){(void *)(uintptr_t)data, l->rows, l->columns, l->stride,
                         fake_dtype_of(l->type)};
}

static fake_breakage breakage_of(int candidate, int64_t rows) {
    pthread_mutex_lock(&lt.lock);
    const int64_t broken_rows = lt.broken_rows[candidate];
    const fake_breakage breakage = lt.breakages[candidate];
    pthread_mutex_unlock(&lt.lock);
    return broken_rows == 0 || broken_rows == rows ? breakage : FAKE_SOUND;
}

FAKE_API cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       const void *alpha, const void *a, cublasLtMatrixLayout_t a_l,
                                       const void *b, cublasLtMatrixLayout_t b_l, const void *beta,
                                       const void *c, cublasLtMatrixLayout_t c_l, void *result,
                                       cublasLtMatrixLayout_t result_l,
                                       const cublasLtMatmulAlgo_t *algo, void *workspace,
                                       size_t workspace_bytes, cudaStream_t stream) {
    FAKE_ENTER("cublasLtMatmul", FAKE_NEEDS_CONTEXT);
    fake_description d;
    algorithm made;
    fake_product p = {.runs = 0};
    const void *const data[4] = {a, b, c, result};
    fake_check_stream(stream, "cublasLtMatmul");
    if (!fake_object_check(handle, FAKE_CUBLASLT, "cublasLtMatmul") || !algo ||
        !fake_description_read(&d, desc, a_l, b_l, c_l, result_l) || !fake_shapes_fit(&d))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&made, algo, sizeof made);
    if (!algorithm_fits(&made, &d))
        return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < 4; ++i)
        if (!keeps_promise(&made, &d, i, data[i]))
            return CUBLAS_STATUS_NOT_SUPPORTED;
    p.alpha = read_scalar(&d.matmul, alpha, "alpha");
    p.beta = read_scalar(&d.matmul, beta, "beta");
    if (isnan(p.alpha) || isnan(p.beta) || !matrices_in_place(&d, data, p.beta) ||
        !bias_in_place(&d) || !workspace_in_place(&made, workspace, workspace_bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    p.left = matrix_of(&d.layouts[0], a);
    p.right = matrix_of(&d.layouts[1], b);
    p.result = matrix_of(&d.layouts[3], result);
    p.bias = d.matmul.epilogue == CUBLASLT_EPILOGUE_BIAS ? d.matmul.bias : NULL;
    p.left_transposed = d.matmul.operations[0] != CUBLAS_OP_N;
    p.right_transposed = d.matmul.operations[1] != CUBLAS_OP_N;
    p.runs = note_use(&made);
    p.breakage = breakage_of(made.candidate, d.layouts[3].rows);
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
        if (i < 0 || k == i) {
            lt.breakages[k] = breakage;
            lt.broken_rows[k] = 0;
        }
    pthread_mutex_unlock(&lt.lock);
}

void fake_cublaslt_break_only(int i, int64_t columns) {
    pthread_mutex_lock(&lt.lock);
    lt.broken_rows[i] = columns;
    pthread_mutex_unlock(&lt.lock);
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

int fake_cublaslt_candidate(const uint64_t opaque[8]) {
    algorithm made;
    memcpy(&made, opaque, sizeof made);
    return made.is == IS_ALGO ? made.candidate : -1;
}

void fake_cublaslt_split(uint64_t opaque[8]) {
    algorithm made;
    memcpy(&made, opaque, sizeof made);
    made.splits_k = 4;
    memcpy(opaque, &made, sizeof made);
}
