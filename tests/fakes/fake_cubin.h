/* fake_cubin.h - what the fake driver reads from a cubin. */
#ifndef LGH_FAKE_CUBIN_H
#define LGH_FAKE_CUBIN_H

#include <stddef.h>

#define FAKE_MOST_ENTRIES 8

typedef struct fake_entry {
    const char *name;    /* in the cubin */
    int max_threads;     /* of a block, from __launch_bounds__ */
    int parameter_bytes; /* of all its parameters */
    int shared_bytes;    /* static shared memory */
} fake_entry;

typedef struct fake_cubin {
    int arch;     /* 90 for sm_90a */
    size_t bytes; /* of the image */
    int entry_count;
    fake_entry entries[FAKE_MOST_ENTRIES];
} fake_cubin;

/** Reads a cubin's kernels; 0 and a violation if it is none. */
int fake_cubin_read(fake_cubin *cubin, const void *image);

#endif
