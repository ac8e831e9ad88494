/* dtypes.cuh - element types of the row kernels, and rounding to them. The numbers are those of
 * lgh_dtype in loggerhead.h. */
#ifndef LGH_DTYPES_CUH
#define LGH_DTYPES_CUH

#define LGH_TYPE_NONE 0
#define LGH_TYPE_BF16 1
#define LGH_TYPE_FP16 2
#define LGH_TYPE_FP32 3

template <int type> struct element { typedef unsigned short word; };

template <> struct element<LGH_TYPE_FP32> { typedef float word; };

__device__ __forceinline__ float from_bf16(unsigned short bits) {
    return __uint_as_float((unsigned)bits << 16);
}

__device__ __forceinline__ float from_fp16(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

/* Rounded to nearest even. */
__device__ __forceinline__ unsigned short to_bf16(float value) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ __forceinline__ unsigned short to_fp16(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

template <int type> __device__ __forceinline__ float widen(typename element<type>::word value) {
    if constexpr (type == LGH_TYPE_BF16)
        return from_bf16(value);
    else if constexpr (type == LGH_TYPE_FP16)
        return from_fp16(value);
    else
        return value;
}

template <int type> __device__ __forceinline__ typename element<type>::word narrow(float value) {
    if constexpr (type == LGH_TYPE_BF16)
        return to_bf16(value);
    else if constexpr (type == LGH_TYPE_FP16)
        return to_fp16(value);
    else
        return value;
}

/* Rounds to a type and back; LGH_TYPE_NONE keeps the value. */
template <int type> __device__ __forceinline__ float round_to(float value) {
    if constexpr (type == LGH_TYPE_NONE || type == LGH_TYPE_FP32)
        return value;
    else
        return widen<type>(narrow<type>(value));
}

#endif
