/* bench_cache.h - a disk cache that is empty, for as long as a cold start is measured. */
#ifndef LGH_TOOL_BENCH_CACHE_H
#define LGH_TOOL_BENCH_CACHE_H

#include "loggerhead/loggerhead.h"

typedef struct lgh_tool_cache {
    char folder[1024];
    char *previous; /* LGH_CACHE_DIR before, or NULL */
} lgh_tool_cache;

/** Points LGH_CACHE_DIR at a fresh folder below TMPDIR, else /tmp. Not while threads read the
 *  environment. */
lgh_status lgh_tool_cache_enter(lgh_tool_cache *cache);

/** Puts LGH_CACHE_DIR back and removes the folder with all that is in it. */
void lgh_tool_cache_leave(lgh_tool_cache *cache);

#endif
