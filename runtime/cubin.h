/* cubin.h - compiled kernels on disk, shared by processes and hosts. */
#ifndef LGH_CUBIN_H
#define LGH_CUBIN_H

#include "nvrtc_compiler.h"

/**
 * Gives the cubin of a compilation: from the cache on disk, else from NVRTC, whose result is then
 * stored. Without NVRTC an entry of any compiler version is taken. A missing or unwritable folder
 * and a damaged entry only cost speed; *note (a constant text, or NULL) then says what happened.
 * out->log is NULL when the cubin came from the cache.
 */
lgh_status lgh__cubin_get(lgh__compiled *out, const lgh__compilation *what, const char **note);

#endif
