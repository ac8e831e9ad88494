/* dtype.c - element types. */
#include "dtype.h"

size_t lgh_dtype_size(lgh_dtype dtype) {
    switch (dtype) {
    case LGH_BF16:
    case LGH_FP16:
        return 2;
    case LGH_FP32:
    case LGH_INT32:
        return 4;
    case LGH_INT64:
        return 8;
    case LGH_DTYPE_NONE:
        break;
    }
    return 0;
}

const char *lgh__dtype_name(lgh_dtype dtype) {
    switch (dtype) {
    case LGH_DTYPE_NONE:
        return "none";
    case LGH_BF16:
        return "bf16";
    case LGH_FP16:
        return "fp16";
    case LGH_FP32:
        return "fp32";
    case LGH_INT32:
        return "int32";
    case LGH_INT64:
        return "int64";
    }
    return "unknown dtype";
}
