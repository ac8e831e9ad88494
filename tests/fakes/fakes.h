/* fakes.h - what tests ask of libfake_cuda and libfake_cublaslt, which stand in for the CUDA driver
 * and cuBLASLt on host memory.
 *
 * The library opens them through LGH_CUDA_PATH and LGH_CUBLASLT_PATH (fake_cublaslt_install); a
 * test program links them, so that it speaks to the same copy. Both do on the host what the device
 * would do: device memory is host memory between inaccessible pages, the row kernels are computed
 * with the arithmetic of formulas.h, the products as sums in one order. Work is done when it is
 * enqueued.
 *
 * What the real libraries would not notice is written down as a violation, a line of text:
 *
 *     a range that is not inside one live allocation, or read before anything wrote it
 *     work on the default stream, on a dead stream, or without the device's context
 *     a launch that does not fit the cubin, or whose parameters break row_params.h
 *     in a run call: allocation, synchronisation, a first use of a kernel, another stream
 */
#ifndef LGH_FAKES_H
#define LGH_FAKES_H

#include <stddef.h>
#include <stdint.h>

#define FAKE_API __attribute__((visibility("default")))

/** Points the library at the two fakes, through the environment; 0 on failure. */
FAKE_API int fake_cublaslt_install(void);

/* ---- Violations and calls ------------------------------------------------------------------ */

/** Forgets violations, counts of calls and failures to inject; what lives lives on. */
FAKE_API void fake_cuda_reset(void);

FAKE_API int fake_cuda_violation_count(void);

/** The violations since the last reset, one a line; "" without any. Valid until the next one. */
FAKE_API const char *fake_cuda_violations(void);

/** Calls of a function of either fake since the last reset. */
FAKE_API int64_t fake_cuda_calls(const char *function);

/** The names of the functions called so far, in the order of their first calls; NULL past the end.
 */
FAKE_API const char *fake_cuda_function(int i);

/**
 * Makes the k-th call of a function from now, k >= 1, return `error` (a CUresult or cublasStatus_t)
 * without doing its work. A function that releases something releases it all the same.
 */
FAKE_API void fake_cuda_fail(const char *function, int64_t k, int error);

/* ---- Run calls ----------------------------------------------------------------------------- */

/** From here on this thread's calls are those of a run call on `stream`, named `what`. */
FAKE_API void fake_cuda_begin_run(void *stream, const char *what);

/** Ends it; a violation if the thread's context stack is not as it was. */
FAKE_API void fake_cuda_end_run(void);

/* ---- Objects ------------------------------------------------------------------------------- */

/** What the library holds; a test's own streams and contexts are not counted. */
typedef struct fake_cuda_live {
    size_t bytes; /* of device memory */
    size_t peak;  /* the most bytes since the last reset */
    int allocations;
    int streams;
    int events;
    int libraries;
    int cublaslt_handles;
    int retained; /* of the primary context */
} fake_cuda_live;

FAKE_API fake_cuda_live fake_cuda_count_live(void);

/** A stream of the test's own. */
FAKE_API void *fake_cuda_stream_create(void);
FAKE_API void fake_cuda_stream_destroy(void *stream);

/** Makes a context of the test's own current for this thread; pop gives what was current. */
FAKE_API void *fake_cuda_push_foreign(void);
FAKE_API void *fake_cuda_pop(void);
/** Contexts on this thread's stack. */
FAKE_API int fake_cuda_depth(void);

/* ---- Memory -------------------------------------------------------------------------------- */

/** Device memory of the test's own; the byte past its end is inaccessible if `bytes` is a multiple
 *  of 256. Nothing in it counts as written. */
FAKE_API void *fake_cuda_allocate(size_t bytes);
FAKE_API void fake_cuda_free(void *memory);

/** 1 if the bytes lie in one live allocation; otherwise a violation that names `what`. */
FAKE_API int fake_cuda_check_range(const void *data, size_t bytes, const char *what);

/** Bytes from the allocation's start to past the highest one that was read or written since it was
 *  allocated or forgotten. */
FAKE_API size_t fake_cuda_bytes_touched(const void *allocation);

/** Whether all of the bytes were written, by a fake or as fake_cuda_mark_written says. */
FAKE_API int fake_cuda_written(const void *data, size_t bytes);

/** Whether any of the bytes was. */
FAKE_API int fake_cuda_partly_written(const void *data, size_t bytes);

/** A test's own writes, through the pointer. */
FAKE_API void fake_cuda_mark_written(const void *data, size_t bytes);

/** Nothing of the allocation counts as written or touched any more. */
FAKE_API void fake_cuda_forget(const void *allocation);

/* ---- cuBLASLt ------------------------------------------------------------------------------ */

/** Ways in which a candidate of the heuristic can break the bitwise promise. */
typedef enum fake_breakage {
    FAKE_SOUND,
    FAKE_DIFFERS,              /* in no way, but it rounds otherwise than the others */
    FAKE_BREAKS_BY_LENGTH,     /* a row's bits depend on how many rows there are */
    FAKE_BREAKS_BY_POSITION,   /* on the row's place among them */
    FAKE_BREAKS_BY_NEIGHBOURS, /* on the other rows */
    FAKE_BREAKS_BY_RUN,        /* on how often the product has run */
    FAKE_BREAKS_BY_ADDING,     /* on whether it is added to zeros or overwrites */
    FAKE_SPLITS_K,             /* it says that it splits k */
    FAKE_BREAKAGES
} fake_breakage;

/** Candidate i of every query is broken in this way; -1: all of them. */
FAKE_API void fake_cublaslt_break(int i, fake_breakage breakage);

/** Candidate i is broken only in products whose rows have so many columns in C, as the library
 * counts them: its n. Until the next fake_cublaslt_break. */
FAKE_API void fake_cublaslt_break_only(int i, int64_t columns);

/** A product as candidate i takes so long on the device's clock, 0 at first; -1: all of them. */
FAKE_API void fake_cublaslt_cost(int i, float milliseconds);

/** How many candidates a query offers; 0: 4, or what FAKE_CUBLASLT_CANDIDATES says. */
FAKE_API void fake_cublaslt_offer(int candidates);

/** How often a product ran as candidate i since the last call of this function. */
FAKE_API int64_t fake_cublaslt_runs(int i);

/** Which candidate an algorithm was; -1 if it is none of the fake's. */
FAKE_API int fake_cublaslt_candidate(const uint64_t algorithm[8]);

/** Makes an algorithm one that splits k. */
FAKE_API void fake_cublaslt_split(uint64_t algorithm[8]);

#endif
