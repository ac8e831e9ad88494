/* kernel_variants.h - the kernels of the library, each with definitions that plans give it. */
#ifndef LGH_KERNEL_VARIANTS_H
#define LGH_KERNEL_VARIANTS_H

#include "chunked_kernels.h"

#include <stddef.h>

#define MOST_KERNEL_VARIANTS 512

/**
 * Writes every kernel with definitions of which each pair occurs together, or, with `all`, with
 * each combination that a plan can ask for; none of them twice.
 * @return how many there are
 */
size_t kernel_variants(lgh__row_kernel variants[MOST_KERNEL_VARIANTS], int all);

/** Compiles a source for an arch: without errors, spills and advisories that count. */
void assert_compiles(const char *source, const char *definitions, const char *arch);

/** The same for variants; skips the case without NVRTC. */
void assert_variants_compile(const lgh__row_kernel *variants, size_t count, const char *arch);

/** The case is skipped without NVRTC. */
void require_nvrtc(void);

#endif
