/* fake_descriptors.c - cuBLASLt's descriptors on the host. */
#include "fake_descriptors.h"

#include "fake_numbers.h"

#include <string.h>

_Static_assert(sizeof(fake_layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "");
_Static_assert(sizeof(fake_matmul) <= sizeof(cublasLtMatmulDescOpaque_t), "");
_Static_assert(sizeof(fake_preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "");

cublasStatus_t fake_cublaslt_enter(const char *name, unsigned rules) {
    int result = fake_enter(name, rules);
    return result == FAKE_NO_CONTEXT ? CUBLAS_STATUS_NOT_INITIALIZED : (cublasStatus_t)result;
}

/* ---- Descriptors --------------------------------------------------------------------------- */

FAKE_API cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t out, size_t size,
                                                          cudaDataType type, uint64_t rows,
                                                          uint64_t columns, int64_t stride) {
    FAKE_ENTER("cublasLtMatrixLayoutInit", 0);
    if (size != sizeof(cublasLtMatrixLayoutOpaque_t) || rows == 0 || columns == 0 ||
        stride < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    const fake_layout made = {FAKE_IS_LAYOUT, (int32_t)type, (int64_t)rows, (int64_t)columns,
                              stride};
    memcpy(out, &made, sizeof made);
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_API cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t out, size_t size,
                                                        cublasComputeType_t compute,
                                                        cudaDataType_t scale) {
    FAKE_ENTER("cublasLtMatmulDescInit", 0);
    if (size != sizeof(cublasLtMatmulDescOpaque_t) || compute != CUBLAS_COMPUTE_32F ||
        scale != CUDA_R_32F)
        return CUBLAS_STATUS_INVALID_VALUE;
    const fake_matmul made = {FAKE_IS_MATMUL,
                              {CUBLAS_OP_N, CUBLAS_OP_N},
                              CUBLASLT_EPILOGUE_DEFAULT,
                              CUBLASLT_POINTER_MODE_HOST,
                              NULL};
    memcpy(out, &made, sizeof made);
    return CUBLAS_STATUS_SUCCESS;
}

/* Where a product's attribute is kept; NULL if it is not known here. */
static void *matmul_member(fake_matmul *m, cublasLtMatmulDescAttributes_t attribute, size_t bytes) {
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return bytes == sizeof *m->operations ? &m->operations[0] : NULL;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return bytes == sizeof *m->operations ? &m->operations[1] : NULL;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return bytes == sizeof m->epilogue ? &m->epilogue : NULL;
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return bytes == sizeof m->pointer_mode ? &m->pointer_mode : NULL;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return bytes == sizeof m->bias ? &m->bias : NULL;
    default:
        return NULL;
    }
}

static int values_are_known(const fake_matmul *m) {
    return (m->epilogue == CUBLASLT_EPILOGUE_DEFAULT || m->epilogue == CUBLASLT_EPILOGUE_BIAS) &&
           (m->pointer_mode == CUBLASLT_POINTER_MODE_HOST ||
            m->pointer_mode == CUBLASLT_POINTER_MODE_DEVICE);
}

FAKE_API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t out,
                                                       cublasLtMatmulDescAttributes_t attribute,
                                                       const void *value, size_t bytes) {
    FAKE_ENTER("cublasLtMatmulDescSetAttribute", 0);
    fake_matmul made;
    memcpy(&made, out, sizeof made);
    void *member = matmul_member(&made, attribute, bytes);
    if (made.is != FAKE_IS_MATMUL || !member)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(member, value, bytes);
    memcpy(out, &made, sizeof made);
    return values_are_known(&made) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

FAKE_API cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t out,
                                                              size_t size) {
    FAKE_ENTER("cublasLtMatmulPreferenceInit", 0);
    if (size != sizeof(cublasLtMatmulPreferenceOpaque_t))
        return CUBLAS_STATUS_INVALID_VALUE;
    const fake_preference made = {
        FAKE_IS_PREFERENCE, {256, 256, 256, 256}, CUBLASLT_REDUCTION_SCHEME_MASK, 0};
    memcpy(out, &made, sizeof made);
    return CUBLAS_STATUS_SUCCESS;
}

/* Where a preference's attribute is kept; NULL if it is not known here. */
static void *preference_member(fake_preference *p, cublasLtMatmulPreferenceAttributes_t attribute,
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
    FAKE_ENTER("cublasLtMatmulPreferenceSetAttribute", 0);
    fake_preference made;
    memcpy(&made, out, sizeof made);
    void *member = preference_member(&made, attribute, bytes);
    if (made.is != FAKE_IS_PREFERENCE || !member)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(member, value, bytes);
    memcpy(out, &made, sizeof made);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- A product's description --------------------------------------------------------------- */

int fake_description_read(fake_description *d, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                          cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                          cublasLtMatrixLayout_t result) {
    const void *const layouts[4] = {a, b, c, result};
    memcpy(&d->matmul, desc, sizeof d->matmul);
    int valid = d->matmul.is == FAKE_IS_MATMUL;
    for (int i = 0; i < 4; ++i) {
        memcpy(&d->layouts[i], layouts[i], sizeof d->layouts[i]);
        valid = valid && d->layouts[i].is == FAKE_IS_LAYOUT;
    }
    return valid;
}

int fake_dtype_of(int32_t type) {
    switch (type) {
    case CUDA_R_16BF:
        return LGH_BF16;
    case CUDA_R_16F:
        return LGH_FP16;
    case CUDA_R_32F:
        return LGH_FP32;
    default:
        return FAKE_EXACT;
    }
}

int64_t fake_type_size(int32_t type) {
    return fake_size_of(fake_dtype_of(type));
}

static int64_t rows_of(const fake_description *d, int i) {
    return d->matmul.operations[i] == CUBLAS_OP_N ? d->layouts[i].rows : d->layouts[i].columns;
}

static int64_t columns_of(const fake_description *d, int i) {
    return d->matmul.operations[i] == CUBLAS_OP_N ? d->layouts[i].columns : d->layouts[i].rows;
}

int fake_shapes_fit(const fake_description *d) {
    const fake_layout *c = &d->layouts[2], *result = &d->layouts[3];
    int known = 1;
    for (int i = 0; i < 4; ++i)
        known = known && fake_dtype_of(d->layouts[i].type) != FAKE_EXACT;
    return known && d->layouts[0].type == d->layouts[1].type && columns_of(d, 0) == rows_of(d, 1) &&
           rows_of(d, 0) == result->rows && columns_of(d, 1) == result->columns &&
           c->rows == result->rows && c->columns == result->columns && c->type == result->type;
}

int fake_alignment_fits(const fake_layout *l, uint32_t alignment) {
    return alignment >= (uint32_t)fake_type_size(l->type) &&
           l->stride * fake_type_size(l->type) % (int64_t)alignment == 0;
}
