/* cublaslt.c - cuBLASLt, loaded at run time. */
#include "cublaslt.h"

#include "error.h"
#include "library.h"

#include <cublasLt.h>
#include <pthread.h>
#include <string.h>

#define CUBLASLT_FUNCTIONS(X)                                                                      \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtGetStatusString)                                                                     \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulAlgoConfigGetAttribute)                                                        \
    X(cublasLtMatmulDescInit_internal)                                                             \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatrixLayoutInit_internal)                                                           \
    X(cublasLtMatmulPreferenceInit_internal)                                                       \
    X(cublasLtMatmulPreferenceSetAttribute)

static struct cublaslt_table {
#define CUBLASLT_MEMBER(name) __typeof__(name) *name;
    CUBLASLT_FUNCTIONS(CUBLASLT_MEMBER)
#undef CUBLASLT_MEMBER
} lt;

static const char *const sonames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
static const lgh__library_name library = {
    "CUBLASLT", "cuBLASLt (libcublasLt.so)",
    "install the CUDA toolkit 12 or newer, or the Python wheel nvidia-cublas", sonames, 2};

static lgh_status matmul_failure(cublasStatus_t result, const char *call, const lgh__matmul *s,
                                 int line) {
    return lgh__fail(LGH_ERROR_CUBLASLT, __FILE__, line,
                     "%s gave %s for a product of m=%lld n=%lld k=%lld, row strides %lld %lld %lld",
                     call, lt.cublasLtGetStatusString(result), (long long)s->m, (long long)s->n,
                     (long long)s->k, (long long)s->a_stride, (long long)s->b_stride,
                     (long long)s->c_stride);
}

/* Checks a call of the table that concerns the product `shape`. */
#define CUBLASLT_(call)                                                                            \
    do {                                                                                           \
        cublasStatus_t cublaslt_result_ = lt.call;                                                 \
        if (cublaslt_result_ != CUBLAS_STATUS_SUCCESS)                                             \
            return matmul_failure(cublaslt_result_, #call, shape, __LINE__);                       \
    } while (0)

static lgh_status load_cublaslt(void) {
    void *handle;
    FORWARD(lgh__library_open(&handle, &library));
#define CUBLASLT_LOAD(name) FORWARD(lgh__library_symbol(handle, &library, #name, &lt.name));
    CUBLASLT_FUNCTIONS(CUBLASLT_LOAD)
#undef CUBLASLT_LOAD
    return LGH_SUCCESS;
}

static lgh_status ensure_cublaslt(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int loaded;
    pthread_mutex_lock(&lock);
    lgh_status status = loaded ? LGH_SUCCESS : load_cublaslt();
    loaded = status == LGH_SUCCESS;
    pthread_mutex_unlock(&lock);
    return status;
}

lgh_status lgh__cublaslt_open(void **handle) {
    cublasLtHandle_t created;
    FORWARD(ensure_cublaslt());
    cublasStatus_t result = lt.cublasLtCreate(&created);
    RETURN_IF(result != CUBLAS_STATUS_SUCCESS, LGH_ERROR_CUBLASLT, "cublasLtCreate gave %s",
              lt.cublasLtGetStatusString(result));
    *handle = created;
    return LGH_SUCCESS;
}

void lgh__cublaslt_close(void *handle) {
    if (handle)
        lt.cublasLtDestroy(handle);
}

size_t lgh__cublaslt_version(void) {
    return lt.cublasLtGetVersion ? lt.cublasLtGetVersion() : 0;
}

static cudaDataType_t data_type(lgh_dtype dtype) {
    switch (dtype) {
    case LGH_BF16:
        return CUDA_R_16BF;
    case LGH_FP16:
        return CUDA_R_16F;
    default:
        return CUDA_R_32F;
    }
}

/* cuBLASLt's descriptors of a product, on the stack. `left` and `right` are its A and B: our B and
 * A, since it computes the transpose. */
typedef struct descriptors {
    cublasLtMatmulDescOpaque_t matmul;
    cublasLtMatrixLayoutOpaque_t left, right, result;
} descriptors;

/* A row-major matrix seen in columns: its rows are columns `stride` apart. */
static cublasStatus_t describe_layout(cublasLtMatrixLayoutOpaque_t *layout, lgh_dtype dtype,
                                      int64_t rows, int64_t columns, int64_t stride) {
    return lt.cublasLtMatrixLayoutInit_internal(layout, sizeof *layout, data_type(dtype),
                                                (uint64_t)columns, (uint64_t)rows, stride);
}

#define SET_MATMUL(attribute, value)                                                               \
    CUBLASLT_(cublasLtMatmulDescSetAttribute(&d->matmul, attribute, &(value), sizeof(value)))

static lgh_status describe_matmul(descriptors *d, const lgh__matmul *shape) {
    const cublasOperation_t left = shape->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t right = shape->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    CUBLASLT_(cublasLtMatmulDescInit_internal(&d->matmul, sizeof d->matmul, CUBLAS_COMPUTE_32F,
                                              CUDA_R_32F));
    SET_MATMUL(CUBLASLT_MATMUL_DESC_TRANSA, left);
    SET_MATMUL(CUBLASLT_MATMUL_DESC_TRANSB, right);
    if (shape->has_bias) {
        const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        SET_MATMUL(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    }
    if (shape->scales) {
        const int32_t mode = CUBLASLT_POINTER_MODE_DEVICE;
        SET_MATMUL(CUBLASLT_MATMUL_DESC_POINTER_MODE, mode);
    }
    return LGH_SUCCESS;
}

static lgh_status describe(descriptors *d, const lgh__matmul *shape) {
    FORWARD(describe_matmul(d, shape));
    cublasStatus_t result =
        shape->b_transposed
            ? describe_layout(&d->left, shape->operands, shape->n, shape->k, shape->b_stride)
            : describe_layout(&d->left, shape->operands, shape->k, shape->n, shape->b_stride);
    if (result == CUBLAS_STATUS_SUCCESS)
        result =
            shape->a_transposed
                ? describe_layout(&d->right, shape->operands, shape->k, shape->m, shape->a_stride)
                : describe_layout(&d->right, shape->operands, shape->m, shape->k, shape->a_stride);
    if (result == CUBLAS_STATUS_SUCCESS)
        result = describe_layout(&d->result, shape->result, shape->m, shape->n, shape->c_stride);
    if (result != CUBLAS_STATUS_SUCCESS)
        return matmul_failure(result, "cublasLtMatrixLayoutInit", shape, __LINE__);
    return LGH_SUCCESS;
}

#define SET_PREFERENCE(attribute, value)                                                           \
    CUBLASLT_(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &(value), sizeof(value)))

static lgh_status set_preference(cublasLtMatmulPreferenceOpaque_t *preference,
                                 const lgh__matmul *shape, uint64_t workspace_bytes,
                                 uint32_t reductions) {
    const uint32_t left = (uint32_t)shape->b_alignment, right = (uint32_t)shape->a_alignment;
    const uint32_t result = (uint32_t)shape->c_alignment;
    CUBLASLT_(cublasLtMatmulPreferenceInit_internal(preference, sizeof *preference));
    SET_PREFERENCE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    SET_PREFERENCE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    SET_PREFERENCE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, left);
    SET_PREFERENCE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, right);
    SET_PREFERENCE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result);
    SET_PREFERENCE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result);
    return LGH_SUCCESS;
}

