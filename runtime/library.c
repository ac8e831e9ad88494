/* library.c - finding and opening shared objects at run time. */
#include "library.h"

#include "env.h"
#include "error.h"
#include "text.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The list of what was tried becomes part of a failure's text. */
typedef struct search {
    const lgh__library_name *name;
    void *handle;
    char tried[4096];
    lgh__text tried_text;
} search;

static int try_open(search *s, const char *path) {
    /* Binding every symbol now makes a broken library fail here rather than in a run call. */
    s->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!s->handle) {
        const char *reason = dlerror();
        lgh__text_append(&s->tried_text, "\n  %s", reason ? reason : path);
    }
    return s->handle != NULL;
}

static int try_process(search *s) {
    for (int i = 0; i < s->name->soname_count && !s->handle; ++i)
        s->handle = dlopen(s->name->sonames[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    return s->handle != NULL;
}

static int try_loader(search *s) {
    for (int i = 0; i < s->name->soname_count; ++i)
        if (try_open(s, s->name->sonames[i]))
            return 1;
    return 0;
}

/* Opens every soname in each folder that matches a glob pattern. */
static int try_folders(search *s, const char *base, const char *pattern) {
    char path[PATH_MAX];
    for (int i = 0; base && i < s->name->soname_count; ++i) {
        glob_t found;
        snprintf(path, sizeof path, "%s%s/%s", base, pattern, s->name->sonames[i]);
        if (glob(path, 0, NULL, &found) != 0)
            continue;
        int opened = 0;
        for (size_t k = 0; k < found.gl_pathc && !opened; ++k)
            opened = try_open(s, found.gl_pathv[k]);
        globfree(&found);
        if (opened)
            return 1;
    }
    return 0;
}

static int try_toolkit(search *s) {
    return try_folders(s, lgh__env_cuda_home(), "/lib64") ||
           try_folders(s, "/usr/local/cuda", "/lib64");
}

static int try_wheels(search *s) {
    static const char packages[] = "/lib/python3*/site-packages/nvidia/*/lib";
    return try_folders(s, lgh__env_virtual_env(), packages) ||
           try_folders(s, lgh__env_conda_prefix(), packages) ||
           try_folders(s, lgh__env_home(), "/.local/lib/python3*/site-packages/nvidia/*/lib") ||
           try_folders(s, "/usr/local", packages) ||
           try_folders(s, "/usr/local", "/lib/python3*/dist-packages/nvidia/*/lib") ||
           try_folders(s, "/usr", packages);
}

lgh_status lgh__library_open(void **handle, const lgh__library_name *name) {
    search s = {.name = name};
    s.tried_text = (lgh__text){s.tried, sizeof s.tried, 0};
    const char *given = lgh__env_library_path(name->variable);
    /* A path that the user gave is meant: falling back to another copy would hide a mistake. */
    int found = given ? try_open(&s, given)
                      : try_process(&s) || try_loader(&s) || try_toolkit(&s) || try_wheels(&s);
    RETURN_IF(!found, LGH_ERROR_LIBRARY_NOT_FOUND,
              "%s was not found: %s, or point LGH_%s_PATH at it. Tried:%s", name->title, name->hint,
              name->variable, s.tried);
    *handle = s.handle;
    return LGH_SUCCESS;
}

lgh_status lgh__library_symbol(void *handle, const lgh__library_name *name, const char *symbol,
                               void *into) {
    void *address = dlsym(handle, symbol);
    RETURN_IF(!address, LGH_ERROR_LIBRARY_NOT_FOUND, "%s lacks %s: it is too old; %s", name->title,
              symbol, name->hint);
    memcpy(into, &address, sizeof address);
    return LGH_SUCCESS;
}

const char *lgh__library_file(const void *symbol) {
    Dl_info info;
    return dladdr(symbol, &info) ? info.dli_fname : NULL;
}
