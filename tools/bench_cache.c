/* bench_cache.c - a disk cache that is empty, for as long as a cold start is measured. */
#include "bench_cache.h"

#include "error.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "LGH_CACHE_DIR"

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

/* What is in a folder comes before the folder; symbolic links are not followed. */
static void remove_folder(const char *folder) {
    if (nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
        fprintf(stderr, "loggerhead bench: could not remove %s: %s\n", folder, strerror(errno));
}

static lgh_status point_at_folder(lgh_tool_cache *cache) {
    const char *previous = getenv(VARIABLE);
    cache->previous = previous ? strdup(previous) : NULL;
    RETURN_IF((previous && !cache->previous) || setenv(VARIABLE, cache->folder, 1) != 0,
              LGH_ERROR_OUT_OF_MEMORY, "no memory for %s", VARIABLE);
    return LGH_SUCCESS;
}

lgh_status lgh_tool_cache_enter(lgh_tool_cache *cache) {
    const char *parent = getenv("TMPDIR");
    int length = snprintf(cache->folder, sizeof cache->folder, "%s/loggerhead-bench-XXXXXX",
                          parent && *parent ? parent : "/tmp");
    RETURN_IF(length < 0 || (size_t)length >= sizeof cache->folder, LGH_ERROR_SYSTEM,
              "TMPDIR is too long");
    RETURN_IF(!mkdtemp(cache->folder), LGH_ERROR_SYSTEM,
              "the folder %s for the cache of a cold start: %s; set TMPDIR to a writable one",
              cache->folder, strerror(errno));
    lgh_status status = point_at_folder(cache);
    if (status != LGH_SUCCESS)
        remove_folder(cache->folder);
    return status;
}

void lgh_tool_cache_leave(lgh_tool_cache *cache) {
    if (cache->previous)
        setenv(VARIABLE, cache->previous, 1);
    else
        unsetenv(VARIABLE);
    free(cache->previous);
    cache->previous = NULL;
    remove_folder(cache->folder);
}
