/* fake_descriptors.h - cuBLASLt's descriptors on the host: the caller's memory, but with a content
 * of the fake's own. */
#ifndef LGH_FAKE_DESCRIPTORS_H
#define LGH_FAKE_DESCRIPTORS_H

#include "fake_state.h"

#include <cublasLt.h>

/** Every function starts with it: counts the call, judges it, and returns an injected error. */
#define FAKE_ENTER(name, rules)                                                                    \
    do {                                                                                           \
        cublasStatus_t entered_ = fake_cublaslt_enter(name, rules);                                \
        if (entered_ != CUBLAS_STATUS_SUCCESS)                                                     \
            return entered_;                                                                       \
    } while (0)

cublasStatus_t fake_cublaslt_enter(const char *name, unsigned rules);

/** What a descriptor begins with, so that one that was not initialised is noticed. */
enum { FAKE_IS_LAYOUT = 0x4c41594f, FAKE_IS_MATMUL = 0x4d41544d, FAKE_IS_PREFERENCE = 0x50524546 };

typedef struct fake_layout {
    int32_t is;
    int32_t type;
    int64_t rows, columns, stride;
} fake_layout;

typedef struct fake_matmul {
    int32_t is;
    int32_t operations[2]; /* of A and B */
    int32_t epilogue;
    int32_t pointer_mode; /* where alpha and beta lie */
    const float *bias;
} fake_matmul;

typedef struct fake_preference {
    int32_t is;
    uint32_t alignments[4]; /* of A, B, C, D in bytes */
    uint32_t reductions;
    uint64_t workspace_bytes;
} fake_preference;

/** A product, with the layouts of A, B, C, D. */
typedef struct fake_description {
    fake_matmul matmul;
    fake_layout layouts[4];
} fake_description;

/** 0 if any of them was not initialised. */
int fake_description_read(fake_description *d, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                          cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                          cublasLtMatrixLayout_t result);

/** As lgh_dtype has it; FAKE_EXACT if it is not known here. */
int fake_dtype_of(int32_t type);
int64_t fake_type_size(int32_t type);

/** Whether they are matrices of a product, of dtypes that are known here. */
int fake_shapes_fit(const fake_description *d);

/** Whether every column of a layout can start at this alignment, and an element needs no more. */
int fake_alignment_fits(const fake_layout *l, uint32_t alignment);

#endif