static int splits_k(const cublasLtMatmulAlgo_t *algorithm) {
    int32_t splits = 0;
    size_t written;
    cublasStatus_t result = lt.cublasLtMatmulAlgoConfigGetAttribute(
        algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof splits, &written);
    return result != CUBLAS_STATUS_SUCCESS || splits > 1; /* unknown is not good enough */
}

int lgh__cublaslt_splits_k(const lgh__algorithm *algorithm) {
    cublasLtMatmulAlgo_t restored;
    memcpy(&restored, algorithm, sizeof restored);
    return splits_k(&restored);
}

#define MOST_CANDIDATES 32

static lgh_status query(void *handle, const lgh__matmul *shape, uint64_t workspace_bytes,
                        uint32_t reductions, lgh__algorithm *candidates, int capacity, int *count) {
    descriptors d;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t found[MOST_CANDIDATES];
    int found_count = 0;
    *count = 0;
    FORWARD(describe(&d, shape));
    FORWARD(set_preference(&preference, shape, workspace_bytes, reductions));
    CUBLASLT_(cublasLtMatmulAlgoGetHeuristic(
        handle, &d.matmul, &d.left, &d.right, &d.result, &d.result, &preference,
        capacity < MOST_CANDIDATES ? capacity : MOST_CANDIDATES, found, &found_count));
    _Static_assert(sizeof(lgh__algorithm) == sizeof(cublasLtMatmulAlgo_t), "a plain copy");
    for (int i = 0; i < found_count; ++i) {
        int whole = reductions != CUBLASLT_REDUCTION_SCHEME_NONE || !splits_k(&found[i].algo);
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= workspace_bytes &&
            whole)
            memcpy(&candidates[(*count)++], &found[i].algo, sizeof(lgh__algorithm));
    }
    if (*count == 0)
        return matmul_failure(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic", shape,
                              __LINE__);
    return LGH_SUCCESS;
}

lgh_status lgh__cublaslt_candidates(void *handle, const lgh__matmul *shape,
                                    lgh__algorithm *candidates, int capacity, int *count) {
    return query(handle, shape, 0, CUBLASLT_REDUCTION_SCHEME_NONE, candidates, capacity, count);
}

lgh_status lgh__cublaslt_any_candidates(void *handle, const lgh__matmul *shape,
                                        size_t workspace_bytes, lgh__algorithm *candidates,
                                        int capacity, int *count) {
    return query(handle, shape, workspace_bytes, CUBLASLT_REDUCTION_SCHEME_MASK, candidates,
                 capacity, count);
}

lgh_status lgh__cublaslt_run(void *handle, const lgh__matmul *shape,
                             const lgh__algorithm *algorithm, const lgh__operands *o,
                             void *stream) {
    const float one = 1.0f, addend = shape->accumulate ? 1.0f : 0.0f;
    const float *alpha = shape->scales ? o->alpha : &one;
    const float *beta = shape->scales ? o->beta : &addend;
    descriptors described, *d = &described;
    cublasLtMatmulAlgo_t restored;
    FORWARD(describe(d, shape));
    if (shape->has_bias)
        SET_MATMUL(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o->bias);
    memcpy(&restored, algorithm, sizeof restored);
    /* Our B is its A and our A its B; C is read where beta is not 0, and D is C. */
    CUBLASLT_(cublasLtMatmul(handle, &d->matmul, alpha, o->b, &d->left, o->a, &d->right, beta, o->c,
                             &d->result, o->c, &d->result, &restored, o->workspace,
                             o->workspace_bytes, stream));
    return LGH_SUCCESS;
}
