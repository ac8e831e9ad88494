/* library.h - finding and opening shared objects at run time. */
#ifndef LGH_LIBRARY_H
#define LGH_LIBRARY_H

#include "loggerhead/loggerhead.h"

/** A library that is looked for; names are tried in order, newest first. */
typedef struct lgh__library_name {
    const char *variable; /* "CUDA" for LGH_CUDA_PATH */
    const char *title;    /* for messages: "the CUDA driver" */
    const char *hint;     /* what to install */
    const char *const *sonames;
    int soname_count;
} lgh__library_name;

/**
 * Opens a library: from LGH_<variable>_PATH, a copy already in the process, the loader's path, the
 * CUDA toolkit's folder, or NVIDIA's Python wheels, in this order. The handle is never closed.
 * Fails with LGH_ERROR_LIBRARY_NOT_FOUND and a text that lists what was tried.
 */
lgh_status lgh__library_open(void **handle, const lgh__library_name *name);

/** Looks up one symbol, or fails with LGH_ERROR_LIBRARY_NOT_FOUND and its name. `into` points to a
 *  function pointer. */
lgh_status lgh__library_symbol(void *handle, const lgh__library_name *name, const char *symbol,
                               void *into);

/** The file that a symbol was loaded from, or NULL. */
const char *lgh__library_file(const void *symbol);

#endif
