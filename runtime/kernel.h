/* kernel.h - the kernels that a context has loaded, each once. */
#ifndef LGH_KERNEL_H
#define LGH_KERNEL_H

#include "driver.h"

#include <pthread.h>

/** A kernel to load: a source, its entry, and the definitions that specialise it. */
typedef struct lgh__kernel_name {
    const char *source;      /* "chunk_stats.cu" */
    const char *entry;       /* "chunk_stats_kernel" */
    const char *definitions; /* "#define NAME value" lines */
} lgh__kernel_name;

/** Initialise with lgh__kernels_init. */
typedef struct lgh__kernels {
    pthread_mutex_t lock;
    struct loaded_kernel *first;
} lgh__kernels;

void lgh__kernels_init(lgh__kernels *kernels);
void lgh__kernels_release(lgh__kernels *kernels);

/**
 * Gives the function of a kernel, compiled or read from the disk cache on the first request. *note
 * is set as by lgh__cubin_get.
 */
lgh_status lgh__kernels_get(lgh__kernels *kernels, const lgh__device *device,
                            const lgh__kernel_name *name, void **function, const char **note);

#endif
