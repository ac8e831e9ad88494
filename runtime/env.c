/* env.c - every environment variable that the library reads. */
#include "env.h"

#include <stdio.h>
#include <stdlib.h>

static const char *env(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

const char *lgh__env_library_path(const char *library) {
    char name[64];
    snprintf(name, sizeof name, "LGH_%s_PATH", library);
    return env(name);
}

static int compose(char *path, unsigned long capacity, const char *folder, const char *below) {
    int length = snprintf(path, capacity, "%s%s", folder, below);
    return length > 0 && (unsigned long)length < capacity;
}

int lgh__env_cache_directory(char *path, unsigned long capacity) {
    if (env("LGH_CACHE_DIR"))
        return compose(path, capacity, env("LGH_CACHE_DIR"), "");
    if (env("XDG_CACHE_HOME"))
        return compose(path, capacity, env("XDG_CACHE_HOME"), "/loggerhead");
    if (env("HOME"))
        return compose(path, capacity, env("HOME"), "/.cache/loggerhead");
    return 0;
}

const char *lgh__env_cuda_home(void) {
    const char *home = env("CUDA_HOME");
    return home ? home : env("CUDA_PATH");
}

const char *lgh__env_virtual_env(void) {
    return env("VIRTUAL_ENV");
}

const char *lgh__env_conda_prefix(void) {
    return env("CONDA_PREFIX");
}

const char *lgh__env_home(void) {
    return env("HOME");
}
