/* fake_kernels.h - the row kernels on the host. */
#ifndef LGH_FAKE_KERNELS_H
#define LGH_FAKE_KERNELS_H

#include "fake_definitions.h"
#include "fakes.h"

/** A launch of a one-dimensional grid, with `parameters` as row_params.h has them. */
typedef struct fake_launch {
    const char *entry;
    const void *parameters;
    int parameter_bytes; /* as the cubin has it */
    int64_t blocks;
    int threads; /* of a block */
    fake_definitions definitions;
} fake_launch;

/** Judges the launch and does its work; what it may not touch, it does not touch. */
void fake_kernel_run(const fake_launch *launch);

/** The kernels over rows of logits, fake_chunks.c. */
void fake_run_chunk_stats(const fake_launch *launch);
void fake_run_chunk_dx(const fake_launch *launch);

#endif
