/* nvrtc_compiler.h - NVRTC: CUDA C source to cubin. The only file that calls it is
 * nvrtc_compiler.c. */
#ifndef LGH_NVRTC_COMPILER_H
#define LGH_NVRTC_COMPILER_H

#include "loggerhead/loggerhead.h"

/** What to compile: a kernel source, the definitions put before it, and the arch. */
typedef struct lgh__compilation {
    const char *source_name; /* "chunk_stats.cu", one of the embedded sources */
    const char *definitions; /* "#define NAME value" lines */
    const char *arch;        /* "sm_90a" */
} lgh__compilation;

/** A compiled kernel; both texts are the caller's to free. */
typedef struct lgh__compiled {
    char *cubin;
    size_t cubin_bytes;
    char *log; /* zero-terminated, often empty */
} lgh__compiled;

/**
 * Writes what identifies the compiler: version, and the size of its file, since patch releases
 * change the code that they generate. Loads NVRTC; fails with LGH_ERROR_LIBRARY_NOT_FOUND.
 */
lgh_status lgh__nvrtc_identity(char *text, size_t capacity);

/** The options of every compilation, one a line; part of a cubin's key. */
void lgh__nvrtc_options(char *text, size_t capacity, const char *arch);

/**
 * Compiles straight to a cubin. Fails with LGH_ERROR_COMPILE and a text that holds the kernel's
 * name, its definitions, the options and the compiler's log; a spill and a warning that makes the
 * assembler serialise tensor-core work or ignore register budgets count as failures.
 */
lgh_status lgh__nvrtc_compile(lgh__compiled *out, const lgh__compilation *what);

#endif
